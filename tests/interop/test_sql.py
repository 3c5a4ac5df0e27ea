"""Our SQL92 filters against the Java broker's own, expression by expression."""

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from evenq.broker.filter.sql import sql_filter
from evenq.errors import ArgumentError
from evenq.model import Begin, Message
from tests.broker.filter.sql.expressions import CONTENTS, anything, cases
from tests.broker.filter.sql.test_evaluator import ODD
from tests.clusters import AnyCluster, create_topic
from tests.harness.scale import examples
from tests.realmq import JavaError, JavaHost

MESSAGES: list[dict[str, str]] = [
    {},
    *({"a": content} for content in CONTENTS),
    *({"b": content} for content in CONTENTS),
    *({"a": one, "b": other} for one, other in zip(CONTENTS, reversed(CONTENTS), strict=True)),
    *({"a": content, "b": content, "_c$9": "5"} for content in CONTENTS),
]


def ours(expression: str) -> list[bool] | None:
    try:
        wanted = sql_filter(expression)
    except ArgumentError:
        return None
    return [wanted(message) for message in MESSAGES]


# Many expressions at a time, and no shrinking: what differs is told by name.
@settings(
    max_examples=examples(20),
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.lists(anything | cases.map(lambda case: case.text), min_size=50, max_size=200, unique=True))
@example([case[1] for case in ODD])
def test_both_refuse_the_same_and_match_the_same(java: JavaHost, expressions: list[str]) -> None:
    theirs = zip(expressions, java.sql(expressions, MESSAGES), strict=True)

    assert [(expression, wanted) for expression, wanted in theirs if ours(expression) != wanted] == []


def test_the_odd_answers_are_javas(java: JavaHost) -> None:
    for name, expression, message, wanted in ODD:
        assert java.sql([expression], [message]) == [[wanted]], name


def test_a_java_member_gets_what_its_expression_lets_through(
    any_cluster: AnyCluster, java: JavaHost, topic: str, group: str
) -> None:
    create_topic(any_cluster.namesrv, topic, queues=2)
    with pytest.raises(JavaError, match="CODE: 23 "):
        java.push(any_cluster.namesrv, f"{group}-none", {topic: "n >"}, sql=True)
    numbered = [Message(topic, b"%d" % n, properties={"n": str(n), "kind": "ab"[n % 2]}) for n in range(40)]
    java.producer(any_cluster.namesrv).send(numbered)

    wanted = "n BETWEEN 10 AND 19 AND kind <> 'b' OR n >= 38"
    members = [
        java.push(any_cluster.namesrv, group, {topic: wanted}, sql=True, begin=Begin.FIRST),
        java.lite_pull(any_cluster.namesrv, f"{group}-pull", {topic: wanted}, sql=True, begin=Begin.FIRST),
    ]

    for member in members:
        got = sorted(int(received.message.body) for received in member.wait_for(7))
        assert got == [10, 12, 14, 16, 18, 38, 39]

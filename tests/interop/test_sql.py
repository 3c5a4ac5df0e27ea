"""Our SQL92 filters against the Java broker's own, expression by expression."""

from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from evenq.broker.sql import sql_filter
from evenq.errors import ArgumentError
from tests.broker.sql.expressions import CONTENTS, anything, cases
from tests.broker.sql.test_evaluator import ODD
from tests.realmq import JavaHost

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
    max_examples=20,
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

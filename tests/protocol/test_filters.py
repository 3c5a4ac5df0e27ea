import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenq.errors import ArgumentError
from evenq.protocol.filters import SQL92, parse_tags, passes, subscription, tag_code


@pytest.mark.parametrize(
    ("expression", "tags"),
    [("*", set()), ("", set()), ("a", {"a"}), ("a||b", {"a", "b"}), (" a || b || ", {"a", "b"}), ("a|b", {"a|b"})],
)
def test_tags_of_an_expression(expression: str, tags: set[str]) -> None:
    assert parse_tags(expression) == tags


@pytest.mark.parametrize("expression", ["||", "  ", " || "])
def test_an_expression_without_tags(expression: str) -> None:
    with pytest.raises(ArgumentError, match="expression"):
        parse_tags(expression)


def test_a_subscription_as_heartbeats_carry_it() -> None:
    wanted = subscription("orders", "TagA || 标签", version=9)
    assert (wanted.topic, wanted.sub_string, wanted.sub_version) == ("orders", "TagA || 标签", 9)
    assert wanted.tags_set == {"TagA", "标签"}
    assert wanted.code_set == {2598919, 857175}


def test_everything() -> None:
    wanted = subscription("orders", version=0)
    assert (wanted.sub_string, wanted.tags_set, wanted.code_set) == ("*", set(), set())


def test_sql_is_passed_on() -> None:
    wanted = subscription("orders", "a > 1 || b", version=0, expression_type=SQL92)
    assert (wanted.sub_string, wanted.tags_set, wanted.expression_type) == ("a > 1 || b", set(), "SQL92")


def test_a_topic_is_needed() -> None:
    with pytest.raises(ArgumentError, match="topic"):
        subscription("", version=0)


@given(st.text(min_size=1, max_size=5), st.text(min_size=1, max_size=5))
def test_only_the_tags_asked_for_pass(one: str, other: str) -> None:
    assert passes([one], one)
    assert passes([one], other) == (one == other)
    assert passes([], other)
    assert not passes([one], None)
    assert tag_code(one) in range(-(2**31), 2**31)

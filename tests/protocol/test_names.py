import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenq.protocol.names import group_error, is_system_topic, topic_error, with_namespace, without_namespace

NAMES = st.text("abcXYZ019_-|", min_size=1, max_size=20)


@pytest.mark.parametrize(
    ("topic", "complaint"),
    [
        ("orders", None),
        ("a|b%c_d-9", None),
        ("t" * 127, None),
        ("%RETRY%" + "t" * 248, None),
        ("", "blank"),
        (" ", "blank"),
        ("or.ders", "'or.ders' has characters"),
        ("orders\n", "has characters"),
        ("../up", "has characters"),
        ("bestellungen-ä", "has characters"),
        ("t" * 128, "has 128 characters; at most 127"),
        ("%DLQ%" + "t" * 251, "has 256 characters; at most 255"),
    ],
)
def test_topics_are_judged_as_java_judges_them(topic: str, complaint: str | None) -> None:
    found = topic_error(topic)
    assert found is None if complaint is None else found is not None and complaint in found


def test_a_broker_may_be_set_to_other_lengths() -> None:
    assert topic_error("t" * 10, longest=10) is None
    assert topic_error("t" * 11, longest=10) == f"topic {'t' * 11!r} has 11 characters; at most 10 are possible"
    assert topic_error("%RETRY%" + "g" * 120, longest=10) is None


def test_groups_are_shorter_than_topics_because_topics_are_made_of_them() -> None:
    assert group_error("g" * 120) is None
    assert group_error("g" * 121) == f"group {'g' * 121!r} has 121 characters; at most 120 are possible"
    assert topic_error("%RETRY%" + "g" * 120) is None


@given(NAMES, NAMES, st.sampled_from(["", "%RETRY%", "%DLQ%"]))
def test_a_namespace_is_put_on_once_and_taken_off_again(namespace: str, name: str, prefix: str) -> None:
    if is_system_topic(prefix + name):
        return
    wire = with_namespace(namespace, prefix + name)
    assert wire == f"{prefix}{namespace}%{name}"
    assert with_namespace(namespace, wire) == wire
    assert without_namespace(namespace, wire) == prefix + name
    assert without_namespace("other-" + namespace, wire) == wire


@pytest.mark.parametrize(
    "topic", ["RMQ_SYS_TRACE_TOPIC", "rmq_sys_wheel_timer", "TBW102", "DefaultCluster_REPLY_TOPIC"]
)
def test_what_is_rocketmqs_own_has_no_namespace(topic: str) -> None:
    assert with_namespace("shop", topic) == topic

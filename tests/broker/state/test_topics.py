"""Topics and their attributes: made, allowed and refused as the Java broker does it."""

import pytest

from evenq.broker.state.topics import Topics, alter_attributes, dead_letter_topic, parse_attribute_changes, retry_topic
from evenq.errors import ArgumentError
from evenq.protocol.bodies import TopicConfig, TopicConfigTable


def make(**how: object) -> Topics:
    return Topics("DefaultCluster", "broker-a", clock=lambda: 5.0, **how)  # type: ignore[arg-type]


@pytest.mark.parametrize(("asked", "made"), [(4, 4), (8, 8), (100, 8), (0, 0), (-3, 0)])
def test_a_send_creates_its_topic_with_as_many_queues_as_the_model_allows(asked: int, made: int) -> None:
    topics = make()
    topic = topics.create_for_send("orders", "TBW102", asked)
    assert topic == TopicConfig(topic_name="orders", read_queue_nums=made, write_queue_nums=made, perm=6)
    assert topics.create_for_send("orders", "TBW102", 1) is topic


def test_no_topic_is_created_after_a_model_that_lends_nothing() -> None:
    topics = make()
    topics.put(TopicConfig(topic_name="own"))
    assert topics.create_for_send("orders", "own", 4) is None
    assert topics.create_for_send("orders", "nobody", 4) is None
    assert make(auto_create=False).create_for_send("orders", "TBW102", 4) is None


def test_topics_of_groups() -> None:
    topics = make()
    assert (retry_topic("g"), dead_letter_topic("g")) == ("%RETRY%g", "%DLQ%g")
    made = topics.create_for_group("%RETRY%g", 1)
    assert (made.read_queue_nums, made.perm) == (1, 6)
    assert topics.create_for_group("%RETRY%g", 7) is made


def test_only_real_changes_are_told_of() -> None:
    calls: list[str] = []
    topics = make(changed=lambda: calls.append("changed"))
    config = TopicConfig(topic_name="orders")
    topics.put(config)
    topics.put(config)
    assert topics.delete("orders")
    assert not topics.delete("orders")
    assert len(calls) == 2
    assert topics.table().data_version.counter == 2


def test_saved_settings_stand_over_the_built_in_ones() -> None:
    saved = TopicConfigTable(
        topic_config_table={"TBW102": TopicConfig(topic_name="TBW102", write_queue_nums=2, perm=7)}
    )
    topic = make(saved=saved).create_for_send("orders", "TBW102", 8)
    assert topic is not None
    assert topic.write_queue_nums == 2


def test_the_brokers_own_books_take_no_sends() -> None:
    topics = make()
    assert not topics.may_send("SCHEDULE_TOPIC_XXXX")
    assert topics.may_send("orders")
    assert {"TBW102", "DefaultCluster", "broker-a", "SCHEDULE_TOPIC_XXXX"} <= topics.system
    assert all(name in topics for name in topics.system)


def test_attributes_are_added_changed_and_taken_away() -> None:
    attributes = alter_attributes(
        {}, parse_attribute_changes("+message.type=FIFO,+queue.type=SimpleCQ,+reserve.time=-1"), new=True
    )
    assert attributes == {"message.type": "FIFO", "queue.type": "SimpleCQ", "reserve.time": "-1"}
    attributes = alter_attributes(attributes, parse_attribute_changes("+message.type=DELAY,-reserve.time"))
    assert attributes == {"message.type": "DELAY", "queue.type": "SimpleCQ"}
    assert alter_attributes(attributes, parse_attribute_changes(None)) == attributes


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ("+color=red", "of queue.type"),
        ("message.type=FIFO", "give .name=value"),
        ("+message.type=LIFO", "must be UNSPECIFIED or NORMAL"),
        ("+reserve.time=soon", "must be a number"),
        ("+reserve.time=-2", "must be a number"),
        ("-reserve.time", "has no reserve.time"),
        ("+queue.type=SimpleCQ", "cannot be changed"),
        ("+message.type=FIFO,+message.type=DELAY", "comes twice"),
    ],
)
def test_what_a_topic_cannot_be_is_refused(changes: str, reason: str) -> None:
    with pytest.raises(ArgumentError, match=reason):
        alter_attributes({"message.type": "NORMAL"}, parse_attribute_changes(changes))


@pytest.mark.parametrize("changes", ["+queue.type=BatchCQ", "+cleanup.policy=COMPACTION"])
def test_what_this_broker_does_not_do_is_refused_from_the_start(changes: str) -> None:
    with pytest.raises(ArgumentError, match="must be"):
        alter_attributes({}, parse_attribute_changes(changes), new=True)

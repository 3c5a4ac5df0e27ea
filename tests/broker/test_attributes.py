"""Attributes of topics: allowed and refused as the Java broker does it."""

import pytest

from evenq.broker.attributes import alter, parse_changes
from evenq.errors import ArgumentError


def test_attributes_are_added_changed_and_taken_away() -> None:
    attributes = alter({}, parse_changes("+message.type=FIFO,+queue.type=SimpleCQ,+reserve.time=-1"), new=True)
    assert attributes == {"message.type": "FIFO", "queue.type": "SimpleCQ", "reserve.time": "-1"}
    attributes = alter(attributes, parse_changes("+message.type=DELAY,-reserve.time"))
    assert attributes == {"message.type": "DELAY", "queue.type": "SimpleCQ"}
    assert alter(attributes, parse_changes(None)) == attributes


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
        alter({"message.type": "NORMAL"}, parse_changes(changes))


@pytest.mark.parametrize("changes", ["+queue.type=BatchCQ", "+cleanup.policy=COMPACTION"])
def test_what_this_broker_does_not_do_is_refused_from_the_start(changes: str) -> None:
    with pytest.raises(ArgumentError, match="must be"):
        alter({}, parse_changes(changes), new=True)

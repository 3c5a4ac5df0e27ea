"""What a message may hold."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from evenq import Message
from evenq.errors import ArgumentError

SOON = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("bad", ["a\x02KEYS\x01evil", "a\x01b", "\ud800", "a\udfffb", 7, b"a"])
@pytest.mark.parametrize("argument", ["tags", "keys", "sharding_key", "properties"])
def test_text_that_would_become_other_properties_is_refused(argument: str, bad: object) -> None:
    given: dict[str, list[Any]] = {"keys": [[bad]], "properties": [{"name": bad}, {bad: "value"}]}
    for value in given.get(argument, [bad]):
        with pytest.raises(ArgumentError, match=f"{argument}=") as refused:
            Message("t", b"x", **{argument: value})
        assert refused.value.value == bad


def test_other_text_is_taken_as_it_is() -> None:
    text = "päid\t\x00\x7f\u2028\U0001f680"
    message = Message("t", b"x", tags=text, keys=[text], sharding_key=text, properties={text: text})
    assert message.wire_properties() == {text: text, "TAGS": text, "KEYS": text, "__SHARDINGKEY": text}


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"delay_level": 3, "deliver_at": SOON}, "deliver_at='2030-.*': give delay_level or deliver_at, not both"),
        ({"deliver_at": 5}, "deliver_at=5: give a datetime with a time zone"),
        ({"deliver_at": SOON.replace(tzinfo=None)}, "deliver_at=.*: give a datetime with a time zone"),
        ({"delay_level": "3"}, "delay_level='3': give a level"),
        ({"delay_level": -1}, "delay_level=-1: give a level"),
        ({"delay_level": None}, "delay_level=None: give a level"),
        ({"delay_level": 1.5}, "delay_level=1.5: give a level"),
        ({"flag": "a"}, "flag='a': give a whole number"),
        ({"flag": 1 << 31}, "flag=2147483648: give a whole number of 32 bits"),
    ],
)
def test_times_and_numbers_of_messages_are_checked(arguments: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ArgumentError, match=complaint):
        Message("t", b"x", **arguments)


def test_a_level_above_the_highest_is_the_brokers_affair() -> None:
    assert Message("t", b"x", delay_level=99, flag=-1).delay_level == 99

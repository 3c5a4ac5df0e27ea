"""What a message may hold."""

from __future__ import annotations

from typing import Any

import pytest

from evenq import Message
from evenq.errors import ArgumentError


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

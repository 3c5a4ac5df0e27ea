"""An answer made of a form is the one that the command itself would write."""

from typing import get_args

import pytest

from evenq.broker.handlers.pullanswers import FOUND, found_answer, pull_ext
from evenq.broker.store.store import Read, ReadStatus
from evenq.protocol.command import Command, Serialize


@pytest.mark.parametrize("serialize", get_args(Serialize))
@pytest.mark.parametrize(("next_offset", "opaque"), [(32, 0), (1 << 40, 1_234_567_890), (7, (1 << 31) - 1), (7, -3)])
def test_an_answer_that_brings_messages(serialize: Serialize, next_offset: int, opaque: int) -> None:
    request = Command(11, opaque, serialize=serialize)
    read = Read(ReadStatus.FOUND, next_offset, 5, next_offset + 9, b"records", 2)
    expected = request.reply(0, ext=pull_ext(next_offset, 5, next_offset + 9), body=b"records", remark=FOUND)
    made = found_answer(request, read)
    assert made.encode() == expected.encode()
    assert Command.decode(made.encode()) == expected
    assert (made.opaque, made.is_response, made.body) == (opaque, True, b"records")

"""Answers that come later, or not at all."""

import asyncio
from typing import Any

import pytest

from evenq.broker.later import Later
from evenq.broker.server import Connection, Refusal
from evenq.errors import ConnectError
from evenq.protocol.codes import ResponseCode
from evenq.protocol.command import Command


class Peer:
    address = "127.0.0.1:1"

    def __init__(self) -> None:
        self.got: list[Command] = []

    def send(self, command: Command) -> None:
        self.got.append(command)


@pytest.mark.parametrize(
    ("outcome", "code", "words"),
    [
        (None, ResponseCode.SUCCESS, None),
        (Refusal(ResponseCode.QUERY_NOT_FOUND, "none there"), ResponseCode.QUERY_NOT_FOUND, "none there"),
        (ConnectError("10.0.0.1:1", "gone"), ResponseCode.SYSTEM_ERROR, "connection to 10.0.0.1:1: gone"),
        (KeyError("oh"), ResponseCode.SYSTEM_ERROR, "KeyError: 'oh'"),
    ],
)
def test_the_asker_always_hears_something(outcome: Exception | None, code: int, words: str | None) -> None:
    request = Command(12, opaque=77)
    peer: Any = Peer()

    async def reply() -> Command:
        await asyncio.sleep(0)
        if outcome is not None:
            raise outcome
        return request.reply()

    async def scene(connection: Connection) -> None:
        later = Later()
        later.answer(request, connection, reply())
        assert peer.got == []
        async with asyncio.timeout(5):
            while not peer.got:
                await asyncio.sleep(0)

    asyncio.run(scene(peer))
    (answer,) = peer.got
    assert (answer.code, answer.opaque, answer.remark) == (code, 77, words)

"""Answers that come later, or not at all."""

import asyncio
from typing import Any

import pytest

from evenq.broker.later import DeferredReplies
from evenq.broker.limits import Limits
from evenq.broker.server import Connection, Refusal, Server
from evenq.errors import ConnectError
from evenq.protocol.codes import ResponseCode
from evenq.protocol.command import Command


class Peer:
    """A connection that keeps what is sent over it."""

    address = "127.0.0.1:1"
    server = Server("test server", limits=Limits(max_peer_requests=3))
    is_slow = False

    def __init__(self) -> None:
        self.got: list[Command] = []
        self.pending = 0

    def wait(self) -> None:
        self.pending += 1

    def done(self) -> None:
        self.pending -= 1

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
        later = DeferredReplies()
        later.answer(request, connection, reply())
        assert peer.got == []
        async with asyncio.timeout(5):
            while not peer.got:
                await asyncio.sleep(0)

    asyncio.run(scene(peer))
    (answer,) = peer.got
    assert (answer.code, answer.opaque, answer.remark) == (code, 77, words)


def test_a_client_may_wait_for_so_many_answers() -> None:
    peer: Any = Peer()

    async def scene(connection: Connection) -> None:
        later = DeferredReplies()
        answer = asyncio.Event()

        async def reply() -> Command:
            await answer.wait()
            return Command(12)

        for opaque in range(3):
            later.answer(Command(12, opaque=opaque), connection, reply())
        assert peer.pending == 3
        with pytest.raises(Refusal, match=r"3 requests of 127\.0\.0\.1:1 wait for their answers"):
            later.answer(Command(12, opaque=3), connection, reply())
        answer.set()
        async with asyncio.timeout(5):
            while peer.pending:
                await asyncio.sleep(0)
        later.answer(Command(12, opaque=4), connection, reply())
        async with asyncio.timeout(5):
            while peer.pending:
                await asyncio.sleep(0)

    asyncio.run(scene(peer))
    assert len(peer.got) == 4


def test_a_client_that_does_not_read_gets_no_bodies() -> None:
    peer: Any = Peer()
    peer.is_slow = True

    async def scene(connection: Connection) -> None:
        async def reply() -> Command:
            return Command(12, body=bytes(1000))

        DeferredReplies().answer(Command(12), connection, reply())
        async with asyncio.timeout(5):
            while peer.pending:
                await asyncio.sleep(0)

    asyncio.run(scene(peer))
    assert [(answer.code, answer.body) for answer in peer.got] == [(ResponseCode.SYSTEM_BUSY, b"")]

"""Locks that a broker did not take back."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from evenq.client.group.owed import OwedReturns
from evenq.errors import ConnectError
from evenq.model import MessageQueue

Q0, Q1 = (MessageQueue("orders", "broker-a", number) for number in range(2))
OTHER = MessageQueue("orders", "broker-b", 0)


class Broker:
    """Takes locks back, unless it is away; ``answer`` lets it take its time."""

    def __init__(self) -> None:
        self.away = False
        self.taken: list[tuple[list[MessageQueue], str, str]] = []
        self.asked = asyncio.Event()
        self.answer = asyncio.Event()
        self.answer.set()
        self.now = 0.0
        self.owed = OwedReturns(self.unlock, 60.0, lambda: self.now)

    async def unlock(self, queues: list[MessageQueue], owner: str, name: str) -> None:
        self.asked.set()
        await self.answer.wait()
        if self.away:
            raise ConnectError("b:1", "refused")
        self.taken.append((sorted(queues), owner, name))


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


def test_locks_are_offered_until_the_broker_takes_them() -> None:
    async def scenario() -> None:
        broker = Broker()
        broker.owed.add([Q0, Q1], "m1", "HANDOVER-g")
        broker.away = True
        for _ in range(3):
            await broker.owed.give_back()
        assert (len(broker.owed), broker.taken) == (2, [])
        broker.away = False
        for _ in range(3):
            await broker.owed.give_back()
        assert broker.taken == [([Q0, Q1], "m1", "HANDOVER-g")]

    run(scenario())


def test_each_broker_owner_and_name_gets_a_request() -> None:
    async def scenario() -> None:
        broker = Broker()
        broker.owed.add([Q0, OTHER], "m1", "HANDOVER-g")
        broker.owed.add([Q0], "m1", "HANDOVER-2-g")
        broker.owed.add([Q0], "dead", "HANDOVER-g")
        await broker.owed.give_back()
        assert sorted(broker.taken) == [
            ([Q0], "dead", "HANDOVER-g"),
            ([Q0], "m1", "HANDOVER-2-g"),
            ([Q0], "m1", "HANDOVER-g"),
            ([OTHER], "m1", "HANDOVER-g"),
        ]

    run(scenario())


def test_locks_that_have_ended_by_themselves_are_not_offered() -> None:
    async def scenario() -> None:
        broker = Broker()
        broker.owed.add([Q0], "m1", "HANDOVER-g")
        broker.now = 60.0
        await broker.owed.give_back()
        assert (len(broker.owed), broker.taken) == (0, [])

    run(scenario())


def test_a_lock_that_was_granted_anew_is_kept() -> None:
    async def scenario() -> None:
        broker = Broker()
        broker.owed.add([Q0, Q1], "m1", "HANDOVER-g")
        broker.owed.keep([Q0], "m1", "HANDOVER-g")
        await broker.owed.give_back()
        assert broker.taken == [([Q1], "m1", "HANDOVER-g")]

    run(scenario())


def test_a_member_that_is_back_keeps_its_locks() -> None:
    async def scenario() -> None:
        broker = Broker()
        broker.owed.add([Q0], "back", "HANDOVER-g")
        broker.owed.add([Q1], "dead", "HANDOVER-g")
        broker.owed.keep_all_of({"back", "m1"})
        await broker.owed.give_back()
        assert broker.taken == [([Q1], "dead", "HANDOVER-g")]

    run(scenario())


def test_a_lock_that_is_being_taken_is_not_given_back() -> None:
    async def scenario() -> None:
        broker = Broker()
        broker.owed.add([Q0, Q1], "m1", "HANDOVER-g")
        async with broker.owed.trying([Q0], "m1", "HANDOVER-g"):
            await broker.owed.give_back()
            assert broker.taken == [([Q1], "m1", "HANDOVER-g")]
        await broker.owed.give_back()
        assert broker.taken[1:] == [([Q0], "m1", "HANDOVER-g")]

    run(scenario())


def test_taking_a_lock_waits_until_it_is_given_back() -> None:
    async def scenario() -> None:
        broker = Broker()
        broker.owed.add([Q0], "m1", "HANDOVER-g")
        broker.answer.clear()
        returning = asyncio.create_task(broker.owed.give_back())
        await broker.asked.wait()
        taken: list[int] = []

        async def take() -> None:
            async with broker.owed.trying([Q0, Q1], "m1", "HANDOVER-g"):
                taken.append(len(broker.taken))

        taking = asyncio.create_task(take())
        async with broker.owed.trying([Q1], "m1", "HANDOVER-g"), broker.owed.trying([Q0], "m2", "HANDOVER-g"):
            # neither another queue nor another owner waits
            assert taken == []
        broker.answer.set()
        await asyncio.gather(returning, taking)
        assert taken == [1]

    run(scenario())

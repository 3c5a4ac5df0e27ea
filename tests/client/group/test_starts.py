"""Where to begin in many queues: against a broker whose every answer is scripted."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import cast

import pytest

from evenq.client.group import starts as module
from evenq.client.group.starting import StartingPoint
from evenq.client.group.starts import Start, Starts
from evenq.client.net.session import Session
from evenq.errors import ConnectError
from evenq.model import MessageQueue
from evenq.protocol.bodies import OffsetPair
from evenq.supervision import Outages

QUEUES = [MessageQueue("t", "b", n) for n in range(6)]


class Broker:
    """Stored offsets (None: never stored) and ends by queue id; counts the questions."""

    def __init__(self, stored: list[int | None], ends: list[int], *, together: bool = True) -> None:
        self.stored, self.ends, self.together = stored, ends, together
        self.asked: Counter[str] = Counter()

    async def progress(self, address: str, group: str, topic: str) -> dict[MessageQueue, OffsetPair]:
        self.asked["progress"] += 1
        if not self.together:
            raise ConnectError(address, "not supported")
        pairs = zip(self.stored, self.ends, strict=True)
        return {
            MessageQueue(topic, "b", n): OffsetPair(broker_offset=end, consumer_offset=stored or 0)
            for n, (stored, end) in enumerate(pairs)
        }

    async def stored_offset(
        self, address: str, group: str, queue: MessageQueue, *, never_guess: bool = False
    ) -> int | None:
        self.asked["stored"] += 1
        return self.stored[queue.queue_id]

    async def max_offset(self, address: str, queue: MessageQueue) -> int:
        self.asked["max"] += 1
        return self.ends[queue.queue_id]

    async def min_offset(self, address: str, queue: MessageQueue) -> int:
        return 3

    async def offset_at(self, address: str, queue: MessageQueue, milliseconds: int) -> int:
        return 8


def find(
    broker: Broker,
    count: int = 6,
    *,
    until_still: bool = False,
    queues: list[MessageQueue] = QUEUES,
    begin: str | datetime = "last",
) -> dict[int, Start]:
    session = SimpleNamespace(remote=broker, routes=SimpleNamespace(address_of=lambda queue: "b:1"), outages=Outages())
    starts = Starts(cast(Session, session), "g", StartingPoint.of(begin))
    found = asyncio.run(starts.find(queues[:count], until_still=until_still))
    return {queue.queue_id: start for queue, start in found.items()}


def test_one_question_for_many_queues_and_one_more_for_each_that_it_leaves_open() -> None:
    broker = Broker([7, 8, 9, 0, None, None], [10, 10, 10, 10, 10, 0])
    assert find(broker) == {
        0: Start(7, True),
        1: Start(8, True),
        2: Start(9, True),
        3: Start(0, True),  # stored as 0: looks like never stored, so it was asked for by itself
        4: Start(10, False),  # never stored: begins at the end
        5: Start(0, False),  # empty: begins at 0 whatever is stored
    }
    assert broker.asked == {"progress": 1, "stored": 2, "max": 1}


def test_few_queues_are_asked_for_one_by_one() -> None:
    broker = Broker([7, 8, 0, 0, 0, 0], [10] * 6)
    assert find(broker, 2) == {0: Start(7, True), 1: Start(8, True)}
    assert broker.asked == {"stored": 2}


def test_a_broker_that_does_not_know_the_question_for_all_is_asked_one_by_one() -> None:
    broker = Broker([1, 2, 3, 4, 5, 6], [10] * 6, together=False)
    assert find(broker) == {n: Start(n + 1, True) for n in range(6)}


@pytest.mark.parametrize("begin", ["last", "first", datetime.now(UTC)], ids=["last", "first", "time"])
def test_a_retry_queue_without_a_stored_offset_begins_at_zero(begin: str | datetime) -> None:
    broker = Broker([7, 0, None, None, 0, None], [10] * 6)
    retries = [MessageQueue("%RETRY%g", "b", n) for n in range(6)]
    assert find(broker, queues=retries, begin=begin) == {
        0: Start(7, True),
        1: Start(0, True),
        2: Start(0, False),
        3: Start(0, False),
        4: Start(0, True),
        5: Start(0, False),
    }


def test_beside_java_members_the_offset_must_stand_still(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STILL_PAUSE", 0)
    broker = Broker([5, 0, 0, 0, 0, 0], [100] * 6)
    answers = [5, 9, 12, 12, 12, 12]

    async def moving(address: str, group: str, queue: MessageQueue, *, never_guess: bool = False) -> int:
        broker.asked["stored"] += 1
        return answers[min(broker.asked["stored"], len(answers)) - 1]

    broker.stored_offset = moving  # type: ignore[method-assign]
    assert find(broker, 1, until_still=True) == {0: Start(12, True)}
    assert broker.asked["stored"] == 6


def test_an_offset_that_was_never_stored_is_not_asked_for_anew_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STILL_PAUSE", 0)
    broker = Broker([None] * 6, [10] * 6)
    assert find(broker, 1, until_still=True) == {0: Start(10, False)}
    assert broker.asked["max"] == 1

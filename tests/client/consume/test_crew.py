import asyncio
from collections.abc import Callable

import pytest

from evenq.client.consume import crew as crew_module
from evenq.client.consume.crew import Crew
from evenq.client.consume.dispatch import Outcome
from evenq.client.consume.holding import Holding
from evenq.errors import StateError
from evenq.protocol.view import MessageView
from tests.client.consume.test_dispatch import filled
from tests.client.consume.test_holding import pulled


class Delivery:
    """Threads whose calls end when the test says so."""

    def __init__(self) -> None:
        self.running: list[tuple[Holding, list[MessageView], Callable[[Outcome], None]]] = []
        self.order: list[tuple[str, list[int]]] = []
        self.failing = False

    def begin(self, holding: Holding, batch: list[MessageView], ended: Callable[[Outcome], None]) -> None:
        self.order.append((holding.queue.topic, [message.queue_offset for message in batch]))
        self.running.append((holding, batch, ended))

    def end(self, holding: Holding, batch: list[MessageView], outcome: Outcome) -> None:
        if self.failing:
            raise RuntimeError("on purpose")
        holding.finish(batch)

    def end_first(self) -> None:
        _, _, ended = self.running.pop(0)
        ended(None)


def test_queues_take_turns_and_none_starves() -> None:
    delivery = Delivery()
    crew = Crew(delivery, 1, 2)
    for holding in (filled("long", 8), filled("short", 3)):
        crew.announce(holding)
    while delivery.running:
        delivery.end_first()
    assert delivery.order == [
        ("long", [0, 1]), ("long", [2, 3]), ("short", [0, 1]), ("long", [4, 5]), ("short", [2]), ("long", [6, 7]),
    ]  # fmt: skip


def test_so_many_batches_run_at_a_time_and_the_next_begins_when_one_ends() -> None:
    delivery, holding = Delivery(), filled("t", 10)
    crew = Crew(delivery, 3, 1)
    crew.announce(holding)
    crew.announce(holding)
    assert len(delivery.running) == 3
    delivery.end_first()
    assert [offsets for _, offsets in delivery.order] == [[0], [1], [2], [3]]
    assert holding.committable == 1
    while delivery.running:
        delivery.end_first()
    assert (holding.committable, len(delivery.order)) == (10, 10)


def test_what_comes_later_sets_it_going_again() -> None:
    delivery, holding = Delivery(), filled("t", 1)
    crew = Crew(delivery, 3, 32)
    crew.announce(holding)
    delivery.end_first()
    holding.add(pulled(1, 2))
    crew.announce(holding)
    assert delivery.order == [("t", [0]), ("t", [1, 2])]


def test_it_outlives_a_delivery_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    delivery, holding = Delivery(), filled("t", 3)
    crew = Crew(delivery, 1, 1)
    crew.announce(holding)
    delivery.failing = True
    delivery.end_first()
    delivery.failing = False
    while delivery.running:
        delivery.end_first()
    assert len(delivery.order) == 3
    assert holding.committable == 0, "what failed without an outcome holds the commit back"
    assert "on purpose" in caplog.text


def test_it_outlives_a_call_that_cannot_begin(caplog: pytest.LogCaptureFixture) -> None:
    class Refusing(Delivery):
        def begin(self, holding: Holding, batch: list[MessageView], ended: Callable[[Outcome], None]) -> None:
            if batch[0].queue_offset == 0:
                raise RuntimeError("no more threads")
            super().begin(holding, batch, ended)

    delivery, holding = Refusing(), filled("t", 2)
    Crew(delivery, 1, 1).announce(holding)
    delivery.end_first()
    assert (delivery.order, holding.committable) == ([("t", [1])], 0)
    assert "no more threads" in caplog.text


def test_a_crew_that_is_stopped_begins_nothing() -> None:
    delivery, holding = Delivery(), filled("t", 3)
    crew = Crew(delivery, 1, 1)
    crew.announce(holding)
    asyncio.run(crew.stop())
    delivery.end_first()
    crew.announce(holding)
    assert delivery.order == [("t", [0])]


def test_messages_that_cannot_be_taken_now_are_delivered_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crew_module, "FAILED_PAUSE", 0.01)
    delivery, broken, sound = Delivery(), filled("broken", 1), filled("sound", 1)
    take, failures = broken.take, [StateError("on purpose")]

    def take_later(count: int) -> list[MessageView]:
        if failures:
            raise failures.pop()
        return take(count)

    monkeypatch.setattr(broken, "take", take_later)

    async def scenario() -> None:
        crew = Crew(delivery, 1, 1)
        crew.announce(broken)
        crew.announce(sound)
        delivery.end_first()
        async with asyncio.timeout(5):
            while not delivery.running:
                await asyncio.sleep(0.001)

    asyncio.run(scenario())
    assert delivery.order == [("sound", [0]), ("broken", [0])]

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from evenq.client.calling import is_async
from evenq.client.consume import dispatch
from evenq.client.consume.dispatch import Dispatcher, Outcome, Retry, checked_outcome
from evenq.client.consume.holding import Holding
from evenq.client.settings import FlowControl
from evenq.errors import ArgumentError, StateError
from evenq.model import MessageQueue
from evenq.protocol.view import MessageView
from tests.client.consume.test_holding import pulled

Deliver = Callable[[Holding, list[MessageView]], Awaitable[float]]


class Delivery:
    def __init__(self, deliver: Deliver, *, in_order: bool = False) -> None:
        self.in_order = in_order
        self.pauses: list[float] = []
        self._deliver = deliver

    def ready(self, holding: Holding) -> float:
        return self.pauses.pop() if self.pauses else 0.0

    async def deliver(self, holding: Holding, batch: list[MessageView]) -> float:
        return await self._deliver(holding, batch)


def filled(name: str, count: int) -> Holding:
    holding = Holding(MessageQueue(name, "b", 0), 0, FlowControl())
    holding.add(pulled(*range(count)))
    return holding


def run(delivery: Delivery, *holdings: Holding, lanes: int = 1, batch: int = 1) -> None:
    """Let a dispatcher deliver until nothing is left in hand."""

    async def scenario() -> None:
        dispatcher = Dispatcher(delivery, lanes, batch)
        dispatcher.start()
        for holding in holdings:
            dispatcher.announce(holding)
        async with asyncio.timeout(5):
            while any(holding.waiting or holding._running for holding in holdings):
                await asyncio.sleep(0.001)
        await dispatcher.stop()

    asyncio.run(scenario())


def test_queues_take_turns_and_none_starves() -> None:
    order: list[str] = []

    async def deliver(holding: Holding, batch: list[MessageView]) -> float:
        order.append(holding.queue.topic)
        await asyncio.sleep(0)
        holding.finish(batch)
        return 0.0

    run(Delivery(deliver), filled("long", 20), filled("short", 4), batch=2)
    assert order[:4] == ["long", "short", "long", "short"]
    assert len(order) == 12


@pytest.mark.parametrize(("in_order", "expected"), [(False, 3), (True, 1)])
def test_so_many_batches_of_a_queue_run_at_a_time(in_order: bool, expected: int) -> None:
    running = most = 0
    offsets: list[int] = []

    async def deliver(holding: Holding, batch: list[MessageView]) -> float:
        nonlocal running, most
        running += 1
        most = max(most, running)
        offsets.extend(each.queue_offset for each in batch)
        await asyncio.sleep(0.001)
        running -= 1
        holding.finish(batch)
        return 0.0

    run(Delivery(deliver, in_order=in_order), filled("t", 30), lanes=3)
    assert (most, offsets) == (expected, list(range(30)))


def test_in_order_several_queues_still_run_side_by_side() -> None:
    running = most = 0

    async def deliver(holding: Holding, batch: list[MessageView]) -> float:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1
        holding.finish(batch)
        return 0.0

    run(Delivery(deliver, in_order=True), *(filled(f"t{n}", 5) for n in range(3)), lanes=3)
    assert most == 3


def test_a_queue_that_pauses_leaves_its_lane_to_others() -> None:
    order: list[tuple[str, int]] = []
    failed = False

    async def deliver(holding: Holding, batch: list[MessageView]) -> float:
        nonlocal failed
        order.append((holding.queue.topic, batch[0].queue_offset))
        if holding.queue.topic == "bad" and not failed:
            failed = True
            holding.take_back(batch)
            return 0.05
        holding.finish(batch)
        return 0.0

    delivery = Delivery(deliver, in_order=True)
    run(delivery, filled("bad", 2), filled("good", 3))
    assert order == [("bad", 0), ("good", 0), ("good", 1), ("good", 2), ("bad", 0), ("bad", 1)]


def test_a_queue_that_is_not_ready_is_looked_at_again() -> None:
    seen: list[int] = []

    async def deliver(holding: Holding, batch: list[MessageView]) -> float:
        seen.append(batch[0].queue_offset)
        holding.finish(batch)
        return 0.0

    delivery = Delivery(deliver, in_order=True)
    delivery.pauses = [0.01, 0.01]
    run(delivery, filled("t", 2))
    assert seen == [0, 1]
    assert delivery.pauses == []


def test_a_lane_outlives_a_delivery_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    delivered: list[int] = []

    async def deliver(holding: Holding, batch: list[MessageView]) -> float:
        if batch[0].queue_offset == 0:
            raise RuntimeError("on purpose")
        delivered.append(batch[0].queue_offset)
        holding.finish(batch)
        return 0.0

    holding = filled("t", 3)
    run(Delivery(deliver), holding)
    assert delivered == [1, 2]
    assert holding.progress.committable == 0, "what failed without an outcome holds the commit back"
    assert "on purpose" in caplog.text


def test_what_is_to_be_awaited_is_known() -> None:
    class Async:
        async def __call__(self) -> None: ...

    async def coroutine() -> None: ...

    assert [is_async(each) for each in (Async(), coroutine, lambda: None, Async)] == [True, True, False, False]


def test_what_is_no_level_is_named() -> None:
    with pytest.raises(ArgumentError, match="delay_level=19"):
        Retry(19)


@pytest.mark.parametrize("in_order", [False, True])
def test_messages_that_cannot_be_taken_now_are_delivered_later(in_order: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "FAILED_PAUSE", 0.01)
    holding = filled("t", 3)
    take, failures = holding.take, [StateError("on purpose")]

    def take_later(count: int) -> list[MessageView]:
        if failures:
            raise failures.pop()
        return take(count)

    monkeypatch.setattr(holding, "take", take_later)
    seen: list[int] = []

    async def deliver(holding: Holding, batch: list[MessageView]) -> float:
        seen.extend(message.queue_offset for message in batch)
        holding.finish(batch)
        return 0.0

    run(Delivery(deliver, in_order=in_order), holding)
    assert seen == [0, 1, 2]


@pytest.mark.parametrize(
    "result",
    [True, False, 0, "", "ok", [], [None], [Retry(), None, None], [None, True], [None, Retry], Retry, {}, (True, True)],
)
def test_a_result_that_says_nothing_of_the_messages_is_an_error(result: object) -> None:
    with pytest.raises(ArgumentError) as caught:
        checked_outcome("shop.handle", result, 2)
    assert str(caught.value).startswith(f"result of handler shop.handle={result!r}"[:60])
    assert "return None if all is consumed" in str(caught.value)


@pytest.mark.parametrize("result", [None, Retry(2), [None, Retry()], (Retry(), Retry())])
def test_a_documented_result_is_taken_as_it_is(result: Outcome) -> None:
    assert checked_outcome("shop.handle", result, 2) is result


def test_a_large_wrong_result_is_shortened() -> None:
    with pytest.raises(ArgumentError) as caught:
        checked_outcome("shop.handle", ["x" * 100_000] * 100, 2)
    assert len(str(caught.value)) < 1000

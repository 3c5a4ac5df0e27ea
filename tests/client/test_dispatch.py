import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from evenq.client.dispatch import Dispatcher, Retry, listener
from evenq.client.holding import Holding
from evenq.client.settings import FlowControl
from evenq.errors import ArgumentError
from evenq.model import MessageQueue, MessageView
from tests.client.test_holding import message


def filled(name: str, count: int) -> Holding:
    holding = Holding(MessageQueue(name, "b", 0), 0, FlowControl())
    holding.add([message(n) for n in range(count)], count)
    return holding


def test_queues_take_turns_and_none_starves() -> None:
    order: list[str] = []

    async def scenario() -> None:
        async def deliver(holding: Holding, batch: list[MessageView]) -> None:
            order.append(holding.queue.topic)
            await asyncio.sleep(0)
            holding.finish(batch)

        dispatcher = Dispatcher(deliver, lanes=1, batch=2)
        dispatcher.start()
        long, short = filled("long", 20), filled("short", 4)
        dispatcher.announce(long)
        dispatcher.announce(short)
        async with asyncio.timeout(5):
            while long.progress.count:
                await asyncio.sleep(0)
        await dispatcher.stop()

    asyncio.run(scenario())
    assert order[:4] == ["long", "short", "long", "short"]
    assert len(order) == 12


def test_so_many_batches_run_at_a_time() -> None:
    running = most = 0

    async def scenario() -> None:
        async def deliver(holding: Holding, batch: list[MessageView]) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.001)
            running -= 1
            holding.finish(batch)

        dispatcher = Dispatcher(deliver, lanes=3, batch=1)
        dispatcher.start()
        holding = filled("t", 30)
        dispatcher.announce(holding)
        async with asyncio.timeout(5):
            while holding.progress.count:
                await asyncio.sleep(0.001)
        await dispatcher.stop()

    asyncio.run(scenario())
    assert most == 3


def test_a_lane_outlives_a_delivery_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        delivered: list[int] = []

        async def deliver(holding: Holding, batch: list[MessageView]) -> None:
            if batch[0].queue_offset == 0:
                raise RuntimeError("on purpose")
            delivered.append(batch[0].queue_offset)
            holding.finish(batch)

        dispatcher = Dispatcher(deliver, lanes=1, batch=1)
        dispatcher.start()
        holding = filled("t", 3)
        dispatcher.announce(holding)
        async with asyncio.timeout(5):
            while len(delivered) < 2:
                await asyncio.sleep(0)
        await dispatcher.stop()
        assert holding.progress.committable == 0, "what failed without an outcome holds the commit back"
        assert await holding.drained(1)

    asyncio.run(scenario())
    assert "on purpose" in caplog.text


def test_plain_functions_and_coroutine_functions_and_objects_are_handlers() -> None:
    class Both:
        async def __call__(self, messages: list[MessageView]) -> Retry:
            return Retry(2)

    async def coroutine(messages: list[MessageView]) -> None: ...

    async def scenario() -> list[Retry | None]:
        with ThreadPoolExecutor(1) as pool:
            handlers = (lambda messages: Retry(1), coroutine, Both())
            return [await listener(handler, pool)([message(0)]) for handler in handlers]

    assert asyncio.run(scenario()) == [Retry(1), None, Retry(2)]


def test_what_is_no_handler_or_no_level_is_named() -> None:
    with ThreadPoolExecutor(1) as pool, pytest.raises(ArgumentError, match="handler=3"):
        listener(3, pool)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="delay_level=19"):
        Retry(19)

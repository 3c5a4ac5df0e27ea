import asyncio
import threading

import pytest

from evenq.client.consume.calls import LATE, Calls
from evenq.client.consume.dispatch import Handler, Outcome, Retry
from evenq.client.consume.stats import Stats
from evenq.errors import ArgumentError
from evenq.model import MessageQueue
from evenq.protocol.view import MessageView
from tests.client.consume.test_holding import message

QUEUE = MessageQueue("orders", "broker-a", 0)


class Now:
    time = 0.0

    def __call__(self) -> float:
        return self.time


def calls(handler: Handler, now: Now | None = None) -> Calls:
    now = now or Now()
    return Calls(handler, "g", timeout=900, stats=Stats(now), clock=now)


def outcome(handler: Handler) -> Outcome:
    async def scenario() -> Outcome:
        made = calls(handler)
        try:
            return await made.call(QUEUE, [message(0)])
        finally:
            made.close()

    return asyncio.run(scenario())


def test_plain_functions_coroutine_functions_and_objects_are_handlers() -> None:
    class Both:
        async def __call__(self, messages: list[MessageView]) -> Retry:
            return Retry(2)

    async def coroutine(messages: list[MessageView]) -> None: ...

    def failing(messages: list[MessageView]) -> None:
        raise RuntimeError("on purpose")

    assert outcome(lambda messages: Retry(1)) == Retry(1)
    assert outcome(coroutine) is None
    assert outcome(Both()) == Retry(2)
    assert outcome(failing) == Retry()
    with pytest.raises(ArgumentError, match="handler=3"):
        outcome(3)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["plain", "coroutine"])
def test_a_call_that_hangs_is_reported_and_then_given_up(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    free = threading.Event()
    ended: list[str] = []

    def plain(messages: list[MessageView]) -> None:
        if messages[0].queue_offset == 0:
            free.wait(10)

    async def coroutine(messages: list[MessageView]) -> None:
        if messages[0].queue_offset == 0:
            try:
                await asyncio.sleep(10)
            finally:
                ended.append("cancelled")

    async def scenario() -> None:
        now = Now()
        made = calls(plain if kind == "plain" else coroutine, now)
        hanging = asyncio.create_task(made.call(QUEUE, [message(0), message(1)]))
        await asyncio.sleep(0.01)
        now.time = 61
        made.look()
        made.look()
        assert (made.slow, made.given_up, hanging.done()) == (1, 0, False)
        now.time = 901
        made.look()
        assert await hanging == LATE
        assert (made.slow, made.given_up) == (0, 1)
        # its thread is still taken, and does not stand in the way of the only lane
        async with asyncio.timeout(5):
            assert await made.call(QUEUE, [message(2)]) is None
        free.set()
        made.close()

    asyncio.run(scenario())
    assert [record.levelname for record in caplog.records] == ["WARNING", "ERROR"]
    assert "queueId=0] from 0 to 1 for 61 s: it may be blocked" in caplog.text
    assert ended == ([] if kind == "plain" else ["cancelled"])


@pytest.mark.parametrize("kind", ["plain", "coroutine"])
def test_in_order_a_slow_call_is_reported_and_waited_for(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    free = threading.Event()

    def plain(messages: list[MessageView]) -> Outcome:
        free.wait(10)
        return Retry(7)

    async def coroutine(messages: list[MessageView]) -> Outcome:
        return await asyncio.to_thread(plain, messages)

    async def scenario() -> None:
        now = Now()
        made = Calls(
            plain if kind == "plain" else coroutine, "g", timeout=30, stats=Stats(now), clock=now, in_order=True
        )
        slow = asyncio.create_task(made.call(QUEUE, [message(0)]))
        await asyncio.sleep(0)
        for now.time in (31, 61, 3600):
            made.look()
        assert (made.slow, made.given_up) == (1, 0)
        free.set()
        assert await slow == Retry(7)
        assert made.slow == 0
        made.close()

    asyncio.run(scenario())
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]
    assert "from 0 to 0 for 31 s: the queue waits until it returns" in caplog.text


def test_without_a_task_a_call_ends_once_whatever_becomes_of_it() -> None:
    free = threading.Event()

    def handler(messages: list[MessageView]) -> Outcome:
        if messages[0].queue_offset == 0:
            free.wait(10)
        elif messages[0].queue_offset == 1:
            raise RuntimeError("on purpose")
        return None if messages[0].queue_offset < 3 else Retry(3)

    async def scenario() -> list[tuple[int, Outcome]]:
        now = Now()
        made = calls(handler, now)
        ended: list[tuple[int, Outcome]] = []

        async def wait_for(count: int) -> None:
            async with asyncio.timeout(5):
                while len(ended) < count:
                    await asyncio.sleep(0.001)

        def begin(offset: int) -> None:
            made.begin(QUEUE, [message(offset)], lambda outcome: ended.append((offset, outcome)))

        for offset in range(4):
            begin(offset)
        await wait_for(3)
        now.time = 901
        made.look()
        assert (made.given_up, made.slow) == (1, 0)
        # it returns in the end, which counts for nothing
        free.set()
        begin(2)
        await wait_for(5)
        made.close()
        return ended

    found = asyncio.run(scenario())
    assert sorted(found[:3], key=lambda each: each[0]) == [(1, Retry()), (2, None), (3, Retry(3))]
    assert found[3:] == [(0, LATE), (2, None)]


def test_an_end_from_outside_is_not_taken_for_a_failure() -> None:
    async def scenario() -> None:
        async def coroutine(messages: list[MessageView]) -> None:
            await asyncio.sleep(10)

        made = calls(coroutine)
        running = asyncio.create_task(made.call(QUEUE, [message(0)]))
        await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(scenario())


def test_what_was_called_is_counted() -> None:
    async def scenario() -> None:
        now = Now()
        stats = Stats(now)
        results: list[Outcome] = [None, Retry()]

        async def handler(messages: list[MessageView]) -> Outcome:
            now.time += 2
            return results.pop(0)

        made = Calls(handler, "g", timeout=900, stats=stats, clock=now)
        for _ in range(2):
            await made.call(QUEUE, [message(n) for n in range(30)])
        found = stats.of("orders")
        assert (found.consume_rt, found.consume_ok_tps, found.consume_failed_tps) == (2000, 0.5, 0.5)
        assert found.consume_failed_msgs == 30
        now.time += 120
        assert (stats.of("orders").consume_ok_tps, stats.of("orders").consume_failed_msgs) == (0, 30)
        assert stats.of("unknown").consume_rt == 0

    asyncio.run(scenario())


async def _forgotten(messages: list[MessageView]) -> None:
    """A coroutine function behind a lambda: what the lambda returns is awaited by nobody."""


@pytest.mark.parametrize("kind", ["plain", "coroutine", "threads"])
def test_a_wrong_result_is_retried_and_named_once(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    def plain_handler(messages: list[MessageView]) -> Outcome:
        return True  # type: ignore[return-value]

    async def coroutine_handler(messages: list[MessageView]) -> Outcome:
        return True  # type: ignore[return-value]

    async def scenario() -> list[Outcome]:
        stats = Stats(Now())
        handler: Handler = coroutine_handler if kind == "coroutine" else plain_handler
        made = Calls(handler, "g", timeout=900, stats=stats, clock=Now())
        found: list[Outcome] = []
        for _ in range(5):
            if kind == "threads":
                ended: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
                made.begin(QUEUE, [message(0), message(1)], ended.set_result)
                found.append(await ended)
            else:
                found.append(await made.call(QUEUE, [message(0), message(1)]))
        assert stats.of("orders").consume_failed_msgs == 10
        with pytest.raises(ArgumentError, match="=True: return None"):
            await made.direct(message(0))
        made.close()
        return found

    assert asyncio.run(scenario()) == [Retry()] * 5
    [record] = caplog.records
    assert record.levelname == "ERROR"
    name = f"{'coroutine' if kind == 'coroutine' else 'plain'}_handler"
    assert record.getMessage().startswith("handling of messages of group g failed: ArgumentError: result of handler")
    assert f"{name}=True: return None" in record.getMessage()


def test_a_coroutine_that_nobody_awaits_is_a_wrong_result() -> None:
    assert outcome(lambda messages: _forgotten(messages)) == Retry()


def test_a_list_without_failures_counts_as_consumed() -> None:
    assert outcome(lambda messages: [None]) is None


def test_a_handler_may_change_its_list() -> None:
    def emptying(messages: list[MessageView]) -> None:
        messages.clear()

    async def emptying_too(messages: list[MessageView]) -> None:
        messages.clear()

    async def scenario(handler: Handler) -> Outcome:
        made, batch = calls(handler), [message(0), message(1)]
        found = await made.call(QUEUE, batch)
        assert len(batch) == 2
        if made.in_threads:
            ended: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
            made.begin(QUEUE, batch, ended.set_result)
            assert await ended is None
            assert len(batch) == 2
        made.close()
        return found

    assert asyncio.run(scenario(emptying)) is None
    assert asyncio.run(scenario(emptying_too)) is None


def test_what_a_handler_raises_is_logged_with_its_name_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    def charge(messages: list[MessageView]) -> None:
        raise KeyError("no such account")

    async def scenario() -> None:
        made = calls(charge)
        try:
            for _ in range(12):
                assert await made.call(QUEUE, [message(3)]) == Retry()
        finally:
            made.close()

    asyncio.run(scenario())
    first, tenth = caplog.records
    assert "charge of group g failed: KeyError: 'no such account'" in first.getMessage()
    assert "from 3 to 3 will be redelivered" in first.getMessage()
    assert first.exc_info is not None
    assert "failed 10 times" in tenth.getMessage()

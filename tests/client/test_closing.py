"""The end of all four clients: everything is closed in any case, and every close returns at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from evenq import StateError, aio
from evenq.client.closing import Closing
from evenq.client.net.session import Session
from evenq.client.produce.trace import Record
from evenq.protocol.view import MessageView

# Nobody listens there.
NOWHERE = "127.0.0.1:1"


async def _handle(messages: list[MessageView]) -> None: ...


async def started_producer(**settings: Any) -> aio.Producer:
    producer = aio.Producer(NOWHERE, **settings)
    await producer.start()
    return producer


async def started_push(**settings: Any) -> aio.PushConsumer:
    consumer = aio.PushConsumer(NOWHERE, "g", **settings)
    consumer.subscribe("orders")
    await consumer.start(_handle)
    return consumer


async def started_lite_pull() -> aio.LitePullConsumer:
    consumer = aio.LitePullConsumer(NOWHERE, "g")
    consumer.subscribe("orders")
    await consumer.start()
    return consumer


async def admin() -> aio.Admin:
    return aio.Admin(NOWHERE)


def other_tasks() -> list[str]:
    return [str(task.get_coro()) for task in asyncio.all_tasks() - {asyncio.current_task()} if not task.done()]


async def fail() -> None:
    raise KeyError("on purpose")


def bad_trace(producer: aio.Producer) -> None:
    assert producer._tracer is not None
    producer._tracer._log.add(Record("Pub\x02", ("k",)))


def bad_leave(consumer: Any) -> None:
    consumer._member.leave = fail


def bad_offsets(consumer: aio.PushConsumer) -> None:
    assert consumer._local is not None
    consumer._local.write = fail  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("make", "settings", "spoil", "expected"),
    [
        (started_producer, {"trace": "bad topic!"}, bad_trace, ValueError),
        (started_push, {}, bad_leave, KeyError),
        (started_push, {"model": "BROADCASTING", "instance": "one"}, bad_offsets, KeyError),
        (started_lite_pull, {}, bad_leave, KeyError),
    ],
    ids=["trace", "push", "offsets", "lite pull"],
)
def test_a_step_that_fails_leaves_nothing_open(
    make: Callable[..., Awaitable[Any]],
    settings: dict[str, Any],
    spoil: Callable[[Any], None],
    expected: type[Exception],
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        if "model" in settings:
            settings["offsets_in"] = tmp_path
        client = await make(**settings)
        spoil(client)
        with pytest.raises(expected):
            await client.close()
        assert client._session.closed
        assert other_tasks() == []
        await client.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("make", [started_producer, started_push, started_lite_pull, admin])
def test_a_second_close_returns_after_the_first(
    make: Callable[[], Awaitable[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        client = await make()
        left, may_leave = asyncio.Event(), asyncio.Event()

        async def leave(session: Session) -> None:
            left.set()
            await may_leave.wait()

        monkeypatch.setattr(Session, "_leave", leave)
        first = asyncio.create_task(client.close())
        await left.wait()
        second = asyncio.create_task(client.close())
        for _ in range(10):
            await asyncio.sleep(0)
        assert not second.done()
        may_leave.set()
        await second
        assert first.done()
        await first
        assert other_tasks() == []

    asyncio.run(scenario())


@pytest.mark.parametrize("make", [started_producer, started_push, started_lite_pull, admin])
def test_a_close_that_is_cancelled_leaves_nothing_open(
    make: Callable[[], Awaitable[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        client = await make()
        left = asyncio.Event()

        async def leave(session: Session) -> None:
            left.set()
            await asyncio.Event().wait()

        monkeypatch.setattr(Session, "_leave", leave)
        closing = asyncio.create_task(client.close())
        await left.wait()
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert client._session.connections._closed
        assert other_tasks() == []

    asyncio.run(scenario())


def test_what_is_begun_after_the_end_does_not_run() -> None:
    async def scenario() -> None:
        consumer = await started_push()
        await consumer.close()
        never = consumer._session.spawn(fail())
        await asyncio.wait([never])
        assert never.cancelled()

    asyncio.run(scenario())


@pytest.mark.parametrize("kind", [aio.PushConsumer, aio.LitePullConsumer])
def test_a_start_that_meets_a_close_raises(kind: type[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        consumer = kind(NOWHERE, "g")
        consumer.subscribe("orders")
        asked, may_answer = asyncio.Event(), asyncio.Event()

        async def beat(session: Session) -> None:
            asked.set()
            await may_answer.wait()

        monkeypatch.setattr(Session, "beat", beat)
        starting = asyncio.create_task(consumer.start(*[_handle] * (kind is aio.PushConsumer)))
        await asked.wait()
        await consumer.close()
        may_answer.set()
        with pytest.raises(StateError, match="this consumer is closed"):
            await starting
        async with asyncio.timeout(10):
            while other_tasks():
                await asyncio.sleep(0)

    asyncio.run(scenario())


def test_the_first_error_is_raised_and_the_others_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    done: list[str] = []

    async def first() -> None:
        raise KeyError("first")

    async def second() -> None:
        raise KeyError("second")

    async def last() -> None:
        done.append("last")

    with pytest.raises(KeyError, match="first"):
        asyncio.run(Closing().run(first, second, last))
    assert done == ["last"]
    [logged] = caplog.records
    assert logged.exc_info is not None
    assert repr(logged.exc_info[1]) == "KeyError('second')"

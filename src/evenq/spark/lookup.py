"""What the driver asks brokers: the queues of the topics, where they begin and end; and what it tells them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

from evenq.client.routes import Route
from evenq.client.session import Session
from evenq.errors import ConnectError, RemoteError
from evenq.model import MessageQueue
from evenq.spark.options import ReadOptions

__all__ = ["Lookup"]

log = logging.getLogger(__name__)

T = TypeVar("T")


class Lookup:
    """Questions for the driver, from code that is not asynchronous. Has an event loop of its own, which only runs
    while a question is asked; connections and routes are kept from one to the next."""

    def __init__(self, options: ReadOptions, clock: Callable[[], float] = time.monotonic) -> None:
        self._options = options
        self._clock = clock
        self._runner = asyncio.Runner()
        self._session: Session | None = None
        self._routes_until = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._session is not None:
            self._runner.run(self._session.close())
        self._runner.close()

    def queues(self, *, fresh: bool = False) -> list[MessageQueue]:
        """The readable queues of all topics. Name servers are asked if ``fresh``, or as often as any client does."""

        async def ask(session: Session) -> list[MessageQueue]:
            if fresh or self._clock() >= self._routes_until:
                await asyncio.gather(*(_fresh_route(session, topic) for topic in self._options.topics))
                self._routes_until = self._clock() + session.intervals.routes
            routes = await asyncio.gather(*map(session.routes.get, self._options.topics))
            return [queue for route in routes for queue in route.readable]

        return self._run(ask)

    def earliest(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """The first offset that each queue holds."""
        return self._run(lambda session: _each(session, queues, session.remote.min_offset))

    def latest(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """The offset that the next message of each queue will get."""
        return self._run(lambda session: _each(session, queues, session.remote.max_offset))

    def commit(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Show the group's progress. The checkpoint holds the truth, so a broker that cannot be told is only logged."""

        async def tell(session: Session) -> None:
            async def one(address: str, queue: MessageQueue) -> None:
                await session.remote.commit(address, group, queue, offsets[queue])

            await _each(session, offsets, one)

        try:
            self._run(tell)
        except RemoteError as error:
            log.warning("the progress of group %s could not be stored: %s", group, error)

    def _run(self, question: Callable[[Session], Coroutine[Any, Any, T]]) -> T:
        async def ask() -> T:
            if self._session is None:
                self._session = Session(self._options.namesrv, timeouts=self._options.timeouts)
            return await question(self._session)

        return self._runner.run(ask())


# Servers close connections that were silent for two minutes, and nobody listens between two questions.
# So a question that finds its connection broken is asked once more.


async def _each(
    session: Session, queues: Iterable[MessageQueue], ask: Callable[[str, MessageQueue], Awaitable[T]]
) -> dict[MessageQueue, T]:
    """Ask the broker of each queue, all at once."""

    async def one(queue: MessageQueue) -> T:
        route = await session.routes.get(queue.topic)
        try:
            return await ask(route.address(queue.broker), queue)
        except ConnectError:
            route = await _fresh_route(session, queue.topic)
            return await ask(route.address(queue.broker), queue)

    wanted = sorted(queues)
    return dict(zip(wanted, await asyncio.gather(*map(one, wanted)), strict=True))


async def _fresh_route(session: Session, topic: str) -> Route:
    try:
        return await session.routes.refresh(topic)
    except ConnectError:
        return await session.routes.refresh(topic)

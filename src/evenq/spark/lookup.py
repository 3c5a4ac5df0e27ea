"""What the driver asks brokers: the queues of the topics, where they begin and end; and what it tells them."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from math import inf
from types import TracebackType
from typing import Any, Self, TypeVar

from evenq.client.net.remote import Remote
from evenq.client.net.routes import Route
from evenq.client.net.session import Session
from evenq.errors import ArgumentError, ConnectError, RemoteError, RequestTimeout, TopicNotFound
from evenq.model import MessageQueue
from evenq.protocol.bodies import TopicNames
from evenq.protocol.codes import RequestCode
from evenq.protocol.names import DEAD_LETTER, RETRY, is_system_topic
from evenq.spark.bounds import AtTime, Bound, Ends, Place, resolve
from evenq.spark.offsets import by_topic
from evenq.spark.options import ReadOptions

__all__ = ["Lookup"]

log = logging.getLogger(__name__)

T = TypeVar("T")

# While a broker does not answer, name servers are asked every so many seconds whether it is elsewhere, or back.
LOOK_AGAIN = 5.0


class Lookup:
    """Questions for the driver, from code that is not asynchronous. Has an event loop of its own, which only runs
    while a question is asked; connections and routes are kept from one to the next."""

    def __init__(self, options: ReadOptions, clock: Callable[[], float] = time.monotonic) -> None:
        self._options = options
        self._clock = clock
        self._runner = asyncio.Runner()
        self._session: Session | None = None
        self._topics: tuple[str, ...] = ()
        self._asked_at = -inf
        # brokers that did not answer
        self._silent: set[str] = set()

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

    def queues(self, *, fresh: bool = False, lenient: bool = False) -> list[MessageQueue]:
        """The readable queues of all topics. Name servers are asked if ``fresh``, or as often as any client does.

        A topic without a route is an error. If ``lenient`` it keeps the queues that it had: all its brokers, or the
        name servers, may be down.
        """

        async def ask(session: Session) -> list[MessageQueue]:
            interval = LOOK_AGAIN if self._silent else session.intervals.routes
            if fresh or self._clock() >= self._asked_at + interval:
                await self._refresh(session, lenient=lenient)
            routes = [session.routes.known(topic) for topic in self._topics]
            return self._wanted([queue for route in routes if route for queue in route.readable], lenient=lenient)

        return self._run(ask)

    def ends(self, queues: Iterable[MessageQueue]) -> Ends:
        wanted = list(queues)
        return Ends(self.earliest(wanted), self.latest(wanted))

    # If lenient, queues whose broker does not answer are left out, and that is logged once.

    def earliest(self, queues: Iterable[MessageQueue], *, lenient: bool = False) -> dict[MessageQueue, int]:
        """The first offset that each queue holds."""
        return self._ask(queues, lambda remote: remote.min_offset, lenient=lenient)

    def latest(self, queues: Iterable[MessageQueue], *, lenient: bool = False) -> dict[MessageQueue, int]:
        """The offset that the next message of each queue will get."""
        return self._ask(queues, lambda remote: remote.max_offset, lenient=lenient)

    def stored(self, group: str, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """How far the group is in each queue; a queue of which it has stored nothing is left out."""
        found = self._ask(queues, lambda remote: lambda address, queue: remote.stored_offset(address, group, queue))
        return {queue: offset for queue, offset in found.items() if offset is not None and offset >= 0}

    def at_times(self, times: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        """The offset of the first message that each queue stored at its time or later; its end where there is none."""
        return self._ask(times, lambda remote: lambda address, queue: remote.offset_at(address, queue, times[queue]))

    def find(self, bound: Bound, ends: Ends) -> dict[MessageQueue, int]:
        """The offset in each queue that a bound stands for."""
        asked: Mapping[MessageQueue, int] = {}
        match bound.at:
            case Place.GROUP:
                asked = self.stored(self._options.pull_group, ends.latest)
            case AtTime() as at:
                asked = self.at_times(at.times(ends.latest))
        return resolve(bound, ends, asked, strict=self._options.fail_on_data_loss)

    def commit(self, group: str, offsets: Mapping[MessageQueue, int]) -> set[MessageQueue]:
        """Show the group's progress; gives the queues whose broker knows it now.

        The checkpoint holds the truth, so a broker that cannot be told fails nothing.
        """
        told = self._ask(
            offsets,
            lambda remote: lambda address, queue: remote.commit(address, group, queue, offsets[queue]),
            lenient=True,
        )
        return set(told)

    async def _find_topics(self, session: Session) -> tuple[str, ...]:
        """The topics that the options mean now: with a pattern they may become more, or fewer."""
        options = self._options
        if options.assigned is not None:
            return tuple(sorted({queue.topic for queue in options.assigned}))
        if options.pattern is None:
            return options.topics or ()
        answer = await session.name_servers.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        matches = re.compile(options.pattern).fullmatch
        return tuple(sorted(filter(matches, filter(_is_users, TopicNames.decode(answer.body).topic_list))))

    def _wanted(self, queues: list[MessageQueue], *, lenient: bool) -> list[MessageQueue]:
        assigned = self._options.assigned
        if assigned is None:
            return queues
        missing = set(assigned) - set(queues)
        if missing and not lenient:
            there = ", ".join(f"{queue.topic}.{queue.broker}.{queue.queue_id}" for queue in sorted(queues))
            raise ArgumentError("assign", by_topic(dict.fromkeys(missing, ...)), f"no such queues; there are {there}")
        return sorted(set(assigned) - missing)

    async def _refresh(self, session: Session, *, lenient: bool) -> None:
        """Ask the name servers which topics there are, and where."""
        self._asked_at = self._clock()
        try:
            self._topics = await self._find_topics(session)
        except RemoteError as error:
            if not lenient:
                raise
            log.warning("whether there are other topics is not known now: %s", error)
        outcomes = await asyncio.gather(
            *(_fresh_route(session, topic) for topic in self._topics), return_exceptions=True
        )
        for topic, outcome in zip(self._topics, outcomes, strict=True):
            if isinstance(outcome, RemoteError) and lenient:
                log.warning("the queues of topic %s are not known now: %s", topic, outcome)
            elif isinstance(outcome, BaseException):
                raise outcome

    def _ask(
        self,
        queues: Iterable[MessageQueue],
        question: Callable[[Remote], Callable[[str, MessageQueue], Awaitable[T]]],
        *,
        lenient: bool = False,
    ) -> dict[MessageQueue, T]:
        """Ask the broker of each queue, all at once."""
        wanted = sorted(queues)

        async def ask(session: Session) -> list[T | BaseException]:
            answers = (_one(session, queue, question(session.remote)) for queue in wanted)
            return await asyncio.gather(*answers, return_exceptions=True)

        found: dict[MessageQueue, T] = {}
        for queue, outcome in zip(wanted, self._run(ask), strict=True):
            if isinstance(outcome, ConnectError | RequestTimeout | TopicNotFound) and lenient:
                self._is_silent(queue.broker, outcome)
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                found[queue] = outcome
                self._silent.discard(queue.broker)
        return found

    def _is_silent(self, broker: str, error: RemoteError) -> None:
        if broker not in self._silent:
            log.warning("broker %s does not answer, its queues have to wait: %s", broker, error)
        self._silent.add(broker)

    def _run(self, question: Callable[[Session], Coroutine[Any, Any, T]]) -> T:
        async def ask() -> T:
            if self._session is None:
                self._session = self._options.connecting.session()
            return await question(self._session)

        return self._runner.run(ask())


def _is_users(topic: str) -> bool:
    return not (is_system_topic(topic) or topic.startswith((RETRY, DEAD_LETTER)))


# Servers close connections that were silent for two minutes, and nobody listens between two questions.
# So a question that finds its connection broken is asked once more.


async def _one(session: Session, queue: MessageQueue, ask: Callable[[str, MessageQueue], Awaitable[T]]) -> T:
    route = await session.routes.get(queue.topic)
    try:
        return await ask(route.address(queue.broker), queue)
    except ConnectError:
        route = await _fresh_route(session, queue.topic)
        return await ask(route.address(queue.broker), queue)


async def _fresh_route(session: Session, topic: str) -> Route:
    try:
        return await session.routes.refresh(topic)
    except ConnectError:
        return await session.routes.refresh(topic)

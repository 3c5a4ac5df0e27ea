"""Telling listeners of changes, one after the other and outside of what changed: they may take their time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from itertools import chain, repeat
from typing import Any

from evenq.balance import Plan
from evenq.client.calling import is_async
from evenq.client.namespaces import Namespace
from evenq.client.net.session import Session
from evenq.client.settings import checked_callable
from evenq.errors import RemoteError
from evenq.model import MessageQueue
from evenq.supervision import FailureLog, callable_name

__all__ = ["AssignmentListener", "QueuesListener", "Watch"]

log = logging.getLogger(__name__)

# Called with a topic, all its queues, and those of them that are this member's from now on.
AssignmentListener = Callable[[str, list[MessageQueue], list[MessageQueue]], Awaitable[None] | None]
# Called with a topic and the queues that it has now.
QueuesListener = Callable[[str, list[MessageQueue]], Awaitable[None] | None]


class Watch:
    """The listeners of one consumer. Plain functions run in a thread, so that they may call the consumer."""

    def __init__(self, session: Session, namespace: Namespace) -> None:
        self._session = session
        self._namespace = namespace
        self._on_assignment: list[AssignmentListener] = []
        self._on_queues: list[tuple[str, QueuesListener]] = []
        self._calls: asyncio.Queue[tuple[Callable[..., Any], tuple[object, ...]]] = asyncio.Queue()
        self._failures: dict[int, FailureLog] = {}
        self._started = False

    def on_assignment(self, listener: AssignmentListener) -> None:
        self._on_assignment.append(checked_callable("listener", listener))

    def on_queues(self, topic: str, listener: QueuesListener) -> None:
        checked_callable("listener", listener)
        if self._started:
            self._session.spawn(self._look(topic, listener))
        else:
            self._on_queues.append((topic, listener))

    def start(self) -> None:
        self._started = True
        self._session.spawn(self._session.repeat(self._call_next, "calls of listeners"))
        for topic, listener in self._on_queues:
            self._session.spawn(self._look(topic, listener))

    def planned(self, plan: Plan) -> None:
        """A plan, which is about one topic, is about to be carried out."""
        topic = (*plan.lose, *plan.gain)[0].topic
        route = self._session.routes.known(topic)
        everything = sorted(route.readable) if route is not None else []
        mine = sorted((*plan.keep, *plan.gain))
        names = self._namespace
        told = names.unwrap(topic), names.unwrap_queues(everything), names.unwrap_queues(mine)
        for listener in self._on_assignment:
            self._calls.put_nowait((listener, told))

    async def _look(self, topic: str, listener: QueuesListener) -> None:
        """Look at the topic's queues now and then, for the first time a little sooner."""
        known = await self._queues(topic)
        intervals = self._session.intervals
        pauses = chain((intervals.first_look,), repeat(intervals.queue_check))

        async def step() -> None:
            nonlocal known
            await asyncio.sleep(next(pauses))
            found = await self._queues(topic)
            if found is not None and found != known:
                known = found
                names = self._namespace
                self._calls.put_nowait((listener, (names.unwrap(topic), names.unwrap_queues(found))))

        await self._session.repeat(step, f"check of the queues of topic {topic}")

    async def _queues(self, topic: str) -> list[MessageQueue] | None:
        name = f"question for the queues of topic {topic}"
        try:
            queues = sorted((await self._session.routes.refresh(topic)).readable)
        except RemoteError as error:
            self._session.outages.failed(name, error)
            return None
        self._session.outages.ended(name)
        return queues

    async def _call_next(self) -> None:
        """Call a listener when there is something to tell. What it raises is logged under its name."""
        listener, arguments = await self._calls.get()
        try:
            if is_async(listener):
                await listener(*arguments)
            else:
                await asyncio.to_thread(listener, *arguments)
        except Exception as error:  # noqa: BLE001 - a listener may raise anything
            failures = self._failures.setdefault(id(listener), FailureLog(f"listener {callable_name(listener)}"))
            failures.record(error, "it is called again with the next change")

"""One client: its id, its connections and routes, its heartbeats, and the requests that brokers make of it."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any

from evenq.client.namespaces import Namespace
from evenq.client.net.acl import Credentials
from evenq.client.net.address import local_ip, name_servers
from evenq.client.net.connection import Connection
from evenq.client.net.connections import Connections
from evenq.client.net.remote import Remote
from evenq.client.net.routes import NameServers, Route, Routes
from evenq.client.net.tls import TlsLike, tls_context
from evenq.client.settings import Intervals, Timeouts, checked_kind
from evenq.errors import ArgumentError, EvenqError, RemoteError, StateError
from evenq.protocol.bodies import ConsumerData, Heartbeat, ProducerData
from evenq.protocol.codes import RequestCode, ResponseCode, name_of
from evenq.protocol.command import Command
from evenq.protocol.names import with_namespace
from evenq.supervision import Outages, Supervisor

__all__ = ["Answer", "Session", "client_id"]

log = logging.getLogger(__name__)

Answer = Callable[[Command], Awaitable[Command | None]]

_made = itertools.count(1)

# Seconds between a consumer's first look at a topic, and the next ones.
_NEW_TOPIC_PAUSES = (1.0, 2.0, 4.0, 8.0)


def client_id(peer: str, instance: str | None) -> str:
    """``address@instance``, as Java makes it. With an instance name it is the same after a restart."""
    if instance is not None and (not isinstance(instance, str) or instance.split() != [instance]):
        raise ArgumentError("instance", instance, "give a name without spaces, unique among the group's members here")
    return f"{local_ip(peer)}@{instance or f'{os.getpid()}#{time.time_ns():x}#{next(_made)}'}"


class Session:
    """The shared ground of one producer or consumer. Lives in one event loop, from ``start`` to ``close``."""

    def __init__(
        self,
        namesrv: str,
        *,
        instance: str | None = None,
        timeouts: Timeouts | None = None,
        intervals: Intervals | None = None,
        tls: TlsLike = None,
        credentials: Credentials | None = None,
        namespace: str = "",
    ) -> None:
        for name, value, kind in (
            ("timeouts", timeouts, Timeouts),
            ("intervals", intervals, Intervals),
        ):
            if value is not None:
                checked_kind(name, value, kind, f"give evenq.{kind.__name__}(…)")
        if credentials is not None and not isinstance(credentials, Credentials):
            # not the value: a secret may be in it
            raise ArgumentError("credentials", type(credentials).__name__, "give evenq.Credentials(…)")
        servers = name_servers(namesrv)
        credentials = credentials or Credentials.from_environment(os.environ)
        self.client_id = client_id(servers[0], instance)
        self.timeouts = timeouts or Timeouts()
        self.intervals = intervals or Intervals()
        self.namespace = Namespace(namespace).name
        self.connections = Connections(
            self._on_request,
            tls=tls_context(tls),
            sign=credentials.sign if credentials else None,
            connect_timeout=self.timeouts.connect,
            on_open=self._on_open,
            on_lost=self._connection_changed,
        )
        self.name_servers = NameServers(servers, self.connections, self.timeouts.request)
        self.routes = Routes(self.name_servers, self.wire_name)
        self.remote = Remote(self.connections, self.timeouts.request)
        # what fails as long as a broker is away, and is repeated
        self.outages = Outages()
        # called with the address when a connection was made or lost
        self.on_connection: list[Callable[[str], None]] = []
        # what the heartbeat says of us
        self._producer_groups: set[str] = set()
        self._consumer: Callable[[], ConsumerData] | None = None
        # request code -> who answers it
        self._answers: dict[int, Answer] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        # heartbeats that are under way
        self._beats: set[asyncio.Task[None]] = set()
        self._closed = False

    def start(self) -> None:
        """Begin to do by itself what is due every now and then. Needs the running loop."""
        self.routes.on_change.append(self._on_route)
        self.spawn(self.every(self.intervals.heartbeat, self.beat, "heartbeat"))
        self.spawn(self.every(self.intervals.routes, self.routes.refresh_all, "refresh of routes"))

    async def close(self) -> None:
        """Leave every broker, then cut the connections. Safe to call twice."""
        if self._closed:
            return
        self._closed = True
        for task in list(self._tasks):
            task.cancel()
        try:
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await asyncio.gather(*self._beats, return_exceptions=True)
            await self._leave()
        finally:
            self.connections.close()
        # one turn of the loop, so that the transports see their close before the loop itself may end
        await asyncio.sleep(0)

    @property
    def closed(self) -> bool:
        return self._closed

    def wire_name(self, name: str) -> str:
        """A topic or group as brokers know it: with the namespace, where this client is in one."""
        return with_namespace(self.namespace, name)

    def check_open(self, what: str) -> None:
        if self._closed:
            raise StateError(f"this {what} is closed: make a new one")

    def producing(self, group: str) -> None:
        self._producer_groups.add(group)

    def consuming(self, data: Callable[[], ConsumerData]) -> None:
        self._consumer = data

    def on(self, code: RequestCode, answer: Answer) -> None:
        """Let ``answer`` serve what brokers ask under ``code``."""
        self._answers[code] = answer

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run in the background until it ends or the session is closed; a failure is logged, never silent."""
        task = asyncio.create_task(work)
        if self._closed:
            # it would run on: nobody is left to end it
            task.cancel()
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def repeat(self, step: Callable[[], Awaitable[object]], name: str) -> None:
        """Run ``step`` for ever. A failure is logged under ``name`` and followed by a pause, whatever was raised."""
        await Supervisor(f"{name} of client {self.client_id}").repeat(step)

    async def every(self, seconds: float, work: Callable[[], Awaitable[None]], name: str) -> None:
        """Do ``work`` every so many seconds, for ever; failures are treated as by :meth:`repeat`."""

        async def step() -> None:
            await asyncio.sleep(seconds)
            await work()

        await self.repeat(step, name)

    async def beat(self) -> None:
        """One heartbeat to every broker that the routes in use know and that should know us, all at once."""
        if self._producer_groups or self._consumer:
            await asyncio.gather(*map(self._beat_one, self._concerned()))

    def _concerned(self) -> set[str]:
        """The brokers that must know this client: masters, and slaves where it consumes. A slave answers pulls, and
        while its master is away it alone can say who is in a group."""
        return set(self.routes.masters().values()) if self._consumer is None else self.routes.all_addresses()

    def heartbeat(self) -> Heartbeat:
        return Heartbeat(
            client_id=self.client_id,
            producer_data_set=[ProducerData(group_name=group) for group in sorted(self._producer_groups)],
            consumer_data_set=[self._consumer()] if self._consumer else [],
        )

    def _on_route(self, old: Route | None, new: Route) -> None:
        """A broker that we have just heard of must hear of us."""
        if old is None or new.all_addresses - old.all_addresses:
            self.spawn(self.beat())
        if old is None and self._consumer is not None:
            self.spawn(self._follow_new(new.topic))

    async def _follow_new(self, topic: str) -> None:
        """Look again soon: a topic that a producer is just creating comes to one broker after the other."""
        for pause in _NEW_TOPIC_PAUSES:
            await asyncio.sleep(min(pause, self.intervals.routes))
            with suppress(RemoteError):
                await self.routes.refresh(topic)

    async def beat_at(self, address: str) -> None:
        """One heartbeat to one broker.

        Whoever gives up waiting for it does not end it, and a close waits for its answer: brokers handle requests side
        by side, and would list us for two minutes more if they came to it after we have left.
        """
        if self._closed:
            return
        beat = asyncio.create_task(self.remote.heartbeat(address, self.heartbeat()))
        self._beats.add(beat)
        beat.add_done_callback(self._beaten)
        await asyncio.shield(beat)

    def _beaten(self, beat: asyncio.Task[None]) -> None:
        self._beats.discard(beat)
        # asked for, so that nobody complains where whoever waited has given up
        _ = beat.cancelled() or beat.exception()

    async def _beat_one(self, address: str) -> None:
        name = f"heartbeat of client {self.client_id} to {address}"
        try:
            await self.beat_at(address)
        except RemoteError as error:
            self.outages.failed(name, error)
        else:
            self.outages.ended(name)

    async def _leave(self) -> None:
        """Unregister where a connection is up: a broker that cannot be reached notices by itself."""
        consumer = self._consumer().group_name if self._consumer else None
        groups = [(group, None) for group in sorted(self._producer_groups)] + ([(None, consumer)] if consumer else [])
        leaving = [
            self.remote.unregister(address, self.client_id, producer_group=producer, consumer_group=member)
            for address in self._concerned()
            if self.connections.live(address)
            for producer, member in groups
        ]
        for outcome in await asyncio.gather(*leaving, return_exceptions=True):
            if isinstance(outcome, BaseException):
                log.debug("could not unregister: %s", outcome)

    def _on_open(self, address: str) -> None:
        """A broker forgets its clients when their connection closes, so a new connection begins with a heartbeat."""
        known = self._producer_groups or self._consumer
        # a proxy is name server and broker under one address
        is_broker = address not in self.name_servers.addresses or address in self._concerned()
        if known and not self._closed and is_broker:
            self.spawn(self._beat_one(address))
        self._connection_changed(address)

    def _connection_changed(self, address: str) -> None:
        if not self._closed:
            for listener in self.on_connection:
                listener(address)

    async def _on_request(self, connection: Connection, command: Command) -> Command | None:
        answer = self._answers.get(command.code)
        if answer is None:
            log.debug("%s asks %s, which this client does not serve", connection.address, name_of(command.code))
            return command.reply(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=f"{name_of(command.code)} is not served by this client"
            )
        try:
            return await answer(command)
        except EvenqError as error:
            log.warning("%s asked %s: %s", connection.address, name_of(command.code), error)
            return command.reply(ResponseCode.SYSTEM_ERROR, remark=str(error))
        except Exception as error:
            # whoever asked must not wait for an answer that never comes
            log.exception("%s asked %s, which failed", connection.address, name_of(command.code))
            return command.reply(ResponseCode.SYSTEM_ERROR, remark=f"{type(error).__name__}: {error}")

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            name = getattr(task.get_coro(), "__qualname__", task.get_name())
            log.error("background task %s of client %s failed", name, self.client_id, exc_info=task.exception())

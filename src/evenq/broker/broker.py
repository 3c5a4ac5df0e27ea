"""One broker: its tables, its store and its server, put together."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence, Sized
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from evenq.broker.admission import INT32, Admission
from evenq.broker.clocks import TrustedClock, monotonic_beside
from evenq.broker.faults import Faults
from evenq.broker.filter.matching import SqlFilters
from evenq.broker.flusher import Flusher
from evenq.broker.handlers import dispatch_table
from evenq.broker.handlers.pull import WaitingPulls
from evenq.broker.limits import Limits
from evenq.broker.registrar import Registrar, checked_addresses
from evenq.broker.scheduling.delays import DelayedMessages
from evenq.broker.scheduling.parked import ParkedMessages
from evenq.broker.scheduling.retries import Retries
from evenq.broker.scheduling.scheduler import Scheduler
from evenq.broker.scheduling.timers import Timers
from evenq.broker.scheduling.transactions import Transactions, TransactionSettings, check_request
from evenq.broker.server import Connection, Server, cannot_store
from evenq.broker.state.deletions import TopicDeletions
from evenq.broker.state.groups import ConsumerGroups, GroupConfigs, ProducerGroups
from evenq.broker.state.locks import QueueLocks
from evenq.broker.state.offsets import GroupOffsets, OffsetsSaver
from evenq.broker.state.statistics import Rates, Traffic
from evenq.broker.state.topics import Topics
from evenq.broker.store.commitlog import FILE_SIZE
from evenq.broker.store.indexer import Indexer
from evenq.broker.store.levels import LEVELS, DelayLevels
from evenq.broker.store.retention import Retention
from evenq.broker.store.store import Store
from evenq.errors import ArgumentError, EvenqError
from evenq.model import Property
from evenq.protocol import headers
from evenq.protocol.bodies import TopicConfig
from evenq.protocol.codes import RequestCode
from evenq.protocol.command import Command
from evenq.protocol.ids import UniqueIds, pack_host
from evenq.protocol.names import PATH_LIMIT, TOPIC_LIMIT
from evenq.protocol.view import MessageView
from evenq.supervision import FailureLog, Supervisor, callable_name, warn_of_each

__all__ = ["Broker", "BrokerSettings"]

log = logging.getLogger(__name__)

Flush = Literal["async", "sync"]


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """What a broker is and how it works. ``flush`` is what a sender waits for: the system, or the disk."""

    name: str = "broker-a"
    cluster: str = "DefaultCluster"
    flush: Flush = "async"
    auto_create_topics: bool = True
    auto_create_groups: bool = True
    # bytes of a message's body, characters of a topic's name
    max_message: int = 4 * 1024 * 1024
    max_topic: int = TOPIC_LIMIT
    log_file_size: int = FILE_SIZE
    # how long messages are kept, and how many bytes of them: None for as many as there are
    keep_hours: float = 72.0
    keep_bytes: int | None = None
    # how often offsets are saved, the disk is synced and silent members are looked for
    housekeeping_seconds: float = 0.5
    # how long messages wait at each delay level, and how often is looked for those that are due
    delay_levels: str = LEVELS
    delivery_seconds: float = 0.1
    transactions: TransactionSettings = field(default_factory=TransactionSettings)
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        number = "give a finite number, more than 0"
        for name in ("keep_hours", "housekeeping_seconds", "delivery_seconds"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ArgumentError(name, value, number)
        if not 0 < self.max_message <= INT32[1]:
            raise ArgumentError("max_message", self.max_message, f"give bytes of a body, 1 to {INT32[1]}")
        if not 0 < self.max_topic <= PATH_LIMIT:
            raise ArgumentError("max_topic", self.max_topic, f"give characters of a name, 1 to {PATH_LIMIT}")
        if self.keep_bytes is not None and self.keep_bytes <= 0:
            raise ArgumentError("keep_bytes", self.keep_bytes, "give bytes, more than 0, or None for no limit")
        if self.flush not in ("async", "sync"):
            raise ArgumentError("flush", self.flush, "give 'async' or 'sync'")

    @property
    def retention(self) -> Retention:
        return Retention(self.keep_hours, self.keep_bytes)


class Broker:
    """A broker on one port, with one data directory. What handlers need of it are its attributes."""

    def __init__(
        self,
        settings: BrokerSettings,
        directory: Path,
        namesrv: Sequence[str],
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] | None = None,
    ) -> None:
        self.settings = settings
        self.directory = directory
        self.address = ""
        self.started = 0.0
        self._namesrv = checked_addresses(namesrv)
        # how long things take must not depend on whether somebody sets the clock
        self._monotonic = monotonic or monotonic_beside(clock)
        self._clock = TrustedClock(clock, self._monotonic)
        self.server = Server(f"broker {settings.name}", turn=self, on_close=self._lost, limits=settings.limits)
        self.groups: ConsumerGroups[Connection] = ConsumerGroups(self._monotonic)
        self.producers: ProducerGroups[Connection] = ProducerGroups(self._monotonic)
        self.locks = QueueLocks(self._monotonic)
        self.sql_filters = SqlFilters(settings.limits)
        self._changed_groups: dict[str, None] = {}
        # what this turn is to store: the store's list (see :class:`evenq.broker.server.Turn`)
        self.staged: Sized = ()
        # what must be saved before the turn that changed it is answered
        self._unsaved: dict[Callable[[], None], None] = {}
        # answers of this turn that wait for the disk
        self._awaiting: list[tuple[Command, Connection]] = []
        # queues that got messages, whose waiting pulls are answered next
        self._arrived: dict[tuple[str, int], None] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._housekeeping: list[tuple[Callable[[], object], FailureLog]] = []
        # what a start that fails must close again, in the order in which it was opened
        self._closers: list[Callable[[], Awaitable[None] | None]] = []

    @property
    def faults(self) -> Faults:
        return self.server.faults

    async def start(self, host: str, port: int) -> None:
        """Open the store, listen, register. Clients can use the broker when this returns."""
        self.address = self.server.bind(host, port)
        try:
            await self._start()
        except BaseException:
            for close in (self.server.stop, *reversed(self._closers)):
                await _do(close)
            raise

    async def _start(self) -> None:
        loop = asyncio.get_running_loop()
        self.loop_time = loop.time
        self.started = self._clock()
        self.waiting_pulls = WaitingPulls(loop.call_at, loop.time, self.settings.limits)
        self._open()
        await self.server.start(dispatch_table(self))
        await self._registrar.start()
        self._housekeeping = [
            (part, FailureLog(f"{callable_name(part)} of {self.server.name}")) for part in self._parts()
        ]
        supervisor = Supervisor(f"housekeeping of {self.server.name}")
        self._tasks = [
            asyncio.create_task(supervisor.repeat(self._keep_house)),
            asyncio.create_task(self.scheduler.run()),
        ]
        self.indexer.start()

    def _open(self) -> None:
        settings, clock = self.settings, self._clock
        self.store = Store(
            self.directory,
            self.address,
            clock=clock,
            monotonic=self._monotonic,
            log_file_size=settings.log_file_size,
            levels=DelayLevels.parse(settings.delay_levels),
            retention=settings.retention,
        )
        self._closers.append(self.store.abandon)
        self.staged = self.store.staged
        self.flusher = Flusher(self.store)
        self._closers.append(self.flusher.stop)
        config = self.store.config
        self.topics = Topics(
            settings.cluster,
            settings.name,
            clock=clock,
            saved=config.load_topics(),
            auto_create=settings.auto_create_topics,
            limits=settings.limits,
            changed=self._topics_changed,
            deleted=self._topic_deleted,
        )
        self.group_configs = GroupConfigs(
            clock=clock,
            saved=config.load_groups(),
            auto_create=settings.auto_create_groups,
            limits=settings.limits,
            changed=lambda: self._save_later(self._save_groups),
        )
        self.offsets = GroupOffsets(config.load_offsets())
        self._limit_offsets()
        self.deletions = TopicDeletions(self.store, self.topics, self.offsets)
        self._offsets_saver = OffsetsSaver(self.offsets, config.save_offsets)
        self._open_postponed()
        self.indexer = Indexer(self.store, self.directory / "index", clock)
        self._closers.append(self.indexer.stop)
        self.traffic = Traffic(self.store, settings.cluster)
        self.rates = Rates(self.traffic, self._monotonic)
        self.unique_ids = UniqueIds(
            address=pack_host(self.address)[:-4], pid=os.getpid(), salt=random.getrandbits(32), clock=clock
        )
        self.admission = Admission(self)
        identity = headers.UnregisterBroker(
            broker_name=settings.name, broker_addr=self.address, cluster_name=settings.cluster, broker_id=0
        )
        self._registrar = Registrar(identity, self._namesrv, self.topics.table, self._monotonic)
        self._closers.append(self._registrar.stop)
        self.deletions.resume()
        self._save_topics()
        self._save_groups()

    def _limit_offsets(self) -> None:
        """Let no group go on behind the end of a queue: it would not get the messages that come there."""
        found = self.offsets.limit(self._end_of)
        lines = [
            f"group {moved.group} was at offset {moved.offset} of queue {moved.queue_id} of {moved.topic}, "
            f"and goes on at {moved.limited}: the queue ends there"
            for moved in found
        ]
        warn_of_each(log, self.server.name, lines)
        if found:
            # else the old ones would count again at the next start, when the queues are longer
            self.store.config.save_offsets(self.offsets.table())

    def _end_of(self, topic: str, queue_id: int) -> int | None:
        """The end of a queue; None where neither the queue is there nor its topic."""
        end = self.store.bounds(topic, queue_id)[1]
        return end if end or topic in self.topics else None

    def _open_postponed(self) -> None:
        """Everything about messages that do not go to their queue, or not yet."""
        clock = self._clock
        self.retries = Retries(self.topics, self.group_configs, self.locks)
        self.parked = ParkedMessages(self.store, clock)
        self.transactions = Transactions(
            self.store,
            self.parked,
            self.topics,
            self.offsets,
            clock,
            self.commit,
            self._ask_producer,
            self.settings.transactions,
            self._monotonic,
        )
        self.timers = Timers(self.store, self.directory, clock, self.commit)
        self._closers.append(self.timers.close)
        delayed = DelayedMessages(self.store, clock, self.commit)
        parts = (delayed.deliver, self.timers.deliver, self.transactions.check)
        self.scheduler = Scheduler(parts, self.settings.delivery_seconds, self.store.discard)

    async def stop(self) -> None:
        """Leave the name servers, break the connections, close the store. What fails is logged, and the rest is done:
        on a full disk, too, the directory must be free for the next start."""
        for task in self._tasks:
            task.cancel()
        steps: list[Callable[[], Awaitable[None] | None]] = [
            self._registrar.stop,
            self.server.stop,
            self.flusher.stop,
            self.indexer.stop,
            self.timers.finish,
            # what that could not store
            self.store.discard,
            self._offsets_saver.finish,
            self._finish_deletions,
            self.store.close,
            self.timers.close,
        ]
        for step in steps:
            await _do(step)

    def _parts(self) -> list[Callable[[], object]]:
        """What the housekeeping does, part by part."""
        return [
            self._save_changes,
            self._offsets_saver.tick,
            self._finish_deletions,
            self.flusher.checkpoint,
            self._registrar.tick,
            self.locks.expire,
            self.rates.tick,
            self._close_silent,
        ]

    async def _keep_house(self) -> None:
        """Wait, then do each part, whatever becomes of the others: a full disk must not keep dead members listed."""
        await asyncio.sleep(self.settings.housekeeping_seconds)
        for part, failures in self._housekeeping:
            try:
                part()
            except Exception as error:  # noqa: BLE001 - the other parts must have their turn whatever it is
                failures.record(error, f"trying again in {self.settings.housekeeping_seconds:g} s")

    def _close_silent(self) -> None:
        for connection in self.groups.silent():
            log.warning("%s: %s was silent too long", self.server.name, connection.address)
            connection.close()
        self.producers.expire()

    def now_ms(self) -> int:
        return int(self._clock() * 1000)

    def change(self, settings: BrokerSettings) -> None:
        """Work by other settings from now on, as far as they are such as can be changed."""
        self.store.retention = settings.retention
        self.settings = settings
        self.topics.auto_create = settings.auto_create_topics
        self.group_configs.auto_create = settings.auto_create_groups

    def answer_when_durable(self, reply: Command, connection: Connection) -> Command | None:
        """The answer to a message of this turn: with the others of the turn, or after the disk has the message."""
        if self.settings.flush == "async":
            return reply
        self._awaiting.append((reply, connection))
        return None

    def answer_when_synced(self, reply: Command, connection: Connection) -> Command | None:
        """The same for a message of an earlier turn."""
        if self.settings.flush == "async":
            return reply
        self.flusher.answer_when_synced(reply, connection)
        return None

    def group_changed(self, group: str) -> None:
        """Tell the members of a group that it changed: once, when this round of the loop is over."""
        if not self._changed_groups:
            asyncio.get_running_loop().call_soon(self._notify)
        self._changed_groups[group] = None

    def _notify(self) -> None:
        changed, self._changed_groups = self._changed_groups, {}
        for name in changed:
            group = self.groups.get(name)
            settings = self.group_configs.get(name)
            if group is None or group.is_broadcasting or settings is None:
                continue
            if settings.notify_consumer_ids_changed_enable:
                ext = headers.GroupRequest(consumer_group=name).to_ext()
                for connection in group.members:
                    connection.notify(Command(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, ext=ext))

    def _ask_producer(self, half: MessageView) -> None:
        producer = self.producers.next(half.properties.get(Property.PRODUCER_GROUP, ""))
        if producer is not None:
            producer.notify(check_request(half, self.settings.name))

    def _lost(self, connection: Connection) -> None:
        self.waiting_pulls.forget(connection)
        self.producers.lose(connection)
        for group in self.groups.lose(connection):
            self.group_changed(group)

    def rollback(self, savepoint: int) -> None:
        self.store.rollback(savepoint)

    def commit(self) -> None:
        """Write everything that this turn has staged to the files, before any answer leaves that depends on it."""
        if not self.staged:
            return
        try:
            if self._unsaved:
                self._save_changes()
            arrived = self.store.commit()
        except OSError as error:
            self.store.discard()
            awaiting, self._awaiting = self._awaiting, []
            for reply, connection in awaiting:
                connection.send(cannot_store(reply, error))
            raise
        if self._awaiting:
            awaiting, self._awaiting = self._awaiting, []
            for reply, connection in awaiting:
                self.flusher.answer_when_synced(reply, connection)
        if arrived and self.waiting_pulls:
            self._wake_later(arrived)

    def _topic_deleted(self, config: TopicConfig) -> None:
        """Let the pulls that wait for a topic be told that it is gone."""
        self._wake_later(self.waiting_pulls.queues(config.topic_name))

    def _wake_later(self, queues: Iterable[tuple[str, int]]) -> None:
        """Try again the pulls that wait for these queues: not here, as who sends a message must not wait until all who
        wait for it have it."""
        if not self._arrived:
            asyncio.get_running_loop().call_soon(self._wake)
        self._arrived.update(dict.fromkeys(queues))

    def _wake(self) -> None:
        arrived, self._arrived = self._arrived, {}
        self.waiting_pulls.arrived(arrived)

    def _save_later(self, save: Callable[[], None]) -> None:
        """Save something with this turn; the request that changed it fails if that cannot be saved."""
        self._unsaved.setdefault(save)
        self.store.depend()

    def _save_changes(self) -> None:
        for save in list(self._unsaved):
            save()
            del self._unsaved[save]

    def _topics_changed(self) -> None:
        self._save_later(self._save_topics)
        self._registrar.changed()

    def _save_topics(self) -> None:
        self.store.config.save_topics(self.topics.table())
        self.deletions.topics_saved()

    def _finish_deletions(self) -> None:
        if not self.deletions.is_idle and not self._unsaved and self._offsets_saver.is_saved:
            self.deletions.finish()

    def _save_groups(self) -> None:
        self.store.config.save_groups(self.group_configs.table())


async def _do(step: Callable[[], Awaitable[None] | None]) -> None:
    """One step of closing. A failure is logged, and the next steps are done."""
    try:
        done = step()
        if done is not None:
            await done
    except Exception as error:
        expected = isinstance(error, OSError | EvenqError)
        log.error("%s failed: %s", callable_name(step), error, exc_info=None if expected else error)

"""A day in the life of a store, in a second: everything that writes, with a record of what was acknowledged."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from evenq.broker.scheduling.delays import DelayedMessages
from evenq.broker.scheduling.parked import ParkedMessages
from evenq.broker.scheduling.timers import Timers
from evenq.broker.scheduling.transactions import Transactions, TransactionSettings
from evenq.broker.state.offsets import GroupOffsets
from evenq.broker.state.topics import Topics
from evenq.broker.store.files import Files
from evenq.broker.store.levels import DelayLevels
from evenq.broker.store.retention import Retention
from evenq.broker.store.store import Store, StoredMessage
from evenq.model import TransactionState
from evenq.protocol.batch import BatchEntry, encode_batch
from evenq.protocol.flags import SysFlag
from evenq.protocol.headers import EndTransaction
from evenq.protocol.properties import decode_properties
from evenq.protocol.records import decode_messages
from tests.broker.stores import HOST, Hand, message
from tests.broker.torture.recording import RecordingFiles

__all__ = ["Client", "Outcome", "Process", "run"]

TOPIC = "orders"
# one that is deleted and made again
PASSING = "bills"
TOPICS = (TOPIC, PASSING)
QUEUES = 3
GROUP = "billing"


class Outcome:
    """What the clients of the store were told."""

    def __init__(self, told: Callable[[Outcome], None] = lambda outcome: None) -> None:
        # bodies by topic, queue and offset
        self.placed: dict[tuple[str, int, int], bytes] = {}
        # bodies of which only the queue is known, since they come later
        self.later: set[bytes] = set()
        # bodies of which nobody was told yet what became of them: they may be there or not
        self.asked: set[bytes] = set()
        # bodies that nobody may ever see: refused, or half messages that are not committed
        self.refused: set[bytes] = set()
        # messages of topics that were deleted, perhaps in vain
        self.deleted: set[bytes] = set()
        # the offset of the group that was saved last, and one of which that is not known
        self.offset = self.perhaps_offset = 0
        self.errors = 0
        # called with this whenever it changes
        self._told = told

    def copy(self) -> Outcome:
        copy = Outcome()
        copy.placed, copy.later, copy.asked = self.placed.copy(), self.later.copy(), self.asked.copy()
        copy.refused, copy.offset, copy.perhaps_offset = self.refused.copy(), self.offset, self.perhaps_offset
        return copy

    def ask(self, bodies: Iterable[bytes]) -> None:
        self.refused.difference_update(bodies)
        self.asked.update(bodies)
        self._told(self)

    def refuse(self, bodies: Iterable[bytes]) -> None:
        self.asked.difference_update(bodies)
        self.refused.update(bodies)
        self._told(self)

    def place(self, topic: str, queue_id: int, offset: int, bodies: Iterable[bytes]) -> None:
        for at, body in enumerate(bodies, offset):
            if body not in self.deleted:
                assert (topic, queue_id, at) not in self.placed, "an offset was given twice"
                self.placed[topic, queue_id, at] = body
                self.asked.discard(body)
        self._told(self)

    def promise(self, body: bytes) -> None:
        self.asked.discard(body)
        self.later.add(body)
        self._told(self)

    def begin_to_delete(self, bodies: Iterable[bytes]) -> None:
        """From here on messages of a topic may be gone, also those that are not answered."""
        self.deleted.update(bodies)
        self.placed = {place: body for place, body in self.placed.items() if body not in self.deleted}
        self.ask(bodies)

    def save_offset(self, offset: int) -> None:
        self.offset = offset
        self._told(self)

    def perhaps_save_offset(self, offset: int) -> None:
        self.perhaps_offset = offset
        self._told(self)


class Process:
    """A broker's store and what delivers from it, with one process's memory."""

    def __init__(self, directory: Path, hand: Hand, files: Files, *, flush_sync: bool = False) -> None:
        self.hand = hand
        self.directory = directory
        self.files = files
        self.flush_sync = flush_sync
        self.store = Store(
            directory,
            HOST,
            clock=hand,
            log_file_size=1 << 12,
            queue_file_units=8,
            levels=DelayLevels.parse("1s 2s"),
            files=files,
        )
        try:
            self.parked = ParkedMessages(self.store, hand)
            self.offsets = GroupOffsets(self.store.config.load_offsets())
            topics = Topics("DefaultCluster", "broker-a", clock=hand, saved=self.store.config.load_topics())
            self.delays = DelayedMessages(self.store, hand, self.commit)
            self.timers = Timers(self.store, directory, hand, self.commit, file_size=20 * 52)
            self.transactions = Transactions(
                self.store,
                self.parked,
                topics,
                self.offsets,
                hand,
                self.commit,
                lambda half: None,
                TransactionSettings(),
            )
            self.topics = topics
        except BaseException:
            self.store.abandon()
            raise

    def commit(self) -> None:
        self.store.commit()

    def deliver(self) -> None:
        """What the scheduler does: a step that fails is forgotten and tried again later."""
        for step in (self.delays.deliver, self.timers.deliver, self.transactions.check):
            try:
                while step():
                    pass
            except OSError:
                self.store.discard()

    def successor(self) -> Process:
        """The next process with the same directory, which knows nothing of this one."""
        files = RecordingFiles(self.files.journal) if isinstance(self.files, RecordingFiles) else type(self.files)()
        return Process(self.directory, self.hand, files, flush_sync=self.flush_sync)

    def end(self) -> None:
        self.store.abandon()
        self.timers.close()

    def sync(self) -> None:
        """What an answer waits for with synchronous flush."""
        if self.flush_sync:
            self.store.sync_log()

    def messages(self) -> dict[tuple[str, int, int], bytes]:
        """Everything that consumers find, by topic, queue and offset."""
        found: dict[tuple[str, int, int], bytes] = {}
        for topic in TOPICS:
            for queue_id in range(QUEUES):
                offset, end = self.store.bounds(topic, queue_id)
                while offset < end:
                    read = self.store.read(topic, queue_id, offset, 32, 1 << 20)
                    for view in decode_messages(read.body):
                        assert offset <= view.queue_offset < read.next_offset, (offset, view, read.next_offset)
                        assert (view.topic, view.queue_id) == (topic, queue_id)
                        found[topic, queue_id, view.queue_offset] = view.body
                        offset = view.queue_offset + 1
                    offset = read.next_offset
        return found


class _Request(NamedTuple):
    """Bodies that it asks to store, and what stages them and gives what its client notes when that is acknowledged."""

    bodies: Sequence[bytes]
    stage: Callable[[], Callable[[], None]]


class Client:
    """Asks a process for things, and believes what it is told."""

    def __init__(self, process: Process, outcome: Outcome) -> None:
        # another one after a restart
        self.process = process
        self._outcome = outcome
        self._number = 0
        # what was sent to the topic that is to be deleted
        self._passing: list[bytes] = []
        # what is written and not answered, and whether it must wait since the disk is waited for already
        self._unanswered: list[Callable[[], None]] = []
        self._is_waiting = False

    def _body(self, size: int = 40) -> bytes:
        self._number += 1
        return f"{self._number} ".encode().ljust(size, b".")

    def _turn(self, *requests: _Request) -> None:
        """Requests of one read."""
        store, outcome = self.process.store, self._outcome
        staged: list[tuple[_Request, Callable[[], None]]] = []
        for request in requests:
            outcome.ask(request.bodies)
            savepoint = len(store.staged)
            try:
                staged.append((request, request.stage()))
            except OSError:
                outcome.errors += 1
                store.rollback(savepoint)
                outcome.refuse(request.bodies)
        try:
            self.process.commit()
        except OSError:
            outcome.errors += 1
            for request, _ in staged:
                outcome.refuse(request.bodies)
            return
        self._unanswered += [note for _, note in staged]
        if not self._is_waiting:
            self._answer()

    def _answer(self) -> None:
        notes, self._unanswered = self._unanswered, []
        try:
            self.process.sync()
        except OSError:
            # they are written, so nobody can say that they were not
            self._outcome.errors += 1
            return
        for note in notes:
            note()

    def _send(self, queue_id: int, size: int = 40, topic: str = TOPIC) -> _Request:
        body = self._body(size)
        if topic == PASSING:
            self._passing.append(body)

        def stage() -> Callable[[], None]:
            stored = self.process.store.append(message(body, topic=topic, queue_id=queue_id))
            return lambda: self._outcome.place(topic, queue_id, stored.queue_offset, [body])

        return _Request([body], stage)

    def _batch(self, queue_id: int, count: int) -> _Request:
        bodies = [self._body() for _ in range(count)]

        def stage() -> Callable[[], None]:
            content = encode_batch([BatchEntry(body) for body in bodies])
            stored = self.process.store.append_batch(message(content, queue_id=queue_id)._replace(properties=""))
            return lambda: self._outcome.place(TOPIC, queue_id, stored.queue_offset, bodies)

        return _Request(bodies, stage)

    def _send_later(self, queue_id: int, **properties: str) -> _Request:
        body = self._body()

        def stage() -> Callable[[], None]:
            incoming = message(body, properties, queue_id=queue_id)
            self.process.parked.store_or_park(incoming, decode_properties(incoming.properties))
            return lambda: self._outcome.promise(body)

        return _Request([body], stage)

    def _refused(self, queue_id: int) -> _Request:
        """Something is wrong with the request, but that is seen when its messages are staged already."""
        request = self._send(queue_id)

        def stage() -> Callable[[], None]:
            request.stage()
            raise OSError(errno.EINVAL, "refused")

        return request._replace(stage=stage)

    def singles(self) -> None:
        for number in range(4):
            self._turn(self._send(number % QUEUES))

    def pipelined(self) -> None:
        self._turn(*(self._send(number % QUEUES, size=40 + 100 * number) for number in range(6)))

    def batches(self) -> None:
        self._turn(self._batch(1, 5), self._send(1), self._batch(1, 10))

    def refused(self) -> None:
        self._turn(self._send(0), self._refused(0), self._send(0), self._refused(1))

    def delayed(self) -> None:
        self._turn(self._send_later(0, DELAY="1"), self._send_later(1, DELAY="2"), self._send(0))
        self._turn(self._send_later(2, TIMER_DELAY_SEC="2"), self._send_later(0, TIMER_DELAY_MS="1500"))

    def transactions(self) -> None:
        halves: list[tuple[bytes, StoredMessage]] = []

        def prepare(number: int) -> _Request:
            body = self._body()
            self._outcome.refuse([body])
            half = message(body, queue_id=2, TRAN_MSG="true", PGROUP="shop", UNIQ_KEY=f"{self._number}")
            half = half._replace(born_timestamp=self.process.hand.ms, sys_flag=int(SysFlag.PREPARED))

            def stage() -> Callable[[], None]:
                stored = self.process.transactions.prepare(half, decode_properties(half.properties))
                return lambda: halves.append((body, stored))

            return _Request([], stage)

        self._turn(*map(prepare, range(3)))
        for (body, stored), state in zip(halves, (TransactionState.COMMIT, TransactionState.ROLLBACK), strict=False):
            self._turn(self._end(body, stored, state))
        # the third one is never heard of again

    def _end(self, body: bytes, stored: StoredMessage, state: TransactionState) -> _Request:
        is_committed = state is TransactionState.COMMIT

        def stage() -> Callable[[], None]:
            header = EndTransaction(
                producer_group="shop",
                tran_state_table_offset=stored.queue_offset,
                commit_log_offset=stored.log_offset,
                commit_or_rollback=state,
                msg_id="x",
            )
            self.process.transactions.end(header)
            return (lambda: self._outcome.promise(body)) if is_committed else (lambda: None)

        return _Request([body] if is_committed else [], stage)

    def commits_offset(self) -> None:
        offset = self.process.store.bounds(TOPIC, 0)[1]
        self._outcome.perhaps_save_offset(offset)
        self.process.offsets.commit(GROUP, TOPIC, 0, offset)

        def save() -> None:
            self.process.store.config.save_offsets(self.process.offsets.table())
            self.process.sync()
            self._outcome.save_offset(offset)

        self._quietly(save)

    def creates_topic(self) -> None:
        self._quietly(lambda: self.process.store.config.save_topics(self.process.topics.table()))

    def other_topic(self) -> None:
        """A topic with messages of its own, which is deleted while it gets more."""
        self._turn(self._send(0, topic=PASSING), self._send(0))
        self._is_waiting = True
        self._turn(self._send(0, topic=PASSING), self._send(1, topic=PASSING), self._send(2))
        self._deletes_topic()
        self._is_waiting = False
        self._answer()
        self._turn(self._send(1, topic=PASSING))

    def _deletes_topic(self) -> None:
        gone, self._passing = self._passing, []
        self._outcome.begin_to_delete(gone)

        def delete() -> None:
            self.process.store.delete_topic(PASSING)
            self._outcome.refuse(gone)

        self._quietly(delete)

    def checkpoint(self) -> None:
        self._quietly(lambda: self.process.store.checkpoint()())

    def busy_checkpoint(self, files: RecordingFiles) -> None:
        """Others send while it waits for the disk."""
        self._is_waiting = True
        files.meanwhile = lambda: self._turn(self._send(self._number % QUEUES))
        self.checkpoint()
        files.meanwhile = lambda: None
        self._is_waiting = False
        self._answer()

    def syncs(self) -> None:
        self._quietly(self.process.store.sync_log)

    def removes_old_files(self) -> None:
        self.process.store.retention = Retention(size=5 * 4096)
        self.checkpoint()

    def time_passes(self) -> None:
        self.process.hand.now += 3.0
        self.process.deliver()

    def restarts(self, *, cleanly: bool) -> None:
        """The process ends or is killed, and another one goes on."""
        self._unanswered.clear()
        process = self.process
        if cleanly:
            process.store.close()
            process.timers.close()
        else:
            process.end()
        self.process = process.successor()

    def _quietly(self, work: Callable[[], object]) -> None:
        try:
            work()
        except OSError:
            self._outcome.errors += 1


def run(process: Process, outcome: Outcome) -> None:
    """The whole script."""
    client = Client(process, outcome)
    client.creates_topic()
    for _ in range(2):
        client.singles()
        client.pipelined()
        client.checkpoint()
        client.batches()
        client.delayed()
        client.syncs()
        client.transactions()
        client.commits_offset()
        client.time_passes()
        client.checkpoint()
        client.other_topic()
        client.singles()
    client.removes_old_files()
    client.pipelined()

"""A day in the life of a store, in a second: everything that writes, with a record of what was acknowledged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

from evenq.broker.delays import DelayedMessages
from evenq.broker.intake import Intake
from evenq.broker.offsets import GroupOffsets
from evenq.broker.store.files import Files
from evenq.broker.store.levels import DelayLevels
from evenq.broker.store.retention import Retention
from evenq.broker.store.store import Incoming, Store, Stored
from evenq.broker.timers import Timers
from evenq.broker.topics import Topics
from evenq.broker.transactions import Transactions, TransactionSettings
from evenq.model import TransactionState
from evenq.protocol.batch import BatchEntry, encode_batch
from evenq.protocol.flags import SysFlag
from evenq.protocol.headers import EndTransaction
from evenq.protocol.properties import decode_properties
from evenq.protocol.records import decode_messages
from tests.broker.stores import HOST, Hand, message

__all__ = ["Outcome", "Process", "run"]

TOPIC = "orders"
QUEUES = 3
GROUP = "billing"


class Outcome:
    """What the clients of the store were told."""

    def __init__(self) -> None:
        # bodies by queue and offset
        self.placed: dict[tuple[int, int], bytes] = {}
        # bodies of which only the queue is known, since they come later
        self.later: set[bytes] = set()
        self.refused: set[bytes] = set()
        # half messages of which nobody was told how they ended
        self.open: set[bytes] = set()
        # the offset of the group that was saved last, and one of which that is not known
        self.offset = self.perhaps_offset = 0
        self.errors = 0


class Process:
    """A broker's store and what delivers from it, with one process's memory."""

    def __init__(self, directory: Path, hand: Hand, files: Files) -> None:
        self.hand = hand
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
            self.intake = Intake(self.store, hand)
            self.offsets = GroupOffsets(self.store.config.load_offsets())
            topics = Topics("DefaultCluster", "broker-a", clock=hand, saved=self.store.config.load_topics())
            self.delays = DelayedMessages(self.store, hand, self.commit)
            self.timers = Timers(self.store, directory, hand, self.commit, file_size=20 * 52)
            self.transactions = Transactions(
                self.store,
                self.intake,
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
        self.store.settle()

    def deliver(self) -> None:
        """What the scheduler does: a step that fails is forgotten and tried again later."""
        for step in (self.delays.deliver, self.timers.deliver, self.transactions.check):
            try:
                while step():
                    pass
            except OSError:
                self.store.discard()

    def end(self) -> None:
        self.store.abandon()
        self.timers.close()

    def bodies(self) -> Counter[bytes]:
        """Everything that consumers find."""
        found: Counter[bytes] = Counter()
        for queue_id in range(QUEUES):
            offset, end = self.store.bounds(TOPIC, queue_id)
            while offset < end:
                read = self.store.read(TOPIC, queue_id, offset, 32, 1 << 20)
                for view in decode_messages(read.body, check_crc=True):
                    assert view.queue_offset == offset, (view.queue_offset, offset)
                    found[view.body] += 1
                    offset += 1
                assert offset == read.next_offset
        return found


class Client:
    """Asks a process for things, and believes what it is told."""

    def __init__(self, process: Process, outcome: Outcome) -> None:
        self._process = process
        self._outcome = outcome
        self._number = 0

    def _body(self, size: int = 40) -> bytes:
        self._number += 1
        return f"{self._number} ".encode().ljust(size, b".")

    def _turn(self, *requests: Callable[[], Callable[[], None]]) -> None:
        """Requests of one read. Each stages something, and gives what its client notes when it is acknowledged."""
        store, noted = self._process.store, []
        for request in requests:
            savepoint = len(store.staged)
            try:
                noted.append(request())
            except OSError:
                self._outcome.errors += 1
                store.rollback(savepoint)
        try:
            self._process.commit()
        except OSError:
            self._outcome.errors += 1
            return
        for note in noted:
            note()

    def _send(self, queue_id: int, size: int = 40) -> Callable[[], Callable[[], None]]:
        body = self._body(size)
        self._outcome.refused.add(body)

        def stage() -> Callable[[], None]:
            stored = self._process.store.append(message(body, queue_id=queue_id))
            return lambda: self._note(queue_id, stored.queue_offset, [body])

        return stage

    def _batch(self, queue_id: int, count: int) -> Callable[[], Callable[[], None]]:
        bodies = [self._body() for _ in range(count)]
        self._outcome.refused.update(bodies)

        def stage() -> Callable[[], None]:
            content = encode_batch([BatchEntry(body) for body in bodies])
            stored = self._process.store.append_batch(message(content, queue_id=queue_id)._replace(properties=""))
            return lambda: self._note(queue_id, stored.queue_offset, bodies)

        return stage

    def _note(self, queue_id: int, offset: int, bodies: list[bytes]) -> None:
        for at, body in enumerate(bodies, offset):
            assert (queue_id, at) not in self._outcome.placed, "an offset was given twice"
            self._outcome.placed[queue_id, at] = body
            self._outcome.refused.discard(body)

    def _send_later(self, queue_id: int, **properties: str) -> Callable[[], Callable[[], None]]:
        body = self._body()
        self._outcome.refused.add(body)

        def stage() -> Callable[[], None]:
            incoming = message(body, properties, queue_id=queue_id)
            self._process.intake.put(incoming, decode_properties(incoming.properties))
            return lambda: self._later(body)

        return stage

    def _later(self, body: bytes) -> None:
        self._outcome.refused.discard(body)
        self._outcome.later.add(body)

    def singles(self) -> None:
        for number in range(4):
            self._turn(self._send(number % QUEUES))

    def pipelined(self) -> None:
        self._turn(*(self._send(number % QUEUES, size=40 + 100 * number) for number in range(6)))

    def batches(self) -> None:
        self._turn(self._batch(1, 5), self._send(1), self._batch(1, 10))

    def delayed(self) -> None:
        self._turn(self._send_later(0, DELAY="1"), self._send_later(1, DELAY="2"), self._send(0))
        self._turn(self._send_later(2, TIMER_DELAY_SEC="2"), self._send_later(0, TIMER_DELAY_MS="1500"))

    def transactions(self) -> None:
        halves: list[tuple[bytes, Stored]] = []

        def prepare(number: int) -> Callable[[], Callable[[], None]]:
            body = self._body()
            self._outcome.refused.add(body)
            half = message(body, queue_id=2, TRAN_MSG="true", PGROUP="shop", UNIQ_KEY=f"{self._number}")
            half = half._replace(born_timestamp=self._process.hand.ms, sys_flag=int(SysFlag.PREPARED))

            def stage() -> Callable[[], None]:
                stored = self._process.transactions.prepare(half, decode_properties(half.properties))
                return lambda: halves.append((body, stored))

            return stage

        self._turn(*map(prepare, range(3)))
        for (body, stored), state in zip(halves, (TransactionState.COMMIT, TransactionState.ROLLBACK), strict=False):
            self._turn(self._end(body, stored, state))
        # the third one is never heard of again

    def _end(self, body: bytes, stored: Stored, state: TransactionState) -> Callable[[], Callable[[], None]]:
        def stage() -> Callable[[], None]:
            header = EndTransaction(
                producer_group="shop",
                tran_state_table_offset=stored.queue_offset,
                commit_log_offset=stored.log_offset,
                commit_or_rollback=state,
                msg_id="x",
            )
            self._process.transactions.end(header)
            return (lambda: self._later(body)) if state is TransactionState.COMMIT else (lambda: None)

        return stage

    def commits_offset(self) -> None:
        self._outcome.perhaps_offset += 1
        self._process.offsets.commit(GROUP, TOPIC, 0, self._outcome.perhaps_offset)

        def save() -> None:
            self._process.store.config.save_offsets(self._process.offsets.table())
            self._outcome.offset = self._outcome.perhaps_offset

        self._quietly(save)

    def creates_topic(self) -> None:
        self._quietly(lambda: self._process.store.config.save_topics(self._process.topics.table()))

    def other_topic(self) -> None:
        """A topic with messages of its own, which is deleted."""

        def stage() -> Callable[[], None]:
            self._process.store.append(Incoming("bills", 0, b"bill", "", None, 0, HOST))
            return lambda: None

        self._turn(stage, self._send(0))
        self._quietly(lambda: self._process.store.delete_topic("bills"))

    def checkpoint(self) -> None:
        self._quietly(lambda: self._process.store.checkpoint()())

    def syncs(self) -> None:
        self._quietly(self._process.store.sync_log)

    def removes_old_files(self) -> None:
        self._process.store.retention = Retention(size=5 * 4096)
        self.checkpoint()

    def time_passes(self) -> None:
        self._process.hand.now += 3.0
        self._process.deliver()

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

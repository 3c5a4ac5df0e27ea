"""The store of one broker: messages in, messages out, by topic, queue and offset.

Messages are stored in turns. A turn is what one read of a connection brings, or one step of a scheduler:

========= ============================ ====================================================== =========
state     event                        what is done                                           then
========= ============================ ====================================================== =========
EMPTY,    ``append``                   the record gets its offsets and is staged in memory;   STAGED
STAGED                                 nothing is written, nobody can read it
STAGED    a handler raises             ``rollback`` to its savepoint: what it staged is gone  STAGED
STAGED    ``commit``: the log is       entries of the consume queues are published, readers   EMPTY
          written                      see the messages; senders may be answered
STAGED    ``commit``: the log cannot   ``discard``: what was staged is gone, the log's files  EMPTY
          be written                   are cut to what was written before; senders get an
                                       error, and nobody ever sees the messages
any       the files cannot be cut, or  READ_ONLY: reads go on, ``append`` raises
          the disk has lost what it
          was given (fsync fails)
READ_ONLY a checkpoint can cut the     writes go on; after a failed fsync only a restart      EMPTY
          files now                    helps, for nobody knows what is on the disk
========= ============================ ====================================================== =========

So an offset that was given to a sender never changes, and what was refused is never visible. What was written survives
this process; a sync lets it survive the machine (:mod:`evenq.broker.flusher`).

Everything runs on the broker's one thread, except what waits for the disk: :meth:`Store.sync_log` and the function that
:meth:`Store.checkpoint` gives.
"""

from __future__ import annotations

import errno
import logging
import math
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from enum import Enum
from functools import lru_cache, partial
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple, NoReturn

import msgspec
import numpy as np

from evenq.broker.store.commitlog import FILE_SIZE, CommitLog
from evenq.broker.store.consumequeue import FILE_UNITS, MISSING_SIZE, UNIT, UNITS, ConsumeQueue, pack_units
from evenq.broker.store.files import OS_FILES, DirectoryLock, Files, SyncFailed
from evenq.broker.store.levels import DEFAULT_LEVELS, SCHEDULE_TOPIC, DelayLevels
from evenq.broker.store.reading import Damages, ReadAhead, select
from evenq.broker.store.recovery import RecoveryReport, first_time, recover
from evenq.broker.store.retention import DeletionPace, Retention, first_kept
from evenq.broker.store.scan import BLANK, Entry, read_entry, store_time
from evenq.broker.store.seal import seal, with_room_for_seal
from evenq.broker.store.state_files import AbortFile, Checkpoint, ConfigFiles, StateFile
from evenq.errors import ArgumentError, StateError
from evenq.protocol.batch import decode_batch
from evenq.protocol.evenbatch import batch_records
from evenq.protocol.filters import tag_code
from evenq.protocol.names import PATH_LIMIT, topic_error
from evenq.protocol.properties import decode_properties, find_property
from evenq.protocol.recordform import BatchRecords, RecordForm
from evenq.protocol.records import MIN_RECORD, decode_messages
from evenq.protocol.view import MessageView
from evenq.supervision import warn_of_each

__all__ = ["NewMessage", "Read", "ReadOnly", "ReadStatus", "Store", "StoredBatch", "StoredMessage"]

log = logging.getLogger(__name__)

# Gives the function that saves the state as it is now. It gives None while messages delivered before a kill are not
# passed yet: then the checkpoint keeps its old mark, so that the next start reads the log from there again.
Saver = Callable[[], Callable[[], None] | None]

# Bytes of consume queues that may wait in memory because the disk does not take them.
_MOST_UNWRITTEN = 64 * 1024 * 1024

# A filter that lets nothing through may look at so many messages of one read.
_MAX_SCAN = 16_000

# Damaged messages that one read passes over.
_MAX_DAMAGED = 512


_tag_code = lru_cache(4096)(tag_code)


@lru_cache(4096)
def _wire_tag_code(tags: bytes | None) -> int:
    return tag_code(tags.decode(errors="replace") if tags else None)


def _tag_codes(batch: bytes, made: BatchRecords) -> Sequence[int] | None:
    """The hash of each message's tag; None where none has one."""
    if b"TAGS\x01" not in batch:
        return None
    return [_wire_tag_code(find_property(properties[2:], b"TAGS")) for properties in made.tails()]


def _sync_queue(queue: ConsumeQueue) -> None:
    """Return when its entries are on the disk, or when its topic was deleted meanwhile: then its files are gone."""
    try:
        queue.sync()
    except SyncFailed:
        if not queue.is_deleted:
            raise


class ReadOnly(OSError):
    """The store takes no messages now, and says why."""

    def __init__(self, reason: str) -> None:
        super().__init__(errno.EROFS, f"the store is read-only: {reason}")


# Records that have their places and are not written: where they begin in the log, their bytes, and their queue with the
# entries that it gets and the sizes of the records. Without a queue it is the marker at the end of a file, or nothing.
_Staged = tuple[int, bytes | bytearray, ConsumeQueue | None, bytes, Sequence[int]]


class NewMessage(NamedTuple):
    """A message to be stored. ``properties`` are in wire form, hosts as ``address:port``, times in milliseconds."""

    topic: str
    queue_id: int
    body: bytes
    properties: str
    tags: str | None
    born_timestamp: int
    born_host: str
    flag: int = 0
    sys_flag: int = 0
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0


class StoredMessage(NamedTuple):
    """Where a message is: in its queue, and in the commit log."""

    queue_offset: int
    log_offset: int


class StoredBatch(NamedTuple):
    """Where the messages of a batch are: the offset of the first in its queue, and all places in the commit log."""

    queue_offset: int
    log_offsets: list[int]


class ReadStatus(Enum):
    """What came of a read."""

    FOUND = "messages are there"
    NO_MATCH = "the filter lets none of the next ones through"
    EMPTY = "the queue holds nothing and never did"
    AT_END = "the next message is still to come"
    TOO_SMALL = "the offset is no longer kept"
    TOO_LARGE = "the offset is beyond the end"


class Read(msgspec.Struct, frozen=True, gc=False):
    """The records that were read, one behind the other, and where to go on."""

    status: ReadStatus
    next_offset: int
    min_offset: int
    max_offset: int
    body: bytes = b""
    count: int = 0


class Store:
    """A data directory, open for one broker."""

    def __init__(
        self,
        directory: Path,
        store_host: str,
        *,
        clock: Callable[[], float],
        log_file_size: int = FILE_SIZE,
        queue_file_units: int = FILE_UNITS,
        levels: DelayLevels = DEFAULT_LEVELS,
        retention: Retention | None = None,
        monotonic: Callable[[], float] | None = None,
        files: Files = OS_FILES,
    ) -> None:
        self._directory = directory
        self._store_host = store_host
        self._clock = clock
        self._queue_file_units = queue_file_units
        self.levels = levels
        self.retention = retention or Retention()
        # a clock that is not the system's is moved by its owner, and nobody sets it
        self._deletion_pace = DeletionPace(clock, monotonic or (time.monotonic if clock is time.time else clock))
        self.files = files
        self._checkpoint_file = StateFile(directory / "checkpoint", files)
        self._abort = AbortFile(directory / "abort", files)
        self._lock = DirectoryLock(directory, files)
        self._queues: dict[tuple[str, int], ConsumeQueue] = {}
        # queues with units that are not on the disk
        self._dirty: set[ConsumeQueue] = set()
        # what this turn has stored so far, always the same list; and what is to be done if it is discarded, with the
        # length of the list then
        self.staged: list[_Staged] = []
        self._undo: list[tuple[int, Callable[[], None]]] = []
        # why nothing can be stored: until the files can be cut, or until a restart
        self._uncut = ""
        self._disk_failed = ""
        try:
            self.config = ConfigFiles(directory / "config", files)
            self.log = CommitLog(directory / "commitlog", log_file_size, files)
            self._checkpoint = self._load_checkpoint()
            # The Java broker may have cut the log since evenq's mark was made.
            self._lost = None if self._checkpoint.by_java else self.log.resume_behind(self._checkpoint.mark)
            self._gaps = self.log.gaps
            # the log offsets before which messages of deleted topics are gone
            self._deleted = self.config.load_deleted_topics()
            self._damages = Damages(self.log, directory)
            self._ahead = ReadAhead(self._damages)
            self._prepare()
        except BaseException:
            self._lock.release()
            raise

    def _load_checkpoint(self) -> Checkpoint:
        try:
            return self._checkpoint_file.load(Checkpoint.decode) or Checkpoint()
        except StateError as error:
            log.warning("%s: all of the log is read: %s", self._directory, error)
            return Checkpoint()

    def _prepare(self) -> None:
        self._last_time = 0
        # what else is saved with each checkpoint
        self._savers: list[Saver] = []
        # whether one of them had nothing to save yet
        self._starts_again = False
        # records of which others were made shortly before a kill: nobody need do it again
        self.delivered_origins: frozenset[int] = frozenset()
        # whether the last run ended in good order, and what this start has found
        self.was_closed = True
        self.recovered: RecoveryReport
        self._open()

    def _open(self) -> None:
        for directory in sorted((self._directory / "consumequeue").glob("*/*")):
            topic = directory.parent.name
            if directory.name.isdecimal() and not topic_error(topic, PATH_LIMIT) and any(directory.iterdir()):
                queue = self.queue(topic, int(directory.name))
                begin = queue.log_start
                if begin is not None and 0 <= begin < self._deleted.get(topic, 0):
                    # the end came while the topic was being deleted
                    del self._queues[topic, queue.queue_id]
                    queue.delete()
        clean = self.was_closed = not self._abort.found
        if not clean:
            self.files.doubt_names(self._directory)
        queues = list(self._queues.values())
        now = int(self._clock() * 1000)
        found = recover(
            self.log,
            queues,
            self.queue,
            self._checkpoint,
            clean=clean,
            now=now,
            damaged_to=self._directory / "damaged",
            deleted=self._deleted,
            lost=self._lost,
            levels=self.levels,
            files=self.files,
        )
        self.recovered = report = found.report
        if not clean:
            log.info("%s: read %d bytes of the log after an unclean end", self._directory, report.end - report.start)
        warn_of_each(log, self._directory, list(report.lines()))
        self._last_time = found.last_time
        self.delivered_origins = found.delivered_origins
        if any(offset > self.log.end for offset in self._deleted.values()):
            # the power failed before messages of the topic were on the disk: others will have their places
            self._deleted = {topic: min(offset, self.log.end) for topic, offset in self._deleted.items()}
            self.config.save_deleted_topics(self._deleted)
            self.config.sync()
        self._dirty.update(self._queues.values())
        self._abort.set()

    def queue(self, topic: str, queue_id: int) -> ConsumeQueue:
        """The consume queue, made where it is missing."""
        found = self._queues.get((topic, queue_id))
        if found is None:
            if (error := topic_error(topic, PATH_LIMIT)) or not 0 <= queue_id < 1 << 31:
                raise ArgumentError("queue", (topic, queue_id), error or "queues have numbers from 0 to 2147483647")
            directory = self._directory / "consumequeue" / topic / str(queue_id)
            found = ConsumeQueue(directory, topic, queue_id, self._queue_file_units, self.files, self._gaps)
            self._queues[topic, queue_id] = found
        return found

    def queues(self) -> Iterator[ConsumeQueue]:
        return iter(list(self._queues.values()))

    # -- writing

    def append(self, message: NewMessage) -> StoredMessage:
        """Stage one message. It can be read, and survives this process, after the next :meth:`commit`."""
        if self._disk_failed or self._uncut:
            self._refuse()
        queue = self.queue(message.topic, message.queue_id)
        now = int(self._clock() * 1000)
        form = self._form(message, now)
        properties = message.properties.encode()
        is_sealed = False
        if b"\0" in properties or b"__CRC32#" in properties:
            properties = with_room_for_seal(properties)
            is_sealed = b"\0" in properties
        size = form.overhead + len(message.body) + len(properties)
        self._make_room(size)
        stored = StoredMessage(queue.next, self.log.next)
        record = form.record(message.body, properties, *stored, flag=message.flag)
        if is_sealed:
            record = seal(record)
        delayed = message.topic == SCHEDULE_TOPIC
        code = self.levels.due(message.queue_id + 1, now) if delayed else _tag_code(message.tags)
        self._stage(record, (size,), queue, UNIT.pack(stored.log_offset, size, code), now)
        return stored

    def append_batch(self, batch: NewMessage) -> StoredBatch:
        """Stage the messages of a batch, which is the body of ``batch``, directly one behind the other."""
        if self._disk_failed or self._uncut:
            self._refuse()
        queue = self.queue(batch.topic, batch.queue_id)
        now = int(self._clock() * 1000)
        form = self._form(batch, now)
        if not self.log.fits(form.most(batch.body)):
            self._make_room(sum(form.batch(batch.body, 0, 0).sizes))
        made = batch_records(form, batch.body, queue.next, self.log.next)
        if made.has_zeros:
            return self._append_singly(batch)
        *offsets, _ = accumulate(made.sizes, initial=self.log.next)
        stored = StoredBatch(queue.next, offsets)
        units = pack_units(offsets, made.sizes, _tag_codes(batch.body, made))
        self._stage(made.records, made.sizes, queue, units, now)
        return stored

    def _append_singly(self, batch: NewMessage) -> StoredBatch:
        """Stage the messages of a batch one by one, some of which need a checksum."""
        stored = []
        for entry in decode_batch(batch.body):
            tags = decode_properties(entry.properties).get("TAGS")
            message = batch._replace(body=entry.body, properties=entry.properties, flag=entry.flag, tags=tags)
            stored.append(self.append(message))
        return StoredBatch(stored[0].queue_offset, [place.log_offset for place in stored])

    def _form(self, message: NewMessage, now: int) -> RecordForm:
        return RecordForm(
            topic=message.topic,
            queue_id=message.queue_id,
            born_timestamp=message.born_timestamp,
            born_host=message.born_host,
            store_timestamp=now,
            store_host=self._store_host,
            sys_flag=message.sys_flag,
            reconsume_times=message.reconsume_times,
            prepared_transaction_offset=message.prepared_transaction_offset,
        )

    def _make_room(self, size: int) -> None:
        """Go on in the next file where records of this size, which stand together, do not fit into this one."""
        if not self.log.fits(size):
            if size > self.log.largest:
                raise ArgumentError("messages", f"{size} bytes", f"at most {self.log.largest} fit into one file")
            self.staged.append((self.log.next, self.log.blank(), None, b"", ()))
            self.log.next += self.log.room

    def _stage(
        self, records: bytes | bytearray, sizes: Sequence[int], queue: ConsumeQueue, units: bytes, now: int
    ) -> None:
        self.staged.append((self.log.next, records, queue, units, sizes))
        self.log.next += len(records)
        queue.next += len(sizes)
        self._last_time = now

    def _refuse(self) -> NoReturn:
        raise ReadOnly(self._disk_failed or self._uncut)

    def depend(self) -> None:
        """Make the request that is handled now one that fails if this turn cannot be stored."""
        self.staged.append((self.log.next, b"", None, b"", ()))

    def rollback(self, savepoint: int) -> None:
        """Forget what was staged since there was so much of it."""
        if len(self.staged) > savepoint:
            self.log.next = self.staged[savepoint][0]
            for _, _, queue, _, sizes in self.staged[savepoint:]:
                if queue is not None:
                    queue.next -= len(sizes)
            del self.staged[savepoint:]
        while self._undo and self._undo[-1][0] > savepoint:
            self._undo.pop()[1]()

    def on_discard(self, undo: Callable[[], None]) -> None:
        """Let ``undo`` be called if the message that was staged last is not stored after all."""
        self._undo.append((len(self.staged), undo))

    def commit(self) -> Collection[tuple[str, int]]:
        """Write what this turn has staged, and publish it: the queues that got messages.

        If the system does not take it (the disk is full), all of it is forgotten.
        """
        if not self.staged:
            return ()
        try:
            self.log.write(self.staged)
        except OSError:
            self.discard()
            raise
        staged = self.staged.copy()
        self.staged.clear()
        self._undo.clear()
        arrived: dict[tuple[str, int], None] = {}
        for log_offset, data, queue, units, sizes in staged:
            if queue is None:
                continue
            self.log.recent.add(log_offset, len(data), sizes)
            # the topic may have been deleted in the same turn
            if not queue.is_deleted:
                self._dirty.add(queue)
                arrived[queue.topic, queue.queue_id] = None
                if queue.extend(units):
                    self._write_units(queue)
        return arrived

    def discard(self) -> None:
        """Forget what this turn has staged, also what a failed write has left of it in the files."""
        if self.staged:
            self.rollback(0)
            self._cut_log()

    def _cut_log(self) -> None:
        try:
            self.log.discard()
        except SyncFailed as error:
            self._sync_failed(error)
        except OSError as error:
            # What is in the files behind the end could be taken for messages after a kill.
            if not self._uncut:
                log.error("%s: no messages are taken until the log can be cut: %s", self._directory, error)
            self._uncut = f"what a failed write left cannot be removed ({error}); free space or check the disk"
        else:
            if self._uncut:
                self._uncut = ""
                log.warning("%s: the log was cut, messages are taken again", self._directory)

    def _write_units(self, queue: ConsumeQueue) -> None:
        """Write entries of a queue. They can be made again from the log, so a failure is not the sender's."""
        try:
            queue.write_out()
        except OSError as error:
            if queue.unwritten_bytes > _MOST_UNWRITTEN:
                self._fail(f"the entries of {queue} cannot be written ({error}); free space and restart the broker")

    def _fail(self, reason: str) -> None:
        """Take no more messages until the next start."""
        if not self._disk_failed:
            log.error("%s: the store is read-only: %s", self._directory, reason)
            self._disk_failed = reason

    def sync_log(self) -> int:
        """Return when the log and the settings are on the disk; the offset up to which the log is. May run in another
        thread."""
        self._check_synced()
        try:
            self.config.sync()
            return self.log.sync()
        except SyncFailed as error:
            self._sync_failed(error)
            raise

    def _sync_failed(self, error: SyncFailed) -> None:
        # The system may have dropped what it could not write: the next sync would succeed and mean nothing.
        self._fail(f"the disk did not take what was written ({error}); check it and restart the broker")

    def save_with_checkpoints(self, saver: Saver) -> None:
        """Let ``saver`` tell at each checkpoint how to save what is true then. It is saved after the messages that
        it speaks of are on the disk, and before a start after a kill would no longer look at them."""
        self._savers.append(saver)

    def checkpoint(self) -> Callable[[], None]:
        """Hand the consume queues to the system too; the function that waits for the disk and then notes that all
        this need not be looked at again after a kill. It may run in another thread, and must have ended before the
        next checkpoint. What need not be kept any longer is removed."""
        self.commit()
        if self._uncut:
            self._cut_log()
        self._expire()
        for queue in self._dirty:
            queue.write_out()
        dirty, self._dirty = self._dirty, set()
        # Java keeps an index after a kill only up to its time: it makes it again, as we do
        reached = Checkpoint(self._last_time, self._last_time, index_time=0, mark=self.log.end)
        saves = [saver() for saver in self._savers]
        self._starts_again = None in saves
        if self._starts_again:
            reached = self._checkpoint

        def wait() -> None:
            try:
                self.log.sync()
                for queue in dirty:
                    _sync_queue(queue)
                for save in saves:
                    if save is not None:
                        save()
                self.config.sync()
                if reached != self._checkpoint:
                    self._check_synced()
                    self._checkpoint_file.save(reached.encode())
                    self._checkpoint_file.sync()
                    self._checkpoint = reached
            except SyncFailed as error:
                self._sync_failed(error)
                raise

        return wait

    def _check_synced(self) -> None:
        """After a sync that failed, no other one may count as a success."""
        if self._disk_failed:
            raise ReadOnly(self._disk_failed)

    def _expire(self) -> None:
        start, starts = self.log.start, self.log.file_starts
        now = int(self._clock() * 1000)
        allowed = self._deletion_pace.allowance()
        times = partial(first_time, self.log)
        self.log.drop_before(first_kept(starts, self.log.end, times, now, self.retention, allowed))
        if self.log.start > start:
            self._deletion_pace.deleted(starts.index(self.log.start))
            log.info("%s: the log begins at %d now, no longer at %d", self._directory, self.log.start, start)
            for queue in self._queues.values():
                queue.trim(self.log.start)
            kept = {topic: offset for topic, offset in self._deleted.items() if offset > self.log.start}
            if kept != self._deleted:
                self._deleted = kept
                self.config.save_deleted_topics(kept)

    # -- reading

    def read(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        count: int,
        max_bytes: int,
        codes: Collection[int] | None = None,
    ) -> Read:
        """At most ``count`` messages from ``offset`` on, at most ``max_bytes`` of them but one at least.

        With ``codes`` only messages whose tag has one of these hashes.
        """
        queue = self._queues.get((topic, queue_id))
        if queue is None or queue.max == 0:
            return Read(ReadStatus.EMPTY, 0, 0, 0)
        if offset < queue.min:
            return Read(ReadStatus.TOO_SMALL, queue.min, queue.min, queue.max)
        if offset >= queue.max:
            status = ReadStatus.AT_END if offset == queue.max else ReadStatus.TOO_LARGE
            return Read(status, queue.max, queue.min, queue.max)
        count = min(count, max_bytes // MIN_RECORD + 1)
        if codes is None and count > 0:
            body, found = self._ahead.read(queue, offset, count, max_bytes)
            if not found:
                return Read(ReadStatus.NO_MATCH, self._behind_missing(queue, offset), queue.min, queue.max)
            return Read(ReadStatus.FOUND, offset + found, queue.min, queue.max, body, found)
        return self._read_tagged(queue, offset, count, max_bytes, codes or ())

    def _behind_missing(self, queue: ConsumeQueue, offset: int) -> int:
        """Where a read goes on that found a missing or damaged message at ``offset``."""
        end = min(offset + _MAX_SCAN, queue.max)
        reached = queue.first_present(offset, end)
        if reached > offset:
            return reached
        units = queue.units(offset, min(end - offset, _MAX_DAMAGED))
        damaged = self._damages.find(queue, offset, units)
        # those in a row, from the first one on
        return offset + max(1, sum(1 for at, number in enumerate(damaged) if at == number))

    def _read_tagged(
        self, queue: ConsumeQueue, offset: int, count: int, max_bytes: int, codes: Collection[int]
    ) -> Read:
        units = queue.units(offset, max(count, _MAX_SCAN))
        chosen = select(units, count, max_bytes, codes)
        reached = offset + chosen.seen
        if not chosen.found:
            return Read(ReadStatus.NO_MATCH, reached, queue.min, queue.max)
        fields = np.frombuffer(units, UNITS, chosen.seen)
        wanted = fields[np.isin(fields["code"], list(codes)) & (fields["size"] != MISSING_SIZE)]
        found, body = chosen.found, self._damages.gather(chosen.places, wanted)
        if body is None:
            body, found, seen = self._damages.read_singly(queue, offset, units, count, max_bytes, codes)
            reached = offset + seen
        status = ReadStatus.FOUND if found else ReadStatus.NO_MATCH
        return Read(status, reached, queue.min, queue.max, body, found)

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """The first offset that is kept, and the one that the next message gets."""
        queue = self._queues.get((topic, queue_id))
        return (0, 0) if queue is None else (queue.min, queue.max)

    def time_of(self, topic: str, queue_id: int, offset: int) -> int | None:
        """When the message was stored, in milliseconds; None where none is."""
        queue = self._queues.get((topic, queue_id))
        if queue is None or not queue.min <= offset < queue.max:
            return None
        position, size, _ = queue.unit(offset)
        return store_time(self.log.read(position, position + size)) if size else None

    def offset_at(self, topic: str, queue_id: int, timestamp: int, *, upper: bool = False) -> int:
        """The first offset stored at ``timestamp`` or later; with ``upper`` the last one stored at it or earlier."""
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            return 0
        latest = timestamp if upper else timestamp - 1
        found = queue.first(lambda offset: (self.time_of(topic, queue_id, offset) or 0) > latest)
        return max(queue.min, found - 1) if upper else found

    def is_recent(self, topic: str, queue_id: int, offset: int, within: int) -> bool:
        """Whether the message is among the last ``within`` bytes of the log."""
        low, high = self.bounds(topic, queue_id)
        if not low <= offset < high:
            return False
        return self.log.end - self.queue(topic, queue_id).unit(offset)[0] <= within

    @property
    def last_time(self) -> int:
        """When the last message was stored, in milliseconds; 0 where none was."""
        return self._last_time

    @property
    def begin_time(self) -> int | None:
        """When the first message of the log was stored, in milliseconds; None where none is."""
        found = first_time(self.log, self.log.start) if self.log.end > self.log.start else math.inf
        return None if found == math.inf else int(found)

    def record_at(self, log_offset: int) -> bytes | None:
        """The record at a place in the log, or that was staged for this place; None where none begins that its queue
        names: the body of a message may hold what looks like a record."""
        if log_offset >= self.log.end:
            staged = (data for at, data, queue, _, _ in self.staged if at == log_offset and queue is not None)
            found = next(staged, None)
            return None if found is None else bytes(found)
        if log_offset < self.log.start or not self.log.holds(log_offset):
            return None
        data, base = self.log.file(log_offset)
        entry = read_entry(data, log_offset - base, log_offset)
        if entry is None or entry is BLANK or not self._is_named(entry, log_offset):
            return None
        return self.log.read(log_offset, log_offset + entry.size)

    def _is_named(self, entry: Entry, log_offset: int) -> bool:
        queue = self._queues.get((entry.topic, entry.queue_id))
        if queue is None or not queue.min <= entry.queue_offset < queue.max:
            return False
        return queue.unit(entry.queue_offset)[0] == log_offset

    def message_at(self, log_offset: int) -> MessageView | None:
        """The message at a place in the log, its body as it is stored; None where none begins."""
        record = self.record_at(log_offset)
        return None if record is None else decode_messages(record, as_stored=True)[0]

    # -- the rest

    def delete_topic(self, topic: str) -> None:
        """Forget the queues of a topic; its messages stay in the log until that is cleaned.

        First it is noted on the disk that they are gone. So no start makes their entries again, also if there is a new
        topic of that name.
        """
        if not any(queue_topic == topic for queue_topic, _ in self._queues):
            return
        self._note_deleted(topic, self.log.next)
        # what this turn has staged may still be taken back, and its places be given to others
        self.on_discard(lambda: self._note_deleted(topic, self.log.end))
        self.config.sync()
        for key in [key for key in self._queues if key[0] == topic]:
            queue = self._queues.pop(key)
            queue.is_deleted = True
            self._dirty.discard(queue)
            self._ahead.forget(queue)
            queue.delete()

    def _note_deleted(self, topic: str, log_offset: int) -> None:
        self._deleted = {**self._deleted, topic: log_offset}
        self.config.save_deleted_topics(self._deleted)

    def close(self) -> None:
        """Write everything to the disk, and mark the directory as closed cleanly. If the write fails, or a saver gave
        None, it is not marked: the next start reads the log, as after a kill."""
        try:
            self.checkpoint()()
            if not self._starts_again:
                self._abort.clear()
        except OSError as error:
            log.error("%s: not closed cleanly, the next start reads the log: %s", self._directory, error)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close the files as they are, as the end of the process does."""
        for queue in self._queues.values():
            queue.release()
        self.log.close()
        self._lock.release()

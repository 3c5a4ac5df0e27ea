"""The store of one broker: messages in, messages out, by topic, queue and offset.

Everything runs on the broker's one thread, except :meth:`Store.sync`, which waits for the disk and may run elsewhere.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from enum import Enum
from functools import lru_cache, partial
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import msgspec

from evenq.broker.store.checkpoint import AbortFile, Checkpoint
from evenq.broker.store.commitlog import FILE_SIZE, CommitLog
from evenq.broker.store.config import ConfigFiles
from evenq.broker.store.consumequeue import FILE_UNITS, ConsumeQueue, pack_units
from evenq.broker.store.files import DirectoryLock
from evenq.broker.store.levels import DEFAULT_LEVELS, SCHEDULE_TOPIC, DelayLevels
from evenq.broker.store.readahead import ReadAhead
from evenq.broker.store.recovery import first_time, recover
from evenq.broker.store.retention import Retention, first_kept
from evenq.broker.store.scan import BLANK, read_entry, store_time
from evenq.broker.store.selection import select
from evenq.errors import ArgumentError
from evenq.protocol.evenbatch import batch_records
from evenq.protocol.filters import tag_code
from evenq.protocol.names import PATH_LIMIT, topic_error
from evenq.protocol.properties import find_property
from evenq.protocol.recordform import BatchRecords, RecordForm
from evenq.protocol.records import MIN_RECORD, decode_messages
from evenq.protocol.view import MessageView

__all__ = ["Incoming", "Read", "ReadStatus", "Store", "Stored", "StoredBatch"]

log = logging.getLogger(__name__)

# What saves something as it is at the time of the call.
Saver = Callable[[], Callable[[], None]]

# A filter that lets nothing through may look at so many messages of one read.
_MAX_SCAN = 16_000


_tag_code = lru_cache(4096)(tag_code)


@lru_cache(4096)
def _wire_tag_code(tags: bytes | None) -> int:
    return tag_code(tags.decode(errors="replace") if tags else None)


def _tag_codes(batch: bytes, made: BatchRecords) -> Sequence[int] | None:
    """The hash of each message's tag; None where none has one."""
    if b"TAGS\x01" not in batch:
        return None
    return [_wire_tag_code(find_property(properties[2:], b"TAGS")) for properties in made.tails()]


class Incoming(NamedTuple):
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


class Stored(NamedTuple):
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
    ) -> None:
        self._directory = directory
        self._store_host = store_host
        self._clock = clock
        self._queue_file_units = queue_file_units
        self.levels = levels
        self.retention = retention or Retention()
        self._checkpoint_path = directory / "checkpoint"
        self._abort = AbortFile(directory / "abort")
        self._lock = DirectoryLock(directory)
        self._queues: dict[tuple[str, int], ConsumeQueue] = {}
        # queues with units that are only in memory
        self._dirty: set[ConsumeQueue] = set()
        # queues that got messages since the log was last written out
        self._arrived: dict[tuple[str, int], None] = {}
        self.config = ConfigFiles(directory / "config")
        self.log = CommitLog(directory / "commitlog", log_file_size)
        self._ahead = ReadAhead(self.log.gather)
        self._checkpoint = Checkpoint.load(self._checkpoint_path)
        self._last_time = 0
        # what else is saved with each checkpoint
        self._savers: list[Saver] = []
        # records of which others were made shortly before a kill: nobody need do it again
        self.sources: frozenset[int] = frozenset()
        # whether the last run ended in good order
        self.was_closed = True
        self._open()

    def _open(self) -> None:
        for directory in sorted((self._directory / "consumequeue").glob("*/*")):
            if directory.name.isdecimal() and not topic_error(directory.parent.name, PATH_LIMIT):
                self.queue(directory.parent.name, int(directory.name))
        clean = self.was_closed = not self._abort.found
        queues = list(self._queues.values())
        found = recover(self.log, queues, self.queue, self._checkpoint, clean=clean, levels=self.levels)
        if not clean:
            log.info("%s: read %d bytes of the log after an unclean end", self._directory, found.scanned)
        self._last_time = found.last_time
        self.sources = found.sources
        self._dirty.update(self._queues.values())
        self._abort.raise_()

    def queue(self, topic: str, queue_id: int) -> ConsumeQueue:
        """The consume queue, made where it is missing."""
        found = self._queues.get((topic, queue_id))
        if found is None:
            if (error := topic_error(topic, PATH_LIMIT)) or not 0 <= queue_id < 1 << 31:
                raise ArgumentError("queue", (topic, queue_id), error or "queues have numbers from 0 to 2147483647")
            directory = self._directory / "consumequeue" / topic / str(queue_id)
            found = ConsumeQueue(directory, topic, queue_id, self._queue_file_units)
            self._queues[topic, queue_id] = found
        return found

    def queues(self) -> Iterator[ConsumeQueue]:
        return iter(list(self._queues.values()))

    # -- writing

    def append(self, message: Incoming) -> Stored:
        """Store one message. It survives this process after the next :meth:`settle`, the machine after a sync."""
        queue = self.queue(message.topic, message.queue_id)
        now = int(self._clock() * 1000)
        form = self._form(message, now)
        properties = message.properties.encode()
        size = form.overhead + len(message.body) + len(properties)
        self._make_room(size)
        stored = Stored(queue.max, self.log.end)
        record = form.record(message.body, properties, *stored, flag=message.flag)
        delayed = message.topic == SCHEDULE_TOPIC
        code = self.levels.due(message.queue_id + 1, now) if delayed else _tag_code(message.tags)
        queue.append(stored.log_offset, size, code)
        self._take(record, (size,), queue, now)
        return stored

    def append_batch(self, batch: Incoming) -> StoredBatch:
        """Store the messages of a batch, which is the body of ``batch``, directly one behind the other."""
        queue = self.queue(batch.topic, batch.queue_id)
        now = int(self._clock() * 1000)
        form = self._form(batch, now)
        if not self.log.fits(form.most(batch.body)):
            self._make_room(sum(form.batch(batch.body, 0, 0).sizes))
        made = batch_records(form, batch.body, queue.max, self.log.end)
        *offsets, _ = accumulate(made.sizes, initial=self.log.end)
        stored = StoredBatch(queue.max, offsets)
        queue.extend(pack_units(offsets, made.sizes, _tag_codes(batch.body, made)))
        self._take(made.records, made.sizes, queue, now)
        return stored

    def _form(self, message: Incoming, now: int) -> RecordForm:
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
            self.log.roll()

    def _take(self, records: bytes | bytearray, sizes: Iterable[int], queue: ConsumeQueue, now: int) -> None:
        self.log.append(records, sizes)
        self._last_time = now
        self._dirty.add(queue)
        self._arrived[queue.topic, queue.queue_id] = None

    def settle(self) -> Collection[tuple[str, int]]:
        """Hand everything appended to the system; the queues that got messages since the last time.

        Where the system does not take it (the disk is full), all of it is forgotten again.
        """
        arrived, self._arrived = self._arrived, {}
        try:
            self.log.write_out()
        except OSError:
            end = self.log.take_back()
            for key in arrived:
                self._queues[key].cut(end)
                self._ahead.forget(self._queues[key])
            raise
        return arrived

    def sync_log(self) -> int:
        """Return when the log is on the disk up to the offset given. May run in another thread."""
        return self.log.sync()

    def save_with_checkpoints(self, saver: Saver) -> None:
        """Let ``saver`` tell at each checkpoint how to save what is true then. It is saved after the messages that
        it speaks of are on the disk, and before a start after a kill would no longer look at them."""
        self._savers.append(saver)

    def checkpoint(self) -> Callable[[], None]:
        """Hand the consume queues to the system too; the function that waits for the disk and then notes that all
        this need not be looked at again after a kill. It may run in another thread, and must have ended before the
        next checkpoint. What need not be kept any longer is removed."""
        self.log.write_out()
        self._expire()
        dirty, self._dirty = self._dirty, set()
        for queue in dirty:
            queue.write_out()
        # Java keeps an index after a kill only up to its time: it makes it again, as we do
        reached = Checkpoint(self._last_time, self._last_time, index_time=0, mark=self.log.end)
        saves = [saver() for saver in self._savers]

        def wait() -> None:
            self.log.sync()
            for queue in dirty:
                queue.sync()
            for save in saves:
                save()
            if reached != self._checkpoint:
                reached.save(self._checkpoint_path)
                self._checkpoint = reached

        return wait

    def _expire(self) -> None:
        start, starts = self.log.start, self.log.file_starts
        now = int(self._clock() * 1000)
        self.log.drop_before(first_kept(starts, self.log.end, partial(first_time, self.log), now, self.retention))
        if self.log.start > start:
            log.info("%s: the log begins at %d now, no longer at %d", self._directory, self.log.start, start)
            for queue in self._queues.values():
                queue.trim(self.log.start)

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
            return Read(ReadStatus.FOUND, offset + found, queue.min, queue.max, body, found)
        chosen = select(queue.units(offset, max(count, _MAX_SCAN)), count, max_bytes, codes)
        reached = offset + chosen.seen
        if not chosen.found:
            return Read(ReadStatus.NO_MATCH, reached, queue.min, queue.max)
        body = self.log.gather(*chosen.places)
        return Read(ReadStatus.FOUND, reached, queue.min, queue.max, body, chosen.found)

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
        return store_time(self.log.read(position, position + size))

    def offset_at(self, topic: str, queue_id: int, timestamp: int, *, upper: bool = False) -> int:
        """The first offset stored at ``timestamp`` or later; with ``upper`` the last one stored at it or earlier."""
        low, high = self.bounds(topic, queue_id)
        search = bisect_right if upper else bisect_left
        found = search(range(high), timestamp, lo=low, key=lambda offset: self.time_of(topic, queue_id, offset) or 0)
        return max(low, found - 1) if upper else found

    def is_recent(self, topic: str, queue_id: int, offset: int, within: int) -> bool:
        """Whether the message is among the last ``within`` bytes of the log."""
        low, high = self.bounds(topic, queue_id)
        if not low <= offset < high:
            return False
        return self.log.end - self.queue(topic, queue_id).unit(offset)[0] <= within

    def record_at(self, log_offset: int) -> bytes | None:
        """The record at a place in the log; None where none begins."""
        if not self.log.start <= log_offset < self.log.end:
            return None
        self.log.write_out()
        data, base = self.log.file(log_offset)
        entry = read_entry(data, log_offset - base, log_offset)
        return None if entry is None or entry is BLANK else self.log.read(log_offset, log_offset + entry.size)

    def message_at(self, log_offset: int) -> MessageView | None:
        """The message at a place in the log, its body as it is stored; None where none begins."""
        record = self.record_at(log_offset)
        return None if record is None else decode_messages(record, as_stored=True)[0]

    # -- the rest

    def delete_topic(self, topic: str) -> None:
        """Forget the queues of a topic; its messages stay in the log until that is cleaned."""
        for key in [key for key in self._queues if key[0] == topic]:
            queue = self._queues.pop(key)
            self._dirty.discard(queue)
            self._ahead.forget(queue)
            queue.delete()

    def close(self) -> None:
        """Write everything to the disk and leave the directory as one that was closed cleanly."""
        self.checkpoint()()
        for queue in self._queues.values():
            queue.close()
        self.log.close()
        self._abort.lower()
        self._lock.release()

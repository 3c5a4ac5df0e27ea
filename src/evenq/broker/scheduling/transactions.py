"""Half messages: stored where nobody consumes them until their producer says what became of its transaction.

RocketMQ keeps two queues for it. Half messages go to the first; that one is committed or rolled back is noted in the
second, by its offset in the first. A producer that does not speak up is asked: the half message is then stored anew at
the end of its queue, with the number of times it was asked for. What is before the offsets of the group
``CID_RMQ_SYS_TRANS`` in both queues is over. A half message that nobody speaks up for goes to a third queue; until its
transaction ends, it can still be committed from there.

Only what a broker wrote is believed: notes of ended transactions and the property that names a half message's first
offset. A half message is open or given up; any other that an end names was ended before.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from evenq.broker.admission import IMMUNITY, INT32, INT64, BrokerProperty, wire_int
from evenq.broker.scheduling.parked import ParkedMessages, copy_for, destination
from evenq.broker.server import Refusal
from evenq.broker.state.offsets import GroupOffsets
from evenq.broker.state.topics import Topics
from evenq.broker.store.origins import HALF_TOPIC
from evenq.broker.store.store import NewMessage, Store, StoredMessage
from evenq.model import Property, TransactionState
from evenq.protocol import headers
from evenq.protocol.codes import RequestCode, ResponseCode
from evenq.protocol.command import Command
from evenq.protocol.flags import SysFlag
from evenq.protocol.properties import encode_properties
from evenq.protocol.records import encode_record
from evenq.protocol.view import MessageView
from evenq.supervision import FailureLog

__all__ = ["HALF_TOPIC", "TransactionSettings", "Transactions", "check_request"]

log = logging.getLogger(__name__)

OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
GIVEN_UP_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
_GROUP = "CID_RMQ_SYS_TRANS"

_REAL = frozenset({Property.REAL_TOPIC, Property.REAL_QUEUE_ID})

_ENDED_TAG = "d"
_TRANSACTION = int(SysFlag.TRANSACTION)
_COMMIT = int(SysFlag.COMMIT)

# The Java broker keeps its log for so long: a half message that is older would be lost any moment.
_OLDEST = 72 * 3_600_000


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """When producers are asked: not before ``timeout`` seconds, then every ``check_every``, at most ``check_max``
    times."""

    timeout: float = 6.0
    check_every: float = 30.0
    check_max: int = 15


@dataclass(slots=True, eq=False)
class _Half:
    """A half message that is not ended. ``offsets`` are those in the queue that it was ever stored at; the last is the
    one at ``log_offset``."""

    offsets: list[int]
    log_offset: int
    born: int
    immunity: int
    checks: int


class Transactions:
    """The half messages of a broker. ``ask`` lets a producer know that it is asked about one."""

    def __init__(
        self,
        store: Store,
        parked: ParkedMessages,
        topics: Topics,
        offsets: GroupOffsets,
        clock: Callable[[], float],
        commit: Callable[[], None],
        ask: Callable[[MessageView], None],
        settings: TransactionSettings,
        monotonic: Callable[[], float] | None = None,
    ) -> None:
        self._store = store
        self._parked = parked
        self._topics = topics
        self._offsets = offsets
        self._clock = clock
        self._monotonic = monotonic or clock
        self._commit = commit
        self._ask = ask
        self._settings = settings
        self._failures = FailureLog("asking about a half message")
        self._next_check = self._monotonic() + settings.check_every
        # those that a running check has not come to
        self._to_check: deque[_Half] = deque()
        self.load()

    def load(self) -> None:
        """Find out from the store which half messages are not ended."""
        self._to_check.clear()
        # by every offset that they have or had
        self._open: dict[int, _Half] = {}
        # the same of those that were given up and can still be ended
        self._given_up: dict[int, _Half] = {}
        # half messages that are ended, with the offset of the note that says so, as long as they are not all over
        self._ended: dict[int, int] = {}
        self._over = self._start(HALF_TOPIC), self._start(OP_TOPIC)
        given_up = list(self._read_given_up())
        # what was given up long ago may have been ended since
        for note in self._read(OP_TOPIC, self._store.bounds(OP_TOPIC, 0)[0] if given_up else self._over[1]):
            for text in note.body.decode(errors="replace").split(","):
                offset = wire_int(text, 0, INT64[1])
                if offset is not None:
                    self._ended[offset] = note.queue_offset
        lapsed = {half.offsets[-1] for half in given_up}
        for half in given_up:
            if half.offsets[-1] not in self._ended:
                self._given_up |= dict.fromkeys(half.offsets, half)
        self._ended = {offset: note for offset, note in self._ended.items() if note >= self._over[1]}
        for message in self._read(HALF_TOPIC, self._over[0]):
            offset = message.queue_offset
            is_ended = offset in self._ended or message.commit_log_offset in self._store.delivered_origins
            if not is_ended and offset not in lapsed:
                self._add(self._half(message))

    def _start(self, topic: str) -> int:
        low, high = self._store.bounds(topic, 0)
        return min(max(self._offsets.get(_GROUP, topic, 0) or 0, low), high)

    def _read(self, topic: str, offset: int) -> Iterator[MessageView]:
        for at in range(offset, self._store.bounds(topic, 0)[1]):
            message = self._store.message_at(self._store.queue(topic, 0).unit(at)[0])
            if message is not None:
                yield message

    def _add(self, half: _Half) -> None:
        self._open |= dict.fromkeys(half.offsets, half)

    def _half(self, message: MessageView) -> _Half:
        """A half message that was read from its queue."""
        properties = message.properties
        first = self._first_offset(message)
        return _Half(
            [message.queue_offset] if first is None else [first, message.queue_offset],
            message.commit_log_offset,
            message.born_timestamp,
            self._immunity_ms(properties),
            wire_int(properties.get(BrokerProperty.CHECKS), 0, INT32[1]) or 0,
        )

    def _immunity_ms(self, properties: Mapping[str, str]) -> int:
        seconds = _immunity(properties)
        return int(self._settings.timeout * 1000) if seconds is None else seconds * 1000

    def _first_offset(self, message: MessageView) -> int | None:
        """The offset at which a half message was first stored, if a broker stored it anew; None for any other.

        A record that says of which other it was made is this broker's. The Java broker's do not, so there the message
        at the first offset must be the same.
        """
        first = wire_int(message.properties.get(BrokerProperty.FIRST_OFFSET), 0, message.queue_offset - 1)
        if first is None or message.prepared_transaction_offset < 0:
            return first
        low, high = self._store.bounds(HALF_TOPIC, 0)
        if not low <= first < high:
            return None
        original = self._store.message_at(self._store.queue(HALF_TOPIC, 0).unit(first)[0])
        return first if original is not None and _is_same(original, message) else None

    def _read_given_up(self) -> Iterator[_Half]:
        """The half messages that this broker gave up and that are still kept."""
        for message in self._read(GIVEN_UP_TOPIC, self._store.bounds(GIVEN_UP_TOPIC, 0)[0]):
            if message.prepared_transaction_offset < 0:
                half = self._store.message_at(~message.prepared_transaction_offset)
                if half is not None and half.topic == HALF_TOPIC:
                    yield self._half(half)

    # -- producers speak

    def prepare(self, message: NewMessage, properties: Mapping[str, str]) -> StoredMessage:
        """Store a half message: for its real queue when it is committed."""
        wire = {**properties, BrokerProperty.TRANSACTION_ID: properties.get(Property.UNIQUE_KEY, "")}
        # whether it is delayed is asked when it is committed
        plain = message._replace(sys_flag=message.sys_flag & ~_TRANSACTION)
        stored = self._parked.park(plain, wire, HALF_TOPIC, 0)
        immunity = self._immunity_ms(properties)
        half = _Half([stored.queue_offset], stored.log_offset, message.born_timestamp, immunity, 0)
        self._add(half)
        self._store.on_discard(lambda: self._forget(half))
        return stored

    def end(self, header: headers.EndTransaction) -> None:
        """Commit a half message or roll it back; a second time has no effect."""
        message = self._find(header)
        half = self._known(message.queue_offset) or self._known(self._first_offset(message))
        if half is None:
            log.info("half message %s was ended before", header.msg_id)
            return
        if half.log_offset != message.commit_log_offset:
            last = self._store.message_at(half.log_offset)
            if last is not None and _is_same(last, message):
                message = last
        if header.commit_or_rollback == TransactionState.COMMIT:
            self._publish(message)
        note = self._note_ended(message)
        offsets = {*half.offsets, message.queue_offset}
        table = self._open if half.offsets[-1] in self._open else self._given_up
        self._ended |= dict.fromkeys(offsets, note)
        self._forget(half)

        def undo() -> None:
            table.update(dict.fromkeys(half.offsets, half))
            for offset in offsets:
                del self._ended[offset]

        self._store.on_discard(undo)

    def _known(self, offset: int | None) -> _Half | None:
        """The half message that is or was at an offset, if it can still be ended."""
        return None if offset is None else self._open.get(offset) or self._given_up.get(offset)

    def _find(self, header: headers.EndTransaction) -> MessageView:
        """The half message that a producer speaks of; an error where that cannot be."""
        message = self._store.message_at(header.commit_log_offset)
        if message is None or message.topic != HALF_TOPIC:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed")
        if message.properties.get(Property.PRODUCER_GROUP) != header.producer_group:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "The producer group wrong")
        if message.queue_offset != header.tran_state_table_offset:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong")
        immunity = _immunity(message.properties)
        if immunity is not None and not header.from_transaction_check:
            limit = max(immunity, self._settings.timeout)
            if self._clock() - message.born_timestamp / 1000 > limit:
                raise Refusal(ResponseCode.ILLEGAL_OPERATION, f"it is over {limit} s old: wait until you are asked")
        return message

    def _publish(self, half: MessageView) -> None:
        real = destination(half)
        if real is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "the half message does not say which queue it is for")
        properties = {name: value for name, value in half.properties.items() if name not in _REAL}
        final = copy_for(half, *real, properties)._replace(
            sys_flag=half.sys_flag & ~_TRANSACTION | _COMMIT,
            prepared_transaction_offset=half.commit_log_offset,
        )
        self._parked.store_or_park(final, properties)

    def _note_ended(self, half: MessageView) -> int:
        """Store a note that a half message is over; the offset of the note."""
        properties = encode_properties({Property.TAGS: _ENDED_TAG})
        body = b"%d," % half.queue_offset
        now = int(self._clock() * 1000)
        note = self._store.append(NewMessage(OP_TOPIC, 0, body, properties, _ENDED_TAG, now, half.store_host))
        return note.queue_offset

    def _forget(self, half: _Half) -> None:
        for offset in half.offsets:
            for table in (self._open, self._given_up):
                if table.get(offset) is half:
                    del table[offset]

    # -- producers are asked

    def check(self, limit: int = 1000) -> bool:
        """Ask about what is not ended in time, at most ``limit`` messages; whether more may be left."""
        now = self._monotonic()
        if now >= self._next_check:
            self._next_check = now + self._settings.check_every
            self._to_check.extend({id(half): half for half in self._open.values()}.values())
            self._pass_over()
        batch = [self._to_check.popleft() for _ in range(min(limit, len(self._to_check)))]
        asked = [again for half in batch if self._is_due(half) and (again := self._try(half))]
        if batch:
            self._commit()
        for message in asked:
            self._ask(message)
        return bool(self._to_check)

    def _is_due(self, half: _Half) -> bool:
        age = int(self._clock() * 1000) - half.born
        return self._open.get(half.offsets[-1]) is half and not 0 <= age <= half.immunity

    def _try(self, half: _Half) -> MessageView | None:
        """Ask about a half message. One that cannot be asked about must not keep producers from being asked."""
        savepoint = len(self._store.staged)
        try:
            return self._again(half)
        except OSError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this message's own
            self._store.rollback(savepoint)
            self._failures.record(error, f"the half message at {half.log_offset} of the log waits for the next check")
            return None

    def _again(self, half: _Half) -> MessageView | None:
        """Store a half message that is asked about anew, and give that back; or give it up."""
        message = self._store.message_at(half.log_offset)
        if message is None:
            log.warning("half message %d cannot be read: it is given up", half.offsets[-1])
            self._forget(half)
            return None
        if half.checks >= self._settings.check_max or self._clock() * 1000 - half.born > _OLDEST:
            log.warning("half message %s: no producer says what became of it, it is given up", message.unique_key)
            self._topics.create_for_group(GIVEN_UP_TOPIC, 1)
            self._store.append(copy_for(message, GIVEN_UP_TOPIC, 0, message.properties))
            self._forget(half)
            self._given_up |= dict.fromkeys(half.offsets, half)

            def undo() -> None:
                self._forget(half)
                self._add(half)

            self._store.on_discard(undo)
            return None
        return self._store_anew(half, message)

    def _store_anew(self, half: _Half, message: MessageView) -> MessageView | None:
        notes = {BrokerProperty.CHECKS: str(half.checks + 1), BrokerProperty.FIRST_OFFSET: str(half.offsets[0])}
        properties = {**message.properties, **notes}
        stored = self._store.append(copy_for(message, HALF_TOPIC, 0, properties))
        self._ended[message.queue_offset] = self._note_ended(message)
        self._move(half, stored)

        def undo() -> None:
            del self._open[half.offsets.pop()], self._ended[message.queue_offset]
            half.checks, half.log_offset = half.checks - 1, message.commit_log_offset

        self._store.on_discard(undo)
        return self._store.message_at(stored.log_offset)

    def _move(self, half: _Half, stored: StoredMessage) -> None:
        """A half message was asked about, and stored anew for that."""
        half.checks += 1
        half.offsets.append(stored.queue_offset)
        half.log_offset = stored.log_offset
        self._open[stored.queue_offset] = half

    def _pass_over(self) -> None:
        """Let the offsets of both queues go on. What is over now is noted the next time only: it is on the disk then,
        whenever the machine stops."""
        for topic, offset in zip((HALF_TOPIC, OP_TOPIC), self._over, strict=True):
            if offset != self._offsets.get(_GROUP, topic, 0):
                self._offsets.commit(_GROUP, topic, 0, offset)
        kept = self._store.log.start
        self._given_up = {offset: half for offset, half in self._given_up.items() if half.log_offset >= kept}
        _, halves = self._store.bounds(HALF_TOPIC, 0)
        _, notes = self._store.bounds(OP_TOPIC, 0)
        over = min((half.offsets[-1] for half in self._open.values()), default=halves)
        self._ended = {offset: note for offset, note in self._ended.items() if offset >= over}
        self._over = over, min(self._ended.values(), default=notes)


def _immunity(properties: Mapping[str, str]) -> int | None:
    """For how many seconds a producer is not asked about its half message, if the message says so."""
    return wire_int(properties.get(IMMUNITY), 0, 1 << 31)


def _is_same(half: MessageView, other: MessageView) -> bool:
    """Whether two half messages are one, which was stored anew."""
    names = (Property.UNIQUE_KEY, Property.PRODUCER_GROUP, Property.REAL_TOPIC)
    return half.topic == HALF_TOPIC and all(half.properties.get(n) == other.properties.get(n) for n in names)


def check_request(half: MessageView, broker: str) -> Command:
    """What a producer is asked about a half message: it gets the message as it sent it, and its place in the queue."""
    topic, queue_id = destination(half) or (half.topic, half.queue_id)
    header = headers.CheckTransaction(
        topic=half.topic,
        tran_state_table_offset=half.queue_offset,
        commit_log_offset=half.commit_log_offset,
        msg_id=half.unique_key,
        transaction_id=half.unique_key,
        offset_msg_id=half.msg_id,
    )
    body = encode_record(
        topic=topic,
        body=half.body,
        queue_id=queue_id,
        queue_offset=half.queue_offset,
        commit_log_offset=half.commit_log_offset,
        born_timestamp=half.born_timestamp,
        born_host=half.born_host,
        store_timestamp=half.store_timestamp,
        store_host=half.store_host,
        properties=encode_properties(half.properties),
        sys_flag=half.sys_flag,
        flag=half.flag,
        reconsume_times=half.reconsume_times,
    )
    return Command(RequestCode.CHECK_TRANSACTION_STATE, ext={**header.to_ext(), "bname": broker}, body=body)

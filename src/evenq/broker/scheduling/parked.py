"""Parked messages: a message goes to its own queue, or to one where it waits until it is due.

A delay level (``DELAY``) puts it into the queue of that level, a time (``TIMER_…``) into the queue of the timers; it
takes its real topic and queue with it as properties. :mod:`evenq.broker.scheduling.delays` and
:mod:`evenq.broker.scheduling.timers` fetch it from there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from evenq.broker.admission import INT32, TIMERS, BrokerProperty, number, wire_int
from evenq.broker.server import Refusal
from evenq.broker.store.levels import SCHEDULE_TOPIC
from evenq.broker.store.origins import TIMER_TOPIC, origin_field
from evenq.broker.store.store import NewMessage, Store, StoredMessage
from evenq.model import Property
from evenq.protocol.codes import ResponseCode
from evenq.protocol.names import PATH_LIMIT, topic_error
from evenq.protocol.properties import encode_properties
from evenq.protocol.view import MessageView
from evenq.supervision import FailureLog

__all__ = [
    "LONGEST_TIMER",
    "TIMER_PRECISION",
    "TIMER_TOPIC",
    "ParkedMessages",
    "attempt",
    "copy_for",
    "destination",
]

TIMER_PRECISION = 1000
LONGEST_TIMER = 3 * 86_400_000

# What all properties may have in a record, less what is added on the way to the real queue.
_LONGEST_PROPERTIES = 0x7FFF - 128


class ParkedMessages:
    """Puts messages into a store, now or for later."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock

    def store_or_park(self, message: NewMessage, properties: Mapping[str, str]) -> StoredMessage:
        """Store a message with these ``properties``, which take the place of its own."""
        level = number(properties, Property.DELAY) if Property.DELAY in properties else 0
        if level > 0:
            return self._put_at_level(message, properties, min(level, self._store.levels.highest))
        due = self._due(properties)
        if due is not None:
            return self._put_timer(message, properties, due)
        return self._store.append(message._replace(properties=encode_properties(properties)))

    def _put_at_level(self, message: NewMessage, properties: Mapping[str, str], level: int) -> StoredMessage:
        kept = {name: value for name, value in properties.items() if name not in TIMERS}
        return self.park(message, kept | {Property.DELAY: str(level)}, SCHEDULE_TOPIC, level - 1)

    def _put_timer(self, message: NewMessage, properties: Mapping[str, str], due: int) -> StoredMessage:
        # Whole seconds, as the Java broker has it: that one is over when the message is due.
        out = (due - 1) // TIMER_PRECISION * TIMER_PRECISION
        return self.park(message, {**properties, BrokerProperty.TIMER_OUT: str(out)}, TIMER_TOPIC, 0)

    def _due(self, properties: Mapping[str, str]) -> int | None:
        """When the message is due by its timer; None for now."""
        asked = next((name for name in TIMERS if name in properties), None)
        # what a timer has delivered keeps its properties
        if asked is None or BrokerProperty.TIMER_OUT in properties:
            return None
        now = int(self._clock() * 1000)
        due = number(properties, asked) * TIMERS[asked]
        if asked != Property.TIMER_DELIVER_MS:
            due += now
        if due - now > LONGEST_TIMER:
            raise Refusal(
                ResponseCode.MESSAGE_ILLEGAL,
                f"timer message illegal, the delay time should not be bigger than the max delay {LONGEST_TIMER}ms",
            )
        if due <= now and BrokerProperty.CANCELS in properties:
            raise Refusal(
                ResponseCode.MESSAGE_ILLEGAL, "timer message illegal, what it takes back may be delivered already"
            )
        return due if due > now else None

    def park(self, message: NewMessage, properties: Mapping[str, str], topic: str, queue_id: int) -> StoredMessage:
        """Store a message in another queue than its own, which it takes with it as properties."""
        real = {Property.REAL_TOPIC: message.topic, Property.REAL_QUEUE_ID: str(message.queue_id)}
        text = encode_properties({**properties, **real})
        if len(text.encode()) > _LONGEST_PROPERTIES:
            raise Refusal(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the properties of a message that waits may have {_LONGEST_PROPERTIES} bytes with its real topic",
            )
        return self._store.append(message._replace(topic=topic, queue_id=queue_id, properties=text))


def attempt(store: Store, failures: FailureLog, kind: str, log_offset: int, deliver: Callable[[], None]) -> None:
    """Deliver the message at a place in the log. One that cannot be delivered is skipped, and recorded as of this
    ``kind``: it must not keep the others from it, nor let them come twice."""
    savepoint = len(store.staged)
    try:
        deliver()
    except OSError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, it is this message's own
        store.rollback(savepoint)
        failures.record(error, f"the {kind} message at {log_offset} of the log is skipped")


def copy_for(message: MessageView, topic: str, queue_id: int, properties: Mapping[str, str]) -> NewMessage:
    """A message that was read ``as_stored``, to be stored once more: elsewhere, with other properties. Its record
    names the one it was made of."""
    return NewMessage(
        topic,
        queue_id,
        message.body,
        encode_properties(properties),
        properties.get(Property.TAGS),
        message.born_timestamp,
        message.born_host,
        message.flag,
        message.sys_flag,
        message.reconsume_times,
        origin_field(message.commit_log_offset),
    )


def destination(message: MessageView) -> tuple[str, int] | None:
    """Where a waiting message belongs; None where it does not say so, or names what cannot be a queue."""
    topic = message.properties.get(Property.REAL_TOPIC, "")
    queue_id = wire_int(message.properties.get(Property.REAL_QUEUE_ID), 0, INT32[1])
    return None if queue_id is None or topic_error(topic, PATH_LIMIT) else (topic, queue_id)

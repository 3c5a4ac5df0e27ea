"""Which record another record was made of.

A delayed message is stored twice: where it waits, and in its own queue when it is due. A broker that is killed in
between must know on its next start whether that has happened. So the second record names the first, in the field
that names the half message of a committed one: there as RocketMQ has it, otherwise inverted, which no one else reads.

What a record says of itself may be damaged, or come from elsewhere. So it counts only if the record that it names is
there, waited for this, and was meant for the same topic.
"""

from __future__ import annotations

from evenq.broker.store.levels import SCHEDULE_TOPIC
from evenq.protocol.flags import SysFlag
from evenq.protocol.names import may_send
from evenq.protocol.view import MessageView

__all__ = ["HALF_TOPIC", "TIMER_TOPIC", "is_origin", "origin_field", "origin_of"]

# where half messages and timed ones wait
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
TIMER_TOPIC = "rmq_sys_wheel_timer"

_WAITING = frozenset({SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC})

_TRANSACTION = int(SysFlag.TRANSACTION)
_COMMIT = int(SysFlag.COMMIT)


def origin_field(log_offset: int) -> int:
    """What stands in the record of a message that was made of the record at ``log_offset``."""
    return ~log_offset


def origin_of(prepared_offset: int, sys_flag: int) -> int | None:
    """The log offset of the record that a record was made of, if it was made of one.

    >>> origin_of(origin_field(4096), 0), origin_of(4096, SysFlag.COMMIT), origin_of(0, 0)
    (4096, 4096, None)
    """
    if prepared_offset < 0:
        return ~prepared_offset
    return prepared_offset if sys_flag & _TRANSACTION == _COMMIT else None


def is_origin(message: MessageView, topic: str) -> bool:
    """Whether a message waited, and a record in ``topic`` may have been made of it: its real topic, or the next one in
    which it waits."""
    if message.topic not in _WAITING:
        return False
    return not may_send(topic) or message.properties.get("REAL_TOPIC") == topic

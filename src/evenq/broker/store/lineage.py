"""Which record another record was made of.

A delayed message is stored twice: where it waits, and in its own queue when it is due. A broker that is killed in
between must know on its next start whether that has happened. So the second record names the first, in the field
that names the half message of a committed one: there as RocketMQ has it, otherwise inverted, which no one else reads.
"""

from __future__ import annotations

from evenq.protocol.flags import SysFlag

__all__ = ["made_of", "source_of"]

_TRANSACTION = int(SysFlag.TRANSACTION)
_COMMIT = int(SysFlag.COMMIT)


def made_of(log_offset: int) -> int:
    """What stands in the record of a message that was made of the record at ``log_offset``."""
    return ~log_offset


def source_of(prepared_offset: int, sys_flag: int) -> int | None:
    """The log offset of the record that a record was made of, if it was made of one.

    >>> source_of(made_of(4096), 0), source_of(4096, SysFlag.COMMIT), source_of(0, 0)
    (4096, 4096, None)
    """
    if prepared_offset < 0:
        return ~prepared_offset
    return prepared_offset if sys_flag & _TRANSACTION == _COMMIT else None

"""The bits that travel as plain numbers: of messages, of pulls, of permissions."""

from __future__ import annotations

from enum import IntFlag

__all__ = ["Perm", "PullFlag", "SysFlag"]


class SysFlag(IntFlag):
    """What a broker must know of a message without reading it (``sys_flag``)."""

    COMPRESSED = 1
    MULTI_TAGS = 2
    # Both transaction bits together mean rolled back: compare under TRANSACTION, never test one bit.
    PREPARED = 4
    COMMIT = 8
    ROLLBACK = 12
    TRANSACTION = 12
    BORN_HOST_V6 = 16
    STORE_HOST_V6 = 32
    NEED_UNWRAP = 64
    INNER_BATCH = 128
    # Three bits that say how the body is compressed; none of them means zlib, as in the days before them.
    LZ4 = 1 << 8
    ZSTD = 2 << 8
    ZLIB = 3 << 8
    COMPRESSION = 7 << 8


class PullFlag(IntFlag):
    """Which fields of a pull request count (``sys_flag`` there)."""

    COMMIT_OFFSET = 1
    SUSPEND = 2
    SUBSCRIPTION = 4
    CLASS_FILTER = 8
    LITE_PULL = 16


class Perm(IntFlag):
    """What may be done with the queues of a topic.

    >>> Perm.WRITE in Perm(6), Perm.WRITE in Perm(4)
    (True, False)
    """

    INHERIT = 1
    WRITE = 2
    READ = 4
    PRIORITY = 8

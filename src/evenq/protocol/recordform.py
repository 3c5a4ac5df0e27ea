"""Writing records: what messages that come together have in common is put together once.

See :mod:`evenq.protocol.records` for what a record is made of.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import NamedTuple
from zlib import crc32

from evenq.errors import ArgumentError
from evenq.protocol.batch import BODY_AT, read_head, split_batch
from evenq.protocol.flags import SysFlag
from evenq.protocol.ids import pack_host

__all__ = ["MAGIC_V1", "MAGIC_V2", "BatchRecords", "RecordForm", "body_crc"]

MAGIC_V1 = 0xDAA320A7
MAGIC_V2 = 0xDAA320AB

_BORN_V6 = int(SysFlag.BORN_HOST_V6)
_STORE_V6 = int(SysFlag.STORE_HOST_V6)
_HOSTS_V6 = _BORN_V6 | _STORE_V6

_SHORT = struct.Struct(">h")
_TOPIC_V1 = struct.Struct(">b")
# By the hosts that are IPv6: the fields that are shared, from the sys flag up to the body size, and all fixed fields.
_FORMS = {
    hosts: (
        shared := struct.Struct(f">iq{20 if hosts & _BORN_V6 else 8}sq{20 if hosts & _STORE_V6 else 8}siq"),
        struct.Struct(f">iIiiiqq{shared.size}si"),
    )
    for hosts in (0, _BORN_V6, _STORE_V6, _HOSTS_V6)
}

# what a message of a batch takes beside its body and its properties
_BATCH_OVERHEAD = BODY_AT + _SHORT.size


def body_crc(body: bytes) -> int:
    """The checksum of a body as it is stored (compressed, if it is): Java drops the sign bit."""
    return crc32(body) & 0x7FFFFFFF


class BatchRecords(NamedTuple):
    """The records of a batch one behind the other, the size of each; for who asks, the properties of each behind their
    size, in wire form; and whether any properties hold zero bytes."""

    records: bytes | bytearray
    sizes: list[int]
    tails: Callable[[], list[bytes]]
    has_zeros: bool = False


class RecordForm:
    """What the records of messages have in common that came together: all but their bodies, properties and places.

    ``overhead`` is what a record takes beside its body and its properties, ``body_at`` where its body begins. The bits
    of ``sys_flag`` for IPv6 hosts are set here.
    """

    __slots__ = ("_magic", "_pack", "_queue_id", "_shared", "_topic", "body_at", "overhead")

    def __init__(
        self,
        *,
        topic: str,
        queue_id: int,
        born_timestamp: int,
        born_host: str,
        store_timestamp: int,
        store_host: str,
        sys_flag: int = 0,
        reconsume_times: int = 0,
        prepared_transaction_offset: int = 0,
    ) -> None:
        born, store = pack_host(born_host), pack_host(store_host)
        hosts = (_BORN_V6 if len(born) == 20 else 0) | (_STORE_V6 if len(store) == 20 else 0)
        shared, whole = _FORMS[hosts]
        self._magic, self._topic = _topic_part(topic)
        self._queue_id = queue_id
        self._shared = shared.pack(
            sys_flag & ~_HOSTS_V6 | hosts,
            born_timestamp,
            born,
            store_timestamp,
            store,
            reconsume_times,
            prepared_transaction_offset,
        )
        self._pack = whole.pack
        self.body_at = whole.size
        self.overhead = whole.size + len(self._topic) + _SHORT.size

    def record(
        self,
        body: bytes,
        properties: bytes,
        queue_offset: int,
        commit_log_offset: int,
        *,
        flag: int = 0,
        crc: int | None = None,
    ) -> bytes:
        """The record of one message. ``body`` is stored as it is, so compress it first and say so in the flags;
        ``crc`` is computed unless given."""
        if len(properties) > 0x7FFF:
            raise ArgumentError("properties", f"{len(properties)} bytes", "all together may have 32767 bytes")
        head = self._pack(
            self.overhead + len(body) + len(properties),
            self._magic,
            body_crc(body) if crc is None else crc,
            self._queue_id,
            flag,
            queue_offset,
            commit_log_offset,
            self._shared,
            len(body),
        )
        return b"".join((head, body, self._topic, _SHORT.pack(len(properties)), properties))

    def most(self, data: bytes) -> int:
        """How many bytes the records of a batch's messages have at most, whatever it holds."""
        return len(data) // _BATCH_OVERHEAD * self.overhead + len(data)

    def batch(self, data: bytes, queue_offset: int, commit_log_offset: int) -> BatchRecords:
        """The records of a batch's messages, one behind the other. All but the head of each is taken over as it is.

        What is not a batch is a ProtocolError that names the position.
        """
        pieces: list[bytes] = []
        sizes: list[int] = []
        more, topic, pack = self.overhead - _BATCH_OVERHEAD, self._topic, self._pack
        head, note = read_head, sizes.append
        magic, queue_id, shared = self._magic, self._queue_id, self._shared
        at, last = 0, len(data) - _BATCH_OVERHEAD
        with suppress(IndexError):
            while at <= last:
                size, flag, body_size = head(data, at)
                body_at = at + BODY_AT
                tail, end = body_at + body_size, at + size
                # the sizes of body, properties and message must fit together
                rest = data[tail] << 8 | data[tail + 1]
                if rest != end - tail - 2 or body_size < 0 or rest > 0x7FFF:
                    break
                body = data[body_at:tail]
                size += more
                crc = crc32(body) & 0x7FFFFFFF
                pieces += (
                    pack(size, magic, crc, queue_id, flag, queue_offset, commit_log_offset, shared, body_size),
                    body,
                    topic,
                    data[tail:end],
                )
                note(size)
                queue_offset += 1
                commit_log_offset += size
                at = end
        if at != len(data):
            # says what is wrong
            split_batch(data)
        tails = pieces[3::4]
        return BatchRecords(b"".join(pieces), sizes, lambda: tails, have_zeros(tails))


def have_zeros(tails: Sequence[bytes]) -> bool:
    r"""Whether zero bytes are among the properties of messages, each given with the two bytes of its size before it.

    >>> have_zeros([b"\0\1a", b"\0\0"]), have_zeros([b"\0\1a", b"\0\2b\0"])
    (False, True)
    """
    # Nearly always: sizes below 256 have one zero each, that of nothing has two, and there are no others.
    if len(max(tails, key=len, default=b"")) < 0x102:
        return b"".join(tails).count(0) != len(tails) + tails.count(b"\0\0")
    return any(0 in tail[2:] for tail in tails)


@lru_cache(4096)
def _topic_part(topic: str) -> tuple[int, bytes]:
    """The magic number of records of a topic, and its name with its size."""
    name = topic.encode()
    if not 0 < len(name) <= 0x7FFF:
        raise ArgumentError("topic", topic, "a topic has at least one character and at most 32767 bytes")
    magic, length = (MAGIC_V1, _TOPIC_V1) if len(name) <= 0x7F else (MAGIC_V2, _SHORT)
    return magic, length.pack(len(name)) + name

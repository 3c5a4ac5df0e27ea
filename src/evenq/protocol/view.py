"""A message as a broker stored it, for whoever reads it."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from datetime import datetime

import msgspec

from evenq.model import MessageQueue, Property, from_millis
from evenq.protocol.flags import SysFlag
from evenq.protocol.ids import host_text, message_id
from evenq.protocol.recordform import RecordForm

__all__ = ["COMMIT_LOG_OFFSET_AT", "HEAD_SIZE", "NOWHERE", "SYS_FLAG_AT", "MessageView", "make_view", "with_fields"]

_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")

# Where the fixed fields of a record are that look the same in all of them; see evenq.protocol.records.
_CRC_AT = 8
_FLAG_AT = 16
COMMIT_LOG_OFFSET_AT = 28
SYS_FLAG_AT = 36
_BORN_AT = 40
_BORN_HOST_AT = 48
# Further behind where the born host is IPv6; what is behind the store host is found from the end.
_STORE_HOST_AT = 64
_REST = 12
# All of them up to the size of the body, with two IPv4 hosts.
HEAD_SIZE = 84

_BORN_V6 = int(SysFlag.BORN_HOST_V6)
_V6_MORE = 12
NOWHERE = "0.0.0.0:0"


class MessageView(msgspec.Struct, frozen=True, gc=False):
    """A message as a broker stored it. ``body`` is decompressed; times are milliseconds since 1970 (UTC).

    Many of them are made every second. So what few look at stays as it came, in the fixed fields of the record, and is
    read when it is looked at; and as it cannot be part of a cycle of references, the garbage collector leaves it alone.
    """

    topic: str
    body: bytes
    queue_id: int
    queue_offset: int
    properties: Mapping[str, str]
    broker: str
    # the bytes that it takes in the broker's log
    store_size: int
    _head: bytes

    @property
    def queue(self) -> MessageQueue:
        return MessageQueue(self.topic, self.broker, self.queue_id)

    @property
    def tags(self) -> str | None:
        return self.properties.get(Property.TAGS)

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(self.properties.get(Property.KEYS, "").split())

    @property
    def unique_key(self) -> str | None:
        """The id that the producer gave; the same over retries and redeliveries."""
        return self.properties.get(Property.UNIQUE_KEY)

    @property
    def msg_id(self) -> str:
        """The broker's id: its address and the place in its log. A reply is in no log: it has its producer's."""
        offset = self.commit_log_offset
        if offset < 0:
            return self.unique_key or ""
        return message_id(self._head[self._store_host_at : -_REST], offset)

    @property
    def store_timestamp(self) -> int:
        return _long(self._head, self._store_host_at - 8)

    @property
    def stored_at(self) -> datetime:
        return from_millis(self.store_timestamp)

    @property
    def born_timestamp(self) -> int:
        return _long(self._head, _BORN_AT)

    @property
    def born_at(self) -> datetime:
        return from_millis(self.born_timestamp)

    @property
    def born_host(self) -> str:
        return host_text(self._head[_BORN_HOST_AT : self._store_host_at - 8])

    @property
    def store_host(self) -> str:
        return host_text(self._head[self._store_host_at : -_REST])

    @property
    def commit_log_offset(self) -> int:
        return _long(self._head, COMMIT_LOG_OFFSET_AT)

    @property
    def sys_flag(self) -> int:
        return _int(self._head, SYS_FLAG_AT)

    @property
    def flag(self) -> int:
        return _int(self._head, _FLAG_AT)

    @property
    def body_crc(self) -> int:
        return _int(self._head, _CRC_AT)

    @property
    def reconsume_times(self) -> int:
        """How often it was given to its group before."""
        return _int(self._head, len(self._head) - _REST)

    @property
    def prepared_transaction_offset(self) -> int:
        return _long(self._head, len(self._head) - 8)

    @property
    def _store_host_at(self) -> int:
        return _STORE_HOST_AT + (_V6_MORE if self._head[SYS_FLAG_AT + 3] & _BORN_V6 else 0)

    def tried_again(self) -> MessageView:
        """The same, given to its group once more."""
        head = with_fields(self._head, reconsume_times=self.reconsume_times + 1)
        return msgspec.structs.replace(self, _head=head)

    def __repr__(self) -> str:
        return (
            f"MessageView(topic={self.topic!r}, broker={self.broker!r}, queue_id={self.queue_id}, "
            f"queue_offset={self.queue_offset}, body={self.body!r}, properties={self.properties!r}, "
            f"store_timestamp={self.store_timestamp}, msg_id={self.msg_id!r})"
        )


def make_view(
    *,
    topic: str,
    body: bytes,
    queue_id: int = 0,
    queue_offset: int = 0,
    properties: Mapping[str, str],
    broker: str = "",
    store_timestamp: int = 0,
    born_timestamp: int = 0,
    born_host: str = NOWHERE,
    store_host: str = NOWHERE,
    commit_log_offset: int = 0,
    sys_flag: int = 0,
    flag: int = 0,
    body_crc: int = 0,
    reconsume_times: int = 0,
    prepared_transaction_offset: int = 0,
    store_size: int = 0,
) -> MessageView:
    """A message that did not come as a record. One that is in no log has -1 for ``commit_log_offset``.

    >>> message = make_view(topic="orders", body=b"1", properties={}, store_host="[::1]:10911", commit_log_offset=7)
    >>> message.store_host, message.msg_id
    ('[::1]:10911', '0000000000000000000000000000000100002A9F0000000000000007')
    """
    form = RecordForm(
        topic=topic,
        queue_id=queue_id,
        born_timestamp=born_timestamp,
        born_host=born_host,
        store_timestamp=store_timestamp,
        store_host=store_host,
        sys_flag=sys_flag,
        reconsume_times=reconsume_times,
        prepared_transaction_offset=prepared_transaction_offset,
    )
    record = form.record(b"", b"", queue_offset, commit_log_offset, flag=flag, crc=body_crc)
    head = record[: form.body_at - _INT.size]
    return MessageView(topic, body, queue_id, queue_offset, properties, broker, store_size, head)


def with_fields(
    head: bytes, *, flag: int | None = None, sys_flag: int | None = None, reconsume_times: int | None = None
) -> bytes:
    """The fixed fields of a record with some of them changed."""
    changed = bytearray(head)
    for at, value in ((_FLAG_AT, flag), (SYS_FLAG_AT, sys_flag), (len(head) - _REST, reconsume_times)):
        if value is not None:
            _INT.pack_into(changed, at, value)
    return bytes(changed)


def _int(head: bytes, at: int) -> int:
    (value,) = _INT.unpack_from(head, at)
    return int(value)


def _long(head: bytes, at: int) -> int:
    (value,) = _LONG.unpack_from(head, at)
    return int(value)

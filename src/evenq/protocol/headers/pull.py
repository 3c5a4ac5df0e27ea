"""Headers of consuming: pulls, offsets, members of a group."""

from __future__ import annotations

from typing import Literal

import msgspec

from evenq.protocol.headers.base import Header, Int32, Int64, QueueRequest

__all__ = [
    "EarliestRequest",
    "GroupRequest",
    "HeartbeatResponse",
    "MaxOffsetRequest",
    "MinOffsetRequest",
    "OffsetResponse",
    "PullRequest",
    "PullResponse",
    "QueryOffset",
    "SearchOffset",
    "TimestampResponse",
    "UnregisterClient",
    "UpdateOffset",
]


class PullRequest(QueueRequest):
    """Give me messages of a queue (11), from ``queue_offset`` on.

    ``sys_flag`` is made of :class:`evenq.protocol.flags.PullFlag`: it says which of the other fields count.
    """

    consumer_group: str
    queue_offset: Int64
    max_msg_nums: Int32
    sys_flag: Int32
    commit_offset: Int64
    suspend_timeout_millis: Int64
    subscription: str | None = None
    sub_version: Int64 = 0
    expression_type: str | None = None
    max_msg_bytes: Int32 | None = None
    request_source: Int32 | None = None
    # sic: the letters are swapped in the protocol
    proxy_forward_client_id: str | None = msgspec.field(default=None, name="proxyFrowardClientId")


class PullResponse(Header):
    """What came of a pull. ``next_begin_offset`` is where to go on, whatever the response code is."""

    suggest_which_broker_id: Int64 = 0
    next_begin_offset: Int64
    min_offset: Int64
    max_offset: Int64
    offset_delta: Int64 | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None
    forbidden_type: Int32 | None = None


class QueryOffset(QueueRequest):
    """How far is the group in this queue? (14) Answered by an OffsetResponse, or by QUERY_NOT_FOUND."""

    consumer_group: str
    set_zero_if_not_found: bool | None = None


class UpdateOffset(QueueRequest):
    """The group has consumed the queue up to ``commit_offset``, which is the next one to read (15)."""

    consumer_group: str
    commit_offset: Int64


class MaxOffsetRequest(QueueRequest):
    """The offset that the next message of the queue will get (30)."""

    committed: bool = True


class MinOffsetRequest(QueueRequest):
    """The first offset that the queue still holds (31)."""


class SearchOffset(QueueRequest):
    """The offset of the first message stored at ``timestamp`` or later (29); ``UPPER``: of the last one at it."""

    timestamp: Int64
    boundary_type: Literal["LOWER", "UPPER"] | None = None


class EarliestRequest(QueueRequest):
    """When was the first message that the queue still holds stored? (32)"""


class OffsetResponse(Header):
    """The answer to all four questions for an offset."""

    offset: Int64


class TimestampResponse(Header):
    """The answer to an EarliestRequest; -1 when the queue holds nothing."""

    timestamp: Int64


class GroupRequest(Header):
    """A request that only names a consumer group: its members (38), a change of them (40), its connections (203)."""

    consumer_group: str


class HeartbeatResponse(Header):
    """What a broker says to a heartbeat (34): whether it knows the short form, and whether a subscription is new."""

    supports_v2: bool = msgspec.field(default=False, name="IS_SUPPORT_HEART_BEAT_V2")
    subscription_changed: bool = msgspec.field(default=True, name="IS_SUB_CHANGE")


class UnregisterClient(Header):
    """A client leaves a producer group or a consumer group (35)."""

    client_id: str = msgspec.field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None

"""Bodies of statistics and of what members are doing."""

from __future__ import annotations

import msgspec

from evenq.model import MessageQueue
from evenq.protocol.bodies.base import Body
from evenq.protocol.bodies.client import Subscription

__all__ = [
    "BrokerStatsBody",
    "ConsumeQueueBody",
    "ConsumeQueueEntry",
    "ConsumeStats",
    "ConsumeStatsList",
    "ConsumerStatusBody",
    "CorrectionOffsets",
    "DirectResult",
    "MemberQueue",
    "MemberStats",
    "OffsetPair",
    "OffsetRange",
    "PopQueue",
    "QueueOffsets",
    "QueueTimeSpan",
    "RunningInfo",
    "StatsItem",
    "TimeSpans",
    "TopicStats",
]


class OffsetPair(Body):
    """Where a queue ends, where the group is, and when the message before the group's offset was stored."""

    broker_offset: int = 0
    consumer_offset: int = 0
    pull_offset: int = 0
    last_timestamp: int = 0


class ConsumeStats(Body):
    """How far a group is in each queue (208)."""

    offset_table: dict[MessageQueue, OffsetPair] = {}
    consume_tps: float = 0.0


class ConsumeStatsList(Body):
    """How far all groups of a broker are (317): group → statistics by topic."""

    consume_stats_list: list[dict[str, list[ConsumeStats]]] = []
    broker_addr: str | None = None
    total_diff: int = 0
    total_inflight_diff: int = 0


class OffsetRange(Body):
    """The offsets that a queue holds (``max_offset`` is the next one), and when it last grew."""

    min_offset: int = 0
    max_offset: int = 0
    last_update_timestamp: int = 0


class TopicStats(Body):
    """The offsets of each queue of a topic (202)."""

    offset_table: dict[MessageQueue, OffsetRange] = {}
    topic_put_tps: float = 0.0


class QueueOffsets(Body):
    """An offset for each queue: what a group is reset to (220, 222)."""

    offset_table: dict[MessageQueue, int] = {}


class ConsumerStatusBody(Body):
    """An offset for each queue, of one member (221) or by member (223)."""

    message_queue_table: dict[MessageQueue, int] = {}
    consumer_table: dict[str, dict[MessageQueue, int]] = {}


class CorrectionOffsets(Body):
    """Offsets by queue id (308)."""

    correction_offsets: dict[int, int] = {}


class QueueTimeSpan(Body):
    """From when to when the messages of a queue are, and how far the group is in time."""

    message_queue: MessageQueue
    min_time_stamp: int = 0
    max_time_stamp: int = 0
    consume_time_stamp: int = 0
    delay_time: int = 0


class TimeSpans(Body):
    """The time span of each queue of a topic (303)."""

    consume_time_span_set: list[QueueTimeSpan] = []


class StatsItem(Body):
    """A counter over some time: total, per second, average per call."""

    sum: int = 0
    tps: float = 0.0
    avgpt: float = 0.0


class BrokerStatsBody(Body):
    """One of the broker's counters over a minute, an hour and a day (315)."""

    stats_minute: StatsItem | None = None
    stats_hour: StatsItem | None = None
    stats_day: StatsItem | None = None


class ConsumeQueueEntry(Body):
    """One entry of a consume queue as it is stored, and whether a filter lets it through."""

    physic_offset: int = 0
    physic_size: int = 0
    tags_code: int = 0
    extend_data_json: str | None = None
    bit_map: str | None = None
    eval: bool = False
    msg: str | None = None


class ConsumeQueueBody(Body):
    """Entries of a consume queue (321)."""

    subscription_data: Subscription | None = None
    filter_data: str | None = None
    queue_data: list[ConsumeQueueEntry] = []
    max_queue_index: int = 0
    min_queue_index: int = 0


class MemberQueue(Body):
    """What a member has of one queue in its hands."""

    commit_offset: int = 0
    cached_msg_min_offset: int = 0
    cached_msg_max_offset: int = 0
    cached_msg_count: int = 0
    cached_msg_size_in_mib: int = msgspec.field(default=0, name="cachedMsgSizeInMiB")
    transaction_msg_min_offset: int = 0
    transaction_msg_max_offset: int = 0
    transaction_msg_count: int = 0
    locked: bool = False
    try_unlock_times: int = 0
    last_lock_timestamp: int = 0
    # sic
    dropped: bool = msgspec.field(default=False, name="droped")
    last_pull_timestamp: int = 0
    last_consume_timestamp: int = 0


class PopQueue(Body):
    """What a member has of one queue that it pops."""

    wait_ack_count: int = 0
    # sic
    dropped: bool = msgspec.field(default=False, name="droped")
    last_pop_timestamp: int = 0


class MemberStats(Body):
    """How fast a member is in one topic: times in milliseconds, rates per second."""

    pull_rt: float = msgspec.field(default=0.0, name="pullRT")
    pull_tps: float = msgspec.field(default=0.0, name="pullTPS")
    consume_rt: float = msgspec.field(default=0.0, name="consumeRT")
    consume_ok_tps: float = msgspec.field(default=0.0, name="consumeOKTPS")
    consume_failed_tps: float = msgspec.field(default=0.0, name="consumeFailedTPS")
    consume_failed_msgs: int = 0


class RunningInfo(Body):
    """What a member is doing (307). ``properties`` holds its settings, by Java's names."""

    properties: dict[str, str] = {}
    subscription_set: list[Subscription] = []
    mq_table: dict[MessageQueue, MemberQueue] = {}
    mq_pop_table: dict[MessageQueue, PopQueue] = {}
    status_table: dict[str, MemberStats] = {}
    user_consumer_info: dict[str, str] = {}
    jstack: str | None = None


class DirectResult(Body):
    """What came of a message that was consumed at once (309); ``consume_result`` is ``CR_SUCCESS``, ``CR_LATER``, …"""

    order: bool = False
    auto_commit: bool = True
    consume_result: str | None = None
    remark: str | None = None
    spent_time_mills: int = 0

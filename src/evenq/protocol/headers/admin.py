"""Headers of administration: topics, groups, statistics, looking messages up, resetting offsets."""

from __future__ import annotations

import msgspec

from evenq.protocol.headers.base import Header, Int32, Int64, QueueRequest, TopicRequest

__all__ = [
    "BrokerConsumeStats",
    "BrokerStats",
    "CloneOffsets",
    "ConfigVersion",
    "ConsumeDirectly",
    "ConsumeStatsRequest",
    "ConsumerStatus",
    "CorrectionOffset",
    "CreateTopic",
    "DeleteGroup",
    "DeleteTopic",
    "GroupConfigRequest",
    "ProducerGroupRequest",
    "QueryConsumeQueue",
    "QueryMessage",
    "QueryMessageResponse",
    "QueryTimeSpan",
    "ResetOffset",
    "ResumeCheckHalf",
    "RunningInfoRequest",
    "TopicSubscription",
    "ViewMessage",
]


class CreateTopic(TopicRequest):
    """Create a topic on a broker, or change it (17). ``attributes`` is ``+name=value,-name``."""

    default_topic: str = "TBW102"
    read_queue_nums: Int32
    write_queue_nums: Int32
    perm: Int32 = 6
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: Int32 = 0
    order: bool = False
    attributes: str | None = None
    force: bool = False


class DeleteTopic(TopicRequest):
    """Delete a topic on a broker (215) or its route on a name server (216)."""

    cluster_name: str | None = None


class DeleteGroup(Header):
    """Delete a group's settings (207), and its offsets too with ``clean_offset``."""

    group_name: str
    clean_offset: bool = False


class GroupConfigRequest(Header):
    """A request that names a consumer group as ``group``: its settings (352), its topics (343)."""

    group: str


class TopicSubscription(Header):
    """What a group subscribes to of one topic (345)."""

    group: str
    topic: str | None = None


class ProducerGroupRequest(Header):
    """The connections of a producer group (204)."""

    producer_group: str


class ConsumeStatsRequest(Header):
    """How far a group is, and how far it could be (208); all its topics when none is named."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


class BrokerConsumeStats(Header):
    """How far all groups of a broker are (317)."""

    is_order: bool = False


class BrokerStats(Header):
    """One of the broker's counters (315)."""

    stats_name: str
    stats_key: str


class ConfigVersion(Header):
    """The version of the settings in the body, in answer to a broker's settings (26)."""

    version: str


class QueryMessage(TopicRequest):
    """Messages by key (12); by the producer's id when the command also has ``_UNIQUE_KEY_QUERY``."""

    key: str
    max_num: Int32
    begin_timestamp: Int64
    end_timestamp: Int64
    unique_key: bool | None = msgspec.field(default=None, name="_UNIQUE_KEY_QUERY")


class QueryMessageResponse(Header):
    """How current the index was that the answer comes from."""

    index_last_update_timestamp: Int64
    index_last_update_phyoffset: Int64


class ViewMessage(Header):
    """The message at a place in the commit log (33)."""

    offset: Int64
    topic: str | None = None


class QueryConsumeQueue(QueueRequest):
    """Entries of a consume queue as they are stored (321)."""

    index: Int64
    count: Int32
    consumer_group: str | None = None


class QueryTimeSpan(Header):
    """From when to when the messages of a group's queues are (303)."""

    topic: str
    group: str


class CorrectionOffset(Header):
    """Offsets of other groups that are ahead of a group (308)."""

    topic: str
    compare_group: str
    filter_groups: str | None = None


class ResetOffset(Header):
    """Move a group to a time: asked of a broker (222), and handed on by it to each member (220).

    ``timestamp`` -1 means the end, -2 (and 0) the beginning. ``queue_id`` -1 means all queues; with ``offset`` the one
    queue goes to exactly that.
    """

    topic: str
    group: str
    timestamp: Int64
    is_force: bool = True
    queue_id: Int32 = -1
    offset: Int64 | None = None


class ConsumerStatus(Header):
    """Where a group's members are: asked of a broker (223), and handed on by it to each member (221)."""

    topic: str
    group: str
    client_addr: str | None = None


class RunningInfoRequest(Header):
    """What a member is doing (307): asked of a broker, and handed on by it to the member."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


class ConsumeDirectly(Header):
    """Let one member consume one message now (309): asked of a broker, and handed on with the message as the body."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None


class CloneOffsets(Header):
    """Copy the offsets of one group to another (314)."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


class ResumeCheckHalf(Header):
    """Ask the producer again about a half message that was given up (323)."""

    topic: str | None = None
    msg_id: str | None = None

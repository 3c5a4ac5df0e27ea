"""Bodies about topics and where they are: routes, clusters, settings of topics and groups."""

from __future__ import annotations

from typing import Any

import msgspec

from evenq.protocol.bodies.base import Body

__all__ = [
    "BrokerData",
    "BrokerMembers",
    "BrokerMembersBody",
    "ClusterInfo",
    "DataVersion",
    "DelayOffsetTable",
    "GroupConfig",
    "GroupConfigList",
    "GroupConfigTable",
    "GroupNames",
    "KvTable",
    "OffsetTable",
    "QueueData",
    "RetryPolicy",
    "TopicConfig",
    "TopicConfigList",
    "TopicConfigTable",
    "TopicNames",
    "TopicRoute",
]

MASTER = 0


class BrokerData(Body):
    """The brokers that share one name: ``broker_addrs`` by broker id, where 0 is the master."""

    broker_name: str
    cluster: str | None = None
    broker_addrs: dict[int, str] = {}
    enable_acting_master: bool = False
    zone_name: str | None = None

    @property
    def master(self) -> str | None:
        return self.broker_addrs.get(MASTER)


class QueueData(Body):
    """How many queues of a topic a broker has, and what may be done with them."""

    broker_name: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int = 6
    topic_sys_flag: int = 0


class TopicRoute(Body):
    """Where the queues of a topic are (105). ``order_topic_conf`` is ``broker-a:8;broker-b:8`` for ordered topics."""

    broker_datas: list[BrokerData] = []
    queue_datas: list[QueueData] = []
    order_topic_conf: str | None = None
    filter_server_table: dict[str, list[str]] = {}
    topic_queue_mapping_by_broker: dict[str, Any] | None = None


class ClusterInfo(Body):
    """All brokers by name, and the names by cluster (106)."""

    broker_addr_table: dict[str, BrokerData] = {}
    cluster_addr_table: dict[str, list[str]] = {}


class BrokerMembers(Body):
    """The addresses behind one broker name."""

    cluster: str
    broker_name: str
    broker_addrs: dict[int, str] = {}


class BrokerMembersBody(Body):
    """The answer to a question for the addresses behind one broker name (901)."""

    broker_member_group: BrokerMembers


class DataVersion(Body):
    """Which state of a table this is: it changes with the table."""

    state_version: int = 0
    timestamp: int = 0
    counter: int = 0

    def next(self, now_ms: int) -> DataVersion:
        return DataVersion(state_version=self.state_version, timestamp=now_ms, counter=self.counter + 1)


class TopicConfig(Body):
    """The settings of a topic on one broker, also as an entry of ``config/topics.json``."""

    topic_name: str
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = 6
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: int = 0
    order: bool = False
    attributes: dict[str, str] = {}


class TopicConfigTable(Body):
    """All topics of a broker (21), also ``config/topics.json``."""

    topic_config_table: dict[str, TopicConfig] = {}
    data_version: DataVersion = DataVersion()


class TopicConfigList(Body):
    """Topics to create or change at once (18); their attributes are changes (``+name``, ``-name``)."""

    topic_config_list: list[TopicConfig] = []


class TopicNames(Body):
    """Names of topics (206, 224, 304, 305, 343); system topics come with a broker's address."""

    topic_list: list[str] = []
    broker_addr: str | None = None


class GroupNames(Body):
    """Names of groups, e.g. of those that consume a topic (300)."""

    group_list: list[str] = []


class RetryPolicy(Body):
    """How the delay between redeliveries grows; without details it is the broker's table of levels."""

    type: str = "CUSTOMIZED"
    exponential_retry_policy: dict[str, Any] | None = None
    customized_retry_policy: dict[str, Any] | None = None


class GroupConfig(Body):
    """The settings of a consumer group on one broker, also as an entry of ``config/subscriptionGroup.json``."""

    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    group_retry_policy: RetryPolicy = RetryPolicy()
    broker_id: int = MASTER
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: int = 0
    consume_timeout_minute: int = 15
    subscription_data_set: list[Any] | None = None
    attributes: dict[str, str] = {}


class GroupConfigList(Body):
    """Groups to create or change at once (225)."""

    group_config_list: list[GroupConfig] = []


class GroupConfigTable(Body):
    """All consumer groups of a broker (201), also ``config/subscriptionGroup.json``."""

    subscription_group_table: dict[str, GroupConfig] = {}
    forbidden_table: dict[str, dict[str, int]] = {}
    data_version: DataVersion = DataVersion()


class OffsetTable(Body):
    """All offsets of a broker, by ``topic@group`` and queue id (43), also ``config/consumerOffset.json``."""

    offset_table: dict[str, dict[int, int]] = {}
    data_version: DataVersion | None = msgspec.field(default_factory=DataVersion)


class DelayOffsetTable(Body):
    """How far a broker has delivered its delayed messages, by delay level (45), also ``config/delayOffset.json``."""

    offset_table: dict[int, int] = {}
    data_version: DataVersion | None = msgspec.field(default_factory=DataVersion)


class KvTable(Body):
    """Names and values, e.g. a broker's running figures (28)."""

    table: dict[str, str] = {}

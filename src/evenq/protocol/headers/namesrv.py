"""Headers of the name server: routes, registration of brokers, its small key-value store."""

from __future__ import annotations

from evenq.protocol.headers.base import Header, Int32, Int64, TopicRequest

__all__ = [
    "BrokerHeartbeat",
    "BrokerNameRequest",
    "ClusterTopics",
    "DataVersionRequest",
    "DataVersionResponse",
    "KvKey",
    "KvNamespace",
    "KvPut",
    "KvValue",
    "RegisterBroker",
    "RegisterBrokerResponse",
    "RouteRequest",
    "UnregisterBroker",
    "WipedResponse",
]


class RouteRequest(TopicRequest):
    """Which brokers have the topic, with how many queues? (105)

    Without ``accept_standard_json_only`` the answer has unquoted numbers as keys, as old Java clients expect it.
    """

    accept_standard_json_only: bool | None = None


class UnregisterBroker(Header):
    """A broker leaves (104)."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


class RegisterBroker(UnregisterBroker):
    """A broker is there (103); its topics are the body. ``body_crc32`` 0 means: not checked."""

    ha_server_addr: str
    heartbeat_timeout_millis: Int64 | None = None
    enable_acting_master: bool | None = None
    compressed: bool = False
    body_crc32: Int32 = 0


class RegisterBrokerResponse(Header):
    """The master of the broker's name, for replicas."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


class BrokerHeartbeat(Header):
    """A broker is still there (904)."""

    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: Int64 | None = None
    epoch: Int32 | None = None
    max_offset: Int64 | None = None
    confirm_offset: Int64 | None = None
    heartbeat_timeout_mills: Int64 | None = None
    election_priority: Int32 | None = None


class DataVersionRequest(UnregisterBroker):
    """Does the name server know these topics already? (322) The version is the body."""


class DataVersionResponse(Header):
    """Whether the name server's version differs."""

    changed: bool


class BrokerNameRequest(Header):
    """Take the write permission of a broker's topics away (205), or give it back (327)."""

    broker_name: str


class WipedResponse(Header):
    """How many topics were changed; which field it is depends on the request."""

    wipe_topic_count: Int32 | None = None
    add_topic_count: Int32 | None = None


class ClusterTopics(Header):
    """The topics of a cluster (224)."""

    cluster: str


class KvNamespace(Header):
    """All keys of a namespace of the store (219)."""

    namespace: str


class KvKey(KvNamespace):
    """One key of the store: get (101), delete (102)."""

    key: str


class KvPut(KvKey):
    """Set a key of the store (100). Namespace ``ORDER_TOPIC_CONFIG`` holds the queues of ordered topics."""

    value: str


class KvValue(Header):
    """The value of a key."""

    value: str | None = None

"""Bodies about clients: heartbeats, members of groups, connections, locks."""

from __future__ import annotations

import msgspec

from evenq.model import Begin, MessageModel, MessageQueue
from evenq.protocol.bodies.base import Body

__all__ = [
    "ClientCheck",
    "ClientConnections",
    "Connection",
    "ConsumerData",
    "GroupConnections",
    "Heartbeat",
    "LockRequest",
    "LockResponse",
    "Members",
    "ProducerData",
    "ProducerInfo",
    "ProducerTable",
    "Subscription",
    "TopicSubscriptionBody",
]


class Subscription(Body):
    """What a group wants of a topic. ``tags_set`` and ``code_set`` (Java's hash of each tag) are empty for ``*``.

    ``sub_version`` is a time in milliseconds: a broker prefers the newest. Made by
    :func:`evenq.protocol.filters.subscription`.
    """

    topic: str
    sub_string: str = "*"
    tags_set: set[str] = set()
    code_set: set[int] = set()
    sub_version: int = 0
    expression_type: str = "TAG"
    class_filter_mode: bool = False


class ProducerData(Body):
    """One producer group of a client."""

    group_name: str


class ConsumerData(Body):
    """One consumer group of a client. The three texts are Java's names, passed on as they are."""

    group_name: str
    consume_type: str = "CONSUME_PASSIVELY"
    message_model: str = MessageModel.CLUSTERING.value
    consume_from_where: str = Begin.LAST.value
    subscription_data_set: list[Subscription] = []
    unit_mode: bool = False


# Java's enums in the order of their numbers.
_ENUMS = {
    "consumeType": ("CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP"),
    "messageModel": (MessageModel.BROADCASTING.value, MessageModel.CLUSTERING.value),
    "consumeFromWhere": (
        Begin.LAST.value,
        "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
        "CONSUME_FROM_MIN_OFFSET",
        "CONSUME_FROM_MAX_OFFSET",
        Begin.FIRST.value,
        Begin.TIMESTAMP.value,
    ),
}


class Heartbeat(Body):
    """I am here, with these groups (34). The C++ client writes Java's enums by their number.

    ``heartbeat_fingerprint`` is not 0 in the short form (V2), which may come ``without_sub``: without subscriptions,
    for they are as before.
    """

    client_id: str = msgspec.field(name="clientID")
    producer_data_set: list[ProducerData] = []
    consumer_data_set: list[ConsumerData] = []
    heartbeat_fingerprint: int = 0
    without_sub: bool = False

    @classmethod
    def prepared(cls, value: object) -> object:
        groups = value.get("consumerDataSet") if isinstance(value, dict) else None
        for group in groups if isinstance(groups, list) else ():
            for field, names in _ENUMS.items() if isinstance(group, dict) else ():
                number = group.get(field)
                if type(number) is int and 0 <= number < len(names):
                    group[field] = names[number]
        return value


class ClientCheck(Body):
    """May a client subscribe so? (46) Answered before it starts: an expression that cannot be read is refused."""

    client_id: str | None = None
    group: str | None = None
    subscription_data: Subscription | None = None
    namespace: str | None = None


class Members(Body):
    """The client ids of a group (38)."""

    consumer_id_list: list[str] = []


class LockRequest(Body):
    """Give these queues to this client only (41), or let go of them (42)."""

    consumer_group: str
    client_id: str
    mq_set: list[MessageQueue] = []
    only_this_broker: bool = False


class LockResponse(Body):
    """The queues that the client holds now."""

    queues: list[MessageQueue] = msgspec.field(name="lockOKMQSet", default_factory=list)


class Connection(Body):
    """One client of a group as the broker sees it; ``version`` is the protocol's, a number."""

    client_id: str
    client_addr: str
    language: str = "OTHER"
    version: int = 0


class ClientConnections(Body):
    """The clients of a producer group (204)."""

    connection_set: list[Connection] = []


class GroupConnections(Body):
    """The members of a consumer group with what they subscribe to, by topic (203)."""

    connection_set: list[Connection] = []
    subscription_table: dict[str, Subscription] = {}
    consume_type: str | None = None
    message_model: str | None = None
    consume_from_where: str | None = None


class TopicSubscriptionBody(Body):
    """What a group subscribes to of one topic (345)."""

    group: str
    topic: str
    subscription_data: Subscription | None = None


class ProducerInfo(Body):
    """One client of a producer group, with the time of its last heartbeat."""

    client_id: str
    remote_ip: str = msgspec.field(name="remoteIP")
    language: str = "OTHER"
    version: int = 0
    last_update_timestamp: int = 0


class ProducerTable(Body):
    """All producer groups of a broker (328)."""

    data: dict[str, list[ProducerInfo]] = {}

"""Administration: what operators ask of a cluster and change in it. asyncio; the sync one is a facade on it."""

from evenq.client.admin.cluster import Broker, BrokerStatus, Counter, Counters
from evenq.client.admin.deadletters import DeadLetter, DeadLetters
from evenq.client.admin.groups import Client, GroupSettings, Membership
from evenq.client.admin.offsets import GroupProgress, Holder, Offsets, Place, QueueProgress, QueueReset
from evenq.client.admin.topics import Permission, QueueStatus, TopicPart, TopicStatus
from evenq.client.admin.traces import DeliveryTrace, EndTrace, MessageTrace, RecallTrace, SendTrace, Traces

__all__ = [
    "Admin",
    "Broker",
    "BrokerStatus",
    "Client",
    "Counter",
    "Counters",
    "DeadLetter",
    "DeliveryTrace",
    "EndTrace",
    "GroupProgress",
    "GroupSettings",
    "Holder",
    "Membership",
    "MessageTrace",
    "Permission",
    "Place",
    "QueueProgress",
    "QueueReset",
    "QueueStatus",
    "RecallTrace",
    "SendTrace",
    "TopicPart",
    "TopicStatus",
]


class Admin(DeadLetters, Traces, Offsets):
    """Asks and changes a whole cluster: every master that the name server knows.

    ============ =====================================================================================
    topics       ``topics``, ``route``, ``topic_status``; ``create_topic``, ``update_topic``, ``delete_topic``
    groups       ``groups``, ``members``, ``consumers``, ``producers``; ``create_group``, ``update_group``,
                 ``delete_group``
    offsets      ``progress``, ``holders``; ``reset``
    messages     ``message``, ``messages_by_key``, ``messages_by_unique_key``, ``messages_at``, ``trace``
    dead letters ``dead_letters``; ``resend_dead_letters``
    the cluster  ``brokers``, ``masters``, ``broker_status``, ``broker_settings``, ``counters``; ``set_writable``
    ============ =====================================================================================

    Nothing is kept between calls: each asks anew. A broker that does not answer is an error that names it.
    ``credentials`` and ``tls`` are as for producers. With a ``namespace``, topics and groups are given and told by
    their names in it, and lists have only those; what RocketMQ itself has is in no namespace.
    """

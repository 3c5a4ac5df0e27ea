"""Administration: what operators ask of a cluster and change in it. asyncio; the sync one is a facade on it."""

from evenq.client.admin.cluster import Broker, BrokerStatus, Counter, Counters
from evenq.client.admin.groups import Client, GroupSettings, Membership
from evenq.client.admin.messages import Messages
from evenq.client.admin.offsets import GroupProgress, Holder, Offsets, Place, QueueProgress, QueueReset
from evenq.client.admin.topics import Permission, QueueStatus, TopicPart, TopicStatus

__all__ = [
    "Admin",
    "Broker",
    "BrokerStatus",
    "Client",
    "Counter",
    "Counters",
    "GroupProgress",
    "GroupSettings",
    "Holder",
    "Membership",
    "Permission",
    "Place",
    "QueueProgress",
    "QueueReset",
    "QueueStatus",
    "TopicPart",
    "TopicStatus",
]


class Admin(Messages, Offsets):
    """Asks and changes a whole cluster: every master that the name server knows.

    ============ =====================================================================================
    topics       ``topics``, ``route``, ``topic_status``; ``create_topic``, ``update_topic``, ``delete_topic``
    groups       ``groups``, ``members``, ``consumers``, ``producers``; ``create_group``, ``update_group``,
                 ``delete_group``
    offsets      ``progress``, ``holders``; ``reset``
    messages     ``message``, ``messages_by_key``, ``messages_by_unique_key``, ``messages_at``
    the cluster  ``brokers``, ``masters``, ``broker_status``, ``broker_settings``, ``counters``; ``set_writable``
    ============ =====================================================================================

    Nothing is kept between calls: each asks anew. A broker that does not answer is an error that names it.
    ``credentials`` and ``tls`` are as for producers.
    """

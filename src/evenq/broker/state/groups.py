"""Consumer groups: their settings, and who is in which group.

The settings of a group say what it may do and how often messages are redelivered to it. Its members are those that
heartbeats tell of, with what they subscribe to. A member is known by its connection. It is gone when it says so, when
the connection closes, or after 120 s of silence.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Generic, TypeVar

from evenq.broker.limits import Limits
from evenq.broker.server import Refusal
from evenq.model import MessageModel
from evenq.protocol.bodies import ConsumerData, DataVersion, GroupConfig, GroupConfigTable, Subscription
from evenq.protocol.codes import ResponseCode
from evenq.protocol.names import group_error

__all__ = ["SILENCE_SECONDS", "ConsumerGroup", "ConsumerGroups", "GroupConfigs", "Member", "ProducerGroups"]

SILENCE_SECONDS = 120.0

Channel = TypeVar("Channel", bound=Hashable)


@dataclass(slots=True)
class Member(Generic[Channel]):
    """One client of a group. ``seen`` is the time of its last heartbeat."""

    client_id: str
    channel: Channel
    language: str = "OTHER"
    version: int = 0
    seen: float = 0.0


@dataclass(slots=True)
class ConsumerGroup(Generic[Channel]):
    """A group that has members now. The last heartbeat decides how it consumes, as with the Java broker."""

    name: str
    consume_type: str = "CONSUME_PASSIVELY"
    message_model: str = MessageModel.CLUSTERING.value
    consume_from_where: str = "CONSUME_FROM_LAST_OFFSET"
    members: dict[Channel, Member[Channel]] = field(default_factory=dict)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    # of the last heartbeat in the short form; 0 for the long one
    fingerprint: int = 0

    @property
    def client_ids(self) -> list[str]:
        """Each id once, though a client may have more than one connection for a moment."""
        return list(dict.fromkeys(member.client_id for member in self.members.values()))

    @property
    def is_broadcasting(self) -> bool:
        return self.message_model == MessageModel.BROADCASTING.value

    def subscribe(self, wanted: list[Subscription]) -> bool:
        """Take over what a member subscribes to; whether that differs from what was known."""
        changed = False
        for subscription in wanted:
            known = self.subscriptions.get(subscription.topic)
            if known is None or subscription.sub_version > known.sub_version:
                changed |= known is None or known.sub_string != subscription.sub_string
                self.subscriptions[subscription.topic] = subscription
        topics = {subscription.topic for subscription in wanted}
        for topic in [topic for topic in self.subscriptions if topic not in topics]:
            del self.subscriptions[topic]
            changed = True
        return changed


class ConsumerGroups(Generic[Channel]):
    """RocketMQ's ``consumerTable``. What changes a group says so in its answer: its members are then to be told."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._groups: dict[str, ConsumerGroup[Channel]] = {}

    def get(self, group: str) -> ConsumerGroup[Channel] | None:
        return self._groups.get(group)

    def __iter__(self) -> Iterator[ConsumerGroup[Channel]]:
        return iter(self._groups.values())

    def heartbeat(self, data: ConsumerData, member: Member[Channel], *, subscriptions: bool = True) -> bool:
        """A member is there; whether the group changed. Without ``subscriptions`` they are as before."""
        group = self._groups.get(data.group_name)
        if group is None:
            group = self._groups[data.group_name] = ConsumerGroup(data.group_name)
        group.consume_type = data.consume_type
        group.message_model = data.message_model
        group.consume_from_where = data.consume_from_where
        known = group.members.get(member.channel)
        member.seen = self._clock()
        group.members[member.channel] = member
        changed = known is None or known.client_id != member.client_id
        if subscriptions:
            changed |= group.subscribe(data.subscription_data_set)
        return changed

    def leave(self, group: str, channel: Channel) -> bool:
        """A member leaves one group; whether it was in it."""
        known = self._groups.get(group)
        if known is None or known.members.pop(channel, None) is None:
            return False
        if not known.members:
            del self._groups[group]
        return True

    def lose(self, channel: Channel) -> list[str]:
        """A connection is gone; the groups that changed."""
        return [name for name in list(self._groups) if self.leave(name, channel)]

    def silent(self) -> list[Channel]:
        """The connections of members that were not heard of for too long."""
        limit = self._clock() - SILENCE_SECONDS
        return list(
            dict.fromkeys(
                member.channel
                for group in self._groups.values()
                for member in group.members.values()
                if member.seen < limit
            )
        )


class ProducerGroups(Generic[Channel]):
    """The producers, by group. They are counted, asked about half messages, and given replies."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._groups: dict[str, dict[Channel, Member[Channel]]] = {}
        self._turns = count()

    def members(self, group: str) -> list[Member[Channel]]:
        return list(self._groups.get(group, {}).values())

    def next(self, group: str) -> Channel | None:
        """The connection of some producer of a group, another one each time."""
        channels = list(self._groups.get(group, ()))
        return channels[next(self._turns) % len(channels)] if channels else None

    def find(self, client_id: str) -> Channel | None:
        """The connection of a producer by its client id."""
        for members in self._groups.values():
            for member in members.values():
                if member.client_id == client_id:
                    return member.channel
        return None

    def groups(self) -> list[str]:
        return list(self._groups)

    def heartbeat(self, group: str, member: Member[Channel]) -> None:
        member.seen = self._clock()
        self._groups.setdefault(group, {})[member.channel] = member

    def expire(self) -> None:
        """Drop producers that were not heard of for too long: nobody there answers a question any more."""
        limit = self._clock() - SILENCE_SECONDS
        for group, members in list(self._groups.items()):
            for channel in [channel for channel, member in members.items() if member.seen < limit]:
                self.leave(group, channel)

    def leave(self, group: str, channel: Channel) -> None:
        members = self._groups.get(group, {})
        members.pop(channel, None)
        if group in self._groups and not members:
            del self._groups[group]

    def lose(self, channel: Channel) -> None:
        for group in list(self._groups):
            self.leave(group, channel)


# The groups that a Java broker has from the start, in its order.
_SYSTEM = (
    "TOOLS_CONSUMER FILTERSRV_CONSUMER SELF_TEST_C_GROUP CID_ONS-HTTP-PROXY CID_ONSAPI_PULL CID_ONSAPI_PERMISSION "
    "CID_ONSAPI_OWNER CID_RMQ_SYS_TRANS".split()
)


class GroupConfigs:
    """The settings by group. ``changed`` is called after each change, to save it."""

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        saved: GroupConfigTable | None = None,
        auto_create: bool = True,
        limits: Limits | None = None,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._clock = clock
        self.auto_create = auto_create
        self._limits = limits or Limits()
        self._changed = changed
        saved = saved or GroupConfigTable()
        self._table = {name: GroupConfig(group_name=name) for name in _SYSTEM} | saved.subscription_group_table
        self._forbidden = saved.forbidden_table
        self._version: DataVersion = saved.data_version

    def get(self, group: str) -> GroupConfig | None:
        """The settings of a group, created where it is missing and that is allowed."""
        known = self._table.get(group)
        if known is None and self.auto_create and group_error(group) is None:
            return self.put(GroupConfig(group_name=group))
        return known

    def __contains__(self, group: str) -> bool:
        return group in self._table

    def __iter__(self) -> Iterator[GroupConfig]:
        return iter(self._table.values())

    def put(self, config: GroupConfig) -> GroupConfig:
        """Create a group, or change its settings. More groups or retry queues than the limits allow are refused."""
        name, queues, most = config.group_name, config.retry_queue_nums, self._limits.max_queues_per_topic
        if queues > most:
            raise Refusal(
                ResponseCode.INVALID_PARAMETER,
                f"subscription group [{name}] cannot have {queues} retry queues: give at most {most}",
            )
        if name not in self._table and len(self._table) - len(_SYSTEM) >= self._limits.max_groups:
            raise Refusal(
                ResponseCode.INVALID_PARAMETER,
                f"subscription group [{name}] is not created: there are {self._limits.max_groups}, the most that are "
                f"allowed; delete one",
            )
        self._table[config.group_name] = config
        self._touch()
        return config

    def delete(self, group: str) -> bool:
        if self._table.pop(group, None) is None:
            return False
        self._touch()
        return True

    def _touch(self) -> None:
        self._version = self._version.next(int(self._clock() * 1000))
        self._changed()

    def table(self) -> GroupConfigTable:
        """All of it, as it is saved."""
        return GroupConfigTable(
            subscription_group_table=dict(self._table), forbidden_table=self._forbidden, data_version=self._version
        )

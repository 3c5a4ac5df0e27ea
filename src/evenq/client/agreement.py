"""What the members of a group must have in common, and where they differ.

Every member computes its own share, and a broker filters for the whole group by what one member subscribed to. Members
that do not agree therefore leave queues to nobody or read them twice, and lose messages, without any error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass

import msgspec

from evenq.balance import Strategy, StrategyLike, as_strategy
from evenq.balance.rooms import MachineRoomNearby
from evenq.balance.strategies import Config, Custom
from evenq.errors import ProtocolError
from evenq.model import MessageModel, MessageQueue
from evenq.protocol.bodies import RunningInfo, Subscription
from evenq.protocol.filters import EVERYTHING, TAG
from evenq.protocol.names import RETRY
from evenq.supervision import callable_name

__all__ = [
    "LOCKS",
    "MODEL",
    "STRATEGY",
    "Difference",
    "Told",
    "decode_queues",
    "describe",
    "differences",
    "encode_queues",
]

# Java's names of two properties of a member. The value of the second is a class there, and evenq's description here.
MODEL = "messageModel"
STRATEGY = "allocateMessageQueueStrategy"
# evenq's own: the hand-over locks that a member has.
LOCKS = "evenqLocks"

_STICKY = "STICKY"
_OF_JAVA = {
    "AllocateMessageQueueAveragely": "AVG",
    "AllocateMessageQueueAveragelyByCircle": "AVG_BY_CIRCLE",
    "AllocateMessageQueueByConfig": "CONFIG",
    "AllocateMessageQueueByMachineRoom": "MACHINE_ROOM",
    "AllocateMachineRoomNearby": "MACHINE_ROOM_NEARBY",
    "AllocateMessageQueueConsistentHash": "CONSISTENT_HASH",
}
# so many members with the same value are named
_NAMED = 3


def describe(strategy: StrategyLike) -> str:
    """A strategy with its settings, the same in every process; functions are named.

    >>> from evenq.balance import strategy
    >>> describe("AVG"), describe(strategy("MACHINE_ROOM", rooms={"sh", "hz"})), describe(sorted)
    ('AVG', 'MACHINE_ROOM(rooms=hz,sh)', 'builtins.sorted')

    Every member has a list of its own for ``CONFIG``, so the list is no setting that members share.
    """
    if strategy == _STICKY:
        return _STICKY
    rule = as_strategy(strategy)
    if isinstance(rule, Custom):
        return callable_name(rule.function)
    if isinstance(rule, Config) or not is_dataclass(rule):
        return rule.name
    name = "MACHINE_ROOM_NEARBY" if isinstance(rule, MachineRoomNearby) else rule.name
    values = [(field.name, getattr(rule, field.name)) for field in fields(rule)]
    settings = ", ".join(f"{key}={_text(value)}" for key, value in values if value is not None)
    return f"{name}({settings})" if settings else name


def _text(value: object) -> str:
    if isinstance(value, Strategy):
        return describe(value)
    if isinstance(value, frozenset):
        return ",".join(sorted(map(str, value)))
    # an object has no text that is the same in every process
    return repr(value) if isinstance(value, str | int | float) else callable_name(value)


@dataclass(frozen=True, slots=True)
class Told:
    """What a member says of itself. A strategy or settings that it does not tell are None."""

    member: str
    subscriptions: dict[str, str]
    model: str | None
    strategy: str | None
    settings: str | None
    is_java: bool = False

    @classmethod
    def by(cls, member: str, info: RunningInfo) -> Told:
        text = info.properties.get(STRATEGY)
        name, _, settings = (text or "").partition("(")
        is_java = "@" in name
        if is_java:
            # the class of an object; one that is not Java's own says nothing about its rule
            simple = name.partition("@")[0].rpartition(".")[2]
            text = _OF_JAVA.get(simple)
            name = text or ""
        return cls(
            member,
            {each.topic: _expression(each) for each in info.subscription_set if not each.topic.startswith(RETRY)},
            info.properties.get(MODEL),
            name or None,
            None if is_java or text is None else settings.removesuffix(")"),
            is_java,
        )


@dataclass(frozen=True, slots=True)
class Difference:
    """Something that members must have in common and have not: each value, with the members that have it."""

    what: str
    values: tuple[tuple[str, tuple[str, ...]], ...]

    @property
    def key(self) -> tuple[str, ...]:
        """The same whichever members have these values."""
        return (self.what, *(value for value, _ in self.values))

    def __str__(self) -> str:
        return f"{self.what}: {', '.join(f'{value} ({_names(members)})' for value, members in self.values)}"


def differences(told: Iterable[Told]) -> list[Difference]:
    """Where members differ, what matters most first.

    >>> a = Told("a", {"orders": "*"}, "CLUSTERING", "AVG", "")
    >>> b = Told("b", {"orders": "paid"}, "CLUSTERING", "AVG", "")
    >>> [str(each) for each in differences([a, b])]
    ['subscription of topic orders: * (a), paid (b)']
    """
    members = sorted(told, key=lambda each: each.member)
    found = [_compare("message model", {each.member: each.model for each in members})]
    for topic in sorted({topic for each in members for topic in each.subscriptions}):
        values = {each.member: each.subscriptions.get(topic, "none") for each in members}
        found.append(_compare(f"subscription of topic {topic}", values))
    dividing = [each for each in members if each.model != MessageModel.BROADCASTING.value]
    # beside Java members, those with STICKY go by AVG
    instead = {_STICKY: "AVG"} if any(each.is_java for each in dividing) else {}
    names = {each.member: instead.get(each.strategy or "", each.strategy) for each in dividing}
    by_name = _compare("strategy", names)
    found.append(by_name)
    if by_name is None:
        found.append(_compare("settings of the strategy", {each.member: each.settings for each in dividing}))
    return [each for each in found if each is not None]


def _compare(what: str, values: Mapping[str, str | None]) -> Difference | None:
    by_value: dict[str, list[str]] = {}
    for member, value in values.items():
        if value is not None:
            by_value.setdefault(value, []).append(member)
    if len(by_value) < 2:
        return None
    return Difference(what, tuple((value, tuple(members)) for value, members in sorted(by_value.items())))


def _expression(subscription: Subscription) -> str:
    if subscription.expression_type != TAG:
        return f"{subscription.expression_type} {subscription.sub_string}"
    return " || ".join(sorted(subscription.tags_set)) or EVERYTHING


def _names(members: tuple[str, ...]) -> str:
    more = len(members) - _NAMED
    return ", ".join(members[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def encode_queues(queues: Iterable[MessageQueue]) -> str:
    """
    >>> encode_queues([MessageQueue("orders", "broker-a", 1)])
    '[["orders","broker-a",1]]'
    """
    return msgspec.json.encode([(queue.topic, queue.broker, queue.queue_id) for queue in sorted(queues)]).decode()


def decode_queues(text: str) -> set[MessageQueue]:
    """The inverse of :func:`encode_queues`."""
    try:
        found = msgspec.json.decode(text, type=list[tuple[str, str, int]])
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise ProtocolError(f"a member tells its locks as {text[:100]!r}: {error}") from None
    return {MessageQueue(*each) for each in found}

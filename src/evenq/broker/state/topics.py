"""The topics of one broker: their settings, the ones every broker has, and how new ones come to be.

Topics have attributes, too: what they may be is listed here, and how they are changed
(``+message.type=FIFO,-reserve.time``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from evenq.broker.admission import INT64, wire_int
from evenq.broker.limits import Limits
from evenq.broker.server import Refusal
from evenq.errors import ArgumentError
from evenq.protocol.bodies import TopicConfig, TopicConfigTable
from evenq.protocol.codes import ResponseCode
from evenq.protocol.flags import Perm
from evenq.protocol.names import DEAD_LETTER, RETRY, may_send, reply_topic

__all__ = ["DEFAULT_TOPIC", "Topics", "alter_attributes", "dead_letter_topic", "parse_attribute_changes", "retry_topic"]

# The topic that lends its settings to those that are created by a send.
DEFAULT_TOPIC = "TBW102"

_READ_WRITE = int(Perm.READ | Perm.WRITE)


def retry_topic(group: str) -> str:
    """Where messages wait that a member of the group could not consume."""
    return RETRY + group


def dead_letter_topic(group: str) -> str:
    """Where messages end that the group could not consume at all."""
    return DEAD_LETTER + group


def _system_topics(cluster: str, broker: str) -> Iterator[TopicConfig]:
    """What a Java broker creates at its first start, with the same settings."""

    def topic(name: str, queues: int, perm: int = _READ_WRITE) -> TopicConfig:
        return TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm)

    inherited = int(Perm.READ | Perm.WRITE | Perm.INHERIT)
    yield topic("SELF_TEST_TOPIC", 1)
    yield topic(DEFAULT_TOPIC, 8, inherited)
    yield topic("BenchmarkTest", 1024)
    yield topic(cluster, 16, inherited)
    yield topic(broker, 1, inherited)
    yield topic("OFFSET_MOVED_EVENT", 1)
    yield topic("SCHEDULE_TOPIC_XXXX", 18)
    yield topic(reply_topic(cluster), 1)
    yield topic(f"rmq_sys_REVIVE_LOG_{cluster}", 8)
    yield topic(f"rmq_sys_SYNC_BROKER_MEMBER_{broker}", 1, int(Perm.INHERIT))
    yield topic("RMQ_SYS_TRANS_HALF_TOPIC", 1)
    yield topic("RMQ_SYS_TRANS_OP_HALF_TOPIC", 1)
    yield topic("rmq_sys_wheel_timer", 1)


class Topics:
    """The settings by topic. ``changed`` is called after each change, to save and to register it; ``deleted`` with
    what was deleted."""

    def __init__(
        self,
        cluster: str,
        broker: str,
        *,
        clock: Callable[[], float],
        saved: TopicConfigTable | None = None,
        auto_create: bool = True,
        limits: Limits | None = None,
        changed: Callable[[], None] = lambda: None,
        deleted: Callable[[TopicConfig], None] = lambda config: None,
    ) -> None:
        self._clock = clock
        self._deleted = deleted
        self._reply_topic = reply_topic(cluster)
        self.auto_create = auto_create
        self._limits = limits or Limits()
        self._changed = changed
        system = {config.topic_name: config for config in _system_topics(cluster, broker)}
        self.system = frozenset(system)
        saved = saved or TopicConfigTable()
        self._table = system | saved.topic_config_table
        self._version = saved.data_version

    def get(self, topic: str) -> TopicConfig | None:
        return self._table.get(topic)

    def __contains__(self, topic: str) -> bool:
        return topic in self._table

    def __iter__(self) -> Iterator[TopicConfig]:
        return iter(self._table.values())

    def may_send(self, topic: str, *, reply: bool = False) -> bool:
        """Whether clients may send to it at all. The cluster's reply topic takes replies only."""
        return may_send(topic) and (reply or topic != self._reply_topic)

    def create_for_send(self, topic: str, default_topic: str, queues: int, sys_flag: int = 0) -> TopicConfig | None:
        """The topic of a send, created after the model of ``default_topic`` where it is missing and that is allowed."""
        known = self._table.get(topic)
        if known is not None:
            return known
        model = self._table.get(default_topic)
        if model is None or not model.perm & Perm.INHERIT or not (self.auto_create or default_topic != DEFAULT_TOPIC):
            return None
        count = max(0, min(queues, model.write_queue_nums))
        return self.put(
            TopicConfig(
                topic_name=topic,
                read_queue_nums=count,
                write_queue_nums=count,
                perm=model.perm & ~Perm.INHERIT,
                topic_sys_flag=sys_flag,
                topic_filter_type=model.topic_filter_type,
            )
        )

    def create_for_group(self, topic: str, queues: int, *, order: bool = False, sys_flag: int = 0) -> TopicConfig:
        """A group's retry or dead letter topic, created where it is missing."""
        known = self._table.get(topic)
        if known is not None and known.order == order:
            return known
        queues = max(0, queues)
        return self.put(
            TopicConfig(
                topic_name=topic,
                read_queue_nums=queues,
                write_queue_nums=queues,
                perm=_READ_WRITE,
                topic_sys_flag=sys_flag,
                order=order,
            )
        )

    def put(self, config: TopicConfig) -> TopicConfig:
        """Create a topic, or change its settings. More topics or queues than the limits allow are refused."""
        name = config.topic_name
        most = self._limits.max_queues_per_topic
        for count in (config.read_queue_nums, config.write_queue_nums):
            if not 0 <= count <= most:
                raise Refusal(
                    ResponseCode.INVALID_PARAMETER, f"topic[{name}] cannot have {count} queues: give 0 to {most}"
                )
        if name not in self._table and len(self._table) - len(self.system) >= self._limits.max_topics:
            raise Refusal(
                ResponseCode.INVALID_PARAMETER,
                f"topic[{name}] is not created: there are {self._limits.max_topics}, the most that are allowed; "
                f"delete one",
            )
        if self._table.get(config.topic_name) != config:
            self._table[config.topic_name] = config
            self._touch()
        return config

    def delete(self, topic: str) -> bool:
        config = self._table.pop(topic, None)
        if config is None:
            return False
        self._touch()
        self._deleted(config)
        return True

    def _touch(self) -> None:
        self._version = self._version.next(int(self._clock() * 1000))
        self._changed()

    def table(self) -> TopicConfigTable:
        """All of it, as it is saved and registered."""
        return TopicConfigTable(topic_config_table=dict(self._table), data_version=self._version)

    def settings(self) -> Mapping[str, TopicConfig]:
        return self._table


def _is_number(value: str) -> bool:
    return wire_int(value, -1, INT64[1]) is not None


@dataclass(frozen=True, slots=True)
class _Attribute:
    """What values an attribute can have here, and whether it can be changed once the topic is there."""

    allows: Callable[[str], bool]
    wanted: str
    changeable: bool


def _one_of(*values: str, changeable: bool) -> _Attribute:
    return _Attribute(frozenset(values).__contains__, " or ".join(values), changeable)


_KNOWN = {
    "queue.type": _one_of("SimpleCQ", changeable=False),
    "cleanup.policy": _one_of("DELETE", changeable=False),
    "message.type": _one_of("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED", changeable=True),
    "reserve.time": _Attribute(_is_number, "a number of milliseconds, or -1", True),
}


def parse_attribute_changes(text: str | None) -> dict[str, str]:
    """Changes as a tool writes them, by signed name.

    >>> parse_attribute_changes("+message.type=FIFO,-reserve.time")
    {'+message.type': 'FIFO', '-reserve.time': ''}
    """
    changes: dict[str, str] = {}
    for part in (text or "").split(","):
        name, _, value = part.partition("=")
        if name in changes:
            raise ArgumentError("attributes", text, f"{name} comes twice")
        if name:
            changes[name] = value
    return changes


def alter_attributes(current: Mapping[str, str], changes: Mapping[str, str], *, new: bool = False) -> dict[str, str]:
    """The attributes after some changes; ``new`` for a topic that is only being made.

    >>> alter_attributes({"reserve.time": "5"}, {"+message.type": "FIFO", "-reserve.time": ""})
    {'message.type': 'FIFO'}
    """
    altered = dict(current)
    for signed, value in changes.items():
        sign, name = signed[:1], signed[1:]
        known = _KNOWN.get(name)
        if known is None or sign not in ("+", "-"):
            raise ArgumentError("attributes", signed, f"give +name=value or -name, of {', '.join(_KNOWN)}")
        if not known.changeable and not new:
            raise ArgumentError("attributes", signed, f"{name} cannot be changed: delete the topic and make it anew")
        if sign == "-":
            if name not in current:
                raise ArgumentError("attributes", signed, f"the topic has no {name}")
            del altered[name]
        elif known.allows(value):
            altered[name] = value
        else:
            raise ArgumentError("attributes", f"{signed}={value}", f"{name} must be {known.wanted}")
    return altered

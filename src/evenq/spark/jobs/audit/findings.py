"""What an audit found, as values: loads, what is wrong, how long things took. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from evenq.spark.jobs.audit.measures import Percentiles, Skew

__all__ = [
    "Audit",
    "BrokerLoad",
    "Consumer",
    "Copy",
    "Finding",
    "Gap",
    "GroupAudit",
    "Holding",
    "KeyLoad",
    "Kind",
    "LagPoint",
    "LagSample",
    "Late",
    "Move",
    "Order",
    "QueueLoad",
    "Slot",
    "Spread",
    "TopicAudit",
]


class Kind(Enum):
    """What can be wrong with a topic."""

    GAP = "gap"
    DUPLICATE = "duplicate"
    LATE = "out of order"
    SPREAD = "key in several queues"
    HOT_KEY = "hot key"
    UNEVEN = "uneven"


class Order(Enum):
    """Whether messages of a key have to keep their order in a topic."""

    # they carry a sharding key, which says so
    SHARDED = "by sharding key"
    # all but a few keys keep to one queue each, which round robin does not do
    KEYED = "by key: each keeps to a queue"
    TOLD = "by key, as you say"
    NONE = "no order is meant"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong: how often, and in words."""

    kind: Kind
    topic: str
    count: int
    words: str


@dataclass(frozen=True, slots=True)
class QueueLoad:
    """``first`` and ``end`` are the offsets that were looked at; the end is not among them."""

    topic: str
    broker: str
    queue_id: int
    messages: int
    bytes: int
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class BrokerLoad:
    topic: str
    broker: str
    queues: int
    messages: int
    bytes: int


@dataclass(frozen=True, slots=True)
class KeyLoad:
    """``queues`` holds the messages of the key by broker:queue, the fullest first."""

    topic: str
    key: str
    messages: int
    bytes: int
    queues: tuple[tuple[str, int], ...]
    hot: bool = False


@dataclass(frozen=True, slots=True)
class Copy:
    """A message that is there a second time, and where the first one is."""

    topic: str
    unique_key: str
    key: str | None
    broker: str
    queue_id: int
    offset: int
    stored: int
    first: str


@dataclass(frozen=True, slots=True)
class Late:
    """A message that was born before the one of the same key that stands in front of it in the queue."""

    topic: str
    key: str
    broker: str
    queue_id: int
    offset: int
    born: int
    behind: int


@dataclass(frozen=True, slots=True)
class Spread:
    """A key that is to be in order, and is in several queues."""

    topic: str
    key: str
    messages: int
    queues: int


@dataclass(frozen=True, slots=True)
class Gap:
    """Offsets from ``first`` up to, not including, ``end`` that a queue has counted and that hold no message."""

    topic: str
    broker: str
    queue_id: int
    first: int
    end: int

    @property
    def messages(self) -> int:
        return self.end - self.first


@dataclass(frozen=True, slots=True)
class Slot:
    """What a queue stored in a while that begins ``at``, in milliseconds."""

    topic: str
    broker: str
    queue_id: int
    at: int
    messages: int
    bytes: int


@dataclass(frozen=True, slots=True)
class LagSample:
    """How far a group was in a queue when somebody looked."""

    at: int
    group: str
    topic: str
    broker: str
    queue_id: int
    committed: int
    end: int

    @property
    def lag(self) -> int:
        return max(0, self.end - self.committed)


@dataclass(frozen=True, slots=True)
class LagPoint:
    """Messages that were stored and not yet consumed by the group, at a time."""

    group: str
    at: int
    waiting: int


@dataclass(frozen=True, slots=True)
class Consumer:
    """What one process consumed for a group: address and process number name it."""

    group: str
    consumer: str
    messages: int
    bytes: int
    queues: int


@dataclass(frozen=True, slots=True)
class Holding:
    """Who consumed a queue in a while; if several did, who had the most of it."""

    group: str
    topic: str
    broker: str
    queue_id: int
    at: int
    consumer: str
    messages: int


@dataclass(frozen=True, slots=True)
class Move:
    """A queue that changed hands: the first message that the new consumer got."""

    group: str
    topic: str
    broker: str
    queue_id: int
    offset: int
    at: int
    before: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicAudit:
    """One topic. Lists are cut at some length; counts are of all."""

    topic: str
    queues: tuple[QueueLoad, ...]
    brokers: tuple[BrokerLoad, ...]
    slots: tuple[Slot, ...]
    slot_ms: int
    queue_skew: Skew
    broker_skew: Skew
    # of the messages by key; ``parts`` is how many keys there are
    key_skew: Skew
    keyless: int
    keys: tuple[KeyLoad, ...]
    order: Order
    gaps: tuple[Gap, ...]
    copies: tuple[Copy, ...]
    copies_count: int
    late: tuple[Late, ...]
    late_count: int
    spread: tuple[Spread, ...]
    spread_count: int
    stored_after: Percentiles | None
    findings: tuple[Finding, ...] = ()

    @property
    def messages(self) -> int:
        return sum(queue.messages for queue in self.queues)

    @property
    def bytes(self) -> int:
        return sum(queue.bytes for queue in self.queues)

    @property
    def missing(self) -> int:
        return sum(gap.messages for gap in self.gaps)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupAudit:
    """One consumer group: its lag as its offsets tell, and what the trace tells of its consumers, where that is on."""

    group: str
    samples: tuple[LagSample, ...]
    lag: tuple[LagPoint, ...] = ()
    slot_ms: int = 0
    consumers: tuple[Consumer, ...] = ()
    consumer_skew: Skew | None = None
    holdings: tuple[Holding, ...] = ()
    moves: tuple[Move, ...] = ()
    moves_count: int = 0
    # messages that were handed out again, for whatever reason
    again: int = 0
    consumed_after: Percentiles | None = None
    whole_way: Percentiles | None = None
    handling: Percentiles | None = None

    @property
    def latest(self) -> tuple[LagSample, ...]:
        """Of every queue, the last look."""
        found = {(sample.topic, sample.broker, sample.queue_id): sample for sample in self.samples}
        return tuple(found[place] for place in sorted(found))

    @property
    def behind(self) -> int:
        return sum(sample.lag for sample in self.latest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """All of it. ``at`` is when, in milliseconds; ``report`` is where the page is, once it is written."""

    at: int
    topics: tuple[TopicAudit, ...]
    groups: tuple[GroupAudit, ...]
    traced: bool
    report: str | None = None

    @property
    def messages(self) -> int:
        return sum(topic.messages for topic in self.topics)

    @property
    def findings(self) -> tuple[Finding, ...]:
        return tuple(finding for topic in self.topics for finding in topic.findings)

    @property
    def clean(self) -> bool:
        return not self.findings

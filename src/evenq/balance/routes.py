"""The writable queues of a topic, laid out so that going round them is cheap."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from evenq.balance.roundrobin import Counter
from evenq.errors import ArgumentError
from evenq.model import MessageQueue

__all__ = ["PublishRoute"]

# Sets of brokers whose skips are kept for a route; only a cluster in great unrest sees more.
_MOST_KEPT = 64


@dataclass(frozen=True, slots=True)
class PublishRoute:
    """The queues that a producer may write to, in the order of the route, and the same by broker.

    >>> route = PublishRoute.of(MessageQueue("orders", broker, n) for broker in "ab" for n in range(2))
    >>> counter = Counter(1)
    >>> [str(route.next_without(counter, frozenset("b"))), counter.at]
    ['MessageQueue [topic=orders, brokerName=a, queueId=1]', 2]
    >>> [str(route.next_without(counter, frozenset("b"))), counter.at]
    ['MessageQueue [topic=orders, brokerName=a, queueId=0]', 5]
    """

    topic: str
    queues: tuple[MessageQueue, ...]
    by_broker: dict[str, tuple[MessageQueue, ...]] = field(repr=False, compare=False)
    # Brokers left out -> for each position how many queues to skip from there, () where none is left.
    _skips: dict[frozenset[str], tuple[int, ...]] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def of(cls, queues: Iterable[MessageQueue]) -> PublishRoute:
        everything = tuple(queues)
        by_broker: dict[str, list[MessageQueue]] = {}
        for queue in everything:
            by_broker.setdefault(queue.broker, []).append(queue)
        topic = everything[0].topic if everything else ""
        return cls(topic, everything, {broker: tuple(own) for broker, own in by_broker.items()})

    def next(self, counter: Counter) -> MessageQueue:
        """The queue that the counter points at; the counter moves on."""
        queues = self.queues
        if not queues:
            raise ArgumentError("queues", queues, "the topic has no queue that can be written: look at its permissions")
        at = counter.at
        counter.at = at + 1
        return queues[at % len(queues)]

    def next_without(self, counter: Counter, left_out: frozenset[str]) -> MessageQueue | None:
        """The first queue from the counter on whose broker is not left out, or None.

        The counter moves past the skipped queues too, so those that remain get even shares. Were it to move by
        one, the first queue after a broker that is left out would get that broker's whole share.
        """
        if not left_out:
            return self.next(counter)
        skips = self._skips.get(left_out)
        if skips is None:
            skips = self._count_skips(left_out)
        if not skips:
            return None
        at = counter.at
        at += skips[at % len(skips)]
        counter.at = at + 1
        return self.queues[at % len(skips)]

    def next_of(self, counter: Counter, broker: str) -> MessageQueue | None:
        """One of the broker's queues, by the counter; None where it has none here."""
        own = self.by_broker.get(broker)
        return own[counter.next() % len(own)] if own else None

    def _count_skips(self, left_out: frozenset[str]) -> tuple[int, ...]:
        skips = [0] * len(self.queues)
        if left_out.issuperset(self.by_broker):
            skips.clear()
        skip = 0
        # Backwards and twice round: what follows the last position is the first.
        for position in (*reversed(range(len(skips))), *reversed(range(len(skips)))):
            skip = skip + 1 if self.queues[position].broker in left_out else 0
            skips[position] = skip
        if len(self._skips) >= _MOST_KEPT:
            self._skips.clear()
        return self._skips.setdefault(left_out, tuple(skips))

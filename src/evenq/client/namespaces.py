"""The namespace of a consumer: inside, and for brokers, names have it; what its user gives and gets has not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING

import msgspec

from evenq.balance import Plan, StrategyLike
from evenq.balance.strategies import Config
from evenq.errors import ArgumentError
from evenq.model import MessageQueue
from evenq.protocol.names import topic_error, with_namespace, without_namespace
from evenq.protocol.view import MessageView

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Namespace"]


@dataclass(frozen=True, slots=True)
class Namespace:
    """Puts a name before those of topics and groups, and takes it away. An empty one leaves everything as it is.

    >>> shop = Namespace("shop")
    >>> shop.wrap("orders"), shop.wrap("%RETRY%billing"), shop.unwrap("shop%orders")
    ('shop%orders', '%RETRY%shop%billing', 'orders')
    >>> shop.wrap_queue(MessageQueue("orders", "broker-a", 1)).topic
    'shop%orders'
    """

    name: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or (self.name and (topic_error(self.name) or "%" in self.name)):
            raise ArgumentError("namespace", self.name, "give letters, digits, '_' and '-' only, or '' for none")

    def wrap(self, name: str) -> str:
        """A topic or group as brokers know it."""
        return with_namespace(self.name, name)

    def unwrap(self, name: str) -> str:
        return without_namespace(self.name, name)

    def wrap_queue(self, queue: MessageQueue) -> MessageQueue:
        return MessageQueue(self.wrap(queue.topic), queue.broker, queue.queue_id) if self.name else queue

    def unwrap_queue(self, queue: MessageQueue) -> MessageQueue:
        return MessageQueue(self.unwrap(queue.topic), queue.broker, queue.queue_id) if self.name else queue

    def unwrap_queues(self, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        return [self.unwrap_queue(queue) for queue in queues]

    def unwrap_messages(self, messages: list[MessageView]) -> list[MessageView]:
        if not self.name:
            return messages
        return [msgspec.structs.replace(message, topic=self.unwrap(message.topic)) for message in messages]

    def unwrap_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The same for the column ``topic``."""
        if not self.name or not len(batch):
            return batch
        import pyarrow.compute as pc

        from evenq.protocol.columns.arrays import texts

        at = batch.schema.get_field_index("topic")
        topics = batch.column(at)
        known = pc.unique(topics)
        named = texts([self.unwrap(topic) for topic in known.to_pylist()]).cast(topics.type)
        return batch.set_column(at, batch.schema.field(at), named.take(pc.index_in(topics, known)))

    def wrap_strategy(self, strategy: StrategyLike) -> StrategyLike:
        """``CONFIG`` with queues as brokers know them. Other strategies see them so anyway, as Java's do."""
        if self.name and isinstance(strategy, Config):
            return Config(tuple(map(self.wrap_queue, strategy.queues)))
        return strategy

    def wrap_plan_listener(self, listener: Callable[[Plan], None]) -> Callable[[Plan], None]:
        """A listener that gets plans with the user's names."""
        if not self.name:
            return listener

        @wraps(listener)
        def wrapped(plan: Plan) -> None:
            def mine(queues: Sequence[MessageQueue]) -> tuple[MessageQueue, ...]:
                return tuple(self.unwrap_queues(queues))

            listener(Plan(lose=mine(plan.lose), keep=mine(plan.keep), gain=mine(plan.gain)))

        return wrapped

"""The sync surface: what ``import evenq`` gives. Every method waits for the one of the same name in ``evenq.aio``."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from evenq.balance import Plan
from evenq.client import admin, producer, push
from evenq.client.dispatch import Handler
from evenq.client.facade import Facade, blocking, mirrors, pending
from evenq.model import MessageQueue

__all__ = ["Admin", "Producer", "PushConsumer"]


class Admin(Facade[admin.Admin]):
    __doc__ = admin.Admin.__doc__

    @mirrors(admin.Admin)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(admin.Admin(*args, **kwargs))

    topics = blocking(admin.Admin.topics)
    route = blocking(admin.Admin.route)
    topic_status = blocking(admin.Admin.topic_status)
    create_topic = blocking(admin.Admin.create_topic)
    update_topic = blocking(admin.Admin.update_topic)
    delete_topic = blocking(admin.Admin.delete_topic)

    groups = blocking(admin.Admin.groups)
    members = blocking(admin.Admin.members)
    consumers = blocking(admin.Admin.consumers)
    producers = blocking(admin.Admin.producers)
    create_group = blocking(admin.Admin.create_group)
    update_group = blocking(admin.Admin.update_group)
    delete_group = blocking(admin.Admin.delete_group)

    progress = blocking(admin.Admin.progress)
    holders = blocking(admin.Admin.holders)
    reset = blocking(admin.Admin.reset)

    message = blocking(admin.Admin.message)
    messages_by_key = blocking(admin.Admin.messages_by_key)
    messages_by_unique_key = blocking(admin.Admin.messages_by_unique_key)
    messages_at = blocking(admin.Admin.messages_at)

    brokers = blocking(admin.Admin.brokers)
    masters = blocking(admin.Admin.masters)
    broker_status = blocking(admin.Admin.broker_status)
    broker_settings = blocking(admin.Admin.broker_settings)
    counters = blocking(admin.Admin.counters)


class Producer(Facade[producer.Producer]):
    __doc__ = producer.Producer.__doc__

    @mirrors(producer.Producer)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(producer.Producer(*args, **kwargs))
        self._wait(self._inner.start())

    send = blocking(producer.Producer.send)
    send_async = pending(producer.Producer.send)

    @property
    def client_id(self) -> str:
        return self._inner.client_id


class PushConsumer(Facade[push.PushConsumer]):
    __doc__ = push.PushConsumer.__doc__

    @mirrors(push.PushConsumer)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(push.PushConsumer(*args, **kwargs))
        self._stopped = threading.Event()

    start = blocking(push.PushConsumer.start)

    def subscribe(self, topic: str, expression: str = "*") -> None:
        """Add a topic: all of it, or the messages with certain tags (``"paid || refunded"``)."""
        self._in_loop(self._inner.subscribe, topic, expression)

    def on_rebalance(self, listener: Callable[[Plan], None]) -> None:
        """Call ``listener`` with every plan (lose, keep, gain) before it is carried out."""
        self._in_loop(self._inner.on_rebalance, listener)

    def run(self, handler: Handler) -> None:
        """Consume until :meth:`stop`, KeyboardInterrupt or SystemExit, then hand over properly."""
        self.start(handler)
        try:
            self._stopped.wait()
        finally:
            self.close()

    def stop(self) -> None:
        """End :meth:`run`. May be called from any thread, and from a handler."""
        self._stopped.set()

    @property
    def client_id(self) -> str:
        return self._inner.client_id

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that this member holds now."""
        return self._inner.queues

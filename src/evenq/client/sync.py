"""The sync surface: what ``import evenq`` gives. Every method waits for the one of the same name in ``evenq.aio``."""

from __future__ import annotations

from typing import Any

from evenq.client import admin, producer
from evenq.client.facade import Facade, blocking, mirrors, pending
from evenq.client.sync_consumers import LitePullConsumer, PushConsumer

__all__ = ["Admin", "LitePullConsumer", "Producer", "PushConsumer"]


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

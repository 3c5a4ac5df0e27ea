"""The sync surface: what ``import evenq`` gives. Every method waits for the one of the same name in ``evenq.aio``."""

from __future__ import annotations

from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, cast

from evenq.balance import SelectorLike
from evenq.client import admin
from evenq.client.calling import is_async
from evenq.client.produce import producer
from evenq.client.produce.transactions import Execute, transaction_id
from evenq.client.sync.consumers import LitePullConsumer, PushConsumer
from evenq.client.sync.facade import Facade, blocking, mirrors, plain
from evenq.client.sync.pending import Pending
from evenq.model import Message, MessageQueue, SendResult, TransactionResult, TransactionState

__all__ = ["Admin", "LitePullConsumer", "Producer", "PushConsumer"]

# Messages that send_async lets be on their way at a time.
ROOM = 2048


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
    trace = blocking(admin.Admin.trace)

    dead_letters = blocking(admin.Admin.dead_letters)
    resend_dead_letters = blocking(admin.Admin.resend_dead_letters)

    brokers = blocking(admin.Admin.brokers)
    masters = blocking(admin.Admin.masters)
    broker_status = blocking(admin.Admin.broker_status)
    broker_settings = blocking(admin.Admin.broker_settings)
    counters = blocking(admin.Admin.counters)
    set_writable = blocking(admin.Admin.set_writable)


class Producer(Facade[producer.Producer]):
    __doc__ = producer.Producer.__doc__

    @mirrors(producer.Producer)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(producer.Producer(*args, **kwargs))
        # a token for each message that may be on its way: whoever sends faster than brokers store waits for one
        self._room: SimpleQueue[None] = SimpleQueue()
        for _ in range(ROOM):
            self._room.put(None)
        self._wait(self._inner.start())

    def send(
        self,
        message: Message,
        *,
        selector: SelectorLike | None = None,
        arg: object = None,
        queue: MessageQueue | None = None,
        timeout: float | None = None,
    ) -> SendResult:
        self._check()
        receipt: Pending[SendResult] = Pending()
        return self._result(self._begin(receipt, self._inner._begin, message, selector, arg, queue, timeout))

    send.__doc__ = producer.Producer.send.__doc__

    def send_async(
        self,
        message: Message,
        *,
        selector: SelectorLike | None = None,
        arg: object = None,
        queue: MessageQueue | None = None,
        timeout: float | None = None,
    ) -> Future[SendResult]:
        """Begin to send, and give the future of the receipt. Waits while very many are on their way.

        Those that are on their way at the same time may be stored in any order: for order wait for each.
        """
        self._check()
        self._room.get()
        receipt: Pending[SendResult] = Pending(self._leave_room)
        return self._begin(receipt, self._inner._begin, message, selector, arg, queue, timeout)

    on_send = plain(producer.Producer.on_send)

    def _leave_room(self) -> None:
        self._room.put(None)

    send_oneway = blocking(producer.Producer.send_oneway)
    send_batch = blocking(producer.Producer.send_batch)
    request = blocking(producer.Producer.request)
    reply = blocking(producer.Producer.reply)
    recall = blocking(producer.Producer.recall)
    flush = blocking(producer.Producer.flush)

    def send_in_transaction(
        self, message: Message, execute: Execute, *, timeout: float | None = None
    ) -> TransactionResult:
        # a plain function runs in the caller's own thread: that is where its database session lives
        if is_async(execute):
            return self._wait(self._inner.send_in_transaction(message, execute, timeout=timeout))
        half = self._wait(self._inner._begin_transaction(message, timeout))
        state = execute(message, transaction_id(half)) if half.ok else TransactionState.ROLLBACK
        return self._wait(self._inner._end_transaction(message, half, cast("TransactionState", state)))

    send_in_transaction.__doc__ = producer.Producer.send_in_transaction.__doc__

    @property
    def client_id(self) -> str:
        return self._inner.client_id

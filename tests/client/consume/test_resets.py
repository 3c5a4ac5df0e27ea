"""A reset that comes for a queue which was let go meanwhile, and one message that is consumed directly."""

from __future__ import annotations

import asyncio

import pytest

from evenq import LitePullConsumer, Message, MessageView, Producer, PushConsumer, Retry
from evenq.client.consume.calls import Calls
from evenq.client.consume.dispatch import Handler, Outcome
from evenq.client.consume.stats import Stats
from evenq.model import MessageQueue
from tests.client.consume.test_holding import message
from tests.clusters import AnyCluster, create_topic
from tests.waiting import wait_until


@pytest.mark.parametrize("kind", ["push", "lite pull"])
def test_a_reset_that_meets_a_rebalance_starts_no_second_reader(
    embedded_cluster: AnyCluster, topic: str, group: str, kind: str
) -> None:
    namesrv = embedded_cluster.namesrv
    create_topic(namesrv, topic, queues=1)
    queue = MessageQueue(topic, "broker-a", 0)
    with Producer(namesrv) as producer:
        for _ in range(5):
            producer.send(Message(topic, b"x"), queue=queue)
    consumer: PushConsumer | LitePullConsumer
    if kind == "push":
        consumer = PushConsumer(namesrv, group, begin="first")
        consumer.subscribe(topic)
        consumer.start(lambda messages: None)
    else:
        consumer = LitePullConsumer(namesrv, group, begin="first")
        consumer.subscribe(topic)
        consumer.start()
    with consumer, LitePullConsumer(namesrv, group) as looking:
        inner = consumer._inner

        def held() -> object:
            return next((each for each in inner._member.holdings if each.queue == queue), None)

        old = wait_until(held, "the queue")
        if kind == "lite pull":
            assert isinstance(consumer, LitePullConsumer)
            wait_until(lambda: consumer.poll(0.1) or consumer.position(queue) == 5, "the messages")
            consumer.commit()
        wait_until(lambda: looking.committed(queue) == 5, "all committed")
        consumer._in_loop(inner._member.retake, [queue])
        new = wait_until(lambda: found if (found := held()) is not old else None, "the queue taken anew")
        # what the administrator asked for comes late
        consumer._wait(inner._reset(old, 0))  # type: ignore[arg-type]
        reader = old.reader  # type: ignore[attr-defined]
        wait_until(reader.done, "the end of the old reader")
        assert held() is new
        assert not new.reader.done()  # type: ignore[attr-defined]
        assert looking.committed(queue) == 5


@pytest.mark.parametrize(
    ("result", "expected"), [(None, None), ([None], None), (Retry(1), Retry(1)), ([Retry(1)], [Retry(1)])], ids=repr
)
def test_one_message_that_is_consumed_directly_has_the_usual_results(result: Outcome, expected: Outcome) -> None:
    async def scenario(handler: Handler) -> Outcome:
        calls = Calls(handler, "g", timeout=900, stats=Stats())
        try:
            return await calls.direct(message(0))
        finally:
            calls.close()

    def plain(messages: list[MessageView]) -> Outcome:
        return result

    async def coroutine(messages: list[MessageView]) -> Outcome:
        return result

    assert [asyncio.run(scenario(handler)) for handler in (plain, coroutine)] == [expected] * 2

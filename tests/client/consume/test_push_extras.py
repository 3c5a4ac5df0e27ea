"""What push consumers do beside the plain course: conditions, outcomes one by one, handlers that hang, dead readers."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict

import pytest

import evenq
from evenq import Intervals, LitePullConsumer, Message, MessageQueue, MessageView, Producer, PushConsumer
from evenq.client.consume import push
from evenq.client.consume.calls import Calls
from evenq.testing import Clock, cluster
from tests.clusters import AnyCluster, create_topic
from tests.waiting import wait_until


def send(namesrv: str, topic: str, count: int, queue: MessageQueue | None = None) -> None:
    with Producer(namesrv) as producer:
        for number in range(count):
            message = Message(
                topic, b"%d" % number, properties={"n": str(number), "kind": "odd" if number % 2 else "even"}
            )
            assert producer.send(message, queue=queue).ok


def test_sql_conditions_choose_the_messages(any_cluster: AnyCluster, topic: str, group: str) -> None:
    create_topic(any_cluster.namesrv, topic, queues=2)
    send(any_cluster.namesrv, topic, 30)
    condition = "n BETWEEN 10 AND 19 AND kind = 'odd'"
    seen: list[int] = []
    with PushConsumer(any_cluster.namesrv, group, begin="first") as consumer:
        consumer.subscribe(topic, sql=condition)
        consumer.start(lambda messages: seen.extend(int(message.body) for message in messages))
        wait_until(lambda: len(seen) == 5, lambda: f"five messages: {seen}")
    assert sorted(seen) == [11, 13, 15, 17, 19]
    with LitePullConsumer(any_cluster.namesrv, f"{group}-pull", begin="first") as consumer_:
        consumer_.subscribe(topic, sql=condition)
        rows: list[int] = []

        def enough() -> bool:
            rows.extend(map(int, consumer_.poll_arrow(0.1).column("value").to_pylist()))
            return len(rows) >= 5

        wait_until(enough, lambda: f"five rows: {rows}")
    assert sorted(rows) == [11, 13, 15, 17, 19]


def test_of_a_batch_only_what_failed_comes_again(any_cluster: AnyCluster, topic: str, group: str) -> None:
    create_topic(any_cluster.namesrv, topic, queues=1)
    send(any_cluster.namesrv, topic, 8, MessageQueue(topic, "broker-a", 0))
    tries: defaultdict[bytes, int] = defaultdict(int)

    def handler(messages: list[MessageView]) -> list[evenq.Retry | None]:
        for message in messages:
            tries[message.body] += 1
        fails = [message.reconsume_times == 0 and int(message.body) % 4 == 0 for message in messages]
        return [evenq.Retry(delay_level=1) if failed else None for failed in fails]

    with PushConsumer(any_cluster.namesrv, group, begin="first", batch=4) as consumer:
        consumer.subscribe(topic)
        consumer.start(handler)
        wait_until(lambda: sum(tries.values()) == 10, lambda: f"two of them again: {dict(tries)}")
    assert {body for body, count in tries.items() if count == 2} == {b"0", b"4"}


def test_a_message_that_blocks_stalls_nothing_but_its_own_queues_commit(
    any_cluster: AnyCluster, topic: str, group: str
) -> None:
    create_topic(any_cluster.namesrv, topic, queues=1)
    first, other = MessageQueue(topic, "broker-a", 0), MessageQueue(topic, "broker-b", 0)
    send(any_cluster.namesrv, topic, 10, first)
    send(any_cluster.namesrv, topic, 10, other)
    free = threading.Event()
    seen: list[MessageQueue] = []

    def handler(messages: list[MessageView]) -> None:
        if messages[0].queue == first and messages[0].body == b"3":
            free.wait(30)
        seen.append(messages[0].queue)

    with PushConsumer(any_cluster.namesrv, group, begin="first", concurrency=2) as consumer:
        consumer.subscribe(topic)
        consumer.start(handler)
        wait_until(lambda: len(seen) == 19, lambda: f"all but one: {len(seen)}")
        with LitePullConsumer(any_cluster.namesrv, group) as looking:
            wait_until(lambda: looking.committed(other) == 10, "the other queue committed")
            wait_until(lambda: looking.committed(first) == 3, "the first committed up to the one that is not done")
            free.set()
            wait_until(lambda: looking.committed(first) == 10, "the rest committed")


def test_a_queue_that_nobody_pulls_any_more_is_taken_anew(
    embedded_cluster: AnyCluster,
    topic: str,
    group: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(push, "STALE", 0.5)
    create_topic(embedded_cluster.namesrv, topic, queues=1)
    seen: list[bytes] = []
    intervals = Intervals(rebalance=0.1)
    timeouts = evenq.Timeouts(hold=0.1)
    with PushConsumer(
        embedded_cluster.namesrv, group, begin="first", intervals=intervals, timeouts=timeouts
    ) as consumer:
        consumer.subscribe(topic)
        consumer.start(lambda messages: seen.extend(message.body for message in messages))
        wait_until(lambda: len(consumer.queues) == 2, "both queues")
        victim = next(each for each in consumer._inner._member.holdings if each.queue.topic == topic)
        assert victim.reader is not None
        consumer._in_loop(victim.reader.cancel)
        wait_until(lambda: victim.dropped, "the queue let go")
        send(embedded_cluster.namesrv, topic, 4, victim.queue)
        wait_until(lambda: len(seen) == 4, lambda: f"its messages: {seen}")
    assert "taken anew" in caplog.text


def test_a_listener_hears_which_queues_a_member_has(any_cluster: AnyCluster, topic: str, group: str) -> None:
    create_topic(any_cluster.namesrv, topic, queues=2)
    everything = [MessageQueue(topic, broker, n) for broker in ("broker-a", "broker-b") for n in range(2)]
    heard: list[tuple[list[MessageQueue], list[MessageQueue]]] = []
    with (
        PushConsumer(any_cluster.namesrv, group, instance="c1") as first,
        PushConsumer(any_cluster.namesrv, group, instance="c2") as second,
    ):

        def listener(name: str, queues: list[MessageQueue], mine: list[MessageQueue]) -> None:
            if name == topic:
                assert first.client_id  # may be called from here
                heard.append((queues, mine))

        first.on_assignment(listener)
        for member in (first, second):
            member.subscribe(topic)
            member.start(lambda messages: None)
        wait_until(lambda: (everything, everything[:2]) in heard, lambda: f"half of the queues: {heard}")
        wait_until(lambda: len(second.queues) == 2, "the other half")
        second.close()
        wait_until(lambda: heard[-1] == (everything, everything), lambda: f"all queues again: {heard}")


@pytest.mark.parametrize("orderly", [False, True], ids=["concurrent", "orderly"])
@pytest.mark.parametrize("plain", [False, True], ids=["coroutine", "function"])
def test_a_suspended_consumer_is_handed_nothing(
    orderly: bool, plain: bool, embedded_cluster: AnyCluster, topic: str, group: str
) -> None:
    create_topic(embedded_cluster.namesrv, topic, queues=1)
    queue = MessageQueue(topic, "broker-a", 0)
    seen: list[int] = []
    free = threading.Event()

    def handler(messages: list[MessageView]) -> None:
        seen.extend(int(message.body) for message in messages)
        free.wait(30)

    async def coroutine(messages: list[MessageView]) -> None:
        seen.extend(int(message.body) for message in messages)
        await asyncio.to_thread(free.wait, 30)

    with (
        PushConsumer(embedded_cluster.namesrv, group, begin="first", concurrency=1) as consumer,
        LitePullConsumer(embedded_cluster.namesrv, group) as looking,
    ):
        consumer.subscribe(topic)
        consumer.start(handler if plain else coroutine, orderly=orderly)
        send(embedded_cluster.namesrv, topic, 10, queue)
        wait_until(lambda: seen == [0], "a message in hand")
        consumer.suspend()
        free.set()
        wait_until(lambda: looking.committed(queue) == 1, "the message in hand ended")
        # a queue that comes meanwhile is suspended, too
        other = MessageQueue(topic, "broker-b", 0)
        consumer._in_loop(consumer._inner._member.retake, [other])
        wait_until(lambda: other not in consumer.queues, "the other queue let go")
        send(embedded_cluster.namesrv, topic, 10, other)

        def read_ahead() -> bool:
            return sum(held.cached.count for held in consumer._inner._member.holdings) == 19

        wait_until(read_ahead, "the rest read ahead")
        assert seen == [0]
        consumer.resume()
        wait_until(lambda: len(seen) == 20, lambda: f"the rest: {seen}")


@pytest.mark.live
@pytest.mark.parametrize("wrong", [True, False, [], [None], evenq.Retry], ids=repr)
def test_messages_with_a_wrong_result_come_again(
    wrong: object, topic: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    tries: defaultdict[bytes, list[int]] = defaultdict(list)

    def careless_handler(messages: list[MessageView]) -> object:
        for message in messages:
            tries[message.body].append(message.reconsume_times)
        return wrong if messages[0].reconsume_times == 0 else None

    with cluster(1, clock=clock.now) as own:
        create_topic(own.namesrv, topic, queues=1)
        queue = MessageQueue(topic, "broker-a", 0)
        send(own.namesrv, topic, 4, queue)
        with PushConsumer(own.namesrv, group, begin="first", batch=4, concurrency=1) as consumer:
            consumer.subscribe(topic)
            consumer.start(careless_handler)  # type: ignore[arg-type]
            with LitePullConsumer(own.namesrv, group) as looking:
                wait_until(lambda: looking.committed(queue) == 4, "the queue committed, for the retry topic has them")
            # the first redelivery comes after 10 s
            clock.advance(11)
            wait_until(
                lambda: sum(map(len, tries.values())) == 8, lambda: f"each of four messages again: {dict(tries)}"
            )
    assert dict(tries) == {b"%d" % number: [0, 1] for number in range(4)}
    named = [record.getMessage() for record in caplog.records if "careless_handler" in record.getMessage()]
    assert len(named) == 1
    assert f"={wrong!r}: return None" in named[0]


def test_a_queue_in_order_goes_on_after_a_wrong_result(
    embedded_cluster: AnyCluster, topic: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    create_topic(embedded_cluster.namesrv, topic, queues=1)
    queue = MessageQueue(topic, "broker-a", 0)
    send(embedded_cluster.namesrv, topic, 3, queue)
    seen: list[int] = []

    def careless_handler(messages: list[MessageView]) -> object:
        seen.append(messages[0].queue_offset)
        return None if seen.count(messages[0].queue_offset) > 1 else True

    with PushConsumer(embedded_cluster.namesrv, group, begin="first", suspend=0.01) as consumer:
        consumer.subscribe(topic)
        consumer.start(careless_handler, orderly=True)  # type: ignore[arg-type]
        with LitePullConsumer(embedded_cluster.namesrv, group) as looking:
            wait_until(lambda: looking.committed(queue) == 3, lambda: f"all committed: {seen}")
    assert seen == [0, 0, 1, 1, 2, 2]


def test_in_order_a_handler_that_hangs_is_called_once(
    embedded_cluster: AnyCluster, topic: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evenq.client.consume.calls.LOOK", 0.01)
    create_topic(embedded_cluster.namesrv, topic, queues=1)
    queue = MessageQueue(topic, "broker-a", 0)
    send(embedded_cluster.namesrv, topic, 3, queue)
    free = threading.Event()
    begun: list[int] = []

    def handler(messages: list[MessageView]) -> None:
        begun.append(messages[0].queue_offset)
        free.wait(60)

    looks: list[int] = []
    look = Calls.look

    def counted(running: Calls) -> None:
        look(running)
        looks.append(len(begun))

    monkeypatch.setattr(Calls, "look", counted)
    timeouts = evenq.Timeouts(consume=0.02)
    with PushConsumer(embedded_cluster.namesrv, group, begin="first", suspend=0.01, timeouts=timeouts) as consumer:
        consumer.subscribe(topic)
        consumer.start(handler, orderly=True)
        wait_until(lambda: looks.count(1) > 20 or len(begun) > 1, "many looks at a call that is overdue")
        assert begun == [0]
        free.set()
        with LitePullConsumer(embedded_cluster.namesrv, group) as looking:
            wait_until(lambda: looking.committed(queue) == 3, lambda: f"all committed: {begun}")
    assert begun == [0, 1, 2]


def test_a_call_from_before_a_reset_commits_nothing_after_it(
    embedded_cluster: AnyCluster, topic: str, group: str
) -> None:
    create_topic(embedded_cluster.namesrv, topic, queues=1)
    queue = MessageQueue(topic, "broker-a", 0)
    send(embedded_cluster.namesrv, topic, 1, queue)
    may_end = [threading.Event() for _ in range(10)]
    calls: list[list[int]] = []

    def handler(messages: list[MessageView]) -> None:
        number = len(calls)
        calls.append([message.queue_offset for message in messages])
        may_end[number].wait(60)

    with (
        PushConsumer(embedded_cluster.namesrv, group, begin="first", batch=32, concurrency=10) as consumer,
        LitePullConsumer(embedded_cluster.namesrv, group) as looking,
        evenq.Admin(embedded_cluster.namesrv) as admin,
    ):
        consumer.subscribe(topic)
        consumer.start(handler)
        wait_until(lambda: calls == [[0]], lambda: f"the first message: {calls}")
        admin.reset(group, topic, {queue: 0})
        # members hear of a reset by the answer to their next pull
        send(embedded_cluster.namesrv, topic, 1, queue)
        wait_until(lambda: [0, 1] in calls or calls.count([0]) == 2, lambda: f"the first message again: {calls}")
        [held] = [each for each in consumer._inner._member.holdings if each.queue == queue]
        running = held._running
        may_end[0].set()
        wait_until(lambda: held._running < running, "the end of the first call")
        consumer._wait(consumer._inner._member.commit_all())
        assert looking.committed(queue) == 0, "the second call has not ended"
        for event in may_end:
            event.set()
        wait_until(lambda: looking.committed(queue) == 2, "all committed")

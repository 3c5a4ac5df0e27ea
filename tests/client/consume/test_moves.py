"""What a change of members does to queues that stay where they are, and how members notice it."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable

import pytest

import evenq
from evenq import Admin, Intervals, Message, MessageQueue, MessageView, Producer, PushConsumer
from evenq.protocol import RequestCode, ResponseCode
from evenq.protocol.bodies import GroupConfig
from tests.clusters import AnyCluster, ask, brokers, create_topic
from tests.waiting import wait_until

# A queue whose lock nobody gives back would stay with its holder for longer.
SOON_S = 15.0


class Handled:
    """What was handed out of which queue. A call for a queue with a gate waits until that is open."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[MessageQueue] = Counter()
        self.gates: dict[MessageQueue, threading.Event] = {}

    def __call__(self, messages: list[MessageView]) -> None:
        with self._lock:
            self._counts.update(message.queue for message in messages)
        if gate := self.gates.get(messages[0].queue):
            gate.wait(60)

    def of(self, queue: MessageQueue) -> int:
        with self._lock:
            return self._counts[queue]


def queues_of(topic: str, each: int) -> list[MessageQueue]:
    return [MessageQueue(topic, broker, number) for broker in ("broker-a", "broker-b") for number in range(each)]


@pytest.mark.parametrize("strategy", ["AVG", "STICKY"])
@pytest.mark.parametrize("orderly", [False, True], ids=["concurrent", "orderly"])
def test_queues_that_stay_are_consumed_while_others_move(
    embedded_cluster: AnyCluster, topic: str, group: str, strategy: str, orderly: bool
) -> None:
    """The move takes as long as a call of the handler, and no other queue waits for it."""
    namesrv = embedded_cluster.namesrv
    create_topic(namesrv, topic, queues=2)
    handled, other = Handled(), Handled()
    timeouts = evenq.Timeouts(drain=60)
    with (
        Producer(namesrv) as producer,
        PushConsumer(namesrv, group, instance="c1", strategy=strategy, begin="first", timeouts=timeouts) as first,
        PushConsumer(namesrv, group, instance="c2", strategy=strategy, begin="first") as second,
    ):

        def send(queues: list[MessageQueue]) -> None:
            for queue in queues:
                assert producer.send(Message(topic, b"x"), queue=queue).ok

        everything = queues_of(topic, 2)
        handled.gates.update({queue: threading.Event() for queue in everything})
        first.subscribe(topic)
        first.start(handled, orderly=orderly)
        wait_until(lambda: first.queues == everything, "all queues")
        send(everything)
        wait_until(lambda: all(handled.of(queue) == 1 for queue in everything), "a call for each queue")
        readers = {held.queue: held.reader for held in first._inner._member.holdings if held.queue in everything}

        second.subscribe(topic)
        second.start(other, orderly=orderly)
        wait_until(lambda: len(first.queues) == 2, "two queues on their way to the other member")
        staying = first.queues
        moving = [queue for queue in everything if queue not in staying]
        # calls for queues that stay end, those for queues that move do not
        for queue in staying:
            handled.gates[queue].set()
        send(staying * 5)
        wait_until(lambda: all(handled.of(queue) == 6 for queue in staying), "messages of queues that stay")
        assert second.queues == []
        send(moving)
        for queue in moving:
            handled.gates[queue].set()
        wait_until(lambda: all(other.of(queue) == 1 for queue in moving), "messages of queues that moved", SOON_S)
        assert all(handled.of(queue) == 1 for queue in moving)
        left = {held.queue: held.reader for held in first._inner._member.holdings if held.queue in everything}
        assert left == {queue: readers[queue] for queue in staying}


def test_a_call_that_outlasts_the_drain_does_not_keep_its_queue(
    embedded_cluster: AnyCluster, topic: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    namesrv = embedded_cluster.namesrv
    create_topic(namesrv, topic, queues=1)
    handled, other = Handled(), Handled()
    everything = queues_of(topic, 1)
    handled.gates.update({queue: threading.Event() for queue in everything})
    timeouts = evenq.Timeouts(drain=0.05)
    with (
        PushConsumer(namesrv, group, instance="c1", begin="first", timeouts=timeouts) as first,
        PushConsumer(namesrv, group, instance="c2", begin="first") as second,
    ):
        first.subscribe(topic)
        first.start(handled)
        with Producer(namesrv) as producer:
            for queue in everything:
                producer.send(Message(topic, b"x"), queue=queue)
        wait_until(lambda: all(handled.of(queue) == 1 for queue in everything), "a call for each queue")
        second.subscribe(topic)
        second.start(other)
        # its message was not committed, so it comes again
        wait_until(lambda: sum(map(other.of, everything)) == 1, "the message of the queue that moved", SOON_S)
        [moved] = [queue for queue in everything if other.of(queue)]
        for gate in handled.gates.values():
            gate.set()
    assert f"{moved} is let go while 1 messages are still being consumed" in caplog.text


def leave_unnoticed(namesrv: str, group: str) -> None:
    """Let the brokers tell nobody of changes in this group."""
    config = GroupConfig(group_name=group, notify_consumer_ids_changed_enable=False)
    for address in brokers(namesrv).values():
        answer = ask(address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=config.encode())
        assert answer.code == ResponseCode.SUCCESS


def test_changes_that_nobody_tells_of_are_found_at_the_interval(
    any_cluster: AnyCluster, topic: str, group: str
) -> None:
    namesrv = any_cluster.namesrv
    create_topic(namesrv, topic, queues=2)
    leave_unnoticed(namesrv, group)
    with (
        PushConsumer(namesrv, group, instance="c1", intervals=Intervals(rebalance=0.2)) as first,
        PushConsumer(namesrv, group, instance="c2", intervals=Intervals(rebalance=0.2)) as second,
    ):
        for consumer in (first, second):
            consumer.subscribe(topic)
            consumer.start(lambda messages: None)
        wait_until(lambda: len(first.queues) == len(second.queues) == 2, "two queues each")
        second.close()
        wait_until(lambda: first.queues == queues_of(topic, 2), "all queues")


def wait_quiet(consumer: PushConsumer) -> None:
    """Wait until a member has nothing left to look at by itself."""
    member = consumer._inner._member

    def look() -> bool:
        timer, now = member.rebalancer._timer, asyncio.get_running_loop().time()
        planned = timer is not None and not timer.cancelled() and timer.when() > now
        return member.settled and not planned and not member.rebalancer._due.is_set()

    wait_until(lambda: consumer._in_loop(look), "a member that waits")


def test_a_member_that_leaves_is_noticed_at_once(any_cluster: AnyCluster, topic: str, group: str) -> None:
    namesrv = any_cluster.namesrv
    create_topic(namesrv, topic, queues=2)
    never = Intervals(rebalance=600)
    with (
        PushConsumer(namesrv, group, instance="c1", intervals=never) as first,
        PushConsumer(namesrv, group, instance="c2", intervals=never) as second,
    ):
        for consumer in (first, second):
            consumer.subscribe(topic)
            consumer.start(lambda messages: None)
        wait_until(lambda: len(first.queues) == len(second.queues) == 2, "two queues each")
        wait_quiet(first)
        second.close()
        wait_until(lambda: first.queues == queues_of(topic, 2), "all queues")


@pytest.mark.parametrize("kind", [PushConsumer, evenq.LitePullConsumer])
def test_queues_of_a_topic_that_is_deleted_stay_until_it_is_unsubscribed(
    kind: Callable[..., PushConsumer | evenq.LitePullConsumer], embedded_cluster: AnyCluster, topic: str, group: str
) -> None:
    namesrv = embedded_cluster.namesrv
    create_topic(namesrv, topic, queues=1)
    intervals = Intervals(routes=0.05, rebalance=0.05)
    with kind(namesrv, group, intervals=intervals) as consumer, Admin(namesrv) as admin:
        consumer.subscribe(topic)
        if isinstance(consumer, PushConsumer):
            consumer.start(lambda messages: None)
        else:
            consumer.start()
        wait_until(lambda: consumer.queues == queues_of(topic, 1), "both queues")
        admin.delete_topic(topic)
        inner = consumer._inner
        wait_until(lambda: inner._session.routes.known(topic) is None, "a route that is gone")
        rounds = inner._member.rebalancer.rounds
        wait_until(lambda: inner._member.rebalancer.rounds > rounds + 3, "some more looks")
        assert consumer.queues == queues_of(topic, 1)

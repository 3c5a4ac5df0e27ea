"""The push consumer on both brokers: shares, offsets, filters, retries, and hand-over under load."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

import evenq
from evenq import Message, MessageQueue, MessageView, Producer, PushConsumer
from evenq.balance import Plan, assign
from evenq.balance.measures import least_moves, moved
from evenq.client.settings import Intervals
from tests.clusters import AnyCluster, create_topic, wait_shown
from tests.traffic import Traffic
from tests.waiting import wait_until


class Group:
    """The members of one group in this process, and what each of them has consumed."""

    def __init__(self, namesrv: str, topic: str, group: str, stack: ExitStack) -> None:
        self.namesrv, self.topic, self.group = namesrv, topic, group
        self._stack = stack
        self.members: dict[str, PushConsumer] = {}
        self.crashed: list[PushConsumer] = []
        self.plans: list[tuple[str, Plan]] = []
        self._lock = threading.Lock()
        self.consumed: list[tuple[str, MessageView]] = []

    def join(self, name: str, *, expression: str = "*", **settings: object) -> PushConsumer:
        def handler(messages: list[MessageView]) -> None:
            with self._lock:
                self.consumed += [(name, message) for message in messages]

        settings = {"begin": "first", **settings}
        member = PushConsumer(self.namesrv, self.group, instance=name, **settings)  # type: ignore[arg-type]
        self._stack.callback(self._close, member)
        member.subscribe(self.topic, expression)
        member.on_rebalance(lambda plan: self.plans.append((name, plan)))
        member.start(handler)
        self.members[name] = member
        return member

    def _close(self, member: PushConsumer) -> None:
        if member not in self.crashed:
            member.close()

    def leave(self, name: str) -> None:
        self.members.pop(name).close()

    def change(self, what: str, strategy: str) -> None:
        """``+name`` joins, ``-name`` leaves."""
        if what[0] == "+":
            self.join(what[1:], strategy=strategy)
        else:
            self.leave(what[1:])

    def crash(self, name: str) -> None:
        """What a kill looks like to the brokers: the connections are gone, nothing was handed over."""
        member = self.members.pop(name)
        self.crashed.append(member)
        session = member._inner._session

        def cut() -> None:
            for task in session._tasks:
                task.cancel()
            member._inner._dispatcher = None
            session._closed = True
            session.connections.close()

        member._in_loop(cut)

    @property
    def bodies(self) -> list[bytes]:
        with self._lock:
            return [message.body for _, message in self.consumed]

    def wait_for(self, count: int) -> None:
        wait_until(lambda: len(set(self.bodies)) >= count, lambda: f"{count} messages: {len(set(self.bodies))} came")

    def wait_shared(self, strategy: str = "AVG") -> dict[str, list[MessageQueue]]:
        """Wait until every member holds exactly what the strategy gives it."""
        queues = [MessageQueue(self.topic, broker, n) for broker in ("broker-a", "broker-b") for n in range(4)]
        ids = {member.client_id: name for name, member in self.members.items()}
        shares = {ids[member]: sorted(share) for member, share in assign(strategy, queues, ids).items()}
        wait_until(lambda: self.held() == shares, lambda: f"shares {shares}: {self.held()}")
        return shares

    def wait_even(self) -> dict[str, list[MessageQueue]]:
        """Wait until all queues are held, each by one member, no two members more than one queue apart."""

        def even() -> bool:
            held = [queue for queues in self.held().values() for queue in queues]
            counts = [len(queues) for queues in self.held().values()]
            return len(held) == len(set(held)) == 8 and max(counts) - min(counts) <= 1

        wait_until(even, lambda: f"even shares: {self.held()}")
        return self.held()

    def held(self) -> dict[str, list[MessageQueue]]:
        return {name: member.queues for name, member in self.members.items()}


@pytest.fixture
def crowd(any_cluster: AnyCluster, topic: str, group: str) -> Iterator[Group]:
    create_topic(any_cluster.namesrv, topic, queues=4)
    with ExitStack() as stack:
        yield Group(any_cluster.namesrv, topic, group, stack)


def send(namesrv: str, topic: str, bodies: list[bytes], **settings: str) -> None:
    with Producer(namesrv) as producer:
        futures = [producer.send_async(Message(topic, body, **settings)) for body in bodies]  # type: ignore[arg-type]
        receipts = [future.result() for future in futures]
    assert all(receipt.ok for receipt in receipts)
    wait_shown(namesrv, receipts)


def numbered(count: int, prefix: bytes = b"m") -> list[bytes]:
    return [b"%s-%d" % (prefix, n) for n in range(count)]


def test_members_share_the_queues_and_each_message_comes_once(crowd: Group) -> None:
    for name in ("c1", "c2", "c3"):
        crowd.join(name)
    held = crowd.wait_shared()
    assert sorted(len(queues) for queues in held.values()) == [2, 3, 3]
    send(crowd.namesrv, crowd.topic, numbered(600))
    crowd.wait_for(600)
    assert Counter(crowd.bodies).most_common(1)[0][1] == 1
    owner = {queue: name for name, queues in held.items() for queue in queues}
    assert all(owner[message.queue] == name for name, message in crowd.consumed)


def test_what_was_consumed_is_committed_on_the_way_out(crowd: Group) -> None:
    send(crowd.namesrv, crowd.topic, numbered(50))
    crowd.join("c1")
    crowd.wait_for(50)
    crowd.leave("c1")
    send(crowd.namesrv, crowd.topic, numbered(10, b"later"))
    crowd.join("c2")
    crowd.wait_for(60)
    assert sorted(crowd.bodies) == sorted(numbered(50) + numbered(10, b"later"))


def test_a_group_that_begins_at_the_end_loses_nothing_that_comes_while_nobody_is_there(crowd: Group) -> None:
    send(crowd.namesrv, crowd.topic, numbered(800, b"old"))
    crowd.join("c1", begin="last")
    crowd.wait_shared()
    crowd.leave("c1")
    send(crowd.namesrv, crowd.topic, numbered(16, b"new"))
    crowd.join("c2", begin="last")
    wait_until(lambda: set(numbered(16, b"new")) <= set(crowd.bodies), "what came meanwhile")
    assert len(crowd.bodies) == len(set(crowd.bodies))


@pytest.mark.parametrize("strategy", ["AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH"])
def test_nothing_twice_and_nothing_lost_while_members_come_and_go(crowd: Group, strategy: str) -> None:
    crowd.join("c1", strategy=strategy)
    crowd.join("c2", strategy=strategy)
    crowd.wait_shared(strategy)
    with Traffic(crowd.namesrv, crowd.topic) as traffic:
        for change in ("+c3", "-c1", "+c1", "-c2"):
            crowd.change(change, strategy)
            crowd.wait_shared(strategy)
            traffic.flow(50)
    crowd.wait_for(len(traffic.sent))
    assert sorted(crowd.bodies) == sorted(traffic.sent)
    assert all(plan for _, plan in crowd.plans)


def test_sticky_moves_the_least_and_nothing_comes_twice(crowd: Group) -> None:
    crowd.join("c1", strategy="STICKY")
    crowd.wait_even()
    with Traffic(crowd.namesrv, crowd.topic) as traffic:
        for change in ("+c2", "+c3", "-c1", "+c4", "+c1", "-c3"):
            before = crowd.held()
            crowd.change(change, "STICKY")
            after = crowd.wait_even()
            queues = [queue for held in after.values() for queue in held]
            assert len(moved(before, after)) == least_moves(before, after, queues), change
    crowd.wait_for(len(traffic.sent))
    assert sorted(crowd.bodies) == sorted(traffic.sent)


def test_a_kept_queue_is_not_in_any_plan_to_lose(crowd: Group) -> None:
    crowd.join("c1")
    crowd.wait_shared()
    crowd.plans.clear()
    crowd.join("c2")
    crowd.wait_shared()
    lost = [queue for name, plan in crowd.plans if name == "c1" for queue in plan.lose if queue.topic == crowd.topic]
    assert len(lost) == 4
    assert not set(lost) & set(crowd.members["c1"].queues)


def test_only_the_tags_that_were_asked_for(crowd: Group) -> None:
    crowd.join("c1", expression="paid || refunded")
    crowd.wait_shared()
    send(crowd.namesrv, crowd.topic, numbered(20, b"paid"), tags="paid")
    send(crowd.namesrv, crowd.topic, numbered(20, b"created"), tags="created")
    send(crowd.namesrv, crowd.topic, numbered(20, b"refunded"), tags="refunded")
    crowd.wait_for(40)
    assert {message.tags for _, message in crowd.consumed} == {"paid", "refunded"}


def test_a_large_body_and_its_properties_arrive_as_they_were_sent(crowd: Group) -> None:
    crowd.join("c1")
    body = bytes(range(256)) * 400
    with Producer(crowd.namesrv) as producer:
        receipt = producer.send(
            Message(crowd.topic, body, tags="t", keys=["k-1", "k-2"], properties={"trace": "值 🚀", "a=b": "c"})
        )
    crowd.wait_for(1)
    [(_, got)] = crowd.consumed
    assert (got.body, got.tags, got.keys, got.unique_key) == (body, "t", ("k-1", "k-2"), receipt.msg_id)
    assert (got.queue, got.queue_offset, got.msg_id) == (receipt.queue, receipt.offset, receipt.offset_msg_id)
    assert (got.properties["trace"], got.properties["a=b"]) == ("值 🚀", "c")


@pytest.mark.parametrize("failure", ["raises", "returns"])
def test_a_message_whose_handler_fails_comes_again(
    any_cluster: AnyCluster, topic: str, group: str, failure: str
) -> None:
    create_topic(any_cluster.namesrv, topic)
    seen: list[MessageView] = []

    def handler(messages: list[MessageView]) -> evenq.Retry | None:
        seen.extend(messages)
        if messages[0].reconsume_times:
            return None
        if failure == "raises":
            raise RuntimeError("on purpose")
        return evenq.Retry(delay_level=1)

    with PushConsumer(any_cluster.namesrv, group, begin="first") as consumer:
        consumer.subscribe(topic)
        consumer.start(handler)
        send(any_cluster.namesrv, topic, [b"again"])
        wait_until(lambda: len(seen) >= 2, "the message again")
    first, second = seen[:2]
    assert (first.reconsume_times, second.reconsume_times) == (0, 1)
    assert (second.topic, second.body, second.unique_key) == (topic, b"again", first.unique_key)


def test_coroutine_handlers_run_in_the_loop(any_cluster: AnyCluster, topic: str, group: str) -> None:
    create_topic(any_cluster.namesrv, topic)
    seen: list[bytes] = []

    async def scenario() -> None:
        async with evenq.aio.PushConsumer(any_cluster.namesrv, group, begin="first", batch=8) as consumer:
            consumer.subscribe(topic)

            async def handler(messages: list[MessageView]) -> None:
                await asyncio.sleep(0)
                seen.extend(message.body for message in messages)
                if len(seen) == 100:
                    consumer.stop()

            async with asyncio.timeout(30):
                await consumer.run(handler)

    send(any_cluster.namesrv, topic, numbered(100))
    asyncio.run(scenario())
    assert sorted(seen) == sorted(numbered(100))


def test_queues_of_a_member_whose_connections_break_go_to_the_others(crowd: Group) -> None:
    crowd.join("c1")
    dying = crowd.join("c2", intervals=Intervals(rebalance=600))
    crowd.wait_shared()
    crowd.crash("c2")
    wait_until(lambda: len(crowd.members["c1"].queues) == 8, lambda: f"c1 alone: {crowd.held()}", 10)
    send(crowd.namesrv, crowd.topic, numbered(80))
    crowd.wait_for(80)
    assert {name for name, _ in crowd.consumed} == {"c1"}
    assert dying.queues  # it never let them go by itself


def test_run_ends_with_stop_and_gives_everything_back(crowd: Group) -> None:
    send(crowd.namesrv, crowd.topic, numbered(5))
    seen: list[bytes] = []
    with PushConsumer(crowd.namesrv, crowd.group, begin="first") as consumer:
        consumer.subscribe(crowd.topic)

        def handler(messages: list[MessageView]) -> None:
            seen.extend(message.body for message in messages)
            if len(seen) == 5:
                consumer.stop()

        consumer.run(handler)
        assert consumer.queues == []
    assert sorted(seen) == sorted(numbered(5))


def test_a_sync_client_says_what_to_use_inside_a_loop(any_cluster: AnyCluster) -> None:
    async def scenario() -> None:
        with pytest.raises(evenq.StateError, match=r"use evenq\.aio\.Producer here"):
            Producer(any_cluster.namesrv)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("act", "complaint"),
    [
        (lambda: PushConsumer("h:1", ""), "group=''"),
        (lambda: PushConsumer("h:1", "g", begin="yesterday"), "begin='yesterday'.*'last', 'first' or a datetime"),
        (lambda: PushConsumer("h:1", "g", batch=0), "batch=0"),
        (lambda: PushConsumer("h:1", "g", strategy="AVERAGE"), "strategy='AVERAGE'.*AVG"),
        (lambda: PushConsumer("h:1", "g", instance="two words"), "instance='two words'"),
    ],
)
def test_bad_settings_are_named(act: Callable[[], object], complaint: str) -> None:
    with pytest.raises(evenq.ArgumentError, match=complaint):
        act()


def test_running_without_a_topic_is_an_error() -> None:
    with PushConsumer("127.0.0.1:1", "g") as consumer, pytest.raises(evenq.StateError, match="subscribe"):
        consumer.start(lambda messages: None)

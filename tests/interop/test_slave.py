"""A broker's slave serves the consumers while their master is away."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import ExitStack

import pytest

from evenq import Message, MessageQueue, MessageView, Producer, PushConsumer, Timeouts
from evenq.client.group.handover import ORPHAN_AFTER_S, ORPHAN_PAUSE_S
from evenq.protocol import RequestCode, ResponseCode
from evenq.protocol.bodies import LockRequest, TopicRoute
from evenq.protocol.headers import MaxOffsetRequest, OffsetResponse, QueryOffset, RouteRequest
from tests.clusters import ask, create_topic
from tests.realmq import RealCluster, Unavailable
from tests.waiting import wait_until

QUEUES = 4
COUNT = 200
# less than the interval of rebalancing: nobody waits for a look that is due anyway
SOON_S = 12.0


class Members:
    """Members of groups for one topic, and what each group consumed."""

    def __init__(self, namesrv: str, topic: str, stack: ExitStack) -> None:
        self._namesrv, self._topic, self._stack = namesrv, topic, stack
        self._lock = threading.Lock()
        self._consumed: dict[str, Counter[bytes]] = {}
        # messages that were given to busy handlers
        self.in_hand = 0

    def join(self, group: str, instance: str, *, busy: threading.Event | None = None) -> PushConsumer:
        """``busy`` holds the member's handler up until it is set."""

        def handle(messages: list[MessageView]) -> None:
            if busy is not None:
                with self._lock:
                    self.in_hand += len(messages)
                busy.wait(60)
            with self._lock:
                self._consumed.setdefault(group, Counter()).update(message.body for message in messages)

        # a busy handler has all messages at once, and is waited for
        member = PushConsumer(
            self._namesrv,
            group,
            instance=instance,
            begin="first",
            concurrency=COUNT,
            ramp_up=0,
            timeouts=Timeouts(drain=60.0),
        )
        self._stack.callback(member.close)
        member.subscribe(self._topic)
        member.start(handle)
        return member

    def consumed(self, group: str) -> Counter[bytes]:
        with self._lock:
            return Counter(self._consumed.get(group, {}))

    def wait_consumed(self, group: str, sent: set[bytes]) -> None:
        def told() -> str:
            return f"{len(sent)} messages consumed by {group}: {len(self.consumed(group))}"

        wait_until(lambda: self.consumed(group).keys() == sent, told, SOON_S)


def send(namesrv: str, topic: str, name: str, count: int) -> set[bytes]:
    with Producer(namesrv) as producer:
        bodies = {b"%s-%d" % (name.encode(), number) for number in range(count)}
        for body in bodies:
            producer.send(Message(topic, body))
    return bodies


def ends(address: str, topic: str) -> int:
    """How many messages the broker at this address has."""
    headers = [MaxOffsetRequest(topic=topic, queue_id=number) for number in range(QUEUES)]
    return sum(
        OffsetResponse.from_ext(ask(address, RequestCode.GET_MAX_OFFSET, header).ext).offset for header in headers
    )


def read_route(namesrv: str, topic: str) -> TopicRoute:
    answer = ask(namesrv, RequestCode.GET_ROUTEINFO_BY_TOPIC, RouteRequest(topic=topic, accept_standard_json_only=True))
    return TopicRoute.decode(answer.body)


def committed(address: str, group: str, topic: str) -> int:
    """How far the group is, by what the broker at this address has stored."""
    total = 0
    for number in range(QUEUES):
        header = QueryOffset(consumer_group=group, topic=topic, queue_id=number, set_zero_if_not_found=False)
        answer = ask(address, RequestCode.QUERY_CONSUMER_OFFSET, header)
        total += OffsetResponse.from_ext(answer.ext).offset if answer.code == ResponseCode.SUCCESS else 0
    return total


def wait_committed(address: str, group: str, topic: str, count: int) -> None:
    wait_until(
        lambda: committed(address, group, topic) == count,
        lambda: f"{count} messages committed at {address}: {committed(address, group, topic)}",
    )


@pytest.mark.live
def test_consumption_goes_on_while_the_master_is_away(topic: str, group: str) -> None:
    with _cluster() as cluster, ExitStack() as stack:
        namesrv = cluster.namesrv
        create_topic(namesrv, topic, queues=QUEUES)
        sent = send(namesrv, topic, "before", COUNT)
        cluster.add_slave("broker-a")
        slave = cluster.brokers["broker-a-slave"]
        wait_until(lambda: ends(slave, topic) == COUNT, lambda: f"{COUNT} messages on the slave: {ends(slave, topic)}")
        members = Members(namesrv, topic, stack)
        staying, leaving = members.join(group, "staying"), members.join(group, "leaving")
        members.wait_consumed(group, sent)
        wait_until(lambda: (len(staying.queues), len(leaving.queues)) == (2, 2), "two queues at each member")

        cluster.kill_broker("broker-a")
        members.join(f"{group}-new", "new")
        members.wait_consumed(f"{group}-new", sent)
        wait_committed(slave, group, topic, COUNT)
        leaving.close()
        wait_until(lambda: len(staying.queues) == QUEUES, lambda: f"all queues: {staying.queues}", SOON_S)

        cluster.start_broker("broker-a")
        sent |= send(namesrv, topic, "after", COUNT)
        members.wait_consumed(group, sent)
        members.wait_consumed(f"{group}-new", sent)
        wait_committed(cluster.brokers["broker-a"], group, topic, 2 * COUNT)
        assert set(members.consumed(group).values()) == {1}, "nothing came twice"


@pytest.mark.live
def test_a_newcomer_waits_for_a_slow_handler_without_a_master(topic: str, group: str) -> None:
    with _cluster() as cluster, ExitStack() as stack:
        namesrv = cluster.namesrv
        create_topic(namesrv, topic, queues=QUEUES)
        sent = send(namesrv, topic, "before", COUNT)
        cluster.add_slave("broker-a")
        slave = cluster.brokers["broker-a-slave"]
        wait_until(lambda: ends(slave, topic) == COUNT, lambda: f"{COUNT} messages on the slave: {ends(slave, topic)}")
        cluster.kill_broker("broker-a")
        members, go_on = Members(namesrv, topic, stack), threading.Event()
        stack.callback(go_on.set)
        slow = members.join(group, "slow", busy=go_on)
        wait_until(lambda: members.in_hand == COUNT, lambda: f"all messages in hand: {members.in_hand}")
        newcomer = members.join(group, "newcomer")
        wait_until(lambda: len(slow.queues) == QUEUES // 2, lambda: f"half of the queues: {slow.queues}")
        # longer than it takes to find a lock without an owner
        assert not go_on.wait(2 * (ORPHAN_AFTER_S + ORPHAN_PAUSE_S))
        assert newcomer.queues == []
        go_on.set()
        members.wait_consumed(group, sent)
        assert set(members.consumed(group).values()) == {1}, "nothing came twice"


@pytest.mark.live
@pytest.mark.parametrize("master_away", [True, False])
def test_locks_of_the_dead_are_found_beside_a_slave(
    topic: str, group: str, master_away: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with _cluster() as cluster, ExitStack() as stack:
        namesrv = cluster.namesrv
        create_topic(namesrv, topic, queues=QUEUES)
        cluster.add_slave("broker-a")
        slave = cluster.brokers["broker-a-slave"]
        wait_until(lambda: slave in read_route(namesrv, topic).broker_datas[0].broker_addrs.values(), "the slave")
        if master_away:
            cluster.kill_broker("broker-a")
        queues = [MessageQueue(topic, "broker-a", number) for number in range(QUEUES)]
        locks = LockRequest(consumer_group=f"HANDOVER-{group}", client_id="dead", mq_set=queues)
        ask(
            cluster.brokers["broker-a-slave" if master_away else "broker-a"],
            RequestCode.LOCK_BATCH_MQ,
            body=locks.encode(),
        )
        members = Members(namesrv, topic, stack)
        pair = [members.join(group, name) for name in ("one", "two")]
        wait_until(lambda: [len(member.queues) for member in pair] == [2, 2], "two queues at each member", SOON_S)
    assert "belong to members that are gone" in caplog.text


def _cluster() -> RealCluster:
    try:
        return RealCluster(brokers=1)
    except Unavailable as missing:
        pytest.skip(str(missing))

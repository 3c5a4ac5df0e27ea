"""A broker's slave serves the consumers while their master is away."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import ExitStack

import pytest

from evenq import Message, MessageView, Producer, PushConsumer
from evenq.protocol import RequestCode, ResponseCode
from evenq.protocol.headers import MaxOffsetRequest, OffsetResponse, QueryOffset
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

    def join(self, group: str, instance: str) -> PushConsumer:
        def handle(messages: list[MessageView]) -> None:
            with self._lock:
                self._consumed.setdefault(group, Counter()).update(message.body for message in messages)

        member = PushConsumer(self._namesrv, group, instance=instance, begin="first")
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


def _cluster() -> RealCluster:
    try:
        return RealCluster(brokers=1)
    except Unavailable as missing:
        pytest.skip(str(missing))

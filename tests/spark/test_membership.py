"""A query as a member of its group, without a session: what Spark would call, while others come and go."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

import evenq
from evenq.model import Message
from evenq.protocol.names import RETRY
from evenq.protocol.view import MessageView
from evenq.spark.lookup import Lookup
from evenq.spark.offsets import Progress
from evenq.spark.options import read_options
from evenq.spark.reader import StreamReader
from tests.clusters import AnyCluster
from tests.spark.conftest import Send
from tests.waiting import wait_until

Offset = dict[str, Any]


class Query:
    """A streaming query: it reads micro-batches, each of which is done when the next one is asked for."""

    def __init__(self, options: dict[str, str], start: Offset | None = None) -> None:
        self.reader = StreamReader(read_options(options))
        self.at = self.reader.initialOffset() if start is None else start
        self.seen: list[str] = []

    def poll(self) -> bool:
        """Read a micro-batch if there is one."""
        ahead = self.reader.latestOffset(self.at, ReadAllAvailable())
        if ahead == self.at:
            return False
        self.at = ahead
        self.run(ahead)
        return True

    def run(self, offset: Offset) -> None:
        for task in self.reader.partitions({}, offset):
            for batch in self.reader.read(task):
                self.seen += [value.decode() for value in batch.column("value").to_pylist()]

    def holds(self) -> int:
        """How many queues of the topic are ours now. Asking says that the last batch is done."""
        self.poll()
        held = self.reader._held(Progress.from_json(self.at)).reached
        return sum(not queue.topic.startswith(RETRY) for queue in held)


Start = Callable[..., Query]


@pytest.fixture
def start(any_cluster: AnyCluster, topic: str, group: str) -> Iterator[Start]:
    with ExitStack() as stack:

        def make(offset: Offset | None = None, **options: str) -> Query:
            least = {"namesrv": any_cluster.namesrv, "subscribe": topic, "group": group, "group.join": "true"}
            query = Query(least | {"startingOffsets": "earliest"} | options, offset)
            stack.callback(query.reader.stop)
            return query

        yield make


def bodies(topic: str, first: int, count: int) -> list[Message]:
    return [Message(topic, b"%d" % n) for n in range(first, first + count)]


def stored(any_cluster: AnyCluster, topic: str, group: str) -> int:
    with Lookup(read_options({"namesrv": any_cluster.namesrv, "subscribe": topic})) as lookup:
        return sum(lookup.stored(group, lookup.queues()).values())


def test_queries_share_the_queues_and_hand_them_over_between_batches(
    any_cluster: AnyCluster, start: Start, send: Send, topic: str, group: str
) -> None:
    first = start()
    wait_until(lambda: first.holds() == 4, "all queues")
    send(bodies(topic, 0, 40))
    assert first.poll()
    assert len(first.seen) == 40

    # the batch of the first query runs, so the second one must wait for its share
    second = start()
    assert not second.poll()
    assert stored(any_cluster, topic, group) == 0
    wait_until(lambda: first.holds() == 2 and second.holds() == 2, "two queues each")
    assert second.seen == []
    send(bodies(topic, 40, 40))
    wait_until(
        lambda: [first.poll(), second.poll()] and len(first.seen) + len(second.seen) >= 80,
        lambda: f"80: {len(first.seen)} and {len(second.seen)}",
    )
    assert Counter(first.seen + second.seen) == Counter(map(str, range(80)))
    assert second.seen
    wait_until(lambda: [first.poll(), second.poll()] and stored(any_cluster, topic, group) == 80, "what was read")

    # what a query leaves goes to the other one, from where it was
    first.reader.stop()
    send(bodies(topic, 80, 40))
    wait_until(lambda: [second.poll()] and len(first.seen) + len(second.seen) >= 120, "the rest", 60)
    assert Counter(first.seen + second.seen) == Counter(map(str, range(120)))


def test_a_query_tells_what_it_holds(any_cluster: AnyCluster, start: Start, send: Send, topic: str, group: str) -> None:
    query = start()
    wait_until(lambda: query.holds() == 4, "all queues")
    with evenq.Admin(any_cluster.namesrv) as admin:
        holders = [holder for holder in admin.holders(group) if holder.queue.topic == topic]
    assert len(holders) == 4
    assert all(holder.told for holder in holders), "by itself: nobody has to suppose it"


def test_a_query_shares_with_consumers_whose_failures_it_may_get(
    any_cluster: AnyCluster, start: Start, send: Send, topic: str, group: str
) -> None:
    query = start()
    wait_until(lambda: query.holds() == 4, "all queues")
    lock = threading.Lock()
    consumed: list[str] = []
    failed = threading.Event()

    def handler(messages: list[MessageView]) -> evenq.Retry | None:
        with lock:
            if not failed.is_set():
                failed.set()
                return evenq.Retry(delay_level=1)
            consumed.extend(message.body.decode() for message in messages)
            return None

    with evenq.PushConsumer(any_cluster.namesrv, group, instance="consumer", begin="first") as consumer:
        consumer.subscribe(topic)
        consumer.start(handler)
        wait_until(lambda: [query.poll()] and len(consumer.queues) == 2, "two queues each")
        send(bodies(topic, 0, 200))

        def everything() -> list[str]:
            query.poll()
            with lock:
                return query.seen + consumed

        wait_until(lambda: len(everything()) >= 200, lambda: f"200: {len(everything())}", 60)
        assert Counter(everything()) == Counter(map(str, range(200)))
        assert query.seen
        assert consumed


def test_a_restart_goes_on_from_the_checkpoint_or_the_group_whichever_is_ahead(
    any_cluster: AnyCluster, start: Start, send: Send, topic: str, group: str
) -> None:
    first = start()
    wait_until(lambda: first.holds() == 4, "all queues")
    send(bodies(topic, 0, 40))
    assert first.poll()
    # the batch was done and written down, but the query ended before it could tell the group
    first.reader.stop()
    assert stored(any_cluster, topic, group) == 0

    again = start(first.at)
    wait_until(lambda: again.holds() == 4, "all queues", 60)
    assert again.seen == []
    wait_until(lambda: stored(any_cluster, topic, group) == 40, "what the checkpoint knew")
    send(bodies(topic, 40, 40))
    assert again.poll()
    again.poll()
    again.reader.stop()
    wait_until(lambda: stored(any_cluster, topic, group) == 80, "what was read")

    # an old checkpoint: the group is ahead, and nothing is read again
    late = start(first.at)
    wait_until(lambda: late.holds() == 4, "all queues", 60)
    send(bodies(topic, 80, 8))
    wait_until(lambda: [late.poll()] and len(late.seen) >= 8, "what is new")
    assert Counter(late.seen) == Counter(map(str, range(80, 88)))
    # a batch that was written down and not done is read again exactly, whoever has the queues
    late.seen.clear()
    late.run(again.at)
    assert Counter(late.seen) == Counter(map(str, range(40, 80)))


def test_available_now_reads_its_share(start: Start, send: Send, topic: str) -> None:
    query = start()
    send(bodies(topic, 0, 40))
    query.reader.prepareForTriggerAvailableNow()
    send(bodies(topic, 40, 8))
    while query.poll():
        pass
    assert len(query.seen) == 40

"""A streaming query, Python consumers and a Java consumer in one group, while members come and go."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from evenq import MessageView, PushConsumer
from evenq.model import Begin
from tests.clusters import AnyCluster, create_topic
from tests.realmq import JavaHost
from tests.traffic import Traffic
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

QUEUES = 8


class Group:
    """Members of one group, and what all of them have processed."""

    def __init__(self, cluster: AnyCluster, topic: str, group: str, spark: SparkSession, folder: Path) -> None:
        self.namesrv, self.topic, self.group = cluster.namesrv, topic, group
        self._spark, self._folder = spark, folder
        self._lock = threading.Lock()
        self._seen: list[tuple[str, bytes]] = []

    def query(self) -> StreamingQuery:
        def take(frame: DataFrame, number: int) -> None:
            self._add("query", [bytes(row.value) for row in frame.select("value").collect()])

        options = {"namesrv": self.namesrv, "subscribe": self.topic, "group": self.group, "group.join": "true"}
        stream = self._spark.readStream.format("rocketmq").options(**options, startingOffsets="earliest").load()
        return stream.writeStream.foreachBatch(take).option("checkpointLocation", str(self._folder)).start()

    def consumer(self, name: str) -> PushConsumer:
        def handler(messages: list[MessageView]) -> None:
            self._add(name, [message.body for message in messages])

        member = PushConsumer(self.namesrv, self.group, instance=name, begin="first", batch=8)
        member.subscribe(self.topic)
        member.start(handler)
        return member

    def _add(self, name: str, bodies: list[bytes]) -> None:
        with self._lock:
            self._seen += [(name, body) for body in bodies]

    def seen(self) -> Counter[bytes]:
        with self._lock:
            return Counter(body for _, body in self._seen)

    def forget(self) -> None:
        with self._lock:
            self._seen.clear()

    def wait_more(self, name: str) -> None:
        """Wait until a member has processed something more than by now."""

        def count() -> int:
            with self._lock:
                return sum(who == name for who, _ in self._seen)

        before = count()
        wait_until(lambda: count() > before, f"something that {name} gets", 180)


def test_a_query_and_consumers_share_the_queues_while_members_come_and_go(
    any_cluster: AnyCluster, java: JavaHost, spark: SparkSession, topic: str, group: str, tmp_path: Path
) -> None:
    create_topic(any_cluster.namesrv, topic, queues=QUEUES)
    members = Group(any_cluster, topic, group, spark, tmp_path / "checkpoint")
    with ExitStack() as stack:
        query = members.query()
        stack.callback(query.stop)
        with Traffic(any_cluster.namesrv, topic) as traffic:
            members.wait_more("query")
            first = members.consumer("py-1")
            stack.callback(first.close)
            members.wait_more("py-1")
            second = members.consumer("py-2")
            stack.callback(second.close)
            members.wait_more("py-2")
            members.wait_more("query")
            first.close()
            members.wait_more("query")
            traffic.flow(100)
        _all_seen(members, traffic)
        assert set(members.seen().values()) == {1}, "changes were graceful, so nothing came twice"

        # the bodies are the same again
        members.forget()
        # a Java member takes no hand-over locks: what it gets may come twice, but nothing is lost
        with Traffic(any_cluster.namesrv, topic) as more:
            other = java.push(any_cluster.namesrv, group, topic, instance="java-1", begin=Begin.FIRST)
            stack.callback(other.stop)
            wait_until(lambda: other.messages, "something that the Java member gets", 180)
            members.wait_more("query")
            members.wait_more("py-2")
            other.stop()
            more.flow(100)
        _all_seen(members, more, lambda: {received.message.body for received in other.messages})
        assert query.isActive


def _all_seen(members: Group, traffic: Traffic, elsewhere: Callable[[], set[bytes]] = set) -> None:
    sent = set(traffic.sent)
    wait_until(
        lambda: members.seen().keys() | elsewhere() >= sent,
        lambda: f"{len(sent)}: {len(sent - members.seen().keys() - elsewhere())} are missing",
        90,
    )

"""mqadmin from rocketmq-tools, command by command: what it prints is compared with what is true, on both clusters.

Most commands only look, so they share one stage: a topic with messages, and a Java member that has consumed them.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from evenq.model import Begin, Message, MessageQueue, SendResult
from evenq.protocol import RequestCode, bodies, headers
from evenq.protocol.lenient import loads
from tests.clusters import AnyCluster, ask, brokers, create_topic, route, wait_shown
from tests.realmq import JavaError, JavaHost, JavaMember
from tests.waiting import wait_until

COUNT = 40
QUEUES = 4


@dataclass(frozen=True)
class Stage:
    """What the commands look at."""

    namesrv: str
    java: JavaHost
    topic: str
    group: str
    producer_id: str
    member: JavaMember
    receipts: list[SendResult]

    def run(self, command: str, *arguments: str) -> str:
        return self.java.mqadmin(command, "-n", self.namesrv, *arguments)

    def rows(self, command: str, *arguments: str) -> list[list[str]]:
        """The lines of a table, cut into words, without its head."""
        lines = self.run(command, *arguments).splitlines()
        return [line.split() for line in lines if line.strip() and not line.startswith("#")]

    @property
    def brokers(self) -> dict[str, str]:
        return brokers(self.namesrv)

    @property
    def ends(self) -> dict[MessageQueue, int]:
        """Where each queue ends, by what the producer was told."""
        return dict(Counter(receipt.queue for receipt in self.receipts))


@pytest.fixture(scope="module")
def stage(any_cluster: AnyCluster, java_host: JavaHost) -> Iterator[Stage]:
    namesrv = any_cluster.namesrv
    name = f"{time.time_ns():x}"
    topic, group, producers = f"stage-{name}", f"audience-{name}", f"actors-{name}"
    create_topic(namesrv, topic, queues=QUEUES)
    producer = java_host.producer(namesrv, producers)
    messages = [
        Message(topic, b"body %d" % number, keys=[f"k{number}", "all"], tags="odd" if number % 2 else "even")
        for number in range(COUNT)
    ]
    receipts = producer.send(messages)
    member = java_host.push(namesrv, group, topic, begin=Begin.FIRST)
    member.wait_for(COUNT)
    stage = Stage(namesrv, java_host, topic, group, producer.client_id, member, receipts)
    wait_until(lambda: committed(stage) == stage.ends, "the group's offsets", seconds=60)
    yield stage
    java_host.stop_clients()


def committed(stage: Stage) -> dict[MessageQueue, int]:
    """The offsets of the group, asked of the brokers themselves."""
    table: dict[MessageQueue, int] = {}
    for address in stage.brokers.values():
        header = headers.ConsumeStatsRequest(consumer_group=stage.group, topic=stage.topic)
        stats = bodies.ConsumeStats.decode(ask(address, RequestCode.GET_CONSUME_STATS, header).body)
        table |= {queue: pair.consumer_offset for queue, pair in stats.offset_table.items()}
    return table


def by_queue(topic: str, rows: list[list[str]], at: int) -> dict[MessageQueue, list[str]]:
    """The rows of a table by queue; its broker stands at ``at``, its number behind that."""
    return {MessageQueue(topic, row[at], int(row[at + 1])): row[at + 2 :] for row in rows}


def field(printed: str, name: str) -> str:
    found = re.search(rf"^{name}:\s+(.*)$", printed, re.MULTILINE)
    assert found is not None, printed
    return found[1]


# -- clusters and brokers


def test_stats_of_everything(stage: Stage) -> None:
    def row() -> list[str]:
        (found,) = stage.rows("statsAll", "-t", stage.topic)
        return found

    # the Java broker counts in steps of 10 s, and has forgotten the minute after a minute: so this one comes first
    wait_until(lambda: row()[5:] == [str(COUNT)] * 2, lambda: f"{COUNT} in and out: {row()}")
    assert row()[:3] == [stage.topic, stage.group, "0"]


def test_cluster_list(stage: Stage) -> None:
    rows = stage.rows("clusterList")
    assert [row[:4] for row in rows] == [
        ["DefaultCluster", name, "0", address] for name, address in sorted(stage.brokers.items())
    ]
    assert all(row[-1] == "true" for row in rows)

    def came_and_went() -> tuple[int, int]:
        totals = stage.rows("clusterList", "-m")
        return sum(int(row[4]) for row in totals), sum(int(row[5]) for row in totals)

    wait_until(lambda: min(came_and_went()) >= COUNT, lambda: f"{COUNT} messages in and out: {came_and_went()}")


def test_broker_status(stage: Stage) -> None:
    for address in stage.brokers.values():
        printed = stage.run("brokerStatus", "-b", address)
        figures = dict(re.findall(r"^(\w+) *: (.*)$", printed, re.MULTILINE))
        assert int(figures["bootTimestamp"]) < time.time() * 1000
        assert int(figures["msgPutTotalTodayNow"]) > 0
        assert int(figures["commitLogMinOffset"]) < int(figures["commitLogMaxOffset"])
        assert re.fullmatch(r"\[ 0 days, \d+ hours, \d+ minutes, \d+ seconds \]", figures["runtime"])
        assert float(figures["putTps"].split()[0]) >= 0


def test_broker_config(stage: Stage) -> None:
    name, address = next(iter(stage.brokers.items()))

    def setting(key: str) -> str:
        found = re.search(rf"^{key} +=  (.*)$", stage.run("getBrokerConfig", "-b", address), re.MULTILINE)
        assert found is not None
        return found[1]

    assert setting("brokerName") == name
    assert setting("listenPort") == address.rpartition(":")[2]
    assert setting("maxMessageSize") == "4194304"
    for value in ("4194305", "4194304"):
        printed = stage.run("updateBrokerConfig", "-b", address, "-k", "maxMessageSize", "-v", value)
        assert "update broker config success" in printed
        assert setting("maxMessageSize") == value


def test_broker_consume_stats(stage: Stage) -> None:
    ends = stage.ends
    for name, address in stage.brokers.items():
        printed = stage.rows("brokerConsumeStats", "-b", address, "-l", "0")
        rows = [row[1:] for row in printed if row[0] == stage.topic]
        assert {row[0] for row in rows} == {stage.group}
        for queue, row in by_queue(stage.topic, rows, 1).items():
            assert queue.broker == name
            assert row[:3] == [str(ends[queue]), str(ends[queue]), "0"]
        assert len(rows) == QUEUES


# -- topics


def test_topic_list(stage: Stage) -> None:
    names = set(stage.run("topicList").split())
    assert {stage.topic, f"%RETRY%{stage.group}", "TBW102", "DefaultCluster", "SCHEDULE_TOPIC_XXXX"} <= names
    rows = stage.rows("topicList", "-c")
    assert ["DefaultCluster", stage.topic, stage.group] in rows


def test_topic_cluster_list(stage: Stage) -> None:
    assert stage.run("topicClusterList", "-t", stage.topic).split() == ["DefaultCluster"]


def test_topic_route(stage: Stage) -> None:
    found = loads(stage.run("topicRoute", "-t", stage.topic))
    assert {data["brokerName"]: data["brokerAddrs"]["0"] for data in found["brokerDatas"]} == stage.brokers
    queues = {data["brokerName"]: data["writeQueueNums"] for data in found["queueDatas"]}
    assert queues == dict.fromkeys(stage.brokers, QUEUES)
    with pytest.raises(JavaError, match="No topic route info"):
        stage.run("topicRoute", "-t", "there-is-none")


def test_topic_status(stage: Stage) -> None:
    rows = [row for row in stage.rows("topicStatus", "-t", stage.topic) if row[0] in stage.brokers]
    found = by_queue(stage.topic, rows, 0)
    assert {queue: row[:2] for queue, row in found.items()} == {
        queue: ["0", str(end)] for queue, end in stage.ends.items()
    }
    today = time.strftime("%Y-%m-%d")
    assert {row[2] for row in found.values()} <= {today, time.strftime("%Y-%m-%d")}


def test_topics_are_made_changed_and_deleted(stage: Stage, topic: str) -> None:
    printed = stage.run("updateTopic", "-c", "DefaultCluster", "-t", topic, "-r", "3", "-w", "2", "-o", "true")
    for address in stage.brokers.values():
        assert f"create topic to {address} success." in printed
        config = bodies.TopicConfig.decode(
            ask(address, RequestCode.GET_TOPIC_CONFIG, headers.TopicRequest(topic=topic)).body
        )
        assert (config.read_queue_nums, config.write_queue_nums, config.perm, config.order) == (3, 2, 6, True)
    wait_until(lambda: route(stage.namesrv, topic) == dict.fromkeys(stage.brokers, 2), "the topic's route")

    address = stage.brokers["broker-a"]
    stage.run("updateTopic", "-b", address, "-t", topic, "-r", "5", "-w", "5", "-p", "4")
    wait_until(lambda: route(stage.namesrv, topic) == {"broker-a": 5, "broker-b": 2}, "the topic's changed route")

    printed = stage.run("deleteTopic", "-c", "DefaultCluster", "-t", topic)
    assert f"delete topic [{topic}] from cluster [DefaultCluster] success." in printed
    assert "from NameServer success" in printed
    wait_until(lambda: route(stage.namesrv, topic) == {}, "no route of the topic")
    for address in stage.brokers.values():
        assert ask(address, RequestCode.GET_TOPIC_CONFIG, headers.TopicRequest(topic=topic)).code != 0


# -- groups and clients


def test_consumer_progress(stage: Stage) -> None:
    printed = stage.run("consumerProgress", "-g", stage.group)
    rows = [line.split()[1:] for line in printed.splitlines() if line.startswith(stage.topic)]
    assert {queue: row[:4] for queue, row in by_queue(stage.topic, rows, 0).items()} == {
        queue: [str(end), str(end), "0", "0"] for queue, end in stage.ends.items()
    }
    assert "Consume Diff Total: 0" in printed
    (row,) = [row for row in stage.rows("consumerProgress") if row[0] == stage.group]
    assert row[1:5] == ["1", "V5_4_0", "PUSH", "CLUSTERING"]
    assert row[6] == "0"


def test_consumer_connection(stage: Stage) -> None:
    printed = stage.run("consumerConnection", "-g", stage.group)
    (client,) = [line.split() for line in printed.splitlines() if line.startswith(stage.member.client_id)]
    assert client[2:] == ["JAVA", "V5_4_0"]
    assert re.search(rf"^{stage.topic} +\*$", printed, re.MULTILINE)
    assert re.search(rf"^%RETRY%{stage.group} +\*$", printed, re.MULTILINE)
    assert field(printed, "ConsumeType") == "CONSUME_PASSIVELY"
    assert field(printed, "MessageModel") == "CLUSTERING"
    assert field(printed, "ConsumeFromWhere") == "CONSUME_FROM_FIRST_OFFSET"
    with pytest.raises(JavaError, match=r"not online|No topic route info"):
        stage.run("consumerConnection", "-g", f"{stage.group}-nobody")


def test_producer_connection(stage: Stage) -> None:
    group = stage.topic.replace("stage", "actors")

    def rows() -> list[list[str]] | None:
        try:
            return stage.rows("producerConnection", "-g", group, "-t", stage.topic)
        except JavaError:
            return None

    ((_, client_id, _, language, version),) = wait_until(rows, "the producer's heartbeat")
    assert (client_id, language, version) == (stage.producer_id, "JAVA", "V5_4_0")
    printed = [stage.run("producer", "-b", address) for address in stage.brokers.values()]
    assert any(stage.producer_id in each and group in each for each in printed)


def test_consumer_status_is_the_members_own(stage: Stage) -> None:
    printed = stage.run("consumerStatus", "-g", stage.group)
    assert stage.member.client_id in printed
    assert "Rebalance OK" in printed
    printed = stage.run("consumerStatus", "-g", stage.group, "-i", stage.member.client_id)
    assert re.search(rf"consumerGroup +: {stage.group}$", printed, re.MULTILINE)
    held = [line for line in printed.splitlines() if line.startswith(stage.topic) and "ProcessQueueInfo" in line]
    assert len(held) == QUEUES * len(stage.brokers)


def test_groups_are_made_changed_and_deleted(stage: Stage, group: str) -> None:
    def config(address: str) -> bodies.GroupConfig | None:
        answer = ask(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        return bodies.GroupConfigTable.decode(answer.body).subscription_group_table.get(group)

    printed = stage.run("updateSubGroup", "-c", "DefaultCluster", "-g", group, "-r", "3", "-q", "2", "-s", "false")
    for address in stage.brokers.values():
        assert f"create subscription group to {address} success." in printed
        made = config(address)
        assert made is not None
        assert (made.retry_max_times, made.retry_queue_nums, made.consume_enable) == (3, 2, False)
    printed = stage.run("deleteSubGroup", "-c", "DefaultCluster", "-g", group, "-r", "true")
    assert printed.count("success") == len(stage.brokers)
    assert [config(address) for address in stage.brokers.values()] == [None] * len(stage.brokers)


# -- messages


def check_printed_message(stage: Stage, printed: str, number: int) -> None:
    receipt = stage.receipts[number]
    assert field(printed, "Topic") == stage.topic
    assert field(printed, "Keys") == f"[k{number} all]"
    assert field(printed, "Queue ID") == str(receipt.queue.queue_id)
    assert field(printed, "Queue Offset") == str(receipt.offset)
    assert field(printed, "Store Host") == stage.brokers[receipt.queue.broker]
    assert f"UNIQ_KEY={receipt.msg_id}" in field(printed, "Properties")
    body = Path(field(printed, "Message Body Path"))
    assert body.read_bytes() == b"body %d" % number
    body.unlink()


def test_query_message_by_id(stage: Stage) -> None:
    receipt = stage.receipts[3]
    printed = stage.run("queryMsgById", "-t", stage.topic, "-i", receipt.offset_msg_id)
    assert field(printed, "OffsetID") == receipt.offset_msg_id
    check_printed_message(stage, printed, 3)
    assert f"MessageTrack [consumerGroup={stage.group}, trackType=CONSUMED, exceptionDesc=null]" in printed


def test_a_message_is_consumed_directly(stage: Stage) -> None:
    before = len(stage.member.messages)
    identity = ("-g", stage.group, "-d", stage.member.client_id)
    printed = stage.run("queryMsgById", "-t", stage.topic, "-i", stage.receipts[5].offset_msg_id, *identity)
    assert "consumeResult=CR_SUCCESS" in printed
    assert stage.member.wait_for(before + 1)[-1].message.body == b"body 5"


def test_query_message_by_key(stage: Stage) -> None:
    (row,) = stage.rows("queryMsgByKey", "-t", stage.topic, "-k", "k7")
    receipt = stage.receipts[7]
    assert row[:3] == [receipt.msg_id, str(receipt.queue.queue_id), str(receipt.offset)]
    rows = stage.rows("queryMsgByKey", "-t", stage.topic, "-k", "all", "-m", "64")
    assert sorted(row[0] for row in rows) == sorted(receipt.msg_id for receipt in stage.receipts)
    with pytest.raises(JavaError, match=r"no message|NO_MESSAGE|finished, but no message"):
        stage.run("queryMsgByKey", "-t", stage.topic, "-k", "no-such-key")


def test_query_message_by_unique_key(stage: Stage) -> None:
    printed = stage.run("queryMsgByUniqueKey", "-t", stage.topic, "-i", stage.receipts[9].msg_id)
    check_printed_message(stage, printed, 9)
    assert "trackType=CONSUMED" in printed


def test_a_consume_queue_is_shown(stage: Stage) -> None:
    queue, end = next(iter(stage.ends.items()))
    printed = stage.run(
        "queryCq",
        "-t",
        stage.topic,
        "-q",
        str(queue.queue_id),
        "-i",
        "0",
        "-c",
        "99",
        "-b",
        stage.brokers[queue.broker],
    )
    assert len(re.findall(r"^idx: \d+", printed, re.MULTILINE)) == end


def test_messages_are_sent_consumed_and_printed(stage: Stage, topic: str) -> None:
    create_topic(stage.namesrv, topic, queues=2)
    for number in range(3):
        to = ("-b", "broker-a", "-i", "1") if number else ("-b", "broker-b", "-i", "0")
        (row,) = stage.rows("sendMessage", "-t", topic, "-p", f"tool {number}", "-k", f"k{number}", "-c", "red", *to)
        assert row[:3] == [to[1], to[3], "SEND_OK"]

    def printed(*command: str) -> list[str]:
        return [line.split("BODY: ")[1] for line in stage.run(*command).splitlines() if "BODY: " in line]

    # the Java broker acknowledges a message before its queue shows it
    consume = ("consumeMessage", "-t", topic, "-b", "broker-a", "-i", "1", "-o", "0", "-c", "2")
    wait_until(lambda: printed(*consume) == ["tool 1", "tool 2"], lambda: f"two messages: {printed(*consume)}")
    everything = ("printMsg", "-t", topic, "-d", "true", "-s", "red")
    assert sorted(printed(*everything)) == [f"tool {number}" for number in range(3)]
    assert "BODY" not in stage.run("printMsg", "-t", topic, "-d", "true", "-s", "blue")


# -- offsets


def test_offsets_are_reset_by_time_and_cloned(stage: Stage, topic: str, group: str) -> None:
    create_topic(stage.namesrv, topic, queues=2)
    producer = stage.java.producer(stage.namesrv)
    producer.send([Message(topic, b"early %d" % number) for number in range(8)])
    member = stage.java.push(stage.namesrv, group, topic, begin=Begin.FIRST)
    member.wait_for(8)
    member.stop()
    now = max(received.message.store_timestamp for received in member.messages) + 1
    wait_until(lambda: time.time() * 1000 > now, "the next millisecond")
    wait_shown(stage.namesrv, producer.send([Message(topic, b"late %d" % number) for number in range(8)]))

    rows = stage.rows("resetOffsetByTime", "-g", group, "-t", topic, "-s", str(now))
    assert by_queue(topic, rows[1:], 0) == {
        MessageQueue(topic, broker, number): ["2"] for broker in stage.brokers for number in range(2)
    }
    member = stage.java.push(stage.namesrv, group, topic, begin=Begin.LAST)
    assert {received.message.body for received in member.wait_for(8)} == {b"late %d" % number for number in range(8)}
    member.stop()

    stage.rows("resetOffsetByTime", "-g", group, "-t", topic, "-s", "0")
    clone = f"{group}-clone"
    stage.run("updateSubGroup", "-c", "DefaultCluster", "-g", clone)
    printed = stage.run("cloneGroupOffset", "-s", group, "-d", clone, "-t", topic, "-o", "true")
    assert "clone group offset success" in printed
    for each in (group, clone):
        member = stage.java.push(stage.namesrv, each, topic, begin=Begin.LAST)
        assert len({received.message.body for received in member.wait_for(16)}) == 16
        member.stop()


@pytest.mark.slow
def test_a_member_that_consumes_goes_where_its_group_is_reset_to(stage: Stage, topic: str, group: str) -> None:
    create_topic(stage.namesrv, topic, queues=1)
    member = stage.java.push(stage.namesrv, group, topic, begin=Begin.FIRST)
    stage.java.producer(stage.namesrv).send([Message(topic, b"%d" % number) for number in range(6)])
    member.wait_for(6)

    stage.run("resetOffsetByTime", "-g", group, "-t", topic, "-s", "0")

    # the Java broker tells a member that waits for messages only when its time is up, after 15 s
    assert Counter(received.message.body for received in member.wait_for(12, 90)) == Counter(
        {b"%d" % number: 2 for number in range(6)}
    )
    member.stop()

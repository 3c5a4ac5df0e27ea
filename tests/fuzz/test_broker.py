"""Damaged requests against a running cluster: each is answered or its connection is closed; nothing else suffers."""

from __future__ import annotations

import asyncio
import gc
import random
from collections import Counter
from collections.abc import Iterator

import pytest

import evenq
from evenq.protocol import Command, FrameParser, RequestCode
from evenq.protocol.batch import BatchEntry, encode_batch
from evenq.protocol.bodies import ConsumerData, Heartbeat, LockRequest, ProducerData
from evenq.protocol.filters import subscription
from evenq.protocol.records import encode_record
from evenq.testing import EmbeddedCluster, cluster
from tests.clusters import create_topic
from tests.harness.scale import scaled

pytestmark = pytest.mark.live

FRAMES = scaled(10_000, 100_000)
LANES = 8
TOPIC = "fuzz"

# Words that stand in header fields of any request: what they mean is for the handlers to find out.
EXT = {
    "topic": TOPIC, "queueId": "1", "queueOffset": "0", "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0",
    "suspendTimeoutMillis": "0", "subscription": "*", "expressionType": "TAG", "consumerGroup": "g", "offset": "0",
    "timestamp": "1700000000000", "clientID": "c", "clientId": "c", "producerGroup": "p", "group": "g", "key": "k",
    "maxNum": "8", "beginTimestamp": "0", "endTimestamp": "99999999999999", "delayLevel": "1", "defaultTopic": "TBW102",
    "readQueueNums": "4", "writeQueueNums": "4", "perm": "6", "topicFilterType": "SINGLE_TAG", "order": "false",
    "brokerName": "broker-a", "brokerAddr": "127.0.0.1:1", "clusterName": "DefaultCluster", "brokerId": "7",
    "haServerAddr": "127.0.0.1:2", "bornTimestamp": "1700000000000", "defaultTopicQueueNums": "4", "flag": "0",
    "properties": "KEYS\x01k\x02TAGS\x01t\x02", "msgId": "7F00000100002A9F0000000000000000", "isForce": "true",
    "tranStateTableOffset": "0", "commitLogOffset": "0", "commitOrRollback": "8", "namespace": "n", "value": "v",
    "a": "p", "b": TOPIC, "c": "TBW102", "d": "4", "e": "1", "f": "0", "g": "1700000000000", "h": "0",
    "i": "KEYS\x01k\x02", "j": "0", "k": "false", "m": "false", "count": "4", "index": "0", "statsName": "s",
    "statsKey": "k",
}  # fmt: skip

# These end what the rest of the test needs, or ask others and wait for them.
LEFT_OUT = {RequestCode.DELETE_TOPIC_IN_BROKER, RequestCode.UNREGISTER_BROKER}


def bodies() -> list[bytes]:
    """One of each kind of body that handlers read."""
    heartbeat = Heartbeat(
        client_id="c",
        producer_data_set=[ProducerData(group_name="p")],
        consumer_data_set=[ConsumerData(group_name="g", subscription_data_set=[subscription(TOPIC, version=1)])],
    )
    queue = evenq.MessageQueue(TOPIC, "broker-a", 0)
    record = encode_record(
        topic=TOPIC, body=b"x" * 50, queue_id=0, queue_offset=0, commit_log_offset=0, born_timestamp=1,
        born_host="127.0.0.1:1", store_timestamp=2, store_host="127.0.0.1:2", properties="KEYS\x01k\x02",
    )  # fmt: skip
    return [
        b"",
        b"x" * 100,
        b"{}",
        heartbeat.encode(),
        LockRequest(consumer_group="g", client_id="c", mq_set=[queue]).encode(),
        encode_batch([BatchEntry(b"one", "KEYS\x01a\x02"), BatchEntry(b"two")]),
        record,
    ]


def frames(seed: int) -> Iterator[bytes]:
    """Requests of every code with every kind of body, each damaged in a few places behind its length."""
    chance = random.Random(seed)
    codes = [code for code in RequestCode if code not in LEFT_OUT]
    kinds = bodies()
    while True:
        code = chance.choice(codes) if chance.random() < 0.97 else chance.randrange(-(2**15), 2**15)
        ext = {key: EXT[key] for key in chance.sample(sorted(EXT), chance.randrange(len(EXT)))} | {"topic": TOPIC}
        if chance.random() < 0.3:
            ext = EXT | {chance.choice(sorted(EXT)): chance.choice(["", "-1", "9" * 30, "x", "\x00", "2147483648"])}
        ext["suspendTimeoutMillis"] = "0"
        command = Command(code, ext=ext, body=chance.choice(kinds), opaque=chance.randrange(2**31))
        # a ROCKETMQ header has no room for the codes of later years
        frame = bytearray(command.encode("JSON" if chance.random() < 0.7 or code >= 2**15 else "ROCKETMQ"))
        for _ in range(chance.choice((0, 0, 1, 1, 2, 5))):
            frame[chance.randrange(4, len(frame))] = chance.randrange(256)
        yield bytes(frame)


def is_whole(frame: bytes) -> bool:
    """Whether a peer can make a command of it, however strange."""
    try:
        Command.decode(frame)
    except evenq.ProtocolError:
        return False
    return True


class Client:
    """Sends frames over connections of its own and counts what becomes of each.

    A connection takes commands until one frame is none: those must have been dealt with by then, and that one must
    end the connection.
    """

    END = Command(RequestCode.GET_BROKER_CLUSTER_INFO, opaque=2**31 - 1).encode()

    def __init__(self, addresses: list[str], seed: int) -> None:
        self._chance = random.Random(seed)
        self._addresses = addresses
        self._frames = frames(seed)
        self.outcomes: Counter[str] = Counter()

    async def run(self, count: int) -> None:
        while self.outcomes["dealt with"] + self.outcomes["closed"] < count:
            await self._one_connection()

    async def _one_connection(self) -> None:
        commands: list[bytes] = []
        while is_whole(frame := next(self._frames)):
            commands.append(frame)
        host, _, port = self._chance.choice(self._addresses).rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            async with asyncio.timeout(30):
                # requests of a connection are handled in order: the answer to the last tells that all were
                writer.write(b"".join(commands) + self.END)
                await self._until_end(reader)
                self.outcomes["dealt with"] += len(commands)
                writer.write(frame)
                while await reader.read(1 << 16):
                    pass
                self.outcomes["closed"] += 1
        except ConnectionError:
            self.outcomes["closed"] += 1
        finally:
            writer.close()

    async def _until_end(self, reader: asyncio.StreamReader) -> None:
        parser = FrameParser()
        while data := await reader.read(1 << 16):
            answers = parser.feed(data)
            self.outcomes["answers"] += len(answers)
            if any(answer.opaque == 2**31 - 1 and answer.is_response for answer in answers):
                return
        raise AssertionError("the connection was closed though every frame was a command")


@pytest.fixture
def running() -> Iterator[EmbeddedCluster]:
    with cluster(brokers=2) as found:
        create_topic(found.namesrv, TOPIC)
        yield found


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_damaged_requests_harm_nothing_else(
    running: EmbeddedCluster, caplog: pytest.LogCaptureFixture, rng: random.Random
) -> None:
    caplog.set_level("CRITICAL")
    brokers = running.call(lambda: list(running.brokers.values()))
    addresses = [running.namesrv, *(broker.address for broker in brokers)]

    async def scenario() -> Counter[str]:
        clients = [Client(addresses, rng.randrange(2**32)) for _ in range(LANES)]
        await asyncio.gather(*(client.run(FRAMES // LANES) for client in clients))
        return sum((client.outcomes for client in clients), Counter())

    outcomes = asyncio.run(scenario())
    gc.collect()
    assert outcomes["dealt with"] + outcomes["closed"] >= FRAMES
    assert outcomes["closed"] > FRAMES // 20
    # the damage made some of them one-way, or answers; nearly all others were answered
    assert outcomes["answers"] > 0.9 * outcomes["dealt with"]

    # nothing is left behind, and the cluster works as before
    left = running.call(lambda: sum(len(broker.waiting_pulls) for broker in running.brokers.values()))
    assert left == 0
    create_topic(running.namesrv, "after")
    with evenq.Producer(running.namesrv) as producer:
        receipts = [producer.send(evenq.Message("after", b"x")) for _ in range(16)]
    assert {receipt.queue.broker for receipt in receipts} == {"broker-a", "broker-b"}

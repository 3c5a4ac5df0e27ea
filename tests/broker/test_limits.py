"""Limits: over them the sender gets RocketMQ's own code, and a word about which limit it is."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TypeVar

import pytest

from evenq.broker import BrokerSettings
from evenq.broker.limits import Limits
from evenq.protocol import bodies, headers
from evenq.protocol.batch import BatchEntry, encode_batch
from evenq.protocol.codes import RequestCode, ResponseCode
from evenq.protocol.command import Command
from evenq.protocol.filters import SQL92
from evenq.protocol.properties import encode_properties
from evenq.protocol.records import decode_messages
from evenq.testing import EmbeddedCluster, cluster
from tests.broker.peers import Peer
from tests.waiting import wait_until

pytestmark = pytest.mark.live

T = TypeVar("T")

SETTINGS = BrokerSettings(
    max_message=2_000_000,
    max_topic=20,
    limits=Limits(
        max_connections=12,
        max_unsent_bytes=64 * 1024,
        max_unsent_total_bytes=6 * 1024 * 1024,
        max_sql_chars=100,
        max_queues_per_topic=16,
        max_batch_messages=50,
        max_admin_rows=10,
    ),
)


@pytest.fixture(scope="module")
def strict() -> Iterator[EmbeddedCluster]:
    with cluster(settings=SETTINGS) as running:
        yield running


@pytest.fixture
def address(strict: EmbeddedCluster) -> str:
    return strict.brokers["broker-a"].address


@pytest.fixture
def peer(address: str) -> Iterator[Peer]:
    with Peer(address) as connected:
        yield connected


def test_a_message_may_have_so_many_bytes(peer: Peer) -> None:
    assert peer.put("orders", bytes(2_000_000)).code == ResponseCode.SUCCESS
    refused = peer.put("orders", bytes(2_000_001))
    assert refused.code == ResponseCode.MESSAGE_ILLEGAL
    assert "2000001 bytes, over the limit 2000000" in (refused.remark or "")
    batch = encode_batch([BatchEntry(bytes(1_000_000)), BatchEntry(bytes(1_000_000))])
    assert peer.ask(RequestCode.SEND_BATCH_MESSAGE, Peer.send_header("orders"), batch).code == refused.code


@pytest.mark.parametrize("letter", ["x", "ü", "\U0001f680"])
def test_properties_may_have_so_many_bytes(peer: Peer, letter: str) -> None:
    for count in (32_000 // len(letter.encode()), 32_767 // len(letter.encode())):
        answer = peer.put("orders", properties=encode_properties({"a": letter * count}))
        if count * len(letter.encode()) <= 32_000:
            assert answer.code == ResponseCode.SUCCESS
        else:
            assert answer.code == ResponseCode.MESSAGE_ILLEGAL
            assert "bytes, over the limit" in (answer.remark or "")
    assert peer.put("orders", b"next").code == ResponseCode.SUCCESS


def test_a_topics_name_may_have_so_many_characters(peer: Peer) -> None:
    assert peer.put("t" * 20).code == ResponseCode.SUCCESS
    refused = peer.put("t" * 21)
    assert refused.code == ResponseCode.INVALID_PARAMETER
    assert "has 21 characters; at most 20" in (refused.remark or "")
    header = headers.CreateTopic(topic="t" * 21, read_queue_nums=1, write_queue_nums=1)
    assert peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header).code == ResponseCode.INVALID_PARAMETER
    assert peer.heartbeat("g" * 60, ["orders"]).code == ResponseCode.SUCCESS


def test_a_broker_takes_so_many_connections(address: str) -> None:
    with ExitStack() as stack:
        peers = [stack.enter_context(Peer(address)) for _ in range(12)]
        assert {each.put("orders").code for each in peers} == {ResponseCode.SUCCESS}
        over = stack.enter_context(Peer(address))
        refused = over.put("orders")
        assert refused.code == ResponseCode.SYSTEM_BUSY
        assert "has 12 connections and takes no more" in (refused.remark or "")
        assert over.is_closed()
        assert peers[0].put("orders").code == ResponseCode.SUCCESS


def test_readers_that_do_not_read_hold_so_much_memory_only(strict: EmbeddedCluster, address: str, peer: Peer) -> None:
    server = strict.brokers["broker-a"].server
    for _ in range(4):
        peer.put("large", bytes(1_900_000), queue_id=1)
    wait_until(lambda: len(server.connections) == 1, "the connections of other tests to be gone")
    pull = Peer.pull_header("large", queue_id=1, most=2)
    with ExitStack() as stack:
        for _ in range(8):
            slow = stack.enter_context(Peer(address))
            for _ in range(10):
                slow.send(RequestCode.PULL_MESSAGE, pull)

        refused = wait_until(
            lambda: answer if (answer := peer.ask(RequestCode.PULL_MESSAGE, pull)).code else None, "a refusal"
        )

        assert refused.code == ResponseCode.SYSTEM_BUSY
        assert "wait for" in (refused.remark or "")
        # each of them may have asked once more before it was noticed
        assert sum(connection.unsent for connection in server.connections) < 8 * 4_000_000 + 6 * 1024 * 1024
        assert peer.put("orders").code == ResponseCode.SUCCESS
    wait_until(
        lambda: peer.ask(RequestCode.PULL_MESSAGE, pull).code == ResponseCode.SUCCESS, "a pull after the slow are gone"
    )


def test_a_batch_may_have_so_many_messages(peer: Peer) -> None:
    for count, code in ((50, ResponseCode.SUCCESS), (51, ResponseCode.MESSAGE_ILLEGAL)):
        answer = peer.ask(
            RequestCode.SEND_BATCH_MESSAGE, Peer.send_header("batches"), encode_batch([BatchEntry(b"")] * count)
        )
        assert answer.code == code
    assert "more than 50 messages" in (answer.remark or "")


def test_a_topic_may_have_so_many_queues(peer: Peer) -> None:
    for count, code in ((16, ResponseCode.SUCCESS), (17, ResponseCode.INVALID_PARAMETER), (2**31 - 1, 1), (-1, 1)):
        header = headers.CreateTopic(topic="queues", read_queue_nums=1, write_queue_nums=count)
        answer = peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        assert answer.code == (code if code != 1 else ResponseCode.INVALID_PARAMETER)
    group = bodies.GroupConfig(group_name="retries", retry_queue_nums=17)
    assert peer.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=group.encode()).code == answer.code


def test_a_filter_may_have_so_many_characters(peer: Peer) -> None:
    peer.put("filters")
    for expression_type, expression in ((SQL92, "a = 1" + " OR a = 1" * 11), ("TAG", "a" * 101)):
        plain = Peer.pull_header("filters", tags=expression)
        header = headers.PullRequest.from_ext(plain.to_ext() | {"expressionType": expression_type})
        refused = peer.ask(RequestCode.PULL_MESSAGE, header)
        assert refused.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
        assert "over the limit of 100" in (refused.remark or "")


def test_a_broker_has_so_many_topics_and_groups() -> None:
    settings = BrokerSettings(limits=Limits(max_topics=2, max_groups=1))
    with cluster(settings=settings) as small, Peer(small.brokers["broker-a"].address) as peer:
        assert [peer.put(f"t{number}").code for number in range(3)] == [0, 0, ResponseCode.INVALID_PARAMETER]
        assert peer.put("t1").code == ResponseCode.SUCCESS
        for number in range(2):
            body = bodies.GroupConfig(group_name=f"g{number}").encode()
            answer = peer.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
            assert answer.code == (ResponseCode.INVALID_PARAMETER if number else 0)
        assert "there are 1, the most" in (answer.remark or "")
        assert peer.ask(RequestCode.PULL_MESSAGE, Peer.pull_header("t1")).code == ResponseCode.INVALID_PARAMETER


def test_pulls_over_the_limit_do_not_wait() -> None:
    settings = BrokerSettings(limits=Limits(max_parked_pulls=2, max_suspend_s=0.5))
    with cluster(settings=settings) as small, Peer(small.brokers["broker-a"].address) as peer:
        broker = small.brokers["broker-a"]
        peer.put("orders")
        padded = Peer.pull_header("orders", 1, wait_ms=3_600_000).to_ext() | {"padding": "x" * 100_000}
        waiting = []
        for opaque in (1001, 1002):
            request = Command(RequestCode.PULL_MESSAGE, opaque=opaque, ext=padded, body=bytes(100_000))
            peer.socket.sendall(request.encode())
            waiting.append(opaque)
        third = peer.ask(RequestCode.PULL_MESSAGE, Peer.pull_header("orders", 1, wait_ms=3_600_000))
        assert third.code == ResponseCode.PULL_NOT_FOUND
        # an hour is more than any pull may wait
        assert [peer.answer(opaque).code for opaque in waiting] == [ResponseCode.PULL_NOT_FOUND] * 2
        assert small.call(lambda: len(broker.waiting_pulls)) == 0


def test_a_waiting_pull_keeps_only_what_it_needs(peer: Peer, strict: EmbeddedCluster) -> None:
    broker = strict.brokers["broker-a"]
    peer.put("parked")
    ext = Peer.pull_header("parked", 1, wait_ms=20_000).to_ext()
    padded = ext | {"padding": "x" * 100_000, "proxyFrowardClientId": "x" * 100_000}
    peer.socket.sendall(Command(RequestCode.PULL_MESSAGE, opaque=1001, ext=padded, body=bytes(100_000)).encode())
    wait_until(lambda: strict.call(lambda: len(broker.waiting_pulls)), "the pull to wait")

    (parked,) = strict.call(lambda: [pull for pulls in broker.waiting_pulls._by_queue.values() for pull in pulls])
    cells = inspect.getclosurevars(parked.retry).nonlocals
    request = cells["request"]
    assert request.body == b""
    assert sum(map(len, request.ext.values())) < 200
    peer.put("parked", b"next")
    assert [message.body for message in decode_messages(peer.answer(1001).body)] == [b"next"]


def test_administrative_answers_have_so_many_rows(peer: Peer) -> None:
    header = headers.CreateTopic(topic="rows", read_queue_nums=16, write_queue_nums=16)
    assert peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header).code == ResponseCode.SUCCESS
    for number in range(16):
        assert peer.put("rows", b"%d" % number).code == ResponseCode.SUCCESS
        commit = headers.UpdateOffset(topic="rows", queue_id=number, consumer_group="counting", commit_offset=0)
        assert peer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit).code == ResponseCode.SUCCESS

    stats = peer.ask(RequestCode.GET_TOPIC_STATS_INFO, headers.TopicRequest(topic="rows"))
    assert len(bodies.TopicStats.decode(stats.body).offset_table) == 10
    progress = peer.ask(RequestCode.GET_CONSUME_STATS, headers.ConsumeStatsRequest(consumer_group="counting"))
    assert 0 < len(bodies.ConsumeStats.decode(progress.body).offset_table) <= 10
    units = headers.QueryConsumeQueue(topic="rows", queue_id=0, index=0, count=1_000_000)
    entries = peer.ask(RequestCode.QUERY_CONSUME_QUEUE, units)
    assert len(bodies.ConsumeQueueBody.decode(entries.body).queue_data) == 10
    offsets = peer.ask(RequestCode.GET_ALL_CONSUMER_OFFSET)
    assert sum(map(len, bodies.OffsetTable.decode(offsets.body).offset_table.values())) == 10
    topics = peer.ask(RequestCode.GET_ALL_TOPIC_CONFIG)
    assert len(bodies.TopicConfigTable.decode(topics.body).topic_config_table) == 10
    for answer in (stats, progress, entries, offsets, topics):
        assert (answer.remark or "").startswith("only the first 10")
    spans = headers.QueryTimeSpan(topic="rows", group="counting")
    assert len(peer.ask(RequestCode.QUERY_CONSUME_TIME_SPAN, spans).body) > 100


def test_questions_for_many_queues_let_others_have_their_turn() -> None:
    with cluster() as running, Peer(running.brokers["broker-a"].address) as peer:
        broker = running.brokers["broker-a"]
        header = headers.CreateTopic(topic="wide", read_queue_nums=2000, write_queue_nums=2000)
        assert peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header).code == ResponseCode.SUCCESS
        commit = headers.UpdateOffset(topic="wide", queue_id=0, consumer_group="counting", commit_offset=0)
        assert peer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit).code == ResponseCode.SUCCESS
        looked, most, rounds_left = 0, 0, 1
        bounds, time_of = broker.store.bounds, broker.store.time_of

        def count(function: Callable[..., T]) -> Callable[..., T]:
            def counted(*args: object) -> T:
                nonlocal looked
                looked += 1
                return function(*args)

            return counted

        def one_round() -> None:
            nonlocal looked, most
            most, looked = max(most, looked), 0
            if rounds_left:
                asyncio.get_running_loop().call_soon(one_round)

        broker.store.bounds = count(bounds)  # type: ignore[method-assign]
        broker.store.time_of = count(time_of)  # type: ignore[method-assign]
        running.call(one_round)
        questions = [
            (RequestCode.GET_TOPIC_STATS_INFO, headers.TopicRequest(topic="wide")),
            (RequestCode.GET_CONSUME_STATS, headers.ConsumeStatsRequest(consumer_group="counting")),
            (RequestCode.GET_BROKER_CONSUME_STATS, headers.BrokerConsumeStats(is_order=False)),
            (RequestCode.QUERY_CONSUME_TIME_SPAN, headers.QueryTimeSpan(topic="wide", group="counting")),
        ]
        asked = [peer.send(code, question) for code, question in questions]
        sizes = [len(peer.answer(opaque).body) for opaque in asked]
        rounds_left = 0

        assert min(sizes) > 100_000
        # of 2,000 queues, each looked at up to five times
        assert 100 < most < 5 * 2000 / 2

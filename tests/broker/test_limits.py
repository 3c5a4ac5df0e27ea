"""Limits: over them the sender gets RocketMQ's own code, and a word about which limit it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from evenq.broker import BrokerSettings
from evenq.broker.server import Limits
from evenq.protocol import headers
from evenq.protocol.batch import BatchEntry, encode_batch
from evenq.protocol.codes import RequestCode, ResponseCode
from evenq.protocol.properties import encode_properties
from evenq.testing import EmbeddedCluster, cluster
from tests.broker.peers import Peer
from tests.waiting import wait_until

pytestmark = pytest.mark.live

SETTINGS = BrokerSettings(
    max_message=2_000_000, max_topic=20, limits=Limits(connections=12, unread=64 * 1024, held=6 * 1024 * 1024)
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
        assert sum(connection.unread for connection in server.connections) < 8 * 4_000_000 + 6 * 1024 * 1024
        assert peer.put("orders").code == ResponseCode.SUCCESS
    wait_until(
        lambda: peer.ask(RequestCode.PULL_MESSAGE, pull).code == ResponseCode.SUCCESS, "a pull after the slow are gone"
    )

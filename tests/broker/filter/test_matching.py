"""Reading through a filter on properties: from the store, and by pulls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from evenq.broker import Broker
from evenq.broker.filter.matching import properties_of, read_matching
from evenq.broker.filter.sql import Filters, sql_filter
from evenq.broker.store.store import NewMessage, ReadStatus, Store
from evenq.protocol import bodies, headers
from evenq.protocol.batch import BatchEntry, encode_batch
from evenq.protocol.codes import RequestCode, ResponseCode
from evenq.protocol.command import Command
from evenq.protocol.filters import SQL92, subscription
from evenq.protocol.properties import encode_properties
from evenq.protocol.records import decode_messages, encode_record
from evenq.testing import EmbeddedCluster
from tests.broker.peers import Peer

EVEN = sql_filter("kind = 'even'")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(tmp_path, "127.0.0.1:10911", clock=lambda: 1.0)
    yield opened
    opened.close()


def fill(store: Store, count: int, size: int = 1) -> None:
    for number in range(count):
        kind = encode_properties({"kind": "odd" if number % 2 else "even"})
        store.append(NewMessage("orders", 0, b"%*d" % (size, number), kind, None, 0, "127.0.0.1:1"))
    store.commit()


def test_matching_messages_come_in_order_and_the_next_read_goes_on_behind_them(store: Store) -> None:
    fill(store, 1000)
    seen: list[int] = []
    offset = 0
    while (read := read_matching(store, "orders", 0, offset, 7, 1 << 20, EVEN, 200_000)).status is ReadStatus.FOUND:
        found = [int(message.body) for message in decode_messages(read.body)]
        assert len(found) == read.count <= 7
        seen += found
        offset = read.next_offset

    assert seen == list(range(0, 1000, 2))
    assert (read.status, offset) == (ReadStatus.AT_END, 1000)
    odd = read_matching(store, "orders", 0, 999, 7, 1 << 20, EVEN, 200_000)
    assert (odd.status, odd.next_offset, odd.max_offset) == (ReadStatus.NO_MATCH, 1000, 1000)


def test_bytes_are_limited_but_for_the_first_message(store: Store) -> None:
    fill(store, 20, size=1000)

    read = read_matching(store, "orders", 0, 0, 32, 2600, EVEN, 200_000)

    assert [int(message.body) for message in decode_messages(read.body)] == [0, 2]
    assert read.next_offset == 4
    assert read_matching(store, "orders", 0, 4, 32, 1, EVEN, 200_000).count == 1


def test_a_filter_that_lets_nothing_through_looks_at_so_many_and_says_how_far_it_came(store: Store) -> None:
    fill(store, 5000)

    read = read_matching(store, "orders", 0, 0, 32, 1 << 20, sql_filter("kind = 'neither'"), 200_000)

    assert read.status is ReadStatus.NO_MATCH
    assert 0 < read.next_offset < 5000


def test_a_filter_that_is_much_work_looks_at_fewer_messages(store: Store) -> None:
    fill(store, 300)
    wanted = sql_filter(" OR ".join(f"kind = 'x{number}'" for number in range(100)))
    assert wanted.size == 401

    read = read_matching(store, "orders", 0, 0, 32, 1 << 20, wanted, 401 * 70)

    assert (read.status, read.next_offset) == (ReadStatus.NO_MATCH, 70)
    assert read_matching(store, "orders", 0, 0, 32, 1 << 20, wanted, 1).next_offset == 1


def test_a_filter_looks_for_so_long_only(store: Store) -> None:
    fill(store, 300)
    time = count()

    read = read_matching(store, "orders", 0, 0, 32, 1 << 20, sql_filter("kind = 'x'"), 200_000, 20, lambda: next(time))

    assert (read.status, read.next_offset) == (ReadStatus.NO_MATCH, 22)
    read = read_matching(store, "orders", 0, 0, 32, 1 << 20, sql_filter("kind = 'x'"), 200_000, -1, lambda: 0)
    assert read.next_offset == 1


def test_a_filter_looks_at_so_many_bytes_only(store: Store) -> None:
    fill(store, 40, size=1_000_000)

    read = read_matching(store, "orders", 0, 0, 32, 1 << 20, sql_filter("kind = 'neither'"), 200_000)

    assert read.status is ReadStatus.NO_MATCH
    assert 16 <= read.next_offset < 20


def test_filters_are_kept_by_their_size() -> None:
    filters = Filters(100_000)
    first = filters.get("a = 1")
    assert filters.get("a = 1") is first
    for number in range(1000):
        filters.get(f"a = {number}")
    assert 10 < len(filters) < 100
    assert filters.get("a = 999") is not first


def test_a_long_filter_is_made_in_pieces_and_kept_until_the_next() -> None:
    filters = Filters(100_000)
    long = " OR ".join(["a = 1"] * 1000)
    assert filters.get(long) is None
    assert sum(1 for _ in filters.make(long)) > 10
    made = filters.get(long)
    assert made is not None
    assert made({"a": "1"})
    assert len(filters) == 1
    filters.get("a = 2")
    assert filters.get(long) is None
    assert len(filters) == 1


@pytest.mark.parametrize("host", ["127.0.0.1:1", "[::1]:1"])
@pytest.mark.parametrize("topic", ["t", "t" * 200])
def test_properties_are_found_in_every_kind_of_record(host: str, topic: str) -> None:
    record = encode_record(
        topic=topic,
        body=b"\x01\x02" * 50,
        queue_id=0,
        queue_offset=0,
        commit_log_offset=0,
        born_timestamp=0,
        born_host=host,
        store_timestamp=0,
        store_host=host,
        properties=encode_properties({"a": "ü", "b": "2"}),
    )

    assert properties_of(record) == {"a": "ü", "b": "2"}


def sql_pull(topic: str, expression: str, kind: str = SQL92) -> headers.PullRequest:
    plain = Peer.pull_header(topic, tags=expression)
    return headers.PullRequest.from_ext(plain.to_ext() | {"expressionType": kind})


def test_a_pull_may_bring_its_expression(peer: Peer, topic: str) -> None:
    for number in range(10):
        peer.put(topic, b"%d" % number, properties=encode_properties({"n": str(number)}))

    answer = peer.ask(RequestCode.PULL_MESSAGE, sql_pull(topic, "n BETWEEN 3 AND 5 OR n = 9"))

    assert [message.body for message in decode_messages(answer.body)] == [b"3", b"4", b"5", b"9"]
    assert answer.ext["nextBeginOffset"] == "10"


def test_a_waiting_pull_wakes_for_what_matches_only(peer: Peer, connect: Callable[..., Peer], topic: str) -> None:
    peer.put(topic)
    ext = sql_pull(topic, "n > 5").to_ext() | {"queueOffset": "1", "sysFlag": "6", "suspendTimeoutMillis": "20000"}
    other = connect()
    waiting = other.send(RequestCode.PULL_MESSAGE, headers.PullRequest.from_ext(ext))
    assert not other.has_answer(waiting)

    peer.put(topic, b"1", properties="n\x011")
    assert not other.has_answer(waiting)
    peer.put(topic, b"7", properties="n\x017")

    answer = other.answer(waiting)
    assert [message.body for message in decode_messages(answer.body)] == [b"7"]
    assert answer.ext["nextBeginOffset"] == "3"


def test_a_waiting_pull_is_answered_where_there_is_more_to_look_at(
    peer: Peer, connect: Callable[..., Peer], topic: str, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer.put(topic)
    ext = sql_pull(topic, "n > 5").to_ext() | {"queueOffset": "1", "sysFlag": "6", "suspendTimeoutMillis": "20000"}
    other = connect()
    waiting = other.send(RequestCode.PULL_MESSAGE, headers.PullRequest.from_ext(ext))
    assert not other.has_answer(waiting)
    monkeypatch.setattr(broker.server, "now", count().__next__)

    peer.ask(RequestCode.SEND_BATCH_MESSAGE, Peer.send_header(topic), encode_batch([BatchEntry(b"x")] * 3))

    answer = other.answer(waiting)
    assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert int(answer.ext["nextBeginOffset"]) < int(answer.ext["maxOffset"])


def long_filter(number: int) -> str:
    return " OR ".join(f"n = {number}{digit}" for digit in range(1000))


def test_a_long_filter_does_not_keep_the_others_waiting(peer: Peer, topic: str, one_broker: EmbeddedCluster) -> None:
    peer.put(topic, b"5", properties="n\x0175")
    rounds = [0]
    handled: list[int] = []

    def next_round() -> None:
        rounds[0] += 1
        if not handled:
            asyncio.get_running_loop().call_soon(next_round)

    one_broker.call(next_round)
    before = rounds[0]
    requests = [(1, sql_pull(topic, long_filter(7))), (2, Peer.pull_header(topic)), (3, sql_pull(topic, "n > 5"))]
    frames = [Command(RequestCode.PULL_MESSAGE, opaque=opaque, ext=header.to_ext()) for opaque, header in requests]
    peer.socket.sendall(b"".join(frame.encode() for frame in frames))
    order = []
    for opaque in (1, 2, 3):
        order.append(peer.answer(opaque))
        assert not peer._answers or opaque < 3
    handled.append(1)

    assert [answer.opaque for answer in order] == [1, 2, 3]
    assert [message.body for answer in order for message in decode_messages(answer.body)] == [b"5"] * 3
    assert rounds[0] - before > 3


def test_a_long_filter_that_cannot_be_read_is_refused(peer: Peer, topic: str) -> None:
    peer.put(topic)
    for wrong in (long_filter(1) + " OR", long_filter(1) + " ;"):
        refused = peer.ask(RequestCode.PULL_MESSAGE, sql_pull(topic, wrong))
        assert refused.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert peer.ask(RequestCode.PULL_MESSAGE, sql_pull(topic, "n = 1")).code == ResponseCode.PULL_RETRY_IMMEDIATELY


def test_a_member_subscribes_by_its_heartbeat(peer: Peer, topic: str, group: str) -> None:
    for number in range(4):
        peer.put(topic, b"%d" % number, properties=f"n\x01{number}")
    wanted = subscription(topic, "n > 1", version=1, expression_type=SQL92)
    consumer = bodies.ConsumerData(group_name=group, subscription_data_set=[wanted])
    beat = bodies.Heartbeat(client_id="c", consumer_data_set=[consumer])
    assert peer.ask(RequestCode.HEART_BEAT, body=beat.encode()).code == 0

    ext = Peer.pull_header(topic).to_ext() | {"consumerGroup": group, "sysFlag": "0"}
    answer = peer.ask(RequestCode.PULL_MESSAGE, headers.PullRequest.from_ext(ext))

    assert [message.body for message in decode_messages(answer.body)] == [b"2", b"3"]


def test_expressions_that_cannot_be_read_are_refused_by_javas_codes(peer: Peer, topic: str) -> None:
    peer.put(topic)
    refused = peer.ask(RequestCode.PULL_MESSAGE, sql_pull(topic, "n >"))
    assert refused.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert "the end stands where" in (refused.remark or "")
    unknown = peer.ask(RequestCode.PULL_MESSAGE, sql_pull(topic, "n", kind="XPATH"))
    assert unknown.code == ResponseCode.SYSTEM_ERROR
    assert "filter message by XPATH" in (unknown.remark or "")


@pytest.mark.parametrize(
    ("expression", "kind", "code"),
    [
        ("n > 5", SQL92, ResponseCode.SUCCESS),
        ("n > ", SQL92, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ("n > ", "TAG", ResponseCode.SUCCESS),
        ("n > 5", "XPATH", ResponseCode.SYSTEM_ERROR),
    ],
)
def test_a_client_may_ask_before_it_subscribes(peer: Peer, expression: str, kind: str, code: int) -> None:
    wanted = bodies.Subscription(topic="orders", sub_string=expression, expression_type=kind)
    body = bodies.ClientCheck(client_id="c", group="g", subscription_data=wanted).encode()

    assert peer.ask(RequestCode.CHECK_CLIENT_CONFIG, body=body).code == code

from collections.abc import Callable

import pytest

from evenq.broker import Broker
from evenq.protocol import bodies, headers
from evenq.protocol.codes import RequestCode, ResponseCode
from evenq.protocol.command import Command
from evenq.protocol.filters import subscription
from evenq.protocol.records import decode_messages
from evenq.testing import EmbeddedCluster
from tests.broker.peers import Peer
from tests.waiting import wait_until

PULL = RequestCode.PULL_MESSAGE


def fill(peer: Peer, topic: str, count: int, tags: str = "a") -> None:
    for number in range(count):
        peer.put(topic, b"%d" % number, properties=f"TAGS\x01{tags[number % len(tags)]}\x02")


def found(answer: Command) -> list[bytes]:
    return [message.body for message in decode_messages(answer.body)]


def offsets(answer: Command) -> tuple[int, int, int]:
    return int(answer.ext["nextBeginOffset"]), int(answer.ext["minOffset"]), int(answer.ext["maxOffset"])


@pytest.mark.parametrize("code", [PULL, RequestCode.LITE_PULL_MESSAGE])
def test_messages_come_in_order_and_the_answer_says_where_to_go_on(peer: Peer, topic: str, code: int) -> None:
    fill(peer, topic, 10)
    answer = peer.ask(code, peer.pull_header(topic, 3, most=4))
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, "FOUND")
    assert found(answer) == [b"3", b"4", b"5", b"6"]
    assert offsets(answer) == (7, 0, 10)
    assert answer.ext["suggestWhichBrokerId"] == "0"


@pytest.mark.parametrize(
    ("offset", "code", "next_offset"),
    [
        (10, ResponseCode.PULL_NOT_FOUND, 10),
        (11, ResponseCode.PULL_OFFSET_MOVED, 10),
        (-1, ResponseCode.PULL_OFFSET_MOVED, 0),
    ],
)
def test_offsets_outside_the_queue(peer: Peer, topic: str, offset: int, code: int, next_offset: int) -> None:
    fill(peer, topic, 10)
    answer = peer.ask(PULL, peer.pull_header(topic, offset))
    assert (answer.code, offsets(answer)) == (code, (next_offset, 0, 10))


@pytest.mark.parametrize(("offset", "code"), [(0, ResponseCode.PULL_NOT_FOUND), (5, ResponseCode.PULL_OFFSET_MOVED)])
def test_a_queue_that_holds_nothing(peer: Peer, topic: str, offset: int, code: int) -> None:
    peer.put(topic)
    answer = peer.ask(PULL, peer.pull_header(topic, offset, 1))
    assert (answer.code, offsets(answer)) == (code, (0, 0, 0))


def test_as_many_as_asked_for_up_to_four_megabytes(peer: Peer, topic: str) -> None:
    for _ in range(10):
        peer.put(topic, bytes(1_000_000))
    answer = peer.ask(PULL, peer.pull_header(topic, most=1000))
    assert len(found(answer)) == 4
    assert len(answer.body) <= 4 * 1024 * 1024
    header = peer.pull_header(topic, most=1000).to_ext() | {"maxMsgBytes": "2500000"}
    assert len(found(peer.ask(PULL, headers.PullRequest.from_ext(header)))) == 2


class TestTags:
    def test_only_wanted_ones_come(self, peer: Peer, topic: str) -> None:
        fill(peer, topic, 9, "abc")
        answer = peer.ask(PULL, peer.pull_header(topic, tags="a || c"))
        assert found(answer) == [b"0", b"2", b"3", b"5", b"6", b"8"]
        assert offsets(answer)[0] == 9

    def test_where_none_match_the_pull_goes_on_behind_them(self, peer: Peer, topic: str) -> None:
        fill(peer, topic, 5)
        answer = peer.ask(PULL, peer.pull_header(topic, tags="z"))
        assert (answer.code, answer.remark) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE")
        assert offsets(answer)[0] == 5

    def test_a_bad_expression_is_refused(self, peer: Peer, topic: str) -> None:
        peer.put(topic)
        assert peer.ask(PULL, peer.pull_header(topic, tags="||")).code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


def park(reader: Peer, header: headers.PullRequest) -> int:
    """Send a pull that waits; it does so when this returns, for requests of one connection are handled in order."""
    opaque = reader.send(PULL, header)
    reader.ask(RequestCode.GET_BROKER_CONFIG)
    return opaque


class TestWaiting:
    def test_the_next_message_ends_the_wait(self, connect: Callable[..., Peer], topic: str) -> None:
        sender, reader = connect(), connect()
        sender.put(topic, b"first")
        waiting = park(reader, reader.pull_header(topic, 1, wait_ms=60_000))
        other = park(reader, reader.pull_header(topic, 0, 1, wait_ms=60_000))
        assert not reader.has_answer(waiting)
        sender.put(topic, b"second")
        answer = reader.answer(waiting)
        assert (answer.code, found(answer), offsets(answer)) == (0, [b"second"], (2, 0, 2))
        assert not reader.has_answer(other)

    def test_the_time_ends_the_wait(self, peer: Peer, topic: str) -> None:
        peer.put(topic)
        answer = peer.ask(PULL, peer.pull_header(topic, 1, wait_ms=30))
        assert (answer.code, offsets(answer)) == (ResponseCode.PULL_NOT_FOUND, (1, 0, 1))

    def test_without_the_flag_there_is_no_wait(self, peer: Peer, topic: str) -> None:
        peer.put(topic)
        header = peer.pull_header(topic, 1).to_ext() | {"suspendTimeoutMillis": "60000"}
        assert peer.ask(PULL, headers.PullRequest.from_ext(header)).code == ResponseCode.PULL_NOT_FOUND

    def test_unwanted_messages_do_not_end_the_wait(self, connect: Callable[..., Peer], topic: str) -> None:
        sender, reader = connect(), connect()
        sender.put(topic, b"first")
        waiting = park(reader, reader.pull_header(topic, 1, wait_ms=60_000, tags="b"))
        for _ in range(3):
            sender.put(topic, b"unwanted", properties="TAGS\x01a\x02")
        assert not reader.has_answer(waiting)
        sender.put(topic, b"wanted", properties="TAGS\x01b\x02")
        answer = reader.answer(waiting)
        assert (found(answer), offsets(answer)[0]) == ([b"wanted"], 5)

    def test_a_message_sent_behind_a_waiting_pull_on_one_connection(self, peer: Peer, topic: str) -> None:
        peer.put(topic, b"first")
        waiting = peer.send(PULL, peer.pull_header(topic, 1, wait_ms=60_000))
        peer.put(topic, b"second")
        assert found(peer.answer(waiting)) == [b"second"]

    def test_a_thousand_waiting_pulls_of_one_queue(self, connect: Callable[..., Peer], topic: str) -> None:
        sender, reader = connect(), connect()
        sender.put(topic, b"first")
        waiting = [reader.send(PULL, reader.pull_header(topic, 1, wait_ms=60_000)) for _ in range(1000)]
        reader.ask(RequestCode.GET_BROKER_CONFIG)
        sender.put(topic, b"second")
        assert {tuple(found(reader.answer(opaque))) for opaque in waiting} == {(b"second",)}

    def test_the_pulls_of_a_closed_connection_are_forgotten(
        self, connect: Callable[..., Peer], topic: str, broker: Broker, one_broker: EmbeddedCluster
    ) -> None:
        sender, reader = connect(), connect()
        sender.put(topic)
        before = one_broker.call(lambda: len(broker.waiting_pulls))
        park(reader, reader.pull_header(topic, 1, wait_ms=60_000))
        assert one_broker.call(lambda: len(broker.waiting_pulls)) == before + 1
        reader.socket.close()
        wait_until(lambda: one_broker.call(lambda: len(broker.waiting_pulls)) == before, "the pull being forgotten")


def test_a_pull_commits_on_its_way(peer: Peer, topic: str) -> None:
    fill(peer, topic, 5)
    peer.ask(PULL, peer.pull_header(topic, 3, commit=2))
    header = headers.QueryOffset(topic=topic, queue_id=0, consumer_group="billing")
    assert peer.ask(RequestCode.QUERY_CONSUMER_OFFSET, header).ext == {"offset": "2"}


class TestSubscriptionsOfHeartbeats:
    """Pulls of push consumers carry no subscription: the group's heartbeat told it."""

    def pull(self, peer: Peer, topic: str, group: str, version: int = 0) -> Command:
        header = headers.PullRequest(
            topic=topic,
            queue_id=0,
            consumer_group=group,
            queue_offset=0,
            max_msg_nums=32,
            sys_flag=0,
            commit_offset=0,
            suspend_timeout_millis=0,
            sub_version=version,
        )
        return peer.ask(PULL, header)

    def beat(self, peer: Peer, group: str, wanted: bodies.Subscription) -> None:
        data = bodies.ConsumerData(group_name=group, subscription_data_set=[wanted])
        beat = bodies.Heartbeat(client_id="c1", consumer_data_set=[data])
        assert peer.ask(RequestCode.HEART_BEAT, body=beat.encode()).code == 0

    def test_they_filter(self, peer: Peer, topic: str, group: str) -> None:
        fill(peer, topic, 6, "ab")
        self.beat(peer, group, subscription(topic, "b", version=5))
        assert found(self.pull(peer, topic, group, 5)) == [b"1", b"3", b"5"]

    def test_a_group_that_nobody_knows(self, peer: Peer, topic: str, group: str) -> None:
        peer.put(topic)
        answer = self.pull(peer, topic, group)
        assert answer.code == ResponseCode.SUBSCRIPTION_NOT_EXIST
        assert "no member of" in (answer.remark or "")

    def test_a_topic_that_the_group_does_not_want(self, peer: Peer, topic: str, group: str) -> None:
        peer.put(topic)
        self.beat(peer, group, subscription("other", version=5))
        answer = self.pull(peer, topic, group)
        assert answer.code == ResponseCode.SUBSCRIPTION_NOT_EXIST
        assert f"does not subscribe to {topic}" in (answer.remark or "")

    def test_a_subscription_that_the_broker_has_not_heard_of_yet(self, peer: Peer, topic: str, group: str) -> None:
        peer.put(topic)
        self.beat(peer, group, subscription(topic, version=5))
        assert self.pull(peer, topic, group, 6).code == ResponseCode.SUBSCRIPTION_NOT_LATEST
        assert self.pull(peer, topic, group, 5).code == ResponseCode.SUCCESS


class TestRefusals:
    def test_a_topic_that_does_not_exist(self, peer: Peer, topic: str) -> None:
        answer = peer.ask(PULL, peer.pull_header(topic))
        assert (answer.code, topic in (answer.remark or "")) == (ResponseCode.TOPIC_NOT_EXIST, True)

    @pytest.mark.parametrize("queue_id", [-1, 4])
    def test_a_queue_that_does_not_exist(self, peer: Peer, topic: str, queue_id: int) -> None:
        peer.put(topic)
        answer = peer.ask(PULL, peer.pull_header(topic, 0, queue_id))
        assert answer.code == ResponseCode.INVALID_PARAMETER

    def test_a_write_only_topic(self, peer: Peer, topic: str) -> None:
        peer.ask(
            RequestCode.UPDATE_AND_CREATE_TOPIC,
            headers.CreateTopic(topic=topic, read_queue_nums=1, write_queue_nums=1, perm=2),
        )
        assert peer.ask(PULL, peer.pull_header(topic)).code == ResponseCode.NO_PERMISSION

    def test_a_group_that_may_not_consume(self, peer: Peer, topic: str, group: str) -> None:
        peer.put(topic)
        config = bodies.GroupConfig(group_name=group, consume_enable=False)
        peer.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=config.encode())
        header = peer.pull_header(topic).to_ext() | {"consumerGroup": group}
        assert peer.ask(PULL, headers.PullRequest.from_ext(header)).code == ResponseCode.NO_PERMISSION


@pytest.mark.parametrize("most", [0, -1, -(2**31)])
@pytest.mark.parametrize("filtered", [False, True], ids=["all", "sql"])
def test_a_pull_for_no_message_gets_one(peer: Peer, topic: str, most: int, filtered: bool) -> None:
    fill(peer, topic, 3)
    ext = peer.pull_header(topic, most=most).to_ext()
    if filtered:
        ext |= {"subscription": "TAGS is not null", "expressionType": "SQL92"}
    answer = peer.ask(PULL, headers.PullRequest.from_ext(ext))
    assert (answer.code, found(answer)) == (ResponseCode.SUCCESS, [b"0"])
    assert offsets(answer) == (1, 0, 3)


@pytest.mark.parametrize("size", [-1, -(2**31), 1])
def test_a_pull_for_no_bytes_gets_one_message(peer: Peer, topic: str, size: int) -> None:
    fill(peer, topic, 3)
    ext = peer.pull_header(topic).to_ext() | {"maxMsgBytes": str(size)}
    answer = peer.ask(PULL, headers.PullRequest.from_ext(ext))
    assert (answer.code, found(answer)) == (ResponseCode.SUCCESS, [b"0"])


@pytest.mark.parametrize("value", ["0" * 4400 + "1", "-" + "0" * 4401, "1" * 4401], ids=["zeros", "minus", "ones"])
def test_a_very_long_number_does_not_end_a_filter(peer: Peer, topic: str, value: str) -> None:
    peer.put(topic, b"long", properties=f"a\x01{value}\x02")
    peer.put(topic, b"short", properties="a\x019\x02")
    ext = peer.pull_header(topic).to_ext() | {"subscription": "a > 5", "expressionType": "SQL92"}
    answer = peer.ask(PULL, headers.PullRequest.from_ext(ext))
    assert (answer.code, found(answer)) == (ResponseCode.SUCCESS, [b"short"])


def test_so_are_those_at_queues_that_the_topic_had_before(peer: Peer, connect: Callable[..., Peer], topic: str) -> None:
    peer.put(topic, queue_id=3)
    other = connect()
    waiting = other.send(RequestCode.PULL_MESSAGE, Peer.pull_header(topic, 1, 3, wait_ms=60_000))
    assert not other.has_answer(waiting)
    smaller = headers.CreateTopic(topic=topic, read_queue_nums=1, write_queue_nums=1)
    assert peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, smaller).code == 0
    assert peer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, headers.DeleteTopic(topic=topic)).code == 0
    assert other.answer(waiting, 5).code == ResponseCode.TOPIC_NOT_EXIST


def test_pulls_that_wait_are_told_when_their_topic_is_deleted(
    peer: Peer, connect: Callable[..., Peer], topic: str
) -> None:
    peer.put(topic)
    other = connect()
    waiting = [other.send(RequestCode.PULL_MESSAGE, Peer.pull_header(topic, 1, wait_ms=60_000)) for _ in range(3)]
    assert not other.has_answer(waiting[0])

    assert peer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, headers.DeleteTopic(topic=topic)).code == 0

    assert {other.answer(opaque, 5).code for opaque in waiting} == {ResponseCode.TOPIC_NOT_EXIST}

from functools import partial

import pytest

from evenq.broker import Broker
from evenq.protocol import bodies, headers
from evenq.protocol.codes import RequestCode, ResponseCode
from evenq.protocol.command import Command
from evenq.protocol.properties import encode_properties
from evenq.protocol.view import MessageView
from evenq.testing import Clock
from tests.broker.peers import Peer
from tests.waiting import wait_until


@pytest.fixture
def message(peer: Peer, topic: str) -> MessageView:
    peer.put(topic, b"hard", properties=encode_properties({"UNIQ_KEY": "id", "TAGS": "a"}))
    (message,) = peer.pull(topic)
    return message


def back(peer: Peer, log_offset: int, group: str, level: int = 0, most: int | None = None) -> Command:
    header = headers.SendBack(offset=log_offset, group=group, delay_level=level, max_reconsume_times=most)
    return peer.ask(RequestCode.CONSUMER_SEND_MSG_BACK, header)


def test_a_message_comes_back_when_its_time_has_come(
    peer: Peer, message: MessageView, group: str, broker_clock: Clock
) -> None:
    assert back(peer, message.commit_log_offset, group).code == ResponseCode.SUCCESS
    assert peer.pull(f"%RETRY%{group}") == []
    broker_clock.advance(10)
    (again,) = wait_until(partial(peer.pull, f"%RETRY%{group}"), "the message once more")
    assert (again.body, again.reconsume_times, again.tags, again.unique_key) == (b"hard", 1, "a", "id")
    assert (again.properties["RETRY_TOPIC"], again.properties["ORIGIN_MESSAGE_ID"]) == (message.topic, message.msg_id)
    assert again.born_timestamp == message.born_timestamp


def test_a_pull_that_waits_for_it_is_answered(
    peer: Peer, message: MessageView, group: str, broker_clock: Clock
) -> None:
    back(peer, message.commit_log_offset, group, level=1)
    waiting = peer.send(RequestCode.PULL_MESSAGE, peer.pull_header(f"%RETRY%{group}", wait_ms=20_000))
    assert not peer.has_answer(waiting)
    broker_clock.advance(1)
    assert peer.answer(waiting).code == ResponseCode.SUCCESS


@pytest.mark.parametrize(("level", "most"), [(-1, None), (0, 0)])
def test_a_dead_letter(peer: Peer, message: MessageView, group: str, level: int, most: int | None) -> None:
    assert back(peer, message.commit_log_offset, group, level, most).code == ResponseCode.SUCCESS
    (dead,) = peer.pull(f"%DLQ%{group}")
    assert (dead.body, dead.reconsume_times) == (b"hard", 1)


def test_a_group_without_retry_queues_gets_nothing_again(
    peer: Peer, message: MessageView, group: str, broker: Broker
) -> None:
    config = bodies.GroupConfig(group_name=group, retry_queue_nums=0)
    peer.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=config.encode())
    assert back(peer, message.commit_log_offset, group).code == ResponseCode.SUCCESS
    assert f"%RETRY%{group}" not in broker.topics


def test_nothing_at_that_place(peer: Peer, group: str) -> None:
    answer = back(peer, 10**12, group)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "look message by offset failed" in (answer.remark or "")


def test_a_bad_group(peer: Peer, message: MessageView) -> None:
    answer = back(peer, message.commit_log_offset, "no such group")
    assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


def test_a_client_may_send_to_the_retry_topic_itself(peer: Peer, group: str, broker_clock: Clock) -> None:
    def send(times: int) -> Command:
        header = headers.SendRequestV2(
            producer_group="shop",
            topic=f"%RETRY%{group}",
            queue_id=0,
            born_timestamp=1,
            properties=encode_properties({"DELAY": "1"}),
            reconsume_times=times,
            max_reconsume_times=3,
        )
        return peer.ask(RequestCode.SEND_MESSAGE_V2, header, b"%d" % times)

    assert [send(times).code for times in (3, 4)] == [ResponseCode.SUCCESS] * 2
    assert [dead.body for dead in peer.pull(f"%DLQ%{group}")] == [b"4"]
    broker_clock.advance(1)
    (again,) = wait_until(partial(peer.pull, f"%RETRY%{group}"), "the message once more")
    assert (again.body, again.reconsume_times) == (b"3", 3)


def test_what_waits_cannot_be_sent_back(peer: Peer, topic: str, group: str) -> None:
    properties = encode_properties({"TRAN_MSG": "true", "PGROUP": "shop"})
    half = peer.put(topic, b"secret", properties=properties)
    answer = back(peer, int(half.ext["msgId"][-16:], 16), group, level=-1)
    assert answer.code == ResponseCode.ILLEGAL_OPERATION
    assert "send back what was pulled" in (answer.remark or "")
    assert peer.pull(f"%DLQ%{group}") == []

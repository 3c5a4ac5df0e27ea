"""Questions that are passed on to members."""

from collections.abc import Callable

import pytest

from evenq.broker.handlers import relays
from evenq.model import MessageQueue
from evenq.protocol import bodies, headers
from evenq.protocol.codes import RequestCode, ResponseCode
from evenq.protocol.records import decode_messages
from tests.broker.peers import Peer

Connect = Callable[..., Peer]


@pytest.fixture
def member(connect: Connect, group: str) -> Peer:
    joined = connect("c1")
    joined.heartbeat(group)
    assert joined.notification().code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
    return joined


def running_info(group: str, client_id: str = "c1") -> headers.RunningInfoRequest:
    return headers.RunningInfoRequest(consumer_group=group, client_id=client_id, jstack_enable=True)


def test_the_answer_of_a_member_comes_back(peer: Peer, member: Peer, group: str) -> None:
    asked = peer.send(RequestCode.GET_CONSUMER_RUNNING_INFO, running_info(group))

    question = member.notification()
    assert question.code == RequestCode.GET_CONSUMER_RUNNING_INFO
    assert question.ext == running_info(group).to_ext()
    assert not question.is_oneway
    info = bodies.RunningInfo(properties={"PROP_CLIENT_VERSION": "V5_4_0"}).encode()
    member.socket.sendall(question.reply(body=info).encode())

    answer = peer.answer(asked)
    assert (answer.code, answer.body) == (ResponseCode.SUCCESS, info)


def test_others_are_served_while_a_member_thinks(peer: Peer, member: Peer, group: str, topic: str) -> None:
    asked = peer.send(RequestCode.GET_CONSUMER_RUNNING_INFO, running_info(group))
    question = member.notification()
    assert peer.put(topic).code == 0
    member.socket.sendall(question.reply(ResponseCode.SYSTEM_ERROR, remark="no time").encode())
    answer = peer.answer(asked)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "no time")


def test_a_message_is_handed_to_a_member(peer: Peer, member: Peer, group: str, topic: str) -> None:
    message_id = peer.put(topic, b"taste this").ext["msgId"]
    header = headers.ConsumeDirectly(consumer_group=group, client_id="c1", msg_id=message_id, topic=topic)
    asked = peer.send(RequestCode.CONSUME_MESSAGE_DIRECTLY, header)

    question = member.notification()
    assert decode_messages(question.body)[0].body == b"taste this"
    assert question.ext["brokerName"] == "broker-a"
    assert (question.ext["topicSysFlag"], question.ext["groupSysFlag"]) == ("0", "0")
    result = bodies.DirectResult(consume_result="CR_SUCCESS", spent_time_mills=3).encode()
    member.socket.sendall(question.reply(body=result).encode())

    assert bodies.DirectResult.decode(peer.answer(asked).body).consume_result == "CR_SUCCESS"


def test_members_tell_where_they_are(peer: Peer, member: Peer, connect: Connect, group: str, topic: str) -> None:
    queue = MessageQueue(topic, "broker-a", 0)
    silent = connect("c2")
    silent.heartbeat(group)
    assert member.notification().code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
    header = headers.ConsumerStatus(topic=topic, group=group)
    asked = peer.send(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, header)

    question = member.notification()
    assert question.code == RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
    table = bodies.ConsumerStatusBody(message_queue_table={queue: 7})
    member.socket.sendall(question.reply(body=table.encode()).encode())
    silent.socket.close()

    answer = bodies.ConsumerStatusBody.decode(peer.answer(asked).body)
    assert answer.consumer_table == {"c1": {queue: 7}}


def test_whoever_is_not_there_cannot_be_asked(peer: Peer, member: Peer, group: str, topic: str) -> None:
    message_id = peer.put(topic).ext["msgId"]
    for code, header, words in (
        (RequestCode.GET_CONSUMER_RUNNING_INFO, running_info(group, "c9"), f"<{group}> <c9> not online"),
        (RequestCode.GET_CONSUMER_RUNNING_INFO, running_info(f"{group}-x"), "not online"),
        (
            RequestCode.CONSUME_MESSAGE_DIRECTLY,
            headers.ConsumeDirectly(consumer_group=group, client_id="c9", msg_id=message_id),
            "not online",
        ),
        (
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
            headers.ConsumerStatus(topic=topic, group=f"{group}-x"),
            "No Any Consumer online",
        ),
    ):
        answer = peer.ask(code, header)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert words in (answer.remark or "")


def test_a_message_that_is_not_there_is_not_handed_on(peer: Peer, member: Peer, group: str) -> None:
    for message_id, code in (
        ("?", ResponseCode.INVALID_PARAMETER),
        ("7F00000100002A9F" + "7" * 16, ResponseCode.SYSTEM_ERROR),
    ):
        header = headers.ConsumeDirectly(consumer_group=group, client_id="c1", msg_id=message_id)
        assert peer.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, header).code == code
    assert member.silence()


def test_a_member_that_leaves_or_does_not_answer_is_told_of(
    peer: Peer, member: Peer, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relays, "_SECONDS", 0.05)
    late = peer.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, running_info(group))
    assert late.code == ResponseCode.CONSUME_MSG_TIMEOUT
    assert "Timeout" in (late.remark or "")
    monkeypatch.setattr(relays, "_SECONDS", 10.0)
    asked = peer.send(RequestCode.GET_CONSUMER_RUNNING_INFO, running_info(group))
    member.notification()
    member.notification()
    member.socket.close()
    gone = peer.answer(asked)
    assert gone.code == ResponseCode.SYSTEM_ERROR
    assert "closed before the answer came" in (gone.remark or "")

from collections.abc import Callable

import pytest

from evenq.broker import Broker
from evenq.protocol import bodies, headers
from evenq.protocol.codes import RequestCode, ResponseCode
from evenq.protocol.command import RESPONSE, Command
from evenq.protocol.properties import decode_properties, encode_properties
from tests.broker.peers import Peer

TOPIC = "DefaultCluster_REPLY_TOPIC"


@pytest.fixture
def asker(connect: Callable[..., Peer], group: str) -> Peer:
    """A producer that waits for a reply, known to the broker by a name of its own."""
    peer = connect(f"asker-{group}")
    beat = bodies.Heartbeat(client_id=peer.client_id, producer_data_set=[bodies.ProducerData(group_name=group)])
    peer.ask(RequestCode.HEART_BEAT, body=beat.encode())
    return peer


def reply(peer: Peer, to: str | None, topic: str = TOPIC, code: int = RequestCode.SEND_REPLY_MESSAGE_V2) -> int:
    """Send a reply; the opaque of its answer."""
    properties = {"CORRELATION_ID": "c-1", "MSG_TYPE": "reply"} | ({"REPLY_TO_CLIENT": to} if to else {})
    kind = headers.SendRequest if code == RequestCode.SEND_REPLY_MESSAGE else headers.SendRequestV2
    header = kind(
        producer_group="repliers",
        topic=topic,
        queue_id=0,
        born_timestamp=5,
        flag=7,
        properties=encode_properties(properties),
    )
    return peer.send(code, header, b"the reply")


def answer(asker: Peer, question: Command, code: int = 0) -> None:
    asker.socket.sendall(Command(code, opaque=question.opaque, flag=RESPONSE, remark="no room").encode())


@pytest.mark.parametrize("code", [RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2])
def test_a_reply_is_pushed_to_who_asked_and_its_sender_is_told(
    peer: Peer, asker: Peer, broker: Broker, code: RequestCode
) -> None:
    sent = reply(peer, asker.client_id, code=code)
    push = asker.notification()
    assert (push.code, push.body) == (RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, b"the reply")
    header = headers.PushReply.from_ext(push.ext)
    assert (header.topic, header.producer_group, header.born_timestamp, header.flag) == (TOPIC, "repliers", 5, 7)
    assert header.born_host == "{}:{}".format(*peer.socket.getsockname())
    assert header.store_host == broker.address
    properties = decode_properties(header.properties or "")
    assert (properties["CORRELATION_ID"], properties["PUSH_REPLY_TIME"]) == ("c-1", str(header.store_timestamp))
    assert not peer.has_answer(sent)
    answer(asker, push)
    told = peer.answer(sent)
    assert told.code == ResponseCode.SUCCESS
    stored = broker.store.message_at(int(told.ext["msgId"][-16:], 16))
    assert stored is not None
    assert (stored.topic, stored.body, stored.queue_offset) == (TOPIC, b"the reply", int(told.ext["queueOffset"]))


def test_a_reply_that_the_asker_does_not_take_is_an_error(peer: Peer, asker: Peer) -> None:
    sent = reply(peer, asker.client_id)
    answer(asker, asker.notification(), code=ResponseCode.SYSTEM_ERROR)
    told = peer.answer(sent)
    assert told.code == ResponseCode.SYSTEM_ERROR
    assert told.remark == f"push reply message to {asker.client_id} fail: no room"


def test_a_reply_to_one_who_hangs_up_is_an_error(peer: Peer, asker: Peer) -> None:
    sent = reply(peer, asker.client_id)
    asker.notification()
    asker.socket.close()
    told = peer.answer(sent)
    assert told.code == ResponseCode.SYSTEM_ERROR
    assert "closed before the answer came" in (told.remark or "")


@pytest.mark.parametrize(
    ("to", "topic", "says"),
    [
        ("nobody", TOPIC, "channel of <nobody> not found"),
        (None, TOPIC, "properties[REPLY_TO_CLIENT] is null"),
        ("nobody", "there-is-none", "not exist"),
    ],
)
def test_a_reply_to_nobody_is_an_error(peer: Peer, to: str | None, topic: str, says: str) -> None:
    told = peer.answer(reply(peer, to, topic))
    assert told.code in (ResponseCode.SYSTEM_ERROR, ResponseCode.TOPIC_NOT_EXIST)
    assert says in (told.remark or "")


@pytest.mark.parametrize("to", ["nobody", None])
def test_a_reply_to_nobody_is_not_stored(peer: Peer, broker: Broker, to: str | None) -> None:
    before = broker.store.bounds(TOPIC, 0)
    assert peer.answer(reply(peer, to)).code == ResponseCode.SYSTEM_ERROR
    assert broker.store.bounds(TOPIC, 0) == before


@pytest.mark.parametrize("name", ["rmq_sys_wheel_timer", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX"])
def test_a_reply_goes_to_no_book_of_the_broker(peer: Peer, asker: Peer, broker: Broker, name: str) -> None:
    before = broker.store.bounds(name, 0)
    told = peer.answer(reply(peer, asker.client_id, name))
    assert told.code == ResponseCode.NO_PERMISSION
    assert broker.store.bounds(name, 0) == before


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("e", "7000", ResponseCode.INVALID_PARAMETER),
        ("f", "128", ResponseCode.MESSAGE_ILLEGAL),
        ("i", "a\x01" + "b" * 40_000, ResponseCode.MESSAGE_ILLEGAL),
        ("b", "../../x", ResponseCode.INVALID_PARAMETER),
    ],
)
def test_a_reply_is_checked_like_a_send(peer: Peer, asker: Peer, field: str, value: str, code: int) -> None:
    properties = encode_properties({"REPLY_TO_CLIENT": asker.client_id})
    ext = peer.send_header(TOPIC, properties=properties).to_ext() | {field: value}
    told = peer.ask(RequestCode.SEND_REPLY_MESSAGE_V2, headers.SendRequestV2.from_ext(ext), b"x")
    assert told.code == code


def test_a_reply_is_stored_without_the_brokers_properties(peer: Peer, asker: Peer, broker: Broker) -> None:
    text = encode_properties({"REPLY_TO_CLIENT": asker.client_id, "REAL_TOPIC": "../../x"}) + "end\x01\0"
    ext = peer.send_header(TOPIC, properties=text).to_ext() | {"f": "12"}
    sent = peer.send(RequestCode.SEND_REPLY_MESSAGE_V2, headers.SendRequestV2.from_ext(ext), b"x")
    push = asker.notification()
    answer(asker, push)
    stored = broker.store.message_at(int(peer.answer(sent).ext["msgId"][-16:], 16))
    assert stored is not None
    # properties with zeros get a checksum
    assert stored.properties.keys() == {"REPLY_TO_CLIENT", "end", "__CRC32#"}
    assert stored.properties["end"] == "\0"
    assert stored.sys_flag == 0
    record = broker.store.record_at(stored.commit_log_offset)
    assert record is not None
    assert record[-1] != 0
    pushed = headers.PushReply.from_ext(push.ext)
    assert (pushed.sys_flag, "REAL_TOPIC" in (pushed.properties or "")) == (0, False)

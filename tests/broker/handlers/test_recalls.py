from functools import partial

import pytest

from evenq.protocol import headers
from evenq.protocol.codes import RequestCode, ResponseCode
from evenq.protocol.command import Command
from evenq.protocol.properties import encode_properties
from evenq.protocol.recallhandle import RecallHandle
from evenq.testing import Clock
from tests.broker.peers import Peer
from tests.waiting import wait_until


def put(peer: Peer, topic: str, body: bytes, **properties: str) -> str | None:
    """Send a message; the handle to take it back by."""
    answer = peer.put(topic, body, properties=encode_properties(properties))
    assert answer.code == ResponseCode.SUCCESS
    return answer.ext.get("recallHandle")


def recall(peer: Peer, topic: str, handle: str) -> Command:
    header = headers.RecallRequest(topic=topic, recall_handle=handle, producer_group="shop")
    return peer.ask(RequestCode.RECALL_MESSAGE, header)


def test_a_timed_message_can_be_taken_back(peer: Peer, topic: str, broker_clock: Clock) -> None:
    handle = put(peer, topic, b"taken back", TIMER_DELAY_SEC="60", UNIQ_KEY="A1")
    put(peer, topic, b"kept", TIMER_DELAY_SEC="60", UNIQ_KEY="A2")
    assert handle is not None
    answer = recall(peer, topic, handle)
    assert (answer.code, answer.ext["msgId"]) == (ResponseCode.SUCCESS, "A1")
    broker_clock.advance(62)
    delivered = wait_until(partial(peer.pull, topic), "the message that is kept")
    assert [message.body for message in delivered] == [b"kept"]


@pytest.mark.parametrize("properties", [{}, {"DELAY": "1"}, {"TIMER_DELIVER_MS": "1"}], ids=str)
def test_only_timed_messages_have_a_handle(peer: Peer, topic: str, properties: dict[str, str]) -> None:
    assert put(peer, topic, b"x", **properties) is None


@pytest.mark.parametrize(
    ("meant", "at", "seconds", "says"),
    [
        ("others", "broker-a", 10, "topic not match: it is of others"),
        (None, "broker-z", 10, "the message is at broker broker-z"),
        (None, "broker-a", -10, "timestamp invalid"),
        (None, "broker-a", 10**7, "timestamp invalid"),
    ],
)
def test_a_handle_of_something_else_is_refused(
    peer: Peer, topic: str, broker_clock: Clock, meant: str | None, at: str, seconds: int, says: str
) -> None:
    peer.put(topic)
    due = int(broker_clock.now() + seconds) * 1000
    answer = recall(peer, topic, RecallHandle(meant or topic, at, due, "A1").encode())
    assert answer.code == ResponseCode.ILLEGAL_OPERATION
    assert says in (answer.remark or "")


@pytest.mark.parametrize("handle", ["", "x", "!!!", "djIgYSBiIDEgYw==", "djEgYSBiIG5vbmUgYw=="])
def test_what_is_no_handle_is_refused(peer: Peer, topic: str, handle: str) -> None:
    peer.put(topic)
    answer = recall(peer, topic, handle)
    assert answer.code == ResponseCode.ILLEGAL_OPERATION
    assert "recall handle is invalid" in (answer.remark or "")


def test_an_unknown_topic_is_refused(peer: Peer, topic: str) -> None:
    handle = RecallHandle(topic, "broker-a", 1, "A1").encode()
    assert recall(peer, topic, handle).code == ResponseCode.TOPIC_NOT_EXIST


@pytest.mark.parametrize("where", ["handle", "group"])
def test_a_recall_carries_no_further_properties(peer: Peer, topic: str, broker_clock: Clock, where: str) -> None:
    peer.put(topic)
    own = "A1\x02TIMER_OUT_MS\x01" + "9" * 20
    handle = RecallHandle(topic, "broker-a", int(broker_clock.now() + 10) * 1000, own if where == "handle" else "A1")
    header = headers.RecallRequest(
        topic=topic, recall_handle=handle.encode(), producer_group=own if where == "group" else "shop"
    )
    answer = peer.ask(RequestCode.RECALL_MESSAGE, header)
    assert answer.code == ResponseCode.ILLEGAL_OPERATION
    assert "U+0001 or U+0002: give back the handle" in (answer.remark or "")

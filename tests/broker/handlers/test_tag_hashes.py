"""Brokers look at the hash of a tag only: tags with the same hash are told apart by clients."""

from __future__ import annotations

from evenq.protocol.codes import RequestCode
from evenq.protocol.filters import tag_code
from evenq.protocol.records import decode_messages
from tests.broker.peers import Peer


def test_tags_with_the_same_hash_are_one_to_a_broker(peer: Peer, topic: str) -> None:
    assert tag_code("Aa") == tag_code("BB")
    for tag in ("Aa", "BB", "Cc"):
        peer.put(topic, tag.encode(), properties=f"TAGS\x01{tag}\x02")
    answer = peer.ask(RequestCode.PULL_MESSAGE, peer.pull_header(topic, tags="Aa"))
    assert [message.body for message in decode_messages(answer.body)] == [b"Aa", b"BB"]

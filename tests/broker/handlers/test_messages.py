"""Looking for single messages."""

from evenq.broker import Broker
from evenq.protocol import bodies, headers
from evenq.protocol.codes import RequestCode, ResponseCode
from evenq.protocol.command import Command
from evenq.protocol.ids import parse_message_id
from evenq.protocol.properties import encode_properties
from evenq.protocol.records import decode_messages
from evenq.protocol.view import MessageView
from evenq.testing import Clock
from tests.broker.peers import Peer


def query(
    peer: Peer, topic: str, key: str, *, most: int = 32, begin: int = 0, end: int = 2**60, unique: bool | None = None
) -> Command:
    header = headers.QueryMessage(
        topic=topic, key=key, max_num=most, begin_timestamp=begin, end_timestamp=end, unique_key=unique
    )
    return peer.ask(RequestCode.QUERY_MESSAGE, header)


def found(answer: Command) -> list[bytes]:
    return [message.body for message in decode_messages(answer.body)]


def put(peer: Peer, topic: str, number: int) -> None:
    properties = {"UNIQ_KEY": f"{topic}-u{number}", "KEYS": f"k{number} all"}
    assert peer.put(topic, b"%d" % number, properties=encode_properties(properties)).code == 0


def test_a_message_is_found_by_each_of_its_keys_as_soon_as_it_is_sent(peer: Peer, topic: str) -> None:
    for number in range(5):
        put(peer, topic, number)
        assert found(query(peer, topic, f"k{number}")) == [b"%d" % number]

    assert found(query(peer, topic, f"{topic}-u3")) == [b"3"]
    assert found(query(peer, topic, f"{topic}-u3", unique=True)) == [b"3"]
    assert query(peer, topic, "k3", unique=True).code == ResponseCode.QUERY_NOT_FOUND
    assert found(query(peer, topic, "all")) == [b"0", b"1", b"2", b"3", b"4"]
    assert found(query(peer, topic, "all", most=2)) == [b"3", b"4"]


def test_what_is_not_there_is_not_found(peer: Peer, topic: str) -> None:
    # two: the first message of a broker begins at 0
    put(peer, topic, 0)
    put(peer, topic, 1)

    answer = query(peer, topic, "k2")

    assert answer.code == ResponseCode.QUERY_NOT_FOUND
    assert "can not find message" in (answer.remark or "")
    assert int(answer.ext["indexLastUpdatePhyoffset"]) > 0
    assert query(peer, f"{topic}-other", "k1").code == ResponseCode.QUERY_NOT_FOUND


def test_times_are_kept_to_the_millisecond(peer: Peer, topic: str, broker_clock: Clock) -> None:
    for number in range(3):
        put(peer, topic, number)
        broker_clock.advance(0.5)
    times = [message.store_timestamp for message in stored(peer, topic)]

    assert found(query(peer, topic, "all", begin=times[1], end=times[1])) == [b"1"]
    assert found(query(peer, topic, "all", begin=times[0] + 1)) == [b"1", b"2"]
    assert found(query(peer, topic, "all", end=times[2] - 1)) == [b"0", b"1"]


def test_answers_stay_within_what_clients_take(peer: Peer, topic: str) -> None:
    large = bytes(3 * 1024 * 1024)
    for _ in range(4):
        peer.put(topic, large, properties="KEYS\x01same\x02")

    assert len(found(query(peer, topic, "same"))) == 2


def stored(peer: Peer, topic: str) -> list[MessageView]:
    return peer.pull(topic)


def test_a_message_is_found_by_its_place(peer: Peer, topic: str) -> None:
    answer = peer.put(topic, b"here")
    _, place = parse_message_id(answer.ext["msgId"])

    assert found(peer.ask(RequestCode.VIEW_MESSAGE_BY_ID, headers.ViewMessage(offset=place))) == [b"here"]
    for wrong in (place + 1, place + 10**12, -1):
        refused = peer.ask(RequestCode.VIEW_MESSAGE_BY_ID, headers.ViewMessage(offset=wrong))
        assert refused.code == ResponseCode.SYSTEM_ERROR
        assert str(wrong) in (refused.remark or "")


def test_a_consume_queue_is_shown_as_it_is_stored(peer: Peer, topic: str, broker: Broker) -> None:
    for number in range(5):
        peer.put(topic, b"%d" % number)
    places = [message.commit_log_offset for message in stored(peer, topic)]

    def ask(index: int, count: int, queue_id: int = 0) -> Command:
        header = headers.QueryConsumeQueue(topic=topic, queue_id=queue_id, index=index, count=count)
        return peer.ask(RequestCode.QUERY_CONSUME_QUEUE, header)

    body = bodies.ConsumeQueueBody.decode(ask(1, 3).body)
    assert [entry.physic_offset for entry in body.queue_data] == places[1:4]
    assert (body.min_queue_index, body.max_queue_index) == (0, 5)
    assert bodies.ConsumeQueueBody.decode(ask(9, 3).body).queue_data == []
    assert ask(0, 3, queue_id=3).code == ResponseCode.SYSTEM_ERROR

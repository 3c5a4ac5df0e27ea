from collections.abc import Callable
from pathlib import Path

import pytest

from evenq.broker import Broker, BrokerSettings
from evenq.protocol import bodies, headers
from evenq.protocol.batch import BatchEntry, encode_batch
from evenq.protocol.codes import RequestCode, ResponseCode
from evenq.protocol.command import Command
from evenq.protocol.ids import parse_message_id
from evenq.protocol.properties import encode_properties
from evenq.protocol.view import MessageView
from evenq.testing import EmbeddedCluster, cluster
from tests.broker.peers import Peer
from tests.clusters import route
from tests.waiting import wait_until


def stored(peer: Peer, topic: str, queue_id: int = 0) -> list[MessageView]:
    return peer.pull(topic, queue_id=queue_id)


def test_a_message_is_stored_as_the_java_broker_stores_it(peer: Peer, topic: str, broker: Broker) -> None:
    properties = encode_properties({"TAGS": "paid", "KEYS": "o-1", "UNIQ_KEY": "0A0B", "own": "value"})
    answer = peer.put(topic, b"hello", 2, properties=properties)
    assert answer.code == ResponseCode.SUCCESS
    (message,) = stored(peer, topic, 2)
    assert message.body == b"hello"
    assert message.properties == {
        "TAGS": "paid",
        "KEYS": "o-1",
        "UNIQ_KEY": "0A0B",
        "own": "value",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
        "CLUSTER": "DefaultCluster",
    }
    assert answer.ext["queueId"] == "2"
    assert answer.ext["queueOffset"] == "0"
    assert answer.ext["transactionId"] == "0A0B"
    assert answer.ext["msgId"] == message.msg_id
    assert parse_message_id(message.msg_id) == (broker.address, message.commit_log_offset)
    assert message.born_host == "{}:{}".format(*peer.socket.getsockname())


def test_a_message_without_an_id_gets_one(peer: Peer, topic: str) -> None:
    answers = [peer.put(topic), peer.put(topic, properties="a\x01b")]
    ids = [message.unique_key for message in stored(peer, topic)]
    assert ids == [answer.ext["transactionId"] for answer in answers]
    assert len({key for key in ids if key and len(key) == 32}) == 2
    assert stored(peer, topic)[1].properties["a"] == "b"


def test_properties_without_a_last_separator_stay_apart_from_those_added(peer: Peer, topic: str) -> None:
    peer.put(topic, properties="UNIQ_KEY\x01id\x02own\x01value")
    (message,) = stored(peer, topic)
    assert (message.properties["own"], message.properties["MSG_REGION"]) == ("value", "DefaultRegion")


def test_the_long_names_of_old_clients_are_known(peer: Peer, topic: str) -> None:
    header = headers.SendRequest(
        producer_group="shop", topic=topic, queue_id=1, born_timestamp=7, default_topic_queue_nums=4, flag=9
    )
    assert peer.ask(RequestCode.SEND_MESSAGE, header, b"old").code == 0
    (message,) = stored(peer, topic, 1)
    assert (message.body, message.born_timestamp, message.flag) == (b"old", 7, 9)


def test_a_queue_is_chosen_where_none_is_named(peer: Peer, topic: str) -> None:
    for _ in range(40):
        assert peer.put(topic, queue_id=-1).code == 0
    counts = [len(stored(peer, topic, queue_id)) for queue_id in range(4)]
    assert sum(counts) == 40
    assert all(counts)


def test_a_topic_is_created_by_its_first_message_and_registered(
    peer: Peer, topic: str, one_broker: EmbeddedCluster
) -> None:
    assert route(one_broker.namesrv, topic) == {}
    peer.put(topic)
    wait_until(lambda: route(one_broker.namesrv, topic) == {"broker-a": 4}, "the topic's route")


def test_a_batch_is_stored_message_by_message(peer: Peer, topic: str) -> None:
    entries = [BatchEntry(b"%d" % number, f"TAGS\x01{'ab'[number % 2]}\x02own\x01{number}\x02") for number in range(10)]
    answer = peer.ask(RequestCode.SEND_BATCH_MESSAGE, peer.send_header(topic, 1), encode_batch(entries))
    assert answer.code == 0
    messages = stored(peer, topic, 1)
    assert [message.body for message in messages] == [entry.body for entry in entries]
    assert [message.properties["own"] for message in messages] == [str(number) for number in range(10)]
    assert answer.ext["msgId"].split(",") == [message.msg_id for message in messages]
    found = peer.ask(RequestCode.PULL_MESSAGE, peer.pull_header(topic, queue_id=1, tags="b"))
    assert found.ext["nextBeginOffset"] == "10"
    assert len(found.body) == sum(message.store_size for message in messages[1::2])


@pytest.mark.parametrize(
    "properties",
    ["TAGS\x01b\x02x\x01y\x02", "x\x01y\x02TAGS\x01b\x02", "x\x01TAGS\x02TAGS\x01b", "MYTAGS\x01a\x02TAGS\x01b\x02"],
)
def test_the_tag_of_a_message_in_a_batch_is_found(peer: Peer, topic: str, properties: str) -> None:
    batch = encode_batch([BatchEntry(b"x", properties), BatchEntry(b"y", "MYTAGS\x01b\x02"), BatchEntry(b"z")])
    peer.ask(RequestCode.SEND_BATCH_MESSAGE, peer.send_header(topic), batch)
    answer = peer.ask(RequestCode.PULL_MESSAGE, peer.pull_header(topic, tags="b"))
    assert answer.code == ResponseCode.SUCCESS
    assert answer.body.count(properties.encode()) == 1
    assert b"MYTAGS\x01b" not in answer.body


def refusals() -> list[object]:
    plain = Peer.send_header
    return [
        pytest.param(plain("no such name"), b"x", ResponseCode.INVALID_PARAMETER, "characters other than", id="name"),
        pytest.param(plain("x" * 128), b"x", ResponseCode.INVALID_PARAMETER, "at most 127", id="long name"),
        pytest.param(plain("SELF_TEST_TOPIC"), b"x", ResponseCode.NO_PERMISSION, "is forbidden", id="own books"),
        pytest.param(plain("TBW102", 8), b"x", ResponseCode.INVALID_PARAMETER, "has queues 0 to 7", id="queue"),
        pytest.param(
            plain("TBW102"),
            bytes(4 * 1024 * 1024 + 1),
            ResponseCode.MESSAGE_ILLEGAL,
            "over the limit 4194304",
            id="body",
        ),
        pytest.param(
            plain("TBW102", properties="a\x01" + "b" * 0x7FFF),
            b"x",
            ResponseCode.MESSAGE_ILLEGAL,
            "bytes, over the limit",
            id="properties",
        ),
    ]


@pytest.mark.parametrize(("header", "body", "code", "says"), refusals())
def test_what_cannot_be_stored_is_refused(
    peer: Peer, header: headers.SendRequestV2, body: bytes, code: ResponseCode, says: str
) -> None:
    answer = peer.ask(RequestCode.SEND_MESSAGE_V2, header, body)
    assert answer.code == code
    assert says in (answer.remark or "")


def test_a_missing_field_is_named(peer: Peer) -> None:
    answer = peer.ask(RequestCode.SEND_MESSAGE_V2, headers.GroupRequest(consumer_group="g"))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "is missing" in (answer.remark or "")


@pytest.mark.parametrize("room", [0, 1, 20, 21])
def test_properties_of_a_batch_leave_room_for_their_checksum(peer: Peer, topic: str, room: int) -> None:
    odd = "odd\x01\0".ljust(0x7FFF - room - 1, "x") + "\x02"
    batch = encode_batch([BatchEntry(b"first"), BatchEntry(b"second", odd)])
    answer = peer.ask(RequestCode.SEND_BATCH_MESSAGE, peer.send_header(topic), batch)
    assert answer.code == (ResponseCode.SUCCESS if room >= 20 else ResponseCode.MESSAGE_ILLEGAL)
    assert len(peer.pull(topic)) == (2 if room >= 20 else 0)
    if room < 20:
        assert answer.remark == (
            f"the properties of a message of the batch have {len(odd)} bytes with a NUL, over the limit 32747"
        )


@pytest.mark.parametrize("batch", [b"", b"\0\0", b"\0\0\0\x10" + bytes(40)], ids=["empty", "short", "broken"])
def test_a_broken_batch_is_refused_and_leaves_nothing(peer: Peer, topic: str, batch: bytes) -> None:
    answer = peer.ask(RequestCode.SEND_BATCH_MESSAGE, peer.send_header(topic), batch)
    assert answer.code in (ResponseCode.MESSAGE_ILLEGAL, ResponseCode.SYSTEM_ERROR)
    assert stored(peer, topic) == []


def test_a_read_only_topic_takes_no_message(peer: Peer, topic: str) -> None:
    peer.ask(
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        headers.CreateTopic(topic=topic, read_queue_nums=1, write_queue_nums=1, perm=4),
    )
    assert peer.put(topic).code == ResponseCode.NO_PERMISSION


@pytest.mark.live
def test_no_topic_is_created_where_that_is_forbidden() -> None:
    settings = BrokerSettings(auto_create_topics=False)
    with cluster(settings=settings) as running, Peer(running.brokers["broker-a"].address) as peer:
        answer = peer.put("orders")
        assert answer.code == ResponseCode.TOPIC_NOT_EXIST
        assert "topic[orders] not exist" in (answer.remark or "")


@pytest.mark.live
@pytest.mark.parametrize("senders", [1, 5])
def test_with_synchronous_flush_answers_come_after_the_disk(senders: int) -> None:
    with cluster(settings=BrokerSettings(flush="sync")) as running:
        broker = running.brokers["broker-a"]
        peers = [Peer(broker.address) for _ in range(senders)]
        opaques = [
            [peer.send(RequestCode.SEND_MESSAGE_V2, peer.send_header("orders"), b"x") for _ in range(20)]
            for peer in peers
        ]
        answers = [peer.answer(opaque) for peer, sent in zip(peers, opaques, strict=True) for opaque in sent]
        assert {answer.code for answer in answers} == {0}
        assert sorted(int(answer.ext["queueOffset"]) for answer in answers) == list(range(20 * senders))
        assert broker.store.log._synced == broker.store.log.end
        for peer in peers:
            peer.socket.close()


def test_messages_of_many_senders_keep_their_order(connect: Callable[..., Peer], topic: str) -> None:
    peers = [connect() for _ in range(3)]
    sent = [
        (peer, peer.send(RequestCode.SEND_MESSAGE_V2, peer.send_header(topic), b"%d-%03d" % (number, turn)))
        for turn in range(50)
        for number, peer in enumerate(peers)
    ]
    offsets = {int(peer.answer(opaque).ext["queueOffset"]) for peer, opaque in sent}
    assert offsets == set(range(150))
    found = [message.body for message in stored(peers[0], topic)]
    for number in range(3):
        own = [body for body in found if body.startswith(b"%d-" % number)]
        assert own == sorted(own)


# What clients may not say


def send(
    peer: Peer, topic: str, body: bytes = b"x", code: int = RequestCode.SEND_MESSAGE_V2, **more: object
) -> Command:
    """A send with other fields than usual."""
    ext = peer.send_header(topic).to_ext() | {name: str(value) for name, value in more.items()}
    return peer.ask(code, headers.SendRequestV2.from_ext(ext), body)


@pytest.mark.parametrize("flags", [4, 8, 12, 4 | 1 << 30])
def test_an_ordinary_message_cannot_pose_as_a_transactions(peer: Peer, topic: str, flags: int) -> None:
    assert send(peer, topic, f=flags | 2).code == ResponseCode.SUCCESS
    (message,) = stored(peer, topic)
    assert message.sys_flag == 2


@pytest.mark.parametrize(("code", "flags"), [(310, 64), (310, 128), (320, 4), (320, 8), (320, 128)])
def test_flags_that_need_a_topic_of_their_own_are_refused(peer: Peer, topic: str, code: int, flags: int) -> None:
    answer = send(peer, topic, encode_batch([BatchEntry(b"x")]), code, f=flags)
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert f"sysFlag {flags}" in (answer.remark or "")
    assert stored(peer, topic) == []


@pytest.mark.parametrize(
    "name",
    "REAL_TOPIC REAL_QID TIMER_OUT_MS TIMER_ENQUEUE_MS TIMER_DEQUEUE_MS TIMER_ROLL_TIMES TIMER_DEL_UNIQKEY "
    "TRANSACTION_CHECK_TIMES TRAN_PREPARED_QUEUE_OFFSET __transactionId__ INNER_NUM POP_CK RETRY_TOPIC "
    "ORIGIN_MESSAGE_ID".split(),
)
@pytest.mark.parametrize("batched", [False, True], ids=["single", "batch"])
def test_properties_of_the_broker_are_not_taken(peer: Peer, topic: str, name: str, batched: bool) -> None:
    properties = {"KEYS": "k", name: "../../../x", "own": "value"}
    if batched:
        entries = [BatchEntry(b"first", "own\x01\x00\x02"), BatchEntry(b"x", encode_properties(properties), 7)]
        answer = send(peer, topic, encode_batch(entries), RequestCode.SEND_BATCH_MESSAGE)
    else:
        answer = peer.put(topic, properties=encode_properties(properties))
    assert answer.code == ResponseCode.SUCCESS
    message = stored(peer, topic)[-1]
    assert (message.properties["KEYS"], message.properties["own"], message.body) == ("k", "value", b"x")
    assert name not in message.properties
    assert message.flag == (7 if batched else 0)


def test_a_copy_of_a_timed_message_is_due_at_once(peer: Peer, topic: str) -> None:
    peer.put(topic, properties=encode_properties({"TIMER_OUT_MS": "1", "TIMER_DELAY_SEC": "60", "KEYS": "k"}))
    (message,) = stored(peer, topic)
    assert [name for name in message.properties if name.startswith("TIMER_")] == []


@pytest.mark.parametrize("name", ["TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"])
def test_timed_messages_are_refused_in_a_batch(peer: Peer, topic: str, name: str) -> None:
    batch = encode_batch([BatchEntry(b"x", f"{name}\x0160\x02")])
    answer = send(peer, topic, batch, RequestCode.SEND_BATCH_MESSAGE)
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert f"{name}: send timed messages singly" in (answer.remark or "")
    assert stored(peer, topic) == []


@pytest.mark.parametrize("name", ["DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"])
@pytest.mark.parametrize("value", ["1_0", " 1", "٣", "1" * 5000], ids=["underscore", "blank", "arabic", "long"])
@pytest.mark.parametrize("half", [False, True], ids=["ordinary", "half"])
def test_a_time_that_is_no_number_is_refused(peer: Peer, topic: str, name: str, value: str, half: bool) -> None:
    properties = {name: value} | ({"TRAN_MSG": "true"} if half else {})
    answer = peer.put(topic, properties=encode_properties(properties))
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert f"{name} is {value[:40]!r}: it must be a whole number" in (answer.remark or "")


@pytest.mark.parametrize(
    "name",
    "rmq_sys_wheel_timer rmq_sys_REVIVE_LOG_DefaultCluster rmq_sys_new DefaultCluster_REPLY_TOPIC "
    "RMQ_SYS_TRANS_OP_HALF_TOPIC".split(),
)
@pytest.mark.parametrize("code", [RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE])
def test_the_brokers_own_topics_take_no_messages(peer: Peer, broker: Broker, name: str, code: int) -> None:
    before = broker.store.bounds(name, 0)
    answer = send(peer, name, encode_batch([BatchEntry(b"x")]), code)
    assert answer.code == ResponseCode.NO_PERMISSION
    assert f"topic[{name}] is forbidden" in (answer.remark or "")
    assert broker.store.bounds(name, 0) == before


@pytest.mark.parametrize("name", ["RMQ_SYS_TRACE_TOPIC", "TBW102", "BenchmarkTest", "DefaultCluster", "broker-a"])
def test_system_topics_that_are_meant_for_clients_stay_open(peer: Peer, name: str) -> None:
    assert peer.put(name).code == ResponseCode.SUCCESS


def test_the_name_of_a_topic_that_exists_is_checked_too(
    peer: Peer, one_broker: EmbeddedCluster, broker: Broker
) -> None:
    name = "../../../x"
    one_broker.call(lambda: broker.topics.put(bodies.TopicConfig(topic_name=name)))
    answer = peer.put(name)
    one_broker.call(lambda: broker.topics.delete(name))
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert "has characters other than" in (answer.remark or "")


@pytest.mark.parametrize("queue_id", [-1, 0])
def test_a_topic_without_queues_takes_no_message(peer: Peer, topic: str, queue_id: int) -> None:
    create = headers.CreateTopic(topic=topic, read_queue_nums=0, write_queue_nums=0, perm=6)
    peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, create)
    assert peer.put(topic, queue_id=queue_id).code == ResponseCode.INVALID_PARAMETER


def test_no_topic_is_made_without_queues(peer: Peer, topic: str, broker: Broker) -> None:
    answer = send(peer, topic, d=0)
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert "defaultTopicQueueNums is 0: give at least 1" in (answer.remark or "")
    assert topic not in broker.topics


def test_properties_with_a_nul_leave_room_for_a_checksum(peer: Peer, topic: str, broker: Broker) -> None:
    room = broker.admission._room
    full = "a\x01" + "b" * (room - 3) + "\x02"
    assert peer.put(topic, properties=full).code == ResponseCode.SUCCESS
    answer = peer.put(topic, properties=full.replace("bb", "\0b", 1))
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert f"over the limit {room - 20}" in (answer.remark or "")


@pytest.mark.live
def test_no_message_keeps_a_broker_from_starting_again(tmp_path: Path) -> None:
    number = "1" * 5000
    hostile = [
        {"TRAN_MSG": "true", "KEYS": "k\x02TRANSACTION_CHECK_TIMES\x01abc"},
        {"TRAN_MSG": "true", "TRAN_PREPARED_QUEUE_OFFSET": number, "CHECK_IMMUNITY_TIME_IN_SECONDS": number},
        {"TIMER_DELAY_SEC": "60", "TIMER_ROLL_TIMES": "x"},
        {"TIMER_OUT_MS": number},
        {"DELAY": "1", "REAL_TOPIC": "../../../x", "REAL_QID": number},
    ]
    with cluster(data=tmp_path / "data") as running:
        for properties in hostile:
            with Peer(running.brokers["broker-a"].address) as peer:
                assert peer.put("orders", b"hostile", properties=encode_properties(properties)).code == 0
        running.stop_broker("broker-a")
        with Peer(running.start_broker("broker-a").address) as peer:
            peer.put("orders", b"delayed", 1, properties=encode_properties({"DELAY": "1"}))
            wait_until(lambda: peer.pull("orders", queue_id=1), "the message that is delayed")
    assert not list(tmp_path.glob("x*"))


def test_a_message_was_tried_no_negative_number_of_times(peer: Peer, topic: str) -> None:
    send(peer, topic, j=-5)
    (message,) = stored(peer, topic)
    assert message.reconsume_times == 0

import time
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenq.client.produce.outgoing import OutgoingBatch, OutgoingMessage, Packer, SendRequests, check_topic
from evenq.errors import ArgumentError, NoPermission, ProtocolError, RefusedError
from evenq.model import Message, MessageQueue, SendStatus
from evenq.protocol.batch import decode_batch
from evenq.protocol.codes import RequestCode, ResponseCode
from evenq.protocol.command import Command
from evenq.protocol.compression import decompress
from evenq.protocol.headers import SendRequestV2
from evenq.protocol.ids import UniqueIds
from evenq.protocol.properties import decode_properties, encode_properties

QUEUE = MessageQueue("orders", "broker-a", 3)


def packer(
    compress_over: int = 4096,
    max_message_size: int = 4 << 20,
    namespace: str = "",
    compression: str = "ZLIB",
) -> Packer:
    ids = UniqueIds(address=bytes([10, 0, 0, 1]), pid=1, salt=2, clock=lambda: 1_700_000_000.0)
    return Packer(
        ids,
        compression=compression,  # type: ignore[arg-type]
        compress_over=compress_over,
        max_message_size=max_message_size,
        namespace=namespace,
    )


def stored(code: int = ResponseCode.SUCCESS, queue_id: int = 3) -> Command:
    return Command(code, ext={"msgId": "ID", "queueId": str(queue_id), "queueOffset": "17", "transactionId": "TX"})


def test_what_a_message_says_travels_as_properties() -> None:
    when = datetime(2030, 1, 2, 3, 4, 5, 678_000, UTC)
    message = Message(
        "orders", b"x", tags="paid", keys=["a", "b"], properties={"é": "ü"}, sharding_key="s", delay_level=3
    )
    parcel = packer(namespace="shop").message(message, {"MORE": "1"})
    found = decode_properties(parcel.properties)
    assert found.pop("UNIQ_KEY") == parcel.unique_key
    assert found == {
        "é": "ü", "TAGS": "paid", "KEYS": "a b", "__SHARDINGKEY": "s", "DELAY": "3", "INSTANCE_ID": "shop", "MORE": "1",
    }  # fmt: skip
    timed = packer().message(Message("orders", b"x", deliver_at=when))
    assert decode_properties(timed.properties)["TIMER_DELIVER_MS"] == "1893553445678"


def test_an_id_that_the_message_has_is_kept() -> None:
    parcel = packer().message(Message("orders", b"x", properties={"UNIQ_KEY": "mine"}))
    assert parcel.unique_key == "mine"
    assert parcel.properties.count("UNIQ_KEY") == 1


@pytest.mark.parametrize(("compression", "bits"), [("ZLIB", 0x301), ("LZ4", 0x101), ("ZSTD", 0x201)])
def test_only_larger_bodies_are_compressed(compression: str, bits: int) -> None:
    pack = packer(compress_over=100, compression=compression)
    small, large = pack.message(Message("t", b"x" * 100)), pack.message(Message("t", b"x" * 101), sys_flag=4)
    assert (small.body, small.sys_flag) == (b"x" * 100, 0)
    assert large.sys_flag == bits | 4
    assert len(large.body) < 101
    assert decompress(large.body, large.sys_flag) == b"x" * 101


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        (Message("t", b""), "body='0 bytes': give at least one byte"),
        (Message("t", b"x" * 101), "body='101 bytes': at most 100 bytes fit"),
        (Message("t", b"x", properties={"p": "v" * 0x7FFF}), "all properties together may have 32767 bytes"),
        # bytes count, not characters
        (Message("t", b"x", tags="é" * 0x4000), "properties='328.. bytes'"),
    ],
)
def test_what_no_broker_takes_is_refused(message: Message, complaint: str) -> None:
    pack = packer(max_message_size=100)
    with pytest.raises(ArgumentError, match=complaint):
        pack.message(message)
    with pytest.raises(ArgumentError, match=complaint):
        pack.entry(message)
    if not message.wire_properties():
        with pytest.raises(ArgumentError, match=complaint):
            pack.no_properties([Message("t", b"x"), message])


@pytest.mark.parametrize(
    ("topic", "complaint"), [("or ders", "characters other than"), ("SCHEDULE_TOPIC_XXXX", "belongs to the broker")]
)
def test_topics_that_nobody_may_send_to(topic: str, complaint: str) -> None:
    with pytest.raises(ArgumentError, match=complaint):
        check_topic(topic)


def batched(pack: Packer, messages: list[Message]) -> OutgoingBatch:
    own, sizes = zip(*map(pack.entry, messages), strict=True)
    parcel = pack.batch(messages, own)
    assert len(parcel.body) == sum(sizes)
    return parcel


MESSAGES = st.builds(
    Message,
    st.just("t"),
    st.binary(min_size=1, max_size=50),
    tags=st.none() | st.text("aé", min_size=1),
    keys=st.lists(st.text("kü", min_size=1), max_size=2),
    properties=st.dictionaries(st.sampled_from("pqr"), st.text("vö", min_size=1), max_size=2),
    sharding_key=st.none() | st.text("s", min_size=1),
    flag=st.integers(0, 3),
)


@given(st.lists(MESSAGES, min_size=1, max_size=12), st.sampled_from(["", "shop"]))
def test_a_batch_carries_what_its_messages_would_alone(messages: list[Message], namespace: str) -> None:
    parcel = batched(packer(namespace=namespace), messages)
    alone = packer(namespace=namespace)
    assert [(entry.body, entry.properties, entry.flag) for entry in decode_batch(parcel.body)] == [
        (single.body, single.properties, single.flag) for single in map(alone.message, messages)
    ]
    assert list(parcel.unique_keys) == [
        decode_properties(each.properties)["UNIQ_KEY"] for each in decode_batch(parcel.body)
    ]
    common = {"INSTANCE_ID": namespace} if namespace else {}
    assert [alone.entry(message)[0].decode() for message in messages] == [
        encode_properties(message.wire_properties() | common) for message in messages
    ]


def test_messages_that_have_an_id_keep_it_in_a_batch() -> None:
    messages = [Message("t", b"1"), Message("t", b"2", properties={"UNIQ_KEY": "mine", "p": "v"})]
    pack = packer()
    parcel = pack.batch(messages, [pack.entry(message)[0] for message in messages])
    first, second = (decode_properties(entry.properties) for entry in decode_batch(parcel.body))
    assert second == {"UNIQ_KEY": "mine", "p": "v"}
    assert list(parcel.unique_keys) == [first["UNIQ_KEY"], "mine"]
    assert len(first["UNIQ_KEY"]) == 32


def test_a_batch_holds_its_messages_uncompressed_each_with_its_id() -> None:
    pack = packer(compress_over=10)
    messages = [Message("orders", b"x" * 50, tags="a", flag=7), Message("orders", b"y")]
    parcel = batched(pack, messages)
    first, second = decode_batch(parcel.body)
    assert (first.body, first.flag, second.body) == (b"x" * 50, 7, b"y")
    assert decode_properties(first.properties) == {"TAGS": "a", "UNIQ_KEY": parcel.unique_keys[0]}
    assert decode_properties(second.properties)["UNIQ_KEY"] == parcel.unique_keys[1]
    assert (parcel.code, parcel.sys_flag) == (RequestCode.SEND_BATCH_MESSAGE, 0)


def test_a_batch_over_the_limit_says_how_to_divide_it() -> None:
    pack = packer(max_message_size=200)
    messages = [Message("orders", b"x" * 60)] * 3
    with pytest.raises(ArgumentError, match=r"3 messages of \d+ bytes.*at most 200 bytes.*split=True"):
        batched(pack, messages)


def test_a_request_has_the_fields_of_its_header() -> None:
    requests = SendRequests("shop%billing", 4, lambda topic: f"shop%{topic}")
    parcel = packer(namespace="shop").message(Message("orders", b"body", flag=9), sys_flag=4)
    for _ in range(2):  # the second time from what was kept
        before = time.time_ns() // 1_000_000
        command = requests.make(QUEUE, parcel)
        header = SendRequestV2.from_ext(command.ext)
        assert (command.code, command.body) == (RequestCode.SEND_MESSAGE_V2, b"body")
        assert header == SendRequestV2(
            producer_group="shop%billing",
            topic="shop%orders",
            queue_id=3,
            sys_flag=4,
            born_timestamp=header.born_timestamp,
            flag=9,
            properties=parcel.properties,
            broker_name="broker-a",
        )
        assert before <= header.born_timestamp <= time.time_ns() // 1_000_000
        command.ext["b"] = "changed by a signature"


@pytest.mark.parametrize("code", [0, 10, 11, 12])
def test_what_is_stored_has_a_receipt(code: int) -> None:
    parcel = packer().message(Message("orders", b"x"))
    for queue_id in (3, 4):  # a broker may choose another queue
        receipt = parcel.read("1.2.3.4:1", QUEUE, stored(code, queue_id))
        assert receipt.status == SendStatus(code)
        assert receipt.ok == (code == 0)
        assert receipt.queue == MessageQueue("orders", "broker-a", queue_id)
        assert (receipt.offset, receipt.offset_msg_id, receipt.transaction_id) == (17, "ID", "TX")
        assert receipt.msg_id == parcel.unique_key


@pytest.mark.parametrize("code", sorted(set(ResponseCode) - set(SendStatus)))
def test_every_other_answer_is_a_refusal(code: int) -> None:
    parcel = packer().message(Message("orders", b"x"))
    with pytest.raises(RefusedError) as caught:
        parcel.read("1.2.3.4:1", QUEUE, stored(code))
    error = caught.value
    assert (error.code, error.request, error.address) == (code, "SEND_MESSAGE_V2", "1.2.3.4:1")
    assert isinstance(error, NoPermission) == (code == ResponseCode.NO_PERMISSION)


def test_an_answer_without_a_place_is_not_the_protocol() -> None:
    parcel: OutgoingMessage = packer().message(Message("orders", b"x"))
    with pytest.raises(ProtocolError, match="'msgId' is missing"):
        parcel.read("1.2.3.4:1", QUEUE, Command(0))

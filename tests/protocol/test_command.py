from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenq.errors import ArgumentError, ProtocolError
from evenq.protocol.command import LANGUAGES, VERSION, Command, Serialize
from tests.protocol.cases import ints, load, mutations

texts = st.text(max_size=20)
commands = st.builds(
    Command,
    st.integers(-(2**15), 2**15 - 1),
    ints,
    ints,
    st.integers(-(2**15), 2**15 - 1),
    st.none() | st.text(min_size=1, max_size=20),
    st.dictionaries(texts, texts, max_size=5),
    st.binary(max_size=50),
    st.sampled_from(LANGUAGES),
    st.sampled_from(get_args(Serialize)),
)


@pytest.mark.parametrize("vector", load("remoting"), ids=lambda v: f"{v['serialize']}-{v['opaque']}")
def test_what_java_wrote(vector: dict[str, Any]) -> None:
    frame = bytes.fromhex(vector["frame"])
    command = Command.decode(frame)
    expected = (vector["code"], vector["opaque"], vector["flag"], vector["version"], vector.get("remark"))
    assert (command.code, command.opaque, command.flag, command.version, command.remark) == expected
    assert command.ext == vector["ext"]
    assert command.body.hex() == vector["body"]
    assert command.serialize == vector["serialize"]
    assert command.language == "JAVA"
    assert command.encode() == frame


@given(commands)
def test_there_and_back(command: Command) -> None:
    assert Command.decode(command.encode()) == command


@given(commands, st.sampled_from(get_args(Serialize)))
def test_both_formats_say_the_same(command: Command, serialize: Serialize) -> None:
    again = Command.decode(command.encode(serialize))
    again.serialize = command.serialize
    assert again == command


def test_an_answer_takes_the_opaque_and_the_format() -> None:
    asked = Command(11, opaque=7, serialize="ROCKETMQ")
    answer = asked.reply(19, ext={"minOffset": "0"}, body=b"x", remark="nothing")
    assert (answer.code, answer.opaque, answer.serialize, answer.version) == (19, 7, "ROCKETMQ", VERSION)
    assert answer.is_response
    assert not answer.is_oneway


def json_frame(header: bytes) -> bytes:
    return (4 + len(header)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header


@pytest.mark.parametrize(
    "header",
    [
        b'{"code":30,"extFields":{"queueId":3,"topic":"t","brokerName":"b"},"opaque":1}',
        b'{"code":"30","extFields":{"queueId":"3","topic":"t","brokerName":"b","nothing":null},"opaque":1}',
        b'{"code":30,"extFields":{"queueId":"3","topic":"t","brokerName":"b"},"opaque":1,"new":{"a":1}}',
    ],
    ids=["numbers among the fields", "text for numbers", "unknown parts"],
)
def test_headers_of_other_clients(header: bytes) -> None:
    command = Command.decode(json_frame(header))
    assert command.ext == {"queueId": "3", "topic": "t", "brokerName": "b"}
    assert (command.code, command.opaque, command.language) == (30, 1, "JAVA")


def test_booleans_among_the_fields() -> None:
    assert Command.decode(json_frame(b'{"code":1,"extFields":{"a":true,"b":false}}')).ext == {"a": "true", "b": "false"}


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (b"", "at least 8"),
        (bytes(7), "at least 8"),
        (b"\0\0\0\5\0\0\0\1", "says length 5"),
        (b"\0\0\0\4\0\0\0\1", "header length 1"),
        (b"\0\0\0\4\2\0\0\0", "header format 2"),
        (b"\0\0\0\4\0\0\0\0", "JSON header"),
        (b"\0\0\0\4\1\0\0\0", "ROCKETMQ header"),
        (json_frame(b"[1]"), "JSON header"),
        (json_frame(b'{"opaque":1}'), "code"),
        (json_frame(b'{"code":1,"opaque":4294967296}'), "opaque"),
        (json_frame(b'{"code":1,"remark":"\xff"}'), "JSON header"),
        (json_frame(b'{"code":1,"remark":"\\ud800"}'), "surrogate"),
    ],
)
def test_nonsense_is_named(frame: bytes, reason: str) -> None:
    with pytest.raises(ProtocolError, match=reason):
        Command.decode(frame)


@given(mutations(commands.map(Command.encode)))
def test_damage_is_a_protocol_error_or_another_command(frame: bytes) -> None:
    try:
        command = Command.decode(frame)
    except ProtocolError:
        return
    command.reply(1, ext=command.ext, remark=command.remark).encode()


@pytest.mark.parametrize(
    ("command", "serialize"),
    [
        (Command(200_050), "ROCKETMQ"),
        (Command(10, opaque=2**31), "ROCKETMQ"),
        (Command(1, ext={"a": "x" * 2**24}), "JSON"),
    ],
)
def test_what_no_header_can_hold(command: Command, serialize: Serialize) -> None:
    with pytest.raises(ArgumentError):
        command.encode(serialize)

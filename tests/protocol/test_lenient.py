import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenq.errors import ProtocolError
from evenq.model import Begin, MessageQueue
from evenq.protocol.lenient import dump_pieces, dumps, loads, read_queue
from tests.protocol.cases import ints, mutations

names = st.text(max_size=8)
queues = st.builds(MessageQueue, names, names, ints)
scalars = st.none() | st.booleans() | ints | st.floats(allow_nan=False, allow_infinity=False) | names
plain = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3), max_leaves=12
)
# fastjson has no nulls in objects, and numbers and queues as keys
fastjson = st.recursive(
    st.booleans() | ints | names,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ints.map(str) | queues, inner, max_size=3),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{0:"a"}', {"0": "a"}),
        ('{0:"a",-1:"b"}', {"0": "a", "-1": "b"}),
        (' { 0 : [ 1 , { 2 : {} } ] , "x" : [] } ', {"0": [1, {"2": {}}], "x": []}),
        ('{{"q":1}:{"x":2}}', {'{"q":1}': {"x": 2}}),
        ('{1:"\\u00e9\\"}"}', {"1": 'é"}'}),
        ('{1:"\\ud83d\\ude80"}', {"1": "🚀"}),
        ('{1:"\\\\ud800"}', {"1": "\\ud800"}),
        ("[{1:1.5e3},null,true]", [{"1": 1500.0}, None, True]),
    ],
)
def test_what_fastjson_writes(text: str, value: object) -> None:
    assert loads(text) == value
    assert loads(text.encode()) == value


def test_a_queue_is_read_as_one_only_when_asked() -> None:
    queue = '{"brokerName":"b","queueId":3,"topic":"t"}'
    text = f"{{{queue}:[{queue}]}}"
    assert loads(text, read_object=read_queue) == {MessageQueue("t", "b", 3): [MessageQueue("t", "b", 3)]}
    assert loads(queue) == {"brokerName": "b", "queueId": 3, "topic": "t"}
    assert loads('{"brokerName":"b","queueId":3,"topic":"t","offset":5}', read_object=read_queue)["offset"] == 5


@pytest.mark.parametrize(
    "text",
    ["", "{", "{0", "{0:", "{0:1", "{0:1,", '{0:1}"', "{0 1}", "[1 2]", "{,}", "nul", "{0:1}}", "{0:\xff}", '"\\udc00"',
     '{0:"\\ud800x"}', '{0:"\\ude80\\ud83d"}', "[" * 100_000, "{0:" * 100_000],
)  # fmt: skip
def test_what_nobody_writes(text: str) -> None:
    with pytest.raises(ProtocolError):
        loads(text.encode("latin-1"))


@given(plain)
def test_reads_json(value: Any) -> None:
    assert loads(json.dumps(value)) == value


@given(fastjson)
def test_there_and_back(value: Any) -> None:
    assert loads(dumps(value), read_object=read_queue) == value


@given(mutations(fastjson.map(dumps)))
def test_damage_is_a_protocol_error(data: bytes) -> None:
    with suppress(ProtocolError):
        loads(data, read_object=read_queue)


def test_writes_as_fastjson_does() -> None:
    value = {3: None, "set": {"b", "a"}, 1: (True, 1.0), MessageQueue("t", "b", 0): Begin.LAST}
    queue = b'{"brokerName":"b","queueId":0,"topic":"t"}'
    assert dumps(value) == b'{"set":["a","b"],1:[true,1.0],' + queue + b':"CONSUME_FROM_LAST_OFFSET"}'


def test_standard_keys_are_quoted() -> None:
    assert dumps({0: "a", MessageQueue("t", "b", 1): 1}, standard=True) == (
        b'{"0":"a","MessageQueue [topic=t, brokerName=b, queueId=1]":1}'
    )


@pytest.mark.parametrize("value", [list(range(1000)), dict.fromkeys(range(1000), 1), [{"deep": list(range(1000))}]])
def test_what_is_long_is_written_in_pieces(value: object) -> None:
    pieces = dump_pieces(value)
    assert sum(1 for _ in pieces) == 1000 // 64

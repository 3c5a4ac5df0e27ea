import inspect
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenq.errors import ProtocolError
from evenq.protocol import headers
from evenq.protocol.headers import (
    Header,
    HeartbeatResponse,
    PullRequest,
    QueryMessage,
    SearchOffset,
    SendRequest,
    SendRequestV2,
    UnregisterClient,
)

KINDS = [kind for _, kind in inspect.getmembers(headers, inspect.isclass) if issubclass(kind, Header)]

SEND: dict[str, Any] = {
    "producer_group": "shop",
    "topic": "orders",
    "queue_id": 3,
    "born_timestamp": 1_700_000_000_000,
    "properties": "TAGS\x01paid\x02",
    "broker_name": "broker-a",
}


def headers_of(kind: type[Header]) -> st.SearchStrategy[Header]:
    values = {field.name: values_of(field.type) for field in msgspec.structs.fields(kind)}
    return st.builds(kind, **values)


def values_of(annotation: Any) -> st.SearchStrategy[Any]:
    if get_origin(annotation) is Annotated:
        bounds = annotation.__metadata__[0]
        return st.integers(bounds.ge, bounds.le)
    if get_origin(annotation) is UnionType or get_origin(annotation) is Union:
        return st.one_of(*map(values_of, get_args(annotation)))
    return st.from_type(annotation)


@given(st.sampled_from(KINDS).flatmap(headers_of))
def test_there_and_back(header: Header) -> None:
    ext = header.to_ext()
    assert all(isinstance(text, str) for pair in ext.items() for text in pair)
    assert type(header).from_ext(ext) == header


def test_a_send_under_long_names() -> None:
    assert SendRequest(**SEND).to_ext() == {
        "producerGroup": "shop",
        "topic": "orders",
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": "3",
        "sysFlag": "0",
        "bornTimestamp": "1700000000000",
        "flag": "0",
        "properties": "TAGS\x01paid\x02",
        "reconsumeTimes": "0",
        "unitMode": "false",
        "batch": "false",
        "bname": "broker-a",
    }


def test_the_same_send_under_letters() -> None:
    send = SendRequestV2(**SEND)
    assert isinstance(send, SendRequest)
    assert send.to_ext() == {
        "a": "shop", "b": "orders", "c": "TBW102", "d": "4", "e": "3", "f": "0", "g": "1700000000000", "h": "0",
        "i": "TAGS\x01paid\x02", "j": "0", "k": "false", "m": "false", "n": "broker-a",
    }  # fmt: skip


def test_names_that_are_not_camel_case() -> None:
    assert UnregisterClient(client_id="c").to_ext() == {"clientID": "c"}
    assert HeartbeatResponse(supports_v2=True).to_ext() == {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"}
    found = QueryMessage(topic="t", key="k", max_num=1, begin_timestamp=0, end_timestamp=1, unique_key=True)
    assert found.to_ext()["_UNIQUE_KEY_QUERY"] == "true"


PULL = {
    "consumerGroup": "g", "topic": "t", "queueId": "1", "queueOffset": "5", "maxMsgNums": "32", "sysFlag": "3",
    "commitOffset": "0", "suspendTimeoutMillis": "15000", "subVersion": "0",
}  # fmt: skip


def test_what_java_adds_is_ignored() -> None:
    assert PullRequest.from_ext(PULL | {"lo": "false", "ns": "x", "AccessKey": "k"}) == PullRequest.from_ext(PULL)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"queueId": None}, "PullRequest: the field 'queueId' is missing"),
        ({"queueId": "x"}, "PullRequest: the field 'queueId' is 'x': expected `int`"),
        ({"queueId": "2147483648"}, "PullRequest: the field 'queueId' is '2147483648'"),
        ({"queueOffset": "9" * 5000}, "PullRequest: the field 'queueOffset'"),
        ({"queueOffset": ""}, "PullRequest: the field 'queueOffset' is ''"),
    ],
)
def test_errors_name_header_field_and_value(change: dict[str, str | None], reason: str) -> None:
    ext = {name: value for name, value in (PULL | change).items() if value is not None}
    with pytest.raises(ProtocolError) as caught:
        PullRequest.from_ext(ext)
    assert str(caught.value).startswith(reason)


def test_a_boundary_is_one_of_two() -> None:
    with pytest.raises(ProtocolError, match="boundaryType"):
        SearchOffset.from_ext({"topic": "t", "queueId": "0", "timestamp": "0", "boundaryType": "MIDDLE"})

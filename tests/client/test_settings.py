"""Numbers that callers give are checked where they enter."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan
from typing import Any

import pytest

import evenq
from evenq import (
    ArgumentError,
    FlowControl,
    Intervals,
    LitePullConsumer,
    Message,
    Producer,
    PushConsumer,
    StateError,
    Timeouts,
)
from evenq.client.settings import checked_limit, checked_timeout, checked_wait

MESSAGE = Message("t", b"x")

SENDS: list[Callable[[Producer, Any], object]] = [
    lambda producer, timeout: producer.send(MESSAGE, timeout=timeout),
    lambda producer, timeout: producer.send_async(MESSAGE, timeout=timeout).result(10),
    lambda producer, timeout: producer.send_oneway(MESSAGE, timeout=timeout),
    lambda producer, timeout: producer.send_batch([MESSAGE], timeout=timeout),
    lambda producer, timeout: producer.request(MESSAGE, timeout=timeout),
    lambda producer, timeout: producer.send_in_transaction(
        MESSAGE, lambda message, transaction: evenq.TransactionState.COMMIT, timeout=timeout
    ),
]


@pytest.mark.parametrize("timeout", ["3", nan, inf, 0, -1, True, b"3"], ids=repr)
def test_every_send_refuses_a_timeout_that_is_none(timeout: object) -> None:
    with Producer("127.0.0.1:1") as producer:
        for send in SENDS:
            with pytest.raises(ArgumentError, match=r"timeout=.*: give a number of seconds above 0, such as 3\.0"):
                send(producer, timeout)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"timeout": "3"}, "timeout='3': give a number of seconds"),
        ({"timeout": nan}, "timeout=nan: give a number of seconds"),
        ({"limit": 0}, "limit=0: give a number of messages, at least 1"),
        ({"limit": "10"}, "limit='10': give a number of messages"),
        ({"limit": 1.5}, "limit=1.5: give a number of messages"),
    ],
)
def test_polls_refuse_what_is_no_number(arguments: dict[str, Any], complaint: str) -> None:
    with LitePullConsumer("127.0.0.1:1", "g") as consumer:
        consumer.assign([])
        for poll in (consumer.poll, consumer.poll_arrow):
            with pytest.raises(ArgumentError, match=complaint):
                poll(**arguments)


@pytest.mark.parametrize("value", ["3", None, nan, 0, -1, True])
def test_settings_name_the_value_that_is_no_number(value: Any) -> None:
    with pytest.raises(ArgumentError, match=r"Timeouts\.send=.*: give a number above 0"):
        Timeouts(send=value)
    with pytest.raises(ArgumentError, match=r"Intervals\.heartbeat=.*: give a number above 0"):
        Intervals(heartbeat=value)
    with pytest.raises(ArgumentError, match=r"FlowControl\.messages=.*: give a number above 0"):
        FlowControl(messages=value)


def test_numbers_are_taken_as_they_are() -> None:
    assert (checked_timeout(3), checked_timeout(0.5)) == (3, 0.5)
    assert (checked_wait(0), checked_wait(-1), checked_wait(inf)) == (0, -1, inf)
    assert checked_limit(1) == 1


@pytest.mark.parametrize("value", [30.0, 45, inf])
def test_locks_that_are_renewed_too_seldom_are_refused(value: float) -> None:
    with pytest.raises(
        ArgumentError, match=r"Intervals\.renew_locks=.*: give less than the 30 s for which a lock counts"
    ):
        Intervals(renew_locks=value)


def push(**arguments: Any) -> PushConsumer:
    return PushConsumer(**{"namesrv": "127.0.0.1:1", "group": "g"} | arguments)


def lite(**arguments: Any) -> LitePullConsumer:
    return LitePullConsumer(**{"namesrv": "127.0.0.1:1", "group": "g"} | arguments)


def producer(**arguments: Any) -> Producer:
    return Producer(**{"namesrv": "127.0.0.1:1"} | arguments)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"group": None}, "group=None: give the name of"),
        ({"namesrv": ["h:1", "h:2"]}, r"namesrv=\['h:1', 'h:2'\]: give one string: .*separate several by ';'"),
        (
            {"namesrv": "h:9876,h:9877"},
            "namesrv='h:9876,h:9877': give the name server's host:port; separate several by",
        ),
        ({"namesrv": "http://h:9876"}, "namesrv='http://h:9876': give the name server's host:port"),
        ({"instance": 5}, "instance=5: give a name"),
        ({"namespace": "a b"}, "namespace='a b': give letters, digits"),
        ({"namespace": 5}, "namespace=5: give letters, digits"),
        ({"tls": 5}, r"tls=5: give True, evenq\.Tls"),
        ({"timeouts": 5}, r"timeouts=5: give evenq\.Timeouts"),
        ({"intervals": 5}, r"intervals=5: give evenq\.Intervals"),
        ({"credentials": ("shop", "secret")}, r"credentials='tuple': give evenq\.Credentials"),
    ],
)
def test_every_client_names_the_argument_that_is_wrong(arguments: dict[str, Any], complaint: str) -> None:
    for make in (push, lite, producer):
        with pytest.raises(ArgumentError, match=complaint):
            make(**arguments)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"ramp_up": "a"}, "ramp_up='a': give a number of seconds, 0 for none"),
        ({"ramp_up": nan}, "ramp_up=nan: give a number"),
        ({"suspend": "a"}, "suspend='a': give a number of seconds above 0"),
        ({"suspend": 0}, "suspend=0: give a number of seconds above 0"),
        ({"batch": "8"}, "batch='8': give a whole number, at least 1"),
        ({"concurrency": 1.5}, "concurrency=1.5: give a whole number"),
        ({"flow_control": 5}, r"flow_control=5: give evenq\.FlowControl"),
        ({"trace": 5}, "trace=5: give True"),
        ({"max_retries": -2}, "max_retries=-2: give a whole number, 0 or more, or -1 or None for the default"),
        ({"max_retries": "3"}, "max_retries='3': give a whole number"),
        ({"max_retries": 1.5}, "max_retries=1.5: give a whole number"),
        ({"max_retries": True}, "max_retries=True: give a whole number"),
    ],
)
def test_push_consumers_name_the_argument_that_is_wrong(arguments: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ArgumentError, match=complaint):
        push(**arguments)


@pytest.mark.parametrize("value", [-1, None])
def test_retries_of_minus_one_are_the_default(value: int | None) -> None:
    inner = push(max_retries=value)._inner
    assert inner._settings()["maxReconsumeTimes"] == "-1"
    assert inner._max_retries is None


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"compression": "x"}, "compression='x': give one of ZLIB, LZ4, ZSTD"),
        ({"compression": ["ZLIB"]}, "compression=.*: give one of ZLIB"),
        ({"trace": 5}, "trace=5: give True"),
        ({"retries": "2"}, "retries='2': give a whole number, at least 0"),
        ({"linger": "a"}, "linger='a': give a number of seconds"),
        ({"topic_queues": 0}, "topic_queues=0: give a whole number, at least 1"),
        ({"check": 5}, "check=5: give a function"),
    ],
)
def test_producers_name_the_argument_that_is_wrong(arguments: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ArgumentError, match=complaint):
        producer(**arguments)


def test_a_lite_pull_consumer_refuses_other_flow_control() -> None:
    with pytest.raises(ArgumentError, match="flow_control=5"):
        lite(flow_control=5)


def test_an_unknown_strategy_is_answered_with_all_choices() -> None:
    with pytest.raises(ArgumentError, match=r"strategy='zzz': The strategies are AVG,.*, and for consumers STICKY"):
        push(strategy="zzz")


@pytest.mark.parametrize("make", [push, lite])
def test_subscribing_takes_the_name_of_one_topic(make: Callable[[], Any]) -> None:
    with make() as consumer:
        for topic in (["t"], None, ""):
            with pytest.raises(ArgumentError, match=r"topic=.*: give the name of a topic"):
                consumer.subscribe(topic)
        with pytest.raises(ArgumentError, match=r"expression=\['paid'\]: give a string of tags"):
            consumer.subscribe("t", ["paid"])


@pytest.mark.parametrize("make", [push, lite])
def test_a_closed_consumer_takes_no_subscription(make: Callable[[], Any]) -> None:
    consumer = make()
    consumer.close()
    with pytest.raises(StateError, match="this consumer is closed: make a new one"):
        consumer.subscribe("t")


def test_hooks_must_be_functions() -> None:
    with push() as consumer, lite() as reader, producer() as sender:
        adds: list[Callable[[Any], object]] = [
            consumer.on_assignment,
            consumer.on_rebalance,
            consumer.on_consume,
            reader.on_assignment,
            lambda listener: reader.on_queues_changed("t", listener),
            sender.on_send,
        ]
        for add in adds:
            for value in (None, 5):
                with pytest.raises(ArgumentError, match=f"={value}: give a"):
                    add(value)


@pytest.mark.parametrize("message", ["t", None, b"x"], ids=repr)
def test_every_send_takes_messages_only(message: Any) -> None:
    def execute(message: Message, transaction: str) -> evenq.TransactionState:
        return evenq.TransactionState.COMMIT

    with producer() as sender:
        sends: list[Callable[[], object]] = [
            lambda: sender.send(message),
            lambda: sender.send_async(message).result(10),
            lambda: sender.send_oneway(message),
            lambda: sender.send_batch([message]),
            lambda: sender.send_batch([MESSAGE, message], split=True),
            lambda: sender.request(message),
            lambda: sender.send_in_transaction(message, execute),
        ]
        for send in sends:
            with pytest.raises(ArgumentError, match=r"message=.*: give evenq\.Message\(topic, body\)"):
                send()


def test_a_batch_is_several_messages() -> None:
    with producer() as sender, pytest.raises(ArgumentError, match=r"messages='t': give several, e\.g\. in a list"):
        sender.send_batch(MESSAGE)  # type: ignore[arg-type]


def test_a_recall_takes_a_receipt_or_its_handle() -> None:
    with producer() as sender, pytest.raises(ArgumentError, match="receipt=None: give the receipt of a send, or"):
        sender.recall(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("level", ["1", 1.5, None, True, 19, -2])
def test_a_retry_has_a_delay_level(level: Any) -> None:
    with pytest.raises(ArgumentError, match=r"delay_level=.*: give 1 to 18, 0 for the broker's choice, -1 for never"):
        evenq.Retry(delay_level=level)

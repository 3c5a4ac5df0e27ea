"""Numbers that callers give are checked where they enter."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan
from typing import Any

import pytest

import evenq
from evenq import ArgumentError, FlowControl, Intervals, LitePullConsumer, Message, Producer, Timeouts
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

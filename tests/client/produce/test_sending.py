import asyncio

import pytest

from evenq.client.produce.sending import Tries
from evenq.errors import ConnectError, RefusedError, RequestTimeout, SendFailed, SendTimeout, TopicNotFound
from evenq.model import MessageQueue
from evenq.protocol.codes import ResponseCode


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Scripted:
    """A choice that goes through brokers in turn and remembers what it was told."""

    def __init__(self, *brokers: str) -> None:
        self.brokers = list(brokers)
        self.asked: list[str | None] = []
        self.records: list[tuple[str, float, bool, bool]] = []

    def choose(self, last_broker: str | None) -> MessageQueue:
        self.asked.append(last_broker)
        return MessageQueue("t", self.brokers[len(self.asked) - 1], 0)

    def record(self, broker: str, latency_ms: float, *, failed: bool, reachable: bool) -> None:
        self.records.append((broker, latency_ms, failed, reachable))


def run(
    choice: Scripted, outcomes: list[Exception | str], *, tries: int = 3, seconds: float = 3.0, each: float = 0.5
) -> tuple[str, list[float], list[int]]:
    clock = Clock()
    budgets: list[float] = []
    stale_calls: list[int] = []
    script = iter(outcomes)

    async def attempt(queue: MessageQueue, left: float) -> str:
        budgets.append(round(left, 6))
        clock.now += each
        outcome = next(script)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def stale() -> None:
        stale_calls.append(1)

    result = asyncio.run(Tries("t", tries, seconds, clock).run(choice, attempt, stale))
    return result, budgets, stale_calls


def test_a_retry_names_the_broker_that_failed_and_has_the_time_that_is_left() -> None:
    choice = Scripted("a", "b")
    result, budgets, _ = run(choice, [ConnectError("a:1", "refused"), "stored"])
    assert result == "stored"
    assert choice.asked == [None, "a"]
    assert budgets == [3.0, 2.5]
    assert choice.records == [("a", 500.0, True, False), ("b", 500.0, False, True)]


def test_all_tries_failing_tells_each_broker_error_and_time() -> None:
    with pytest.raises(SendFailed) as caught:
        run(Scripted("a", "b", "a"), [ConnectError("a:1", "refused")] * 3)
    assert [(a.broker, a.seconds) for a in caught.value.attempts] == [("a", 0.5), ("b", 0.5), ("a", 0.5)]
    assert "a (500 ms): connection to a:1: refused" in str(caught.value)
    assert not isinstance(caught.value, TimeoutError)


def test_a_send_whose_time_is_used_up_is_a_timeout_that_names_the_tries() -> None:
    with pytest.raises(SendTimeout, match=r"a \(2000 ms\).*All of its 3.000 s") as caught:
        run(Scripted("a", "b", "c"), [RequestTimeout("a:1", "SEND", 2.0)] * 3, each=2.0)
    assert [a.broker for a in caught.value.attempts] == ["a", "b"]
    assert isinstance(caught.value, TimeoutError)


def test_a_refusal_that_no_other_broker_can_mend_is_raised_at_once() -> None:
    refused = RefusedError("a:1", "SEND", ResponseCode.MESSAGE_ILLEGAL, "the topic is too long")
    choice = Scripted("a")
    with pytest.raises(RefusedError, match="too long"):
        run(choice, [refused])
    assert len(choice.asked) == 1


@pytest.mark.parametrize("code", [ResponseCode.SYSTEM_BUSY, ResponseCode.SYSTEM_ERROR])
def test_a_busy_broker_is_reachable_and_the_next_one_is_tried(code: int) -> None:
    choice = Scripted("a", "b")
    result, _, stale_calls = run(choice, [RefusedError("a:1", "SEND", code, "busy"), "stored"])
    assert result == "stored"
    assert choice.records[0] == ("a", 500.0, True, True)
    assert not stale_calls


def test_an_unknown_topic_makes_the_route_fresh_before_the_next_try() -> None:
    missing = TopicNotFound("a:1", "SEND", ResponseCode.TOPIC_NOT_EXIST, "no topic")
    _, _, stale_calls = run(Scripted("a", "b"), [missing, "stored"])
    assert len(stale_calls) == 1

"""What becomes of messages whose handler fails, with a broker that takes them back or does not."""

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from evenq.client.consume import delivery as module
from evenq.client.consume.calls import Calls
from evenq.client.consume.delivery import (
    BroadcastDelivery,
    ConcurrentDelivery,
    GiveBack,
    OrderlyDelivery,
    as_sent,
)
from evenq.client.consume.dispatch import Outcome, Retry
from evenq.client.consume.holding import Holding
from evenq.client.consume.stats import Stats
from evenq.client.group.held import LEASE_VALID_S, Lease
from evenq.client.net.session import Session
from evenq.client.settings import FlowControl
from evenq.errors import RequestTimeout
from evenq.model import MessageQueue
from evenq.protocol.headers import SendBack
from evenq.protocol.view import MessageView
from evenq.supervision import Outages
from tests.client.consume.test_holding import message, pulled


class Broker:
    """A session whose broker takes messages back, after as many refusals as it is told."""

    def __init__(self, refusals: int = 0) -> None:
        self.refusals = refusals
        self.taken: list[SendBack] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.outages = Outages()

    @property
    def routes(self) -> "Broker":
        return self

    @property
    def remote(self) -> "Broker":
        return self

    def address_of(self, queue: MessageQueue) -> str:
        return "b:1"

    async def send_back(self, address: str, header: SendBack) -> None:
        if self.refusals:
            self.refusals -= 1
            raise RequestTimeout(address, "CONSUMER_SEND_MSG_BACK", 3.0)
        self.taken.append(header)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.ensure_future(work))


def holding(count: int) -> Holding:
    found = Holding(MessageQueue("orders", "b", 0), 0, FlowControl())
    found.add(pulled(*range(count)))
    return found


def calls(*outcomes: Outcome) -> Calls:
    left = list(outcomes)

    async def handler(messages: list[MessageView]) -> Outcome:
        return left.pop(0)

    return Calls(handler, "g", timeout=900, stats=Stats())


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GIVE_BACK_PAUSES", (0,))


def concurrent(broker: Broker, outcome: Outcome, held: Holding, count: int) -> None:
    async def scenario() -> None:
        session = cast(Session, broker)
        delivery = ConcurrentDelivery(session, calls(outcome), GiveBack(session, "g", 16))
        assert await delivery.deliver(held, held.take(count)) == 0
        await asyncio.gather(*broker.tasks)
        assert await held.drained(1)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("outcome", "levels"),
    [
        (None, {}),
        (Retry(3), {0: 3, 1: 3, 2: 3}),
        ([None, Retry(5), None], {1: 5}),
        ([Retry(-1), None, None], {0: -1}),
        ([None, None, None], {}),
    ],
)
def test_each_message_goes_back_with_its_own_delay(outcome: Outcome, levels: dict[int, int]) -> None:
    broker, held = Broker(), holding(3)
    concurrent(broker, outcome, held, 3)
    assert [header.delay_level for header in broker.taken] == list(levels.values())
    assert all((header.group, header.max_reconsume_times) == ("g", 16) for header in broker.taken)
    assert held.committable == 3


def test_a_message_that_the_broker_does_not_take_is_offered_again_and_holds_the_commit() -> None:
    broker, held = Broker(refusals=3), holding(2)
    concurrent(broker, Retry(), held, 1)
    assert (len(broker.taken), held.committable) == (1, 1)

    broker, held = Broker(refusals=3), holding(2)

    async def dropped() -> None:
        session = cast(Session, broker)
        batch = held.take(1)
        held.drop()
        await ConcurrentDelivery(session, calls(Retry()), GiveBack(session, "g", 16)).deliver(held, batch)
        await asyncio.gather(*broker.tasks)

    asyncio.run(dropped())
    assert (broker.taken, held.committable) == ([], 0)


def test_broadcasting_reports_a_failure_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    held = holding(2)
    asyncio.run(BroadcastDelivery(calls([None, Retry()])).deliver(held, held.take(2)))
    assert held.committable == 2
    assert "queueId=0] at 1 failed; broadcasting does not try again" in caplog.text


def orderly(broker: Broker, *outcomes: Outcome, retries: int = 2) -> OrderlyDelivery:
    return OrderlyDelivery(calls(*outcomes), GiveBack(cast(Session, broker), "g", retries), suspend=1.5)


def test_in_order_a_failure_suspends_the_queue_and_the_same_comes_again() -> None:
    async def scenario() -> None:
        broker, held = Broker(), holding(3)
        delivery = orderly(broker, Retry(), [None, Retry()], None, None)
        tries: list[list[tuple[int, int]]] = []
        pauses: list[float] = []
        while batch := held.take(2):
            tries.append([(each.queue_offset, each.reconsume_times) for each in batch])
            pauses.append(await delivery.deliver(held, batch))
        assert tries == [[(0, 0), (1, 0)], [(0, 1), (1, 1)], [(0, 2), (1, 2)], [(2, 0)]]
        assert pauses == [1.5, 1.5, 0, 0]
        assert (broker.taken, held.committable) == ([], 3)

    asyncio.run(scenario())


@pytest.mark.parametrize("failure", [Retry(), Retry(-1)])
def test_in_order_what_failed_often_enough_becomes_a_dead_letter_and_the_queue_goes_on(failure: Retry) -> None:
    async def scenario() -> None:
        broker, held = Broker(refusals=1), holding(2)
        # twice more than it is tried, or never again; and once more because the broker did not take it
        expected = 4 if failure == Retry() else 2
        delivery = orderly(broker, *[failure] * expected, None, retries=2)
        tries: list[int] = []
        while batch := held.take(1):
            tries.append(batch[0].queue_offset)
            await delivery.deliver(held, batch)
        assert tries == [0] * expected + [1]
        assert [header.delay_level for header in broker.taken] == [-1]
        assert held.committable == 2

    asyncio.run(scenario())


def test_without_a_lock_that_counts_nothing_is_delivered() -> None:
    now = 100.0
    delivery = orderly(Broker())
    held = holding(1)
    held.lease = Lease(lambda: now)
    held.lease.granted(SimpleNamespace(closed=False), now)
    assert delivery.ready(held) == 0
    now += LEASE_VALID_S + 0.1
    assert delivery.ready(held) > 0
    held.lease.granted(SimpleNamespace(closed=False), now)
    assert delivery.ready(held) == 0
    held.lease.refused()
    assert delivery.ready(held) > 0


def test_what_is_redelivered_is_shown_under_the_topic_it_was_sent_to() -> None:
    plain = message(0)
    assert as_sent(plain) is plain
    again = msgspec.structs.replace(plain, topic="%RETRY%g", properties={"RETRY_TOPIC": "orders"})
    assert as_sent(again).topic == "orders"

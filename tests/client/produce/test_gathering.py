"""Messages that were sent one by one and travel together, on both brokers."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import cast

import pytest

import evenq
from evenq import Message, MessageQueue, Producer
from evenq.client.produce.gathering import _Groups
from evenq.client.produce.outgoing import Packer, unique_ids
from evenq.client.produce.sender import Sender
from evenq.protocol.codes import RequestCode, ResponseCode
from evenq.protocol.command import Command
from evenq.testing import EmbeddedCluster
from tests.clusters import AnyCluster, create_topic

SEND, BATCH = RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE


def watch(brokers: EmbeddedCluster) -> list[int]:
    """The codes of all sends that the brokers get from now on."""
    codes: list[int] = []

    def note(request: Command) -> bool:
        codes.append(request.code)
        return False

    for broker in brokers.brokers.values():
        broker.faults.add(SEND, when=note)
    return codes


# because brokers are busy


def test_messages_for_busy_brokers_travel_together_and_queues_take_turns(any_cluster: AnyCluster, wide: str) -> None:
    async def scenario() -> list[evenq.SendResult]:
        async with evenq.aio.Producer(any_cluster.namesrv) as producer:
            await producer.send(Message(wide, b"so that the route is known"))
            sends = [producer.send_async(Message(wide, b"%d" % n, keys=f"k-{n}")) for n in range(1600)]
            return await asyncio.gather(*sends)

    receipts = asyncio.run(scenario())
    assert Counter(receipt.queue for receipt in receipts) == dict.fromkeys({r.queue for r in receipts}, 200)
    assert len({(receipt.queue, receipt.offset) for receipt in receipts}) == 1600
    assert len({receipt.msg_id for receipt in receipts}) == 1600
    with evenq.Admin(any_cluster.namesrv) as admin:
        for number in (0, 99, 1599):
            found = admin.message(receipts[number].offset_msg_id)
            assert (found.body, found.keys, found.unique_key) == (
                b"%d" % number,
                (f"k-{number}",),
                receipts[number].msg_id,
            )


def test_requests_become_fewer_only_where_many_are_on_their_way(own_cluster: EmbeddedCluster, topic: str) -> None:
    create_topic(own_cluster.namesrv, topic)
    codes = watch(own_cluster)

    async def scenario(coalesce: bool) -> Counter[int]:
        codes.clear()
        async with evenq.aio.Producer(own_cluster.namesrv, coalesce=coalesce) as producer:
            for _ in range(20):
                await producer.send(Message(topic, b"x"))
            assert codes == [SEND] * 20
            await asyncio.gather(*(producer.send_async(Message(topic, b"x")) for _ in range(1000)))
        return Counter(codes)

    alone = asyncio.run(scenario(coalesce=False))
    assert alone == {SEND: 1020}
    together = asyncio.run(scenario(coalesce=True))
    assert together[BATCH] > 0
    assert together.total() < 300


def test_messages_of_a_batch_that_is_refused_are_sent_one_by_one(own_cluster: EmbeddedCluster, topic: str) -> None:
    create_topic(own_cluster.namesrv, topic)
    for broker in own_cluster.brokers.values():
        broker.faults.add(BATCH, error=ResponseCode.MESSAGE_ILLEGAL)
    queue = MessageQueue(topic, "broker-b", 2)

    async def scenario() -> None:
        async with evenq.aio.Producer(own_cluster.namesrv) as producer:
            await producer.send(Message(topic, b"so that the route is known"))
            free = [producer.send_async(Message(topic, b"x")) for _ in range(400)]
            bound = [producer.send_async(Message(topic, b"x"), queue=queue) for _ in range(100)]
            assert all(receipt.ok for receipt in await asyncio.gather(*free))
            assert {receipt.queue for receipt in await asyncio.gather(*bound)} == {queue}

    asyncio.run(scenario())


def test_messages_that_fit_only_by_themselves_go_by_themselves(own_cluster: EmbeddedCluster, topic: str) -> None:
    create_topic(own_cluster.namesrv, topic)

    async def scenario(linger: float) -> None:
        async with evenq.aio.Producer(own_cluster.namesrv, max_message_size=200, linger=linger) as producer:
            await producer.send(Message(topic, b"so that the route is known"))
            sends = [producer.send_async(Message(topic, b"x" * size)) for size in (1, 50, 150, 200) * 50]
            async with asyncio.timeout(30):
                assert all(receipt.ok for receipt in await asyncio.gather(*sends))

    for linger in (0.0, 0.01):
        asyncio.run(scenario(linger))


def test_what_waits_for_a_broker_that_is_silent_fails_in_time(own_cluster: EmbeddedCluster, topic: str) -> None:
    create_topic(own_cluster.namesrv, topic)

    async def scenario() -> None:
        async with evenq.aio.Producer(own_cluster.namesrv, retries=0) as producer:
            await producer.send(Message(topic, b"so that the route is known"))
            for broker in own_cluster.brokers.values():
                broker.faults.add(SEND, drop=True)
            sends = [producer.send_async(Message(topic, b"x"), timeout=0.3) for _ in range(300)]
            outcomes = await asyncio.gather(*sends, return_exceptions=True)
            assert {type(outcome) for outcome in outcomes} == {evenq.SendTimeout}

    asyncio.run(scenario())


# because they may wait a little


def test_messages_that_wait_a_little_travel_together(any_cluster: AnyCluster, wide: str) -> None:
    async def scenario() -> None:
        async with evenq.aio.Producer(any_cluster.namesrv, linger=0.05) as producer:
            sends = [producer.send_async(Message(wide, b"%d" % n)) for n in range(100)]
            receipts = await asyncio.gather(*sends)
            assert len({receipt.queue for receipt in receipts}) == 1
            assert [receipt.offset for receipt in receipts] == list(range(100))
            assert len({receipt.msg_id for receipt in receipts}) == 100
            # one alone does not wait for ever
            assert (await producer.send(Message(wide, b"alone"))).ok

    asyncio.run(scenario())


def test_what_cannot_travel_together_does_not(own_cluster: EmbeddedCluster, topic: str) -> None:
    create_topic(own_cluster.namesrv, topic)

    async def scenario() -> None:
        async with evenq.aio.Producer(own_cluster.namesrv, linger=0.02) as producer:
            await producer.send(Message(topic, b"so that the route is known"))
            tagged = [producer.send_async(Message(topic, b"x", tags=tags)) for tags in ("a", "b") * 5]
            keyed = [producer.send_async(Message(topic, b"x", sharding_key=f"k-{n % 3}")) for n in range(9)]
            large = producer.send_async(Message(topic, b"x" * 5000))
            bound = producer.send_async(Message(topic, b"x"), queue=MessageQueue(topic, "broker-b", 3))
            by_tag = [receipt.queue for receipt in await asyncio.gather(*tagged)]
            by_key = [receipt.queue for receipt in await asyncio.gather(*keyed)]
            assert len(set(by_tag[::2])) == len(set(by_tag[1::2])) == 1
            assert by_tag[0] != by_tag[1]
            assert by_key[:3] * 3 == by_key
            assert (await large).ok
            assert (await bound).queue == MessageQueue(topic, "broker-b", 3)

    asyncio.run(scenario())


def test_a_batch_leaves_when_it_is_full(own_cluster: EmbeddedCluster, topic: str) -> None:
    create_topic(own_cluster.namesrv, topic)
    with Producer(own_cluster.namesrv, linger=30) as producer:
        sends = [producer.send_async(Message(topic, b"x" * 4000)) for _ in range(200)]
        assert all(send.result(10).ok for send in sends[:160])
        assert not sends[-1].done()
        producer.flush()
        assert all(send.done() and send.result().ok for send in sends)


def test_closing_sends_what_still_waits(own_cluster: EmbeddedCluster, topic: str) -> None:
    create_topic(own_cluster.namesrv, topic)
    with Producer(own_cluster.namesrv, linger=30) as producer:
        send = producer.send_async(Message(topic, b"x"))
    assert send.result(0).ok


def test_a_batch_that_fails_fails_for_each_of_its_messages(own_cluster: EmbeddedCluster, topic: str) -> None:
    create_topic(own_cluster.namesrv, topic)
    for broker in own_cluster.brokers.values():
        broker.faults.add(BATCH, error=ResponseCode.SYSTEM_BUSY)
    with Producer(own_cluster.namesrv, linger=0.02) as producer:
        sends = [producer.send_async(Message(topic, b"x")) for _ in range(3)]
        for send in sends:
            with pytest.raises(evenq.SendFailed) as caught:
                send.result(10)
            assert len(caught.value.attempts) == 3


def test_a_bad_message_is_refused_alone(own_cluster: EmbeddedCluster, topic: str) -> None:
    create_topic(own_cluster.namesrv, topic)
    with Producer(own_cluster.namesrv, linger=0.02) as producer:
        good = producer.send_async(Message(topic, b"x"))
        bad = producer.send_async(Message(topic, b""))
        with pytest.raises(evenq.ArgumentError, match="at least one byte"):
            bad.result(10)
        assert good.result(10).ok


@pytest.mark.parametrize("alone_too", [False, True])
def test_a_batch_that_cannot_be_packed_keeps_nobody_waiting(
    own_cluster: EmbeddedCluster, topic: str, alone_too: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topic(own_cluster.namesrv, topic)

    def fail(*arguments: object, **more: object) -> None:
        raise KeyError("on purpose")

    async def scenario() -> list[evenq.SendResult | BaseException]:
        async with evenq.aio.Producer(own_cluster.namesrv, linger=0.01) as producer:
            await producer.send(Message(topic, b"so that the route is known"))
            with monkeypatch.context() as failing:
                failing.setattr(producer._packer, "batch", fail)
                if alone_too:
                    failing.setattr(producer._packer, "message", fail)
                sends = [producer.send_async(Message(topic, b"%d" % n)) for n in range(5)]
                async with asyncio.timeout(10):
                    found = await asyncio.gather(*sends, return_exceptions=True)
            async with asyncio.timeout(10):
                await producer.flush()
            return found

    for outcome in asyncio.run(scenario()):
        if alone_too:
            assert isinstance(outcome, KeyError)
        else:
            assert isinstance(outcome, evenq.SendResult)
            assert outcome.ok


def test_the_next_batch_of_a_queue_leaves_with_an_answer_too() -> None:
    class Begun:
        """A sender that only notes what it is to send."""

        clock = time.monotonic

        def __init__(self) -> None:
            self.count = 0

        def begin(self, *parcel: object) -> None:
            self.count += 1

    async def scenario() -> None:
        sender = Begun()
        groups = _Groups(
            cast(Sender, sender),
            Packer(unique_ids("1.2.3.4@1"), compression="ZLIB", compress_over=1 << 20, max_message_size=1 << 22),
            30,
        )
        key = ("orders", None, MessageQueue("orders", "broker-a", 0), False)
        promise: asyncio.Future[evenq.SendResult] = asyncio.get_running_loop().create_future()
        groups.add(key, Message("orders", bytes(100_000)), promise, 3, "a:1")
        groups.add(key, Message("orders", bytes(100_000)), promise, 3)
        assert sender.count == 1, "the batch was full"
        groups.leave_to("a:1")
        assert sender.count == 2

    asyncio.run(scenario())


def test_a_batch_that_is_refused_after_the_end_is_not_sent_again(own_cluster: EmbeddedCluster, topic: str) -> None:
    create_topic(own_cluster.namesrv, topic)
    codes = watch(own_cluster)

    async def scenario() -> None:
        producer = evenq.aio.Producer(own_cluster.namesrv, linger=0.01, group="leaving")
        await producer.start()
        await producer.send(Message(topic, b"so that the route is known"))
        codes.clear()
        for broker in own_cluster.brokers.values():
            broker.faults.add(BATCH, delay=0.2, error=ResponseCode.MESSAGE_ILLEGAL)
            # so that the refusal comes before the connections are cut
            broker.faults.add(RequestCode.UNREGISTER_CLIENT, delay=1.0)
        sends = [producer.send_async(Message(topic, b"x")) for _ in range(3)]
        async with asyncio.timeout(20):
            while not codes:
                await asyncio.sleep(0.001)
        await producer._session.close()
        outcomes = await asyncio.gather(*sends, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {evenq.StateError}
        assert codes == [BATCH]
        await producer.close()

    asyncio.run(scenario())

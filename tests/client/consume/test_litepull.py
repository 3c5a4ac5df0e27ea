"""The lite pull consumer on both brokers: shares and fixed queues, polls, columns, iteration, offsets, listeners."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta

import pytest

import evenq
from evenq import FlowControl, Intervals, LitePullConsumer, Message, MessageQueue, MessageView, Producer
from tests.clusters import AnyCluster, create_topic, wait_shown
from tests.waiting import wait_until

QUEUES = 2


@pytest.fixture
def namesrv(any_cluster: AnyCluster, topic: str) -> str:
    create_topic(any_cluster.namesrv, topic, queues=QUEUES)
    return any_cluster.namesrv


@pytest.fixture
def join(namesrv: str, topic: str, group: str) -> Iterator[Callable[..., LitePullConsumer]]:
    """Makes members of the group that subscribe to the topic."""
    with ExitStack() as stack:

        def made(expression: str = "*", **settings: object) -> LitePullConsumer:
            consumer = LitePullConsumer(namesrv, group, begin="first", **settings)  # type: ignore[arg-type]
            stack.callback(consumer.close)
            consumer.subscribe(topic, expression)
            return consumer

        yield made


def all_queues(topic: str) -> list[MessageQueue]:
    return [MessageQueue(topic, broker, n) for broker in ("broker-a", "broker-b") for n in range(QUEUES)]


def send(namesrv: str, topic: str, count: int, *, first: int = 0, **settings: str) -> list[evenq.SendResult]:
    with Producer(namesrv) as producer:
        messages = [Message(topic, b"m-%d" % n, **settings) for n in range(first, first + count)]  # type: ignore[arg-type]
        receipts = [future.result() for future in [producer.send_async(message) for message in messages]]
    wait_shown(namesrv, receipts)
    return receipts


def poll_until(consumers: LitePullConsumer | list[LitePullConsumer], count: int) -> list[MessageView]:
    """What they give, in turn, until it is so many messages."""
    found: list[MessageView] = []

    def enough() -> bool:
        for consumer in consumers if isinstance(consumers, list) else [consumers]:
            found.extend(consumer.poll(0.05))
        return len(found) >= count

    wait_until(enough, lambda: f"{count} messages: {len(found)}")
    return found


def fail_with_one(consumer: LitePullConsumer, topic: str) -> MessageView:
    seen: list[MessageView] = []
    try:
        with consumer:
            consumer.subscribe(topic)
            for message in consumer:
                seen.append(message)
                raise RuntimeError("on purpose")
    except RuntimeError:
        pass
    return seen[0]


def bodies(messages: list[MessageView]) -> list[bytes]:
    return sorted(message.body for message in messages)


def numbered(count: int, first: int = 0) -> list[bytes]:
    return sorted(b"m-%d" % n for n in range(first, first + count))


def test_members_share_the_topic_and_each_message_comes_once_and_in_order(
    join: Callable[..., LitePullConsumer], namesrv: str, topic: str
) -> None:
    send(namesrv, topic, 500)
    first, second = join(), join()
    for member in (first, second):
        member.start()
    wait_until(lambda: len(first.queues) == len(second.queues) == QUEUES, "two queues for each")
    assert sorted(first.queues + second.queues) == all_queues(topic)

    found = poll_until([first, second], 500)
    assert bodies(found) == numbered(500)
    for queue in all_queues(topic):
        offsets = [message.queue_offset for message in found if message.queue == queue]
        assert offsets == sorted(offsets)


def test_columns_hold_what_the_messages_hold(
    join: Callable[..., LitePullConsumer], namesrv: str, topic: str, group: str
) -> None:
    send(namesrv, topic, 300, tags="paid")
    consumer = join()
    rows: list[dict[str, object]] = []
    while len(rows) < 300:
        batch = consumer.poll_arrow(10)
        assert batch.num_rows, "nothing came for 10 s"
        rows += batch.to_pylist()
    with LitePullConsumer(namesrv, group + "-objects", begin="first") as objects:
        objects.subscribe(topic)
        messages = {message.msg_id: message for message in poll_until(objects, 300)}
    assert len(rows) == 300
    for row in rows:
        message = messages[str(row["msg_id"])]
        assert (row["topic"], row["broker"], row["queue_id"]) == (topic, message.broker, message.queue_id)
        assert (row["offset"], row["value"], row["tags"]) == (message.queue_offset, message.body, "paid")
        assert row["timestamp"] == message.stored_at
    assert consumer.poll_arrow(0).num_rows == 0


def test_iteration_counts_a_message_as_done_when_the_next_is_asked_for(namesrv: str, topic: str, group: str) -> None:
    send(namesrv, topic, 200)
    seen: list[bytes] = []
    with LitePullConsumer(namesrv, group, begin="first") as consumer:
        consumer.subscribe(topic)
        for message in consumer:
            seen.append(message.body)
            if len(seen) == 37:
                break
        # what was read ahead is still there, in order
        polled = consumer.poll(limit=10)
        assert 0 < len(polled) <= 10
        seen += [message.body for message in polled]
        for message in consumer:
            seen.append(message.body)
            if len(seen) == 120:
                break
    failed = fail_with_one(LitePullConsumer(namesrv, group), topic)
    with LitePullConsumer(namesrv, group) as consumer:
        consumer.subscribe(topic)
        rest = poll_until(consumer, 200 - len(seen))
    assert failed.body in bodies(rest), "what was in hand when an error ended the block comes again"
    assert sorted(seen + bodies(rest)) == numbered(200)


def test_async_iteration_ends_with_close(namesrv: str, topic: str, group: str) -> None:
    send(namesrv, topic, 50)
    seen: list[bytes] = []

    async def scenario() -> None:
        async with evenq.aio.LitePullConsumer(namesrv, group, begin="first") as consumer:
            consumer.subscribe(topic)
            async with asyncio.timeout(20):
                async for message in consumer:
                    seen.append(message.body)
                    if len(seen) == 50:
                        await consumer.close()

    asyncio.run(scenario())
    assert sorted(seen) == numbered(50)


def test_fixed_queues_seek_pause_and_offsets(namesrv: str, topic: str, group: str) -> None:
    before = datetime.now(UTC) - timedelta(seconds=5)
    receipts = send(namesrv, topic, 100)
    queue = receipts[0].queue
    ours = [receipt for receipt in receipts if receipt.queue == queue]
    end = max(receipt.offset for receipt in ours) + 1
    other = next(other for other in all_queues(topic) if other != queue)
    with LitePullConsumer(namesrv, group, begin="last") as consumer:
        consumer.assign([queue])
        consumer.start()
        assert consumer.queues == [queue]
        assert consumer.queues_of(topic) == all_queues(topic)
        assert (consumer.offset_at(queue, before), consumer.offset_at(queue, before + timedelta(days=1))) == (0, end)

        consumer.seek(queue, 3)
        assert [message.queue_offset for message in poll_until(consumer, end - 3)] == list(range(3, end))
        assert consumer.position(queue) == end
        consumer.commit()
        assert consumer.committed(queue) == end

        consumer.seek_to_begin(queue)
        consumer.pause([queue])
        assert consumer.poll(0.2) == []
        consumer.resume([queue])
        assert poll_until(consumer, 1)[0].queue_offset == 0
        consumer.seek_to_end(queue)
        assert consumer.poll(0.1) == []

        with pytest.raises(evenq.ArgumentError, match=rf"offset={end + 1}.*holds 0 to {end - 1}"):
            consumer.seek(queue, end + 1)
        with pytest.raises(evenq.StateError, match=r"is not this consumer's now; it has MessageQueue \["):
            consumer.seek(other, 0)
        with pytest.raises(evenq.StateError, match="either subscribes or assigns"):
            consumer.subscribe(topic)
        consumer.assign([other])
        wait_until(lambda: consumer.queues == [other], "the other queue")


def test_without_auto_commit_only_commit_says_what_is_done(namesrv: str, topic: str, group: str) -> None:
    send(namesrv, topic, 40)
    [queue, *_] = all_queues(topic)

    def read(act: Callable[[LitePullConsumer], None]) -> list[int]:
        intervals = Intervals(commit=0.01)
        with LitePullConsumer(namesrv, group, begin="first", auto_commit=False, intervals=intervals) as consumer:
            consumer.assign([queue])
            found = poll_until(consumer, 1)
            act(consumer)
            consumer.close(done=False)
        return [message.queue_offset for message in found]

    assert read(lambda consumer: None)[0] == 0
    assert read(lambda consumer: consumer.commit({queue: 3}))[0] == 0
    whole = read(lambda consumer: None)
    assert whole[0] == 3
    read(lambda consumer: consumer.commit())
    with LitePullConsumer(namesrv, group) as consumer:
        assert consumer.committed(queue) == whole[-1] + 1
        assert consumer.committed(MessageQueue(topic, queue.broker, 1)) in (None, 0)


def test_without_auto_commit_the_end_of_the_block_commits_nothing(namesrv: str, topic: str, group: str) -> None:
    send(namesrv, topic, 40)
    [queue, *_] = all_queues(topic)

    def poll_in_block(committed: int | None) -> int:
        with LitePullConsumer(namesrv, group, begin="first", auto_commit=False) as consumer:
            consumer.assign([queue])
            found = poll_until(consumer, 5)
            if committed is not None:
                consumer.commit({queue: committed})
        return found[0].queue_offset

    assert poll_in_block(None) == 0
    assert poll_in_block(3) == 0
    assert poll_in_block(None) == 3
    with LitePullConsumer(namesrv, group) as looking:
        assert looking.committed(queue) == 3


def test_a_seek_that_meets_a_rebalance_moves_the_new_holder(
    embedded_cluster: AnyCluster, topic: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    namesrv = embedded_cluster.namesrv
    create_topic(namesrv, topic, queues=QUEUES)
    send(namesrv, topic, 40)
    [queue, *_] = all_queues(topic)
    with LitePullConsumer(namesrv, group, begin="first") as consumer:
        consumer.subscribe(topic)
        poll_until(consumer, 40)
        consumer.commit()
        inner = consumer._inner
        remote, old = inner._session.remote, inner._intake.buffers[queue]
        min_offset = remote.min_offset

        async def min_offset_after_a_rebalance(address: str, queue: MessageQueue) -> int:
            inner._member.retake([queue])
            async with asyncio.timeout(30):
                while inner._intake.buffers.get(queue, old) is old:
                    await asyncio.sleep(0.001)
            return await min_offset(address, queue)

        monkeypatch.setattr(remote, "min_offset", min_offset_after_a_rebalance)
        consumer.seek_to_begin(queue)
        new = inner._intake.buffers[queue]
        assert new is not old
        assert old.reader is not None
        wait_until(old.reader.done, "the end of the old reader")
        found = poll_until(consumer, 1)
        assert (found[0].queue, found[0].queue_offset) == (queue, 0)


def test_tags_leave_out_the_rest_and_still_move_on(
    join: Callable[..., LitePullConsumer], namesrv: str, topic: str
) -> None:
    send(namesrv, topic, 100, tags="created")
    send(namesrv, topic, 20, first=100, tags="paid")
    send(namesrv, topic, 100, first=200, tags="created")
    consumer = join("paid || refunded")
    assert bodies(poll_until(consumer, 20)) == numbered(20, 100)

    def moved_on() -> bool:
        return consumer.poll(0.05) == [] and sum(consumer.position(queue) for queue in all_queues(topic)) == 220

    wait_until(moved_on, "positions behind what was left out")


@pytest.mark.parametrize("ask", [LitePullConsumer.poll, LitePullConsumer.poll_arrow])
def test_a_poll_that_meets_only_what_is_not_wanted_goes_on(
    join: Callable[..., LitePullConsumer], namesrv: str, topic: str, ask: Callable[..., list[MessageView]]
) -> None:
    # brokers compare hashes of tags, and these two have the same
    send(namesrv, topic, 12, tags="BB")
    send(namesrv, topic, 1, first=12, tags="Aa")
    assert len(ask(join("Aa"), 20.0, limit=1)) == 1


def test_a_queue_changes_hands_when_what_was_given_of_it_is_done(
    join: Callable[..., LitePullConsumer], namesrv: str, topic: str
) -> None:
    send(namesrv, topic, 400)
    first = join()
    given = poll_until(first, 1)
    second = join()
    second.start()
    wait_until(lambda: len(first.queues) == QUEUES, "two queues left at the first")
    # whatever the first has in hand stays its own until it asks for more
    held = {message.queue for message in given}
    assert not held & set(second.queues)
    found = given + poll_until([first, second], 400 - len(given))
    wait_until(lambda: len(second.queues) == QUEUES, lambda: f"two queues for the second: {second.queues}")
    assert Counter(message.body for message in found).most_common(1)[0][1] == 1
    assert bodies(found) == numbered(400)


def test_listeners_hear_of_shares_and_of_new_queues(
    join: Callable[..., LitePullConsumer], namesrv: str, topic: str
) -> None:
    shares: list[tuple[str, list[MessageQueue], list[MessageQueue]]] = []
    changes: list[list[MessageQueue]] = []
    threads: set[str] = set()
    intervals = Intervals(first_look=0.05, queue_check=0.1)
    consumer = join(intervals=intervals)

    def shared(name: str, everything: list[MessageQueue], mine: list[MessageQueue]) -> None:
        threads.add(threading.current_thread().name)
        shares.append((name, everything, mine))
        assert consumer.queues_of(topic)  # may be called from here

    consumer.on_assignment(shared)
    consumer.on_queues_changed(topic, lambda name, queues: changes.append(queues))
    consumer.start()
    wait_until(lambda: (topic, all_queues(topic), all_queues(topic)) in shares, lambda: f"all queues: {shares}")
    assert "evenq" not in threads
    create_topic(namesrv, topic, queues=3)
    wait_until(lambda: changes and len(changes[-1]) == 6, lambda: f"six queues: {changes}")
    wait_until(lambda: len(consumer.queues) == 6, "the new queues held")
    assert changes[-1] == consumer.queues


def test_what_is_read_ahead_is_bounded(namesrv: str, topic: str, group: str) -> None:
    send(namesrv, topic, 1200)
    limits = FlowControl(messages=64)
    with LitePullConsumer(namesrv, group, begin="first", flow_control=limits) as consumer:
        consumer.subscribe(topic)
        consumer.start()
        buffers = consumer._inner._intake
        wait_until(lambda: sum(b.next_offset for b in buffers.buffers.values()) >= 4 * 64, "four full buffers")
        most = 0
        found: list[MessageView] = []
        while len(found) < 1200:
            most = max(most, *(buffer.next_offset - buffer.given for buffer in buffers.buffers.values()))
            found += consumer.poll(1.0, limit=100)
    assert bodies(found) == numbered(1200)
    # one answer may come over the limit: the embedded broker gives all it has at once
    assert most <= 64 + 400


@pytest.mark.parametrize(
    ("act", "error", "complaint"),
    [
        (lambda: LitePullConsumer("h:1", "two words"), evenq.ArgumentError, "group='two words'"),
        (lambda: LitePullConsumer("h:1", "g", begin="now"), evenq.ArgumentError, "begin='now'"),
        (lambda: LitePullConsumer("127.0.0.1:1", "g").poll(), evenq.StateError, "subscribe"),
    ],
)
def test_mistakes_are_named(act: Callable[[], object], error: type[Exception], complaint: str) -> None:
    with pytest.raises(error, match=complaint):
        act()


@pytest.mark.parametrize("columns", [False, True])
def test_messages_that_a_filter_leaves_out_hold_up_no_commit(
    join: Callable[..., LitePullConsumer], namesrv: str, topic: str, caplog: pytest.LogCaptureFixture, columns: bool
) -> None:
    queue = MessageQueue(topic, "broker-a", 0)

    def send_all(tags: str) -> None:
        with Producer(namesrv) as producer:
            wait_shown(namesrv, [producer.send(Message(topic, b"x", tags=tag), queue=queue) for tag in tags])

    send_all("b" * 20)
    consumer = join("a", auto_commit=False, timeouts=evenq.Timeouts(hold=0.5))
    consumer.start()
    offsets: list[int] = []

    def ask() -> int:
        if columns:
            offsets.extend(consumer.poll_arrow(0.05).column("offset").to_pylist())
        else:
            offsets.extend(message.queue_offset for message in consumer.poll(0.05))
        return consumer.position(queue)

    wait_until(lambda: queue in consumer.queues, "the queue")
    wait_until(lambda: ask() == 20, "all that there is")
    wait_until(lambda: consumer.committed(queue) == 20, "a commit of what was left out")
    send_all("a" + "b" * 20)
    wait_until(lambda: ask() == 41, "all that there is")
    assert (offsets, consumer.committed(queue)) == ([20], 20)
    consumer.commit({queue: 21})
    assert consumer.committed(queue) == 41
    consumer.close()
    assert "is let go while" not in caplog.text


def test_a_poll_ends_when_another_thread_closes(join: Callable[..., LitePullConsumer]) -> None:
    consumer = join()
    consumer.start()
    found: list[list[MessageView]] = []
    thread = threading.Thread(target=lambda: found.append(consumer.poll(float("inf"))), daemon=True)
    thread.start()
    wait_until(lambda: consumer._in_loop(lambda: bool(consumer._inner._intake._arrived._waiters)), "the poll's wait")
    consumer.close()
    thread.join(20)
    assert found == [[]]


@pytest.mark.parametrize("offset", [0, 2, 5])
def test_without_auto_commit_a_seek_commits_nothing(
    embedded_cluster: AnyCluster, topic: str, group: str, offset: int
) -> None:
    create_topic(embedded_cluster.namesrv, topic, queues=1)
    queue = MessageQueue(topic, "broker-a", 0)
    with Producer(embedded_cluster.namesrv) as producer:
        for number in range(5):
            producer.send(Message(topic, b"%d" % number), queue=queue)
    intervals = Intervals(commit=0.05)
    with LitePullConsumer(
        embedded_cluster.namesrv, group, begin="first", auto_commit=False, intervals=intervals
    ) as consumer:
        consumer.assign([queue])
        consumer.start()
        wait_until(lambda: consumer.queues == [queue], "the queue")
        consumer.commit({queue: 0})
        wait_until(lambda: len(consumer.poll(0.2, limit=3)) == 3, "three messages")
        consumer.commit({queue: 3})
        consumer.seek(queue, offset)
        assert consumer.position(queue) == offset
    with LitePullConsumer(embedded_cluster.namesrv, group) as other:
        assert other.committed(queue) == 3
        # a commit after the seek counts, also one further back
        other.assign([queue])
        other.start()
        wait_until(lambda: other.queues == [queue], "the queue")
        other.seek(queue, offset)
        other.commit()
        assert other.committed(queue) == offset

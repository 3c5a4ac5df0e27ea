"""Queues whose broker stores a batch as one record: a pull for any of its offsets brings all of it."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, cycle, pairwise, takewhile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenq.client.read.ranges import QueueRange
from evenq.client.read.reading import Chunk
from evenq.client.read.unpacking import Unread, as_columns, as_messages
from evenq.model import MessageQueue
from evenq.protocol.batch import BatchEntry, encode_batch
from evenq.protocol.codes import ResponseCode
from evenq.protocol.command import Command
from evenq.protocol.flags import SysFlag
from evenq.protocol.headers import PullRequest
from tests.client.read.test_following import follow
from tests.client.read.test_following import no_pauses as no_pauses_of_followers
from tests.client.read.test_reading import OTHER, QUEUE, FakeBroker, every_offset, no_pauses, read, record

__all__ = ["no_pauses", "no_pauses_of_followers"]

END = 1200

sizes = st.lists(st.integers(1, 60), min_size=1, max_size=8)


def batch(queue: MessageQueue, start: int, stop: int) -> bytes:
    if stop == start + 1:
        # what is sent alone is stored alone
        return record(queue, start)
    body = encode_batch([BatchEntry(b"%d" % offset) for offset in range(start, stop)])
    return record(queue, start, body, SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP)


class BatchedBroker(FakeBroker):
    """Gives whole batches, at least as many messages as it gives at all."""

    def __init__(self, sizes: Sequence[int], most: Iterator[int], failures: frozenset[int] = frozenset()) -> None:
        starts = list(takewhile(lambda at: at < END, accumulate(cycle(sizes), initial=0)))
        self.bounds = [*starts, END]
        super().__init__(held=(0, END), most=most, failures=set(failures))

    def _answer(self, header: PullRequest) -> Command:
        at = header.queue_offset
        if not 0 <= at < END:
            return self._reply(ResponseCode.PULL_OFFSET_MOVED, 0 if at < 0 else END)
        broker = "broker-a" if header.queue_id == QUEUE.queue_id else "broker-b"
        queue = MessageQueue(header.topic, broker, header.queue_id)
        wanted = min(header.max_msg_nums, next(self.most))
        number = bisect_right(self.bounds, at) - 1
        body, count = b"", 0
        while count < wanted and number < len(self.bounds) - 1:
            start, stop = self.bounds[number : number + 2]
            body += batch(queue, start, stop)
            count += stop - start
            number += 1
        return self._reply(ResponseCode.SUCCESS, self.bounds[number], body)


def everything(topic: str) -> frozenset[str]:
    return frozenset()


def shown(chunks: Sequence[Chunk]) -> list[tuple[MessageQueue, int]]:
    found = [message for chunk in chunks for part, _ in as_messages(chunk, everything) for message in part]
    assert all(message.body == b"%d" % message.queue_offset for message in found)
    columns = as_columns(chunks, everything)
    assert columns.column("offset").to_pylist() == [message.queue_offset for message in found]
    assert columns.column("value").to_pylist() == [message.body for message in found]
    return [(message.queue, message.queue_offset) for message in found]


@given(
    sizes=sizes,
    most=st.lists(st.integers(1, 100), min_size=1, max_size=4),
    cuts=st.lists(st.integers(0, END), min_size=4, max_size=4).map(sorted),
    failures=st.frozensets(st.integers(1, 40), max_size=3),
)
def test_ranges_have_each_offset_once_wherever_they_are_cut(
    sizes: list[int], most: list[int], cuts: list[int], failures: frozenset[int]
) -> None:
    ranges = [QueueRange(QUEUE, *cuts[:2]), QueueRange(QUEUE, *cuts[1:3]), QueueRange(OTHER, *cuts[2:])]
    assert shown(read(BatchedBroker(sizes, cycle(most), failures), ranges)) == every_offset(ranges)


@given(
    sizes=sizes,
    most=st.lists(st.integers(1, 100), min_size=1, max_size=4),
    start=st.integers(0, END - 1),
    failures=st.frozensets(st.integers(1, 40), max_size=5),
    room=st.integers(0, 300),
)
def test_followers_have_each_offset_once(
    sizes: list[int], most: list[int], start: int, failures: frozenset[int], room: int
) -> None:
    chunks = follow(BatchedBroker(sizes, cycle(most), failures), END, start, room=room)
    assert shown(chunks) == every_offset([QueueRange(QUEUE, start, END)])
    at = start
    for chunk in chunks:
        assert chunk.start == at, "a chunk begins where the one before ended"
        at = chunk.stop


@pytest.mark.parametrize("sizes", [[300], [290, 310, 7]])
def test_batches_do_not_come_many_times(sizes: list[int]) -> None:
    broker = BatchedBroker(sizes, cycle([32]))
    read(broker, [QueueRange(QUEUE, 0, END)])
    batches = len(broker.bounds) - 1
    # the first answers tell how it is: until then some are asked for at several of their offsets
    assert batches <= len(broker.asked) <= batches + 6


@given(
    sizes=sizes,
    ends=st.tuples(st.integers(0, 300), st.integers(0, 300)).map(sorted),
    cuts=st.lists(st.integers(0, 300), max_size=4).map(sorted),
)
def test_chunks_can_be_cut_within_a_batch(sizes: list[int], ends: list[int], cuts: list[int]) -> None:
    low, high = ends
    bounds = list(takewhile(lambda at: at < high + 60, accumulate(cycle(sizes), initial=0)))
    touching = [(start, stop) for start, stop in pairwise(bounds) if start < high and stop > low]
    whole = Chunk(QUEUE, low, high, b"".join(batch(QUEUE, start, stop) for start, stop in touching))
    parts = []
    for cut in cuts:
        parts.append(whole.first(cut) if cut % 2 else whole.up_to(max(whole.start, cut)))
        assert sum(len(part) for part, _ in as_messages(parts[-1], everything)) <= cut or not cut % 2
        whole = whole.since(parts[-1].stop)
    assert shown([*parts, whole]) == every_offset([QueueRange(QUEUE, low, high)])


@given(low=st.integers(0, 20), size=st.integers(1, 60), most=st.integers(1, 20))
def test_unpacking_bit_by_bit_leaves_out_what_was_not_wanted(low: int, size: int, most: int) -> None:
    high = low + size
    unread = Unread(Chunk(QUEUE, low, high, batch(QUEUE, 0, 50) + batch(QUEUE, 50, 100)), everything)
    found = []
    while unread.bytes:
        found += unread.take(most)
        assert unread.next_offset == (found[-1].queue_offset + 1 if unread.bytes else high)
    assert [message.queue_offset for message in found] == list(range(low, high))

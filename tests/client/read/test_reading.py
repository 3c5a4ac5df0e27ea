"""The reader against a broker of a few lines that gives whatever limits, holes and failures a case asks for."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenq.client.net.connection import Waiter
from evenq.client.net.session import Session
from evenq.client.read import reading
from evenq.client.read.ranges import QueueRange
from evenq.client.read.reading import Chunk, Pace, RangeReader
from evenq.client.settings import Timeouts
from evenq.errors import ConnectError, OffsetsLost, ProtocolError
from evenq.model import MessageQueue
from evenq.protocol import decode_messages
from evenq.protocol.codes import ResponseCode
from evenq.protocol.command import Command
from evenq.protocol.filters import EVERYTHING
from evenq.protocol.headers import PullRequest, PullResponse
from evenq.protocol.records import encode_record
from evenq.protocol.template import Template
from evenq.supervision import Outages

QUEUE = MessageQueue("orders", "broker-a", 0)
OTHER = MessageQueue("orders", "broker-b", 3)


def record(queue: MessageQueue, offset: int, body: bytes | None = None, sys_flag: int = 0) -> bytes:
    return encode_record(
        topic=queue.topic,
        body=b"%d" % offset if body is None else body,
        queue_id=queue.queue_id,
        queue_offset=offset,
        commit_log_offset=0,
        born_timestamp=0,
        born_host="127.0.0.1:1",
        store_timestamp=0,
        store_host="127.0.0.1:1",
        sys_flag=sys_flag,
    )


@dataclass
class FakeBroker:
    """Route, connection pool and connection in one. Queues hold ``held``; an answer has at most the next of ``most``
    messages; with an expression it looks at ``scan`` offsets and finds those that ``matches`` says."""

    held: tuple[int, int] = (0, 1_000_000)
    most: Iterator[int] = field(default_factory=lambda: cycle([32]))
    matches: Callable[[int], bool] = lambda offset: True
    scan: int = 800
    failures: set[int] = field(default_factory=set)
    asked: list[PullRequest] = field(default_factory=list)
    in_flight: int = 0
    most_in_flight: int = 0
    timeouts: Timeouts = field(default_factory=Timeouts)
    outages: Outages = field(default_factory=Outages)
    closed: bool = False

    @property
    def routes(self) -> "FakeBroker":
        return self

    @property
    def connections(self) -> "FakeBroker":
        return self

    async def get(self, name: str) -> "FakeBroker":
        return self

    def known(self, topic: str) -> "FakeBroker":
        return self

    def live(self, address: str) -> "FakeBroker":
        return self

    async def refresh(self, topic: str) -> "FakeBroker":
        return self

    def address(self, broker: str, broker_id: int = 0) -> str:
        return f"{broker}:10911"

    def replicas(self, broker: str, first: int = 0) -> list[str]:
        return [self.address(broker)]

    def master(self, broker: str) -> str:
        return self.address(broker)

    def submit_alike(self, template: Template, asked: Sequence[tuple[tuple[int, ...], Waiter]], timeout: float) -> None:
        for values, waiter in asked:
            header = PullRequest.from_ext(template.command(*values).ext)
            self.asked.append(header)
            self.in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
            asyncio.get_running_loop().call_soon(self._settle, waiter, header, len(self.asked) in self.failures)

    def _settle(self, waiter: Waiter, header: PullRequest, fails: bool) -> None:
        self.in_flight -= 1
        if fails:
            waiter.failed(ConnectError("broker-a:10911", "lost"))
        else:
            waiter.answered(self._answer(header))

    def _answer(self, header: PullRequest) -> Command:
        low, high = self.held
        at = header.queue_offset
        if not low <= at < high:
            return self._reply(ResponseCode.PULL_OFFSET_MOVED, low if at < low else high)
        wanted = min(header.max_msg_nums, next(self.most))
        broker = "broker-a" if header.queue_id == QUEUE.queue_id else "broker-b"
        queue = MessageQueue(header.topic, broker, header.queue_id)
        if header.subscription == EVERYTHING:
            found, end = list(range(at, min(high, at + wanted))), min(high, at + wanted)
        else:
            scanned = range(at, min(high, at + self.scan))
            found = [offset for offset in scanned if self.matches(offset)][:wanted]
            end = found[-1] + 1 if len(found) == wanted else scanned.stop
        body = b"".join(record(queue, offset) for offset in found)
        return self._reply(ResponseCode.SUCCESS if found else ResponseCode.PULL_RETRY_IMMEDIATELY, end, body)

    def _reply(self, code: ResponseCode, next_offset: int, body: bytes = b"") -> Command:
        low, high = self.held
        header = PullResponse(next_begin_offset=next_offset, min_offset=low, max_offset=high)
        return Command(code, ext=header.to_ext(), body=body)


def read(broker: FakeBroker, ranges: Sequence[QueueRange], **kwargs: object) -> list[Chunk]:
    async def collect() -> list[Chunk]:
        reader = RangeReader(cast(Session, broker), "g", **kwargs)  # type: ignore[arg-type]
        return [chunk async for chunk in reader.read(ranges)]

    return asyncio.run(collect())


def offsets(chunks: Sequence[Chunk]) -> list[tuple[MessageQueue, int]]:
    return [
        (message.queue, message.queue_offset)
        for chunk in chunks
        for message in decode_messages(chunk.body, broker=chunk.queue.broker)
    ]


def every_offset(ranges: Sequence[QueueRange]) -> list[tuple[MessageQueue, int]]:
    return [(part.queue, offset) for part in ranges for offset in range(part.start, part.stop)]


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "PAUSES", (0, 0, 0))


ranges_of_both = st.tuples(
    st.builds(lambda start, size: QueueRange(QUEUE, start, start + size), st.integers(0, 50), st.integers(0, 400)),
    st.builds(lambda start, size: QueueRange(OTHER, start, start + size), st.integers(0, 50), st.integers(0, 400)),
)


@given(ranges=ranges_of_both, most=st.lists(st.integers(1, 100), min_size=1, max_size=8))
def test_every_offset_once_and_in_order_whatever_an_answer_holds(
    ranges: tuple[QueueRange, ...], most: list[int]
) -> None:
    assert offsets(read(FakeBroker(most=cycle(most)), ranges)) == every_offset(ranges)


@given(
    start=st.integers(0, 100),
    size=st.integers(0, 2000),
    keep=st.sets(st.integers(0, 6)),
    scan=st.integers(1, 900),
    most=st.integers(1, 64),
)
def test_a_filter_leaves_out_and_never_repeats(start: int, size: int, keep: set[int], scan: int, most: int) -> None:
    def matches(offset: int) -> bool:
        return offset % 7 in keep

    broker = FakeBroker(most=cycle([most]), matches=matches, scan=scan)
    part = QueueRange(QUEUE, start, start + size)
    got = offsets(read(broker, [part], expression="paid"))
    assert got == [(queue, offset) for queue, offset in every_offset([part]) if matches(offset)]


@given(failures=st.sets(st.integers(1, 40), max_size=6))
def test_a_pull_that_gets_no_answer_is_sent_again(failures: set[int]) -> None:
    ranges = [QueueRange(QUEUE, 0, 700)]
    # never four failures in a row of one pull: that is where it gives up
    broker = FakeBroker(failures={number for number in failures if number % 3})
    assert offsets(read(broker, ranges)) == every_offset(ranges)


def test_gives_up_on_a_broker_that_never_answers() -> None:
    with pytest.raises(ConnectError, match="lost"):
        read(FakeBroker(failures=set(range(1, 1000))), [QueueRange(QUEUE, 0, 700)])


def test_asks_a_broker_for_what_it_gives_many_times_at_once() -> None:
    real = FakeBroker(most=cycle([32]))
    read(real, [QueueRange(QUEUE, 0, 32 * 200)])
    assert real.asked[0].max_msg_nums == reading.MOST
    assert {header.max_msg_nums for header in real.asked[1:]} == {32}
    assert real.most_in_flight == reading.WINDOW

    generous = FakeBroker(most=cycle([1_000_000]))
    read(generous, [QueueRange(QUEUE, 0, reading.MOST * 3)])
    assert [header.max_msg_nums for header in generous.asked] == [reading.MOST] * 3


def test_large_answers_narrow_the_window() -> None:
    pace = Pace()
    assert pace.window == 1
    pace.learn(asked=reading.MOST, covered=4, size=2 * 1000 * 1000)
    assert (pace.span, pace.window) == (4, 4)
    # the end of a range says little about what comes next
    pace.learn(asked=1, covered=1, size=100)
    assert pace.window == 4
    pace.learn(asked=4, covered=4, size=64 * 1024 * 1024)
    assert pace.window == 2
    for _ in range(200):
        pace.learn(asked=4, covered=4, size=400)
    assert pace.window == reading.WINDOW


def test_one_large_message_does_not_spoil_the_pace_and_more_is_tried_now_and_then() -> None:
    pace = Pace()
    pace.learn(asked=4096, covered=32, size=1)
    pace.learn(asked=32, covered=1, size=1)
    assert pace.span == 16
    spans = [stop - start for start, stop in pace.cut(0, 1_000_000, reading.PROBE_EVERY)]
    assert sorted(set(spans)) == [16, 32]
    assert spans.count(32) == 1
    pace.learn(asked=32, covered=32, size=1)
    assert pace.span == 32


def test_a_slow_consumer_holds_the_reader_back() -> None:
    broker = FakeBroker(most=cycle([32]))

    async def take_two() -> None:
        chunks = RangeReader(cast(Session, broker), "g").read([QueueRange(QUEUE, 0, 1_000_000)])
        await anext(chunks)
        await anext(chunks)
        for _ in range(10):
            await asyncio.sleep(0)
        asked = len(broker.asked)
        for _ in range(10):
            await asyncio.sleep(0)
        assert len(broker.asked) == asked <= reading.WINDOW + 2
        await chunks.aclose()

    asyncio.run(take_two())


def test_what_has_come_together_is_passed_on_together() -> None:
    broker = FakeBroker(held=(0, 3000), most=cycle([32]))
    chunks = read(broker, [QueueRange(QUEUE, 0, 1000), QueueRange(OTHER, 0, 500), QueueRange(QUEUE, 2000, 3000)])
    assert offsets(chunks) == [
        *((QUEUE, n) for n in range(1000)),
        *((OTHER, n) for n in range(500)),
        *((QUEUE, n) for n in range(2000, 3000)),
    ]
    assert len(chunks) < len(broker.asked) / 3
    assert all(len(chunk.body) < reading.TOGETHER + 32 * len(record(QUEUE, 1000)) for chunk in chunks)


def test_leaving_early_drops_what_is_in_flight() -> None:
    class Slow(FakeBroker):
        def _settle(self, waiter: Waiter, header: PullRequest, fails: bool) -> None:
            waiting.append((waiter, header))
            if len(waiting) <= 2:
                super()._settle(waiter, header, fails)

    waiting: list[tuple[Waiter, PullRequest]] = []
    broker = Slow()

    async def leave() -> None:
        reader = RangeReader(cast(Session, broker), "g")
        chunks = reader.read([QueueRange(QUEUE, 0, 1_000_000)])
        await anext(chunks)
        await anext(chunks)
        await chunks.aclose()
        assert len(waiting) > 2
        # answers that come yet are nobody's
        for waiter, header in waiting[2:]:
            FakeBroker._settle(broker, waiter, header, False)
        assert len(reader._flights) == 0

    asyncio.run(leave())


def test_offsets_that_are_gone_are_an_error_with_a_way_out() -> None:
    with pytest.raises(
        OffsetsLost, match=r"orders.*offsets 10 to 99, it holds 100 up to 500.*failOnDataLoss"
    ) as caught:
        read(FakeBroker(held=(100, 500)), [QueueRange(QUEUE, 10, 300)])
    assert (caught.value.queue, caught.value.start, caught.value.stop) == (QUEUE, 10, 100)


@pytest.mark.parametrize(
    ("held", "wanted", "left"),
    [
        ((100, 500), (10, 300), (100, 300)),
        ((100, 500), (10, 90), (0, 0)),
        ((0, 50), (10, 300), (10, 50)),
        ((0, 50), (60, 300), (0, 0)),
    ],
    ids=["begin deleted", "all deleted", "end cut off", "began anew"],
)
def test_a_loss_that_is_allowed_is_told_and_the_rest_is_read(
    held: tuple[int, int], wanted: tuple[int, int], left: tuple[int, int]
) -> None:
    losses: list[OffsetsLost] = []
    chunks = read(FakeBroker(held=held), [QueueRange(QUEUE, *wanted)], on_loss=losses.append)
    assert [offset for _, offset in offsets(chunks)] == list(range(*left))
    gone = {offset for loss in losses for offset in range(loss.start, loss.stop)}
    assert gone == set(range(*wanted)) - set(range(*left))


def test_an_answer_that_leads_nowhere_is_not_asked_for_forever() -> None:
    class Stuck(FakeBroker):
        def _answer(self, header: PullRequest) -> Command:
            return self._reply(ResponseCode.SUCCESS, header.queue_offset, record(QUEUE, header.queue_offset))

    with pytest.raises(ProtocolError, match="go on at 5"):
        read(Stuck(), [QueueRange(QUEUE, 5, 10)])

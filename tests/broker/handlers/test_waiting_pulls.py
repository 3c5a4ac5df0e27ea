"""Pulls that wait, and the answers to pulls."""

from collections.abc import Callable
from functools import partial
from typing import cast, get_args

import pytest

from evenq.broker.handlers.pull import FOUND, WaitingPull, WaitingPulls, found_answer, pull_ext
from evenq.broker.limits import Limits
from evenq.broker.server import Connection
from evenq.broker.store.store import Read, ReadStatus
from evenq.protocol.command import Command, Serialize


class Loop:
    """Time and timers of an event loop, moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def call_at(self, when: float, callback: Callable[[], None]) -> None:
        self.timers.append((when, callback))

    def move(self, seconds: float) -> None:
        self.now += seconds
        due = [callback for when, callback in self.timers if when <= self.now]
        self.timers = [timer for timer in self.timers if timer[0] > self.now]
        for callback in due:
            callback()


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def pulls(loop: Loop) -> WaitingPulls:
    return WaitingPulls(loop.call_at, lambda: loop.now)


@pytest.fixture
def woken() -> list[tuple[str, bool]]:
    return []


class Waiter:
    """A connection that counts what it waits for."""

    def __init__(self) -> None:
        self.pending = 0
        self.ended = False

    def wait(self) -> None:
        self.pending += 1

    def done(self) -> None:
        self.pending -= 1


def peer() -> Connection:
    return cast(Connection, Waiter())


def waiting(
    name: str, deadline: float, woken: list[tuple[str, bool]], *, queue_id: int = 0, of: object = None
) -> WaitingPull:
    connection = cast(Connection, of) if of is not None else peer()
    return WaitingPull(connection, "orders", queue_id, deadline, lambda late: woken.append((name, late)))


def test_an_arrival_wakes_all_that_wait_for_the_queue(pulls: WaitingPulls, woken: list[tuple[str, bool]]) -> None:
    pulls.park(waiting("a", 10, woken))
    pulls.park(waiting("b", 10, woken))
    pulls.park(waiting("c", 10, woken, queue_id=1))
    pulls.arrived([("orders", 0), ("bills", 0)])
    assert woken == [("a", False), ("b", False)]
    assert len(pulls) == 1


def test_each_is_woken_at_its_own_deadline(pulls: WaitingPulls, loop: Loop, woken: list[tuple[str, bool]]) -> None:
    pulls.park(waiting("late", 20, woken))
    pulls.park(waiting("soon", 5, woken))
    loop.move(4.9)
    assert woken == []
    loop.move(0.1)
    assert woken == [("soon", True)]
    loop.move(15)
    assert woken == [("soon", True), ("late", True)]
    assert len(pulls) == 0


def test_one_that_was_woken_is_not_woken_again(pulls: WaitingPulls, loop: Loop, woken: list[tuple[str, bool]]) -> None:
    pulls.park(waiting("a", 5, woken))
    pulls.arrived([("orders", 0)])
    loop.move(10)
    assert woken == [("a", False)]


def test_a_retry_may_wait_on(pulls: WaitingPulls, loop: Loop) -> None:
    tries: list[bool] = []

    def retry(late: bool) -> None:
        tries.append(late)
        if not late:
            pulls.park(WaitingPull(peer(), "orders", 0, 5, retry))

    pulls.park(WaitingPull(peer(), "orders", 0, 5, retry))
    pulls.arrived([("orders", 0)])
    pulls.arrived([("orders", 0)])
    loop.move(5)
    assert tries == [False, False, True]


def test_the_pulls_of_a_lost_connection_are_forgotten(
    pulls: WaitingPulls, loop: Loop, woken: list[tuple[str, bool]]
) -> None:
    lost, other = peer(), peer()
    pulls.park(waiting("a", 5, woken, of=lost))
    pulls.park(waiting("b", 5, woken, of=other))
    pulls.park(waiting("c", 5, woken, queue_id=1, of=lost))
    pulls.forget(lost)
    loop.move(5)
    assert woken == [("b", True)]


def test_what_was_woken_does_not_pile_up(pulls: WaitingPulls, loop: Loop, woken: list[tuple[str, bool]]) -> None:
    for _ in range(10_000):
        pulls.park(waiting("a", 30, woken))
        pulls.arrived([("orders", 0)])
    assert len(pulls._deadlines) <= 1025
    assert len(loop.timers) == 1


def test_so_many_pulls_may_wait(loop: Loop, woken: list[tuple[str, bool]]) -> None:
    pulls = WaitingPulls(loop.call_at, lambda: loop.now, Limits(max_parked_pulls=2, max_parked_pulls_total=3))
    first, second = peer(), peer()
    for _ in range(2):
        assert pulls.has_room(first)
        pulls.park(waiting("a", 5, woken, of=first))
    assert not pulls.has_room(first)
    assert pulls.has_room(second)
    pulls.park(waiting("b", 5, woken, queue_id=1, of=second))
    assert not pulls.has_room(second)
    pulls.arrived([("orders", 0)])
    assert pulls.has_room(first)
    assert (first.pending, second.pending) == (0, 1)


def test_many_that_wake_do_so_in_parts(pulls: WaitingPulls, loop: Loop, woken: list[tuple[str, bool]]) -> None:
    lost = peer()
    for number in range(200):
        pulls.park(waiting("a", 5, woken, of=lost if number == 199 else None))
    pulls.arrived([("orders", 0)])
    assert len(woken) == 64
    pulls.park(waiting("b", 5, woken))
    pulls.arrived([("orders", 0)])
    pulls.forget(lost)
    steps = 0
    while len(pulls):
        before = len(woken)
        loop.move(0)
        steps += 1
        assert 0 < len(woken) - before <= 64
    assert steps == 3
    assert woken == [("a", False)] * 199 + [("b", False)]


def park_slow_ones(pulls: WaitingPulls, loop: Loop, deadline: float) -> list[int]:
    """Six pulls that take long when they are tried, of which one fails; their numbers as they are tried."""
    tried: list[int] = []

    def retry(number: int, last: bool) -> None:
        tried.append(number)
        loop.now += 0.0015
        if number == 3:
            raise ValueError("unexpected")

    for number in range(6):
        pulls.park(WaitingPull(peer(), "orders", 0, deadline, partial(retry, number)))
    return tried


def test_pulls_that_take_long_let_others_have_their_turn(pulls: WaitingPulls, loop: Loop) -> None:
    tried = park_slow_ones(pulls, loop, 100.0)
    pulls.arrived([("orders", 0)])
    assert tried == [0, 1]
    with pytest.raises(ValueError, match="unexpected"):
        loop.move(0)
    assert tried == [0, 1, 2, 3]
    loop.move(0)
    assert tried == [0, 1, 2, 3, 4, 5], "one that fails does not keep the others waiting"


def test_pulls_whose_time_is_up_let_others_have_their_turn(pulls: WaitingPulls, loop: Loop) -> None:
    tried = park_slow_ones(pulls, loop, 5.0)
    loop.move(5)
    assert tried == [0, 1]
    with pytest.raises(ValueError, match="unexpected"):
        loop.move(0)
    loop.move(0)
    assert tried == [0, 1, 2, 3, 4, 5]
    assert len(pulls) == 0


def test_pulls_of_a_peer_that_sends_no_more_do_not_wait(pulls: WaitingPulls) -> None:
    left = Waiter()
    assert pulls.has_room(cast(Connection, left))
    left.ended = True
    assert not pulls.has_room(cast(Connection, left))


@pytest.mark.parametrize("serialize", get_args(Serialize))
@pytest.mark.parametrize(("next_offset", "opaque"), [(32, 0), (1 << 40, 1_234_567_890), (7, (1 << 31) - 1), (7, -3)])
def test_an_answer_that_brings_messages(serialize: Serialize, next_offset: int, opaque: int) -> None:
    request = Command(11, opaque, serialize=serialize)
    read = Read(ReadStatus.FOUND, next_offset, 5, next_offset + 9, b"records", 2)
    expected = request.reply(0, ext=pull_ext(next_offset, 5, next_offset + 9), body=b"records", remark=FOUND)
    made = found_answer(request, read)
    assert made.encode() == expected.encode()
    assert Command.decode(made.encode()) == expected
    assert (made.opaque, made.is_response, made.body) == (opaque, True, b"records")

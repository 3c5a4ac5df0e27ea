import pytest

from evenq.client.read.ranges import QueueRange
from evenq.errors import ArgumentError
from evenq.model import MessageQueue
from evenq.spark.bounds import AtTime, Bound, Ends, Place, between, resolve

A, B, C = (MessageQueue("t", "b", number) for number in range(3))
ENDS = Ends({A: 5, B: 0, C: 7}, {A: 50, B: 0, C: 9})


def at(place: Place | AtTime | dict[MessageQueue, int], asked: dict[MessageQueue, int] | None = None) -> object:
    return resolve(Bound("o", place), ENDS, asked or {}, strict=True)


def test_places_stand_for_offsets() -> None:
    assert at(Place.EARLIEST) == ENDS.earliest
    assert at(Place.LATEST) == ENDS.latest
    assert at({A: 20, B: -1, C: -2}) == {A: 20, B: 0, C: 7}


def test_a_group_is_where_it_has_stored_and_else_at_the_beginning() -> None:
    assert at(Place.GROUP, {A: 12, C: 3}) == {A: 12, B: 0, C: 3}


def test_offsets_that_are_gone_are_left_for_the_reader_to_report() -> None:
    assert at({A: 1, B: 0, C: 7}) == {A: 1, B: 0, C: 7}


def test_offsets_beyond_the_end_are_an_error_unless_loss_is_allowed() -> None:
    beyond = {A: 60, B: 0, C: 7}
    with pytest.raises(ArgumentError, match=r"o=\{'t': \{'b': \{'0': 60\}\}\}: the queue ends at 50"):
        at(beyond)
    assert resolve(Bound("o", beyond), ENDS, {}, strict=False)[A] == 50


def test_every_queue_must_be_named() -> None:
    for given in ({A: 1, MessageQueue("u", "b", 0): 2}, AtTime({A: 1, MessageQueue("u", "b", 0): 2})):
        with pytest.raises(ArgumentError, match=r"missing: t\.b\.1, t\.b\.2; not there: u\.b\.0"):
            at(given)


def test_a_time_is_an_offset_that_the_queue_still_has() -> None:
    assert at(AtTime(1000), {A: 30, B: 0, C: 2}) == {A: 30, B: 0, C: 7}
    assert AtTime(1000).times([A, B]) == {A: 1000, B: 1000}
    assert AtTime({A: 5, B: 6}).times([A, C]) == {A: 5}


def test_a_time_that_no_message_has_reached_is_an_error_or_the_end() -> None:
    asked = {A: 30, B: 0, C: 9}
    with pytest.raises(ArgumentError, match=r"o=\{'t': \{'b': \{'1': 7, '2': 7\}\}\}: .*ByTimestampStrategy=latest"):
        at(AtTime(7, otherwise=None), asked)
    assert at(AtTime(7), asked) == {A: 30, B: 0, C: 9}


def test_a_range_cannot_begin_behind_its_end() -> None:
    start = Bound("startingOffsets", {A: 6})
    assert between(start, {A: 1, B: 0}, {A: 5, B: 0}) == [QueueRange(A, 1, 5), QueueRange(B, 0, 0)]
    with pytest.raises(ArgumentError, match=r"startingOffsets=\{'t': \{'b': \{'0': \(6, 5\)\}\}\}"):
        between(start, {A: 6}, {A: 5})


def test_between_two_times_there_may_be_nothing() -> None:
    assert between(Bound("startingTimestamp", AtTime(9)), {A: 6}, {A: 5}) == [QueueRange(A, 6, 6)]

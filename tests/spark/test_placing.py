from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest

from evenq.balance import HashSelector
from evenq.errors import ArgumentError
from evenq.model import Message, MessageQueue
from evenq.spark.marks import Origin
from evenq.spark.placing import Placing, topics_of
from evenq.spark.sinkoptions import write_options

QUEUES = [MessageQueue("t", broker, number) for broker in ("hz@a", "sh@b") for number in range(3)]
OTHERS = [MessageQueue("u", "hz@a", 0)]
LEAST = {"namesrv": "a:1", "topic": "t"}


def placed(columns: Mapping[str, Any], first: int = 0, partition: int = 0, **options: str) -> list[MessageQueue]:
    batch = pa.record_batch({name: pa.array(values) for name, values in columns.items()})
    placing = Placing(write_options(LEAST | options), Origin("q", 0, partition))
    found = placing.place(batch, first, {"t": QUEUES, "u": OTHERS})
    rows = {int(at): queue for queue, positions in found.items() for at in positions}
    assert sorted(rows) == list(range(len(batch))), "every row goes somewhere, once"
    assert all(sorted(positions) == list(positions) for positions in found.values()), "in order"
    return [rows[at] for at in range(len(batch))]


def test_rows_take_turns() -> None:
    values = {"value": [b"x"] * 8}
    assert placed(values) == [*QUEUES, *QUEUES[:2]]
    assert placed(values, first=4, partition=1) == [QUEUES[5], *QUEUES, QUEUES[0]]
    assert placed({"value": [b"x"]}, first=7) == [QUEUES[1]]
    assert placed(values | {"topic": ["t"] * 8}) == placed(values)


def test_a_sharding_key_goes_where_every_producer_sends_it() -> None:
    keys = [f"k{n}" for n in range(20)]
    assert placed({"value": [b"x"] * 20, "sharding_key": keys}) == [
        HashSelector().select(QUEUES, Message("t", b"x"), key) for key in keys
    ]
    by_keys = placed({"value": [b"x"] * 20, "keys": keys}, selector="hash")
    assert by_keys == placed({"value": [b"x"] * 20, "sharding_key": keys})
    with pytest.raises(ArgumentError, match="selector=hash needs keys"):
        placed({"value": [b"x"]}, selector="hash")


def test_a_row_may_name_its_queue() -> None:
    ids = {"value": [b"x"] * 4, "queue_id": [2, 2, 1, None]}
    assert placed(ids) == [QUEUES[2], QUEUES[5], QUEUES[1], QUEUES[3]]
    assert placed(ids | {"broker": ["sh@b", "sh@b", None, None]})[:2] == [QUEUES[5]] * 2
    with pytest.raises(ArgumentError, match="queue_id=9: topic t has no such queue to write to on any broker"):
        placed({"value": [b"x"], "queue_id": [9]})


def test_chance_is_the_same_again() -> None:
    values = {"value": [b"x"] * 50}
    assert placed(values, selector="random") == placed(values, selector="random")
    assert set(placed(values, selector="random")) == set(QUEUES)
    assert placed(values, selector="random") != placed(values, partition=1, selector="random")


def test_rooms_come_first() -> None:
    values = {"value": [b"x"] * 6}
    assert placed(values, selector="machine_room", rooms="sh, bj") == QUEUES[3:] * 2
    assert placed(values, selector="machine_room", rooms="bj") == QUEUES


def test_topics_of_rows() -> None:
    batch = pa.record_batch({"value": [b"x"] * 3, "topic": ["u", None, "u"]})
    assert topics_of(batch, write_options(LEAST)) == {"t", "u"}
    assert placed({"value": [b"x"] * 3, "topic": ["u", None, "u"]}) == [OTHERS[0], QUEUES[1], OTHERS[0]]
    with pytest.raises(ArgumentError, match="a row has no topic"):
        topics_of(batch, write_options({"namesrv": "a:1"}))


def test_a_frame_that_numbers_its_rows_may_be_divided_and_ordered_otherwise() -> None:
    numbers = [7, 3, 11, 4, 30, 2]
    for selector in ("round_robin", "random"):
        whole = placed({"value": [b"x"] * 6, "row_number": numbers}, selector=selector)
        again = placed({"value": [b"x"] * 6, "row_number": numbers[::-1]}, first=9, partition=4, selector=selector)
        assert whole == again[::-1]
    assert placed({"value": [b"x"] * 6, "row_number": numbers})[:2] == [QUEUES[1], QUEUES[3]]
    with pytest.raises(ArgumentError, match="number every row"):
        placed({"value": [b"x"], "row_number": pa.array([None], pa.int64())})


def test_a_row_that_names_its_queue_needs_no_key() -> None:
    rows = {"value": [b"x"] * 2, "queue_id": [2, None], "broker": ["sh@b", None], "keys": [None, "k1"]}
    by_key = placed({"value": [b"x"], "keys": ["k1"]}, selector="hash")
    assert placed(rows, selector="hash") == [QUEUES[5], *by_key]

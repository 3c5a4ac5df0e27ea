"""Where a group is in a mirror: what SQL finds next to what a loop finds."""

from __future__ import annotations

import json
from random import Random
from typing import TYPE_CHECKING

from evenq.model import MessageQueue
from evenq.spark.bounds import Ends
from evenq.spark.jobs.mirroring import SOURCE
from evenq.spark.jobs.translation import Memory, not_consumed, positions
from evenq.spark.offsets import by_queue

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HERE = [MessageQueue("t", broker, number) for broker in ("a", "b") for number in (0, 1)]
THERE = [MessageQueue("copy", "x", number) for number in (0, 1)]
Copy = tuple[str, str, int, int, str | None]


def copies(random: Random, count: int, name: str) -> list[Copy]:
    """A mirror of all queues into two, with some copies again, as after a crash, and some messages of others."""
    made: list[Copy] = []
    ends, reached = dict.fromkeys(THERE, 0), dict.fromkeys(HERE, 0)
    for _ in range(count):
        queue = random.choice(HERE)
        if random.random() < 0.1:
            reached[queue] = max(0, reached[queue] - 3)
        place = THERE[HERE.index(queue) % 2]
        origin = f"{name}{queue.topic}:{queue.broker}:{queue.queue_id}:{reached[queue]}"
        strange = random.random() < 0.01
        made.append((place.topic, place.broker, place.queue_id, ends[place], None if strange else origin))
        ends[place] += 1
        reached[queue] += not strange
    return made


def wanted(made: list[Copy], stored: dict[MessageQueue, int], name: str) -> dict[MessageQueue, int]:
    """The first message of each queue that is not known to be consumed."""
    limits = {f"{name}{queue.topic}:{queue.broker}:{queue.queue_id}": offset for queue, offset in stored.items()}
    found: dict[MessageQueue, int] = {}
    ends: dict[MessageQueue, int] = {}
    for topic, broker, queue_id, offset, origin in made:
        queue = MessageQueue(topic, broker, queue_id)
        ends[queue] = offset + 1
        where, _, at = (origin or "").rpartition(":")
        if where not in limits or int(at) >= limits[where]:
            found.setdefault(queue, offset)
    return ends | found


def test_no_message_is_skipped_and_none_comes_again_without_need(spark: SparkSession) -> None:
    random = Random(7)
    for name in ("", "berlin/"):
        made = copies(random, 400, name)
        frame = spark.createDataFrame(
            made, f"topic string, broker string, queue_id int, offset bigint, {SOURCE} string"
        ).cache()
        latest = {queue: sum(1 for row in made if row[2] == queue.queue_id) for queue in THERE}
        looked: list[int] = []

        def read(options: dict[str, str], frame: DataFrame = frame, looked: list[int] = looked) -> DataFrame:
            starts = by_queue(json.loads(options["startingOffsets"]))
            looked.append(sum(starts.values()))
            parts = [f"(queue_id = {queue.queue_id} and offset >= {start})" for queue, start in starts.items()]
            return frame.where(" or ".join(parts))

        memory = Memory()
        stored = {f"g{n}": {queue: random.randrange(60) for queue in HERE[: 4 - n]} for n in range(3)}
        ends = Ends(dict.fromkeys(THERE, 0), latest)
        for _ in range(3):
            found = positions(read, stored, ends, memory, name.rstrip("/"))
            assert found == {group: wanted(made, offsets, name) for group, offsets in stored.items()}
            stored = {
                group: {queue: offset + random.randrange(40) for queue, offset in offsets.items()}
                for group, offsets in stored.items()
            }
        assert looked[0] == 0
        assert looked == sorted(looked), "what is consumed is not looked at again"
        frame.unpersist()


def test_what_a_group_has_gone_back_on_is_looked_at_again() -> None:
    memory = Memory()
    assert memory.since("g", {HERE[0]: 5}) == {}
    memory.note("g", {HERE[0]: 5}, {THERE[0]: 3})
    assert memory.since("g", {HERE[0]: 5}) == {THERE[0]: 3}
    assert memory.since("g", {HERE[0]: 9, HERE[1]: 1}) == {THERE[0]: 3}
    assert memory.since("g", {HERE[0]: 4}) == {}
    assert memory.since("g", {}) == {}


def test_a_group_that_stored_nothing_has_consumed_nothing() -> None:
    assert not_consumed({}) == "true"

"""A topic to another one, on another cluster or under another name: as a stream that follows, or once.

::

    mirror(spark, Side("127.0.0.1:9876", "orders"), Side("10.0.0.7:9876", "orders"), checkpoint="orders.mirror",
           selector="same", ordered=True, groups=["billing"])

What is promised: every message of the source is stored in the target at least once, whatever fails, as long as the same
checkpoint is used; and once for readers with the option ``deduplicate``. Where order is asked for, the messages of a
key are in the target in the order of the source. Groups find themselves in the target where they are in the source, or
before (:mod:`evenq.spark.jobs.translation`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from evenq.errors import ArgumentError, EvenqError
from evenq.spark.jobs.checkpoint import reached
from evenq.spark.jobs.failures import reason
from evenq.spark.jobs.folder import Folder
from evenq.spark.jobs.groups import translate
from evenq.spark.jobs.mirroring import SOURCE, check_selector, queue_map, selection
from evenq.spark.jobs.progress import Progress, Stop, activate, follow, stoppable
from evenq.spark.jobs.sides import Side, at_a_time, target_queues
from evenq.spark.jobs.translation import GroupPosition, Memory
from evenq.spark.lookup import Lookup
from evenq.spark.options import read_options
from evenq.spark.sinkoptions import write_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Mirrored", "Side", "mirror", "translate"]

# How often groups are looked after while a stream runs, in seconds.
GROUPS_EVERY = 30.0


@dataclass(frozen=True, slots=True)
class Mirrored:
    """What became of a job: ``messages`` were mirrored by this run. It is not ``finished`` if it was asked to stop."""

    source: str
    target: str
    messages: int
    seconds: float
    groups: tuple[GroupPosition, ...]
    finished: bool


def mirror(
    spark: SparkSession,
    source: Side,
    target: Side,
    *,
    checkpoint: str,
    selector: str = "same",
    ordered: bool = False,
    once: bool = False,
    groups: Sequence[str] = (),
    name: str = "",
    born_here: bool = False,
    progress: Progress | None = None,
    stop: Stop | None = None,
) -> Mirrored:
    """Copy messages until somebody asks to stop, or ``once``: those that are there when it begins.

    ``selector`` says which queue of the target a message goes to: ``same`` number as it had, by the ``hash`` of its
    sharding key or keys, ``round_robin`` or ``random``. The first two keep the order of messages with the same key, and
    with ``ordered`` no other is taken. ``groups`` are moved along. ``name`` tells clusters apart, where topics of the
    same name are mirrored into one. With ``born_here`` copies are not copied again: for mirrors in both directions.

    The source's options say where to begin (``startingOffsets``, else the earliest) and how much to read at a time.
    """
    activate(spark)
    check_selector(selector, ordered)
    _check_sides(source, target, name, ordered)
    reading = {**_BEGIN, **source.reading} if not _STARTS & _names(source) else source.reading
    reading["includeProperties"] = "true"
    options = read_options(reading)
    sink = {**target.writing, "selector": "round_robin" if selector == "same" else selector}
    write_options(sink)
    shown = progress or Progress(f"mirror of {source.topic}", quiet=True)
    began = time.monotonic()
    with Lookup(options) as lookup:
        queues = lookup.queues(fresh=True)
        ends = lookup.ends(queues)
        request = {"source": str(source), "target": str(target), "name": name}
        Folder(spark, checkpoint).claim("mirror.json", request, "checkpoint")
        before = reached(spark, checkpoint) or lookup.find(options.stream_start(), ends)
    targets = target_queues(target, queues, shown.say)
    if not _AMOUNTS & _names(source):
        reading["maxOffsetsPerTrigger"] = str(at_a_time(len(targets)))
    total = sum(max(0, end - before.get(queue, 0)) for queue, end in ends.latest.items()) if once else None
    messages = spark.readStream.format("rocketmq").options(**reading).load()
    if born_here:
        messages = messages.where(f"properties['{SOURCE}'] is null")
    copies = messages.selectExpr(*selection(selector, queue_map(queues, targets), name))
    writer = copies.writeStream.format("rocketmq").options(**sink, checkpointLocation=checkpoint)
    memory = Memory()
    with nullcontext(stop) if stop is not None else stoppable() as asked:
        query = (writer.trigger(availableNow=True) if once else writer.trigger(processingTime="0 seconds")).start()
        try:
            with _looking_after(spark, source, target, () if once else groups, name, memory, shown):
                finished = follow(spark, query, shown, total=total, stop=asked)
        finally:
            query.stop()
    done = reached(spark, checkpoint) or before
    copied = sum(offset - before.get(queue, 0) for queue, offset in done.items())
    moved = translate(spark, source, target, groups, name=name, memory=memory) if groups else ()
    for group in sorted(set(groups) - {each.group for each in moved}):
        shown.say(f"group {group} has not consumed {source} yet: left out")
    return Mirrored(str(source), str(target), copied, time.monotonic() - began, moved, finished)


def _names(side: Side) -> set[str]:
    return {name.lower() for name in side.options}


def _check_sides(source: Side, target: Side, name: str, ordered: bool) -> None:
    if (source.namesrv, source.topic) == (target.namesrv, target.topic):
        raise ArgumentError("target", target.topic, "that is the source itself: give another topic, or another cluster")
    if set(name) & set(":/'\\"):
        raise ArgumentError("name", name, "give a plain word, such as the name of the data centre")
    for side in (source, target):
        for option in sorted(_TAKEN & _names(side)):
            raise ArgumentError("option", option, "the mirror sees to that by itself: leave it out")
    for option in sorted(_DIVIDING & _names(source)) if ordered else ():
        raise ArgumentError(
            "option", option, "a queue would be read by several tasks, which keep no order: leave it out"
        )


# What options say already, in lower case: the topics and queues on each side.
_TAKEN = frozenset({"subscribe", "subscribepattern", "assign", "topic", "selector", "includeproperties"})
_DIVIDING = frozenset({"minpartitions", "maxrecordsperpartition"})
_STARTS = frozenset({"startingoffsets", "startingtimestamp", "startingoffsetsbytimestamp"})
_AMOUNTS = frozenset({"maxoffsetspertrigger", "minoffsetspertrigger"})
_BEGIN = {"startingOffsets": "earliest"}


@contextmanager
def _looking_after(
    spark: SparkSession,
    source: Side,
    target: Side,
    groups: Sequence[str],
    name: str,
    memory: Memory,
    progress: Progress,
) -> Iterator[None]:
    """Move the groups along while a stream runs. What fails is told, and tried again the next time."""
    from pyspark import InheritableThread

    over = threading.Event()

    def body() -> None:
        while not over.wait(GROUPS_EVERY):
            try:
                translate(spark, source, target, groups, name=name, memory=memory)
            except Exception as error:  # noqa: BLE001 (a mirror goes on without)
                said = str(error) if isinstance(error, EvenqError) else reason(str(error))
                progress.say(f"groups were not moved along: {said}")

    thread = InheritableThread(target=body, daemon=True)
    if groups:
        thread.start()
    try:
        yield
    finally:
        over.set()
        if groups:
            thread.join()

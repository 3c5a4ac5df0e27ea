"""The audit of topics: streams bring narrow facts into a folder, and a report is made of them.

::

    found = audit(spark, ["orders"], "orders-audit", namesrv="127.0.0.1:9876")
    found.clean, found.findings, found.report

The topics are read once, by a stream that ends with what is there; run again, it goes on where it ended, so tomorrow's
audit reads what came since, and one that was cut off loses a micro-batch at most. :func:`follow` lets the stream run
and makes the report anew every while. Each time all facts are counted anew: they are some thirty bytes a message, in
columns, and so there is nothing that could come to differ from them.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from evenq.client.produce.trace import TRACE_TOPIC
from evenq.errors import ArgumentError, RemoteError, TopicNotFound
from evenq.model import MessageQueue
from evenq.spark.jobs.audit.consuming import consumed, group_audit, groups_in, samples_of
from evenq.spark.jobs.audit.facts import PROPERTY_COLUMNS, message_facts, trace_facts, with_queues
from evenq.spark.jobs.audit.findings import Audit, GroupAudit, LagSample
from evenq.spark.jobs.audit.measuring import audit_facts
from evenq.spark.jobs.audit.report import page
from evenq.spark.jobs.audit.store import Facts, open_store
from evenq.spark.jobs.audit.tables import as_json, tables
from evenq.spark.jobs.folder import Folder
from evenq.spark.jobs.progress import Interrupted, Progress, Stop, run, stoppable
from evenq.spark.jobs.progress import follow as follow_query
from evenq.spark.jobs.sides import administrator
from evenq.spark.lookup import Lookup
from evenq.spark.options import read_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["audit", "follow"]

# Offsets of a micro-batch, which is what a failure may cost.
BATCH = 5_000_000
# How often a stream that goes on looks for news.
TRIGGER = "5 seconds"
# Looks at the groups' offsets that are kept, one for each queue.
SAMPLES = 50_000


def audit(
    spark: SparkSession,
    topics: Sequence[str],
    out: str,
    *,
    namesrv: str,
    groups: Sequence[str] | None = None,
    trace: bool = True,
    ordered: bool | None = None,
    options: Mapping[str, str] | None = None,
    progress: Progress | None = None,
    stop: Stop | None = None,
) -> Audit:
    """Audit what the topics hold now, and write the report and the tables to the folder ``out``.

    ``groups`` are those whose lag is looked at; by default all that consume the topics. ``trace`` False leaves the
    message trace alone. ``ordered`` says whether the messages of a key must keep their order; None finds it out.
    ``options`` are further options of the source: how to connect. Whoever asks to stop gets :class:`Interrupted`.
    """
    work = _Work(spark, tuple(topics), out, namesrv, groups, trace, ordered, dict(options or {}))
    shown = progress or Progress("audit", quiet=True)
    with stoppable() if stop is None else nullcontext(stop) as asked:
        for facts, query, left in work.streams(once=True):
            if not follow_query(spark, query, shown, total=left, stop=asked):
                raise Interrupted(f"the audit was stopped; the same command goes on where {facts.name} were left")
        return run(spark, lambda: work.report(shown.say), shown, stop=asked)


def follow(
    spark: SparkSession,
    topics: Sequence[str],
    out: str,
    *,
    namesrv: str,
    groups: Sequence[str] | None = None,
    trace: bool = True,
    ordered: bool | None = None,
    options: Mapping[str, str] | None = None,
    every: float = 30.0,
    stop: Stop | None = None,
    heard: Callable[[Audit], None] = lambda found: None,
) -> Audit:
    """Like :func:`audit`, until somebody asks to stop: ``heard`` gets each audit as soon as its report is written."""
    work = _Work(spark, tuple(topics), out, namesrv, groups, trace, ordered, dict(options or {}))
    with stoppable() if stop is None else nullcontext(stop) as asked:
        queries = [query for _, query, _ in work.streams(once=False)]
        try:
            while True:
                # a stream that failed raises what it failed of
                for query in queries:
                    query.processAllAvailable()
                for facts in work.facts:
                    facts.put_together()
                found = work.report()
                heard(found)
                if asked.wait(every):
                    return found
        finally:
            for query in queries:
                query.stop()


@dataclass(frozen=True)
class _Work:
    """What both have in common."""

    spark: SparkSession
    topics: tuple[str, ...]
    out: str
    namesrv: str
    groups: Sequence[str] | None
    trace: bool
    ordered: bool | None
    options: dict[str, str]

    def __post_init__(self) -> None:
        if not self.topics:
            raise ArgumentError("topics", self.topics, "give at least one topic")
        open_store(self.folder, self.topics)

    @property
    def folder(self) -> Folder:
        return Folder(self.spark, self.out)

    @property
    def facts(self) -> tuple[Facts, Facts]:
        """Of the topics, and of the trace."""
        return Facts(self.spark, self.folder, "topics"), Facts(self.spark, self.folder, "trace")

    def reading(self, topics: Sequence[str], **more: str) -> dict[str, str]:
        return {**self.options, "namesrv": self.namesrv, "subscribe": ",".join(topics), **more}

    def streams(self, *, once: bool) -> list[tuple[Facts, StreamingQuery, int]]:
        """Start them. With each comes how much it has to read. Where there is no trace there is one stream only."""
        of_topics, of_trace = self.facts
        found = [self._stream(of_topics, self.topics, message_facts, once, propertyColumns=",".join(PROPERTY_COLUMNS))]
        if self.trace:
            with suppress(TopicNotFound):
                found.append(self._stream(of_trace, (TRACE_TOPIC,), trace_facts, once))
        return found

    def _stream(
        self, facts: Facts, topics: Sequence[str], shape: Callable[[Any], Any], once: bool, **more: str
    ) -> tuple[Facts, StreamingQuery, int]:
        given = {
            "startingOffsets": "earliest",
            "failOnDataLoss": "false",
            "maxOffsetsPerTrigger": str(BATCH),
            **self.reading(topics, **more),
        }
        raw = read_options(given) if shape is message_facts else None
        done = sum(stop - start for spans in facts.ranges().values() for start, stop in spans)
        with Lookup(read_options(self.reading(topics))) as lookup:
            ends = lookup.ends(lookup.queues())
        there = sum(ends.latest[queue] - ends.earliest[queue] for queue in ends.latest)
        writing = (
            self.spark.readStream.format("rocketmq")
            .options(**given)
            .load()
            .writeStream.foreachBatch(partial(facts.take, shape, raw))
            .option("checkpointLocation", facts.checkpoint)
        )
        writing = writing.trigger(availableNow=True) if once else writing.trigger(processingTime=TRIGGER)
        return facts, writing.start(), max(0, there - done)

    def report(self, say: Callable[[str], None] = lambda step: None) -> Audit:
        """Count everything, judge it, and write it down."""
        now = round(time.time() * 1000)
        of_topics, of_trace = self.facts
        kept, trace = of_topics.frame(), of_trace.frame()
        planned = of_topics.ranges()
        facts = None if kept is None else with_queues(kept, planned)
        found = () if facts is None else audit_facts(facts, planned, ordered=self.ordered)
        result = Audit(
            at=now,
            topics=found,
            groups=self._groups(now, facts, trace),
            traced=trace is not None,
            report=self.folder.child("report.html"),
        )
        for name, data in tables(result).items():
            self.folder.write(f"tables/{name}.parquet", data)
        self.folder.write("audit.json", json.dumps(as_json(result), indent=2))
        self.folder.write("report.html", page(result))
        return result

    def _groups(self, now: int, facts: Any, trace: Any) -> tuple[GroupAudit, ...]:
        samples = self._samples(now)
        rows = None
        if facts is not None and trace is not None:
            kept = self.folder.child("state/consumed")
            consumed(facts, trace).write.mode("overwrite").parquet(kept)
            rows = self.spark.read.parquet(kept)
        names = {sample.group for sample in samples}
        if rows is not None:
            traced = groups_in(rows)
            names |= set(traced if self.groups is None else set(traced) & set(self.groups))
        return tuple(
            group_audit(name, [one for one in samples if one.group == name], rows, facts, trace)
            for name in sorted(names)
        )

    def _samples(self, now: int) -> list[LagSample]:
        """How far the groups are, now and whenever somebody looked before."""
        before = [LagSample(*row) for row in json.loads(self.folder.read("state/lag.json") or "[]")]
        with Lookup(read_options(self.reading(self.topics))) as lookup:
            ends = lookup.latest(lookup.queues())
            for topic, names in self._consuming(lookup, ends).items():
                own = {queue: end for queue, end in ends.items() if queue.topic == topic}
                for group in names:
                    before += samples_of(now, group, lookup.stored(group, own), own)
        kept = before[-SAMPLES:]
        rows = [[one.at, one.group, one.topic, one.broker, one.queue_id, one.committed, one.end] for one in kept]
        self.folder.write("state/lag.json", json.dumps(rows))
        return kept

    def _consuming(self, lookup: Lookup, ends: Mapping[MessageQueue, int]) -> dict[str, list[str]]:
        """The groups of each topic, of those that were named. A broker gives an offset to any group that asks for one,
        so it has to be asked first which there are."""

        async def ask() -> dict[str, list[str]]:
            async with administrator(read_options(self.reading(self.topics)).connecting) as admin:
                return {topic: list(await admin.consumers(topic)) for topic in self.topics}

        try:
            found = asyncio.run(ask())
        except RemoteError:
            # brokers that do not tell, as where rights forbid it: a group is one if it has got somewhere
            moved = {group: lookup.stored(group, ends) for group in self.groups or ()}
            return {
                topic: [
                    group for group, at in moved.items() if any(at.get(queue) for queue in ends if queue.topic == topic)
                ]
                for topic in self.topics
            }
        if self.groups is None:
            return found
        return {topic: [name for name in names if name in self.groups] for topic, names in found.items()}

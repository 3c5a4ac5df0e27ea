"""Topics into files or tables: ``evenq ingest``.

Each micro-batch is written by Spark and put in its place by :mod:`evenq.spark.jobs.publishing`, which makes every
message come exactly once and leaves the files free to be merged (:mod:`evenq.spark.jobs.compaction`). A batch is read
once: rows and bad rows are counted while it is written, and only where there are bad ones the batch is read again for
them. The source gives the same messages again, so nothing needs to be cached. Bodies that stay what they are do not
pass through Spark's rows at all on their way to Parquet (:mod:`evenq.spark.jobs.rawfiles`).

The table has the columns of the source and ``date``, the day in UTC on which the broker stored the message, and is
partitioned by ``date`` and ``topic``. With a schema, ``value`` is a struct of its fields instead of bytes, and what
does not fit goes to a second table with the same columns, ``value`` as it came, and ``reason``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any

from evenq.client.read.ranges import QueueRange
from evenq.errors import ArgumentError, RemoteError, StateError
from evenq.model import MessageQueue
from evenq.spark.jobs.checkpoint import progress_in
from evenq.spark.jobs.compaction import Compacted, check_compaction, compact
from evenq.spark.jobs.files import files_at, join
from evenq.spark.jobs.parsing import GOOD, PARSED, explained, parsed, read_schema
from evenq.spark.jobs.progress import Progress, Stop, follow, tasks
from evenq.spark.jobs.publishing import Batch, Place, publish
from evenq.spark.jobs.rawfiles import can_write, write_ranges
from evenq.spark.jobs.session import session
from evenq.spark.jobs.subscription import remember, subscription
from evenq.spark.lookup import Lookup
from evenq.spark.options import ReadOptions, read_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["FILES", "Ingested", "ingest"]

# Formats that are files in folders, which are put in their places by us.
FILES = ("parquet", "orc", "json", "csv", "avro", "xml")
# Where formats come from that are not part of Spark.
PACKAGES = {
    "delta": "io.delta:delta-spark_2.13",
    "iceberg": "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13",
    "hudi": "org.apache.hudi:hudi-spark4.0-bundle_2.13",
    "avro": "org.apache.spark:spark-avro_2.13",
}
PARTITIONS = ("date", "topic")
# The day in UTC, whatever the session's time zone is.
DATE = "date_add(DATE'1970-01-01', CAST(unix_millis(timestamp) DIV 86400000 AS INT))"

# What a micro-batch reads at most, unless the options say otherwise: so much is done again after a crash.
MOST = "5000000"
# In a stream, small files are merged after so many micro-batches.
COMPACT_EVERY = 20
# Spark sorts rows by partition before it writes them, unless it may have that many files open.
OPEN_FILES = "32"


@dataclass(frozen=True, slots=True)
class Ingested:
    """What an ingest did: rows in the table and in the table of bad ones, files, and how to go on."""

    rows: int
    bad: int
    files: int
    batches: int
    merged: int
    seconds: float
    # False if it was stopped before its end; a stream has none
    finished: bool
    table: str
    bad_table: str
    checkpoint: str


def ingest(
    topics: str | Sequence[str] | None,
    path: str,
    *,
    namesrv: str = "127.0.0.1:9876",
    format: str = "parquet",  # noqa: A002 (Spark's word)
    schema: str | StructType | None = None,
    once: bool = False,
    every: str = "10 seconds",
    checkpoint: str | None = None,
    bad: str | None = None,
    compacting: bool = False,
    options: Mapping[str, str] | None = None,
    writing: Mapping[str, str] | None = None,
    spark: SparkSession | None = None,
    progress: Progress | None = None,
    stop: Stop | None = None,
) -> Ingested:
    """Write topics to a table at ``path``; until it is stopped, or with ``once`` until what is there now is written.

    ``topics`` may be None where ``options`` say what to read (``subscribePattern``, ``assign``). ``options`` are those
    of the source, ``writing`` those of the format. A table that is new begins with the earliest messages, unless the
    options say otherwise.
    """
    spark = spark or session("evenq ingest")
    progress = progress or Progress("ingest", quiet=True)
    job = _job(spark, path, format, schema, checkpoint, bad, compacting, writing or {}, progress)
    given = _source_options(topics, namesrv, options or {})
    remember(*files_at(spark, job.checkpoint), subscription(given))
    if once:
        job.ends = _ends(given)
    if format == "parquet" and job.schema is None and job.table.files.local and can_write(job.writing):
        job.raw = read_options(given)
    began = monotonic()
    stream = spark.readStream.format("rocketmq").options(**given).load()
    writer = stream.writeStream.foreachBatch(job.write).option("checkpointLocation", job.checkpoint)
    writer = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=every)
    query = writer.start()
    finished = follow(
        spark,
        query,
        progress,
        total=lambda: job.total,
        done=lambda: job.done(*tasks(spark, str(query.runId))),
        stop=stop,
    )
    if compacting and finished:
        progress.say("merging small files")
        job.compact(spark)
    return job.summary(monotonic() - began, finished)


def _source_options(topics: str | Sequence[str] | None, namesrv: str, options: Mapping[str, str]) -> dict[str, str]:
    own: dict[str, str] = {"namesrv": namesrv}
    if topics is not None:
        own["subscribe"] = topics if isinstance(topics, str) else ",".join(topics)
    names = {name.lower() for name in options}
    for name, value in own.items():
        if name.lower() in names and options.get(name) != value:
            raise ArgumentError(name, options.get(name), "this is given twice: leave one of them out")
    if not any(name.startswith("starting") for name in names):
        own["startingOffsets"] = "earliest"
    if "maxoffsetspertrigger" not in names:
        own["maxOffsetsPerTrigger"] = MOST
    return own | dict(options)


def _ends(given: Mapping[str, str]) -> dict[MessageQueue, int]:
    """Where each queue ends now, to tell how much there is to do; nobody's trouble if it cannot be told."""
    try:
        with Lookup(read_options(given)) as lookup:
            return lookup.latest(lookup.queues(lenient=True), lenient=True)
    except RemoteError:
        return {}


def _job(
    spark: SparkSession,
    path: str,
    form: str,
    schema: str | StructType | None,
    checkpoint: str | None,
    bad: str | None,
    compacting: bool,
    writing: Mapping[str, str],
    progress: Progress,
) -> _Job:
    _check_format(spark, form)
    table = Place(*files_at(spark, path))
    if compacting:
        check_compaction(table, form)
    return _Job(
        table=table,
        bad=Place(*files_at(spark, bad or f"{table.root.rstrip('/')}-bad")),
        form=form,
        schema=read_schema(schema) if isinstance(schema, str) else schema,
        checkpoint=checkpoint or table.own("checkpoint"),
        compacting=compacting,
        writing={"compression": "zstd", **writing} if form == "parquet" else dict(writing),
        progress=progress,
    )


def _check_format(spark: SparkSession, form: str) -> None:
    """Find out now that a format is missing, not in the first micro-batch."""
    java = getattr(spark, "_jsparkSession", None)
    if java is None:
        raise StateError(
            "this job keeps files in order by itself, which Spark Connect cannot: use a session of its own"
        )
    lookup: Any = spark.sparkContext._jvm.org.apache.spark.sql.execution.datasources.DataSource  # type: ignore[union-attr]
    try:
        # those that are written in Python are not known to the second
        if not java.sessionState().dataSourceManager().dataSourceExists(form):
            lookup.lookupDataSource(form, java.sessionState().conf())
    except Exception as error:
        if "DATA_SOURCE_NOT" not in str(error):
            raise
        package = PACKAGES.get(form.lower())
        way_out = f"add its package: --conf spark.jars.packages={package}:VERSION" if package else "see its name"
        raise ArgumentError("format", form, f"Spark has no such format here; {way_out}") from error


@dataclass(kw_only=True)
class _Job:
    """The state of a run, and what is done with each micro-batch."""

    table: Place
    bad: Place
    form: str
    schema: StructType | None
    checkpoint: str
    compacting: bool
    writing: Mapping[str, str]
    progress: Progress
    rows: int = 0
    bad_rows: int = 0
    files: int = 0
    batches: int = 0
    compacted: Compacted = field(default_factory=Compacted)
    # what is read, where the workers that read it can write it as it is
    raw: ReadOptions | None = None
    # where the queues end, if that is where the work ends; what there is to do; what the batch under way reads
    ends: Mapping[MessageQueue, int] = field(default_factory=dict)
    total: int | None = None
    under_way: int = 0

    def done(self, tasks_done: int, tasks: int) -> int:
        """Rows that are done, and a guess at those of the batch under way."""
        return self.rows + self.bad_rows + (self.under_way * tasks_done // tasks if tasks else 0)

    def write(self, frame: DataFrame, number: int) -> None:
        """What Spark calls with each micro-batch, and again with one that it does not know to be done."""
        spark = frame.sparkSession
        query = str(spark.sparkContext.getLocalProperty("sql.streaming.queryId"))
        # this session is the query's own: nobody else's is changed
        spark.conf.set("spark.sql.maxConcurrentOutputFileWriters", OPEN_FILES)
        ranges = self._look_ahead(spark, number)
        batch = self._put(frame.withColumn("date", _sql(DATE)), query, number, ranges)
        self.rows += batch.rows
        self.bad_rows += batch.bad
        self.files += len(batch.moves)
        self.batches += 1
        self.under_way = 0
        if self.compacting and self.batches % COMPACT_EVERY == 0:
            self.compact(spark)

    def _look_ahead(self, spark: SparkSession, number: int) -> Sequence[QueueRange]:
        """What the batch reads, as Spark has noted it before; and with the first one, how much there is in all."""
        files, folder = files_at(spark, self.checkpoint)
        log = files.read(join(folder, "offsets", str(number)))
        ranges = progress_in(log.decode()).ranges if log else ()
        self.under_way = sum(part.stop - part.start for part in ranges)
        if self.total is None and self.ends:
            self.total = sum(max(0, self.ends.get(part.queue, 0) - part.start) for part in ranges)
        return ranges

    def _put(self, frame: DataFrame, query: str, number: int, ranges: Sequence[QueueRange]) -> Batch:
        spark, raw = frame.sparkSession, self.raw
        if raw is not None and ranges:
            return publish(
                {"good": self.table},
                query,
                number,
                lambda folders: (write_ranges(spark, raw, ranges, folders["good"], self.writing), 0),
            )
        if self.form in FILES:
            places = {"good": self.table} | ({"bad": self.bad} if self.schema else {})
            return publish(places, query, number, lambda folders: self._write_files(frame, folders))
        own = {"txnAppId": query, "txnVersion": str(number)} if self.form == "delta" else {}
        targets = {"good": self.table.root, "bad": self.bad.root}
        rows, bad = self._write_files(frame, targets, own)
        return Batch(rows, bad)

    def _write_files(
        self, frame: DataFrame, folders: Mapping[str, str], own: Mapping[str, str] | None = None
    ) -> tuple[int, int]:
        from pyspark.sql import Observation

        def save(rows: DataFrame, folder: str) -> None:
            self._writer(rows, own or {}).save(folder)

        seen = Observation()
        if self.schema is None:
            save(frame.observe(seen, _sql("count(1)").alias("rows")), folders["good"])
            return int(seen.get["rows"]), 0
        both = parsed(frame, self.schema)
        counted = both.observe(seen, _sql("count(1)").alias("rows"), _sql(f"count_if(NOT {GOOD})").alias("bad"))
        save(counted.filter(GOOD).drop(GOOD).withColumn("value", _sql(PARSED)).drop(PARSED), folders["good"])
        rows, bad = int(seen.get["rows"]), int(seen.get["bad"])
        if bad:
            save(explained(both.filter(f"NOT {GOOD}").drop(GOOD, PARSED), self.schema), folders["bad"])
        return rows - bad, bad

    def _writer(self, rows: DataFrame, own: Mapping[str, str]) -> DataFrameWriter:
        writer = rows.write.format(self.form).options(**self.writing, **own).mode("append")
        return writer.partitionBy(*PARTITIONS) if self.form in (*FILES, "delta", "hudi") else writer

    def compact(self, spark: SparkSession) -> None:
        for place in (self.table, self.bad):
            self.compacted += compact(spark, place, self.form, self.writing)

    def summary(self, seconds: float, finished: bool) -> Ingested:
        return Ingested(
            rows=self.rows,
            bad=self.bad_rows,
            files=self.files,
            batches=self.batches,
            merged=self.compacted.merged,
            seconds=round(seconds, 3),
            finished=finished,
            table=self.table.root,
            bad_table=self.bad.root,
            checkpoint=self.checkpoint,
        )


def _sql(text: str) -> Any:
    from pyspark.sql import functions

    return functions.expr(text)

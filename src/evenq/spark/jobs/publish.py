"""A table to a topic: any frame's rows become messages, at a steady rate, and a job that was cut off goes on.

::

    publish(spark.read.parquet("orders.parquet"), "orders", namesrv="127.0.0.1:9876", state="orders.publish",
            columns=MessageColumns(keys="order_id", tags="status"))

What is promised: every row of the table, as it was when the job first began, is sent at least once, whatever fails and
however often the job is run again; and once for readers with the option ``deduplicate``. How that is done is told in
:mod:`evenq.spark.jobs.staging`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING

from evenq.errors import ArgumentError
from evenq.spark.jobs.failures import reason
from evenq.spark.jobs.messages import MessageColumns, conversions
from evenq.spark.jobs.pace import State
from evenq.spark.jobs.progress import Interrupted, Progress, Stop, run, stoppable
from evenq.spark.jobs.sides import at_a_time, queues_to_write
from evenq.spark.jobs.staging import Staged, Staging
from evenq.spark.outbox import TOPIC_QUEUES
from evenq.spark.sinkoptions import WriteOptions, write_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Layout", "MessageColumns", "Published", "layout", "prepared", "publish"]

# Under a limit a round takes so many seconds, and a task sends at least so many rows a second.
ROUND_SECONDS = 10
TASK_RATE = 500

# The column that rows are ordered by on their way; no part of the message.
ORDER = "evenq_order"


@dataclass(frozen=True, slots=True)
class Published:
    """What became of a job. ``rows`` are all of the table, ``sent`` those that this run sent and ``sent_before`` those
    of the runs before it. It is not ``finished`` if somebody asked it to stop."""

    topic: str
    rows: int
    sent: int
    sent_before: int
    seconds: float
    finished: bool


@dataclass(frozen=True, slots=True)
class Layout:
    """How rows are divided: so many tasks at a time, and so many rows of each in a round."""

    tasks: int
    rows_per_task: int


def layout(parallelism: int, rate: int | None, round_rows: int) -> Layout:
    """As many tasks as run at a time; under a low limit fewer, with smaller rounds.

    >>> layout(8, None, 200_000), layout(8, 1000, 200_000)
    (Layout(tasks=8, rows_per_task=25000), Layout(tasks=2, rows_per_task=5000))
    """
    if rate is None:
        return Layout(parallelism, max(1, round_rows // parallelism))
    tasks = max(1, min(parallelism, rate // TASK_RATE))
    return Layout(tasks, max(1, min(round_rows, rate * ROUND_SECONDS) // tasks))


def publish(
    frame: DataFrame,
    topic: str,
    *,
    namesrv: str,
    state: str,
    columns: MessageColumns | None = None,
    order_by: str | None = None,
    selector: str = "round_robin",
    rate: int | None = None,
    round_rows: int | None = None,
    options: Mapping[str, str] | None = None,
    source: str = "",
    progress: Progress | None = None,
    stop: Stop | None = None,
) -> Published:
    """Send the rows of a frame to a topic; the same call with the same folder ``state`` goes on where it was cut off.

    The folder must be where all of Spark can write; when everything is sent it is deleted. ``order_by`` keeps the rows
    of a sharding key, or of the same keys with selector ``hash``, in this order. ``rate`` is how many rows a second may
    leave, over all tasks, and ``round_rows`` how many are sent before that is noted. ``options`` are the sink's, and
    ``source`` is a name for the table: a folder that was begun for another one is refused.

    Asked to stop, it ends when the rows that are under way are sent, and says so in ``finished``.
    """
    chosen = columns or MessageColumns()
    given = {**(options or {}), "namesrv": namesrv, "topic": topic, "selector": selector}
    sink = write_options(given)
    _check(sink, chosen, order_by, rate, round_rows)
    rows = prepared(frame, chosen, order_by)
    queues = len(queues_to_write(sink.connecting, topic)) or TOPIC_QUEUES
    request = {"source": source, "topic": topic, "namesrv": namesrv, "selector": selector, "order_by": order_by}
    staging = Staging(frame.sparkSession, state, request | {"columns": asdict(chosen)})
    shown = progress or Progress(f"publish to {topic}", quiet=True)
    began = time.monotonic()
    with nullcontext(stop) if stop is not None else stoppable() as asked:
        staged = staging.staged()
        if staged is None:
            plan = layout(frame.sparkSession.sparkContext.defaultParallelism, rate, round_rows or at_a_time(queues))
            shown.say("reading the table")
            try:
                staged = run(frame.sparkSession, lambda: _stage(staging, rows, sink, plan), shown, stop=asked)
            except Interrupted:
                staging.clear()
                return Published(topic, 0, 0, 0, time.monotonic() - began, finished=False)
        before = sum(staged.rounds[number].rows for number in staging.sent())
        if before:
            shown.say(f"going on after {before:,} of {staged.rows:,} rows that were read and sent before")
        sent = _send(staging, staged, given, rate, shown, asked)
    finished = before + sent == staged.rows
    if finished:
        staging.clear()
    return Published(topic, staged.rows, sent, before, time.monotonic() - began, finished)


def _check(
    sink: WriteOptions, columns: MessageColumns, order_by: str | None, rate: int | None, round_rows: int | None
) -> None:
    for name, number in (("rate", rate), ("round_rows", round_rows)):
        if number is not None and number < 1:
            raise ArgumentError(name, number, "give 1 or more")
    for option, value in (("writerId", sink.writer), ("rowsPerSecond", sink.rows_per_second)):
        if value is not None:
            raise ArgumentError(
                option, value, "the job sees to that by itself: leave it out, and give rate for a limit"
            )
    by_keys = sink.selector == "hash"
    if by_keys and columns.keys is None and columns.sharding_key is None:
        raise ArgumentError("selector", "hash", "it goes by keys: say which column is keys, or sharding_key")
    if order_by is not None and columns.sharding_key is None and not by_keys:
        raise ArgumentError(
            "order_by", order_by, "order is kept within a queue: give sharding_key, or keys with selector hash"
        )


def prepared(frame: DataFrame, columns: MessageColumns, order_by: str | None = None) -> DataFrame:
    """The messages of a table, in the columns that the sink takes, and what they are ordered by."""
    from pyspark.errors import AnalysisException

    selections = columns.selections() | ({} if order_by is None else {ORDER: order_by})
    for name, expression in selections.items():
        try:
            frame.selectExpr(expression)
        except AnalysisException as error:
            raise ArgumentError(name, expression, f"Spark says: {reason(str(error))}") from None
    chosen = frame.selectExpr(*(f"{expression} as {name}" for name, expression in selections.items()))
    types = dict(chosen.dtypes)
    return chosen.selectExpr(
        *conversions({name: kind for name, kind in types.items() if name != ORDER}),
        *([ORDER] if ORDER in types else []),
    )


def _stage(staging: Staging, rows: DataFrame, sink: WriteOptions, plan: Layout) -> Staged:
    """Read the table, and see that all of it can be sent before any of it is."""
    from pyspark.sql import Observation
    from pyspark.sql.functions import expr

    divided = rows.coalesce(plan.tasks)
    if ORDER in rows.columns:
        key = "sharding_key" if "sharding_key" in rows.columns else "keys"
        divided = rows.repartition(plan.tasks, key).sortWithinPartitions(ORDER).drop(ORDER)
    faults = _faults(divided.columns, sink)
    seen = Observation()
    counts = (expr(f"count_if({fault.condition}) as fault{at}") for at, fault in enumerate(faults))
    staging.stage(divided.observe(seen, expr("count(1) as rows"), *counts), plan.rows_per_task)
    for at, fault in enumerate(faults):
        if count := seen.get[f"fault{at}"]:
            staging.clear()
            raise ArgumentError(fault.column, f"{count:,} of {seen.get['rows']:,} rows", fault.remedy)
    return staging.seal()


@dataclass(frozen=True, slots=True)
class _Fault:
    """What no row may be: a SQL condition on the column, and what to do about it."""

    column: str
    condition: str
    remedy: str


def _faults(columns: Sequence[str], sink: WriteOptions) -> list[_Fault]:
    empty = "have nothing to send: a message has 1 byte at least, so leave them out (where)"
    large = f"are too large: a message has {sink.max_message_size:,} bytes at most, or raise maxMessageSize"
    found = [
        _Fault("value", "octet_length(value) is null or octet_length(value) = 0", empty),
        _Fault("value", f"octet_length(value) > {sink.max_message_size}", large),
    ]
    if sink.selector == "hash":
        keys = [f"({_KEYLESS.format(name)})" for name in ("sharding_key", "keys") if name in columns]
        found.append(_Fault("keys", " and ".join(keys), "have none, and selector hash goes by them: leave them out"))
    return found


_KEYLESS = "coalesce(cast({0} as string), '') in ('', '[]')"


def _send(
    staging: Staging,
    staged: Staged,
    options: Mapping[str, str],
    rate: int | None,
    progress: Progress,
    stop: Stop,
) -> int:
    """Send the rounds that are not sent yet, one after the other; gives their rows.

    Who asks to stop waits for the round under way: what is sent as a whole need not be sent again.
    """
    spark = staging.session
    done = before = sum(staged.rounds[number].rows for number in staging.sent())
    for number in sorted(set(range(len(staged.rounds))) - staging.sent()):
        if stop.asked:
            break
        now = staged.rounds[number]
        limit = {} if rate is None else {"rowsPerSecond": str(max(1, rate // len(now.files)))}
        writer = staging.read(now.files).write.format("rocketmq").options(**options, **limit)
        named = writer.options(writerId=staged.writer, epoch=str(number)).mode("append")
        run(spark, named.save, progress, state=partial(State, done, staged.rows), stop=Stop())
        staging.note_sent(number)
        done += now.rows
    return done - before

"""Shows how far long work is, on a terminal or line by line in a log, and lets it be stopped.

::

    with Progress("orders to Parquet") as progress:
        ended = follow(spark, query, progress)     # a streaming query, until it ends or is interrupted
    with Progress("audit of orders") as progress:
        table = run(spark, lambda: frame.collect(), progress)     # batch work, by Spark's tasks

What is shown goes to standard error: standard output is for results. Ctrl-C and SIGTERM are a question that the work
asks (``stop.asked``); it is then stopped at a place from which it can go on. The second Ctrl-C ends it at once.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar
from uuid import uuid4

from evenq.errors import EvenqError
from evenq.spark.jobs.pace import Pace, State, sentence

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from rich.progress import Progress as Bar

__all__ = ["Interrupted", "Progress", "Stop", "activate", "follow", "run", "stoppable", "tasks", "tasks_of"]

T = TypeVar("T")

# How often work is looked at, and how often a line goes to what is no terminal.
LOOK = 0.5
LINE = 10.0


class Interrupted(EvenqError):
    """Work was stopped by Ctrl-C or SIGTERM before its end."""


class Progress:
    """One line that tells how far the work is; a bar on a terminal, a line every ten seconds elsewhere.

    ``quiet`` shows nothing: for programs. ``say`` is for what happens once.
    """

    def __init__(
        self,
        title: str,
        *,
        quiet: bool = False,
        terminal: bool | None = None,
        line_every: float = LINE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.title = title
        self._quiet = quiet
        self._terminal = sys.stderr.isatty() if terminal is None else terminal
        self._line_every = line_every
        self._clock = clock
        self._pace = Pace()
        self._unit = ""
        self._began = self._told = clock()
        self._bar: Bar | None = None

    def __enter__(self) -> Self:
        self._began = self._told = self._clock()
        if self._terminal and not self._quiet:
            self._bar = _bar()
            self._bar.add_task(self.title, total=None, state="")
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    @property
    def seconds(self) -> float:
        """Since it began."""
        return self._clock() - self._began

    def show(self, state: State) -> None:
        """Tell how far the work is."""
        now = self._clock()
        if state.unit != self._unit:
            self._pace, self._unit = Pace(), state.unit
        self._pace.note(now, state.done)
        if self._bar is not None:
            task = self._bar.task_ids[0]
            self._bar.update(task, completed=state.done, total=state.total, state=sentence(state, self._pace))
        elif not self._quiet and now - self._told >= self._line_every:
            self._told = now
            self.say(sentence(state, self._pace))

    def say(self, text: str) -> None:
        """A line that stays."""
        if self._quiet:
            return
        if self._bar is not None:
            self._bar.console.print(f"{self.title}: {text}", markup=False, highlight=False)
        else:
            print(f"{self.title}: {text}", file=sys.stderr, flush=True)


def _bar() -> Bar:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as RichProgress

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[state]}", markup=False),
    )
    return RichProgress(*columns, console=Console(stderr=True), transient=True)


class Stop:
    """Whether somebody asked for the end."""

    def __init__(self) -> None:
        self._event = threading.Event()

    @property
    def asked(self) -> bool:
        return self._event.is_set()

    def ask(self) -> None:
        self._event.set()

    def wait(self, seconds: float) -> bool:
        return self._event.wait(seconds)


@contextmanager
def stoppable() -> Iterator[Stop]:
    """Takes Ctrl-C and SIGTERM for a while. Signals come to the main thread only: elsewhere nothing is taken."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def asked(number: int, frame: FrameType | None) -> None:
        if stop.asked:
            raise KeyboardInterrupt
        stop.ask()

    before = {number: signal.signal(number, asked) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def follow(
    spark: SparkSession,
    query: StreamingQuery,
    progress: Progress,
    *,
    total: int | Callable[[], int | None] | None = None,
    done: Callable[[], int] | None = None,
    stop: Stop | None = None,
) -> bool:
    """Show a streaming query until it ends: True if it came to its end, False if it was asked to stop and did.

    Rows are those that the query says it read, or what ``done`` says; ``total`` is how many there will be, where known.
    A query that fails raises Spark's error, unless it was asked to stop: a batch that is cut off is no failure then.
    """
    seen = Batches()
    with stoppable() if stop is None else _same(stop) as asked:
        while query.isActive and not asked.asked:
            seen.take(query.lastProgress)
            rows = seen.rows if done is None else done()
            whole = total() if callable(total) else total
            progress.show(State(rows, whole, note=tasks_of(spark, str(query.runId))))
            asked.wait(LOOK)
        if not asked.asked:
            query.awaitTermination()
            return True
        progress.say("stopping")
        with _spark_errors_ignored():
            query.stop()
        return False


@contextmanager
def _same(stop: Stop) -> Iterator[Stop]:
    yield stop


@contextmanager
def _spark_errors_ignored() -> Iterator[None]:
    from pyspark.errors import PySparkException

    with suppress(PySparkException):
        yield


class Batches:
    """Adds up the rows of micro-batches, each once however often it is told of."""

    def __init__(self) -> None:
        self._rows: dict[int, int] = {}

    def take(self, report: Any) -> None:
        """What ``lastProgress`` gives: a progress of a micro-batch, or None."""
        if report is not None and report.numInputRows:
            self._rows[report.batchId] = report.numInputRows

    @property
    def rows(self) -> int:
        return sum(self._rows.values())


def tasks_of(spark: SparkSession, group: str) -> str:
    """How far Spark is with the jobs of this group, as a note: ``3 of 8 tasks``, or nothing between two jobs."""
    done, total = tasks(spark, group)
    return f"{done:,} of {total:,} tasks" if total else ""


def tasks(spark: SparkSession, group: str) -> tuple[int, int]:
    """Tasks that are done and all tasks, of the stages that run."""
    tracker = spark.sparkContext.statusTracker()
    done = total = 0
    for job in tracker.getJobIdsForGroup(group):
        info = tracker.getJobInfo(job)
        if info is None or info.status != "RUNNING":
            continue
        for stage in map(tracker.getStageInfo, info.stageIds):
            if stage is not None and stage.numCompletedTasks < stage.numTasks:
                done += stage.numCompletedTasks
                total += stage.numTasks
    return done, total


def activate(spark: SparkSession) -> None:
    """Let Spark find the sources of this session from this thread: for a write it asks the thread's session only."""
    jvm: Any = spark._jvm
    type(spark)._get_j_spark_session_class(jvm).setActiveSession(spark._jsparkSession)


def run(
    spark: SparkSession,
    work: Callable[[], T],
    progress: Progress,
    *,
    state: Callable[[], State] | None = None,
    stop: Stop | None = None,
) -> T:
    """Do batch work on Spark, show how far it is (by tasks, unless ``state`` tells more) and let it be stopped.

    The work is done in a thread whose Spark jobs are cancelled when somebody asks; that raises :class:`Interrupted`.
    """
    from pyspark import InheritableThread

    group = f"evenq-{uuid4()}"
    results: list[T] = []
    errors: list[BaseException] = []

    def body() -> None:
        activate(spark)
        spark.sparkContext.setJobGroup(group, progress.title, interruptOnCancel=True)
        try:
            results.append(work())
        except BaseException as error:  # noqa: BLE001 (raised again in the caller's thread)
            errors.append(error)

    def by_tasks() -> State:
        done, total = tasks(spark, group)
        return State(done, total or None, unit="tasks")

    thread = InheritableThread(target=body, daemon=True)
    with stoppable() if stop is None else _same(stop) as asked:
        thread.start()
        while thread.is_alive() and not asked.asked:
            progress.show((state or by_tasks)())
            thread.join(LOOK)
        if asked.asked and thread.is_alive():
            progress.say("stopping")
            while thread.is_alive():
                # a job that begins after a cancellation is not cancelled by it
                spark.sparkContext.cancelJobGroup(group)
                thread.join(LOOK)
            if errors or not results:
                raise Interrupted(f"{progress.title} was stopped before its end: run the same command again") from None
    if errors:
        raise errors[0]
    return results[0]

"""What is shown of long work, and how it is stopped."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from evenq.spark.jobs.pace import State
from evenq.spark.jobs.progress import Batches, Interrupted, Progress, Stop, follow, run, stoppable
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_lines_are_sparse_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with Progress("orders", terminal=False, clock=clock) as progress:
        for _ in range(25):
            clock.now += 1
            progress.show(State(round(clock.now - 100) * 10, 1000))
        progress.say("compacting")
        assert progress.seconds == 25
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "orders: 100 of 1,000 rows, 10 a second, 1 min 30 s left",
        "orders: 200 of 1,000 rows, 10 a second, 1 min 20 s left",
        "orders: compacting",
    ]


def test_another_unit_begins_another_rate(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with Progress("orders", terminal=False, clock=clock, line_every=0) as progress:
        progress.show(State(1000))
        clock.now += 1
        progress.show(State(1, 4, unit="tasks"))
    assert capsys.readouterr().err.splitlines()[-1] == "orders: 1 of 4 tasks"


def test_a_terminal_gets_a_bar_and_programs_get_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("orders [a]", terminal=True) as progress:
        progress.show(State(10, 20))
        progress.say("half [b]")
    assert "orders [a]: half [b]" in capsys.readouterr().err
    with Progress("orders", quiet=True, terminal=True) as progress:
        progress.show(State(10, 20))
        progress.say("half")
    assert capsys.readouterr().err == ""


def test_each_micro_batch_counts_once() -> None:
    seen = Batches()
    for number, rows in ((0, 5), (0, 5), (1, 7), (1, 7), (2, 0)):
        seen.take(SimpleNamespace(batchId=number, numInputRows=rows))
    seen.take(None)
    assert seen.rows == 12


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_a_question_and_the_second_one_an_order(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with stoppable() as stop:
        os.kill(os.getpid(), number)
        assert stop.wait(10)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before


def test_other_threads_take_no_signals() -> None:
    before, asked = signal.getsignal(signal.SIGINT), []

    def body() -> None:
        with stoppable() as stop:
            asked.append((stop.asked, signal.getsignal(signal.SIGINT)))

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    assert asked == [(False, before)]


def test_batch_work_gives_its_result_or_its_error(spark: SparkSession) -> None:
    with Progress("work", quiet=True) as progress:
        assert run(spark, lambda: spark.range(10).count(), progress) == 10
        with pytest.raises(ZeroDivisionError):
            run(spark, lambda: 1 // 0, progress)


def test_batch_work_is_stopped_by_cancelling_its_jobs(spark: SparkSession, tmp_path: Path) -> None:
    stop, begun = Stop(), tmp_path / "begun"

    def slow(rows: object) -> object:
        begun.touch()
        threading.Event().wait(300)
        return rows

    def ask() -> None:
        wait_until(begun.exists, "the job to run", 60)
        stop.ask()

    asking = threading.Thread(target=ask)
    asking.start()
    with Progress("work", quiet=True) as progress, pytest.raises(Interrupted, match="run the same command again"):
        run(spark, lambda: spark.sparkContext.parallelize([1], 1).mapPartitions(slow).collect(), progress, stop=stop)  # type: ignore[arg-type]
    asking.join()


def rate(spark: SparkSession) -> DataFrame:
    return spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()


def test_a_stream_is_followed_to_its_end(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("1\n2\n3\n")
    lines = spark.readStream.format("text").load(str(tmp_path / "in"))
    query = (
        lines.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "at")).trigger(availableNow=True)
    )
    with Progress("stream", quiet=True) as progress:
        assert follow(spark, query.start(), progress)


def test_a_stream_is_stopped_when_asked(spark: SparkSession, tmp_path: Path) -> None:
    query = rate(spark).writeStream.format("noop").option("checkpointLocation", str(tmp_path / "at")).start()
    stop = Stop()

    def ask() -> None:
        wait_until(lambda: query.lastProgress, "a batch", 60)
        stop.ask()

    asking = threading.Thread(target=ask)
    asking.start()
    with Progress("stream", quiet=True) as progress:
        assert not follow(spark, query, progress, stop=stop)
    asking.join()
    assert not query.isActive


def test_a_stream_that_fails_raises_its_error(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.errors import StreamingQueryException

    def fail(frame: DataFrame, number: int) -> None:
        raise ValueError("no such luck")

    query = rate(spark).writeStream.foreachBatch(fail).option("checkpointLocation", str(tmp_path / "at")).start()
    with Progress("stream", quiet=True) as progress, pytest.raises(StreamingQueryException, match="no such luck"):
        follow(spark, query, progress)

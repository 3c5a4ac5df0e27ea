"""What the commands that run on Spark have in common: their options, and how Spark's errors and ends are told."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evenq.cli.options import AsJson, read_pair
from evenq.cli.output import cell, print_json
from evenq.errors import ArgumentError, EvenqError, RemoteError
from evenq.spark.jobs.failures import reason

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["AsJson", "Checkpoint", "Conf", "Master", "Source", "print_summary", "read_conf", "read_source", "spark_job"]

Master = Annotated[
    str | None, typer.Option("--master", metavar="URL", help="Where Spark runs; local[*] if nothing says otherwise.")
]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark; any number of them."),
]
Checkpoint = Annotated[
    str | None,
    typer.Option("--checkpoint", metavar="FOLDER", help="Where progress is kept; the same folder goes on from there."),
]
Source = Annotated[
    list[str] | None,
    typer.Option("--option", "-o", metavar="NAME=VALUE", help="An option of format('rocketmq'); see docs/spark.md."),
]


def read_conf(given: Sequence[str] | None) -> dict[str, str]:
    """Settings of Spark.

    >>> read_conf(["spark.driver.memory=2g"])
    {'spark.driver.memory': '2g'}
    """
    found = dict(read_pair(text, argument="--conf") for text in given or ())
    for name, value in found.items():
        if not name.startswith("spark."):
            raise ArgumentError("--conf", f"{name}={value}", "Spark's settings begin with spark.")
    return found


def read_source(given: Sequence[str] | None) -> dict[str, str]:
    """Options of the source or sink, as on ``spark.read``."""
    return dict(read_pair(text, argument="--option") for text in given or ())


@contextmanager
def spark_job(name: str, master: str | None = None, conf: Sequence[str] | None = None) -> Iterator[SparkSession]:
    """A session for a command; an error of Spark becomes one sentence, with the place of the whole story.

    A session that was there before is left running.
    """
    from evenq.spark.jobs.session import keep_log, session

    settings = read_conf(conf)
    with _told(keep_log):
        spark = session(f"evenq {name}", master, settings)
        with _no_pages():
            yield spark


@contextmanager
def _no_pages() -> Iterator[None]:
    """PySpark logs a mistake in a query as a page of JSON; a command tells it in a line."""
    from pyspark.logger import PySparkLogger

    loggers = [PySparkLogger.getLogger(name) for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger")]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, disabled in zip(loggers, before, strict=True):
            logger.disabled = disabled


@contextmanager
def _told(keep_log: Any) -> Iterator[None]:
    try:
        yield
    except EvenqError:
        raise
    except Exception as error:
        if not _is_sparks(error):
            raise
        log = keep_log()
        more = f" (all that Spark said: {log})" if log else ""
        raise RemoteError(f"Spark: {reason(str(error))}{more}") from error


def _is_sparks(error: Exception) -> bool:
    return type(error).__module__.partition(".")[0] in ("pyspark", "py4j")


def print_summary(summary: object, as_json: bool) -> None:
    """What a job did, for people one line each, for programs JSON. ``summary`` is a frozen value of the job."""
    values = asdict(summary) if is_dataclass(summary) and not isinstance(summary, type) else summary
    assert isinstance(values, dict)
    if as_json:
        print_json(values)
        return
    width = max(map(len, values))
    for name, value in values.items():
        print(f"{name.replace('_', ' '):<{width}}  {cell(value)}")

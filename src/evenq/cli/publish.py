"""``evenq publish``: a table to a topic."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from evenq.cli.joboptions import AsJson, Conf, Master, Source, print_summary, read_source, spark_job
from evenq.cli.options import NAMESRV, Namesrv, Topic, read_pair
from evenq.errors import ArgumentError
from evenq.spark.jobs.messages import WHOLE_ROW, MessageColumns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["publish"]

# The exit code of what was stopped before its end.
STOPPED = 130


def publish(
    topic: Topic,
    paths: Annotated[
        list[str] | None, typer.Argument(help="Files or folders with the rows, wherever Spark can read.")
    ] = None,
    kind: Annotated[
        str, typer.Option("--format", metavar="NAME", help="What the files are: parquet, csv, json, …")
    ] = "parquet",
    table: Annotated[
        str | None, typer.Option(metavar="NAME", help="A table that Spark knows, instead of files.")
    ] = None,
    sql: Annotated[str | None, typer.Option(metavar="QUERY", help="A query, instead of files.")] = None,
    read: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="An option of the format, such as header=true.")
    ] = None,
    where: Annotated[str | None, typer.Option(metavar="SQL", help="Only rows that meet this condition.")] = None,
    value: Annotated[str, typer.Option(metavar="SQL", help="The body; all columns as JSON if not given.")] = WHOLE_ROW,
    keys: Annotated[str | None, typer.Option(metavar="SQL", help="The keys: a column or an expression.")] = None,
    tags: Annotated[str | None, typer.Option(metavar="SQL", help="The tag.")] = None,
    sharding_key: Annotated[str | None, typer.Option(metavar="SQL", help="What stays together in a queue.")] = None,
    prop: Annotated[
        list[str] | None, typer.Option("--property", metavar="NAME=SQL", help="A property; may be given again.")
    ] = None,
    delay_level: Annotated[str | None, typer.Option(metavar="SQL", help="1 (1 s) to 18 (2 h) later.")] = None,
    deliver_at: Annotated[str | None, typer.Option(metavar="SQL", help="Not before this timestamp.")] = None,
    order_by: Annotated[
        str | None,
        typer.Option(metavar="SQL", help="Send the rows of a sharding key, or of keys by hash, in this order."),
    ] = None,
    selector: Annotated[
        Literal["round_robin", "hash", "random", "machine_room"], typer.Option(help="Who chooses the queue.")
    ] = "round_robin",
    rate: Annotated[int | None, typer.Option(help="At most so many rows a second, over all tasks.")] = None,
    state: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Where the job keeps what it has to send; evenq-publish-TOPIC.")
    ] = None,
    option: Source = None,
    namesrv: Namesrv = NAMESRV,
    master: Master = None,
    conf: Conf = None,
    as_json: AsJson = False,
) -> None:
    """Send the rows of a table to a topic, on Spark. A job that was cut off goes on by the same command."""
    from evenq.spark.jobs.progress import Progress
    from evenq.spark.jobs.publish import publish as run

    _one_source(paths or [], table, sql)
    columns = MessageColumns(
        value=value,
        keys=keys,
        tags=tags,
        sharding_key=sharding_key,
        properties=dict(read_pair(text, argument="--property") for text in prop or ()),
        delay_level=delay_level,
        deliver_at=deliver_at,
    )
    reading = dict(read_pair(text, argument="--read") for text in read or ())
    options = read_source(option)
    with spark_job("publish", master, conf) as spark:
        frame = _frame(spark, kind, paths or [], table, sql, reading)
        with Progress(f"publish to {topic}", quiet=as_json) as progress:
            done = run(
                frame if where is None else frame.where(where),
                topic,
                namesrv=namesrv,
                state=state or f"evenq-publish-{topic}",
                columns=columns,
                order_by=order_by,
                selector=selector,
                rate=rate,
                options=options,
                source=json.dumps([kind, paths or [], table, sql, where, reading]),
                progress=progress,
            )
            if not done.finished:
                progress.say("stopped; the same command goes on from here")
    print_summary(done, as_json)
    if not done.finished:
        raise typer.Exit(STOPPED)


def _one_source(paths: list[str], table: str | None, sql: str | None) -> None:
    if sum(map(bool, (paths, table, sql))) != 1:
        raise ArgumentError("paths", paths, "say what to send: give files or folders, or --table, or --sql")


def _frame(
    spark: SparkSession, kind: str, paths: list[str], table: str | None, sql: str | None, options: dict[str, str]
) -> DataFrame:
    if table is not None:
        return spark.read.options(**options).table(table)
    if sql is not None:
        return spark.sql(sql)
    return spark.read.format(kind).options(**options).load(paths)

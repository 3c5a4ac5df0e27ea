"""``evenq ingest``: topics into files or tables."""

from __future__ import annotations

from typing import Annotated

import typer

from evenq.cli.joboptions import AsJson, Checkpoint, Conf, Master, Source, print_summary, read_source, spark_job
from evenq.cli.options import NAMESRV, Namesrv, read_pair
from evenq.errors import ArgumentError
from evenq.spark.jobs.ingest import ingest as run
from evenq.spark.jobs.progress import Progress, stoppable

__all__ = ["ingest"]

_INTERRUPTED = 130


def ingest(
    topics: Annotated[str, typer.Argument(help="The topics, with commas between; - if --option says what to read.")],
    out: Annotated[str, typer.Argument(help="Where the table is or will be: a folder, or a path of Spark.")],
    form: Annotated[str, typer.Option("--format", help="The table's format: any that Spark has.")] = "parquet",
    schema: Annotated[
        str | None,
        typer.Option(help="What bodies hold, in JSON: DDL ('id BIGINT NOT NULL, …') or a JSON Schema or Avro file."),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Write what is there now, and end.")] = False,
    every: Annotated[str, typer.Option(help="How often a stream looks for what is new.")] = "10 seconds",
    compact: Annotated[bool, typer.Option("--compact", help="Merge small files into larger ones.")] = False,
    bad: Annotated[str | None, typer.Option(help="Where messages go that do not fit the schema; OUT-bad.")] = None,
    group: Annotated[str | None, typer.Option(help="The consumer group that shows how far this is.")] = None,
    tags: Annotated[str | None, typer.Option(help="Only messages with these tags: 'paid || refunded'.")] = None,
    sql: Annotated[str | None, typer.Option(help="Only messages that this SQL92 condition picks.")] = None,
    begin: Annotated[
        str | None, typer.Option("--from", help="Where a new table begins: earliest, latest, group, or JSON.")
    ] = None,
    most: Annotated[int | None, typer.Option(help="Messages in one micro-batch at most.", min=1)] = None,
    option: Source = None,
    write: Annotated[
        list[str] | None, typer.Option("--write", metavar="NAME=VALUE", help="An option of the table's format.")
    ] = None,
    checkpoint: Checkpoint = None,
    namesrv: Namesrv = NAMESRV,
    master: Master = None,
    conf: Conf = None,
    as_json: AsJson = False,
) -> None:
    """Write topics to a table, each message exactly once; until Ctrl-C, or with --once what is there now.

    The table is partitioned by the day (UTC) on which messages were stored, and by topic. The same command goes on
    where the last one ended. Messages that do not fit the schema go to a second table, with the reason.
    """
    options = read_source(option)
    named = {"group": group, "tags": tags, "sql": sql, "startingOffsets": begin}
    named["maxOffsetsPerTrigger"] = None if most is None else str(most)
    for name, value in named.items():
        if value is not None:
            if name in options:
                raise ArgumentError(name, options[name], "this is given twice: leave one of them out")
            options[name] = value
    subscribed = None if topics == "-" else topics
    title = f"{topics} to {out}" if subscribed else f"topics to {out}"
    # signals are taken before the query begins: PySpark's own way with Ctrl-C is a traceback
    with spark_job("ingest", master, conf) as spark, stoppable() as stop, Progress(title, quiet=as_json) as progress:
        done = run(
            subscribed,
            out,
            namesrv=namesrv,
            format=form,
            schema=schema,
            once=once,
            every=every,
            checkpoint=checkpoint,
            bad=bad,
            compacting=compact,
            options=options,
            writing=dict(read_pair(text, argument="--write") for text in write or ()),
            spark=spark,
            progress=progress,
            stop=stop,
        )
        if not done.finished:
            progress.say("stopped: the same command goes on from here")
    print_summary(done, as_json)
    if once and not done.finished:
        raise typer.Exit(_INTERRUPTED)

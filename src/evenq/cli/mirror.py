"""``evenq mirror``: a topic to another cluster."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from evenq.cli.joboptions import AsJson, Checkpoint, Conf, Master, Source, print_summary, read_source, spark_job
from evenq.cli.options import NAMESRV, Namesrv, Topic, read_pair

__all__ = ["mirror"]

# The exit code of what was stopped before its end.
STOPPED = 130


def mirror(
    topic: Topic,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="HOST:PORT", help="The other cluster's name server; the same if not given."),
    ] = None,
    target: Annotated[str | None, typer.Option("--as", metavar="TOPIC", help="The topic's name there.")] = None,
    selector: Annotated[
        Literal["same", "hash", "round_robin", "random"],
        typer.Option(help="Which queue a message goes to: that of the same number, by its key, the next, any one."),
    ] = "same",
    ordered: Annotated[bool, typer.Option("--ordered", help="Refuse what does not keep the order of a key.")] = False,
    once: Annotated[bool, typer.Option("--once", help="Copy what is there now, and end.")] = False,
    groups: Annotated[
        str | None, typer.Option(metavar="GROUP,…", help="Groups that find themselves there where they are here.")
    ] = None,
    name: Annotated[str, typer.Option(help="Of the source, where topics of several clusters come to one.")] = "",
    born_here: Annotated[bool, typer.Option("--born-here", help="Leave out copies: for mirrors both ways.")] = False,
    checkpoint: Checkpoint = None,
    option: Source = None,
    target_option: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="The same for the target, such as accessKey=…")
    ] = None,
    namesrv: Namesrv = NAMESRV,
    master: Master = None,
    conf: Conf = None,
    as_json: AsJson = False,
) -> None:
    """Copy a topic to another cluster or another name, on Spark, until Ctrl-C; the same command goes on."""
    from evenq.spark.jobs.mirror import Side
    from evenq.spark.jobs.mirror import mirror as run
    from evenq.spark.jobs.progress import Progress

    source = Side(namesrv, topic, read_source(option))
    there = Side(
        to or namesrv,
        target or topic,
        dict(read_pair(text, argument="--target-option") for text in target_option or ()),
    )
    with (
        spark_job("mirror", master, conf) as spark,
        Progress(f"mirror of {topic}", quiet=as_json) as progress,
    ):
        done = run(
            spark,
            source,
            there,
            checkpoint=checkpoint or f"evenq-mirror-{topic}",
            selector=selector,
            ordered=ordered,
            once=once,
            groups=[part.strip() for part in (groups or "").split(",") if part.strip()],
            name=name,
            born_here=born_here,
            progress=progress,
        )
        if not done.finished:
            progress.say("stopped; the same command goes on from here")
    print_summary(done, as_json)
    # a mirror that follows its topic has no other end
    if once and not done.finished:
        raise typer.Exit(STOPPED)

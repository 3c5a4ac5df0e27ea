"""``evenq audit``: is the load of topics balanced, and is everything there?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from evenq.cli.joboptions import AsJson, Conf, Master, Source, read_source, spark_job
from evenq.cli.options import NAMESRV, Namesrv
from evenq.cli.output import cell, print_json
from evenq.errors import ArgumentError

if TYPE_CHECKING:
    from evenq.spark.jobs.audit.findings import Audit

__all__ = ["FOUND", "audit"]

# The exit code where something is wrong with a topic.
FOUND = 1


def audit(
    topics: Annotated[list[str], typer.Argument(help="The topics to look at.")],
    out: Annotated[
        str,
        typer.Option(metavar="FOLDER", help="Where the report and the tables go; the same folder again goes on."),
    ],
    groups: Annotated[
        str | None, typer.Option(metavar="A,B", help="Consumer groups whose lag to look at; by default all.")
    ] = None,
    ordered: Annotated[
        bool | None,
        typer.Option(
            "--ordered/--unordered",
            help="Whether messages of a key must keep their order; found out from the topic by default.",
        ),
    ] = None,
    trace: Annotated[bool, typer.Option(help="Read the message trace too, where it is on.")] = True,
    follow: Annotated[bool, typer.Option("--follow", help="Go on and keep the report current, until Ctrl-C.")] = False,
    every: Annotated[float, typer.Option(help="With --follow: seconds between two reports.")] = 30.0,
    option: Source = None,
    namesrv: Namesrv = NAMESRV,
    master: Master = None,
    conf: Conf = None,
    as_json: AsJson = False,
) -> None:
    """Audit topics, on Spark: load by queue, broker and key, duplicates, gaps, order, latency, lag.

    Exit code 0 if all is well, 1 if something was found, 2 if it could not be looked at.
    """
    from evenq.spark.jobs.audit.job import audit as look
    from evenq.spark.jobs.audit.job import follow as keep_looking
    from evenq.spark.jobs.progress import Progress

    if every <= 0:
        raise ArgumentError("--every", every, "give seconds above 0")
    named = None if groups is None else tuple(name.strip() for name in groups.split(",") if name.strip())
    with spark_job("audit", master, conf) as spark:
        if follow:
            found = keep_looking(
                spark,
                topics,
                out,
                namesrv=namesrv,
                groups=named,
                trace=trace,
                ordered=ordered,
                options=read_source(option),
                every=every,
                heard=lambda found: _tell(found, as_json),
            )
        else:
            with Progress(f"audit of {', '.join(topics)}", quiet=as_json) as progress:
                found = look(
                    spark,
                    topics,
                    out,
                    namesrv=namesrv,
                    groups=named,
                    trace=trace,
                    ordered=ordered,
                    options=read_source(option),
                    progress=progress,
                )
            _tell(found, as_json)
    if not found.clean:
        raise typer.Exit(FOUND)


def _tell(found: Audit, as_json: bool) -> None:
    from evenq.spark.jobs.audit.judging import verdict
    from evenq.spark.jobs.audit.tables import as_json as plain

    if as_json:
        print_json(plain(found))
        return
    print(verdict(found.topics))
    several = len(found.topics) > 1
    for finding in found.findings:
        print(f"  {finding.kind.value}: {cell(f'{finding.topic}: ' if several else '')}{cell(finding.words)}")
    for group in found.groups:
        print(f"group {cell(group.group)} is {group.behind:,} behind")
    print(f"report: {found.report}", flush=True)

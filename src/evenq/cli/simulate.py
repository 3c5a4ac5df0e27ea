"""``evenq simulate``: what each strategy makes of members that come and go."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console

from evenq.balance.groups_sizes import LARGEST, Sizes
from evenq.balance.scenario import EVENTS, ONE_OF_EACH, Event, Scenario
from evenq.balance.simulation import simulate as simulate_one_group
from evenq.cli.joboptions import Conf, Master
from evenq.cli.simulation_report import Report, RunsReport
from evenq.errors import ArgumentError

__all__ = ["simulate"]

QUEUES, MEMBERS = "16", "4"
SIZES = "a distribution: uniform:4-64, zipf:1.5:1-64, lognormal:8:0.7:1-64"
# Arguments whose options have another name.
OPTIONS = {"machine_rooms": "machine-room"}


def simulate(
    queues: Annotated[
        str,
        typer.Option(
            metavar="SIZE", help=f"Queues of each topic, dealt out over the brokers; for many groups {SIZES}."
        ),
    ] = QUEUES,
    members: Annotated[
        str, typer.Option(metavar="SIZE", help="Members at the start; for many groups a distribution likewise.")
    ] = MEMBERS,
    topics: Annotated[int, typer.Option(help="Topics that the group reads.")] = 1,
    brokers: Annotated[int, typer.Option(help="Brokers that the queues are on.")] = 2,
    rooms: Annotated[int, typer.Option(help="Machine rooms of brokers and members; 0 for none.")] = 2,
    event: Annotated[
        list[str] | None,
        typer.Option(
            "--event",
            "-e",
            metavar="KIND[:COUNT]",
            help=f"What happens: {', '.join(EVENTS)}; join:2 for two at once. Again for what happens next. "
            "By default one of each, or join where --groups is given.",
        ),
    ] = None,
    strategy: Annotated[
        list[str] | None,
        typer.Option("--strategy", "-s", metavar="NAME", help="AVG, STICKY, …; again for more. By default all."),
    ] = None,
    virtual_nodes: Annotated[int, typer.Option(help="Places of a member on the ring of CONSISTENT_HASH.")] = 10,
    machine_room: Annotated[
        list[str] | None,
        typer.Option(metavar="ROOM", help="room-a, …: a room whose queues MACHINE_ROOM takes. By default all."),
    ] = None,
    groups: Annotated[
        int | None, typer.Option(help="Simulate one event in so many random groups, e.g. 1000000.")
    ] = None,
    sizes: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Sizes of many groups instead: CSV or Parquet with the columns queues, members and maybe groups.",
        ),
    ] = None,
    traffic: Annotated[
        str | None,
        typer.Option(metavar="TABLE", help="What queues get, for many groups: the table by queue of evenq audit."),
    ] = None,
    unit: Annotated[str, typer.Option(help="What of the traffic counts: messages or bytes.")] = "messages",
    spark: Annotated[bool, typer.Option("--spark", help="Simulate many groups on Spark, e.g. 10000000.")] = False,
    out: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            help="With --spark: where tables and the page go. The same command again adds what is missing there.",
        ),
    ] = None,
    master: Master = None,
    conf: Conf = None,
    seed: Annotated[int, typer.Option(help="The luck in names and order; the same seed gives the same.")] = 0,
    steps: Annotated[bool, typer.Option("--steps", help="Show every single change too, with all loads.")] = False,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE.svg", help="Draw who holds what, and movement against evenness.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print everything as JSON instead.")] = False,
) -> None:
    """Compare strategies: how many queues move when members come and go, and how even the group stays.

    Without options: 16 queues, 4 members, one event of each kind, all strategies.
    """
    many = groups is not None or sizes is not None or spark
    default = (Event("join"),) if many else ONE_OF_EACH
    try:
        sized = Sizes.parse(queues, argument="queues"), Sizes.parse(members, argument="members")
        scenario = Scenario(
            queues=_largest(sized[0]),
            members=_largest(sized[1]) if sizes is None else LARGEST,
            topics=topics,
            brokers=brokers,
            rooms=rooms,
            events=tuple(map(Event.parse, event)) if event else default,
            seed=seed,
        )
        _check_picture(picture)
        report: Report
        if not many:
            _check_one_group(queues=sized[0], members=sized[1], traffic=traffic, out=out)
            runs = simulate_one_group(scenario, strategy, virtual_nodes=virtual_nodes, machine_rooms=machine_room)
            report = RunsReport(scenario, runs, steps)
        elif machine_room or steps:
            option, value = ("machine_rooms", machine_room) if machine_room else ("steps", steps)
            raise ArgumentError(option, value, "it is for one group; leave it out, or leave out --groups")
        else:
            # numpy, which one group does not need
            from evenq.cli.simulation_groups import Wanted, in_one_process, on_spark, population_of

            if groups is None and sizes is None:
                raise ArgumentError("groups", groups, "say how many groups there are, e.g. 10000000")
            if sizes is not None and (queues, members) != (QUEUES, MEMBERS):
                raise ArgumentError("sizes", str(sizes), "it says queues and members: leave --queues and --members out")
            if spark != (out is not None):
                raise ArgumentError("out", out, "--spark and --out go together: give a folder for the tables")
            wanted = Wanted(groups, *sized, sizes, traffic, unit, strategy, virtual_nodes)
            population = population_of(scenario, wanted)
            if out is not None:
                report = on_spark(population, wanted.title, out, master, conf, quiet=json)
            else:
                report = in_one_process(population, wanted.title)
    except ArgumentError as error:
        # options of Spark's own are told with their dashes already
        option = OPTIONS.get(error.argument, error.argument.replace("_", "-").removeprefix("--"))
        raise ArgumentError(f"--{option}", error.value, error.remedy) from None
    if picture is not None:
        report.picture().save(picture)
    if json:
        print(msgspec.json.format(msgspec.json.encode(report.as_json())).decode())
        return
    console = Console(highlight=False)
    for part in report.tables():
        console.print(part, style="bold" if isinstance(part, str) else None, soft_wrap=isinstance(part, str))
    console.print(*report.sentences(), sep=" ", soft_wrap=not console.is_terminal)
    for note in report.notes:
        console.print(note, soft_wrap=True)
    if picture is not None:
        console.print(f"Picture: {picture}", soft_wrap=True)


def _largest(sizes: Sizes) -> int:
    """The size of all groups; where they differ it stands for them until they are drawn."""
    return max(sizes.chances)


def _check_one_group(*, queues: Sizes, members: Sizes, **others: object) -> None:
    for name, value in (("queues", queues), ("members", members)):
        if value.fixed is None:
            raise ArgumentError(name, value.text, "one group has one size: say with --groups how many there are")
    for name, given in others.items():
        if given is not None:
            raise ArgumentError(name, given, "it is for many groups: say with --groups how many there are")


def _check_picture(path: Path | None) -> None:
    """Before the work rather than after it."""
    if path is None:
        return
    if path.suffix != ".svg":
        raise ArgumentError("picture", str(path), "pictures are SVG; give a name that ends in .svg")
    if not path.parent.is_dir():
        raise ArgumentError("picture", str(path), f"there is no folder {path.parent}; make it first")

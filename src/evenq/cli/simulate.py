"""``evenq simulate``: what each strategy makes of members that come and go."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from evenq.balance.scenario import EVENTS, ONE_OF_EACH, Event, Scenario
from evenq.balance.simulation import simulate as simulate_one_group
from evenq.cli.simulation_report import GroupsReport, Report, RunsReport
from evenq.errors import ArgumentError

__all__ = ["simulate"]

# Arguments whose options have another name.
OPTIONS = {"machine_rooms": "machine-room"}


def simulate(
    queues: Annotated[int, typer.Option(help="Queues of each topic, dealt out over the brokers.")] = 16,
    members: Annotated[int, typer.Option(help="Members at the start.")] = 4,
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
    default = ONE_OF_EACH if groups is None else (Event("join"),)
    try:
        scenario = Scenario(
            queues=queues,
            members=members,
            topics=topics,
            brokers=brokers,
            rooms=rooms,
            events=tuple(map(Event.parse, event)) if event else default,
            seed=seed,
        )
        _check_picture(picture)
        report: Report
        if groups is None:
            runs = simulate_one_group(scenario, strategy, virtual_nodes=virtual_nodes, machine_rooms=machine_room)
            report = RunsReport(scenario, runs, steps)
        elif machine_room or steps:
            option, value = ("machine_rooms", machine_room) if machine_room else ("steps", steps)
            raise ArgumentError(option, value, "it is for one group; leave it out, or leave out --groups")
        else:
            report = _many_groups(scenario, groups, strategy, virtual_nodes)
    except ArgumentError as error:
        option = OPTIONS.get(error.argument, error.argument.replace("_", "-"))
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
    if picture is not None:
        console.print(f"Picture: {picture}", soft_wrap=True)


def _check_picture(path: Path | None) -> None:
    """Before the work rather than after it."""
    if path is None:
        return
    if path.suffix != ".svg":
        raise ArgumentError("picture", str(path), "pictures are SVG; give a name that ends in .svg")
    if not path.parent.is_dir():
        raise ArgumentError("picture", str(path), f"there is no folder {path.parent}; make it first")


def _many_groups(scenario: Scenario, groups: int, strategies: Sequence[str] | None, virtual_nodes: int) -> GroupsReport:
    from evenq.balance.groups import simulate_groups  # numpy, which one group does not need

    bar = Progress(
        TextColumn("simulating"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    with bar:
        task = bar.add_task("", total=groups)
        results = simulate_groups(
            scenario,
            groups,
            strategies,
            virtual_nodes=virtual_nodes,
            progress=lambda done: bar.update(task, completed=done),
        )
    return GroupsReport(scenario, results)

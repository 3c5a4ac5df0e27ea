"""``evenq demo``: the whole thing on one machine, live, and a verdict that is computed from the data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["demo"]


def demo(
    rate: Annotated[int, typer.Option(min=1, help="Orders a second.")] = 500,
    seconds: Annotated[int, typer.Option(min=5, help="How long to send once everybody is there.")] = 25,
    strategy: Annotated[str, typer.Option(help="How the group divides the queues.")] = "AVG",
    out: Annotated[Path, typer.Option(help="Where everything goes that is left of it; emptied first.")] = Path(
        "demo-out"
    ),
    spark: Annotated[bool, typer.Option(help="Have a Spark query in the group, and the audit.")] = True,
) -> None:
    """Two embedded brokers, steady orders, and a group that shares them: Python consumers and a Spark query.

    Members come and go, one is killed, one broker's connections are cut; at the end, everything is counted.
    """
    from evenq.cli.demo.play import Setting, play

    if not play(Setting(rate, seconds, strategy, out, spark)):
        raise typer.Exit(1)

"""The command ``evenq``: one module per command, loaded when it is asked for."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from evenq.errors import EvenqError

__all__ = ["COMMANDS", "main"]

# In the order of the help. Each is a function of the same name in `evenq.cli.<name>`.
COMMANDS = ("demo", "serve", "simulate")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line. A mistake of the user or of a peer is one line on standard error, and exit code 2."""
    import typer

    arguments = list(sys.argv[1:] if arguments is None else arguments)
    app = typer.Typer(
        name="evenq",
        help="RocketMQ's load balancing in Python: brokers, groups, and what a rebalance costs.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    # a callback of its own keeps the command's name on the command line even while only one command is loaded
    app.callback()(lambda: None)
    wanted = arguments[:1] if arguments and arguments[0] in COMMANDS else COMMANDS
    for name in wanted:
        app.command(name)(getattr(importlib.import_module(f"evenq.cli.{name}"), name))
    try:
        app(args=arguments)
    except EvenqError as error:
        print(f"evenq: error: {error}", file=sys.stderr)
        sys.exit(2)

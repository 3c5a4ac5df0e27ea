"""The command ``evenq``."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line; a mistake of the user or of the peer is one line, not a traceback."""
    import typer

    from evenq.cli.serve import serve
    from evenq.errors import EvenqError

    app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
    app.callback()(lambda: None)
    app.command()(serve)
    try:
        app()
    except EvenqError as error:
        print(f"evenq: error: {error}", file=sys.stderr)
        sys.exit(2)

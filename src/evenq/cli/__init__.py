"""The command ``evenq``: one module per command, loaded when it is asked for."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn, cast

from evenq._version import __version__
from evenq.errors import EvenqError

if TYPE_CHECKING:
    import typer

__all__ = ["COMMANDS", "main"]

# In the order of the help. Each is a function of the same name in `evenq.cli.<name>`, or, with commands of its own,
# the `app` there.
COMMANDS = (
    "demo",
    "serve",
    "send",
    "consume",
    "topic",
    "group",
    "message",
    "cluster",
    "ingest",
    "publish",
    "mirror",
    "audit",
    "simulate",
)

MISTAKE = 2
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and end the process.

    A mistake of the user or of a peer is one line on standard error and exit code 2; Ctrl-C is 130, without a word.
    """
    import typer

    # what users do wrong on a command line, by the root of its errors, which typer does not name
    usage_error = cast("type[typer.BadParameter]", typer.BadParameter.__mro__[2])
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    try:
        # in this mode typer leaves errors to us, and a command's exit code comes back as a value
        code = _app(arguments)(args=arguments, prog_name="evenq", standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(INTERRUPTED)
    except EvenqError as error:
        _complain(str(error))
    except OSError as error:
        _complain(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except usage_error as error:
        context = getattr(error, "ctx", None)
        _complain(error.format_message(), f" (see {context.command_path} --help)" if context else "")
    sys.exit(code if isinstance(code, int) else 0)


def _complain(text: str, hint: str = "") -> NoReturn:
    """Say what is wrong in one line, whatever it was written on, and end the process.

    There is nothing to say where a command was given no arguments: its help is on the screen already.
    """
    if text:
        print(f"evenq: error: {' '.join(text.split())}{hint}", file=sys.stderr)
    sys.exit(MISTAKE)


def _app(arguments: Sequence[str]) -> typer.Typer:
    """The command line with the command that ``arguments`` name, or with all commands if they name none.

    ``--version`` needs no command, so none is loaded for it.
    """
    import typer

    # A default, not Annotated: annotations are strings here, and `typer` is not a global that they could refer to.
    option = typer.Option(False, "--version", help="Show the version and exit.", is_eager=True, callback=_print_version)

    # This callback also keeps the command's name on the command line while only one command is loaded.
    def options(version: bool = option) -> None:
        """Options of ``evenq`` itself."""

    app = typer.Typer(
        name="evenq",
        help="A RocketMQ client, embedded broker and Spark connector in pure Python.",
        # commands and subcommands inherit this
        context_settings={"help_option_names": ["-h", "--help"]},
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    app.callback()(options)
    first = next(iter(arguments), None)
    wanted = () if first == "--version" else (first,) if first in COMMANDS else COMMANDS
    for name in wanted:
        module = importlib.import_module(f"evenq.cli.{name}")
        if hasattr(module, "app"):
            app.add_typer(module.app, name=name)
        else:
            app.command(name)(getattr(module, name))
    return app


def _print_version(wanted: bool) -> None:
    import typer

    if wanted:
        print(f"evenq {__version__}")
        raise typer.Exit

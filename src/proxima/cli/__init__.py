"""The command line: a file for each group of commands, and what they share. Heavy imports wait."""

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import typer

from proxima.build import DOMAINS
from proxima.cli import data, run, show

app = typer.Typer(
    name="proxima",
    help="One trainer for every policy: a scenario in; trained, evaluated and compared agents out.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for group in (run, show, data):
    group.add_commands(app)
for place in DOMAINS.values():  # a domain may bring commands of its own
    commands = place.rpartition(".")[0] + ".commands"
    if find_spec(commands) is not None:
        import_module(commands).add_commands(app)


def main() -> Any:
    """Run the command line; a user's mistake is a message and exit 1, Ctrl-C is exit 130."""
    try:
        app()  # leaves by itself at the end, after wrong usage (2) and after Ctrl-C (130)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        if "--debug" in sys.argv:
            raise
        sys.exit(_explain(error))


def _explain(error: Exception) -> int:
    """Say an error in words and return the exit code."""
    from proxima.core.errors import ProximaError

    if isinstance(error, ProximaError):
        print(f"Error: {error}", file=sys.stderr)
        return 1
    print(
        f"Error: {type(error).__name__}: {error}\nThis is not a mistake of yours that we recognise; "
        "run the command again with --debug to see where it comes from.",
        file=sys.stderr,
    )
    return 1

"""The command line's application: the groups of commands, and those that domains bring."""

from importlib import import_module, metadata
from importlib.util import find_spec
from typing import Annotated

import typer

from proxima.build import DOMAINS
from proxima.cli import cluster, data, live, measure, run, serve, show, take, tune
from proxima.cli.console import say

app = typer.Typer(
    name="proxima",
    no_args_is_help=True,
    rich_markup_mode=None,  # its panels take twice as long as all the rest
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _say_version(asked: bool) -> None:
    if asked:
        say(f"proxima {metadata.version('proxima')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_say_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """One trainer for every policy: a scenario in; trained, evaluated and compared agents out."""


for group in (run, tune, cluster, live, measure, show, take, serve, data):
    group.add_commands(app)
for path in DOMAINS.values():
    commands = path.rpartition(".")[0] + ".commands"
    if find_spec(commands) is not None:
        import_module(commands).add_commands(app)

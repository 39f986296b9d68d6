"""The command line's application: the groups of commands, and those that domains bring."""

from importlib import import_module
from importlib.util import find_spec

import typer

from proxima.build import DOMAINS
from proxima.cli import data, measure, run, show

app = typer.Typer(
    name="proxima",
    help="One trainer for every policy: a scenario in; trained, evaluated and compared agents out.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for group in (run, measure, show, data):
    group.add_commands(app)
for path in DOMAINS.values():
    commands = path.rpartition(".")[0] + ".commands"
    if find_spec(commands) is not None:
        import_module(commands).add_commands(app)

"""The command that shows runs while they train: live."""

from typing import Annotated

import typer

from proxima.cli.console import say
from proxima.cli.options import Debug, Output


def add_commands(app: typer.Typer) -> None:
    """This command to the command line."""
    app.command()(live)


def live(
    port: Annotated[
        int, typer.Option(help="Port on this machine; 0: any free one.", min=0, max=65535)
    ] = 5055,
    output: Output = "logs",
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Show only: nobody stops or resumes a run.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Watch, stop and resume runs in the browser, on this machine only."""
    from proxima.live.server import serve

    serve(output, port, read_only, say)

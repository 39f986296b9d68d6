"""The command that answers others with a trained policy: serve."""

from typing import Annotated

import typer

from proxima.cli.console import say
from proxima.cli.options import Debug, Output, Trial, argument, run_names


def add_commands(app: typer.Typer) -> None:
    """The command to the command line."""
    app.command()(serve)


def serve(
    run: Annotated[
        str, argument("RUN", "An experiment, a run, a trial or a policy's directory.", run_names)
    ],
    port: Annotated[int, typer.Option(help="0 takes one that is free.", min=0, max=65535)] = 8000,
    host: Annotated[
        str, typer.Option(help="Address to serve; others than this machine need --token.")
    ] = "127.0.0.1",
    token: Annotated[
        str | None,
        typer.Option(
            envvar="PROXIMA_SERVE_TOKEN", help="Only who sends Authorization: Bearer TOKEN."
        ),
    ] = None,
    trial: Trial = None,
    max_batch: Annotated[
        int | None,
        typer.Option(
            help="Observations of a request, and of a batch (256); texts at once (8).",
            min=1,
            max=65536,
        ),
    ] = None,
    output: Output = "logs",
    debug: Debug = False,
) -> None:
    """Serve a trained policy over HTTP: predictions with sessions, or texts as OpenAI's clients ask."""
    from proxima.serve.limits import Limits
    from proxima.serve.run import Settings
    from proxima.serve.run import serve as serve_until_stopped

    limits = Limits()
    if max_batch is not None:
        limits = Limits(batch_rows=max_batch, session_rows=max_batch, text_rows=max_batch)
    serve_until_stopped(Settings(run, host, port, token, trial, output, limits), say)

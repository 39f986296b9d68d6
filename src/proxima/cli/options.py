"""Options that several commands have."""

from typing import Annotated

import typer

Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
Output = Annotated[str, typer.Option("--output", help="Directory that holds the runs.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on standard output, nothing else.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting; repeatable."),
]

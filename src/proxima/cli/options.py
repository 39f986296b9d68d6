"""Options that several commands have, and `~` in the paths that they take."""

from pathlib import Path
from typing import Annotated, Any

import typer


def expand(value: Any) -> Any:
    """A path or several, as given on the command line, with `~` as the home directory."""
    from proxima.core.paths import expand_home

    if isinstance(value, list):
        return [expand(item) for item in value]
    if isinstance(value, Path):
        return Path(expand_home(str(value)))
    return value if value is None else expand_home(value)


Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
Output = Annotated[
    str, typer.Option("--output", help="Directory that holds the runs.", callback=expand)
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on standard output, nothing else.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting; repeatable."),
]

"""Options that several commands have, and `~` in the paths that they take."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer


def expand(value: Any) -> Any:
    """A path or several, as given on the command line, with `~` as the home directory."""
    from proxima.core.paths import usable_path

    if isinstance(value, list):
        return [expand(item) for item in value]
    if isinstance(value, Path):
        return Path(usable_path(str(value)))
    return value if value is None else usable_path(value)


def argument(metavar: str, help: str, complete: Any = None) -> Any:
    """What a command is about: a name or a path; `complete` gives a shell the names that begin so."""
    return typer.Argument(metavar=metavar, help=help, callback=expand, autocompletion=complete)


def path_option(help: str) -> Any:
    """An option that may be a path."""
    return typer.Option(help=help, callback=expand)


def shipped_names(begun: str) -> list[str]:
    """The shipped scenarios whose names begin so, for a shell that completes what is typed."""
    from proxima.scenario import shipped

    return [name for name in shipped() if name.startswith(begun)]


def run_names(begun: str) -> list[str]:
    """The experiments in logs/ whose names begin so."""
    return sorted(path.parent.name for path in Path("logs").glob(f"{begun}*/latest"))


def as_settings(flags: Mapping[str, Any]) -> list[str]:
    """Options that stand for settings, those that were given, as --set has them."""
    return [f"{key}={json.dumps(value)}" for key, value in flags.items() if value is not None]


Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
Output = Annotated[str, path_option("Directory that holds the runs.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on standard output, nothing else.")]
Trial = Annotated[
    int | None, typer.Option(help="Which trial of a run; its first one by default.", min=0)
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting; repeatable."),
]
ScenarioName = Annotated[
    str | None, argument("SCENARIO", "A shipped scenario's name, or a file.", shipped_names)
]
ScenarioOption = Annotated[
    str | None, typer.Option(help="The same, as an option.", autocompletion=shipped_names)
]
ScenarioFile = Annotated[Path | None, path_option("A scenario file of your own.")]
RunId = Annotated[
    str | None, typer.Option(help="Name of the run; one that was begun is gone on with.")
]
ProcessId = Annotated[
    int | None, typer.Option(help="Number of this process in a gang that trains together, from 0.")
]
Processes = Annotated[int | None, typer.Option(help="How many processes the gang has.")]
Coordinator = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="Where the gang's process 0 is.")
]
NoMLflow = Annotated[bool, typer.Option("--no-mlflow", help="Local files only.")]
Cluster = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Workers of a Ray cluster: auto, HOST:PORT, ray://HOST:PORT, or local:N on this machine.",
    ),
]
Hosts = Annotated[
    int | None,
    typer.Option(help="With --cluster: one training over so many hosts, this one included."),
]
Restarts = Annotated[
    int, typer.Option(help="With --hosts: how often all start again when one has died.", min=0)
]

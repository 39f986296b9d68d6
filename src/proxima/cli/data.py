"""The command that makes data: generate-data."""

import json as json_module
from pathlib import Path
from typing import Annotated, Any

import typer

from proxima.cli.console import print_json, say, show_table
from proxima.cli.options import Debug, Json, Settings, path_option
from proxima.core.errors import ProximaError


def add_commands(app: typer.Typer) -> None:
    """The command to the command line."""
    app.command("generate-data")(generate_data)


def generate_data(
    scenario: Annotated[
        str | None, path_option("A scenario, by name or file, whose data to make.")
    ] = None,
    pattern: Annotated[str | None, typer.Option(help="A pattern to make by itself.")] = None,
    source: Annotated[
        str | None, typer.Option(help="Real data to take out of an installed package.")
    ] = None,
    set_: Settings = None,
    name: Annotated[
        str | None, typer.Option(help="Name of a pattern's file; default: the pattern's.")
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="Show patterns and settings.")] = False,
    list_sources: Annotated[
        bool, typer.Option("--list-sources", help="Show the sources of real data.")
    ] = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Write the data that a scenario describes, real data of a package, or a synthetic pattern by itself."""
    from proxima.scenario import load

    if list_:
        _show_patterns(_patterns().describe(), json)
        return
    if list_sources:
        _show_sources([about for sources in _sources() for about in sources.describe()], json)
        return
    if [scenario, pattern, source].count(None) != 2:
        raise ProximaError(
            "name what to generate: --scenario NAME, or --pattern NAME (--list shows the patterns), or "
            "--source NAME (--list-sources shows them)"
        )
    if scenario is not None:
        if name is not None:
            raise ProximaError("--name: a scenario's data has the scenario's name; leave it out")
        _, path = generate_for(load(scenario, set_ or []))
    elif pattern is not None:
        path = _patterns().write(pattern, name, _read_settings(set_ or []))
    else:
        if name is not None or set_:
            raise ProximaError(
                "--source: what a package has is taken as it is; leave out --name and --set"
            )
        path = _take_source(str(source))
    if json:
        print(json_module.dumps({"path": str(path)}))
    else:
        say(f"Wrote {path}")
        for line in origin_lines(path):
            say(line)


def generate_for(scenario: Any) -> tuple[str, Path]:
    """What was written for a scenario, in a word, and where."""
    from proxima.build import domain_of

    data = domain_of(scenario).data
    if data is None:
        raise ProximaError(
            f"{scenario.name}: has no data section; name a scenario that reads data "
            "(proxima scenarios lists all)"
        )
    return data.what, data.generate(scenario, Path())


def _patterns() -> Any:
    """The synthetic patterns of the domain that has some."""
    from proxima.build import DOMAINS, domain

    known = [domain(name).data for name in DOMAINS]
    return next(data.patterns for data in known if data is not None and data.patterns is not None)


def origin_lines(path: Path) -> list[str]:
    """What is noted beside real data of where it comes from and whose it is; nothing beside other data."""
    note = path.with_suffix(".origin.txt")
    return note.read_text(encoding="utf-8").splitlines() if note.is_file() else []


def _sources() -> list[Any]:
    """The sources of every domain that has some."""
    from proxima.build import DOMAINS, domain

    known = [domain(name).data for name in DOMAINS]
    return [data.sources for data in known if data is not None and data.sources is not None]


def _take_source(name: str) -> Path:
    """The data of the source of that name, written by the domain that knows it."""
    known = {about["source"]: each for each in _sources() for about in each.describe()}
    if name not in known:
        raise ProximaError(f"--source: {name} is no source; there are {', '.join(known)}")
    path: Path = known[name].write(name)
    return path


def _show_sources(sources: list[dict[str, Any]], json: bool) -> None:
    """A line each, which fits a narrow terminal; whose data it is, is said where it is taken."""
    if json:
        print_json(sources)
        return
    width = max(len(about["source"]) for about in sources)
    for about in sources:
        say(f"{about['source']:{width}}  {about['description']} ({about['package']})")
    say("Take one, with its licence and origin:  proxima generate-data --source NAME")


def _read_settings(settings: list[str]) -> dict[str, int | float | str]:
    """key=value pairs; a scenario's longer keys, data.rows or data.params.base, mean the same."""
    values = {}
    for text in settings:
        key, equals, value = text.partition("=")
        key = key.strip().removeprefix("data.").removeprefix("params.")
        if not equals or not key:
            raise ProximaError(f"--set: {text}: expected key=value, for example rows=500")
        values[key] = _value(value.strip())
    return values


def _value(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _show_patterns(patterns: list[dict[str, Any]], json: bool) -> None:
    from rich.table import Table
    from rich.text import Text

    if json:
        print_json(patterns)
        return
    table = Table("pattern", "setting", "default", "what it is")
    for pattern in patterns:
        table.add_row(Text(pattern["pattern"], "bold"), "", "", pattern["description"])
        for param in pattern["params"]:
            table.add_row("", param["name"], str(param["default"]), param["meaning"])
        table.add_section()
    show_table(table)
    say(
        "Make one:  proxima generate-data --pattern NAME --set rows=5000 --set seed=0 --set SETTING=VALUE"
    )

"""Commands that show something: scenarios, compare, report, schema, dashboard."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from proxima.cli.console import print_json, say, show_table
from proxima.cli.options import Debug, Json, Output, argument, path_option, shipped_names


def add_commands(app: typer.Typer) -> None:
    """These commands to the command line."""
    for command in (scenarios, compare, report, schema, dashboard):
        app.command()(command)


def scenarios(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="Show this scenario in full.", autocompletion=shipped_names
        ),
    ] = None,
    debug: Debug = False,
) -> None:
    """List the shipped scenarios, or show one."""
    from proxima.scenario import dump, load

    if name is None:
        _list_scenarios()
        say("\nRun one:  proxima experiment NAME     See one:  proxima scenarios NAME")
        return
    scenario = load(name)
    say(f"# {scenario.description}\n# {_overview(scenario)}", style="dim")
    say("# every setting, defaults included", style="dim")
    say(dump(scenario).removesuffix("\n"))


def _list_scenarios() -> None:
    """A line for each: its name, and what it is."""
    from proxima.scenario import load, shipped

    names = list(shipped())
    width = max(map(len, names))
    for name in names:
        say(f"{name:<{width}}  {load(name).description}")


def _overview(scenario: Any) -> str:
    """What trains on what, for how long and up to where."""
    from proxima.build import domain_of

    algorithm, environment, budget, target = domain_of(scenario).overview(scenario)
    aim = "" if target == "–" else f", target {target}"
    return f"{algorithm} · {environment} · {budget}{aim}"


def compare(
    runs: Annotated[list[str], argument("RUN...", "Two or more experiments or run ids.")],
    plot: Annotated[Path, path_option("Where to draw the comparison.")] = Path("comparison.png"),
    output: Output = "logs",
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Compare runs: intervals, paired differences, one plot."""
    from rich.table import Table

    from proxima.run.report import compare_references

    rows, improvements = compare_references(runs, plot, output)
    if json:
        print_json({"runs": rows, "improvements": improvements})
        return
    table = Table()
    # Two runs of an experiment differ at the end of their ids.
    table.add_column("run", overflow="fold")
    for name in ("trials", "IQM", "interval", "steps", "steps/s", "converged"):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(*_cells(row))
    show_table(table)
    for improvement in improvements:
        say(improvement["text"])
    say(f"Plot: {plot}")


def _cells(row: dict[str, Any]) -> list[Any]:
    from rich.text import Text

    from proxima.report.numbers import NOTHING, brief

    def whole(key: str) -> str:
        return NOTHING if row[key] is None else f"{row[key]:,.0f}"

    return [
        Text(str(row["name"])),
        str(row["trials"]),
        brief(row["iqm"]),
        _interval(row),
        whole("steps"),
        whole("steps/s"),
        str(row["converged"]),
    ]


def _interval(row: dict[str, Any]) -> str:
    from proxima.report.numbers import NOTHING, brief

    if row["low"] is None:
        return NOTHING
    return f"{brief(row['low'])} … {brief(row['high'])} ({row['coverage']} %)"


def report(
    run: Annotated[str, argument("EXPERIMENT", "An experiment (its latest run) or a run id.")],
    out: Annotated[
        Path | None, path_option("Where to write it; default: report.html in the run.")
    ] = None,
    output: Output = "logs",
    debug: Debug = False,
) -> None:
    """Write a finished run's or search's report: one page, complete."""
    from proxima.core.errors import ProximaError
    from proxima.run.files import find_run
    from proxima.run.report import report_reference
    from proxima.tune.files import searches_of
    from proxima.tune.run import read_result, write_report

    searches = searches_of(run, output)
    for files in searches:
        say(f"Report: {write_report(files, read_result(files), out)}")
    if searches and out is not None:
        return
    try:
        find_run(run, output)
    except ProximaError:
        if searches:
            return
        raise
    say(f"Report: {report_reference(run, out, output)}")


def schema(
    results: Annotated[
        bool, typer.Option("--results", help="Of results.json and summary.json instead.")
    ] = False,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Every setting as a page of Markdown instead.")
    ] = False,
) -> None:
    """Print the JSON schema of scenario files, for editors."""
    from proxima.build import DOMAINS, domain
    from proxima.run.results import json_schema as of_results
    from proxima.scenario import json_schema

    if markdown:
        from proxima.scenario.manual import settings_page

        say(settings_page().removesuffix("\n"))
        return
    details = {name: domain(name).details for name in DOMAINS}
    print_json(of_results(details) if results else json_schema())


def dashboard(
    port: Annotated[int, typer.Option(help="Port on this machine.")] = 5000,
    uri: Annotated[str | None, path_option("MLflow store; default: the embedded one.")] = None,
    browse: Annotated[
        bool | None,
        typer.Option("--open/--no-open", help="Open a browser; default: in a terminal."),
    ] = None,
    debug: Debug = False,
) -> None:
    """Open MLflow's pages on the runs, for this machine only."""
    from proxima.run.signals import raising
    from proxima.track.dashboard import serve

    with raising():  # SIGTERM and SIGHUP end the server too
        serve(uri, port, sys.stdout.isatty() if browse is None else browse)

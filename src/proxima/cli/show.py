"""Commands that show something: scenarios, compare, report, schema, dashboard."""

from pathlib import Path
from typing import Annotated, Any

import typer

from proxima.cli.console import print_json, say, show_table
from proxima.cli.options import Debug, Json, Output, argument, path_option


def add_commands(app: typer.Typer) -> None:
    """These commands to the command line."""
    for command in (scenarios, compare, report, schema, dashboard):
        app.command()(command)


def scenarios(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Show this scenario in full.")
    ] = None,
    debug: Debug = False,
) -> None:
    """List the shipped scenarios, or show one."""
    from proxima.scenario import dump, load

    if name is None:
        _list_scenarios()
        say("Run one:  proxima experiment --scenario NAME     See one:  proxima scenarios NAME")
        return
    scenario = load(name)
    say(f"# {scenario.description}\n# every setting, defaults included", style="dim")
    say(dump(scenario).removesuffix("\n"))


def _list_scenarios() -> None:
    """Two lines for each: what trains on what and for how long, and what it is."""
    from proxima.build import domain_of
    from proxima.scenario import load, shipped

    for name in shipped():
        scenario = load(name)
        algorithm, environment, budget, target = domain_of(scenario).overview(scenario)
        aim = "" if target == "–" else f", target {target}"
        say(f"{name}  ({algorithm} · {environment} · {budget}{aim})")
        say(f"    {scenario.description}", style="dim")


def compare(
    runs: Annotated[list[str], argument("RUN...", "Two or more experiments or run ids.")],
    plot: Annotated[Path, path_option("Where to draw the comparison.")] = Path("comparison.png"),
    output: Output = "logs",
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Compare runs: intervals side by side, paired differences, one plot."""
    from rich.table import Table

    from proxima.run.report import compare_references

    rows, improvements = compare_references(runs, plot, output)
    if json:
        print_json({"runs": rows, "improvements": improvements})
        return
    table = Table("run")
    for name in ("trials", "IQM", "95 % interval", "steps", "steps/s", "converged"):
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
        NOTHING if row["low"] is None else f"{brief(row['low'])} … {brief(row['high'])}",
        whole("steps"),
        whole("steps/s"),
        str(row["converged"]),
    ]


def report(
    run: Annotated[str, argument("EXPERIMENT", "An experiment (its latest run) or a run id.")],
    out: Annotated[
        Path | None, path_option("Where to write it; default: report.html in the run.")
    ] = None,
    output: Output = "logs",
    debug: Debug = False,
) -> None:
    """Write a finished run's report: one HTML file with everything in it."""
    from proxima.run.report import report_reference

    say(f"Report: {report_reference(run, out, output)}")


def schema(
    results: Annotated[
        bool, typer.Option("--results", help="Of results.json and summary.json instead.")
    ] = False,
) -> None:
    """Print the JSON schema of scenario files, for editors."""
    from proxima.build import DOMAINS, domain
    from proxima.run.results import json_schema as of_results
    from proxima.scenario import json_schema

    details = {name: domain(name).details for name in DOMAINS}
    print_json(of_results(details) if results else json_schema())


def dashboard(
    port: Annotated[int, typer.Option(help="Port on this machine.")] = 5000,
    uri: Annotated[str | None, path_option("MLflow store; default: the embedded one.")] = None,
    debug: Debug = False,
) -> None:
    """Open MLflow's pages on the runs, for this machine only."""
    from proxima.track.dashboard import serve

    serve(uri, port)

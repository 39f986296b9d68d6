"""Commands that show something: scenarios, compare, report, schema, dashboard."""

import json as json_module
from pathlib import Path
from typing import Annotated, Any

import typer

from proxima.cli.options import Debug, Json, Output, expand


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
    from proxima.cli.console import write
    from proxima.scenario import dump, load
    from proxima.terminal import plain_console

    console = plain_console()
    if name is None:
        console.print(_scenario_table())
        write(
            console,
            "Run one:  proxima experiment --scenario NAME     See one:  proxima scenarios NAME",
        )
        return
    scenario = load(name)
    write(console, f"# {scenario.description}\n# every setting, defaults included", style="dim")
    console.print(dump(scenario), markup=False, highlight=False, end="", soft_wrap=True)


def _scenario_table() -> Any:
    from rich.table import Table

    from proxima.build import domain_of
    from proxima.scenario import load, shipped

    table = Table()
    for column in ("scenario", "algorithm", "environment", "steps", "target", "what it is"):
        table.add_column(column, no_wrap=column == "scenario")  # a name is there to be copied
    for name in shipped():
        scenario = load(name)
        table.add_row(name, *domain_of(scenario).overview(scenario), scenario.description)
    return table


def compare(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN...", help="Two or more experiments or run ids.", callback=expand
        ),
    ],
    plot: Annotated[
        Path, typer.Option(help="Where to draw the comparison.", callback=expand)
    ] = Path("comparison.png"),
    output: Output = "logs",
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Compare runs: intervals side by side, paired differences, one plot."""
    from rich.table import Table

    from proxima.cli.console import write
    from proxima.run.compare import compare_references
    from proxima.terminal import plain_console

    rows, improvements = compare_references(runs, plot, output)
    if json:
        print(json_module.dumps({"runs": rows, "improvements": improvements}, indent=2))
        return
    console = plain_console()
    table = Table("run", "trials", "IQM", "95 % interval", "steps", "steps/s", "converged")
    for row in rows:
        table.add_row(*_cells(row))
    console.print(table)
    for improvement in improvements:
        write(console, improvement["text"])
    write(console, f"Plot: {plot}")


def _cells(row: dict[str, Any]) -> list[Any]:
    from rich.text import Text

    def number(value: Any, form: str) -> str:
        return "–" if value is None else format(value, form)

    return [
        Text(str(row["name"])),
        str(row["trials"]),
        number(row["iqm"], ".1f"),
        f"{number(row['low'], '.1f')} … {number(row['high'], '.1f')}",
        number(row["steps"], ",.0f"),
        number(row["steps/s"], ",.0f"),
        str(row["converged"]),
    ]


def report(
    run: Annotated[
        str,
        typer.Argument(
            metavar="EXPERIMENT",
            help="An experiment (its latest run) or a run id.",
            callback=expand,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="Where to write it; default: report.html in the run.", callback=expand),
    ] = None,
    output: Output = "logs",
    debug: Debug = False,
) -> None:
    """Write a finished run's report: one HTML file with everything in it."""
    from proxima.cli.console import write
    from proxima.run.report import report_reference
    from proxima.terminal import plain_console

    write(plain_console(), f"Report: {report_reference(run, out, output)}")


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
    print(json_module.dumps(of_results(details) if results else json_schema(), indent=2))


def dashboard(
    port: Annotated[int, typer.Option(help="Port on this machine.")] = 5000,
    uri: Annotated[
        str | None, typer.Option(help="MLflow store; default: the embedded one.", callback=expand)
    ] = None,
    debug: Debug = False,
) -> None:
    """Open MLflow's pages on the runs, for this machine only."""
    from proxima.track.dashboard import serve

    serve(uri, port)

"""Commands that show something: scenarios, compare, report."""

import json as json_module
from pathlib import Path
from typing import Any

from rich.table import Table

from proxima.cli.terminal import plain_console


def show_scenarios(name: str | None) -> None:
    """The `scenarios` command."""
    from proxima.scenario import dump, load, shipped

    console = plain_console()
    if name is not None:
        scenario = load(name)
        console.print(f"# {scenario.description}\n# every setting, defaults included", style="dim")
        console.print(dump(scenario), end="", soft_wrap=True)
        return

    table = Table()
    for column in ("scenario", "algorithm", "environment", "steps", "target", "what it is"):
        table.add_column(column, no_wrap=column == "scenario")  # a name is there to be copied
    for each in shipped():
        scenario = load(each)
        table.add_row(each, *_overview(scenario), scenario.description)
    console.print(table)
    console.print(
        "Run one:  proxima experiment --scenario NAME     See one:  proxima scenarios NAME",
        soft_wrap=True,
    )


def _overview(scenario: Any) -> tuple[str, str, str, str]:
    """Algorithm, environment, budget and target."""
    from proxima.scenario import LanguageScenario

    if isinstance(scenario, LanguageScenario):
        updates = f"{scenario.ppo.updates} updates" if scenario.ppo else "–"
        return "ppo", "language", updates, "–"
    steps, target = scenario.training.max_steps, scenario.convergence.target_reward
    return (
        scenario.algorithm.name,
        f"{scenario.env.name} ({scenario.env.backend})",
        f"{steps:,}" if steps else "–",
        f"{target:g}" if target is not None else "–",
    )


def show_comparison(references: list[str], plot: Path, output: str, json: bool) -> None:
    """The `compare` command."""
    from proxima.run.evaluation import compare_references

    rows, improvements = compare_references(references, plot, output)
    if json:
        print(json_module.dumps({"runs": rows, "improvements": improvements}, indent=2))
        return
    console = plain_console()
    table = Table("run", "trials", "IQM", "95 % interval", "steps", "steps/s", "converged")
    for row in rows:
        table.add_row(*_cells(row))
    console.print(table)
    for each in improvements:
        console.print(each["text"], soft_wrap=True)
    console.print(f"Plot: {plot}", soft_wrap=True)


def show_report(reference: str, out: Path | None, output: str) -> None:
    """The `report` command."""
    from proxima.run.report import report_reference

    path = report_reference(reference, out, output)
    plain_console().print(f"Report: {path}", soft_wrap=True)


def _cells(row: dict[str, Any]) -> list[str]:
    def number(value: Any, form: str) -> str:
        return "–" if value is None else format(value, form)

    return [
        str(row["name"]),
        str(row["trials"]),
        number(row["iqm"], ".1f"),
        f"{number(row['low'], '.1f')} … {number(row['high'], '.1f')}",
        number(row["steps"], ",.0f"),
        number(row["steps/s"], ",.0f"),
        str(row["converged"]),
    ]

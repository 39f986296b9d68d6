"""Commands about data: generate-data, peek."""

import json as json_module
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from proxima.core.errors import ProximaError

PLAIN: dict[str, Any] = {"markup": False, "emoji": False, "highlight": False}  # names are no markup


def run_generate(
    scenario: str | None,
    pattern: str | None,
    settings: list[str],
    name: str | None,
    listed: bool,
    json: bool,
) -> None:
    """The `generate-data` command."""
    from proxima.run.data import generate_for, generate_pattern, patterns

    if listed:
        _show_patterns(patterns(), json)
        return
    if (scenario is None) == (pattern is None):
        raise ProximaError(
            "name what to generate: --scenario NAME, or --pattern NAME (--list shows the patterns)"
        )
    if scenario is not None:
        if name is not None:
            raise ProximaError("--name: a scenario's data has the scenario's name; leave it out")
        from proxima.scenario import load

        path = generate_for(load(scenario, settings))
    else:
        path = generate_pattern(pattern or "", name, _read_settings(settings))
    if json:
        print(json_module.dumps({"path": str(path)}))
    else:
        Console(**PLAIN).print(f"Wrote {path}", soft_wrap=True)


def run_peek(reference: str, plot: Path | None, json: bool) -> None:
    """The `peek` command."""
    from proxima.run.data import peek_at

    summary = peek_at(reference, plot)
    if json:
        print(json_module.dumps(summary, indent=2))
        return
    console = Console(**PLAIN)
    console.print(summary["source"], style="bold", soft_wrap=True)
    for line in _overview(summary):
        console.print(line, soft_wrap=True)
    if summary["problem"] is not None:
        console.print("Cannot be prepared as configured:", style="yellow", soft_wrap=True)
        console.print(summary["problem"], soft_wrap=True)
    else:
        console.print(_split_table(summary))
        console.print(_feature_table(summary))
    if plot is not None:
        console.print(f"Plot: {plot}", soft_wrap=True)


def _read_settings(settings: list[str]) -> dict[str, Any]:
    """key=value pairs; a scenario's longer keys, data.rows or data.params.base, mean the same."""
    read = {}
    for text in settings:
        key, equals, value = text.partition("=")
        key = key.strip().removeprefix("data.").removeprefix("params.")
        if not equals or not key:
            raise ProximaError(f"--set: {text}: expected key=value, for example rows=500")
        read[key] = _value(value.strip())
    return read


def _value(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _show_patterns(patterns: list[dict[str, Any]], json: bool) -> None:
    if json:
        print(json_module.dumps(patterns, indent=2))
        return
    console = Console(**PLAIN)
    table = Table("pattern", "setting", "default", "what it is")
    for pattern in patterns:
        table.add_row(Text(pattern["pattern"], "bold"), "", "", pattern["description"])
        for param in pattern["params"]:
            table.add_row("", param["name"], str(param["default"]), param["meaning"])
        table.add_section()
    console.print(table)
    console.print(
        "Make one:  proxima generate-data --pattern NAME --set rows=5000 --set seed=0 --set SETTING=VALUE",
        soft_wrap=True,
    )


def _overview(summary: dict[str, Any]) -> list[str]:
    made, spacing, close = summary["made"], summary["spacing"], summary["close"]
    lines = []
    if made is not None:
        params = ", ".join(f"{key} {value}" for key, value in made["params"].items())
        lines.append(f"made        {made['pattern']} with seed {made['seed']}: {params}")
    lines.append(
        f"rows        {summary['rows']:,}, {_day(summary['first'])} … {_day(summary['last'])}"
    )
    if spacing["usual_seconds"] is not None:
        gaps = "no gaps"
        if spacing["gaps"]:
            gaps = (
                f"{spacing['gaps']:,} gaps, the longest {_duration(spacing['longest_seconds'])} after "
                f"{_day(spacing['longest_after'])}"
            )
        lines.append(f"bars        every {_duration(spacing['usual_seconds'])}, {gaps}")
    lines.append(
        f"close       {close['min']:,.6g} … {close['max']:,.6g}, mean {close['mean']:,.6g}"
    )
    moved = summary["log_return"]
    if moved is not None:
        lines.append(
            f"log return  mean {moved['mean']:.3g}, deviation {moved['std']:.3g}, "
            f"{moved['min']:.3g} … {moved['max']:.3g} a bar"
        )
    return lines


def _split_table(summary: dict[str, Any]) -> Table:
    table = _table("split", "rows", "first row", "from", "to", "price's log return")
    for each in summary["splits"]:
        table.add_row(
            each["split"],
            f"{each['rows']:,}",
            f"{each['first_row'] + 1:,}",
            _day(each["first"]),
            _day(each["last"]),
            f"{each['log_return']:+.3f}",
        )
    return table


def _feature_table(summary: dict[str, Any]) -> Table:
    """Each on the train split before it is scaled, then as an agent sees it in the others."""
    table = _table("feature", "train mean", "deviation", "validation", "test")
    for each in summary["features"]:
        seen = (each["validation"], each["test"])
        table.add_row(
            each["feature"],
            f"{each['mean'] + each['std'] * each['train']['mean']:.3g}",
            f"{each['std'] * each['train']['std']:.3g}",
            *(f"{found['mean']:+.2f} ± {found['std']:.2f}" for found in seen),
        )
    return table


def _table(*columns: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for index, name in enumerate(columns):
        table.add_column(name, justify="right" if index else "left", no_wrap=True)
    return table


def _day(stamp: str) -> str:
    """A time without what is zero."""
    return stamp.removesuffix(".000000").replace("T00:00:00", "").replace("T", " ")


def _duration(seconds: float) -> str:
    units = (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))
    name, size = next((unit for unit in units if seconds >= unit[1]), units[-1])
    return f"{seconds / size:g} {name}{'' if seconds == size else 's'}"

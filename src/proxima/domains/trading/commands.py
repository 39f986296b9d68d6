"""The command that looks at prices: peek."""

from pathlib import Path
from typing import Annotated, Any

import typer

from proxima.cli.options import Debug, Json, argument, path_option


def add_commands(app: typer.Typer) -> None:
    """The command to the command line."""
    app.command()(peek)


def peek(
    data: Annotated[str, argument("DATA", "A scenario, or a parquet or CSV file of prices.")],
    plot: Annotated[Path, path_option("Where to draw the prices.")] = Path("prices.png"),
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Look at prices: rows, span, gaps, splits, features, a plot."""
    from proxima.cli.console import print_json, write
    from proxima.domains.trading.peek import peek_at
    from proxima.terminal import plain_console

    summary = peek_at(data, plot)
    if json:
        print_json(summary)
        return
    console = plain_console()
    for line in _overview(summary):
        write(console, line)
    if summary["problem"] is not None:
        write(console, "Cannot be prepared as configured:", style="yellow")
        write(console, summary["problem"])
    else:
        console.print(_split_table(summary["splits"]))
        console.print(_feature_table(summary["features"]))
    write(console, f"Plot: {plot}")


def _overview(summary: dict[str, Any]) -> list[str]:
    made, spacing, close = summary["made"], summary["spacing"], summary["close"]
    lines = [str(summary["source"])]
    if made is not None:
        params = ", ".join(f"{key} {value}" for key, value in made["params"].items())
        lines.append(f"made        {made['pattern']} with seed {made['seed']}: {params}")
    span = f"{_day(summary['first'])} … {_day(summary['last'])}"
    lines.append(f"rows        {summary['rows']:,}, {span}")
    if spacing["usual_seconds"] is not None:
        gaps = "no gaps"
        if spacing["gaps"]:
            gaps = (
                f"{spacing['gaps']:,} gaps, the longest {_duration(spacing['longest_seconds'])} after "
                f"{_day(spacing['longest_after'])}"
            )
        lines.append(f"bars        every {_duration(spacing['usual_seconds'])}, {gaps}")
    span = f"{close['min']:,.6g} … {close['max']:,.6g}"
    lines.append(f"close       {span}, mean {close['mean']:,.6g}")
    moved = summary["log_return"]
    if moved is not None:
        lines.append(
            f"log return  mean {moved['mean']:.3g}, deviation {moved['std']:.3g}, "
            f"{moved['min']:.3g} … {moved['max']:.3g} a bar"
        )
    return lines


def _split_table(splits: list[dict[str, Any]]) -> Any:
    table = _table("split", "rows", "first row", "from", "to", "price's log return")
    for split in splits:
        rows = f"{split['rows']:,}", f"{split['first_row'] + 1:,}"
        span = _day(split["first"]), _day(split["last"])
        table.add_row(split["split"], *rows, *span, f"{split['log_return']:+.3f}")
    return table


def _feature_table(features: list[dict[str, Any]]) -> Any:
    """Each on the train split before it is scaled, then as an agent sees it in the others."""
    table = _table("feature", "train mean", "deviation", "validation", "test")
    for feature in features:
        mean, std, train = feature["mean"], feature["std"], feature["train"]
        unscaled = f"{mean + std * train['mean']:.3g}", f"{std * train['std']:.3g}"
        scaled = (
            f"{feature[split]['mean']:+.2f} ± {feature[split]['std']:.2f}"
            for split in ("validation", "test")
        )
        table.add_row(feature["feature"], *unscaled, *scaled)
    return table


def _table(*columns: str) -> Any:
    from rich.table import Table

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

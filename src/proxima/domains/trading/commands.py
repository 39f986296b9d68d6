"""The commands about prices: peek looks at them, trade follows a trained policy on new ones."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from proxima.cli.options import Debug, Json, Output, Trial, argument, path_option, run_names

MOST_ASSETS = 40  # in a table
WIDEST_NAME = 20  # of an asset there


def add_commands(app: typer.Typer) -> None:
    """The commands to the command line."""
    for command in (peek, trade):
        app.command()(command)


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
        for line in (*_split_lines(summary["splits"]), *_feature_lines(summary["features"])):
            write(console, line)
    write(console, f"Plot: {plot}")


def trade(
    run: Annotated[
        str, argument("RUN", "An experiment, a run, a trial or a policy's directory.", run_names)
    ],
    bars: Annotated[
        str, typer.Option(help="New bars: a parquet or CSV file, or - for lines of standard input.")
    ],
    trial: Trial = None,
    state: Annotated[
        Path | None,
        path_option("Directory that keeps the account; default: trade/, in the trial's."),
    ] = None,
    capital: Annotated[
        float | None, typer.Option(help="Cash to begin with; default: 10,000.")
    ] = None,
    begin: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="First time to trade at, such as 2024-03-01; default: after the run's data.",
        ),
    ] = None,
    past: Annotated[
        Path | None, path_option("The file of the run's data, if it was moved.")
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Begin without the run's data: features warm up first.")
    ] = False,
    any_gap: Annotated[
        bool, typer.Option("--any-gap", help="Accept gaps that the run's data does not have.")
    ] = False,
    output: Output = "logs",
    json: Annotated[bool, typer.Option("--json", help="One JSON object a bar, on a line.")] = False,
    debug: Debug = False,
) -> None:
    """Follow a trained policy on new bars: target, order, cash.

    Prints a line for each bar. The same command, given later bars, goes on from there. Orders are sent to
    nobody: each is taken as filled at the price that the scenario's env.fill names.
    """
    from proxima.domains.trading.trade import Options, trade_bars
    from proxima.run.files import find_policy
    from proxima.terminal import Output as Stream

    options = Options(capital, begin, past, fresh, any_gap, json)
    policy = find_policy(run, output, trial)
    if not trade_bars(
        policy, bars, state, options, _say_at_once, Stream(sys.stderr, waits=True).write
    ):
        raise typer.Exit(130)


def _say_at_once(text: str) -> None:
    """To whoever acts on it; an error where nobody reads it."""
    sys.stdout.write(text)
    sys.stdout.flush()


def _overview(summary: dict[str, Any]) -> list[str]:
    made = summary["made"]
    lines = [str(summary["source"])]
    if made is not None:
        params = ", ".join(f"{key} {value}" for key, value in made["params"].items())
        lines.append(f"made        {made['pattern']} with seed {made['seed']}: {params}")
    span = f"{_day(summary['first'])} … {_day(summary['last'])}"
    lines.append(f"rows        {summary['rows']:,}, {span}")
    lines += _spacing_lines(summary["spacing"])
    lines += _asset_lines(summary) if "assets" in summary else _price_lines(summary)
    lines += [f"note        {note}" for note in summary["notes"]]
    return lines


def _spacing_lines(spacing: dict[str, Any]) -> list[str]:
    """How far apart bars are."""
    from proxima.domains.trading.arriving import duration

    if spacing["usual_seconds"] is None:
        return []
    gaps = "no gaps"
    if spacing["gaps"]:
        gaps = (
            f"{spacing['gaps']:,} gaps, the longest {duration(1e6 * spacing['longest_seconds'])} after "
            f"{_day(spacing['longest_after'])}"
        )
    return [f"bars        every {duration(1e6 * spacing['usual_seconds'])}, {gaps}"]


def _price_lines(summary: dict[str, Any]) -> list[str]:
    """The prices of one asset."""
    close, moved = summary["close"], summary["log_return"]
    span = f"{_price(close['min'])} … {_price(close['max'])}"
    lines = [f"close       {span}, mean {_price(close['mean'])}"]
    if moved is not None:
        lines.append(
            f"log return  mean {moved['mean']:.3g}, deviation {moved['std']:.3g}, "
            f"{moved['min']:.3g} … {moved['max']:.3g} a bar"
        )
    return lines


def _asset_lines(summary: dict[str, Any]) -> list[str]:
    """The prices of several assets, in a table; of many, the first."""
    assets = summary["assets"]
    known = "closing prices only" if summary["closes_only"] else "every price"
    rows = [("asset", "lowest close", "highest", "log return", "deviation")]
    for name, about in list(assets.items())[:MOST_ASSETS]:
        close, moved = about["close"], about["log_return"]
        deviation = "–" if moved is None else f"{moved['std']:.3g}"
        ends = _price(close["min"]), _price(close["max"])
        rows.append((name[:WIDEST_NAME], *ends, f"{about['total_log_return']:+.3g}", deviation))
    more = len(assets) - MOST_ASSETS
    last = [f"and {more:,} more; --json has all"] if more > 0 else []
    return [f"assets      {len(assets):,}, {known}", *_aligned(rows), *last]


def _split_lines(splits: list[dict[str, Any]]) -> list[str]:
    rows = [("split", "rows", "from", "to", "log return")]
    for split in splits:
        span = _day(split["first"]), _day(split["last"])
        rows.append((split["split"], f"{split['rows']:,}", *span, f"{split['log_return']:+.3g}"))
    return _aligned(rows)


def _feature_lines(features: list[dict[str, Any]]) -> list[str]:
    """Each on the train split before it is scaled, then as an agent sees it in the others."""
    rows = [("feature", "train mean", "deviation", "validation", "test")]
    for feature in features:
        mean, std, train = feature["mean"], feature["std"], feature["train"]
        unscaled = f"{mean + std * train['mean']:.3g}", f"{std * train['std']:.3g}"
        validation, test = (
            f"{feature[split]['mean']:+.2g} ± {feature[split]['std']:.3g}"
            for split in ("validation", "test")
        )
        rows.append((feature["feature"], *unscaled, validation, test))
    return _aligned(rows)


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """A table as lines, whole whatever the width of the terminal: numbers and dates are never cut."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows
    ]


def _price(value: float) -> str:
    """A price with its cents, however large; of a small one six digits."""
    return f"{value:,.2f}" if 1000 <= value < 1e15 else f"{value:.6g}"


def _day(stamp: str) -> str:
    """A time without what is zero."""
    return re.sub(r"(T00:00)?(:00)?(\.0+)?$", "", stamp).replace("T", " ")

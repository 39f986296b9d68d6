"""The trading part of a report: result in a sentence, tear sheet of the median trial, metric tables."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from proxima.domains.trading import plots as trading
from proxima.domains.trading.metric_names import metric_rows, writer
from proxima.domains.trading.rollouts import calendar, column, times
from proxima.report.chosen import median_index
from proxima.report.html import Content, Markup, fold, join, picture, section, shaded, table, tag
from proxima.report.numbers import figure, has_interval, interval, share, with_interval
from proxima.report.trials import MOST_ROWS, trials_table

if TYPE_CHECKING:
    import polars as pl

SPLITS = {"test": "Test", "validation": "Validation", "train": "Train"}
# Columns of the metric tables, in the order in which one asks: what else could I have done?
COLUMNS = {
    "buy_and_hold": "Buy and hold",
    "momentum": "Momentum",
    "random": "Random",
    "model": "Model-optimal",
    "foresight": "Perfect foresight",
}
_LOWER = {name: title.lower() for name, title in COLUMNS.items()} | {"random": "random trading"}
LEAST_WINDOW = 20  # bars of a rolling ratio
FULL_SHADE = 0.1  # return of a calendar's cell in full colour, unless larger ones are common


class Rollouts(NamedTuple):
    """What was recorded on the test split."""

    trials: Mapping[int, "pl.DataFrame"]
    references: Mapping[str, "pl.DataFrame"]
    periods_per_year: float


def sentence(summary: Mapping[str, Any]) -> list[Content]:
    """What the agent makes on the test split, and what anybody else would have made."""
    earned = summary["details"]["aggregate"]["test"]["log_return"]
    others = summary["details"]["references"]["splits"]["test"]
    parts: list[Content] = [
        "On the test split, which training never saw, the agent makes a log return after fees of ",
        tag("strong", figure(earned["iqm"])),
        f"{_over(earned, len(summary['trials']))}. ",
        f"Buy and hold makes {_of(others, 'buy_and_hold')}, momentum {_of(others, 'momentum')}, ",
        f"random trading {_of(others, 'random')}, perfect foresight {_of(others, 'foresight')}",
    ]
    if others["model"] is not None:
        parts.append(f", the model-optimal policy {_of(others, 'model')}")
    return [*parts, ". ", *_verdict(earned, others)]


def key_figures(summary: Mapping[str, Any]) -> list[tuple[str, Content]]:
    """The few numbers at the top, with their names."""
    test = summary["details"]["aggregate"]["test"]
    chosen = summary["details"]["chosen_trial"]
    cards: list[tuple[str, Content]] = [("Log return", with_interval(test["log_return"]))]
    for oracle, score in _scores(summary, "test", ("foresight", "model")).items():
        cards.append((f"Score, {_LOWER[oracle]}", with_interval(score)))
    deflated = summary["details"]["deflated_sharpe"]
    return [
        *cards,
        ("Sharpe ratio", with_interval(test["sharpe"])),
        ("Maximum drawdown", with_interval(test["max_drawdown"], writer("max_drawdown"))),
        (
            "Deflated Sharpe ratio",
            join([share(deflated), " ", tag("small", f"trial {chosen}: chance of skill")]),
        ),
    ]


def tear_sheet(summary: Mapping[str, Any], rollouts: Rollouts) -> Markup:
    """Pictures and calendar of the median trial, then the metrics of all."""
    trial = median_trial(summary, rollouts)
    shown = [] if trial is None else _pictures(trial, rollouts)
    parts = [_metric_table(summary, split) for split in SPLITS]
    return section(
        "Test split",
        *shown,
        tag("h3", "Metrics"),
        parts[0],
        *(
            fold(f"{SPLITS[split]} split", part)
            for split, part in list(zip(SPLITS, parts, strict=True))[1:]
        ),
    )


def median_trial(summary: Mapping[str, Any], rollouts: Rollouts) -> int | None:
    """The trial with the median log return on the test split, of those with a rollout."""
    trials = [index for index in range(len(summary["trials"])) if index in rollouts.trials]
    index = median_index([column(rollouts.trials[k], "log_return").sum() for k in trials])
    return None if index is None else trials[index]


def trial_table(summary: Mapping[str, Any], median: int | None) -> Markup:
    """A row for each trial."""
    head = ["Trial", "Seed", "Log return, test", "Score", "Sharpe", "Drawdown"]
    head += ["Log return, validation", "Log return, train", "Steps"]
    chosen = summary["details"]["chosen_trial"]
    results = summary["trials"]
    mark = " (median)" if len(results) <= MOST_ROWS else ""  # a longer table names it itself
    rows = [_trial_row(result, mark if result["trial"] == median else None) for result in results]
    earned = [result["details"]["splits"]["test"]["agent"]["log_return"] for result in results]
    note = (
        "Intervals are over the bars of the test split: what another such stretch might give. Trial "
        f"{chosen} is the best on the validation split, the one to choose without having seen the test."
    )
    return join(
        [trials_table(head, rows, earned, {chosen: "best on validation"}), tag("p.note", note)]
    )


def _pictures(trial: int, rollouts: Rollouts) -> list[Content]:
    frame = rollouts.trials[trial]
    bars, (first, last) = len(frame), times(frame)[[0, -1]].astype("M8[D]")
    intro = (
        f"{bars:,} bars from {first} to {last}. Shown in bold and below: trial {trial}, the one "
        "with the median log return on this split."
    )
    window = max(LEAST_WINDOW, bars // 10)
    shown = [
        picture(
            lambda width: trading.equity_and_drawdown(
                rollouts.trials, rollouts.references, trial, width=width
            ),
            "Value of the portfolio over time against the references, and drawdowns",
        )
    ]
    if bars >= 2 * window:
        shown.append(
            picture(
                lambda width: trading.rolling_sharpe_plot(
                    rollouts.trials,
                    rollouts.references,
                    rollouts.periods_per_year,
                    window,
                    trial,
                    width=width,
                ),
                "Rolling Sharpe ratio",
            )
        )
    actions = picture(
        lambda width: trading.actions_over_price(
            frame, f"Position over price, trial {trial}", width
        ),
        "Held position over the price",
    )
    return [tag("p", intro), *shown, actions, *_calendar(frame, trial)]


def _calendar(frame: "pl.DataFrame", trial: int) -> list[Content]:
    by_time = calendar(times(frame), column(frame, "log_return"))
    finite = np.abs(by_time.values[np.isfinite(by_time.values)])
    full = max(FULL_SHADE, float(np.percentile(finite, 90)) if len(finite) else 0.0)
    rows: list[list[Content]] = [
        [
            name,
            *(_calendar_cell(value, full) for value in values),
            _percent(total) if np.isfinite(total) else "",
        ]
        for name, values, total in zip(by_time.rows, by_time.values, by_time.totals, strict=True)
    ]
    head = ["", *by_time.columns, "Total"]
    title = f"Returns by {by_time.unit} in percent, trial {trial}"
    return [tag("h3", title), table(head, rows, "calendar")]


def _calendar_cell(value: float, full: float) -> Content:
    return "" if np.isnan(value) else shaded(_percent(value), value / full)


def _percent(value: float) -> str:
    percent = 100 * value
    if abs(percent) >= 100_000:
        return figure(percent)
    digits = 1 if abs(percent) < 100 else 0
    return f"{round(percent, digits) + 0.0:,.{digits}f}".replace("-", "−")  # no −0.0


def _metric_table(summary: Mapping[str, Any], split: str) -> Markup:
    """The metrics of the agent and of each reference, with a note that says how to read them."""
    known = summary["details"]["references"]["splits"][split]
    names = [name for name in COLUMNS if known[name] is not None]
    sheets = [
        {"log_return": _value(known, name)} if name == "random" else known[name] for name in names
    ]
    rows = metric_rows(summary["details"]["aggregate"][split], sheets)
    for oracle, score in _scores(summary, split, ("model", "foresight")).items():
        line: list[Content] = [f"Score, {_LOWER[oracle]}", with_interval(score)]
        rows.append(line + [""] * len(names))
    head = ["", "Agent", *(COLUMNS[name] for name in names)]
    note = tag("p.note", _how_to_read(len(summary["trials"]), known["random"]["log_return"]))
    return join([table(head, rows, "metrics"), note])


def _scores(summary: Mapping[str, Any], split: str, oracles: Sequence[str]) -> dict[str, Any]:
    """The scores there are on a split: an oracle that cannot be had, or earns nothing, gives none."""
    scores = summary["details"]["score"][split]
    return {
        oracle: scores[oracle]
        for oracle in oracles
        if scores[oracle] is not None and scores[oracle]["iqm"] is not None
    }


def _how_to_read(trials: int, random: Mapping[str, Any]) -> str:
    agent = f"interquartile mean and 95 % interval over {trials} trials"
    return (
        f"Agent: {agent if trials > 1 else 'one trial'}. Random: mean of {random['runs']} runs, of which "
        f"95 % lie in {interval(random)}. Score: 0 is random trading, 1 the oracle."
    )


def _trial_row(result: Mapping[str, Any], mark: str | None) -> list[Content]:
    """A trial's cells; one with a mark behind its number stands out."""
    splits = result["details"]["splits"]
    agent = splits["test"]["agent"]
    over_bars = {"iqm": agent["log_return"]}
    over_bars |= {end: agent[f"log_return_{end}"] for end in ("low", "high")}
    number = f"{result['trial']}"
    name = number if mark is None else tag("span.chosen", number + mark)
    return [
        name,
        str(result["seed"]),
        with_interval(over_bars),
        figure(splits["test"]["score"]["foresight"]),
        figure(agent["sharpe"]),
        share(agent["max_drawdown"]),
        figure(splits["validation"]["agent"]["log_return"]),
        figure(splits["train"]["agent"]["log_return"]),
        f"{result['environment_steps']:,}",
    ]


def _verdict(earned: Mapping[str, Any], others: Mapping[str, Any]) -> list[Content]:
    """Where the interval over trials lies next to the baselines."""
    if not has_interval(earned):
        return ["One trial says nothing about the next: run several for an interval."]
    words: dict[str, list[str]] = {"above": [], "below": [], "not told apart from": []}
    for name in ("buy_and_hold", "momentum", "random"):
        value = _value(others, name)
        side = "above" if earned["low"] > value else "not told apart from"
        words["below" if earned["high"] < value else side].append(_LOWER[name])
    parts = [f"{side} {_listed(names)}" for side, names in words.items() if names]
    return [f"The interval is {', '.join(parts)}."]


def _listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)


def _value(others: Mapping[str, Any], name: str) -> float:
    value = others[name]["log_return"]
    return value["mean"] if name == "random" else value


def _of(others: Mapping[str, Any], name: str) -> str:
    return figure(_value(others, name))


def _over(aggregate: Mapping[str, Any], trials: int) -> str:
    if not has_interval(aggregate):
        return ""
    ends = interval(aggregate)
    return f" {ends} (interquartile mean and 95 % interval over {trials} trials)"

"""What a report says about a trading run: the result beside baselines, then the tear sheet and tables."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from proxima.domains.trading import plots
from proxima.domains.trading.edge import edge
from proxima.domains.trading.results import (
    Fold,
    SplitReferences,
    TradingSummary,
    evidence,
    judged,
)
from proxima.domains.trading.rollouts import (
    REFERENCES,
    TRADES,
    Rollouts,
    calendar,
    periods_per_year,
    read_rollouts,
    read_trades,
    times,
)
from proxima.report import html, returns
from proxima.report.chosen import median_index
from proxima.report.levels import levels_sections
from proxima.report.numbers import Write, figure, has_interval, interval, share, with_interval
from proxima.report.page import Page, RunData
from proxima.report.statistics import interval_words
from proxima.report.trials import MOST_ROWS, trials_table
from proxima.run.results import Aggregate, Summary, TrialResult

if TYPE_CHECKING:
    import polars as pl

# What metrics are called, and how their values are written.
METRICS: dict[str, tuple[str, Write]] = {
    "log_return": ("Log return", figure),
    "total_return": ("Total return", share),
    "cagr": ("Growth a year", share),
    "sharpe": ("Sharpe ratio", figure),
    "sortino": ("Sortino ratio", figure),
    "calmar": ("Calmar ratio", figure),
    "max_drawdown": ("Maximum drawdown", share),
    "volatility": ("Volatility a year", share),
    "var_5": ("Value at risk, 5 %, a bar", share),
    "omega": ("Omega ratio of bars", figure),
    "tail_ratio": ("Tail ratio", figure),
    "psr": ("Probability of true Sharpe > 0", share),
    "hit_rate": ("Bars won while invested", share),
    "trades": ("Trades, entry to exit", figure),
    "win_rate": ("Trades won", share),
    "profit_factor": ("Profit factor of trades", figure),
    "fills": ("Fills", figure),
    "holding_time": ("Bars from fill to fill", figure),
    "turnover": ("Turnover a bar", figure),
    "exposure_long": ("Time long", share),
    "exposure_short": ("Time short", share),
    "exposure_flat": ("Time flat", share),
}
# TrialColumns of the metric tables, in the order in which one asks: what else could I have done?
COLUMNS = ("buy_and_hold", "momentum", "random", "model", "foresight")
NAMES = {**REFERENCES, "random": "random trading"}
# Of a trial in the table of all, from its test split.
TrialColumns = Mapping[str, Callable[[Any], str]]
TRIAL_COLUMNS: TrialColumns = {
    "Score": lambda test: figure(test.score["foresight"]),
    "Sharpe": lambda test: figure(test.agent["sharpe"]),
    "Drawdown": lambda test: share(test.agent["max_drawdown"]),
}
LEAST_WINDOW = 20  # bars of a rolling ratio
MOST_TRADES = 12  # of a table of the largest
FULL_SHADE = 0.1  # return of a calendar's cell in full colour, unless larger ones are common


def page(run: RunData) -> Page:
    """The result beside the baselines, learning, the tear sheet of the median trial, every trial.

    The median trial is that of the median log return on the test split, of those with a rollout.
    """
    summary: Summary = run.summary
    rollouts = read_rollouts(run)
    earned = [float(rollout["log_return"].sum()) for rollout in rollouts.trials.values()]
    index = median_index(earned)
    median = None if index is None else list(rollouts.trials)[index]
    pictures = [] if median is None else _pictures(median, rollouts)
    walk = summary.details.walk
    return Page(
        about=returns.about(run),
        result=_sentence(summary),
        alarms=[*leaks(run), *returns.broken_trials(run)],
        figures=_key_figures(summary),
        sections=[
            returns.learning_section(run, "Evaluated on the validation split."),
            *([] if walk is None else [folds_section(walk)]),
            html.section(
                "Test split",
                *pictures,
                *([] if median is None or rollouts.borders else _trades(run, median)),
                html.tag("h3", "Metrics"),
                _metric_table(summary, "test"),
                html.tag("p.note", _annual(run)),
                html.fold("Validation split", _metric_table(summary, "validation")),
                html.fold("Train split", _metric_table(summary, "train")),
            ),
            *levels_sections(run),
            html.section(
                "Trials", *trial_parts(summary, None if rollouts.borders else median, TRIAL_COLUMNS)
            ),
        ],
        commands=returns.commands(run),
        facts=returns.facts(run),
    )


def leaks(run: RunData) -> list[html.Markup]:
    """Boxes about results that rest on knowing the future, or look as if they did."""
    boxes = []
    if run.scenario["data"]["leaky"]:
        lead = "This scenario shows what a leak looks like; nobody could trade like this:"
        items = ["some of its features are not known when it decides (data.leaky)"]
        boxes.append(html.alarm("The agent sees the future", lead, items))
    if run.summary.details.alarms:
        lead = "Results like these come from leaks far more often than from skill:"
        boxes.append(html.alarm("Too good to be true?", lead, run.summary.details.alarms))
    return boxes


def _sentence(summary: Summary) -> list[html.Content]:
    """What the agent makes on the test split, and what anybody else would have made."""
    details: TradingSummary = summary.details
    earned, others = details.aggregate["test"]["log_return"], details.references.splits["test"]
    one, _ = judged(summary)
    over = f" {interval(earned)} ({over_trials(earned, one)})" if has_interval(earned) else ""
    beside = ", ".join(
        f"{NAMES[name]} {figure(_earned(others, name))}"
        for name in COLUMNS
        if others[name] is not None
    )
    rules = {NAMES[name]: _earned(others, name) for name in ("buy_and_hold", "momentum", "random")}
    return [
        "On the test split, which training never saw, the agent makes a log return after fees of ",
        html.tag("strong", figure(earned.iqm)),
        f"{over}; {beside}. {beside_others(earned, rules)} {edge(evidence(summary))}".rstrip(),
    ]


def beside_others(earned: Aggregate, others: Mapping[str, float | None]) -> str:
    """Where the interval over trials lies next to the log returns of others, by what they are called."""
    if earned.low is None or earned.high is None:
        return "One trial says nothing about the next: run several for an interval."
    sides: dict[str, list[str]] = {"above": [], "below": [], "not told apart from": []}
    for name, value in others.items():
        if value is not None:
            side = "above" if earned.low > value else "not told apart from"
            sides["below" if earned.high < value else side].append(name)
    parts = [f"{side} {listed(names)}" for side, names in sides.items() if names]
    return f"The interval is {'; '.join(parts)}."


def listed(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)


def _earned(others: SplitReferences, name: str) -> float:
    """The log return of a reference; of random trading the mean."""
    value = others[name]["log_return"]
    return value.mean if name == "random" else value


def over_trials(earned: Aggregate, one: str) -> str:
    return f"interquartile mean and {interval_words(earned.n)} over {earned.n} {one}s"


def _annual(run: RunData) -> str:
    """How many bars a year has for annual figures, and why."""
    source = run.summary.details.periods_from
    bars = f"{periods_per_year(run):,.6g}"
    return f"Annual figures and ratios count {bars} bars in a year, from {source}."


def _trades(run: RunData, trial: int) -> list[html.Content]:
    """A table of the trades of one trial with the largest returns, and where all of them are."""
    trades = read_trades(run, trial)
    if trades is None or not trades.height:
        return []
    # By their return, not by their profit: an account that grows has its largest profits at its end.
    largest = trades["return"].abs().arg_sort(descending=True).head(MOST_TRADES).sort()
    head = ["Entry", "Side", "Return", "Profit after costs", "Exit", "Bars", "Entry price"]
    head += ["Exit price", "Size", "Fee"]
    rows: list[list[html.Content]] = [
        [
            _moment(trade["entry_time"]),
            trade["side"],
            share(trade["return"]),
            figure(trade["net"]),
            _moment(trade["exit_time"]) if trade["status"] == "closed" else trade["status"],
            f"{trade['bars']:,}",
            *(figure(trade[name]) for name in ("entry_price", "exit_price", "size", "fee")),
        ]
        for trade in trades[largest].iter_rows(named=True)
    ]
    path = f"{run.trial(trial).name}/{TRADES}"
    every = html.tag("a", path, attributes={"href": path})
    which = "All trades"
    if len(rows) < trades.height:
        which = f"The {len(rows)} of {trades.height:,} trades with the largest returns either way"
    note = (
        f"{which}; amounts in units of the value at the start. What reduces a position closes that part "
        "of it, at its mean entry price. Every trade with all its costs: "
    )
    return [
        html.tag("h3", f"Trades, trial {trial}"),
        html.table(head, rows, "trades"),
        html.tag("p.note", note, every),
    ]


def _moment(time: datetime) -> str:
    """A day, with the time of day where there is one."""
    return f"{time:%Y-%m-%d}" if (time.hour, time.minute) == (0, 0) else f"{time:%Y-%m-%d %H:%M}"


def _key_figures(summary: Summary) -> list[tuple[str, html.Content]]:
    """The few numbers at the top, with their names."""
    details: TradingSummary = summary.details
    test, chosen = details.aggregate["test"], details.chosen_trial
    one, trials = judged(summary)
    sharpe = trials[chosen].splits["test"].agent["sharpe"]
    return [
        ("Log return", with_interval(test["log_return"])),
        *_scores(details, "test"),
        ("Sharpe ratio", with_interval(test["sharpe"])),
        ("Maximum drawdown", with_interval(test["max_drawdown"], share)),
        (
            "Deflated Sharpe ratio",
            deflated_figure(f"{one} {chosen}", sharpe, details.deflated_sharpe),
        ),
    ]


def deflated_figure(whose: str, sharpe: float | None, deflated: float | None) -> html.Content:
    """A deflated Sharpe ratio and what it is the probability of."""
    one = whose.split()[0]
    words, meaning = (
        share(deflated),
        f"probability that {whose}'s true Sharpe ratio is above the luckiest {one}'s without skill",
    )
    if sharpe is None or sharpe <= 0:
        # A probability next to 50 % beside a loss would read as if there were skill.
        words, meaning = "none", f"{whose}'s Sharpe ratio is not above 0"
    return html.join([words, " ", html.tag("small", meaning)])


class WalkFigures(Protocol):
    """A walk, whatever it traded."""

    @property
    def folds(self) -> tuple[Fold, ...]: ...
    @property
    def seeds(self) -> Sequence[object]: ...
    @property
    def overfitting(self) -> float | None: ...
    @property
    def strategies(self) -> int: ...


def folds_section(walk: WalkFigures) -> html.Markup:
    """The folds of a walk-forward experiment: where each lies, and what was made of it."""
    head = ["Fold", "Train", "Validation", "Test", "Log return, mean and range over seeds"]
    head += ["Buy and hold"]
    rows: list[list[html.Content]] = [
        [
            str(index),
            *(" … ".join(fold.spans[split]) for split in ("train", "validation", "test")),
            _range_of([value for value in fold.log_returns if value is not None]),
            figure(fold.buy_and_hold),
        ]
        for index, fold in enumerate(walk.folds)
    ]
    count = len(walk.folds)
    note = (
        f"{count} folds × {len(walk.seeds)} seeds, trained as one program. Each fold is scaled and trained "
        "on what lies before its test, with rows left out between. A walk is one seed's tests end to end, "
        "starting flat in each fold; baselines and chance walk in the same way, and all figures above and in "
        "the next section are of whole walks."
    )
    odds = "cannot be told: it needs at least two walks over the same bars"
    if walk.overfitting is not None:
        odds = (
            f"{share(walk.overfitting)} over {walk.strategies} walks tried on these bars: how often the best "
            "of one half of time is in the lower half in the other. One half is what noise gives; near 0, "
            "choosing means something."
        )
    return html.section(
        "Walk-forward",
        html.table(head, rows, "folds"),
        html.tag("p.note", note),
        html.tag("p", html.tag("strong", "Probability of backtest overfitting: "), odds),
    )


def _range_of(values: list[float]) -> str:
    if not values:
        return "–"
    return f"{figure(float(np.mean(values)))} [{figure(min(values))}, {figure(max(values))}]"


def _scores(details: TradingSummary, split: str) -> list[tuple[str, html.Content]]:
    """The scores on a split with their names: an oracle that cannot be had, or earns nothing, gives none."""
    scores = details.score[split]
    return [
        (f"Score, {NAMES[oracle]}", with_interval(score))
        for oracle in ("model", "foresight")
        if (score := scores[oracle]) is not None and score.iqm is not None
    ]


def _pictures(trial: int, rollouts: Rollouts) -> list[html.Content]:
    """The pictures and the calendar of one trial, the value of all."""
    rollout, one = rollouts.trials[trial], "walk" if rollouts.borders else "trial"
    bars, (first, last) = len(rollout), times(rollout)[[0, -1]].astype("M8[D]")
    intro = (
        f"{bars:,} bars from {first} to {last}. Shown in bold and below: {one} {trial}, the one "
        "with the median log return on this split."
    )
    value = html.picture(
        partial(plots.equity_and_drawdown, rollouts, trial),
        "Value of the portfolio over time against the references, and drawdowns",
    )
    window, sharpe = max(LEAST_WINDOW, bars // 10), []
    if bars >= 2 * window:
        draw = partial(plots.rolling_sharpe_plot, rollouts, window, trial)
        sharpe = [html.picture(draw, "Rolling Sharpe ratio")]
    draw = partial(plots.actions_over_price, rollout, f"Position over price, {one} {trial}")
    actions = html.picture(draw, "Held position over the price")
    return [
        html.tag("p", intro),
        value,
        *sharpe,
        actions,
        *calendar_table(rollout, f"{one} {trial}"),
    ]


def calendar_table(rollout: "pl.DataFrame", whose: str) -> list[html.Content]:
    """A table of a trial's returns by month, day or hour."""
    by_time = calendar(times(rollout), rollout["log_return"])
    finite = np.abs(by_time.values[np.isfinite(by_time.values)])
    full = max(FULL_SHADE, float(np.percentile(finite, 90)) if len(finite) else 0.0)
    rows: list[list[html.Content]] = []
    for name, values, total in zip(by_time.rows, by_time.values, by_time.totals, strict=True):
        cells = [
            "" if np.isnan(cell) else html.shaded(_percent(cell), cell / full) for cell in values
        ]
        rows.append([name, *cells, _percent(total) if np.isfinite(total) else ""])
    title = f"Returns by {by_time.unit} in percent, {whose}"
    return [html.tag("h3", title), html.table(["", *by_time.columns, "Total"], rows, "calendar")]


def _percent(value: float) -> str:
    percent = 100 * value
    if abs(percent) >= 100_000:
        return figure(percent)
    digits = 1 if abs(percent) < 100 else 0
    return f"{round(percent, digits) + 0.0:,.{digits}f}".replace("-", "−")  # no −0.0


def _metric_table(summary: Summary, split: str) -> html.Markup:
    """The metrics of the agent and of each reference, with a note that says how to read them."""
    details: TradingSummary = summary.details
    agent, others = details.aggregate[split], details.references.splits[split]
    names = [name for name in COLUMNS if others[name] is not None]
    sheets: list[Mapping[str, float | None]] = [
        {"log_return": _earned(others, name)} if name == "random" else others[name]
        for name in names
    ]
    rows: list[list[html.Content]] = [
        [title, with_interval(agent[metric], write), *(write(row.get(metric)) for row in sheets)]
        for metric, (title, write) in METRICS.items()
        if metric in agent
    ]
    rows += [[title, score] + [""] * len(names) for title, score in _scores(details, split)]
    head = ["", "Agent", *(NAMES[name].capitalize() for name in names)]
    chance, earned = others.random["log_return"], agent["log_return"]
    one, _ = judged(summary)
    note = (
        f"Agent: {over_trials(earned, one) if has_interval(earned) else f'one {one}'}. Random: mean of "
        f"{chance.runs} runs, of which 95 % lie in {interval(chance)}. Score: 0 is random trading, 1 the "
        "oracle."
    )
    return html.join([html.table(head, rows, "metrics"), html.tag("p.note", note)])


def trial_parts(summary: Summary, median: int | None, columns: TrialColumns) -> list[html.Markup]:
    """A table with a row for each trial, and how to read it; `columns` are of its test split."""
    head = ["Trial", "Seed", "Log return, test", *columns]
    head += ["Log return, validation", "Log return, train", "Steps"]
    walk = summary.details.walk
    chosen = None if walk is not None else summary.details.chosen_trial
    mark = " (median)" if len(summary.trials) <= MOST_ROWS else ""  # a longer table names it itself
    rows = [
        _trial_row(trial, mark if trial.trial == median else None, columns)
        for trial in summary.trials
    ]
    earned = [trial.details.splits["test"].agent["log_return"] for trial in summary.trials]
    note = "Intervals are over the bars of the test split: what another such stretch might give."
    if chosen is not None:
        note += (
            f" Trial {chosen} is the best on the validation split, the one to choose without having seen the "
            "test."
        )
    if walk is not None:
        note += f" Trial k is of fold k modulo {len(walk.folds)}, and all of it is about that fold."
    marks = {} if chosen is None else {chosen: "best on validation"}
    return [trials_table(head, rows, earned, marks), html.tag("p.note", note)]


def _trial_row(trial: TrialResult, mark: str | None, columns: TrialColumns) -> list[html.Content]:
    """A trial's cells; one with a mark behind its number stands out."""
    splits = trial.details.splits
    agent = splits["test"].agent
    ends = {"low": agent["log_return_low"], "high": agent["log_return_high"]}
    number = str(trial.trial)
    return [
        number if mark is None else html.tag("span.chosen", number + mark),
        str(trial.seed),
        with_interval({"iqm": agent["log_return"], **ends}),
        *(cell(splits["test"]) for cell in columns.values()),
        figure(splits["validation"].agent["log_return"]),
        figure(splits["train"].agent["log_return"]),
        f"{trial.environment_steps:,}",
    ]

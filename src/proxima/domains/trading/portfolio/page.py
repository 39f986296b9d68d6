"""What a report says about a run of portfolios: the result beside rules and hindsight, and what was held."""

from functools import partial

from proxima.domains.trading.edge import edge
from proxima.domains.trading.page import METRICS as TRADING_METRICS
from proxima.domains.trading.page import (
    TrialColumns,
    beside_others,
    calendar_table,
    deflated_figure,
    folds_section,
    leaks,
    listed,
    over_trials,
    trial_parts,
)
from proxima.domains.trading.plots import equity_and_drawdown, rolling_sharpe_plot
from proxima.domains.trading.portfolio import plots
from proxima.domains.trading.portfolio.results import (
    HINDSIGHT,
    NAMES,
    RULES,
    Attribution,
    PortfolioSummary,
    evidence,
    judged,
)
from proxima.domains.trading.rollouts import Rollouts, read_rollouts, times
from proxima.report import html, returns
from proxima.report.chosen import median_index
from proxima.report.numbers import Write, figure, has_interval, interval, share, with_interval
from proxima.report.page import Page, RunData
from proxima.run.results import Summary

METRICS: dict[str, tuple[str, Write]] = {
    **{
        name: TRADING_METRICS[name]
        for name in (
            *("log_return", "total_return", "cagr", "sharpe", "sortino", "calmar", "max_drawdown"),
            *("volatility", "var_5", "omega", "tail_ratio", "psr"),
        )
    },
    "regret": ("Regret to the best constant weights", figure),
    "hit_rate": ("Bars won while invested", share),
    "turnover": ("Turnover a bar, bought and sold", share),
    "costs": ("Log return that trading cost", figure),
    "gross": ("Invested, longs and shorts together", share),
    "cash": ("Cash", share),
    "effective_assets": ("Assets, as if equally weighted", figure),
    "largest_weight": ("Largest weight", share),
}
ONLINE = ("buy_and_hold", "rebalanced", "anticor", "olmar", "newton")
TRIAL_COLUMNS: TrialColumns = {
    "Sharpe": lambda test: figure(test.agent["sharpe"]),
    "Drawdown": lambda test: share(test.agent["max_drawdown"]),
    "Turnover": lambda test: share(test.agent["turnover"]),
}
LEAST_WINDOW = 20  # bars of a rolling ratio


def page(run: RunData) -> Page:
    """The result beside the rules, learning, weights and contributions of the median trial, every trial."""
    summary: Summary = run.summary
    rollouts = read_rollouts(run, NAMES, ("time", "log_return"), own_columns=None)
    earned = [float(rollout["log_return"].sum()) for rollout in rollouts.trials.values()]
    index = median_index(earned)
    median = None if index is None else list(rollouts.trials)[index]
    details: PortfolioSummary = summary.details
    return Page(
        about=returns.about(run),
        result=_sentence(summary),
        alarms=[*leaks(run), *returns.broken_trials(run)],
        figures=_key_figures(summary),
        sections=[
            returns.learning_section(run, "Evaluated on the validation split."),
            *([] if details.walk is None else [folds_section(details.walk)]),
            html.section(
                "Test split",
                *([] if median is None else _pictures(summary, median, rollouts)),
                html.tag("h3", "Metrics"),
                _metric_table(summary, "test"),
                html.tag(
                    "p.note",
                    f"Annual figures and ratios count {details.periods_per_year:,.6g} bars in a year, from "
                    f"{details.periods_from}.",
                ),
                html.fold("Validation split", _metric_table(summary, "validation")),
                html.fold("Train split", _metric_table(summary, "train")),
            ),
            html.section(
                "Trials", *trial_parts(summary, None if rollouts.borders else median, TRIAL_COLUMNS)
            ),
        ],
        commands=returns.commands(run),
        facts=returns.facts(run),
    )


def _sentence(summary: Summary) -> list[html.Content]:
    """What the agent makes on the test split, and what anybody else would have made."""
    details: PortfolioSummary = summary.details
    earned, others = details.aggregate["test"]["log_return"], details.references["test"]
    one, _ = judged(summary)
    over = f" {interval(earned)} ({over_trials(earned, one)})" if has_interval(earned) else ""
    online = ", ".join(
        f"{name} {figure(others.rules[key]['log_return'])}"
        for key, name in RULES.items()
        if key in others.rules
    )
    known = ", ".join(
        f"{name} {figure(others.rules[key]['log_return'])}"
        for key, name in HINDSIGHT.items()
        if key in others.rules
    )
    rules = {NAMES[name]: others.rules[name]["log_return"] for name in ONLINE}
    return [
        f"On the test split, which training never saw, {len(details.assets)} assets in one account make a "
        "log return after costs of ",
        html.tag("strong", figure(earned.iqm)),
        f"{over}; {online}, random weights {figure(others.random.mean)}. With hindsight: {known}. "
        f"{beside_others(earned, rules)} {edge(evidence(summary))}".rstrip(),
    ]


def _key_figures(summary: Summary) -> list[tuple[str, html.Content]]:
    """The few numbers at the top, with their names."""
    details: PortfolioSummary = summary.details
    test, chosen = details.aggregate["test"], details.chosen_trial
    one, trials = judged(summary)
    sharpe = trials[chosen].splits["test"].agent["sharpe"]
    return [
        ("Log return", with_interval(test["log_return"])),
        *_scores(details, "test"),
        ("Regret to the best constant weights", with_interval(test["regret"])),
        ("Sharpe ratio", with_interval(test["sharpe"])),
        ("Maximum drawdown", with_interval(test["max_drawdown"], share)),
        ("Turnover a bar", with_interval(test["turnover"], share)),
        (
            "Deflated Sharpe ratio",
            deflated_figure(f"{one} {chosen}", sharpe, details.deflated_sharpe),
        ),
    ]


def _scores(details: PortfolioSummary, split: str) -> list[tuple[str, html.Content]]:
    return [
        (f"Score, {NAMES[oracle]}", with_interval(score))
        for oracle, score in details.score[split].items()
        if score is not None and score.iqm is not None
    ]


def _pictures(summary: Summary, trial: int, rollouts: Rollouts) -> list[html.Content]:
    """The value of all, and what one trial held and earned by asset."""
    rollout, one = rollouts.trials[trial], "walk" if rollouts.borders else "trial"
    bars, (first, last) = len(rollout), times(rollout)[[0, -1]].astype("M8[D]")
    assets = summary.details.assets
    intro = (
        f"{bars:,} bars of {len(assets)} assets from {first} to {last}. Shown in bold and below: {one} "
        f"{trial}, the one with the median log return on this split."
    )

    def value(width: float) -> object:
        return equity_and_drawdown(rollouts, trial, width, plots.KEYS)

    window, sharpe = max(LEAST_WINDOW, bars // 10), []
    if bars >= 2 * window:

        def ratio(width: float) -> object:
            beside = ("buy_and_hold", "rebalanced")
            return rolling_sharpe_plot(rollouts, window, trial, width, plots.KEYS, beside)

        sharpe = [html.picture(ratio, "Rolling Sharpe ratio")]
    title = f"Weights over time, {one} {trial}"
    held = partial(plots.weights_over_time, rollout, assets, title=title)
    parts = judged(summary)[1][trial].splits["test"].attribution
    added = partial(plots.contributions, parts, title=f"Log return by asset, {one} {trial}")
    return [
        html.tag("p", intro),
        html.picture(
            value, "Value of the portfolio over time against the references, and drawdowns"
        ),
        *sharpe,
        html.picture(held, "Weights of the assets over time"),
        html.picture(added, "What each asset added to the log return"),
        html.fold("Every asset", _asset_table(summary, parts)),
        *calendar_table(rollout, f"{one} {trial}"),
    ]


def _asset_table(summary: Summary, parts: Attribution) -> html.Markup:
    """What each asset added, its mean weight, and its weight in the best constant portfolio."""
    best = summary.details.references["test"].best_weights
    rows: list[list[html.Content]] = [
        [name, figure(added), share(parts.weights[name]), share(best[name])]
        for name, added in sorted(parts.assets.items(), key=lambda item: -(item[1] or 0.0))
    ]
    rows.append(["costs", figure(parts.costs), "", ""])
    if abs(parts.interest or 0.0) > 1e-12:
        rows.append(["interest", figure(parts.interest), "", ""])
    note = (
        "Assets, costs and interest add up to the log return. The last column is hindsight: the constant "
        "weights that would have ended highest without costs."
    )
    head = ["Asset", "Log return added", "Mean weight", "Best constant weight"]
    return html.join([html.table(head, rows, "assets"), html.tag("p.note", note)])


def _metric_table(summary: Summary, split: str) -> html.Markup:
    """The metrics of the agent and of each rule, with a note that says how to read them."""
    details: PortfolioSummary = summary.details
    agent, others = details.aggregate[split], details.references[split]
    names = [name for name in NAMES if name in others.rules]
    rows: list[list[html.Content]] = [
        [
            title,
            with_interval(agent[metric], write),
            *(write(others.rules[name].get(metric)) for name in names),
        ]
        for metric, (title, write) in METRICS.items()
        if metric in agent
    ]
    rows += [[title, score] + [""] * len(names) for title, score in _scores(details, split)]
    head = ["", "Agent", *(NAMES[name][:1].upper() + NAMES[name][1:] for name in names)]
    chance, earned = others.random, agent["log_return"]
    one, _ = judged(summary)
    known = listed([NAMES[name] for name in HINDSIGHT if name in others.rules])
    note = (
        f"Agent: {over_trials(earned, one) if has_interval(earned) else f'one {one}'}. Random weights make "
        f"{figure(chance.mean)} (mean of {chance.runs} runs, of which 95 % lie in {interval(chance)}). With "
        f"hindsight, which nobody has: {known}. Score: 0 is random weights, 1 the oracle. "
        "Regret: what the best constant weights make more; trading can beat them. All pay the same costs."
    )
    return html.join([html.table(head, rows, "metrics"), html.tag("p.note", note)])

"""Results as a notebook shows them: a small table in place of text."""

from typing import Any

from proxima.report import statistics
from proxima.report.html import Markup, join, table, tag
from proxima.report.numbers import NOTHING, figure, interval, with_interval

MOST_ROWS = 12  # trials that are shown


def summary_html(summary: Any) -> str:
    """A run's Summary: its trials, the interval over them, and what others got on the same episodes."""
    title = f"{summary.scenario} · {summary.algorithm}, run {summary.run_id}"
    parts = [tag("p", tag("strong", title))]
    if summary.aggregate is not None:
        parts += [_trials(summary), _intervals(summary)]
    if changes := _changes(summary):
        parts.append(table(["held out", "before", "after", "interval"], changes))
    parts += [
        tag("p", f"{alarm.kind} (trial {alarm.trial}): {alarm.text}") for alarm in summary.alarms
    ]
    place = summary.paths.get("report") or summary.paths.get("run", "")
    return tag("div", *parts, tag("p", tag("small", f"in {place}"))).html


def _trials(summary: Any) -> Markup:
    head = ["trial", "seed", "steps", "episodes", "greedy", "random", "stopped"]
    rows = [
        [
            str(trial.trial),
            str(trial.seed),
            f"{trial.environment_steps:,}",
            f"{trial.episodes:,}",
            _mean(trial.evaluation),
            _mean(trial.random),
            trial.stopped,
        ]
        for trial in summary.trials[:MOST_ROWS]
    ]
    more = len(summary.trials) - MOST_ROWS
    return join([table(head, rows), *([tag("p", f"… and {more} more")] if more > 0 else [])])


def _mean(episodes: Any) -> str:
    return NOTHING if episodes is None else figure(episodes.return_mean)


def _intervals(summary: Any) -> Markup:
    """The figure that counts, then scores and baselines."""
    words = statistics.interval_words(summary.aggregate.n)
    rows: list[list[Any]] = [[summary.metric, with_interval(summary.aggregate)]]
    rows += [[name, with_interval(value)] for name, value in summary.scores.items()]
    rows += [[name, with_interval(value)] for name, value in summary.baselines.items()]
    rows += [[name, _mean(episodes)] for name, episodes in summary.references.items()]
    return table(["", f"interquartile mean over trials [{words}]"], rows)


def _changes(summary: Any) -> list[list[str]]:
    """Held-out figures of a pipeline's stages, before and after; one training has them in its trials."""
    return [
        [name, figure(change.before.iqm), figure(change.after.iqm), interval(change.after)]
        for name, change in summary.figures.items()
        if not name.startswith("train/")
    ]

"""A run's curriculum: which levels its trials trained on when, and what their policies earn on each."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from proxima.core.records import Record
from proxima.report import style
from proxima.report.comparison import captioned
from proxima.report.html import Content, Markup, picture, section, table, tag
from proxima.report.numbers import figure, with_interval
from proxima.report.page import RunData
from proxima.report.plots import series
from proxima.report.statistics import Curve
from proxima.report.style import BLUE, GREY, SKY, VERMILLION, WIDTH, Scale

METRIC = "curriculum/level"
MOST_LINES = 20  # trials whose levels are drawn one by one
RULES = {
    "steps": "A level begins at a step that the scenario says.",
    "success": "The next level begins when the last episodes of the present one score enough.",
    "progress": "Every episode's level is drawn: the faster a level's scores change, the likelier it is.",
}
SMOOTH = "The curve is the mean level of the episodes that begin."


def level_words(parameters: Mapping[str, float]) -> str:
    """A level by its numbers: length 0.5, polemass_length 0.05."""
    return ", ".join(f"{name} {value:g}" for name, value in parameters.items())


def levels_sections(run: RunData) -> list[Markup]:
    """A section about the curriculum; none where the run has none."""
    levels = run.summary["levels"]
    if not levels:
        return []
    trials = range(len(run.summary["trials"]))
    curves = [series(run.metrics(trial, ""), METRIC) for trial in trials]
    rule = run.scenario["curriculum"]["by"]
    trained = sum(not level["beyond"] for level in levels)
    note = RULES[rule] + (f" {SMOOTH}" if rule == "progress" else "")
    return [
        section(
            "Curriculum",
            picture(
                lambda width: levels_figure(curves, trained, width=width),
                "The level of training episodes over environment steps, all trials",
            ),
            tag("p.note", note),
            picture(
                lambda width: returns_figure(levels, width=width),
                "Greedy and random return on every level",
            ),
            levels_table(levels),
            tag(
                "p.note",
                "Every level is played on the same episodes' seeds. The result above is of the task "
                "itself, env.params as the scenario has them; levels beyond were never trained on.",
            ),
        )
    ]


def levels_table(levels: Sequence[Record]) -> Markup:
    """Every level's numbers, and the returns on it over trials."""
    rows: list[list[Content]] = [
        [
            _name(levels, index),
            level_words(level["parameters"]),
            with_interval(level["returns"]),
            figure(level["random"]["iqm"]),
        ]
        for index, level in enumerate(levels)
    ]
    return table(["Level", "Numbers", "Greedy return", "Random policy"], rows)


def levels_figure(
    curves: Sequence[Curve], trained: int, title: str = "", width: float = WIDTH
) -> Any:
    """Every trial's level over its steps; of many trials, the lowest, mean and highest."""
    lines = [np.asarray(curve, dtype=float) for curve in curves]  # (2, chunks)
    lines = [line for line in lines if line.size]
    many = len(lines) > MOST_LINES
    words = "Line: mean over trials; shade: the lowest to the highest."
    drawn, axes = captioned(words if many else "A line for each trial.", width)
    if many:
        steps = np.unique(np.concatenate([line[0] for line in lines]))
        held = np.stack([np.interp(steps, line[0], line[1]) for line in lines])
        axes.fill_between(steps, held.min(axis=0), held.max(axis=0), color=SKY, alpha=0.4)
        axes.plot(steps, held.mean(axis=0), color=BLUE, linewidth=2.0)
    else:
        for line in lines:
            axes.plot(*line, color=BLUE, linewidth=1.3, alpha=0.6, marker=".", markersize=3)
    last = max((line[0, -1] for line in lines), default=1.0)
    x = style.steps_scale(1.05 * float(last), 10 * width / WIDTH)
    ticks = _whole_ticks(trained)
    y = Scale(0.8, trained + 0.2, ticks, [str(tick) for tick in ticks])
    style.frame(axes, title, "environment steps", "level of training episodes", x=x, y=y)
    return drawn


def returns_figure(levels: Sequence[Record], title: str = "", width: float = WIDTH) -> Any:
    """Interquartile means on every level with their intervals, and the random policy."""
    drawn, axes = captioned(
        "Dot: interquartile mean over trials; bar: its interval. Shaded: never trained on.", width
    )
    trained = sum(not level["beyond"] for level in levels)
    for colour, key, label in ((GREY, "random", "random policy"), (BLUE, "returns", "greedy")):
        means = [np.nan if (iqm := level[key]["iqm"]) is None else iqm for level in levels]
        axes.plot(range(len(levels)), means, "o-", color=colour, label=label, linewidth=1.2)
    for index, level in enumerate(levels):
        low, high = level["returns"]["low"], level["returns"]["high"]
        if low is not None:
            axes.vlines([index], [low], [high], color=BLUE, linewidth=2.4, alpha=0.5)
    if trained < len(levels):
        axes.axvspan(trained - 0.5, len(levels) - 0.5, color=VERMILLION, alpha=0.08, linewidth=0)
    shown = [tick - 1 for tick in _whole_ticks(len(levels), int(8 * width / WIDTH))]
    names = [_tick_words(levels, index) for index in shown]
    x = Scale(-0.5, len(levels) - 0.5, shown, names)
    style.frame(axes, title, "", "mean episode return", x=x)
    style.legend(axes, loc="lower right", bbox_to_anchor=(1, 1), borderaxespad=0.2, ncols=2)
    return drawn


def _name(levels: Sequence[Record], index: int) -> str:
    """A level's number, or how far it is beyond the last one that was trained on."""
    trained = sum(not level["beyond"] for level in levels)
    return str(index + 1) if index < trained else f"beyond {index + 1 - trained}"


def _tick_words(levels: Sequence[Record], index: int) -> str:
    """What a tick says: the level, and below it its first number."""
    name, value = next(iter(levels[index]["parameters"].items()))
    return f"{_name(levels, index)}\n{name} {value:g}"


def _whole_ticks(count: int, most: int = 8) -> list[int]:
    """Some of 1 to `count`, evenly spaced."""
    step = -(-count // most)
    return list(range(1, count + 1, step))

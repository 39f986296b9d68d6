"""Pictures of language stages: how a policy did over its updates, and all that a stage recorded.

Rows are those of metrics.jsonl: `step` is the number of updates done, the rest figures by name.
"""

import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from proxima.report.plots import series
from proxima.report.style import (
    BLUE,
    INK,
    LETTER,
    RIGHT,
    SKY,
    VERMILLION,
    WIDTH,
    Box,
    Scale,
    caption,
    inches,
    new_figure,
    rule,
    save,
    scale,
    span,
    steps_scale,
    stroke,
    write,
)

Rows = Sequence[Mapping[str, Any]]
LOOKS = {"eval": (BLUE, 1.9), "train": (SKY, 1.1), "loss": (SKY, 1.1)}
OTHER = (INK, 1.1)
SIDE, GAP = 0.62, 0.68  # room left of the first panel and of the others, for the names of values
MOST_LINES = 20  # trials that are drawn one by one
MOST_DOTS = 40  # of a line
TALL, BETWEEN = 1.3, 0.58  # a panel's height, and from it to the next


class Panel(NamedTuple):
    """One small picture: its title, and metrics drawn in it, the later over the earlier."""

    title: str
    keys: tuple[str, ...]
    alarms: tuple[str, ...] = ()  # kinds of alarm that are about it
    share: bool = False  # values are shares, written in per cent


PERFORMANCE = (
    Panel("reward of a completion", ("train/score", "eval/reward"), ("hacking",)),
    Panel("judge's opinion", ("eval/judge",), ("hacking",)),
    Panel("KL per completion (nats)", ("train/kl", "eval/kl"), ("kl",)),
    Panel("end by themselves", ("train/eos_rate", "eval/eos_rate"), ("endings",), share=True),
    Panel("tokens per completion", ("train/length", "eval/length")),
    Panel("different bigrams", ("eval/distinct_2",), ("repetition",), share=True),
)
APART = ("time/", "memory/")  # what a stage records besides learning
ALARMS = {
    "kl": "KL over its budget",
    "hacking": "reward up, judge down",
    "repetition": "repetition",
    "endings": "no more endings",
}


def performance(
    path: str | Path,
    rows: Rows,
    alarms: Mapping[str, int] | None = None,
    budget: float | None = None,
    title: str = "Performance over updates",
) -> None:
    """Draw reward, judge, KL, endings, lengths and variety over a policy's updates.

    alarms: by kind, the update at which each began; budget: nats of KL per completion.
    """
    save(performance_figure(rows, alarms or {}, budget, title), path)


def performance_figure(
    rows: Rows,
    alarms: Mapping[str, int],
    budget: float | None = None,
    title: str = "",
    width: float = WIDTH,
) -> Any:
    """What `performance` draws."""
    words = ["Thick, with dots: held-out prompts, and twice their standard error."]
    if any(len(series(rows, key)[0]) for panel in PERFORMANCE for key in panel.keys[:-1]):
        words.append("Thin: training.")
    words += _budget_words(budget)
    if alarms:
        began = (f"{ALARMS.get(kind, kind)} at update {step}" for kind, step in alarms.items())
        words.append(f"Upright dashes: alarms ({'; '.join(began)}).")

    def draw(figure: Any, box: Box, x: Scale, panel: Panel) -> None:
        _one_trial(figure, box, x, rows, panel, budget if "kl" in panel.alarms else None)
        for step in (step for kind, step in alarms.items() if kind in panel.alarms):
            _upright(figure, box, x, step)

    shown = [panel for panel in PERFORMANCE if any(len(series(rows, k)[0]) for k in panel.keys)]
    return _grid(shown, _last([rows]), draw, title, " ".join(words), width)


def trials_figure(
    trials: Sequence[Rows], budget: float | None = None, title: str = "", width: float = WIDTH
) -> Any:
    """The held-out figures of several trials over updates, thin or as shades, and their mean, thick."""
    words = [_trials_words(len(trials)), *_budget_words(budget)]
    lines = {panel: [series(rows, panel.keys[-1]) for rows in trials] for panel in PERFORMANCE}
    shown = [panel for panel in PERFORMANCE if any(len(steps) for steps, _ in lines[panel])]

    def draw(figure: Any, box: Box, x: Scale, panel: Panel) -> None:
        mine = budget if "kl" in panel.alarms else None
        recorded = [line for line in lines[panel] if len(line[0])]
        y = _scale([values for _, values in recorded], panel, mine)
        rule(figure, box, x, y, panel.title, 8)
        _across(figure, (box, x, y), mine)
        _draw_trials(figure, (box, x, y), recorded, len(trials))

    return _grid(shown, _last(trials), draw, title, " ".join(words), width)


def _trials_words(trials: int) -> str:
    if trials == 1:
        return "Measured on held-out prompts."
    if trials <= MOST_LINES:
        return "Thin: the trials, on held-out prompts. Thick: their mean."
    return "On held-out prompts. Shades: 5 % to 95 % and 25 % to 75 % of the trials. Thick: their mean."


def _draw_trials(
    figure: Any,
    axes: tuple[Box, Scale, Scale],
    lines: Sequence[tuple[NDArray[np.float64], NDArray[np.float64]]],
    trials: int,
) -> None:
    """Every trial's line, or shades over many, and their mean."""
    thick: dict[str, Any] = {"color": BLUE, "linewidth": 1.9, "marker": "o", "markersize": 3.2}
    if trials == 1:
        stroke(figure, *inches(*axes, *lines[0]), **thick)
        return
    steps, values = _on_common_steps(lines)
    if trials <= MOST_LINES:
        for line in lines:
            stroke(figure, *inches(*axes, *line), color=SKY, linewidth=1.0)
    else:
        low, first, third, high = np.nanpercentile(values, (5, 25, 75, 95), axis=0)
        _shade(figure, axes, steps, (low, high), SKY, 0.22)
        _shade(figure, axes, steps, (first, third), SKY, 0.45)
    if len(steps) > MOST_DOTS:
        thick["marker"] = None
    stroke(figure, *inches(*axes, steps, np.nanmean(values, axis=0)), **thick)


def _on_common_steps(
    lines: Sequence[tuple[NDArray[np.float64], NDArray[np.float64]]],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """All steps at which some trial was measured, and (trials, steps) values, NaN where one was not.

    A trial that stopped early is then no longer part of a mean, rather than standing still in it.
    """
    steps = np.unique(np.concatenate([steps for steps, _ in lines]))
    values = np.full((len(lines), len(steps)), np.nan)
    for row, (own, measured) in zip(values, lines, strict=True):
        row[np.searchsorted(steps, own)] = measured
    return steps, values


def stage(path: str | Path, rows: Rows, title: str) -> None:
    """Draw all that a stage recorded of its learning; a figure of training and of held-out together."""
    names = {key: key.rpartition("/")[2] for row in rows for key in row if key != "step"}
    names = {key: name for key, name in names.items() if not key.startswith(APART)}
    order = {key: rank for rank, key in enumerate(LOOKS)}
    panels = []
    for name in dict.fromkeys(names.values()):
        if name.endswith("_error"):
            continue
        keys = [key for key, own in names.items() if own == name and len(series(rows, key)[0])]
        keys.sort(key=lambda key: -order.get(key.partition("/")[0], len(order)))
        if keys:
            panels.append(Panel(name.replace("_", " "), tuple(keys)))

    def draw(figure: Any, box: Box, x: Scale, panel: Panel) -> None:
        _one_trial(figure, box, x, rows, panel, None)

    words = "Thick, with dots: held-out. Thin: training."
    save(_grid(panels, _last([rows]), draw, title, words, WIDTH), path)


def _budget_words(budget: float | None) -> list[str]:
    return [] if budget is None else ["Dashes across: the KL budget."]


def _last(trials: Sequence[Rows]) -> float:
    return max((row["step"] for rows in trials for row in rows), default=1) or 1


def _grid(
    panels: Sequence[Panel],
    last: float,
    draw: Callable[[Any, Box, Scale, Panel], None],
    title: str,
    words: str,
    width: float,
) -> Any:
    """Panels in rows over one scale of updates up to the last, each drawn into its box; words below."""
    columns = 3 if width >= WIDTH else 2
    lines = max(1, -(-len(panels) // columns))
    words = words if panels else "Nothing was recorded."
    wrapped = textwrap.wrap(words, round(122 * width / WIDTH))
    below = 0.62 + 0.16 * len(wrapped)
    top = 0.62 if title else 0.3
    figure = new_figure(below + lines * (TALL + BETWEEN) - BETWEEN + top, width)
    caption(figure, "\n".join(wrapped))
    write(figure, 0.12, figure.get_figheight() - 0.26, title, 12)
    wide = (width - SIDE - RIGHT - GAP * (columns - 1)) / columns
    x = steps_scale(1.03 * last, most=4.5 if columns == 3 else 3.5)
    for index, panel in enumerate(panels):
        line, column = divmod(index, columns)
        bottom = below + (lines - 1 - line) * (TALL + BETWEEN)
        box = Box(SIDE + column * (wide + GAP), bottom, wide, TALL)
        over = index + columns < len(panels)  # the panel below has the same steps
        draw(figure, box, x._replace(names=()) if over else x, panel)
        if not over:
            write(figure, box.left + wide / 2, bottom - 0.2, "updates", 8, ha="center", va="top")
    return figure


def _one_trial(
    figure: Any, box: Box, x: Scale, rows: Rows, panel: Panel, budget: float | None
) -> None:
    drawn = [(key, *series(rows, key)) for key in panel.keys]
    reach = [line for key, _, values in drawn for line in (values, *_edges(rows, key))]
    y = _scale(reach, panel, budget)
    rule(figure, box, x, y, panel.title, 8)
    _across(figure, (box, x, y), budget)
    for key, steps, values in drawn:
        if len(steps):
            _line(figure, (box, x, y), key, steps, values, _edges(rows, key))


def _scale(reach: Sequence[NDArray[np.float64]], panel: Panel, budget: float | None) -> Scale:
    with_budget = [*reach, np.array([] if budget is None else [0.0, budget])]
    y = scale(*span(np.concatenate(with_budget)), most=5)
    if not panel.share:
        return y
    return y._replace(names=[f"{100 * tick:.3g} %" for tick in y.ticks])


def _across(figure: Any, axes: tuple[Box, Scale, Scale], height: float | None) -> None:
    if height is not None:
        x = axes[1]
        across, up = inches(*axes, [x.low, x.high], [height, height])
        stroke(figure, across, up, color=INK, linewidth=1.0, linestyle=(0, (5, 3)))


def _edges(rows: Rows, key: str) -> list[NDArray[np.float64]]:
    """Twice the standard error below and above a held-out figure; nothing where it is not known."""
    steps, values = series(rows, key)
    known, errors = series(rows, f"{key}_error")
    if not len(known) or not len(steps):
        return []
    spread = 2 * np.interp(steps, known, errors)
    return [values - spread, values + spread]


def _line(
    figure: Any,
    axes: tuple[Box, Scale, Scale],
    key: str,
    steps: NDArray[np.float64],
    values: NDArray[np.float64],
    edges: Sequence[NDArray[np.float64]],
) -> None:
    colour, width = LOOKS.get(key.partition("/")[0], OTHER)
    if edges:
        _shade(figure, axes, steps, (edges[0], edges[1]), colour, 0.16)
    dots = "o" if len(steps) == 1 or (key.startswith("eval/") and len(steps) <= MOST_DOTS) else None
    style: dict[str, Any] = {"color": colour, "linewidth": width, "marker": dots, "markersize": 3.2}
    stroke(figure, *inches(*axes, steps, values), **style)


def _shade(
    figure: Any,
    axes: tuple[Box, Scale, Scale],
    steps: NDArray[np.float64],
    ends: tuple[NDArray[np.float64], NDArray[np.float64]],
    colour: str,
    alpha: float,
) -> None:
    """The area between a lower and an upper line."""
    from matplotlib.patches import Polygon

    low, high = ends
    outline = np.concatenate([steps, steps[::-1]]), np.concatenate([low, high[::-1]])
    corners = np.transpose(inches(*axes, *outline))
    fill = {"facecolor": colour, "alpha": alpha, "transform": figure.dpi_scale_trans}
    figure.add_artist(Polygon(corners, linewidth=0, zorder=0, **fill))


def _upright(figure: Any, box: Box, x: Scale, step: float) -> None:
    across = box.left + box.width * (step - x.low) / (x.high - x.low)
    style = {"color": VERMILLION, "linewidth": 1.3, "linestyle": (0, (4, 2))}
    stroke(figure, [across, across], [box.bottom, box.bottom + box.height], **style)
    room = across + 8 * LETTER * 7 < box.left + box.width
    write(
        figure,
        across + (0.04 if room else -0.04),
        box.bottom + 0.05,
        "alarm",
        8,
        color=VERMILLION,
        ha="left" if room else "right",
    )

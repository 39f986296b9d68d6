"""Pictures of language stages: how a policy did over its updates, and all that a stage recorded.

Rows are those of metrics.jsonl: `step` is the number of updates done, the rest figures by name.
"""

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from proxima.report import style
from proxima.report.plots import series
from proxima.report.style import INK, SKY, WIDTH, Box, Scale, inches, stroke, write

Rows = Sequence[Mapping[str, Any]]
Floats = NDArray[np.float64]
LOOKS = {"eval": (style.BLUE, 1.9), "train": (SKY, 1.1), "loss": (SKY, 1.1)}
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


class Line(NamedTuple):
    """Values over updates."""

    steps: Floats
    values: Floats
    colour: str
    width: float
    dots: bool = False


class Shade(NamedTuple):
    """The area between a lower and an upper line."""

    steps: Floats
    low: Floats
    high: Floats
    colour: str
    alpha: float


class Drawing(NamedTuple):
    """What is drawn in a panel."""

    panel: Panel
    lines: list[Line]
    shades: list[Shade]
    budget: float | None = None  # of KL: dashes across
    alarms: Sequence[int] = ()  # the updates at which they began: upright dashes


PERFORMANCE = (
    Panel("reward of a completion", ("train/score", "eval/reward"), ("hacking",)),
    Panel("judge's opinion", ("eval/judge",), ("hacking",)),
    Panel("KL per completion (nats)", ("train/kl", "eval/kl"), ("kl",)),
    Panel("end by themselves", ("train/eos_rate", "eval/eos_rate"), ("endings",), share=True),
    Panel("tokens per completion", ("train/length", "eval/length")),
    Panel("different bigrams", ("eval/distinct_2",), ("repetition",), share=True),
    # of policies that learn from pairs
    Panel("pairs told apart", ("train/accuracy", "eval/accuracy"), share=True),
    Panel("margin of pairs", ("train/reward_margin", "eval/reward_margin")),
)
APART = ("time/", "memory/")  # what a stage records besides learning
ALARMS = {
    "kl": "KL over its budget",
    "hacking": "reward up, judge down",
    "repetition": "repetition",
    "endings": "no more endings",
}


def performance(
    path: str | Path, rows: Rows, alarms: Mapping[str, int], budget: float | None = None
) -> None:
    """Draw reward, judge, KL, endings, lengths and variety over a policy's updates.

    alarms: by kind, the update at which each began; budget: nats of KL per completion.
    """
    style.save(performance_figure(rows, alarms, budget, "Performance over updates"), path)


def performance_figure(
    rows: Rows,
    alarms: Mapping[str, int],
    budget: float | None = None,
    title: str = "",
    width: float = WIDTH,
) -> Any:
    """What `performance` draws."""
    words = ["Thick, with dots: held-out prompts, and twice their standard error."]
    drawings = []
    for panel in PERFORMANCE:
        began = [step for kind, step in alarms.items() if kind in panel.alarms]
        drawings.append(_of_trial(rows, panel, budget)._replace(alarms=began))
    if any(line.colour == SKY for drawing in drawings for line in drawing.lines):
        words.append("Thin: training.")
    words += _budget_words(budget)
    if alarms:
        names = (f"{ALARMS.get(kind, kind)} at update {step}" for kind, step in alarms.items())
        words.append(f"Upright dashes: alarms ({'; '.join(names)}).")
    return _grid(drawings, [rows], title, " ".join(words), width)


def trials_figure(
    trials: Sequence[Rows], budget: float | None = None, title: str = "", width: float = WIDTH
) -> Any:
    """The held-out figures of several trials over updates, thin or as shades, and their mean, thick."""
    words = [_trials_words(len(trials)), *_budget_words(budget)]
    drawings = [_of_trials(trials, panel, budget) for panel in PERFORMANCE]
    return _grid(drawings, trials, title, " ".join(words), width)


def stage(path: str | Path, rows: Rows, title: str) -> None:
    """Draw all that a stage recorded of its learning; a figure of training and of held-out together."""
    keys = dict.fromkeys(key for row in rows for key in row if key != "step")
    panels: dict[str, list[str]] = {}
    for key in keys:
        if not key.startswith(APART) and not key.endswith("_error"):
            panels.setdefault(key.rpartition("/")[2], []).append(key)
    drawings = []
    for name, own in panels.items():
        own.sort(key=lambda key: key.startswith("eval/"))  # held-out figures over the others
        drawings.append(_of_trial(rows, Panel(name.replace("_", " "), tuple(own))))
    words = "Thick, with dots: held-out. Thin: training."
    style.save(_grid(drawings, [rows], title, words, WIDTH), path)


def _trials_words(trials: int) -> str:
    if trials == 1:
        return "Measured on held-out prompts."
    if trials <= MOST_LINES:
        return "Thin: the trials, on held-out prompts. Thick: their mean."
    return "On held-out prompts. Shades: 5 % to 95 % and 25 % to 75 % of the trials. Thick: their mean."


def _of_trial(rows: Rows, panel: Panel, budget: float | None = None) -> Drawing:
    """A trial's metrics, held-out ones with twice their standard error where it is known."""
    drawing = Drawing(panel, [], [], budget if "kl" in panel.alarms else None)
    for key in panel.keys:
        steps, values = series(rows, key)
        if not len(steps):
            continue
        area = key.partition("/")[0]
        colour, width = LOOKS.get(area, OTHER)
        dots = len(steps) == 1 or (area == "eval" and len(steps) <= MOST_DOTS)
        drawing.lines.append(Line(steps, values, colour, width, dots))
        known, errors = series(rows, f"{key}_error")
        if len(known):
            spread = 2 * np.interp(steps, known, errors)
            drawing.shades.append(Shade(steps, values - spread, values + spread, colour, 0.16))
    return drawing


def _of_trials(trials: Sequence[Rows], panel: Panel, budget: float | None) -> Drawing:
    """Every trial's held-out line, or shades over many, and their mean."""
    drawing = Drawing(panel, [], [], budget if "kl" in panel.alarms else None)
    lines = [line for rows in trials if len((line := series(rows, panel.keys[-1]))[0])]
    if not lines:
        return drawing
    steps, values = _on_common_steps(lines)
    if len(trials) > MOST_LINES:
        low, first, third, high = np.nanpercentile(values, (5, 25, 75, 95), axis=0)
        drawing.shades.append(Shade(steps, low, high, SKY, 0.22))
        drawing.shades.append(Shade(steps, first, third, SKY, 0.45))
    elif len(trials) > 1:
        drawing.lines.extend(Line(*line, SKY, 1.0) for line in lines)
    mean = np.nanmean(values, axis=0)
    drawing.lines.append(Line(steps, mean, *LOOKS["eval"], dots=len(steps) <= MOST_DOTS))
    return drawing


def _on_common_steps(lines: Sequence[tuple[Floats, Floats]]) -> tuple[Floats, Floats]:
    """All steps at which some trial was measured, and (trials, steps) values, NaN where one was not.

    A trial that stopped early is then no longer part of a mean, rather than standing still in it.
    """
    steps = np.unique(np.concatenate([steps for steps, _ in lines]))
    values = np.full((len(lines), len(steps)), np.nan)
    for row, (own, measured) in zip(values, lines, strict=True):
        row[np.searchsorted(steps, own)] = measured
    return steps, values


def _budget_words(budget: float | None) -> list[str]:
    return [] if budget is None else ["Dashes across: the KL budget."]


def _grid(
    drawings: Sequence[Drawing], trials: Sequence[Rows], title: str, words: str, width: float
) -> Any:
    """Panels in rows over one scale of updates, those in which nothing was recorded left out; words below."""
    drawings = [drawing for drawing in drawings if drawing.lines]
    columns = 3 if width >= WIDTH else 2
    lines = max(1, -(-len(drawings) // columns))
    words = words if drawings else "Nothing was recorded."
    wrapped = textwrap.wrap(words, round(122 * width / WIDTH))
    below = 0.62 + 0.16 * len(wrapped)
    top = 0.62 if title else 0.3
    figure = style.new_figure(below + lines * (TALL + BETWEEN) - BETWEEN + top, width)
    style.caption(figure, "\n".join(wrapped))
    write(figure, 0.12, figure.get_figheight() - 0.26, title, 12)
    wide = (width - SIDE - style.RIGHT - GAP * (columns - 1)) / columns
    last = max((row["step"] for rows in trials for row in rows), default=1) or 1
    x = style.steps_scale(1.03 * last, most=4.5 if columns == 3 else 3.5)
    for index, drawing in enumerate(drawings):
        line, column = divmod(index, columns)
        bottom = below + (lines - 1 - line) * (TALL + BETWEEN)
        box = Box(SIDE + column * (wide + GAP), bottom, wide, TALL)
        over = index + columns < len(drawings)  # the panel below has the same steps
        _draw(figure, box, x._replace(names=()) if over else x, drawing)
        if not over:
            write(figure, box.left + wide / 2, bottom - 0.2, "updates", 8, ha="center", va="top")
    return figure


def _draw(figure: Any, box: Box, x: Scale, drawing: Drawing) -> None:
    from matplotlib.patches import Polygon

    reach = [line.values for line in drawing.lines]
    reach += [edge for shade in drawing.shades for edge in (shade.low, shade.high)]
    if drawing.budget is not None:
        reach.append(np.array([0.0, drawing.budget]))
    y = style.scale(*style.span(np.concatenate(reach)), most=5)
    if drawing.panel.share:
        y = y._replace(names=[f"{100 * tick:.3g} %" for tick in y.ticks])
    style.rule(figure, box, x, y, drawing.panel.title, 8)
    if drawing.budget is not None:
        across, up = inches(box, x, y, [x.low, x.high], [drawing.budget] * 2)
        stroke(figure, across, up, color=INK, linewidth=1.0, linestyle=(0, (5, 3)))
    for steps, low, high, colour, alpha in drawing.shades:
        outline = np.concatenate([steps, steps[::-1]]), np.concatenate([low, high[::-1]])
        corners = np.transpose(inches(box, x, y, *outline))
        fill = {"facecolor": colour, "alpha": alpha, "transform": figure.dpi_scale_trans}
        figure.add_artist(Polygon(corners, linewidth=0, zorder=0, **fill))
    for steps, values, colour, width, dots in drawing.lines:
        dot = {"marker": "o" if dots else None, "markersize": 3.2}
        across, up = inches(box, x, y, steps, values)
        stroke(figure, across, up, color=colour, linewidth=width, **dot)
    for step in drawing.alarms:
        _upright(figure, box, x, step)


def _upright(figure: Any, box: Box, x: Scale, step: float) -> None:
    across = box.left + box.width * (step - x.low) / (x.high - x.low)
    dashes = {"color": style.VERMILLION, "linewidth": 1.3, "linestyle": (0, (4, 2))}
    stroke(figure, [across, across], [box.bottom, box.bottom + box.height], **dashes)
    room = across + 8 * style.LETTER * 7 < box.left + box.width
    beside, side = (across + 0.04, "left") if room else (across - 0.04, "right")
    write(figure, beside, box.bottom + 0.05, "alarm", 8, color=style.VERMILLION, ha=side)

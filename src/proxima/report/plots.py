"""Pictures of one trial: how it learnt, what it earns, what it does."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from proxima.core.records import Record
from proxima.report import style
from proxima.report.page import Rows
from proxima.report.style import ABOVE, BELOW, BLUE, GREEN, INK, LEFT, RIGHT, WIDTH, Box, Scale

SPEED = ("time/steps_per_second", "steps per second")  # a panel that every trial has
COLUMNS = 3
MOST_ACTION_ROWS = 6
TITLE_SIZE = 9.6  # of a panel's letters


def learning_curve(
    path: str | Path,
    rows: Rows,
    panels: Sequence[tuple[str, str]] = (),
    target: float | None = None,
) -> None:
    """Draw a trial's metrics.jsonl rows: returns on top, a small panel per metric below.

    panels: metrics and their titles, as the algorithm names them; one that was not recorded has no
    panel. Speed and where the time went come last.
    """
    shown = [panel for panel in (*panels, SPEED) if len(series(rows, panel[0])[0])]
    times = _time_keys(rows)
    count = len(shown) + bool(times)
    lines = -(-count // COLUMNS)
    tall, short, gap = 2.5, 1.1, 0.72
    below = 0.3 + lines * (short + 0.42) if lines else 0.0
    figure = style.new_figure(ABOVE + tall + BELOW + below)
    axes = style.add_axes(figure, Box(LEFT, below + BELOW, WIDTH - LEFT - RIGHT, tall))
    _returns(axes, rows)
    style.draw_target(axes, target)
    last = 1.05 * max((row["step"] for row in rows), default=1)
    x = style.steps_scale(last)
    style.frame(axes, "Learning curve", "environment steps", "mean episode return", x=x)
    style.legend(axes)

    # the small panels are plain lines, for axes of their own would take most of the time
    width = (WIDTH - LEFT - RIGHT - gap * (COLUMNS - 1)) / COLUMNS
    x = style.steps_scale(last, most=4.5)
    for index in range(count):
        line, column = divmod(index, COLUMNS)
        bottom = 0.3 + (lines - 1 - line) * (short + 0.42)
        box = Box(LEFT + column * (width + gap), bottom, width, short)
        names = x.names if index + COLUMNS >= count else ()  # the panel below has the same
        if index < len(shown):
            _panel(figure, box, x._replace(names=names), rows, shown[index])
        else:
            _time_split(figure, box, x._replace(names=names), rows, times)
    style.save(figure, path)


def reward_plot(
    path: str | Path,
    evaluation: Record | None,
    sampled: Record | None = None,
    random: Record | None = None,
) -> None:
    """Draw every episode's return of the greedy, the sampled and the random policy, with means."""
    policies = {"greedy": evaluation, "sampled": sampled, "random": random}
    colours = {"greedy": BLUE, "sampled": GREEN, "random": style.GREY}
    shown = {name: policy["returns"] for name, policy in policies.items() if policy is not None}
    height = 0.8 * len(shown)
    figure = style.new_figure(ABOVE + height + BELOW)
    axes = style.add_axes(figure, Box(LEFT, BELOW, WIDTH - LEFT - 1.6, height))
    for row, (name, returns) in enumerate(shown.items()):
        style.strip(axes, row, returns, colours[name], vertical=False)
        middle = BELOW + height - 0.8 * (row + 0.5)
        style.write(figure, WIDTH - 1.48, middle, describe(returns), va="center")
    axes.set_xlim(style.span([value for returns in shown.values() for value in returns]))
    y = Scale(len(shown) - 0.5, -0.5, range(len(shown)), list(shown))
    legend = "episode return  (dot: episode, box: quartiles, diamond: mean)"
    style.frame(axes, "Episode returns after training", legend, y=y)
    style.save(figure, path)


def action_plot(
    path: str | Path,
    actions: ArrayLike,
    rewards: ArrayLike,
    action_kind: Literal["discrete", "continuous"],
    labels: Sequence[str] | None = None,
) -> None:
    """Draw one episode's actions over time with their histogram beside, and its return below.

    actions is (steps,) or (steps, dimensions); labels name the discrete actions or the dimensions.
    """
    array = np.asarray(actions)
    array = array.reshape(len(array), -1)
    rewards = np.asarray(rewards, dtype=float).ravel()
    rows = min(array.shape[1], MOST_ACTION_ROWS)
    title = "Actions of one greedy episode"
    if rows < array.shape[1]:
        title = f"{title} (first {rows} of {array.shape[1]} dimensions)"
    tall, short, gap = (1.7 if rows == 1 else 1.1), 1.1, 0.35
    figure = style.new_figure(ABOVE + rows * (tall + gap) + short + BELOW)
    lanes = labels if action_kind == "discrete" and rows == 1 else None
    left = max(LEFT, 0.4 + 9 * style.LETTER * max(map(len, lanes or ("",))))
    beside = 1.7
    width = WIDTH - left - RIGHT - beside - gap
    time = style.scale(-0.01 * len(array), 1.01 * max(len(array), 1), most=width / 0.6, whole=True)
    for row in range(rows):
        bottom = BELOW + short + gap + (rows - 1 - row) * (tall + gap)
        over_time = style.add_axes(figure, Box(left, bottom, width, tall))
        histogram = style.add_axes(figure, Box(left + width + gap, bottom, beside, tall))
        name = "action" if rows == 1 else f"action {row}"
        if action_kind == "discrete":
            y = _discrete_row(over_time, histogram, array[:, row].astype(int), lanes)
        else:
            name = name if labels is None else labels[row]
            y = _continuous_row(over_time, histogram, array[:, row].astype(float))
        style.frame(over_time, title if row == 0 else "", "", name, time._replace(names=()), y)
        share = style.scale(0.0, max(0.01, histogram.get_xlim()[1]), most=3)
        share = share._replace(names=[f"{100 * tick:.3g} %" for tick in share.ticks])
        heading = "share of steps" if row == 0 else ""
        style.frame(histogram, heading, x=share, y=y._replace(names=()))
    returns = style.add_axes(figure, Box(left, BELOW, width, short))
    returns.plot(np.arange(len(rewards)), np.cumsum(rewards), color=GREEN, linewidth=1.5)
    style.frame(returns, "", "step of the episode", "return so far", x=time)
    text = f"{len(rewards):,} steps\nreturn {style.number(rewards.sum())}"
    style.write(figure, left + width + gap, BELOW + short / 2, text, 10, va="center")
    style.save(figure, path)


def series(rows: Rows, key: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The steps and values of one metric, where it was recorded and finite."""
    pairs = [(row["step"], row[key]) for row in rows if row.get(key) is not None]
    array = np.asarray(pairs, dtype=float).reshape(-1, 2)
    array = array[np.isfinite(array[:, 1])]
    return array[:, 0], array[:, 1]


def describe(returns: ArrayLike) -> str:
    """Mean and spread of some returns in a line, with what was left out."""
    array = np.asarray(returns, dtype=float)
    finite = array[np.isfinite(array)]
    lost = len(array) - len(finite)
    note = f"\n{lost} not finite, left out" if lost else ""
    if not len(finite):
        return f"no finite return{note}"
    if len(finite) > 1 and np.ptp(finite) == 0:
        return f"all {len(finite)} episodes {style.number(finite[0])}{note}"
    mean, deviation = style.number(finite.mean()), style.number(finite.std())
    return f"mean {mean} ± {deviation}\nn = {len(finite)}{note}"


def _returns(axes: Any, rows: Rows) -> None:
    lines = (
        ("episode/return", style.SKY, 1.2, "training episodes (exploring)"),
        ("eval/return_mean", BLUE, 2.0, "evaluation (greedy)"),
    )
    for key, colour, width, label in lines:
        steps, returns = series(rows, key)
        dots = "o" if len(steps) <= 60 else None
        if len(steps):
            line = {"linewidth": width, "marker": dots, "markersize": 1 + width}
            axes.plot(steps, returns, color=colour, label=label, **line)


def _time_keys(rows: Rows) -> list[str]:
    """The seconds spent per chunk by part: all of time/ but rates and sums."""
    keys = dict.fromkeys(key for row in rows for key in row if key.startswith("time/"))
    apart = ["per_second", "total", "elapsed"]
    if "time/learn" in keys:  # host environments tell training in its parts
        apart.append("time/train")
    parts = [key for key in keys if not any(word in key for word in apart)]
    return [key for key in parts if series(rows, key)[1].any()]


def _panel(figure: Any, box: Box, x: Scale, rows: Rows, panel: tuple[str, str]) -> None:
    metric, title = panel
    steps, values = series(rows, metric)
    y = style.scale(*style.span(values), most=4)
    # a title may end above the gap between panels, but does not run into the next one
    most = int((box.width + 0.6) / (TITLE_SIZE * style.LETTER))
    title = title if len(title) <= most else title[: most - 1].rstrip() + "…"
    style.rule(figure, box, x, y, title, 8)
    lone = "o" if len(steps) == 1 else None
    across, up = style.inches(box, x, y, steps, values)
    style.stroke(figure, across, up, color=INK, linewidth=1.2, marker=lone, markersize=4)


def _time_split(figure: Any, box: Box, x: Scale, rows: Rows, keys: Sequence[str]) -> None:
    from matplotlib.patches import Polygon

    edges = np.repeat([0, *(row["step"] for row in rows)], 2)[1:-1]  # each chunk's begin and end
    parts = np.array([[row.get(key) or 0.0 for row in rows] for key in keys], dtype=float)
    tops = np.cumsum(np.nan_to_num(parts), axis=0)
    y = style.scale(0.0, 1.5 * tops.max(), most=4)  # with room for the names
    style.rule(figure, box, x, y, "seconds per chunk", 8)
    right = box.left + box.width
    # the largest first: each later one hides all of it but its own part
    for index in reversed(range(len(keys))):
        name = keys[index].removeprefix("time/").removesuffix("_seconds").replace("_", " ")
        colour = style.COLOURS[index % len(style.COLOURS)]
        outline = style.inches(box, x, y, edges, np.repeat(tops[index], 2))
        corners = [(outline[0][0], box.bottom), *zip(*outline, strict=True)]
        corners.append((outline[0][-1], box.bottom))
        fill = {"facecolor": colour, "transform": figure.dpi_scale_trans}
        figure.add_artist(Polygon(corners, linewidth=0, zorder=0, **fill))
        letters = {"color": colour, "ha": "right", "va": "top"}
        style.write(figure, right, box.bottom + 0.96 * box.height, name, 8, **letters)
        right -= 8 * style.LETTER * (len(name) + 2)


def _discrete_row(
    over_time: Any, histogram: Any, actions: NDArray[np.int64], labels: Sequence[str] | None
) -> Scale:
    known = len(labels) if labels is not None else 0
    lanes = np.arange(max(actions.max(initial=0) + 1, known, 2))
    marks = {"marker": "|", "markersize": 12, "linestyle": "none", "markeredgewidth": 1}
    over_time.plot(np.arange(len(actions)), actions, color=BLUE, **marks)
    share = np.bincount(actions, minlength=len(lanes)) / max(len(actions), 1)
    histogram.barh(lanes, share, height=0.6, color=BLUE)
    names = [str(lane) for lane in lanes]
    names[:known] = list(labels or ())
    named = names if len(lanes) <= 18 else ()
    return Scale(-0.6, len(lanes) - 0.4, lanes.tolist(), named)


def _continuous_row(over_time: Any, histogram: Any, actions: NDArray[np.float64]) -> Scale:
    finite = actions[np.isfinite(actions)]
    over_time.plot(np.arange(len(actions)), actions, color=BLUE, linewidth=1.2)
    counts, edges = np.histogram(finite, bins=25)
    share = counts / max(len(finite), 1)
    histogram.stairs(share, edges, orientation="horizontal", fill=True, color=BLUE)
    return style.scale(*style.span(finite), most=4)

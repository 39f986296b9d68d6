"""Pictures of one trial: how it learnt, what it earns, what it does."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from proxima.report.style import (
    ABOVE,
    BELOW,
    BLUE,
    COLOURS,
    GREEN,
    GREY,
    INK,
    LEFT,
    LETTER,
    RIGHT,
    SKY,
    WIDTH,
    Scale,
    add_axes,
    draw_target,
    frame,
    legend,
    new_figure,
    number,
    save,
    scale,
    steps_scale,
    strip,
)

PANELS = {
    "loss/policy": "policy loss",
    "loss/value": "value loss",
    "train/entropy": "entropy (nats)",
    "train/approx_kl": "approximate KL (nats)",
    "train/clip_fraction": "clipped share",
    "train/explained_variance": "explained variance",
    "train/grad_norm": "gradient norm",
    "time/steps_per_second": "steps per second",
}
COLUMNS = 3
MOST_ACTION_ROWS = 6


def learning_curve(
    path: str | Path,
    rows: Sequence[Mapping[str, Any]],
    target: float | None = None,
    title: str = "Learning curve",
) -> None:
    """Draw a trial's metrics.jsonl rows: returns on top, what else was recorded below."""
    panels = [key for key in PANELS if len(series(rows, key)[0])]
    times = _time_keys(rows)
    count = len(panels) + bool(times)
    lines = -(-count // COLUMNS)
    tall, short, gap = 2.5, 1.1, 0.72
    below = 0.3 + lines * (short + 0.42) if lines else 0.0
    figure = new_figure(ABOVE + tall + BELOW + below)

    axes = add_axes(figure, LEFT, below + BELOW, WIDTH - LEFT - RIGHT, tall)
    _returns(axes, rows)
    draw_target(axes, target)
    frame(axes, title, "environment steps", "mean episode return", x=steps_scale(axes))
    legend(axes)

    width = (WIDTH - LEFT - RIGHT - gap * (COLUMNS - 1)) / COLUMNS
    for place in range(count):
        line, column = divmod(place, COLUMNS)
        bottom = 0.3 + (lines - 1 - line) * (short + 0.42)
        panel = add_axes(figure, LEFT + column * (width + gap), bottom, width, short)
        if place < len(panels):
            steps, values = series(rows, panels[place])
            lone = "o" if len(steps) == 1 else None
            panel.plot(steps, values, color=INK, linewidth=1.2, marker=lone, markersize=4)
            name = PANELS[panels[place]]
        else:
            _time_split(panel, rows, times)
            name = "seconds per chunk"
        x = steps_scale(panel)
        if place + COLUMNS < count:
            x = x._replace(names=())  # the panel below has the same
        frame(panel, name, x=x, size=8)
        panel.set_title(name, loc="left", fontsize=9.5, color=INK, y=1.0, pad=4)
    save(figure, path)


def reward_plot(
    path: str | Path,
    evaluation: Mapping[str, Any],
    sampled: Mapping[str, Any] | None = None,
    random: Mapping[str, Any] | None = None,
    title: str = "Episode returns after training",
) -> None:
    """Draw every episode's return of the greedy, the sampled and the random policy, with means."""
    policies = {"greedy": evaluation, "sampled": sampled, "random": random}
    shown = {name: found["returns"] for name, found in policies.items() if found is not None}
    height = 0.8 * len(shown)
    figure = new_figure(ABOVE + height + BELOW)
    axes = add_axes(figure, LEFT, BELOW, WIDTH - LEFT - 1.6, height)
    for row, (name, returns) in enumerate(shown.items()):
        colour = {"greedy": BLUE, "sampled": GREEN, "random": GREY}[name]
        strip(axes, row, returns, colour, vertical=False)
        axes.text(
            1.02,
            row,
            describe(returns),
            transform=axes.get_yaxis_transform(),
            va="center",
            fontsize=9,
            color=INK,
        )
    _widen(axes, [value for returns in shown.values() for value in returns])
    y = Scale(len(shown) - 0.5, -0.5, range(len(shown)), list(shown))
    frame(axes, title, "episode return  (dot: episode, box: quartiles, diamond: mean)", y=y)
    save(figure, path)


def action_plot(
    path: str | Path,
    actions: ArrayLike,
    rewards: ArrayLike,
    action_kind: Literal["discrete", "continuous"],
    labels: Sequence[str] | None = None,
    title: str = "Actions of one greedy episode",
) -> None:
    """Draw one episode's actions over time with their histogram beside, and its return below.

    actions is (steps,) or (steps, dimensions); labels name the discrete actions or the dimensions.
    """
    array = np.asarray(actions)
    array = array.reshape(len(array), -1)
    rewards = np.asarray(rewards, dtype=float).ravel()
    rows = min(array.shape[1], MOST_ACTION_ROWS)
    if rows < array.shape[1]:
        title = f"{title} (first {rows} of {array.shape[1]} dimensions)"
    tall, short, gap = (1.7 if rows == 1 else 1.1), 1.1, 0.35
    figure = new_figure(ABOVE + rows * (tall + gap) + short + BELOW)
    lanes = labels if action_kind == "discrete" and rows == 1 else None
    left = max(LEFT, 0.4 + 9 * LETTER * max(map(len, lanes or ("",))))
    beside = 1.7
    width = WIDTH - left - RIGHT - beside - gap
    time = scale(-0.01 * len(array), 1.01 * max(len(array), 1), most=width / 0.6, whole=True)
    for row in range(rows):
        bottom = BELOW + short + gap + (rows - 1 - row) * (tall + gap)
        over_time = add_axes(figure, left, bottom, width, tall)
        histogram = add_axes(figure, left + width + gap, bottom, beside, tall)
        name = "action" if rows == 1 else f"action {row}"
        if action_kind == "discrete":
            y = _discrete_row(over_time, histogram, array[:, row].astype(int), lanes)
        else:
            name = name if labels is None else labels[row]
            y = _continuous_row(over_time, histogram, array[:, row].astype(float), tall / 0.38)
        frame(over_time, title if row == 0 else "", "", name, time._replace(names=()), y)
        share = scale(0.0, max(0.01, histogram.get_xlim()[1]), most=3)
        share = share._replace(names=[f"{100 * place:.3g} %" for place in share.places])
        heading = "share of steps" if row == 0 else ""
        frame(histogram, heading, x=share, y=y._replace(names=()))
    returns = add_axes(figure, left, BELOW, width, short)
    returns.plot(np.arange(len(rewards)), np.cumsum(rewards), color=GREEN, linewidth=1.5)
    frame(returns, "", "step of the episode", "return so far", x=time)
    text = f"{len(rewards):,} steps\nreturn {number(rewards.sum())}"
    place = ((left + width + gap) / WIDTH, (BELOW + short / 2) / figure.get_figheight())
    figure.text(*place, text, va="center", color=INK)
    save(figure, path)


def series(
    rows: Sequence[Mapping[str, Any]], key: str
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
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
        return f"all {len(finite)} episodes {number(finite[0])}{note}"
    return f"mean {number(finite.mean())} ± {number(finite.std())}\nn = {len(finite)}{note}"


def _returns(axes: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    lines = (
        ("episode/return", SKY, 1.2, "training episodes (exploring)"),
        ("eval/return_mean", BLUE, 2.0, "evaluation (greedy)"),
    )
    for key, colour, width, label in lines:
        steps, returns = series(rows, key)
        dots = "o" if len(steps) <= 60 else None
        if len(steps):
            look = {"linewidth": width, "marker": dots, "markersize": 1 + width}
            axes.plot(steps, returns, color=colour, label=label, **look)


def _time_keys(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The seconds spent per chunk by part: all of time/ but rates and sums."""
    keys = dict.fromkeys(key for row in rows for key in row if key.startswith("time/"))
    apart = ("per_second", "total", "elapsed")
    parts = [key for key in keys if not any(word in key for word in apart)]
    return [key for key in parts if series(rows, key)[1].any()]


def _time_split(axes: Any, rows: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> None:
    edges = [0, *(row["step"] for row in rows)]
    base = np.zeros(len(rows))
    for place, key in enumerate(keys):
        part = np.asarray([row.get(key) or 0.0 for row in rows], dtype=float)
        name = key.removeprefix("time/").removesuffix("_seconds").replace("_", " ")
        top = base + np.nan_to_num(part)
        colour = COLOURS[place % len(COLOURS)]
        axes.stairs(top, edges, baseline=base, fill=True, color=colour, linewidth=0, label=name)
        base = top
    axes.set_ylim(0, 1.5 * base.max())  # room for the names
    legend(axes, fontsize=7, ncols=2, frameon=False, loc="upper right", handlelength=1)


def _discrete_row(
    over_time: Any, histogram: Any, actions: NDArray[np.int64], labels: Sequence[str] | None
) -> Scale:
    known = len(labels) if labels is not None else 0
    lanes = np.arange(max(actions.max(initial=0) + 1, known, 2))
    look = {"marker": "|", "markersize": 12, "linestyle": "none", "markeredgewidth": 1}
    over_time.plot(np.arange(len(actions)), actions, color=BLUE, **look)
    share = np.bincount(actions, minlength=len(lanes)) / max(len(actions), 1)
    histogram.barh(lanes, share, height=0.6, color=BLUE)
    names = [str(lane) for lane in lanes]
    names[:known] = list(labels or ())
    return Scale(-0.6, len(lanes) - 0.4, lanes, names if len(lanes) <= 18 else ())


def _continuous_row(
    over_time: Any, histogram: Any, actions: NDArray[np.float64], most: float
) -> Scale:
    finite = actions[np.isfinite(actions)]
    over_time.plot(np.arange(len(actions)), actions, color=BLUE, linewidth=1.2)
    counts, edges = np.histogram(finite, bins=25)
    share = counts / max(len(finite), 1)
    histogram.stairs(share, edges, orientation="horizontal", fill=True, color=BLUE)
    return scale(*histogram.get_ylim(), most=most)


def _widen(axes: Any, values: ArrayLike) -> None:
    """Leave room around the values, also where they are all one number."""
    array = np.asarray(values, dtype=float)
    array = array[np.isfinite(array)]
    if len(array):
        room = 0.06 * np.ptp(array) or max(1.0, 0.05 * abs(array[0]))
        axes.set_xlim(array.min() - room, array.max() + room)

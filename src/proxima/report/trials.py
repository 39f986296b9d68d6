"""Tables of trials and of runs: their rows, drawn as a picture or shown on a page."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from proxima.core.errors import ProximaError
from proxima.core.records import Record
from proxima.report import statistics, style
from proxima.report.chosen import Scores, roles
from proxima.report.comparison import RunCurves
from proxima.report.html import Content, Markup, fold, join, table
from proxima.report.numbers import signed
from proxima.report.style import INK, WIDTH, Box

MOST_ROWS = 12  # of a table that is shown whole
SPREAD = {"± std": "return_std", "min": "return_min", "max": "return_max"}

Row = Mapping[str, Any]  # what a results.json or a comparison says, by the name of its column


def trial_rows(results: Sequence[Record]) -> list[Row]:
    """The per-trial table: one row per results.json; no spread of a trial that was not judged."""
    means = statistics.trial_means(episode_returns(results))
    others = ("random", "reference")  # the random policy, or the one that training started from
    beside = next((name for name in others if any(r[name] for r in results)), "random")
    return [
        {
            "trial": result["trial"],
            "seed": result["seed"],
            "return": float(mean),
            **{
                name: None if result["evaluation"] is None else result["evaluation"][key]
                for name, key in SPREAD.items()
            },
            beside: result[beside]["return_mean"] if result[beside] else None,
            "steps": result["environment_steps"],
            "steps/s": round(result["steps_per_second"]),
            "converged at": result["converged_at_step"] if result["converged"] else "no",
        }
        for result, mean in zip(results, means, strict=True)
    ]


def comparison_rows(runs: Sequence[RunCurves]) -> list[dict[str, Any]]:
    """One row per run: what its trials earn after training, and what that took."""
    rows = []
    for name, _, results in runs:
        means = statistics.trial_means(episode_returns(results))
        summary, used = statistics.aggregate(means), int(np.isfinite(means).sum())
        steps, speed = (
            round(float(np.mean([result[key] for result in results]))) if results else None
            for key in ("environment_steps", "steps_per_second")
        )
        converged = sum(bool(result["converged"]) for result in results)
        rows.append(
            {
                "name": name,
                "trials": len(results),
                **{key: summary[key] for key in ("iqm", "low", "high", "failed")},
                "coverage": statistics.coverage(used) if used > 1 else None,
                "steps": steps,
                "steps/s": speed,
                "converged": f"{converged}/{len(results)}",
            }
        )
    return rows


def improvement(first: RunCurves, second: RunCurves) -> dict[str, Any]:
    """How much better the first run's trials are than the second's on the same episodes."""
    one, other = episode_returns(first.results), episode_returns(second.results)
    counts = {len(returns) for returns in (*one, *other) if len(returns)}
    if len(counts) > 1:
        raise ProximaError(
            f"{first.name} and {second.name} were evaluated on different numbers of episodes "
            f"({', '.join(map(str, sorted(counts)))}), so their episodes cannot be paired; "
            "give both the same evaluation.final_episodes"
        )
    names = {"first": first.name, "second": second.name}
    return names | statistics.paired_comparison(one, other)


def difference_words(difference: dict[str, Any]) -> str:
    """The mean difference per episode, its interval where there is one, and over what it is."""
    names = f"{difference['first']} − {difference['second']}"
    if difference["difference"] is None:
        return f"{names}: no trial of one can be paired with a trial of the other"
    text, over = f"{names}: {signed(difference['difference'])}", ""
    if difference["difference_low"] is not None:
        count, unit = difference["n"], difference["unit"]
        low, high = (signed(difference[f"difference_{end}"]) for end in ("low", "high"))
        text += f" [{low}, {high}]"
        over = f" ({statistics.interval_words(count)} over {count} pairs of {unit}s)"
    return f"{text} per episode{over}; better on {100 * difference['probability']:.3g} % of paired episodes"


def episode_returns(results: Sequence[Record], policy: str = "evaluation") -> list[Sequence[float]]:
    """The returns of each trial's episodes; none of a trial that broke down before it was judged."""
    episodes = [result[policy] for result in results]
    return [() if played is None else played["returns"] for played in episodes]


def column_cells(values: Sequence[Any]) -> list[str]:
    """A column's values as text, its fractions with equally many decimals."""
    fractions = [value for value in values if isinstance(value, float)]
    digits = max(map(style.decimals, fractions), default=0)
    return [_cell(value, digits) for value in values]


def trials_table(
    head: Sequence[Content],
    rows: Sequence[Sequence[Content]],
    scores: Scores,
    also: Mapping[int, str] | None = None,
) -> Markup:
    """A page's table with a row per trial; of many first those that `roles` names, then a fold of all.

    also: further trials to name among many, and what each stands for.
    """
    whole = table(head, rows)
    if len(rows) <= MOST_ROWS:
        return whole
    named = roles(scores)
    for trial, role in (also or {}).items():
        named[trial] = f"{named[trial]}, {role}" if trial in named else role
    short = [[named[trial], *rows[trial]] for trial in named]
    return join([table(["", *head], short), fold(f"All {len(rows)} trials", whole)])


def draw_table(path: str | Path, rows: Sequence[Row], title: str = "Trials") -> None:
    """Draw rows as a table; the columns are the first row's keys.

    All trials are evaluated on the same episodes, so the random policy earns the same in each: a
    `random` column with one value is written once, below the table. Of many trials only those that
    stand for all by their `return` have a row, or the first ones where there is no such column.
    """
    notes = []
    names = list(rows[0]) if rows else ["no trials"]
    if len(rows) > 1 and "random" in names and len({row["random"] for row in rows}) == 1:
        names.remove("random")
        random = column_cells([rows[0]["random"]])[0]
        notes.append(f"The random policy earns {random} on the same episodes.")
    if len(rows) > MOST_ROWS:
        shown = list(rows[:MOST_ROWS])
        if "return" in names:
            chosen = roles([row["return"] for row in rows])
            shown = [{"": role, **rows[index]} for index, role in chosen.items()]
            names = ["", *names]
        notes.insert(0, f"… and {len(rows) - len(shown)} more, in summary.json.")
        rows = shown
    columns = [[name, *column_cells([row[name] for row in rows])] for name in names]
    style.save(_table_figure(columns, title, " ".join(notes)), path)


def _table_figure(columns: Sequence[Sequence[str]], title: str, note: str) -> Any:
    """Columns of text, each with its name on top, the first aligned to the left."""
    count = len(columns[0]) - 1
    widths = np.array([max(1.15 * len(cells[0]), *map(len, cells)) + 2 for cells in columns])
    edges = np.cumsum(widths) / widths.sum()
    height, below = 0.34 * (count + 1), 0.38 if note else 0.1
    figure = style.new_figure(height + below + 0.45)
    box = Box(0.1, below, WIDTH - 0.2, height)
    axes = style.add_axes(figure, box)
    axes.set(xlim=(0, 1), ylim=(count + 1, 0))
    style.write(figure, box.left, below + height + 0.08, title, 12)
    for line in range(1, count + 1, 2):
        axes.axhspan(line, line + 1, color="#F2F2F2", linewidth=0)
    size = min(10.0, 900 / widths.sum())  # so that many columns still fit the width
    for index, cells in enumerate(columns):
        x, align = (0.01, "left") if index == 0 else (edges[index] - 0.01, "right")
        for line, cell in enumerate(cells):
            font = {"fontsize": size, "weight": "normal" if line else "bold", "color": INK}
            axes.text(x, line + 0.5, cell, font, ha=align, va="center_baseline")
    axes.axhline(1, color=INK, linewidth=1)
    style.caption(figure, note)
    return figure


def _cell(value: Any, digits: int) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return style.number(value, digits)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)

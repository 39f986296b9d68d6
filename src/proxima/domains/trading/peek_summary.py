"""What a first look at data says, of one asset or of several."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proxima.core.errors import ProximaError
from proxima.domains.trading.market import Scaler
from proxima.domains.trading.splits import day_of

GAP = 1.5  # times the usual distance of two bars

Draw = Callable[[Path], None]  # prices to a file


def summary_of(
    path: Path,
    made: Mapping[str, Any] | None,
    time: NDArray[np.datetime64],
    about: Mapping[str, Any],
    prepared: Callable[[], Mapping[str, Any]],
) -> dict[str, Any]:
    """What is in a file, as JSON; `about` is said of its prices, and `prepared` gives splits and features.

    Where it cannot be prepared as configured, `problem` says why.
    """
    summary: dict[str, Any] = {
        "source": str(path),
        "made": dict(made) if made else None,
        "rows": len(time),
        "first": str(time[0]),
        "last": str(time[-1]),
        "spacing": _spacing(time),
        **about,
        "splits": [],
        "features": [],
        "problem": None,
    }
    try:
        summary |= prepared()
    except ProximaError as failure:
        summary["problem"] = str(failure)
    return summary


def spans_of(summary: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """The first and the last time of each split."""
    return {split["split"]: (split["first"], split["last"]) for split in summary["splits"]}


def fold_notes(fold: int | str, begins: Callable[[], Sequence[np.datetime64]]) -> list[str]:
    """Which fold is shown of a walk over all of them, and when the tests of each begin."""
    if fold != "all":
        return []
    listed = ", ".join(f"{number} from {day_of(time)}" for number, time in enumerate(begins()))
    return [
        "data.split.fold: all; splits and features are those of fold 0, whose scalers are fit on its own "
        f"train split. Folds test in turn: {listed}"
    ]


def _spacing(time: NDArray[np.datetime64]) -> dict[str, Any]:
    """The usual seconds between two bars, and the gaps: where they are clearly more."""
    if len(time) < 2:
        return {"usual_seconds": None, "gaps": 0, "longest_seconds": None, "longest_after": None}
    steps = np.diff(time).astype(np.int64)  # microseconds
    usual = float(np.median(steps))
    longest = int(np.argmax(steps))
    return {
        "usual_seconds": usual / 1e6,
        "gaps": int(np.sum(steps > GAP * usual)),
        "longest_seconds": float(steps[longest]) / 1e6,
        "longest_after": str(time[longest]),
    }


def features_of(
    names: Sequence[str], scalers: Sequence[Scaler], features: Mapping[str, NDArray[Any]]
) -> list[dict[str, Any]]:
    """Each feature's scaler, and what it looks like in every split (T, ..., k) once scaled."""
    return [
        {
            "feature": name,
            **scalers[index]._asdict(),
            **{split: spread(values[..., index]) for split, values in features.items()},
        }
        for index, name in enumerate(names)
    ]


def spread(values: NDArray[Any]) -> dict[str, float]:
    """Mean, deviation and range."""
    return {
        "mean": float(values.mean(dtype=np.float64)),
        "std": float(values.std(dtype=np.float64)),
        "min": float(values.min()),
        "max": float(values.max()),
    }

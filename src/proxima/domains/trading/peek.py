"""A first look at data: what is there, what is missing, how it is split, what an agent will see."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from proxima.core.errors import ProximaError
from proxima.domains.trading.config import DataConfig
from proxima.domains.trading.data import Source, prepare
from proxima.domains.trading.market import SPLITS, Prepared

GAP = 1.5  # times the usual distance of two bars


class Peek(NamedTuple):
    """A summary in plain data, and the prices it is about."""

    summary: dict[str, Any]
    time: NDArray[np.datetime64]
    close: NDArray[np.float64]


def peek(source: Source, config: DataConfig) -> Peek:
    """What is in a source; where it cannot be prepared as configured, `problem` says why."""
    time, close = source.frame["time"].to_numpy(), source.frame["close"].to_numpy()
    summary: dict[str, Any] = {
        "source": str(source.path),
        "made": dict(source.made) if source.made else None,
        "rows": len(time),
        "first": str(time[0]),
        "last": str(time[-1]),
        "spacing": _spacing(time),
        "close": _spread(close),
        "log_return": _spread(np.diff(np.log(close))) if len(close) > 1 else None,
        "splits": [],
        "features": [],
        "problem": None,
    }
    try:
        prepared = prepare(source, config)
        summary |= {"splits": _splits(prepared), "features": _features(prepared)}
    except ProximaError as failure:
        summary["problem"] = str(failure)
    return Peek(summary, time, close)


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


def _splits(prepared: Prepared) -> list[dict[str, Any]]:
    return [
        {
            "split": name,
            "rows": len(prepared.split(name).close),
            "first_row": prepared.bounds[name][0],
            "first": str(prepared.split(name).time[0]),
            "last": str(prepared.split(name).time[-1]),
            "log_return": float(
                np.log(prepared.split(name).close[-1] / prepared.split(name).close[0])
            ),
        }
        for name in SPLITS
    ]


def _features(prepared: Prepared) -> list[dict[str, Any]]:
    """Each feature's scaler, and what it looks like in every split once scaled."""
    return [
        {
            "feature": name,
            "mean": prepared.scalers[index].mean,
            "std": prepared.scalers[index].std,
            **{split: _spread(prepared.split(split).features[:, index]) for split in SPLITS},
        }
        for index, name in enumerate(prepared.feature_names)
    ]


def _spread(values: NDArray[Any]) -> dict[str, float]:
    return {
        "mean": float(values.mean(dtype=np.float64)),
        "std": float(values.std(dtype=np.float64)),
        "min": float(values.min()),
        "max": float(values.max()),
    }

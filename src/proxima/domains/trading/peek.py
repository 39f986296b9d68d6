"""A first look at data: what is there, what is missing, how it is split, what an agent will see."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proxima.core.errors import ProximaError
from proxima.domains.trading.config import DataConfig
from proxima.domains.trading.data import Source, one_fold, prepare_source, read_source
from proxima.domains.trading.domain import TradingScenario
from proxima.domains.trading.market import SPLITS, Prepared
from proxima.domains.trading.ohlcv import PACKED_ENDINGS
from proxima.domains.trading.plots import price_plot
from proxima.domains.trading.splits import day_of
from proxima.scenario import load

FILE_ENDINGS = (".parquet", ".csv", *PACKED_ENDINGS)
GAP = 1.5  # times the usual distance of two bars


def peek_at(reference: str, plot: Path) -> dict[str, Any]:
    """A summary of a data file's or a scenario's data, whose prices are drawn."""
    if Path(reference).suffix.lower() in FILE_ENDINGS:
        config, name = DataConfig(path=reference), Path(reference).stem
    else:
        scenario = load(reference)
        if not isinstance(scenario, TradingScenario):
            raise ProximaError(
                f"{scenario.name}: is not about trading; name a trading scenario "
                "(proxima scenarios lists all) or a .parquet or .csv file"
            )
        config, name = scenario.data, scenario.name
    source = read_source(config, name)
    summary = peek(source, config)
    time, close = source.frame["time"].to_numpy(), source.frame["close"].to_numpy()
    splits = {split["split"]: (split["first"], split["last"]) for split in summary["splits"]}
    try:
        price_plot(plot, time, close, splits, f"{name}: {len(close):,} bars")
    except OSError as failure:
        raise ProximaError(f"--plot {plot}: cannot write there ({failure.strerror})") from failure
    return summary


def peek(source: Source, config: DataConfig) -> dict[str, Any]:
    """What is in a source, as JSON; where it cannot be prepared as configured, `problem` says why."""
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
        "notes": list(source.notes),
        "problem": None,
    }
    try:
        prepared = prepare_source(source, one_fold(config, 0))
        summary |= {"splits": _splits(prepared), "features": _features(prepared)}
        notes = [note.removeprefix(f"{source.path}: ") for note in prepared.notes]
        summary["notes"] = [*notes, *_fold_notes(source, config)]
    except ProximaError as failure:
        summary["problem"] = str(failure)
    return summary


def _fold_notes(source: Source, config: DataConfig) -> list[str]:
    """Which fold is shown of a walk over all of them, and where the others test."""
    if config.split.fold != "all":
        return []
    tests = [
        prepare_source(source, one_fold(config, fold)).test for fold in range(config.split.folds)
    ]
    begins = ", ".join(f"{fold} from {day_of(test.time[0])}" for fold, test in enumerate(tests))
    return [
        "data.split.fold: all; splits and features are those of fold 0, whose scalers are fit on its own "
        f"train split. Folds test in turn: {begins}"
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


def _splits(prepared: Prepared) -> list[dict[str, Any]]:
    markets = [(name, prepared.split(name)) for name in SPLITS]
    return [
        {
            "split": name,
            "rows": len(market.close),
            "first_row": prepared.bounds[name][0],
            "first": str(market.time[0]),
            "last": str(market.time[-1]),
            "log_return": float(np.log(market.close[-1] / market.close[0])),
        }
        for name, market in markets
    ]


def _features(prepared: Prepared) -> list[dict[str, Any]]:
    """Each feature's scaler, and what it looks like in every split once scaled."""
    return [
        {
            "feature": name,
            **prepared.scalers[index]._asdict(),
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

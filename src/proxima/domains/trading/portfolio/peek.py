"""A first look at the prices of several assets."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from proxima.domains.trading.accounting import Floats
from proxima.domains.trading.data import one_fold
from proxima.domains.trading.market import SPLITS
from proxima.domains.trading.peek_summary import (
    Draw,
    features_of,
    fold_notes,
    spans_of,
    spread,
    summary_of,
)
from proxima.domains.trading.portfolio.config import PanelConfig
from proxima.domains.trading.portfolio.data import (
    PreparedPanel,
    Source,
    prepare_source,
    read_source,
)
from proxima.domains.trading.portfolio.plots import prices_over_time, write


def look(config: PanelConfig, name: str) -> tuple[dict[str, Any], Draw]:
    """A summary of a panel of prices, and how they are drawn."""
    source = read_source(config, name)
    summary = peek_panel(source, config)
    panel, time = source.panel, source.panel.time.to_numpy()
    title = f"{name}: {len(panel.assets):,} assets, {panel.bars:,} bars"
    make = partial(prices_over_time, time, _closes(source), panel.assets, spans_of(summary), title)
    return summary, partial(write, make)


def peek_panel(source: Source, config: PanelConfig) -> dict[str, Any]:
    """What is in a source, as JSON; where it cannot be prepared as configured, `problem` says why."""
    panel, closes = source.panel, _closes(source)
    about = {
        "closes_only": panel.closes_only,
        "assets": {asset: _about_asset(closes[:, k]) for k, asset in enumerate(panel.assets)},
        "notes": list(panel.notes),
    }
    time = panel.time.to_numpy()
    return summary_of(source.path, source.made, time, about, partial(_prepared, source, config))


def _closes(source: Source) -> Floats:
    return np.stack([frame["close"].to_numpy() for frame in source.panel.frames], axis=1)


def _about_asset(close: Floats) -> Mapping[str, Any]:
    """An asset's closes, and its log returns a bar."""
    return {
        "close": spread(close),
        "log_return": spread(np.diff(np.log(close))) if len(close) > 1 else None,
        "total_log_return": float(np.log(close[-1] / close[0])),
    }


def _prepared(source: Source, config: PanelConfig) -> dict[str, Any]:
    prepared = prepare_source(source, one_fold(config, 0))
    features = {split: prepared.splits[split].features for split in SPLITS}
    notes = [note.removeprefix(f"{source.path}: ") for note in prepared.notes]

    def begins() -> list[np.datetime64]:
        folds = (one_fold(config, fold) for fold in range(config.split.folds))
        return [prepare_source(source, fold).splits["test"].time[0] for fold in folds]

    return {
        "splits": _splits(source, prepared),
        "features": features_of(prepared.feature_names, prepared.scalers, features),
        "notes": [*notes, *fold_notes(config.split.fold, begins)],
    }


def _splits(source: Source, prepared: PreparedPanel) -> list[dict[str, Any]]:
    """Each split, with the log return of as much of each asset at its start."""
    time = source.panel.time.to_numpy()
    return [
        {
            "split": name,
            "rows": len(stretch.close),
            "first_row": int(np.searchsorted(time, stretch.time[0])),
            "first": str(stretch.time[0]),
            "last": str(stretch.time[-1]),
            "log_return": float(np.log((stretch.close[-1] / stretch.close[0]).mean())),
        }
        for name, stretch in prepared.splits.items()
    ]

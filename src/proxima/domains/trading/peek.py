"""A first look at data: what is there, what is missing, how it is split, what an agent will see."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from proxima.core.errors import ProximaError
from proxima.domains.trading.config import DataConfig
from proxima.domains.trading.csv_lines import read_header
from proxima.domains.trading.data import Source, one_fold, prepare_source, read_source
from proxima.domains.trading.domain import TradingScenario
from proxima.domains.trading.market import SPLITS, Prepared
from proxima.domains.trading.ohlcv import PACKED_ENDINGS, PRICES
from proxima.domains.trading.peek_summary import (
    Draw,
    features_of,
    fold_notes,
    spans_of,
    spread,
    summary_of,
)
from proxima.domains.trading.plots import price_plot
from proxima.domains.trading.portfolio import peek as portfolio
from proxima.domains.trading.portfolio.config import PanelConfig
from proxima.domains.trading.portfolio.domain import PortfolioScenario
from proxima.domains.trading.portfolio.panel import SYMBOL_NAMES
from proxima.scenario import load

FILE_ENDINGS = (".parquet", ".csv", *PACKED_ENDINGS)


def peek_at(reference: str, plot: Path) -> dict[str, Any]:
    """A summary of a data file's or a scenario's data, whose prices are drawn."""
    config, name = _config_of(reference)
    if isinstance(config, PanelConfig):
        summary, draw = portfolio.look(config, name)
    else:
        summary, draw = _look(config, name)
    try:
        draw(plot)
    except OSError as failure:
        raise ProximaError(f"--plot {plot}: cannot write there ({failure.strerror})") from failure
    return summary


def _config_of(reference: str) -> tuple[DataConfig, str]:
    """What a file's or a scenario's data is, and what it is called."""
    path = Path(reference)
    if path.suffix.lower() in FILE_ENDINGS:
        kind = PanelConfig if _has_several_assets(path) else DataConfig
        return kind(path=reference), path.stem
    scenario = load(reference)
    if not isinstance(scenario, TradingScenario | PortfolioScenario):
        raise ProximaError(
            f"{scenario.name}: is not about trading; name a trading scenario "
            "(proxima scenarios lists all) or a .parquet or .csv file"
        )
    return scenario.data, scenario.name


def _has_several_assets(path: Path) -> bool:
    """Whether a file names assets in a column, or has none of the columns that one asset's has."""
    try:
        is_csv = path.suffix.lower() == ".csv"
        header = read_header(path) if is_csv else list(pl.read_parquet_schema(path))
    except (ProximaError, OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException):
        return False  # whoever reads it says what is wrong
    names = {name.strip().lower() for name in header}
    return bool(names & set(SYMBOL_NAMES)) or (len(names) > 2 and not names & set(PRICES))


def _look(config: DataConfig, name: str) -> tuple[dict[str, Any], Draw]:
    """A summary of the prices of one asset, and how they are drawn."""
    source = read_source(config, name)
    summary = peek(source, config)
    time, close = source.frame["time"].to_numpy(), source.frame["close"].to_numpy()
    title = f"{name}: {len(close):,} bars"
    return summary, lambda plot: price_plot(plot, time, close, spans_of(summary), title)


def peek(source: Source, config: DataConfig) -> dict[str, Any]:
    """What is in a source, as JSON; where it cannot be prepared as configured, `problem` says why."""
    time, close = source.frame["time"].to_numpy(), source.frame["close"].to_numpy()
    about = {
        "close": spread(close),
        "log_return": spread(np.diff(np.log(close))) if len(close) > 1 else None,
        "notes": list(source.notes),
    }
    return summary_of(source.path, source.made, time, about, partial(_prepared, source, config))


def _prepared(source: Source, config: DataConfig) -> dict[str, Any]:
    prepared = prepare_source(source, one_fold(config, 0))
    features = {split: prepared.split(split).features for split in SPLITS}
    notes = [note.removeprefix(f"{source.path}: ") for note in prepared.notes]

    def begins() -> list[np.datetime64]:
        folds = (one_fold(config, fold) for fold in range(config.split.folds))
        return [prepare_source(source, fold).test.time[0] for fold in folds]

    return {
        "splits": _splits(prepared),
        "features": features_of(prepared.feature_names, prepared.scalers, features),
        "notes": [*notes, *fold_notes(config.split.fold, begins)],
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

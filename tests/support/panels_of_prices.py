"""Prices of several assets, made up in a test."""

from datetime import UTC, datetime

import numpy as np
import polars as pl

START = datetime(2020, 1, 1, tzinfo=UTC)


def days(rows):
    return pl.datetime_range(START, START.replace(year=2090), "1d", eager=True, time_zone="UTC")[
        :rows
    ].cast(pl.Datetime("us", "UTC"))


def closes(rows, assets, seed=0, scale=0.02):
    """Random walks, (rows, assets)."""
    moves = np.random.default_rng(seed).normal(0, scale, (rows, assets))
    return 100 * np.exp(np.cumsum(moves, axis=0))


def wide(rows=40, assets=("A", "B", "C"), seed=0):
    """A frame with a time and a column of closes for each asset."""
    table = closes(rows, len(assets), seed)
    return pl.DataFrame(
        {"time": days(rows), **{name: table[:, k] for k, name in enumerate(assets)}}
    )


def long(rows=40, assets=("A", "B", "C"), seed=0):
    """A frame with a row for each bar and asset: opens are the closes before, shifted a little."""
    table, random = closes(rows, len(assets), seed), np.random.default_rng(seed + 1)
    frames = []
    for k, name in enumerate(assets):
        close = table[:, k]
        opens = np.concatenate([[100.0], close[:-1]]) * np.exp(random.normal(0, 0.005, rows))
        frames.append(
            pl.DataFrame(
                {
                    "time": days(rows),
                    "symbol": [name] * rows,
                    "open": opens,
                    "high": np.maximum(opens, close) * 1.01,
                    "low": np.minimum(opens, close) * 0.99,
                    "close": close,
                    "volume": random.uniform(1, 2, rows),
                }
            )
        )
    return pl.concat(frames).sort("time", "symbol")

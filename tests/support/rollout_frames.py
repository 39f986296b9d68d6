"""Small rollout frames for tests of pictures and pages: no fees, weights as asked for."""

from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl

START = datetime(2020, 1, 1, tzinfo=UTC)


def random_prices(count, seed=0):
    steps = np.random.default_rng(seed).normal(0, 0.01, size=count)
    return 100 * np.exp(np.cumsum(steps))


def rollout(prices, targets):
    """The frame of holding targets (T,) over prices (T + 1,), day by day."""
    log_returns = np.log1p(targets * (prices[1:] / prices[:-1] - 1))
    value = np.exp(np.cumsum(log_returns))
    return pl.DataFrame(
        {
            "time": [START + timedelta(days=k) for k in range(len(targets))],
            "close": prices[:-1],
            "fill_price": prices[:-1],
            "target": targets,
            "weight": targets,
            "log_return": log_returns,
            "equity": value,
            "drawdown": value / np.maximum.accumulate(np.append(1.0, value))[1:] - 1,
        }
    )

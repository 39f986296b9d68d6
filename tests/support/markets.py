"""Small markets for tests."""

import numpy as np

from proxima.domains.trading.market import Market


def market_of(close, features=None, open_=None):
    """A market with these closes; each bar opens at the last close unless told otherwise."""
    close = np.asarray(close, np.float64)
    open_ = np.concatenate([close[:1], close[:-1]]) if open_ is None else np.asarray(open_)
    bars = len(close)
    if features is None:
        features = np.arange(2 * bars, dtype=np.float32).reshape(bars, 2)
    time = np.datetime64("2020-01-01", "us") + np.arange(bars) * np.timedelta64(1, "D")
    high, low = np.maximum(open_, close), np.minimum(open_, close)
    return Market(time, open_, high, low, close, np.ones(bars), features)


def random_market(seed=0, bars=80, deviation=0.02, gaps=0.01):
    """A random walk whose bars open a little away from the last close."""
    random = np.random.default_rng(seed)
    close = 100 * np.exp(np.cumsum(random.normal(0, deviation, bars)))
    open_ = np.concatenate([close[:1], close[:-1]]) * np.exp(random.normal(0, gaps, bars))
    features = random.normal(size=(bars, 3)).astype(np.float32)
    return market_of(close, features, open_)

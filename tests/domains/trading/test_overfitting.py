"""The probability of backtest overfitting, against a loop that does what the paper says."""

import math
from itertools import combinations

import numpy as np
import pytest

from proxima.domains.trading.overfitting import backtest_overfitting


def by_hand(returns, blocks):
    """One choice of blocks after the other."""
    parts = np.split(returns[len(returns) % blocks :], blocks)
    lower = []
    for chosen in combinations(range(blocks), blocks // 2):
        inside = np.concatenate([parts[k] for k in chosen])
        outside = np.concatenate([parts[k] for k in range(blocks) if k not in chosen])
        sharpe = [half.mean(axis=0) / half.std(axis=0) for half in (inside, outside)]
        best = int(np.argmax(sharpe[0]))
        rank = 1 + sum(other < sharpe[1][best] for other in sharpe[1])
        share = rank / (returns.shape[1] + 1)
        lower.append(0.5 if math.isclose(share, 0.5) else float(math.log(share / (1 - share)) < 0))
    return float(np.mean(lower))


@pytest.mark.parametrize(("bars", "strategies", "blocks"), [(83, 4, 6), (64, 7, 8), (200, 2, 4)])
def test_it_is_what_a_loop_gives(bars, strategies, blocks):
    returns = np.random.default_rng(bars).normal(0.0005, 0.01, (bars, strategies))
    result = backtest_overfitting(returns, blocks)
    assert result.probability == pytest.approx(by_hand(returns, blocks), abs=1e-12)
    assert result[1:] == (strategies, blocks)


def test_noise_is_one_half_on_average():
    random = np.random.default_rng(0)
    found = [
        backtest_overfitting(random.normal(0, 0.01, (400, 10)), 8).probability for _ in range(200)
    ]
    assert np.mean(found) == pytest.approx(0.5, abs=0.05)


def test_one_that_is_better_everywhere_is_no_overfitting():
    returns = np.random.default_rng(1).normal(0, 0.01, (400, 10))
    returns[:, 3] += 0.01
    assert backtest_overfitting(returns).probability == 0.0


def test_what_cannot_be_told_is_nan():
    assert math.isnan(backtest_overfitting(np.zeros((100, 1))).probability)
    assert math.isnan(backtest_overfitting(np.ones((5, 3))).probability)
    assert backtest_overfitting(np.zeros((100, 3))).probability == 0.5  # nobody ever trades

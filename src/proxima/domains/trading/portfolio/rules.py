"""Rules that any agent is compared with: closes (T, n) give weights (T, n), a row for each decision.

    buy_and_hold    as much of each asset at the first bar, and never a trade again
    rebalanced      as much of each asset at every bar
    best_asset      all in the asset that ends highest: hindsight
    best_constant   the constant weights that end highest: hindsight, see oracles.py
    anticor         from what rose to what fell, where that was correlated (Borodin, El-Yaniv, Gogan 2004)
    olmar           to what is below its moving average (Li, Hoi 2012)
    newton          the online Newton step on log wealth (Agarwal, Hazan, Kale, Schapire 2006)

The last three are online: row t depends on closes up to t alone. They give what universal-portfolios 0.4
gives with its default settings, which a test checks; anticor correlates now with then where the paper
correlates then with now, as that package does.
"""

from collections.abc import Mapping

import numpy as np

from proxima.domains.trading.accounting import Floats

ANTICOR_WINDOW = 30
OLMAR_WINDOW, OLMAR_RETURN = 5, 10.0
NEWTON_DELTA, NEWTON_BETA = 0.125, 1.0
KEPT = np.nan  # in a row of weights: nothing is traded


def buy_and_hold(closes: Floats) -> Floats:
    """As much of each asset at the first bar; then it drifts."""
    return _bought_once(np.full(closes.shape[1], 1 / closes.shape[1]), len(closes))


def rebalanced(closes: Floats) -> Floats:
    """As much of each asset at every bar."""
    return np.full(closes.shape, 1 / closes.shape[1])


def best_asset(returns: Floats) -> Floats:
    """All in the asset with the largest return over all bars; `returns` are those that weights will earn."""
    total = np.log1p(returns).sum(axis=0)
    return _bought_once(np.eye(returns.shape[1])[int(np.argmax(total))], len(returns))


def _bought_once(weights: Floats, bars: int) -> Floats:
    rows = np.full((bars, len(weights)), KEPT)
    rows[:1] = weights
    return rows


def anticor(closes: Floats, window: int = ANTICOR_WINDOW) -> Floats:
    """Moves money from assets that won in the last window to those whose wins follow theirs."""
    bars, assets = closes.shape
    weights = np.full((bars, assets), 1 / assets)
    relative = np.ones_like(closes)
    relative[1:] = closes[1:] / closes[:-1]
    for bar in range(bars):
        if bar:
            weights[bar] = weights[bar - 1]
        if bar < 2 * window:  # the first bar has no return
            continue
        now = relative[bar + 1 - window : bar + 1]
        then = relative[bar + 1 - 2 * window : bar + 1 - window]
        weights[bar] = _moved(weights[bar], _correlation(now, then), now.mean(axis=0))
    return weights


def _correlation(now: Floats, then: Floats) -> Floats:
    """Of every asset now with every asset then, (n, n); 0 where one of them does not move."""
    first, second = now - now.mean(axis=0), then - then.mean(axis=0)
    size = np.sqrt((first**2).sum(axis=0)[:, None] * (second**2).sum(axis=0))
    return np.divide(first.T @ second, size, out=np.zeros_like(size), where=size > 0)


def _moved(weights: Floats, correlation: Floats, mean: Floats) -> Floats:
    """The weights once every asset has given to those with a claim on it, in proportion."""
    against = np.maximum(-np.diag(correlation), 0.0)
    claims = correlation + against[:, None] + against[None, :]
    allowed = (mean[:, None] > mean[None, :]) & (correlation > 0)
    np.fill_diagonal(allowed, False)
    claims = np.where(allowed, claims, 0.0)
    total = claims.sum(axis=1, keepdims=True)
    given = np.divide(claims, total, out=np.zeros_like(claims), where=total > 0) * weights[:, None]
    moved: Floats = weights + given.sum(axis=0) - given.sum(axis=1)
    return moved


def olmar(closes: Floats, window: int = OLMAR_WINDOW, wanted: float = OLMAR_RETURN) -> Floats:
    """The nearest weights whose return would be `wanted`, were prices to go back to their mean."""
    bars, assets = closes.shape
    weights = np.full((bars, assets), 1 / assets)
    for bar in range(1, bars):
        expected = closes[bar] / closes[0]  # before there is a window, as the package has it
        if bar >= window:
            expected = closes[bar + 1 - window : bar + 1].mean(axis=0) / closes[bar]
        above = expected - expected.mean()
        size = float(above @ above)
        short = wanted - float(weights[bar - 1] @ expected)
        step = max(0.0, short / size) if size > 0 else 0.0
        weights[bar] = on_simplex(weights[bar - 1] + step * above)
    return weights


def on_simplex(point: Floats) -> Floats:
    """The nearest weights to a point (n,): none below 0, 1 together."""
    falling = np.sort(point)[::-1]
    above = (np.cumsum(falling) - 1) / np.arange(1, len(point) + 1)
    last = int(np.flatnonzero(falling > above)[-1])
    return np.maximum(point - above[last], 0.0)


def newton(closes: Floats, delta: float = NEWTON_DELTA, beta: float = NEWTON_BETA) -> Floats:
    """Follows the leader of a quadratic model of log wealth."""
    bars, assets = closes.shape
    weights = np.full((bars, assets), 1 / assets)
    curvature, slope = np.eye(assets), np.zeros(assets)
    last = weights[0]
    for bar in range(bars):
        relative = closes[bar] / closes[bar - 1] if bar else np.ones(assets)
        gradient = relative / float(last @ relative)
        curvature += np.outer(gradient, gradient)
        slope += (1 + 1 / beta) * gradient
        wanted = np.asarray(delta * np.linalg.solve(curvature, slope), np.float64)
        last = nearest_in_norm(wanted, curvature, last)
        weights[bar] = last
    return weights


def nearest_in_norm(point: Floats, norm: Floats, start: Floats) -> Floats:
    """The weights y on the simplex with the least (y − point)ᵀ norm (y − point), by active sets.

    From weights on the simplex it goes straight to the best with the same assets held, and gives up whatever
    falls to 0 on the way; then it takes the asset in that would gain most, until none would.
    """
    weights, held, pull = start.copy(), start > 0, norm @ point
    for _ in range(10 * len(point)):
        chosen = np.flatnonzero(held)
        both = np.stack([pull[chosen], np.ones(len(chosen))], axis=1)
        free, shared = np.linalg.solve(norm[np.ix_(chosen, chosen)], both).T
        price = (1 - free.sum()) / shared.sum()
        wanted = free + price * shared
        if (wanted > 0).all():
            weights = np.zeros_like(point)
            weights[chosen] = wanted
            gain = price - (norm @ weights - pull)
            gain[chosen] = -np.inf
            if gain.max() <= 1e-12 * abs(price):
                break
            held[int(np.argmax(gain))] = True
            continue
        before = weights[chosen]
        falls = np.flatnonzero(wanted <= 0)
        share = before[falls] / np.maximum(before[falls] - wanted[falls], 1e-300)
        first = int(np.argmin(share))
        weights[chosen] = np.maximum(before + share[first] * (wanted - before), 0.0)
        weights[chosen[falls[first]]] = 0.0
        held[chosen[falls[first]]] = False
    return weights / weights.sum()


def best_expected(
    pattern: str | None, params: Mapping[str, float | int | str], closes: Floats
) -> Floats | None:
    """All in the asset with the largest expected return, or cash where none is above 0; None: not known.

    Without costs, and while noise is small beside what is expected, hardly anything long only is better.
    """
    if pattern != "mean_reversion":
        return None
    pull, noise, base = (float(params[name]) for name in ("reversion", "volatility", "base"))
    expected = -pull * np.log(closes / base) + noise**2 / 2
    chosen = np.eye(closes.shape[1])[expected.argmax(axis=1)]
    best: Floats = np.where(expected.max(axis=1, keepdims=True) > 0, chosen, 0.0)
    return best

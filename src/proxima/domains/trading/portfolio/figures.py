"""What an account of several assets is judged by, and where its return comes from."""

import numpy as np

from proxima.domains.trading import metrics
from proxima.domains.trading.accounting import Floats
from proxima.domains.trading.portfolio.accounting import Account
from proxima.domains.trading.portfolio.results import Attribution
from proxima.run.files import plain

STILL = 1e-12  # growth that close to 1 has a log return of the same size


def sheet(done: Account, periods_per_year: float) -> dict[str, float]:
    """Every metric of one account, by its name."""
    gross = np.abs(done.held).sum(axis=1)
    squares = (done.held**2).sum(axis=1)
    invested = gross > 0
    spread = gross[invested] ** 2 / squares[invested]
    return {
        **metrics.returns_sheet(done.log_return, done.log_value, periods_per_year),
        "psr": metrics.probabilistic_sharpe(np.expm1(done.log_return)),
        "turnover": _mean(
            np.abs(done.traded).sum(axis=1)
        ),  # weight traded per bar, bought and sold
        "costs": float(costs(done).sum()),  # of the log return
        "gross": _mean(gross),  # weights of any sign, together
        "cash": round(_mean(1 - done.held.sum(axis=1)), 12),  # uniform weights leave 1e-16
        "effective_assets": _mean(spread),  # as many of equal weight would be as concentrated
        "largest_weight": _mean(np.abs(done.held).max(axis=1)),
        "hit_rate": _mean(done.log_return[invested] > 0),
    }


def attribution(done: Account, assets: tuple[str, ...]) -> Attribution:
    """Every asset's part of the log return, in proportion to what it added in each bar."""
    parts = (done.contribution * _scale(done)[:, None]).sum(axis=0)
    paid = float(costs(done).sum())
    rest = float(done.log_value[-1]) - float(parts.sum()) - paid
    return Attribution(
        assets=dict(zip(assets, plain(parts.tolist()), strict=True)),
        costs=plain(paid),
        interest=plain(rest),
        weights=dict(zip(assets, plain(done.held.mean(axis=0).tolist()), strict=True)),
    )


def costs(done: Account) -> Floats:
    """What trading took from the log return of every bar, (T,), at most 0."""
    return -done.cost * _scale(done)


def _scale(done: Account) -> Floats:
    """The log return of every bar for each unit that it added, (T,): 1 where it added nothing."""
    gained = np.expm1(done.log_return)
    still = np.abs(gained) < STILL
    scale: Floats = np.where(still, 1.0, done.log_return / np.where(still, 1.0, gained))
    return scale


def _mean(values: Floats | np.ndarray) -> float:
    return float(values.mean()) if len(values) else float("nan")

"""An account of several assets beside what rules, hindsight and chance make of the same bars.

    compare_stretch   the accounts of every rule on a stretch of prices, and the ends of random ones
    references_of     their figures, stretches joined end to end
    assess            an account against them: metrics, scores, attribution, what is too good to be true

The score of an agent is (its log return − chance's) / (the oracle's − chance's); its regret is what the best
constant weights of hindsight make more.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from proxima.core.errors import ProximaError
from proxima.domains.trading import metrics
from proxima.domains.trading.accounting import Floats, joined
from proxima.domains.trading.overall import Year, chance_of, score
from proxima.domains.trading.portfolio import rules
from proxima.domains.trading.portfolio.accounting import (
    Account,
    account,
    bar_by_bar,
    side_by_side,
)
from proxima.domains.trading.portfolio.config import PortfolioEnvConfig
from proxima.domains.trading.portfolio.data import Stretch
from proxima.domains.trading.portfolio.env import target_weights
from proxima.domains.trading.portfolio.figures import attribution, sheet
from proxima.domains.trading.portfolio.oracles import best_constant, foresight
from proxima.domains.trading.portfolio.results import (
    NAMES,
    RULES,
    PortfolioReferences,
    PortfolioSplit,
)
from proxima.domains.trading.timing import decisions, fill_returns
from proxima.run.files import plain

ORACLES = ("expected", "foresight")  # that scores are measured by
CHANCE_RUNS, LEAST_CHANCE_RUNS = 200, 20
CHANCE_NUMBERS = 20_000_000  # runs × bars × assets; past it there are fewer runs
TOO_GOOD_SCORE = 0.98  # of the way from chance to perfect foresight


class Compared(NamedTuple):
    """What others made of one split of one fold."""

    accounts: Mapping[str, Account]
    chance: Floats  # log returns of random weights, (runs,)
    best: Floats  # the best constant weights in hindsight, (n,)


def compare_stretch(
    stretch: Stretch, env: PortfolioEnvConfig, expected: Floats | None = None, seed: int = 0
) -> Compared:
    """The accounts of all rules on a stretch, random weights beside them.

    `expected` are the weights (T, n) with the best expected return at each of its bars, where they are known.
    """
    returns = returns_of(stretch, env)
    rows = decisions(stretch, env)
    best = best_constant(returns).weights
    bars = len(returns)
    closes = closes_known(stretch, env)
    targets: dict[str, Floats] = {
        "buy_and_hold": rules.buy_and_hold(returns),
        "rebalanced": rules.rebalanced(returns),
        "anticor": rules.anticor(closes)[rows],
        "olmar": rules.olmar(closes)[rows],
        "newton": rules.newton(closes)[rows],
        "best_asset": rules.best_asset(returns),
        "best_constant": np.tile(best, (bars, 1)),
    }
    if expected is not None:
        targets["expected"] = expected[rows]
    if env.weights == "long_only":  # beyond that, one may borrow, and the best path is another
        targets["foresight"] = foresight(returns, env.fee)
    accounts = dict(zip(targets, accounts_of(stretch, env, [*targets.values()]), strict=True))
    return Compared(accounts, chance(returns, env, seed), best)


def closes_known(stretch: Stretch, env: PortfolioEnvConfig) -> Floats:
    """The closes up to the last decision, (T, n)."""
    return stretch.close[: decisions(stretch, env).stop]


def chance(returns: Floats, env: PortfolioEnvConfig, seed: int = 0) -> Floats:
    """The log returns of random actions at every bar, (runs,)."""
    random, long_only = np.random.default_rng(seed), env.weights == "long_only"
    bars, assets = returns.shape
    runs = max(LEAST_CHANCE_RUNS, min(CHANCE_RUNS, CHANCE_NUMBERS // (bars * assets)))
    targets = (
        target_weights(
            random.uniform(-1.0, 1.0, (runs, assets + int(long_only))), long_only, env.leverage
        )
        for _ in range(bars)
    )
    total = np.zeros(runs)
    for bar in bar_by_bar(targets, returns, env.fee, env.borrow_rate):
        total += bar.log_return
    return total


def returns_of(stretch: Stretch, env: PortfolioEnvConfig) -> Floats:
    """What each decision of an evaluation earns, (T, n)."""
    return fill_returns(stretch, env.fill)[decisions(stretch, env)]


def account_of(stretch: Stretch, env: PortfolioEnvConfig, targets: Floats) -> Account:
    """The account of targets (T, n) on a stretch; only a ruin may have ended them early."""
    (done,) = accounts_of(stretch, env, [targets])
    return done


def accounts_of(
    stretch: Stretch, env: PortfolioEnvConfig, targets: Sequence[Floats]
) -> list[Account]:
    """The accounts of several, in one walk over the bars; each has the bits that it has alone."""
    returns = returns_of(stretch, env)
    missing = [len(returns) - len(each) for each in targets]
    padded = [
        np.pad(each, ((0, max(0, bars)), (0, 0)))[: len(returns)]
        for each, bars in zip(targets, missing, strict=True)
    ]
    together = account(np.stack(padded, axis=1), returns, env.fee, env.borrow_rate)
    accounts = side_by_side(together)
    for done, each, bars in zip(accounts, targets, missing, strict=True):
        if bars < 0 or (bars > 0 and not done.ruined[: len(each)].any()):
            raise ProximaError(
                f"{len(each)} recorded decisions on a stretch of {len(returns)}: the actions are of other "
                "data, or of another window or fill"
            )
    return accounts


def references_of(
    assets: tuple[str, ...], parts: Sequence[Compared], year: Year
) -> PortfolioReferences:
    """What others made of stretches, end to end."""
    names = [name for name in NAMES if all(name in part.accounts for part in parts)]
    sheets = {
        name: plain(sheet(joined([part.accounts[name] for part in parts]), year.bars))
        for name in names
    }
    ends = np.sum([part.chance for part in parts], axis=0)
    best = np.mean([part.best for part in parts], axis=0)
    return PortfolioReferences(
        rules=sheets,
        random=chance_of(ends.tolist()),
        best_weights=dict(zip(assets, best.tolist(), strict=True)),
    )


def assess(
    assets: tuple[str, ...], done: Account, compared: PortfolioReferences, year: Year
) -> PortfolioSplit:
    """A trial's account on a split against the references on the same."""
    low, high = metrics.mean_interval(done.log_return)
    bars = len(done.log_return)
    earned = float(done.log_value[-1])
    best = compared.rules["best_constant"]["log_return"] or 0.0
    agent = sheet(done, year.bars) | {
        "regret": best - earned,
        "log_return_low": low * bars,
        "log_return_high": high * bars,
    }
    invested = np.abs(done.held).sum(axis=1) > 0
    alarms = (
        *metrics.too_good_bars(done.log_return, done.log_value, invested),
        *_suspicious(earned, bars, compared),
    )
    return PortfolioSplit(
        agent=plain(agent),
        score={oracle: _score(earned, compared, oracle) for oracle in ORACLES},
        attribution=attribution(done, assets),
        too_good=alarms,
    )


def _score(earned: float, compared: PortfolioReferences, oracle: str) -> float | None:
    best = compared.rules.get(oracle, {}).get("log_return")
    return None if best is None else score(earned, compared.random.mean, best)


def _suspicious(earned: float, bars: int, compared: PortfolioReferences) -> list[str]:
    """What an account is too good at, in words, unless a rule that does not look ahead is too."""
    reached = _score(earned, compared, "foresight")
    online = [compared.rules[name]["log_return"] or 0.0 for name in RULES if name in compared.rules]
    easy = _score(max(online), compared, "foresight")
    if bars <= metrics.TOO_GOOD_BARS or reached is None or easy is None:
        return []
    if not easy < TOO_GOOD_SCORE <= reached:
        return []
    return [
        f"it went {100 * reached:.1f} % of the way from chance to perfect foresight over {bars:,} bars, the "
        f"best rule {100 * easy:.1f} %"
    ]

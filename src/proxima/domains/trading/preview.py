"""What onlookers see of a run on prices while it trains: a trial's equity on the validation split.

It is what the trial's policy makes of the split as the report's accounts do it, beside buying and holding.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from proxima.core.types import PyTree
from proxima.domains.trading.accounting import Floats
from proxima.train.previews import MakePreview
from proxima.train.program import Recording
from proxima.train.stage import Chart, Preview

SPLIT = "validation"  # of which evaluations in training are
POINTS = 300  # of a line at most
HOLDING = "buy and hold"


class Previewed(NamedTuple):
    """The validation split of one fold, whatever is traded on it."""

    time: NDArray[np.datetime64]  # of every decision, and of the bar after the last
    record: Callable[[PyTree], Recording]  # a policy's greedy run over all of it
    log_value: Callable[[Recording], Floats]  # what such a run makes of it, from 0 on
    held: Callable[[], Floats]  # the same of buying and holding


def equity_previews(folds: Sequence[Previewed]) -> MakePreview:
    """The maker of previews of the trials of these folds, or of the only one."""
    held = cache(lambda fold: _equity(folds[fold].held()))
    return partial(_preview, folds, held)


def _preview(
    folds: Sequence[Previewed], held: Callable[[int], Floats], trial: int, policy: PyTree
) -> Preview:
    fold = trial % len(folds)
    seen = folds[fold]
    equity = _equity(seen.log_value(seen.record(policy)))
    shown = _shown(len(equity))
    lines = {"equity": equity[shown].tolist(), HOLDING: held(fold)[shown].tolist()}
    title = f"Equity on the {SPLIT} split" + (f" of fold {fold}" if len(folds) > 1 else "")
    seconds = seen.time.astype("datetime64[us]").astype(np.int64) / 1e6  # since 1970
    return Preview([Chart(title, seconds[shown].tolist(), lines, x_is_time=True)])


def _equity(log_value: Floats) -> Floats:
    """The value before the first bar, which is 1, and after every bar."""
    with np.errstate(over="ignore"):  # a leak may earn more than a float holds
        value: Floats = np.exp(log_value)
    return value


def _shown(count: int) -> NDArray[np.int_]:
    """Which of so many values are shown: the first, the last and some evenly between."""
    return np.unique(np.linspace(0, count - 1, min(count, POINTS)).round().astype(int))

"""Does a feature look ahead? Without the rows after t its value at t must be the same.

    values with all rows      ├───────────────┬────────────────────────────────┤
    recomputed on a prefix    ├───────────────┤ cut: equal up to here, or it looks ahead

Three stretches are looked at, so that the cost does not grow with the rows:

- the first rows, against values computed from the whole file. This shows whatever depends on rows far
  away: a mean, a rank or a scale over all of the data, a value from thousands of bars ahead.
- a stretch in the middle and the last one, each by itself against its own prefixes. They show a leak that
  sits somewhere else only, for example one that starts at a date.

Each has cuts all over it and near its end, at places that fall on no regular beat, since a leak within a day
or a week does not show in a prefix that ends with it. What this cannot see is a leak that changes no value
in any of the stretches.
"""

import numpy as np
import polars as pl
from numpy.typing import NDArray

from proxima.core.errors import ProximaError
from proxima.domains.trading.features import Column, compute

STRETCH = 16_384  # rows
WINDOWS = 4  # a stretch is at least so many windows long, or there would be little to compare
CUTS = 5
GOLDEN = 0.6180339887498949  # its multiples fall evenly and never on a beat
LEFT_OUT = (1, 11, 101, 1_009)  # rows after the cuts near the end, for leaks that begin late
# A causal feature gives the same bits on a prefix; the room is for libraries that sum in another order.
TOLERANCE = 1e-6  # of the feature's deviation
ROUNDING = 1e-12  # of its largest value


def refuse_look_ahead(frame: pl.DataFrame, column: Column, values: pl.Series) -> None:
    """An error that names the feature if its values, computed on the frame, depend on later rows."""
    rows = frame.height
    length = min(rows, max(STRETCH, WINDOWS * column.reach))
    _compare(frame.head(length), values.head(length), column, 0)
    if rows > length:
        for start in ((rows - length) // 2, rows - length):
            stretch = frame.slice(start, length)
            _compare(stretch, compute(stretch, column), column, start)


def _compare(frame: pl.DataFrame, values: pl.Series, column: Column, start: int) -> None:
    across = {int(frame.height * (index * GOLDEN % 1)) for index in range(1, CUTS + 1)}
    near_the_end = {frame.height - left for left in LEFT_OUT}
    for cut in sorted(cut for cut in across | near_the_end if cut > 0):
        known = values.head(cut).to_numpy()  # null becomes NaN
        alone = compute(frame.head(cut), column).to_numpy()
        different = _differ(known, alone)
        if different.any():
            row = int(np.argmax(different))
            raise ProximaError(
                f"feature {column.name}: looks ahead: row {start + row + 1:,} has {known[row]:g} with "
                f"all rows, but {alone[row]:g} if the file ends at row {start + cut:,}. Use a bar and "
                "those before it only; scaling to the train split is done for you. If it is meant to, "
                "register it with leaks=True and set data.leaky: true"
            )


def _differ(known: NDArray[np.float64], alone: NDArray[np.float64]) -> NDArray[np.bool_]:
    finite = known[np.isfinite(known)]
    room = 0.0
    if len(finite):
        room = TOLERANCE * float(finite.std()) + ROUNDING * float(np.abs(finite).max())
    with np.errstate(invalid="ignore"):  # infinite − infinite
        near = (known == alone) | (np.abs(known - alone) <= room)
    return ~(near | (np.isnan(known) & np.isnan(alone)))

"""Lists of ids to batches: texts with their EOS, in an order that only the seed and the epoch decide.

Widths are those of a few buckets, so that few programs are compiled. Rows are padded on the right; what
a pad's id is does not matter.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from proxima.domains.language.generate import bucket
from proxima.domains.language.samples import Rows
from proxima.domains.language.tokenizer import Ids, right_padded

Layout = Callable[[Rows], Rows]  # how rows lie over devices

ANY_ID = 0


def with_eos(texts: Sequence[Ids], eos_id: int, longest: int) -> list[list[int]]:
    """Texts with an EOS behind them; one that is longer than `longest` is cut, and has none."""
    return [[*ids, eos_id][:longest] for ids in texts]


def order(count: int, seed: int, epoch: int) -> np.ndarray:
    """A permutation of 0 .. count-1."""
    return np.random.default_rng((seed, epoch)).permutation(count)


def drawn(count: int, batch: int, seed: int, n: int) -> np.ndarray:
    """Indices of batch n: every index once per epoch, in a new order each; the epoch's last may be short."""
    batches = -(-count // batch)
    epoch, index = divmod(n, batches)
    return order(count, seed, epoch)[index * batch : (index + 1) * batch]


def filled(texts: Sequence[Ids], rows: int, longest: int) -> Rows:
    """The texts as `rows` rows in the width of a bucket; rows without a text are all pads."""
    width = bucket(max(map(len, texts), default=1), longest)
    empty: list[Ids] = [[]] * (rows - len(texts))
    return right_padded([*texts, *empty], ANY_ID, width)


def in_batches(texts: Sequence[Ids], rows: int, longest: int) -> Iterator[tuple[np.ndarray, Rows]]:
    """All texts, those of like length together: their indices and their rows."""
    by_length = np.argsort([len(ids) for ids in texts], kind="stable")
    for start in range(0, len(texts), rows):
        chosen = by_length[start : start + rows]
        yield chosen, filled([texts[i] for i in chosen], rows, longest)

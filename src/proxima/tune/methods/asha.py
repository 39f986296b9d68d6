"""Asynchronous successive halving, ASHA (Li et al. 2018, arXiv 1810.05934, Algorithm 2).

rungs: budgets that grow by the factor η up to a whole training
asked for an order:
    from the highest rung but the top down to the lowest:
        candidates = the best |rung| / η of those told at this rung
        if one of them was not promoted: train it to the next rung
    otherwise: train a new random configuration to the lowest rung
"""

import bisect
import math
from collections.abc import Iterator, Sequence
from typing import final

from proxima.scenario.search import SearchConfig
from proxima.tune.method import Check, Fits, Method, Order, Ranges, Settings
from proxima.tune.methods.random import random_settings


def make_asha(
    config: SearchConfig, ranges: Ranges, check: Check, drawn: Sequence[Settings] = ()
) -> Method:
    """The configurations of random search, most of them dropped early."""
    settings = list(drawn) or random_settings(config, ranges, check)
    return ASHA(settings, rungs(config.evaluations, config.reduction), config.reduction)


def rungs(whole: int, reduction: int) -> list[int]:
    """The budgets in evaluations, lowest first: whole / reduction^j rounded up, none of them below 1."""
    budgets = []
    share = 1
    while share <= whole:
        budgets.append(math.ceil(whole / share))
        share *= reduction
    return budgets[::-1]


@final
class ASHA:
    """Promotes whoever is among the best of its rung, without waiting for the rung to fill."""

    def __init__(self, settings: list[Settings], budgets: list[int], reduction: int) -> None:
        self.settings = settings
        self._budgets = budgets
        self._reduction = reduction
        # (-value, number) of those told at each rung: the best first, the lower number first among equals
        self._rungs: list[list[tuple[float, int]]] = [[] for _ in budgets]
        self._rung_of: dict[int, int] = {}  # by number: the rung that it reached or trains for
        self._new = dict.fromkeys(range(len(settings)))  # numbers that nobody trained yet, in order

    def next(self, fits: Fits) -> Order | None:
        """The best promotion from the highest rung that has one, or else a new configuration."""
        for rung in reversed(range(len(self._budgets) - 1)):
            count = len(self._rungs[rung]) // self._reduction
            number = next(filter(fits, self._promotable(rung, count)), None)
            if number is not None:
                return self._order(number, rung + 1)
        number = next(filter(fits, self._new), None)
        return None if number is None else self._order(number, 0)

    def tell(self, number: int, evaluations: int, value: float) -> None:
        """The value at a rung; told before a rung's end, it is the value at that rung."""
        rung = bisect.bisect_left(self._budgets, evaluations)
        self._reach(number, rung)
        bisect.insort(self._rungs[rung], (-value, number))

    def wanted(self) -> set[int]:
        """Those that may still be promoted, whatever values the others bring.

        Ranks only get worse, so one must be within the share of the most that can ever be in its rung.
        """
        wanted: set[int] = set()
        most = len(self.settings)
        for rung, ranking in enumerate(self._rungs[:-1]):
            hopeful = set(self._promotable(rung, most // self._reduction))
            promoted = sum(reached > rung for reached in self._rung_of.values())
            still_to_come = most - len(ranking)
            most = promoted + len(hopeful) + still_to_come  # any of these can get to the next rung
            wanted |= hopeful
        return wanted

    def _promotable(self, rung: int, count: int) -> Iterator[int]:
        """Those among the best `count` of a rung that were not promoted yet; nobody broken."""
        for loss, number in self._rungs[rung][:count]:
            if self._rung_of[number] == rung and loss < math.inf:
                yield number

    def _order(self, number: int, rung: int) -> Order:
        self._reach(number, rung)
        begin = self._budgets[rung - 1] if rung > 0 else 0
        return Order(number, begin, self._budgets[rung])

    def _reach(self, number: int, rung: int) -> None:
        self._new.pop(number, None)
        self._rung_of[number] = rung

"""Whole trainings: no configuration is dropped on the way; drawn all at once, or generation by generation."""

from collections.abc import Callable
from typing import final

from proxima.tune.method import Fits, Order, Settings

# All configurations and their values → those of the next generation, none after the last.
Draw = Callable[[list[Settings], list[float]], list[Settings]]


def no_more(settings: list[Settings], values: list[float]) -> list[Settings]:
    """The first generation is the only one."""
    return []


@final
class WholeTrainings:
    """Trains every configuration once, in the order of their numbers.

    The next generation is drawn as soon as all values are known, in whichever order they were told.
    """

    def __init__(self, evaluations: int, settings: list[Settings], draw: Draw = no_more) -> None:
        self.settings: list[Settings] = []
        self._evaluations = evaluations
        self._draw = draw
        self._values: dict[int, float] = {}
        self._waiting: dict[int, None] = {}  # numbers that nobody trained yet, in order
        self._add(settings)

    def next(self, fits: Fits) -> Order | None:
        """A configuration that nobody trained yet."""
        number = next(filter(fits, self._waiting), None)
        if number is None:
            return None
        del self._waiting[number]
        return Order(number, 0, self._evaluations)

    def tell(self, number: int, evaluations: int, value: float) -> None:
        """The value of a whole training."""
        self._waiting.pop(number, None)
        self._values[number] = value
        if len(self._values) == len(self.settings):
            values = [self._values[member] for member in range(len(self.settings))]
            self._add(self._draw(list(self.settings), values))

    def wanted(self) -> set[int]:
        """Nobody goes on: every order is a whole training."""
        return set()

    def _add(self, settings: list[Settings]) -> None:
        first = len(self.settings)
        self.settings += settings
        self._waiting.update(dict.fromkeys(range(first, len(self.settings))))

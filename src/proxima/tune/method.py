"""What a search asks of its method: which configuration to train next, how far, and which may go on later.

    method = make_method(config, ranges, check)         methods/__init__.py
    while something is in training, or an order fits:
        method.next(fits)      the order that a free lane takes up
        method.tell(…)         the value of an order that was carried out

Orders and values, in the order in which they happened, are all that a search must keep of its method:
`replay` brings a new one to the same state.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import eq
from typing import NamedTuple, Protocol

from proxima.core.errors import ProximaError
from proxima.scenario.search import Range, SearchConfig, Value

Settings = Mapping[str, Value]  # by dotted path
Ranges = Mapping[str, Range]  # by dotted path
Check = Callable[[Settings], str | None]  # what contradicts in these settings, in words
Fits = Callable[[int], bool]  # whether the configuration of that number can be trained now


class Order(NamedTuple):
    """A configuration to train: all its seeds, from one evaluation to a later one."""

    number: int  # of the configuration
    begin: int  # evaluations that it has had before; 0: it begins from scratch
    end: int  # evaluations after which the method wants its value


class Outcome(NamedTuple):
    """The value of a configuration after so many evaluations; higher is better."""

    number: int
    evaluations: int
    value: float  # -inf: broken


Event = Order | Outcome


class Method(Protocol):
    """Draws configurations and decides which go on.

    Its state depends on nothing but its config, the orders it handed out and the values it was told, and
    a value says that its order was handed out. Asking for an order that nobody fits changes nothing.
    """

    settings: list[Settings]
    """Of every configuration drawn so far, by number."""

    def next(self, fits: Fits) -> Order | None:
        """The next order whose configuration `fits`; None: none now, perhaps after further values."""
        ...

    def tell(self, number: int, evaluations: int, value: float) -> None:
        """The value at the end of an order; higher is better, -inf means broken.

        A training that broke down or converged may tell before the end: `evaluations` is then less.
        """
        ...

    def wanted(self) -> set[int]:
        """Configurations not in training whose state a later order may go on from."""
        ...


# The last argument: what an interrupted search had drawn. It is taken as it is, not drawn and checked again;
# only cma-es must draw again, and fails where it draws others.
Maker = Callable[[SearchConfig, Ranges, Check, Sequence[Settings]], Method]


def replay(method: Method, events: Iterable[Event]) -> None:
    """Bring a new method to the state of the one that took part in these events.

    Each order is asked for by its number: that is all of `fits` that mattered when it was handed out.
    """
    for event in events:
        match event:
            case Outcome():
                method.tell(*event)
            case Order():
                order = method.next(partial(eq, event.number))
                if order != event:
                    raise ProximaError(
                        f"the search cannot go on: it had ordered {_words(event)}, and this version of "
                        f"Proxima orders {_words(order)}; go on with the version that began it"
                    )


def _words(order: Order | None) -> str:
    if order is None:
        return "nothing"
    return f"configuration {order.number} from evaluation {order.begin} to {order.end}"

"""A search without training: random lanes that take up orders and tell made-up values."""

import math

import numpy as np

from proxima.scenario.search import Range, SearchConfig
from proxima.tune.method import Event, Method, Order, Outcome

RATE = Range("log", 1e-5, 1e-1)
CLIP = Range("uniform", 0.1, 0.4)
ENVS = Range("int", 1, 8)
NET = Range("choice", choices=("gru", "mlp", None))
SPACE = {"algorithm.rate": RATE, "algorithm.clip": CLIP, "train.num_envs": ENVS}


def allowed(settings):
    """Nothing contradicts."""


def by_share(settings):
    """About half of the configurations of SPACE contradict."""
    if settings["algorithm.rate"] > 1e-3 and settings["train.num_envs"] > 1:
        return f"a rate of {settings['algorithm.rate']:g} needs one environment"
    return None


def whole_config(**changes) -> SearchConfig:
    return SearchConfig(**{"configs": 12, "generation": 4, "evaluations": 9, **changes})


def random_value(seed: int, number: int, evaluations: int) -> float:
    """One of few values, so that some are equal; now and then broken."""
    value = int(np.random.default_rng((seed, number, evaluations)).integers(-1, 12))
    return -math.inf if value < 0 else float(value)


def in_training(events: list[Event]) -> list[Order]:
    """Orders that were handed out and not yet answered."""
    orders = [event for event in events if isinstance(event, Order)]
    told = {(event.number, event.evaluations) for event in events if isinstance(event, Outcome)}
    return [order for order in orders if (order.number, order.end) not in told]


def step(method: Method, seed: int, events: list[Event], lanes: int = 3) -> Event | None:
    """What happens next; it depends on the method, the seed and what happened before alone.

    A free lane asks first for a configuration of the program that is loaded, which changes at random.
    """
    rng = np.random.default_rng((seed, len(events)))
    training = in_training(events)
    program = rng.integers(2)
    if len(training) < lanes and (not training or rng.random() < 0.6):
        order = method.next(lambda number: number % 2 == program) or method.next(lambda _: True)
        if order is not None:
            return order
    if not training:
        return None
    order = training[rng.integers(len(training))]
    told = Outcome(order.number, order.end, random_value(seed, order.number, order.end))
    method.tell(*told)
    return told


def whole_search(method: Method, seed: int, events=()) -> list[Event]:
    """Everything that happens until nothing is left to do, after what happened before."""
    events = list(events)
    while (event := step(method, seed, events)) is not None:
        events.append(event)
    return events

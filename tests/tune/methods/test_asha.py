"""ASHA beside the paper's table and a slow reading of its Algorithm 2."""

import math

import numpy as np
import pytest
from searches import in_training, step, whole_config

from proxima.scenario.search import Range
from proxima.tune.method import Order, Outcome
from proxima.tune.methods.asha import ASHA, make_asha, rungs


def everything(number):
    return True


def asha(configs, whole, reduction):
    return ASHA([{"a": n} for n in range(configs)], rungs(whole, reduction), reduction)


def test_rungs():
    assert rungs(9, 3) == [1, 3, 9]
    assert rungs(10, 3) == [2, 4, 10]
    assert rungs(10, 2) == [2, 3, 5, 10]
    assert rungs(1, 2) == [1]
    assert rungs(2, 3) == [2]
    for whole in range(1, 1_001):
        for reduction in range(2, 8):
            found = rungs(whole, reduction)
            assert found == sorted(set(found)) and found[-1] == whole and found[0] >= 1
            assert len(found) == 1 + max(j for j in range(12) if reduction**j <= whole)


def alone(method, value_of):
    """The orders of one lane, each carried out before the next."""
    orders = []
    while order := method.next(everything):
        orders.append(order)
        method.tell(order.number, order.end, value_of(order.number, order.end))
    return orders


def test_the_table_of_the_paper():
    """Nine configurations, r = 1, R = 9, η = 3: 9, 3 and 1 of them at budgets of 1, 3 and 9."""
    orders = alone(asha(9, 9, 3), lambda number, _: -number)
    counts = {end: sum(order.end == end for order in orders) for end in (1, 3, 9)}
    assert counts == {1: 9, 3: 3, 9: 1}
    promotions = [Order(0, 1, 3), Order(1, 1, 3), Order(2, 1, 3), Order(0, 3, 9)]
    new = [Order(number, 0, 1) for number in range(9)]
    assert orders == [*new[:3], promotions[0], *new[3:6], promotions[1], *new[6:], *promotions[2:]]


def test_of_equals_the_lower_number_goes_on():
    orders = alone(asha(6, 3, 3), lambda number, _: 1.0)
    assert [order.number for order in orders if order.begin] == [0, 1]


def test_who_is_broken_never_goes_on():
    assert all(order.begin == 0 for order in alone(asha(9, 9, 3), lambda *_: -math.inf))
    orders = alone(asha(9, 9, 3), lambda number, _: -math.inf if number < 8 else 1.0)
    assert [order for order in orders if order.begin] == [Order(8, 1, 3)]


def test_the_best_that_fits_goes_on_and_else_a_new_one():
    method = asha(8, 4, 2)
    for _ in range(4):
        method.next(everything)
    for number in range(4):
        method.tell(number, 1, float(number))
    assert method.next(lambda number: number < 3) == Order(2, 1, 2)
    assert method.next(lambda number: number < 3) is None
    assert method.next(lambda number: number > 3) == Order(4, 0, 1)
    assert method.next(everything) == Order(3, 1, 2)


def test_a_value_before_the_end_of_an_order_is_the_value_at_its_rung():
    method = asha(3, 10, 3)  # rungs 2, 4, 10
    orders = [method.next(everything) for _ in range(3)]
    for order in orders:
        method.tell(order.number, 1, -math.inf if order.number else 1.0)
    assert method.next(everything) == Order(0, 2, 4)
    method.tell(0, 3, -math.inf)
    assert method.next(everything) is None and method.wanted() == set()


def slow_next(events, fits, configs, budgets, reduction):
    """Algorithm 2 of the paper, from the whole history; `top_k` by sorting, no state kept."""
    orders = [event for event in events if isinstance(event, Order)]
    for k in reversed(range(len(budgets) - 1)):
        told = [e for e in events if isinstance(e, Outcome) and e.evaluations == budgets[k]]
        ranked = sorted(told, key=lambda event: event.number)
        ranked = sorted(ranked, key=lambda event: event.value, reverse=True)
        promoted = {order.number for order in orders if order.begin == budgets[k]}
        for event in ranked[: math.floor(len(told) / reduction)]:
            if event.number not in promoted and event.value > -math.inf and fits(event.number):
                return Order(event.number, budgets[k], budgets[k + 1])
    begun = {order.number for order in orders}
    new = [number for number in range(configs) if number not in begun and fits(number)]
    return Order(new[0], 0, budgets[0]) if new else None


class Compared:
    """ASHA which asserts at every order that the slow version agrees."""

    def __init__(self, method, events, configs, budgets, reduction):
        self.method, self.events = method, events
        self.rest = configs, budgets, reduction

    def next(self, fits):
        expected = slow_next(self.events, fits, *self.rest)
        order = self.method.next(fits)
        assert order == expected
        return order

    def tell(self, *told):
        self.method.tell(*told)


@pytest.mark.parametrize("seed", range(30))
def test_as_the_slow_version_whoever_finishes_first(seed):
    rng = np.random.default_rng(seed)
    configs, whole = int(rng.integers(1, 40)), int(rng.integers(1, 30))
    reduction, lanes = int(rng.integers(2, 5)), int(rng.integers(1, 9))
    events = []
    budgets = rungs(whole, reduction)
    method = Compared(asha(configs, whole, reduction), events, configs, budgets, reduction)
    while (event := step(method, seed, events, lanes)) is not None:
        events.append(event)
    assert len({event.number for event in events}) == configs and not in_training(events)


@pytest.mark.parametrize("seed", range(60))
def test_a_state_that_is_dropped_is_never_needed(seed):
    """Whoever is not wanted is not promoted later, nor wanted later; in the end nobody is."""
    rng = np.random.default_rng(1_000 + seed)
    configs, whole = int(rng.integers(1, 60)), int(rng.integers(1, 30))
    reduction, lanes = int(rng.integers(2, 5)), int(rng.integers(1, 9))
    method, events = asha(configs, whole, reduction), []
    kept = set()
    while (event := step(method, seed, events, lanes)) is not None:
        events.append(event)
        match event:
            case Order():
                assert event.begin == 0 or event.number in kept
                kept.discard(event.number)
            case Outcome():
                kept.add(event.number)
        wanted = method.wanted()
        assert wanted <= kept
        assert not wanted & {order.number for order in in_training(events)}
        kept &= wanted
    assert not kept


@pytest.mark.parametrize("seed", range(20))
def test_nobody_is_dropped_too_early_though_each_newcomer_is_better(seed):
    """The most that can be promoted: every one. At the next rung newcomers are then worse than all."""
    method, events, kept = asha(40, 9, 3), [], set()
    rng = np.random.default_rng(seed)
    while True:
        training = in_training(events)
        order = method.next(everything) if len(training) < 1 + seed % 4 else None
        if order is not None:
            assert order.begin == 0 or order.number in kept
            events.append(order)
            continue
        if not training:
            break
        done = training[rng.integers(len(training))]
        told = Outcome(done.number, done.end, done.number if done.end == 1 else -done.number)
        method.tell(*told)
        events.append(told)
        kept = (kept | {done.number}) & method.wanted()
    assert sum(isinstance(e, Order) and e.end == 3 for e in events) > 30


def test_few_states_are_kept():
    method = asha(90, 9, 3)
    for number in range(90):
        method.next(lambda each, number=number: each == number)
        method.tell(number, 1, float(number % 10))
    best = sorted(range(90), key=lambda number: (-(number % 10), number))[:30]
    assert method.wanted() == set(best)


def test_the_maker_takes_its_numbers_from_the_config():
    config = whole_config(configs=5, evaluations=8, reduction=2)
    method = make_asha(config, {"a": Range("uniform", 0, 1)}, lambda settings: None)
    assert len(method.settings) == 5 and method.next(everything) == Order(0, 0, 1)

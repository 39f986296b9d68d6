"""TPE and CMA-ES beside Optuna used directly."""

import math
import subprocess
import sys

import numpy as np
import optuna
import pytest
from searches import NET, RATE, SPACE, allowed, by_share, whole_config, whole_search

from proxima.core.errors import ProximaError
from proxima.scenario.search import Range
from proxima.tune.draws import library_seed
from proxima.tune.methods.optuna import make_cma_es, make_tpe
from proxima.tune.methods.random import make_random

MIXED = {"algorithm.rate": RATE, "train.num_envs": Range("int", 1, 8), "net": NET}


def suggested(trial):
    """SPACE as a user of Optuna writes it."""
    return {
        "algorithm.rate": trial.suggest_float("algorithm.rate", 1e-5, 1e-1, log=True),
        "algorithm.clip": trial.suggest_float("algorithm.clip", 0.1, 0.4),
        "train.num_envs": trial.suggest_int("train.num_envs", 1, 8),
    }


def bowl(settings):
    """Best at a rate of 1e-2, a clip of 0.3 and 6 environments."""
    rate = math.log10(settings["algorithm.rate"]) + 2
    clip = 10 * (settings["algorithm.clip"] - 0.3)
    return -(rate**2) - clip**2 - ((settings["train.num_envs"] - 6) / 4) ** 2


def carried_out(method, value_of=bowl, order=lambda numbers: numbers):
    """The settings after a whole search; a generation is told in the given order."""
    while True:
        numbers = []
        while found := method.next(lambda number: True):
            numbers.append(found.number)
        if not numbers:
            return method.settings
        for number in order(numbers):
            method.tell(number, 9, value_of(method.settings[number]))


def test_tpe_is_that_of_optuna():
    config = whole_config(configs=30, generation=8, seed=3)
    found = carried_out(make_tpe(config, SPACE, allowed))
    expected = []
    for generation in range(4):
        sampler = optuna.samplers.TPESampler(
            seed=library_seed(config, 2, generation), multivariate=True, constant_liar=True
        )
        study = optuna.create_study(direction="maximize", sampler=sampler)
        for settings in expected:
            study.enqueue_trial(settings)
            trial = study.ask()
            study.tell(trial, bowl(suggested(trial)))
        expected += [suggested(study.ask()) for _ in range(min(8, 30 - 8 * generation))]
    assert found == expected


def test_cma_es_is_that_of_optuna():
    config = whole_config(configs=30, generation=8, seed=3)
    found = carried_out(make_cma_es(config, SPACE, allowed))
    sampler = optuna.samplers.CmaEsSampler(seed=library_seed(config, 3), popsize=8)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.enqueue_trial({"algorithm.rate": 1e-3, "algorithm.clip": 0.25, "train.num_envs": 5})
    first = study.ask()
    study.tell(first, bowl(suggested(first)))
    expected = []
    while len(expected) < 30:
        trials = [study.ask() for _ in range(min(8, 30 - len(expected)))]
        drawn = [suggested(trial) for trial in trials]
        for trial, settings in zip(trials, drawn, strict=True):
            study.tell(trial, bowl(settings))
        expected += drawn
    assert found == expected


@pytest.mark.parametrize("make", [make_tpe, make_cma_es])
def test_whoever_finishes_first_makes_no_difference(make):
    config = whole_config(configs=20, generation=8)
    forward = carried_out(make(config, SPACE, by_share))
    assert forward == carried_out(make(config, SPACE, by_share), order=reversed)
    assert [by_share(settings) for settings in forward] == [None] * 20


@pytest.mark.parametrize("make", [make_tpe, make_cma_es])
def test_they_find_more_than_random_search(make):
    def best(maker, seed):
        config = whole_config(configs=64, generation=8, seed=seed)
        settings = carried_out(maker(config, SPACE, allowed))
        return np.mean([bowl(each) for each in settings[-8:]])

    gains = [best(make, seed) - best(make_random, seed) for seed in range(3)]
    assert min(gains) > 0.5


@pytest.mark.parametrize("make", [make_tpe, make_cma_es])
@pytest.mark.parametrize("broken", [0.5, 1.0])
def test_broken_trainings_are_the_worst_and_do_no_harm(make, broken):
    config = whole_config(configs=32, generation=8)
    rng = np.random.default_rng(0)

    def value_of(settings):
        return -math.inf if rng.random() < broken else bowl(settings)

    settings = carried_out(make(config, SPACE, allowed), value_of)
    assert len(settings) == 32 and all(math.isfinite(each["algorithm.rate"]) for each in settings)


def test_tpe_keeps_away_from_where_trainings_break():
    def is_low(settings):
        return settings["algorithm.rate"] <= 1e-3  # half of the space

    first, last = [], []
    for seed in range(4):
        method = make_tpe(whole_config(configs=64, generation=8, seed=seed), SPACE, allowed)
        settings = carried_out(method, lambda each: 0.0 if is_low(each) else -math.inf)
        first += map(is_low, settings[:8])
        last += map(is_low, settings[-32:])
    assert np.mean(first) < 0.75 and np.mean(last) > 0.85


def test_choices_come_as_they_are():
    ranges = {"a": Range("choice", choices=(1, True, "1", None, 1.0)), "b": Range("uniform", 0, 1)}
    settings = carried_out(
        make_tpe(whole_config(configs=40, generation=8), ranges, allowed),
        lambda each: float(each["a"] is True),
    )
    drawn = [repr(each["a"]) for each in settings]
    assert set(drawn) == {"1", "True", "'1'", "None", "1.0"}
    assert drawn[16:].count("True") > 8


def test_values_are_inside_their_ranges_also_where_the_best_is_at_an_end():
    config = whole_config(configs=60, generation=6)
    ranges = {
        "a": Range("log", 0.1, 0.3),
        "b": Range("uniform", -0.7, 0.1),
        "c": Range("int", 1, 3),
    }
    for make in (make_tpe, make_cma_es):
        for settings in carried_out(make(config, ranges, allowed), lambda each: sum(each.values())):
            assert [type(value) for value in settings.values()] == [float, float, int]
            assert all(span.low <= settings[path] <= span.high for path, span in ranges.items())


def test_what_cma_es_cannot_do_is_refused():
    with pytest.raises(
        ProximaError, match="cma-es moves in numbers, and net is a choice; use method tpe"
    ):
        make_cma_es(whole_config(), MIXED, allowed)
    with pytest.raises(ProximaError, match=r"search\.generation: 3 is too few .* at least 4"):
        make_cma_es(whole_config(generation=3), SPACE, allowed)


@pytest.mark.parametrize("make", [make_tpe, make_cma_es])
def test_one_setting_and_the_smallest_generation(make):
    config = whole_config(configs=9, generation=2 if make is make_tpe else 4)
    assert len(carried_out(make(config, {"a": RATE}, allowed), lambda each: each["a"])) == 9


@pytest.mark.parametrize("make", [make_tpe, make_cma_es])
def test_a_space_in_which_all_contradicts_is_refused(make):
    with pytest.raises(ProximaError, match=r"of 1,000 .*: never; narrow"):
        make(whole_config(), SPACE, lambda settings: "never")


def test_cma_es_that_draws_others_than_before_cannot_go_on():
    config = whole_config(configs=12, generation=4)
    method = make_cma_es(config, SPACE, allowed)
    events = whole_search(method, seed=1)
    rounded = [
        {**each, "algorithm.clip": each["algorithm.clip"] * (1 + 1e-12)} for each in method.settings
    ]
    again = make_cma_es(config, SPACE, allowed, rounded)
    assert whole_search(again, seed=1) == events
    others = [*method.settings[:-1], {**method.settings[-1], "algorithm.clip": 0.2}]
    again = make_cma_es(config, SPACE, allowed, others)
    with pytest.raises(ProximaError, match="cma-es draws other settings than when it began"):
        whole_search(again, seed=1)


def test_nothing_is_printed():
    lines = (
        "from proxima.scenario.search import Range, SearchConfig",
        "from proxima.tune.methods.optuna import make_cma_es, make_tpe",
        "config = SearchConfig(generation=4, configs=4)",
        "for make in (make_tpe, make_cma_es):",
        "    make(config, {'a': Range('uniform', 0, 1)}, lambda settings: None).tell(0, 1, 0.0)",
    )
    command = [sys.executable, "-W", "error", "-c", "\n".join(lines)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")

"""How long the parts of an update take: of a scenario by itself, without a run."""

import time
from pathlib import Path
from typing import Any

import numpy as np

from proxima.build import algorithm, domain_of
from proxima.core.errors import ProximaError
from proxima.scenario import EnvironmentScenario, Scenario
from proxima.train.devices import use_compilation_cache
from proxima.train.memory import memory_metrics


def profile_scenario(scenario: Scenario) -> dict[str, Any]:
    """Seconds of the parts of an update and of an evaluation, throughput and memory; no run is made."""
    if not isinstance(scenario, EnvironmentScenario):
        raise ProximaError(
            f"{scenario.name}: has no environment; its runs note the time of every part of an update"
        )
    owner = domain_of(scenario)
    owner.prepare_host(scenario)
    use_compilation_cache()
    prepared = owner.prepare(scenario)
    try:
        return _measured(scenario, prepared.stages[0].make(lambda trial: Path()))
    finally:
        prepared.close()


def _measured(scenario: Any, trainable: Any) -> dict[str, Any]:
    stage = trainable.stage
    states, began = stage.init(), time.perf_counter()
    states = stage.prepare(states)
    compiled = time.perf_counter()
    begins = algorithm(scenario.algorithm.name).learning_begins(scenario.algorithm)
    updates = max(stage.schedule.updates_per_chunk, -(-begins // stage.steps_per_update))
    active = np.ones(scenario.trials, bool)
    states, _ = stage.advance(states, active, updates, 0)
    states, rows = stage.advance(states, active, updates, updates)
    phases = trainable.profile(states, rows[:1], updates)
    evaluating = time.perf_counter()
    stage.evaluate(states)
    evaluated = time.perf_counter()
    steps = stage.steps_per_update * scenario.trials
    return {
        "scenario": scenario.name,
        "algorithm": scenario.algorithm.name,
        "trials": scenario.trials,
        "steps_per_update": steps,
        "phases": phases,
        "evaluate": evaluated - evaluating,
        "compile": compiled - began,
        "steps_per_second": steps / phases["update"],
        "memory": memory_metrics(),
    }

"""How long the parts of an update take: of a scenario by itself, and of a run when it has trained."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from proxima.build import build, learning_begins, settings
from proxima.core.seeds import trial_seeds
from proxima.core.types import TrainState
from proxima.run.clock import timed
from proxima.run.files import read_rows
from proxima.run.recording import Run
from proxima.scenario import Scenario
from proxima.train.loop import Progress, chunk_updates
from proxima.train.memory import memory_metrics
from proxima.train.program import Program

HOST_PARTS = ("env", "act", "learn")  # what programs over host environments time themselves


def profile_scenario(scenario: Scenario) -> dict[str, Any]:
    """Seconds of the parts of an update and of an evaluation, throughput and memory; no run is made."""
    from proxima.train.devices import prepare_host, use_compilation_cache

    prepare_host(scenario.trials, scenario.training.threads)
    use_compilation_cache()
    built = build(scenario)
    program = built.program
    try:
        states = program.init(trial_seeds(scenario.seed, scenario.trials))
        began = time.perf_counter()
        states = program.prepare(states, scenario.evaluation.eval_episodes)
        compiled = time.perf_counter()
        states, phases = _measure(scenario, program, states)
        evaluating = time.perf_counter()
        program.evaluate(states.learner, "greedy", scenario.evaluation.eval_episodes)
        evaluated = time.perf_counter()
    finally:
        program.close()
    steps = program.steps_per_update * scenario.trials
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


def _measure(
    scenario: Scenario, program: Program, states: TrainState
) -> tuple[TrainState, dict[str, float]]:
    """States that have learnt for a chunk, and the parts of an update as they then are."""
    per_update = program.steps_per_update
    updates = chunk_updates(settings(scenario).training, per_update)
    updates = max(updates, -(-learning_begins(scenario) // per_update))
    active = np.ones(scenario.trials, bool)
    states, sums = program.chunk(states, active, updates)
    if program.profile is not None:
        return states, program.profile(states)
    states, sums = program.chunk(states, active, updates)
    return states, host_phases([{name: float(sums[name][0]) for name in sums}], updates)


def host_phases(rows: Sequence[Mapping[str, Any]], updates: int) -> dict[str, float]:
    """The same parts from what a host program says in every chunk."""
    env, act, learn = (sum(row[f"time/{part}"] for row in rows) / updates for part in HOST_PARTS)
    return {
        "rollout": env + act,
        "env": env,
        "act": act,
        "learn": learn,
        "update": env + act + learn,
    }


def phases_of(run: Run, states: TrainState, progress: Progress) -> dict[str, float] | None:
    """The parts of an update at the end of a run, to its tracker too; None where nobody asked."""
    if not run.scenario.telemetry.phases:
        return None
    program = run.built.program
    longest = int(np.argmax([book.steps for book in progress.books]))
    steps = progress.books[longest].steps
    with timed(run.clock, "profile"):
        if program.profile is not None:
            phases = program.profile(states)
        else:
            rows = read_rows(run.files.trial(longest) / "metrics.jsonl")
            phases = host_phases(rows, steps // program.steps_per_update)
    run.tracker.log_parent_metrics(
        steps, {f"time/update_{part}": seconds for part, seconds in phases.items()}
    )
    return phases

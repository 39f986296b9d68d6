"""Experiments that a search runs as `proxima experiment` would, each begun, gone on with or read again."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from proxima.build import domain_of
from proxima.run.files import find_run
from proxima.run.report import read_curves
from proxima.run.results import Summary
from proxima.run.resume import resume_experiment
from proxima.run.start import run_multiple_experiments
from proxima.run.train import TrainBlocks
from proxima.scenario import EnvironmentScenario
from proxima.train.reinforcement import block_width, fits_blocks
from proxima.tune.objective import Point


def experiment(
    scenario: Any,
    folder: Path,
    name: str,
    trials: int,
    seed: int,
    cluster: TrainBlocks | None = None,
) -> Summary:
    """The experiment, begun, gone on with or read again; its files are in the folder."""
    if (folder / name / "latest" / "run.json").is_file():
        return resume_experiment(name, output_directory=str(folder), cluster=cluster)
    tracking = replace(scenario.tracking, enabled=False)  # the search itself is tracked
    own = replace(
        in_blocks_for(scenario, trials),
        name=name,
        trials=trials,
        seed=seed,
        output_directory=str(folder),
        tracking=tracking,
        search=None,
    )
    return run_multiple_experiments(own, cluster=cluster)


def in_blocks_for(scenario: Any, trials: int) -> Any:
    """The scenario with blocks that so many trials divide into; one without blocks as it is."""
    if not isinstance(scenario, EnvironmentScenario):
        return scenario
    block = scenario.training.trials_per_block
    if block is None or fits_blocks(trials, block):
        return scenario
    training = replace(scenario.training, trials_per_block=block_width(trials))
    return replace(scenario, training=training)


def curves_of(scenario: Any, folder: Path, name: str, metric: str | None) -> list[list[Point]]:
    """The learning curve of every trial of such an experiment: of a metric, or the domain's own."""
    files, summary = (
        find_run(name, str(folder)),
        resume_experiment(name, output_directory=str(folder)),
    )
    stage, usual = domain_of(scenario).curve(scenario)
    curves = read_curves(files, (stage, metric or usual), summary.trials)
    return [[(int(step), float(value)) for step, value in _points(curve)] for curve in curves]


def _points(curve: Any) -> np.ndarray:
    return np.stack([np.asarray(axis, float) for axis in curve], axis=1)


def closing_values(summary: Summary, curves: Sequence[Sequence[Point]]) -> tuple[float | None, ...]:
    """What every trial came to: its closing evaluation, or where it has none the end of its curve."""
    ends = [curve[-1][1] if curve else None for curve in curves]
    return tuple(
        None
        if trial.stopped == "nan"
        else (trial.evaluation.return_mean if trial.evaluation is not None else end)
        for trial, end in zip(summary.trials, ends, strict=True)
    )

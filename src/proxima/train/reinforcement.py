"""Reinforcement learning as a stage: a Program's trials are its lanes, environment steps its unit."""

from typing import NamedTuple

import numpy as np

from proxima.core.types import TrainState
from proxima.train import checkpoint
from proxima.train.checkpoint import CheckpointConfig
from proxima.train.config import EvaluationConfig, TrainingConfig
from proxima.train.convergence import Convergence, ConvergenceConfig, observe
from proxima.train.devices import Layout
from proxima.train.program import Evaluation, Program
from proxima.train.stage import Row, Schedule, Score, Stage

CHUNKS_PER_RUN = 50  # points of a learning curve, when the scenario does not say
LARGEST_CHUNK = 50_000  # environment steps; longer ones would make a run slow to answer
FEWEST_BLOCKS, WIDEST_BLOCK = 8, 16  # where the scenario does not say how wide a block is
FIGURES = {"episode/return": "return", "eval/return_mean": "greedy"}


class Settings(NamedTuple):
    """The sections of a scenario that say how its trials train."""

    training: TrainingConfig
    evaluation: EvaluationConfig
    convergence: ConvergenceConfig
    checkpoint: CheckpointConfig


def reinforcement_stage(
    program: Program,
    trials: tuple[int, ...],
    seeds: list[int],
    settings: Settings,
    layout: Layout,
) -> Stage:
    """Trials of a program, with a seed each, as the lanes of one stage."""
    evaluation, source = settings.evaluation, settings.convergence.source

    def advance(
        states: TrainState, active: np.ndarray, updates: int, done: int
    ) -> tuple[TrainState, list[Row]]:
        states, sums = program.chunk(states, active, updates)
        return states, [trial_metrics(sums, trial, updates) for trial in range(len(active))]

    def evaluate(states: TrainState) -> list[Score]:
        return scores(program.evaluate(states.learner, "greedy", evaluation.eval_episodes))

    def converge_training(memory: Convergence, row: Row, step: int) -> Convergence:
        if source != "training" or "episode/return" not in row:
            return memory
        count = round(row["episode/count"])
        return observe(settings.convergence, memory, row["episode/return"], count, step)

    def converge_evaluation(memory: Convergence, score: Score, step: int) -> Convergence:
        if source != "evaluation":
            return memory
        return observe(settings.convergence, memory, score.value, score.episodes, step)

    return Stage(
        trials=trials,
        unit="steps",
        steps_per_update=program.steps_per_update,
        schedule=Schedule(
            updates_per_chunk=chunk_updates(settings.training, program.steps_per_update),
            max_steps=settings.training.max_steps,
            max_episodes=settings.training.max_episodes,
            evaluate_every=evaluation.eval_frequency,
            evaluate_by="episodes",
            save_every=settings.checkpoint.frequency,
            closing=evaluation.checkpoint,
        ),
        init=lambda: program.init(seeds),
        split=checkpoint.split_trials,
        join=lambda lanes: program.lay_out(checkpoint.stack_trials(lanes)),
        prepare=lambda states: program.prepare(states, evaluation.eval_episodes),
        advance=advance,
        evaluate=evaluate,
        figures=FIGURES,
        reseed=program.reseed,
        exact_anywhere=program.exact_anywhere,
        layout=layout._asdict(),
        converge_training=converge_training,
        converge_evaluation=converge_evaluation,
        notices=program.notices,
    )


def blocks_of(trials: int, width: int) -> list[tuple[int, ...]]:
    """The trials in blocks of this width, in order."""
    return [tuple(range(first, min(first + width, trials))) for first in range(0, trials, width)]


def fits_blocks(count: int, width: int) -> bool:
    """Whether so many trials or lanes are one block, or several of the same width."""
    return count <= width or count % width == 0


def block_width(lanes: int, *others: int) -> int:
    """The width of blocks where the scenario does not say: a divisor of the lanes that leaves several blocks.

    It depends on these numbers alone, never on a machine. `others` are counts that it fits too.
    """
    widest = max(1, min(WIDEST_BLOCK, lanes // FEWEST_BLOCKS))
    return max(
        width
        for width in range(1, widest + 1)
        if lanes % width == 0 and all(fits_blocks(other, width) for other in others)
    )


def chunk_updates(config: TrainingConfig, steps_per_update: int) -> int:
    """Updates per chunk: the scenario's, or about 50 chunks in a run."""
    if config.updates_per_chunk is not None:
        return config.updates_per_chunk
    wanted = LARGEST_CHUNK if config.max_steps is None else config.max_steps / CHUNKS_PER_RUN
    if config.max_steps is None and config.max_episodes is not None:
        wanted = 4 * steps_per_update  # episodes are counted between chunks: look often
    return max(1, round(min(wanted, LARGEST_CHUNK) / steps_per_update))


def trial_metrics(sums: dict[str, np.ndarray], trial: int, updates: int) -> Row:
    """Means over the chunk's updates; of episodes, the mean over those that ended."""
    row = {key: float(values[trial]) for key, values in sums.items()}
    count = row.pop("episode/count")
    returns, lengths = row.pop("episode/return_sum"), row.pop("episode/length_sum")
    row = {key: value if key.startswith("time/") else value / updates for key, value in row.items()}
    row["episode/count"] = count
    if count > 0:
        row |= {"episode/return": returns / count, "episode/length": lengths / count}
    return row


def scores(evaluation: Evaluation) -> list[Score]:
    """Mean returns of each trial, with their spread and the episodes' length."""
    rows = zip(evaluation.returns, evaluation.lengths, strict=True)
    return [
        Score(
            float(returns.mean()),
            len(returns),
            {
                "eval/return_mean": float(returns.mean()),
                "eval/return_std": float(returns.std()),
                "eval/length_mean": float(lengths.mean()),
            },
        )
        for returns, lengths in rows
    ]

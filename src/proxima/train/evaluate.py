"""What an evaluation says: per-episode vectors kept, and their summary."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from annotated_types import Ge

from proxima.train.program import Evaluation


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """How often and how thoroughly the greedy policy is measured."""

    eval_frequency: Annotated[int, Ge(1)] = 50
    """Training episodes between two evaluations, looked at between chunks."""
    eval_episodes: Annotated[int, Ge(1)] = 10
    """Episodes of an evaluation during training."""
    final_episodes: Annotated[int, Ge(1)] = 100
    """Episodes of the closing evaluation: greedy, sampled and random policy."""
    checkpoint: Literal["last", "best"] = "last"
    """Whose policy is evaluated at the end and exported: the last one, or the best during training."""
    film: bool = True
    """Draw a GIF of the trained policy where the environment can be drawn."""


def describe(evaluation: Evaluation, trial: int) -> dict[str, Any]:
    """One trial's evaluation as results.json holds it."""
    returns = np.asarray(evaluation.returns[trial], np.float64)
    lengths = np.asarray(evaluation.lengths[trial], np.float64)
    return {
        "episodes": len(returns),
        "returns": returns.tolist(),
        "lengths": lengths.astype(int).tolist(),
        "return_mean": float(returns.mean()),
        "return_std": float(returns.std()),
        "return_min": float(returns.min()),
        "return_max": float(returns.max()),
        "length_mean": float(lengths.mean()),
    }

"""When a trial has learnt what it was asked: a sliding window, patience and the best value seen.

reached   the mean of the newest `convergence_window` episodes is at the target
converged it has stayed there for `early_stopping_patience` further episodes
"""

import math
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

from annotated_types import Ge

Groups = tuple[tuple[float, int], ...]  # mean return and number of episodes


@dataclass(frozen=True, kw_only=True)
class ConvergenceConfig:
    """What counts as solved, and how sure to be before stopping."""

    target_reward: float | None = None
    """Mean episode return that counts as solved; null: there is no such mark, train for the whole budget."""
    convergence_window: Annotated[int, Ge(1)] = 100
    """Episodes in the sliding window whose mean is compared with the target."""
    early_stopping_patience: Annotated[int, Ge(0)] = 10
    """Further episodes for which the window must stay at the target before the trial stops."""
    source: Literal["evaluation", "training"] = "evaluation"
    """Whose episodes fill the window: the greedy evaluation's or the exploring policy's."""


class Convergence(NamedTuple):
    """What a trial's convergence check remembers."""

    groups: Groups = ()  # newest last
    best: float | None = None  # the best window mean seen
    reached_at_step: int | None = None  # start of the present streak at the target
    waited: int = 0  # episodes since then
    converged: bool = False


def observe(
    config: ConvergenceConfig, state: Convergence, mean: float, episodes: int, step: int
) -> Convergence:
    """The state after `episodes` more episodes of that mean return, seen at environment step `step`.

    Episodes arrive in groups (an evaluation, a chunk); the window is the fewest newest groups that
    hold at least `convergence_window` episodes.
    """
    if episodes == 0 or state.converged:
        return state
    groups = (*state.groups, (mean, episodes))
    while len(groups) > 1 and _episodes(groups[1:]) >= config.convergence_window:
        groups = groups[1:]
    state = state._replace(groups=groups)
    if _episodes(groups) < config.convergence_window:
        return state
    window = window_mean(groups)
    state = state._replace(best=window if state.best is None else max(state.best, window))
    if config.target_reward is None or window < config.target_reward:
        return state._replace(reached_at_step=None, waited=0)
    if state.reached_at_step is None:
        state = state._replace(reached_at_step=step)
    else:
        state = state._replace(waited=state.waited + episodes)
    return state._replace(converged=state.waited >= config.early_stopping_patience)


def window_mean(groups: Groups) -> float:
    """Mean return over the groups' episodes, NaN for none."""
    total = sum(mean * episodes for mean, episodes in groups)
    return total / _episodes(groups) if groups else math.nan


def _episodes(groups: Groups) -> int:
    return sum(episodes for _, episodes in groups)

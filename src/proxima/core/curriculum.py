"""Curricula: of which levels a trial's next episodes are, by one of three rules.

    steps      a level begins when so many updates are done
    success    the next level begins when the mean score of the newest episodes of this one is high enough
    progress   every episode's level is drawn; the faster a level's scores change, the likelier it is

A rule gives every level's chance at a reset from where the trial stands, and where it stands after an
update from the episodes that ended in it. Learning by progress: Matiisen et al. 2017, "Teacher-Student
Curriculum Learning" (arXiv 1707.00183); progress as the difference of a fast and a slow running mean, so
that a few episodes' luck is not taken for it: Kanitscheider et al. 2021 (arXiv 2106.14876), section 3.
"""

from typing import Any, NamedTuple, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from proxima.core.types import PyTree, Transition


class Tally(NamedTuple):
    """The episodes that ended in an update, by level: how many, and the sum of their scores, (levels,)."""

    episodes: Array
    score: Array


class Rule(Protocol):
    """How a trial comes from level to level; its numbers are leaves, where a trial stands is an argument."""

    def init(self) -> PyTree: ...
    def chances(self, standing: Any) -> Array: ...  # of each level at a reset, (levels,)
    def follow(self, standing: Any, tally: Tally) -> PyTree: ...  # after one more update


class BySteps(eqx.Module):
    """Level k is that of all episodes from update `begins[k]` on."""

    begins: Array  # (levels,) int32, rising from 0

    def init(self) -> Array:
        """The updates done."""
        return jnp.zeros((), jnp.int32)

    def chances(self, updates: Array) -> Array:
        """All of it for the last level that has begun."""
        level = jnp.sum(self.begins <= updates) - 1
        chances: Array = jax.nn.one_hot(level, len(self.begins))
        return chances

    def follow(self, updates: Array, tally: Tally) -> Array:
        """One update more, whatever came of it."""
        return updates + 1


class Attained(NamedTuple):
    """Where a trial stands that goes on by success."""

    level: Array  # int32
    episodes: Array  # of this level since it began or was last judged
    score: Array  # the sum of theirs


class BySuccess(eqx.Module):
    """After every `window` episodes of a level or some more, the next begins if their mean score will do."""

    threshold: Array
    window: Array
    levels: int = eqx.field(static=True)

    def init(self) -> Attained:
        """The first level, nothing known of it."""
        return Attained(jnp.int32(0), jnp.float32(0.0), jnp.float32(0.0))

    def chances(self, standing: Attained) -> Array:
        """All of it for the level attained."""
        chances: Array = jax.nn.one_hot(standing.level, self.levels)
        return chances

    def follow(self, standing: Attained, tally: Tally) -> Attained:
        """Episodes of earlier levels, which were under way when this one began, do not count."""
        count = standing.episodes + tally.episodes[standing.level]
        score = standing.score + tally.score[standing.level]
        judged = count >= self.window
        passed = judged & (score >= self.threshold * count)
        level = jnp.minimum(standing.level + passed, self.levels - 1)
        return Attained(level, jnp.where(judged, 0.0, count), jnp.where(judged, 0.0, score))


class Means(NamedTuple):
    """Where a trial stands whose levels are drawn by progress, (levels,)."""

    fast: Array  # running means of scores
    slow: Array
    seen: Array  # whether an episode of the level has ended yet


class ByProgress(eqx.Module):
    """Levels are drawn in proportion to |fast − slow| of the running means of their scores."""

    fast: Array  # weight of a new episode in the running means
    slow: Array
    uniform: Array  # share of the draws in which all levels are as likely
    levels: int = eqx.field(static=True)

    def init(self) -> Means:
        """Nothing known of any level."""
        zeros = jnp.zeros(self.levels)
        return Means(zeros, zeros, jnp.zeros(self.levels, bool))

    def chances(self, standing: Means) -> Array:
        """A level of which nothing is known yet counts as the one with the most progress."""
        progress = jnp.abs(standing.fast - standing.slow)
        most = jnp.max(progress, where=standing.seen, initial=0.0)
        progress = jnp.where(standing.seen, progress, most)
        total = jnp.sum(progress)
        even = jnp.full(self.levels, 1.0 / self.levels)
        share = jnp.where(total > 0.0, progress / jnp.where(total > 0.0, total, 1.0), even)
        return self.uniform * even + (1.0 - self.uniform) * share

    def follow(self, standing: Means, tally: Tally) -> Means:
        """The means after n episodes, as if each had the mean score of the n; begun with the first ones'."""
        mean = tally.score / jnp.maximum(tally.episodes, 1.0)

        def moved(before: Array, rate: Array) -> Array:
            kept = jnp.where(standing.seen, (1.0 - rate) ** tally.episodes, 0.0)
            return jnp.where(tally.episodes > 0.0, kept * before + (1.0 - kept) * mean, before)

        seen = standing.seen | (tally.episodes > 0.0)
        return Means(moved(standing.fast, self.fast), moved(standing.slow, self.slow), seen)


class Course(eqx.Module):
    """A rule, and what counts as an episode's score."""

    rule: Rule
    # The return from which on an episode scores 1, else 0; NaN: its score is its return.
    success: Array
    levels: int = eqx.field(static=True)

    def score(self, returns: Array) -> Array:
        """The scores of episodes with these returns."""
        succeeded = (returns >= self.success).astype(jnp.float32)
        return jnp.where(jnp.isnan(self.success), returns, succeeded)


class Begun(NamedTuple):
    """The episodes that are open when a rollout starts, (B,)."""

    earned: Array  # so far
    level: Array


def tally(course: Course, rollout: Transition, begun: Begun, next_level: Array) -> Tally:
    """The rollout's ended episodes by level; `next_level` (T, B) is that of an episode begun after a step."""
    ended = (rollout.terminated | rollout.truncated) & rollout.mask
    reward = jnp.where(rollout.mask, rollout.reward, 0.0)

    def step(before: Begun, row: tuple[Array, Array, Array]) -> tuple[Begun, Begun]:
        reward, ended, level = row
        now = Begun(before.earned + reward, before.level)
        after = Begun(jnp.where(ended, 0.0, now.earned), jnp.where(ended, level, now.level))
        return after, now

    episodes = jax.lax.scan(step, begun, (reward, ended, next_level))[1]
    of_level = jax.nn.one_hot(episodes.level, course.levels) * ended[..., None]
    scores = jnp.where(ended, course.score(episodes.earned), 0.0)
    return Tally(jnp.sum(of_level, axis=(0, 1)), jnp.sum(of_level * scores[..., None], axis=(0, 1)))

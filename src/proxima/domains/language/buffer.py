"""Experience between rollouts and gradient steps: bounded, and handed out in fresh orders."""

from collections.abc import Iterator
from typing import final

import jax
import jax.numpy as jnp
from jax import Array

from proxima.core.errors import ProximaError
from proxima.domains.language.samples import Experience, Rows


def shuffled(experience: Experience, key: Array, minibatches: int) -> Experience:
    """The rows in a fresh order, divided: every leaf (minibatches, rows of each, ...)."""
    rows = experience.scores.shape[0]
    order = jax.random.permutation(key, rows)

    def divide(leaf: Array) -> Array:
        return leaf[order].reshape(minibatches, rows // minibatches, *leaf.shape[1:])

    return jax.tree.map(divide, experience)


@final
class ExperienceBuffer:
    """Experience of the last rollouts, at most `capacity` completions; the oldest go first."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._held: list[Experience] = []

    def __len__(self) -> int:
        return sum(len(each.scores) for each in self._held)

    def store(self, experience: Experience) -> None:
        """Takes a rollout in; whole rollouts leave, and of a larger one only its last rows stay."""
        self._held.append(jax.tree.map(lambda leaf: leaf[-self.capacity :], experience))
        while len(self) > self.capacity:
            del self._held[0]

    def clear(self) -> None:
        """Forgets everything: PPO learns from each rollout once."""
        self._held.clear()

    def minibatches(self, key: Array, count: int) -> Iterator[Experience]:
        """All that is held, each row once, in `count` minibatches of one size."""
        if not self._held or len(self) % count:
            raise ProximaError(
                f"{len(self)} completions do not make {count} minibatches of one size; store more, or ask "
                "for another number"
            )
        divided = shuffled(joined_rollouts(self._held), key, count)
        for place in range(count):
            yield jax.tree.map(lambda leaf, place=place: leaf[place], divided)


def joined_rollouts(rollouts: list[Experience]) -> Experience:
    """Rollouts below each other; prompts get pads on the left and tokens on the right to equal widths."""
    before = max(each.prompts.ids.shape[1] for each in rollouts)
    after = max(each.completions.ids.shape[1] for each in rollouts)

    def widened(each: Experience) -> Experience:
        left = before - each.prompts.ids.shape[1]
        right = after - each.completions.ids.shape[1]
        prompts = Rows(*(jnp.pad(leaf, ((0, 0), (left, 0))) for leaf in each.prompts))
        rest = {
            name: jax.tree.map(lambda leaf: jnp.pad(leaf, ((0, 0), (0, right))), leaf)
            for name, leaf in each._asdict().items()
            if name not in ("prompts", "scores")
        }
        return Experience(prompts=prompts, scores=each.scores, **rest)

    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *map(widened, rollouts))

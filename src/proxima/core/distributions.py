"""Action distributions as values: parameters in a NamedTuple, sampling by noise drawn beforehand.

Each has `sample(noise)`, `mode()`, `log_prob(action)` and `entropy()`, over any leading axes with the
event last. Noise is an argument, so that a whole rollout's can be drawn in one call: drawing inside a
compiled loop costs far more.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)
LOG_TWO = math.log(2)


class Categorical(NamedTuple):
    """Over the last axis of `logits`, normalised log-probabilities; −inf marks an invalid action."""

    logits: Array

    def sample(self, gumbel: Array) -> Array:
        return jnp.argmax(self.logits + gumbel, axis=-1).astype(jnp.int32)

    def mode(self) -> Array:
        return jnp.argmax(self.logits, axis=-1).astype(jnp.int32)

    def log_prob(self, action: Array) -> Array:
        # A comparison instead of a gather: its gradient is a product, not a scatter.
        index = jax.lax.broadcasted_iota(jnp.int32, self.logits.shape, self.logits.ndim - 1)
        chosen = index == action[..., None]
        return jnp.sum(jnp.where(chosen, self.logits, 0.0), axis=-1)

    def entropy(self) -> Array:
        valid = self.logits > -jnp.inf
        safe = jnp.where(valid, self.logits, 0.0)
        return -jnp.sum(jnp.where(valid, jnp.exp(safe) * safe, 0.0), axis=-1)


class MultiCategorical(NamedTuple):
    """Independent choices, the last but one axis of `logits`; probabilities multiply."""

    logits: Array

    def sample(self, gumbel: Array) -> Array:
        return Categorical(self.logits).sample(gumbel)

    def mode(self) -> Array:
        return Categorical(self.logits).mode()

    def log_prob(self, action: Array) -> Array:
        return jnp.sum(Categorical(self.logits).log_prob(action), axis=-1)

    def entropy(self) -> Array:
        return jnp.sum(Categorical(self.logits).entropy(), axis=-1)


def categorical(logits: Array, mask: Array | None = None) -> Categorical:
    """A Categorical from raw logits; masked actions get probability 0, gradient 0, no entropy."""
    if mask is None:
        return Categorical(jax.nn.log_softmax(logits))
    finite = jnp.where(mask, logits, jnp.finfo(logits.dtype).min)
    return Categorical(jnp.where(mask, jax.nn.log_softmax(finite), -jnp.inf))


class Normal(NamedTuple):
    """Independent normals, the event the last axis; the environment clips actions."""

    mean: Array
    log_std: Array

    def sample(self, normal: Array) -> Array:
        return self.mean + jnp.exp(self.log_std) * normal

    def mode(self) -> Array:
        return self.mean

    def log_prob(self, action: Array) -> Array:
        z = (action - self.mean) * jnp.exp(-self.log_std)
        return jnp.sum(-0.5 * z * z - self.log_std - HALF_LOG_TWO_PI, axis=-1)

    def entropy(self) -> Array:
        per_event = self.log_std + 0.5 + HALF_LOG_TWO_PI
        return jnp.sum(jnp.broadcast_to(per_event, self.mean.shape), axis=-1)


class TanhNormal(NamedTuple):
    """A normal squashed by tanh and stretched to `low` .. `high`."""

    mean: Array
    log_std: Array
    low: Array
    high: Array

    def _stretch(self, squashed: Array) -> Array:
        return self.low + 0.5 * (squashed + 1.0) * (self.high - self.low)

    def _log_volume(self, raw: Array) -> Array:
        # log d/dx tanh(x) = 2 (log 2 − x − softplus(−2x)), exact where 1 − tanh² would underflow
        squash = 2.0 * (LOG_TWO - raw - jax.nn.softplus(-2.0 * raw))
        return squash + jnp.log(0.5 * (self.high - self.low))

    def sample(self, normal: Array) -> Array:
        return self._stretch(jnp.tanh(self.mean + jnp.exp(self.log_std) * normal))

    def mode(self) -> Array:
        return self._stretch(jnp.tanh(self.mean))

    def log_prob(self, action: Array) -> Array:
        squashed = 2.0 * (action - self.low) / (self.high - self.low) - 1.0
        raw = jnp.arctanh(jnp.clip(squashed, -1.0 + 1e-6, 1.0 - 1e-6))
        base = Normal(self.mean, self.log_std).log_prob(raw)
        return base - jnp.sum(self._log_volume(raw), axis=-1)

    def entropy(self) -> Array:
        # There is no closed form: the base normal's, and the log-volume of the stretch at the mean.
        base = Normal(self.mean, self.log_std).entropy()
        return base + jnp.sum(self._log_volume(self.mean), axis=-1)


Distribution = Categorical | MultiCategorical | Normal | TanhNormal

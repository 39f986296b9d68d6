"""Sequential Monte Carlo search over copies of an environment (SPO, arXiv 2402.07963, section 4.1).

    N particles at the environment's state, each with a root action drawn from the prior
    at each depth:  step the copy;  td = r + γ (1 − terminated) V(s') − V(s)
                    weight += td;  advantage += (γλ)^depth td;  next action ~ π(·|s')
                    now and then:  draw N particles ~ softmax(weight / temperature), weights back to 0
    read-out:       a particle ~ softmax(weight / temperature); its root action is the search's answer

The model is two functions: one steps copies, one is a single pass of actor and critic. A particle that
has ended stays as it is. Left out on purpose: a learnt model, and resampling after the last depth, where
the read-out already is that draw and a draw of a draw only adds noise.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from proxima.core.branch import when
from proxima.core.returns import td_target
from proxima.core.trees import select
from proxima.core.types import PyTree, Step


class Model(NamedTuple):
    """The environment and the net, as functions over particles (B, N, ...)."""

    step: Callable[[PyTree, PyTree, Array], tuple[PyTree, Step]]  # state, action, key
    predict: Callable[[PyTree, Array], tuple[PyTree, Array]]  # obs, noise → next action, V(obs)


class Rules(NamedTuple):
    """How particles are weighed and when they are resampled."""

    gamma: Array
    lam: Array
    temperature: Array
    resample_period: Array  # depths between two resamplings
    ess_threshold: Array  # share of N below which the effective sample size may not fall


class Noise(NamedTuple):
    """The randomness of a search of depth D, (D, B, N, ...)."""

    action: Array
    step: Array  # keys
    resample: Array  # uniform numbers


class Particles(NamedTuple):
    """The state of particles, (B, N, ...); resampling gathers every part of it."""

    state: PyTree
    root_action: PyTree  # as the prior draws it
    action: PyTree  # the next to be taken, as the environment takes it
    value: Array  # V of the state's observation
    ended: Array
    trace: Array  # (γλ)^depth
    origin: Array  # which of the root's particles it stems from


Progress = tuple[Particles, Array, Array]  # with the particles' weights and the root's advantages


class SearchResult(NamedTuple):
    """The particles at the end of a search, (B, N, ...)."""

    root_action: PyTree  # after all resampling, so that a good one may occur several times
    weight: Array  # of these, adding up to 1
    advantage: Array  # of the root actions as they were drawn
    metrics: dict[str, Array]  # (B,)


def shares(weight: Array, temperature: Array) -> Array:
    """softmax(weight / temperature) over the last axis."""
    # The largest is taken out before the division: nothing overflows, but to a share of 0.
    return jax.nn.softmax((weight - jnp.max(weight, axis=-1, keepdims=True)) / temperature, axis=-1)


def effective_sample_size(weight: Array) -> Array:
    """1 / Σ w², of weights (..., N) that add up to 1: from 1 (one has all) to N (all have the same)."""
    return 1.0 / jnp.sum(jnp.square(weight), axis=-1)


def entropy(weight: Array) -> Array:
    """−Σ w log w, of weights (..., N) that add up to 1."""
    return -jnp.sum(jax.scipy.special.xlogy(weight, weight), axis=-1)


def pick(probability: Array, uniform: Array) -> Array:
    """The index at which the cumulative probability (..., N) first exceeds each uniform number (...).

    One random number per draw, however many choices. An index of probability 0 is never picked, although
    rounding may let the cumulative sum grow there.
    """
    total = jnp.cumsum(probability, axis=-1)
    possible = probability > 0.0
    beyond = possible & (total > (uniform * total[..., -1])[..., None])
    index = jax.lax.broadcasted_iota(jnp.int32, beyond.shape, beyond.ndim - 1)
    first_beyond = jnp.min(jnp.where(beyond, index, index.shape[-1]), axis=-1)
    last_possible = jnp.max(jnp.where(possible, index, 0), axis=-1)
    return jnp.minimum(first_beyond, last_possible)


def ancestors(weight: Array, uniform: Array) -> Array:
    """Stratified resampling: N indices, i among them N·wᵢ times on average, by uniform numbers (..., N).

    The k-th is where the cumulative weight first exceeds (k + uₖ) / N (Kitagawa 1996). One number for all
    would vary less still, but weights that repeat along the particles would all be drawn or none.
    """
    count = weight.shape[-1]
    rank = jax.lax.broadcasted_iota(jnp.float32, uniform.shape, uniform.ndim - 1)
    return pick(weight[..., None, :], (rank + uniform) / count)


def take(tree: PyTree, index: Array) -> PyTree:
    """Of every leaf (B, N, ...), the entries (B, K, ...) that `index` (B, K) names."""
    return jax.tree.map(lambda leaf: jax.vmap(lambda row, at: row[at])(leaf, index), tree)


def take_one(tree: PyTree, index: Array) -> PyTree:
    """Of every leaf (B, N, ...), the one entry (B, ...) that `index` (B,) names."""
    return jax.tree.map(lambda leaf: leaf[:, 0], take(tree, index[:, None]))


def heaviest(root_action: PyTree, weight: Array) -> Array:
    """The particle (B,) whose root action has most weight in sum over all that share it."""
    count = weight.shape[-1]
    same = jnp.ones((*weight.shape, count), bool)
    for leaf in jax.tree.leaves(root_action):
        flat = leaf.reshape(*weight.shape, -1)
        same &= jnp.all(flat[:, :, None] == flat[:, None], axis=-1)
    shared = jnp.sum(jnp.where(same, weight[:, None], 0.0), axis=-1)
    return jnp.argmax(shared, axis=-1)


def credit(amount: Array, origin: Array) -> Array:
    """For each particle of the root (B, N), the mean amount among those that stem from it, 0 if none."""
    index = jax.lax.broadcasted_iota(jnp.int32, (*origin.shape, origin.shape[-1]), origin.ndim - 1)
    stems = origin[..., None, :] == index
    total = jnp.sum(jnp.where(stems, amount[..., None, :], 0.0), axis=-1)
    return total / jnp.maximum(jnp.sum(stems, axis=-1), 1)


def mix_dirichlet(logits: Array, log_gamma: Array, fraction: Array) -> Array:
    """(1 − f) p + f d over the last axis, d a Dirichlet draw over the valid actions, no logit −inf."""
    valid = logits > -jnp.inf
    # Gamma numbers that are made to add up to 1 are a Dirichlet draw.
    drawn = jax.nn.softmax(jnp.where(valid, log_gamma, jnp.finfo(log_gamma.dtype).min), axis=-1)
    return jnp.where(valid, (1.0 - fraction) * jnp.exp(logits) + fraction * drawn, 0.0)


def search(model: Model, root: Particles, noise: Noise, rules: Rules, by_ess: bool) -> SearchResult:
    """The particles `root` after as many depths as `noise` has, resampled by period or by sample size.

    Advantages stay with the root's particles as they were drawn: their logarithmic mean of exponents,
    which sets the temperature, is over draws of the prior. A resampled particle credits the one it stems
    from; one without descendants keeps what it had, a shorter estimate.
    """
    depths, envs, particles = noise.resample.shape

    def deeper(carry: Progress, row: tuple[Array, Noise]) -> tuple[Progress, tuple[Array, ...]]:
        before, weight, advantage = carry
        depth, noise = row
        after, td = advance(model, before, noise, rules)
        weight = weight + td
        advantage = advantage + credit(before.trace * td, before.origin)
        share = shares(weight, rules.temperature)
        size = effective_sample_size(share)
        if by_ess:
            due = size < rules.ess_threshold * particles
        else:
            due = jnp.broadcast_to((depth + 1) % rules.resample_period == 0, (envs,))
        due &= depth + 1 < depths  # after the last depth the read-out draws
        after, weight = when(jnp.any(due), resample, (after, weight), (due, share, noise.resample))
        measured = (size, entropy(share), jnp.mean(before.ended, axis=-1), due.astype(jnp.float32))
        return (after, weight, advantage), measured

    zeros = jnp.zeros_like(root.value)
    rows = (jnp.arange(depths), noise)
    (last, weight, advantage), measured = jax.lax.scan(deeper, (root, zeros, zeros), rows)
    size, disorder, ended, due = measured
    metrics = {
        "effective_sample_size": jnp.mean(size, axis=0),
        "weight_entropy": jnp.mean(disorder, axis=0),
        "alive": 1.0 - jnp.mean(ended, axis=0),
        "resamples": jnp.sum(due, axis=0),
        "value_spread": jnp.std(last.value, axis=-1),
    }
    share = shares(weight, rules.temperature)
    return SearchResult(last.root_action, share, advantage, metrics)


def advance(model: Model, before: Particles, noise: Noise, rules: Rules) -> tuple[Particles, Array]:
    """The particles one step deeper, and their temporal differences (B, N); ended ones do not change."""
    state, result = model.step(before.state, before.action, noise.step)
    action, value = model.predict(result.obs, noise.action)
    after = Particles(
        state=state,
        root_action=before.root_action,
        action=action,
        value=value,
        ended=result.terminated | result.truncated,
        trace=before.trace * rules.gamma * rules.lam,
        origin=before.origin,
    )
    td = td_target(result.reward, value, result.terminated, rules.gamma) - before.value
    return select(before.ended, before, after), jnp.where(before.ended, 0.0, td)


def resample(
    before: tuple[Particles, Array], inputs: tuple[Array, Array, Array]
) -> tuple[Particles, Array]:
    """Particles drawn anew by their weights, and weights 0, in the environments where that is due (B,)."""
    particles, weight = before
    due, share, uniform = inputs
    stay = jax.lax.broadcasted_iota(jnp.int32, share.shape, 1)
    index = jnp.where(due[:, None], ancestors(share, uniform), stay)
    return take(particles, index), jnp.where(due[:, None], 0.0, weight)


def first_particles(state: PyTree, root_action: PyTree, action: PyTree, value: Array) -> Particles:
    """N copies of each environment's state (B, ...), one per root action (B, N, ...); V(s) is (B,)."""
    shape = jax.tree.leaves(root_action)[0].shape[:2]

    def copies(leaf: Array) -> Array:
        return jnp.broadcast_to(leaf[:, None], (*shape, *leaf.shape[1:]))

    return Particles(
        state=jax.tree.map(copies, state),
        root_action=root_action,
        action=action,
        value=copies(value),
        ended=jnp.zeros(shape, bool),
        trace=jnp.ones(shape),
        origin=jax.lax.broadcasted_iota(jnp.int32, shape, 1),
    )

"""Proximal policy optimisation (Schulman et al. 2017, arXiv 1707.06347).

    repeat:  collect T steps of B environments with the current policy
             V of every observation, advantages by GAE, targets = advantage + V
             for each epoch, for each minibatch of a fresh permutation:
                 loss = clipped surrogate + c₁ (V − target)² − c₂ entropy
                 one Adam step on the gradient, its norm clipped

With a net that has a memory, minibatches are of whole sequences, `sequence_length` steps of one environment:
the loss unrolls the net along each, from the memory that acting had at its start, and begins anew after
both endings. Left out on purpose: sharing statistics between trials. docs/algorithms/ppo.md
explains every detail. Numbers are leaves of the learner: changing one compiles nothing.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from annotated_types import Ge, Gt, Interval
from jax import Array
from jax.flatten_util import ravel_pytree

from proxima.core import losses
from proxima.core.adam import adam_step
from proxima.core.algorithm import Algorithm, Panel, Problem
from proxima.core.branch import when
from proxima.core.faults import Fault
from proxima.core.hyper import make_hyper, without_numbers
from proxima.core.minibatches import size_faults
from proxima.core.normalize import Moments, add_samples, first_moments, normalize
from proxima.core.parallel import masked_mean, mean_over, shares, standardize, sum_over
from proxima.core.returns import discounted_sums, gae
from proxima.core.shuffle import permutations
from proxima.core.spaces import Box, flat_size, zeros
from proxima.core.trees import blank, merge_leading, pack_rows
from proxima.core.types import Acted, PerEnv, PyTree, Transition, View
from proxima.nets.network import check_network

# The metrics of a gradient step, in the order in which `_loss` and `_optimize` stack them.
METRICS = (
    "loss/total",
    "loss/policy",
    "loss/value",
    "train/entropy",
    "train/approx_kl",
    "train/clip_fraction",
    "train/grad_norm",
    "train/stopped_on_kl",  # only with target_kl
)
KL = METRICS.index("train/approx_kl")
NEVER_REACHED = 1e4  # above any log-probability: a masked row's ratio is 0 and cannot overflow
# Of each environment, and of an update's batch: where a scenario gives no sizes. openai/baselines ppo2's.
DEFAULT_STEPS, DEFAULT_MINIBATCHES = 128, 4
ADAM = optax.scale_by_adam(eps=1e-5)  # openai/baselines ppo2; Optax's own default is 1e-8


@dataclass(frozen=True, kw_only=True)
class PPOConfig:
    """PPO's settings; all but the sizes and the switches are numbers a running program can change."""

    name: Literal["ppo"] = "ppo"
    """The algorithm."""
    learning_rate: Annotated[float, Gt(0)] = 3e-4
    """Adam's step size."""
    final_learning_rate: Annotated[float, Ge(0)] | None = None
    """The learning rate goes to this in a line over the step budget; null leaves it as it is."""
    clip_epsilon: Annotated[float, Gt(0)] = 0.2
    """How far the probability ratio may leave 1 before its gradient is cut."""
    value_clip_epsilon: Annotated[float, Gt(0)] | None = field(default=None, metadata={"none": 0.0})
    """Clip the value's change per update to this range; null leaves it free."""
    gamma: Annotated[float, Interval(ge=0, le=1)] = 0.99
    """Discount factor."""
    gae_lambda: Annotated[float, Interval(ge=0, le=1)] = 0.95
    """Decay of the advantage estimator: 0 one step, 1 Monte Carlo."""
    entropy_coef: Annotated[float, Ge(0)] = 0.01
    """Weight of the entropy bonus."""
    value_coef: Annotated[float, Ge(0)] = 0.5
    """Weight of the value loss."""
    max_grad_norm: Annotated[float, Gt(0)] = 0.5
    """Gradients longer than this are scaled down to it."""
    epochs_per_update: Annotated[int, Ge(1)] = 10
    """Passes over the collected batch per update."""
    batch_size: Annotated[int, Ge(1)] = 64
    """Environment steps per update, over all environments; with neither size given, 128 of each."""
    minibatch_size: Annotated[int, Ge(1)] = 64
    """Samples per gradient step; divides batch_size. With neither size given, a quarter of the batch."""
    normalize_advantages: Literal["off", "batch", "minibatch"] = "minibatch"
    """Shift and scale the advantages to mean 0 and deviation 1, over what."""
    target_kl: Annotated[float, Gt(0)] | None = field(default=None, metadata={"none": 0.0})
    """Skip the rest of an update's gradient steps once the policy has moved this far; null never."""
    normalize_observations: bool = False
    """Shift and scale observations by running statistics that belong to the policy."""
    normalize_rewards: bool = False
    """Scale rewards by the running deviation of the discounted return."""
    sequence_length: Annotated[int, Ge(1)] | None = None
    """With network.memory: steps that a gradient goes back through; null takes the whole rollout."""


class Hyper(NamedTuple):
    """The numbers of PPO, scalar arrays: the settings of these names, and two that follow from them."""

    learning_rate: Array
    final_learning_rate: Array
    total_updates: Array  # over which the learning rate goes from the first to the final
    clip_epsilon: Array
    value_clip_epsilon: Array  # unused where it is null
    gamma: Array
    gae_lambda: Array
    entropy_coef: Array
    value_coef: Array
    max_grad_norm: Array
    target_kl: Array  # unused where it is null


class Learner(NamedTuple):
    """All that changes in training."""

    net: Any  # a PolicyAndValue, or a Remembering one
    optimizer: optax.OptState  # Adam's moments, each one flat vector
    updates: Array
    hyper: Hyper
    obs_moments: Moments | None
    return_moments: Moments | None
    running_return: PerEnv | None  # the discounted sums behind return_moments


class Policy(NamedTuple):
    """Only what acting needs of a learner: what an exported policy carries."""

    net: Any  # without its critic
    obs_moments: Moments | None


class Aux(NamedTuple):
    """What acting computes and the update needs again."""

    raw_action: Array  # of which the environment got `to_action`
    log_prob: Array
    value: Array | None  # None if it is cheaper to compute for the whole rollout at once
    memory: PyTree = None  # before the step; None without one


class Batch(NamedTuple):
    """What a gradient step needs of each sample; with a memory, of each step of a sequence."""

    obs: PyTree
    raw_action: Array
    old_log_prob: Array
    old_value: Array
    advantage: Array
    target: Array
    weight: Array  # 0 on masked rows; within a minibatch the weights add up to 1, if it has others
    ended: Array | None = None  # after which steps the memory begins anew; None without one
    memory: PyTree = None  # at the start of each sequence; None without one


class PPO(eqx.Module):
    """The agent: static sizes and switches, and the numbers a fresh learner starts with."""

    hyper: Hyper
    config: PPOConfig = eqx.field(static=True)  # without its numbers
    problem: Problem = eqx.field(static=True)  # without the environment
    value_when_acting: bool = eqx.field(static=True)  # if policy and value share most of the net

    def init(self, key: Array) -> Learner:
        """A fresh learner."""
        spaces = self.problem.observation_space, self.problem.action_space
        net = self.problem.network.make(key, *spaces)
        obs, scale = zeros(spaces[0]), self.config.normalize_rewards
        return Learner(
            net=net,
            optimizer=ADAM.init(ravel_pytree(net)[0]),
            updates=jnp.zeros((), jnp.int32),
            hyper=self.hyper,
            obs_moments=first_moments(obs) if self.config.normalize_observations else None,
            return_moments=first_moments(jnp.zeros(())) if scale else None,
            running_return=PerEnv(jnp.zeros(self.problem.num_envs)) if scale else None,
        )

    def memory(self, num_envs: int) -> PyTree:
        """What the net remembers when an episode begins, None without a memory."""
        return self.problem.network.memory(num_envs)

    def noise(self, learner: Learner | None, key: Array, shape: tuple[int, ...]) -> Array:
        """The randomness of `shape` actions, drawn in one call."""
        space = self.problem.action_space
        if isinstance(space, Box):
            return jax.random.normal(key, (*shape, flat_size(space)))
        return jax.random.gumbel(key, (*shape, *space.shape, space.n))

    def explore(self, learner: Learner, view: View, noise: Array) -> Acted:
        """Sampled actions, and their log-probabilities and perhaps values."""
        seen, memory = see(learner, view.obs, view.memory)
        value = None
        if self.value_when_acting:
            distribution, value = learner.net(seen)
        else:
            distribution = learner.net.policy(seen)
        raw = distribution.sample(noise)
        aux = Aux(raw, distribution.log_prob(raw), value, view.memory)
        return Acted(distribution.to_action(raw), aux, memory)

    def exploit(self, learner: Learner | Policy, view: View) -> Acted:
        """The most probable actions."""
        seen, memory = see(learner, view.obs, view.memory)
        distribution = learner.net.policy(seen)
        return Acted(distribution.to_action(distribution.mode()), memory=memory)

    def policy(self, learner: Learner) -> Policy:
        """The learner's policy, which `exploit` takes in its place."""
        net = eqx.tree_at(
            lambda net: net.critic, learner.net, None, is_leaf=lambda part: part is None
        )
        return Policy(net, learner.obs_moments)

    def update(
        self, learner: Learner, rollout: Transition, key: Array
    ) -> tuple[Learner, dict[str, Array]]:
        """The learner after all epochs over the rollout, and the mean metrics of its gradient steps."""
        axis = self.problem.axis
        rollout = blank(rollout.mask, rollout)
        reward, learner = self._scaled_reward(learner, rollout)
        batch = make_batch(learner, rollout, reward)
        variance_explained = losses.explained_variance(batch.old_value, batch.target, rollout.mask)
        if self.config.normalize_advantages == "batch":
            flat = standardize(batch.advantage.ravel(), batch.weight.ravel(), axis)
            batch = batch._replace(advantage=flat.reshape(batch.advantage.shape))
        learner, metrics = self._optimize(learner, batch, key)
        # After the update: acting, old log-probabilities and loss must see the same statistics.
        moments = add_samples(learner.obs_moments, rollout.obs, rollout.mask, axis)
        metrics["train/explained_variance"] = mean_over(axis, variance_explained)
        return learner._replace(obs_moments=moments), metrics

    def _scaled_reward(self, learner: Learner, rollout: Transition) -> tuple[Array, Learner]:
        """The rewards (T, B) that are learnt from, and the learner with the statistics behind them."""
        if learner.return_moments is None or learner.running_return is None:
            return rollout.reward, learner
        ended = rollout.terminated | rollout.truncated
        reward = jnp.where(rollout.mask, rollout.reward, 0.0)
        start, gamma = learner.running_return.value, learner.hyper.gamma
        running, sums = discounted_sums(start, reward, ended, gamma)
        moments = add_samples(learner.return_moments, sums, rollout.mask, self.problem.axis)
        learner = learner._replace(return_moments=moments, running_return=PerEnv(running))
        return reward / jnp.sqrt(moments.variance + 1e-8), learner

    def _optimize(
        self, learner: Learner, batch: Batch, key: Array
    ) -> tuple[Learner, dict[str, Array]]:
        """The learner after all minibatches; parameters and gradients are flat vectors."""
        config, axis, hyper = self.config, self.problem.axis, learner.hyper
        samples = merge_leading(batch) if batch.memory is None else self._sequences(batch)
        rows, unpack = pack_rows(samples, 1)
        flat, unravel = ravel_pytree(learner.net)
        progress = jnp.minimum(learner.updates / hyper.total_updates, 1.0)
        change = hyper.final_learning_rate - hyper.learning_rate
        rate = hyper.learning_rate + progress * change

        def step(carry, minibatch):
            before, stopped = carry
            differentiate = jax.value_and_grad(self._loss, has_aux=True)
            (_, means), gradient = differentiate(unravel(before[0]), hyper, unpack(minibatch))
            gradient, means = sum_over(axis, (ravel_pytree(gradient)[0], means))
            after, norm = adam_step(ADAM, before, gradient, rate, hyper.max_grad_norm)
            means = jnp.append(means, norm)
            if config.target_kl is None:
                return (after, stopped), means
            stopped = stopped | (means[KL] > hyper.target_kl)
            after = jax.tree.map(lambda new, old: jnp.where(stopped, old, new), after, before)
            return (after, stopped), jnp.append(means, stopped)

        def epoch(carry, order: Array):
            minibatches = config.batch_size // config.minibatch_size
            shuffled = jax.tree.map(
                lambda part: part[order].reshape(minibatches, -1, part.shape[-1]), rows
            )
            batch: Batch = unpack(shuffled)
            shape = batch.weight.shape  # minibatches, samples or sequences, steps of these
            advantage, weight = (
                leaf.reshape(minibatches, -1) for leaf in (batch.advantage, batch.weight)
            )
            if config.normalize_advantages == "minibatch":
                advantage = standardize(advantage, weight, axis)
            weight = shares(weight, axis)
            batch = batch._replace(advantage=advantage.reshape(shape), weight=weight.reshape(shape))
            carry, means = jax.lax.scan(step, carry, pack_rows(batch, 2)[0])
            any_rows = sum_over(axis, jnp.sum(weight, axis=-1)) > 0.0
            return carry, (means, any_rows)

        carry = ((flat, learner.optimizer), jnp.asarray(False))
        orders = permutations(key, config.epochs_per_update, len(jax.tree.leaves(rows)[0]))
        ((flat, optimizer), _), (means, any_rows) = jax.lax.scan(epoch, carry, orders)
        metrics = dict(zip(METRICS, masked_mean(means, any_rows), strict=False))
        metrics["train/learning_rate"] = rate
        updates = learner.updates + 1
        return learner._replace(net=unravel(flat), optimizer=optimizer, updates=updates), metrics

    def _sequences(self, batch: Batch) -> Batch:
        """The batch (T, B, ...) as sequences (N, steps, ...), each with the memory at its start (N, ...)."""
        length = sequence_steps(self.config, self.problem.num_envs)

        def divided(leaf: Array) -> Array:
            parts = leaf.reshape(-1, length, *leaf.shape[1:])  # (T / steps, steps, B, ...)
            return jnp.swapaxes(parts, 1, 2).reshape(-1, length, *leaf.shape[2:])

        sequences = jax.tree.map(divided, batch)
        first = jax.tree.map(lambda leaf: leaf[:, 0], sequences.memory)
        return sequences._replace(memory=first)

    def _loss(self, net: Any, hyper: Hyper, batch: Batch) -> tuple[Array, Array]:
        """The loss, and a vector of the loss and its parts in the order of METRICS."""
        seen, batch = along_sequences(net, batch)
        distribution, value = net(seen)
        log_prob = distribution.log_prob(batch.raw_action)
        errors = losses.value_error(value, batch.target)
        if self.config.value_clip_epsilon is not None:
            errors = losses.clipped_value_error(
                value, batch.old_value, batch.target, hyper.value_clip_epsilon
            )
        old, clip = batch.old_log_prob, hyper.clip_epsilon
        ratio = jnp.exp(log_prob - old)
        per_element = (
            losses.clip_surrogate(log_prob, old, batch.advantage, clip),
            errors,
            distribution.entropy(),
            losses.approximate_kl(log_prob, old),
            (jnp.abs(ratio - 1.0) > clip).astype(jnp.float32),
        )
        # One product instead of five masked means.
        means = jnp.stack([part.ravel() for part in per_element]) @ batch.weight.ravel()
        loss = means[0] + hyper.value_coef * means[1] - hyper.entropy_coef * means[2]
        return loss, jnp.concatenate([loss[None], means])


def ppo(config: PPOConfig, problem: Problem) -> PPO:
    """The agent for the settings, or an error in words where the net does not fit the problem."""
    check_network(problem, config.normalize_observations)
    final_rate = config.final_learning_rate
    hyper = make_hyper(
        Hyper,
        config,
        final_learning_rate=jnp.float32(config.learning_rate if final_rate is None else final_rate),
        total_updates=jnp.float32(problem.total_updates or 1),
    )
    # On host environments the policies that act have no critic.
    shares = problem.network.shares_torso(problem.observation_space)
    value_when_acting = problem.env is not None and shares
    static = without_numbers(config, Hyper, "final_learning_rate")
    return PPO(hyper, static, problem.without_env(), value_when_acting)


def make_batch(learner: Learner, rollout: Transition, reward: Array) -> Batch:
    """The rollout with values, advantages and value targets, (T, B, ...)."""
    obs = normalize(learner.obs_moments, rollout.obs)
    value, next_value = values(learner, rollout)
    endings, hyper = (rollout.terminated, rollout.truncated), learner.hyper
    advantage = gae(reward, value, next_value, *endings, hyper.gamma, hyper.gae_lambda)
    return Batch(
        obs=obs,
        raw_action=rollout.aux.raw_action,
        old_log_prob=jnp.where(rollout.mask, rollout.aux.log_prob, NEVER_REACHED),
        old_value=value,
        advantage=advantage,
        target=advantage + value,
        weight=rollout.mask.astype(jnp.float32),
        # A row that is no real step stands between two episodes.
        ended=None if rollout.aux.memory is None else endings[0] | endings[1] | ~rollout.mask,
        memory=rollout.aux.memory,
    )


def see(learner: Learner | Policy, obs: PyTree, memory: PyTree) -> tuple[PyTree, PyTree]:
    """What the heads of the net get to see of observations, and the memory after them.

    Without a memory that is the observation itself, normalised.
    """
    obs = normalize(learner.obs_moments, obs)
    return (obs, None) if memory is None else learner.net.remember(memory, obs)


def along_sequences(net: Any, batch: Batch) -> tuple[PyTree, Batch]:
    """What the net sees at every step of the sequences, and the batch in the same order, time first."""
    if batch.memory is None or batch.ended is None:
        return batch.obs, batch
    start = batch.memory
    batch = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), batch._replace(memory=None))
    return net.unroll(start, batch.obs, batch.ended), batch


def values(learner: Learner, rollout: Transition) -> tuple[Array, Array]:
    """The value of every observation and of the next observation, (T, B) each.

    If acting computed no values, the net evaluates all observations here. Otherwise the next value is the
    next row's; the last row is evaluated separately, and the whole rollout if an episode was truncated
    within it, because the next row then begins another episode. After a termination it is never used.
    """
    steps = (rollout.obs, rollout.next_obs, rollout.aux.memory)
    if rollout.aux.value is None:
        seen, _ = see(learner, rollout.obs, rollout.aux.memory)
        return learner.net.value(seen), values_after(learner, *steps)

    last_value = values_after(learner, *jax.tree.map(lambda leaf: leaf[-1], steps))
    shifted = jnp.concatenate([rollout.aux.value[1:], last_value[None]])
    any_truncated = jnp.any(rollout.truncated[:-1])
    next_value = when(
        any_truncated, lambda _, inputs: values_after(*inputs), shifted, (learner, *steps)
    )
    return rollout.aux.value, next_value


def values_after(learner: Learner, obs: PyTree, next_obs: PyTree, memory: PyTree) -> Array:
    """The values of the observations after steps, with the memory that these leave behind."""
    _, memory = see(learner, obs, memory)
    return learner.net.value(see(learner, next_obs, memory)[0])


def sequence_steps(config: PPOConfig, num_envs: int) -> int:
    """Steps of a sequence: what is set, or the longest that rollouts and minibatches divide into."""
    return config.sequence_length or math.gcd(config.batch_size // num_envs, config.minibatch_size)


def default_sizes(given: Mapping[str, Any], num_envs: int) -> Mapping[str, int]:
    """Sizes that suit the number of environments, where neither is given: one alone says what is meant."""
    if "batch_size" in given or "minibatch_size" in given:
        return {}
    size = DEFAULT_STEPS * num_envs
    return {"batch_size": size, "minibatch_size": size // DEFAULT_MINIBATCHES}


def checks(scenario: Any) -> Iterator[Fault]:
    """Batches that cannot be divided as the settings say, and minibatches too small to normalise over."""
    config: PPOConfig = scenario.algorithm
    size, envs, samples = config.batch_size, scenario.env.num_envs, config.minibatch_size
    yield from size_faults(scenario)
    length, steps = config.sequence_length, size // envs
    if length is not None and (steps % length or samples % length):
        whole = math.gcd(steps, samples)
        yield Fault(
            (("algorithm", "sequence_length"), ("algorithm", "batch_size"), ("env", "num_envs")),
            f"{length} divides not both the {steps} steps of each environment in a batch and "
            f"algorithm.minibatch_size ({samples}); the longest that does: {whole}",
        )
    if samples == 1 and config.normalize_advantages == "minibatch":
        yield Fault(
            (("algorithm", "minibatch_size"), ("algorithm", "normalize_advantages")),
            "1 leaves nothing to normalize advantages over; take at least 2, or set "
            "algorithm.normalize_advantages to batch or off",
        )


ALGORITHM = Algorithm(
    config=PPOConfig,
    make=ppo,
    rollout_steps=lambda config, num_envs: config.batch_size // num_envs,
    checks=checks,
    panels=(
        Panel("loss/policy", "policy loss"),
        Panel("loss/value", "value loss"),
        Panel("train/entropy", "entropy (nats)"),
        Panel("train/approx_kl", "approximate KL (nats)"),
        Panel("train/clip_fraction", "clipped share"),
        Panel("train/explained_variance", "explained variance"),
        Panel("train/grad_norm", "gradient norm"),
    ),
    shared_samples=lambda config: config.minibatch_size,
    sequence_steps=sequence_steps,
    remembers=True,
    over_budget=lambda config: (
        () if config.final_learning_rate in (None, config.learning_rate) else ("learning_rate",)
    ),
    defaults=default_sizes,
)

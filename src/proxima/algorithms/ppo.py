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

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
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
from proxima.core.faults import Fault
from proxima.core.hyper import make_hyper, without_numbers
from proxima.core.minibatches import default_sizes, over_minibatches, passes_of, size_faults
from proxima.core.normalize import Moments, add_samples, first_moments, normalize, scale_rewards
from proxima.core.parallel import mean_over, standardize, sum_over
from proxima.core.returns import cut_rows, gae, next_values
from proxima.core.schedule import learning_rate, rate_numbers, rate_over_budget
from proxima.core.sequences import (
    along_sequences,
    sequence_faults,
    sequence_steps,
    steps_or_sequences,
)
from proxima.core.spaces import Box, flat_size, zeros
from proxima.core.trees import blank
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
# Where a scenario gives no sizes: steps of each environment, minibatches of these. openai/baselines ppo2's.
DEFAULT_SIZES = (128, 4)
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
        net = learner.net
        distribution, value = net(seen) if self.value_when_acting else (net.policy(seen), None)
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
        learner, metrics = self._optimize(learner, self._normalized(batch, "batch"), key)
        # After the update: acting, old log-probabilities and loss must see the same statistics.
        moments = add_samples(learner.obs_moments, rollout.obs, rollout.mask, axis)
        metrics["train/explained_variance"] = mean_over(axis, variance_explained)
        return learner._replace(obs_moments=moments), metrics

    def _scaled_reward(self, learner: Learner, rollout: Transition) -> tuple[Array, Learner]:
        """The rewards (T, B) that are learnt from, and the learner with the statistics behind them."""
        if learner.return_moments is None or learner.running_return is None:
            return rollout.reward, learner
        kept = learner.return_moments, learner.running_return.value
        reward, moments, running = scale_rewards(
            *kept, rollout, learner.hyper.gamma, self.problem.axis
        )
        return reward, learner._replace(return_moments=moments, running_return=PerEnv(running))

    def _optimize(
        self, learner: Learner, batch: Batch, key: Array
    ) -> tuple[Learner, dict[str, Array]]:
        """The learner after all minibatches; parameters and gradients are flat vectors."""
        axis, hyper = self.problem.axis, learner.hyper
        flat, unravel = ravel_pytree(learner.net)
        rate = learning_rate(hyper, learner.updates)

        def step(carry, minibatch: Batch):
            before, stopped = carry
            differentiate = jax.value_and_grad(self._loss, has_aux=True)
            (_, means), gradient = differentiate(unravel(before[0]), hyper, minibatch)
            gradient, means = sum_over(axis, (ravel_pytree(gradient)[0], means))
            after, norm = adam_step(ADAM, before, gradient, rate, hyper.max_grad_norm)
            means = jnp.append(means, norm)
            if self.config.target_kl is None:
                return (after, stopped), means
            stopped = stopped | (means[KL] > hyper.target_kl)
            after = jax.tree.map(lambda new, old: jnp.where(stopped, old, new), after, before)
            return (after, stopped), jnp.append(means, stopped)

        start = ((flat, learner.optimizer), jnp.asarray(False))
        samples, passes = steps_or_sequences(batch, self.config), passes_of(self.config, axis)
        prepare = partial(self._normalized, over="minibatch")
        carry, means = over_minibatches(step, start, samples, key, passes, prepare)
        (flat, optimizer), _ = carry
        metrics = dict(zip(METRICS, means, strict=False))
        metrics["train/learning_rate"] = rate
        updates = learner.updates + 1
        return learner._replace(net=unravel(flat), optimizer=optimizer, updates=updates), metrics

    def _normalized(self, batch: Batch, over: Literal["batch", "minibatch"]) -> Batch:
        """The batch, or minibatches (N, ...), with advantages normalised if the settings say over these."""
        if self.config.normalize_advantages != over:
            return batch
        shape = batch.advantage.shape
        apart = shape[:1] if over == "minibatch" else ()
        advantage, weight = (part.reshape(*apart, -1) for part in (batch.advantage, batch.weight))
        advantage = standardize(advantage, weight, self.problem.axis)
        return batch._replace(advantage=advantage.reshape(shape))

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
    hyper = make_hyper(Hyper, config, **rate_numbers(config, problem))
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


def values(learner: Learner, rollout: Transition) -> tuple[Array, Array]:
    """The value of every observation and of the next observation, (T, B) each.

    If acting computed no values, the net evaluates all observations here.
    """
    now, memory = rollout.aux.value, rollout.aux.memory
    if now is None:
        now = learner.net.value(see(learner, rollout.obs, memory)[0])
    cut = cut_rows(rollout.terminated, rollout.truncated, rollout.mask)
    steps = rollout.obs, rollout.next_obs, memory
    return now, next_values(values_after, learner, steps, now, cut)


def values_after(learner: Learner, obs: PyTree, next_obs: PyTree, memory: PyTree) -> Array:
    """The values of the observations after steps, with the memory that these leave behind."""
    _, memory = see(learner, obs, memory)
    return learner.net.value(see(learner, next_obs, memory)[0])


def checks(scenario: Any) -> Iterator[Fault]:
    """Batches that cannot be divided as the settings say, and minibatches too small to normalise over."""
    yield from size_faults(scenario)
    yield from sequence_faults(scenario)
    config: PPOConfig = scenario.algorithm
    if config.minibatch_size == 1 and config.normalize_advantages == "minibatch":
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
    sequence_steps=lambda config, num_envs: sequence_steps(config, config.batch_size // num_envs),
    remembers=True,
    lags=True,
    over_budget=rate_over_budget,
    defaults=lambda given, num_envs: default_sizes(given, num_envs, *DEFAULT_SIZES),
)

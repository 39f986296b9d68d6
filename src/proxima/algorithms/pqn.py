"""Parallelised Q-learning (Gallici et al. 2024, arXiv 2407.04811): no replay, no target net, many envs.

    repeat:  collect T steps of B environments: with probability ε a random action, else argmax Q(s, ·)
             targets, backwards:  R_t = r_t + γ (1 − terminated) ((1 − λ) max Q(s_{t+1}, ·) + λ R_{t+1})
             epochs × minibatches: one RAdam step on the mean of ½ (Q(s, a) − R)²

Layer norms in the net are what lets it do without a target net. Invalid actions are neither taken nor
looked at by a maximum. Left out on purpose: batch normalisation of the input (`normalize_observations`
keeps running statistics instead), recurrence. docs/algorithms/pqn.md explains every detail. Numbers are
leaves of the learner: changing one compiles nothing.
"""

from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from annotated_types import Ge, Gt, Interval
from jax import Array
from jax.flatten_util import ravel_pytree

from proxima.core.adam import adam_step
from proxima.core.algorithm import Algorithm, Panel, Problem
from proxima.core.hyper import make_hyper, without_numbers
from proxima.core.losses import value_error
from proxima.core.minibatches import default_sizes, over_minibatches, passes_of, size_faults
from proxima.core.normalize import Moments, add_samples, first_moments, normalize
from proxima.core.parallel import sum_over
from proxima.core.returns import cut_rows, lambda_returns, next_values
from proxima.core.schedule import learning_rate, on_line, rate_numbers, rate_over_budget
from proxima.core.spaces import Discrete, zeros
from proxima.core.trees import blank, merge_leading
from proxima.core.types import Acted, PyTree, Transition, View
from proxima.nets.actor_critic import MLPConfig
from proxima.nets.q import QNet, check_q, epsilon_greedy, greedy, largest, of_action, q_net

# The metrics of a gradient step, in the order in which `_loss` stacks them; the norm is appended.
METRICS = (
    "loss/q",
    "train/q_mean",
    "train/td_error",
    "train/grad_norm",
)  # the norm before clipping
OPTIMIZERS = {"radam": optax.scale_by_radam(), "adam": optax.scale_by_adam(eps=1e-8)}
DEFAULT_SIZES = (32, 8)  # steps of each environment per update, minibatches of these
STEPS_WITHOUT_BUDGET = 10_000  # in which exploration comes down


@dataclass(frozen=True, kw_only=True)
class PQNConfig:
    """PQN's settings; all but sizes and switches are numbers a running program can change."""

    name: Literal["pqn"]
    """The algorithm."""
    learning_rate: Annotated[float, Gt(0)] = 5e-4
    """The optimizer's step size."""
    final_learning_rate: Annotated[float, Ge(0)] | None = None
    """The learning rate goes to this in a line over the step budget; null leaves it as it is."""
    optimizer: Literal["radam", "adam"] = "radam"
    """How a gradient becomes a step: Adam with its first steps made careful, or plain Adam."""
    gamma: Annotated[float, Interval(ge=0, le=1)] = 0.99
    """Discount factor."""
    q_lambda: Annotated[float, Interval(ge=0, le=1)] = 0.65
    """Decay of the returns: 0 relies on the net after one step, 1 only at the end of a rollout."""
    exploration_start: Annotated[float, Interval(ge=0, le=1)] = 1.0
    """Share of random actions at the beginning."""
    exploration_final: Annotated[float, Interval(ge=0, le=1)] = 0.05
    """Share of random actions once it has come down in a line."""
    exploration_fraction: Annotated[float, Interval(gt=0, le=1)] = 0.1
    """Share of the step budget in which it comes down."""
    exploration_steps: Annotated[int, Ge(1)] | None = None
    """Steps in which it comes down; null: exploration_fraction of the budget, 10,000 where there is none."""
    epochs_per_update: Annotated[int, Ge(1)] = 2
    """Passes over the collected batch per update."""
    batch_size: Annotated[int, Ge(1)] = 128
    """Environment steps per update, over all environments; with neither size given, 32 of each."""
    minibatch_size: Annotated[int, Ge(1)] = 128
    """Samples per gradient step; divides batch_size. With neither size given, an eighth of the batch."""
    max_grad_norm: Annotated[float, Gt(0)] = 10.0
    """Gradients longer than this are scaled down to it."""
    layer_norm: bool = True
    """A layer norm before each activation of the net."""
    reward_scale: Annotated[float, Gt(0)] = 1.0
    """Rewards are multiplied by this before they are learnt from."""
    normalize_observations: bool = False
    """Shift and scale observations by running statistics that belong to the policy."""


class Hyper(NamedTuple):
    """The numbers of PQN, scalar arrays: the settings of these names, and three that follow from them."""

    learning_rate: Array
    final_learning_rate: Array
    total_updates: Array  # over which the learning rate goes from the first to the final
    gamma: Array
    q_lambda: Array
    exploration_start: Array
    exploration_final: Array
    exploration_updates: Array
    max_grad_norm: Array
    reward_scale: Array


class Learner(NamedTuple):
    """All that changes in training."""

    net: QNet
    optimizer: optax.OptState  # moments, each one flat vector
    updates: Array
    hyper: Hyper
    obs_moments: Moments | None


class Policy(NamedTuple):
    """Only what acting needs of a learner: what an exported policy carries."""

    net: QNet
    obs_moments: Moments | None
    epsilon: Array


class Batch(NamedTuple):
    """What a gradient step needs of each sample."""

    obs: PyTree
    action: Array
    target: Array
    weight: Array  # 0 on masked rows; within a minibatch the weights add up to 1, if it has others


class PQN(eqx.Module):
    """The agent: static sizes and switches, and the numbers a fresh learner starts with."""

    hyper: Hyper
    config: PQNConfig = eqx.field(static=True)  # without its numbers
    problem: Problem = eqx.field(static=True)  # without the environment
    action_space: Discrete = eqx.field(static=True)
    network: MLPConfig = eqx.field(static=True)

    @property
    def optimizer(self) -> optax.GradientTransformation:
        """What makes a step of a gradient."""
        return OPTIMIZERS[self.config.optimizer]

    def init(self, key: Array) -> Learner:
        """A fresh learner."""
        spaces = self.problem.observation_space, self.action_space
        net = q_net(key, self.network, spaces, dueling=False, layer_norm=self.config.layer_norm)
        obs = zeros(spaces[0])
        return Learner(
            net=net,
            optimizer=self.optimizer.init(ravel_pytree(net)[0]),
            updates=jnp.zeros((), jnp.int32),
            hyper=self.hyper,
            obs_moments=first_moments(obs) if self.config.normalize_observations else None,
        )

    def noise(self, learner: Learner | None, key: Array, shape: tuple[int, ...]) -> Array:
        """The randomness of `shape` actions, drawn in one call: one number says whether, one which."""
        return jax.random.uniform(key, (*shape, 2))

    def memory(self, num_envs: int) -> None:
        """Nothing is remembered."""

    def explore(self, learner: Learner | Policy, view: View, noise: Array) -> Acted:
        """Random actions with probability ε, else the greedy ones; and the largest Q."""
        policy = self.policy(learner)
        q = policy.net(normalize(policy.obs_moments, view.obs))
        action = epsilon_greedy(noise, policy.epsilon, q, view.obs)
        return Acted(action, largest(q, view.obs))

    def exploit(self, learner: Learner | Policy, view: View) -> Acted:
        """The actions of the largest Q."""
        policy = self.policy(learner)
        q = policy.net(normalize(policy.obs_moments, view.obs))
        return Acted(greedy(q, view.obs))

    def policy(self, learner: Learner | Policy) -> Policy:
        """The learner's policy, which `explore` and `exploit` take in its place."""
        if isinstance(learner, Policy):
            return learner
        hyper = learner.hyper
        ends = hyper.exploration_start, hyper.exploration_final
        epsilon = on_line(*ends, learner.updates, hyper.exploration_updates)
        return Policy(learner.net, learner.obs_moments, epsilon)

    def update(
        self, learner: Learner, rollout: Transition, key: Array
    ) -> tuple[Learner, dict[str, Array]]:
        """The learner after all epochs over the rollout, and the mean metrics of its gradient steps."""
        axis = self.problem.axis
        rollout = blank(rollout.mask, rollout)
        after, metrics = self._optimize(learner, make_batch(learner, rollout), key)
        # After the update: actions, targets and losses of one rollout must see the same statistics.
        moments = add_samples(learner.obs_moments, rollout.obs, rollout.mask, axis)
        metrics["train/epsilon"] = self.policy(learner).epsilon
        return after._replace(obs_moments=moments, updates=learner.updates + 1), metrics

    def _optimize(
        self, learner: Learner, batch: Batch, key: Array
    ) -> tuple[Learner, dict[str, Array]]:
        """The learner after all minibatches; parameters and gradients are flat vectors."""
        axis, hyper = self.problem.axis, learner.hyper
        flat, unravel = ravel_pytree(learner.net)
        rate = learning_rate(hyper, learner.updates)

        def step(before, minibatch: Batch):
            differentiate = jax.value_and_grad(
                lambda flat, batch: _loss(unravel(flat), batch), has_aux=True
            )
            (_, means), gradient = differentiate(before[0], minibatch)
            gradient, means = sum_over(axis, (gradient, means))
            after, norm = adam_step(self.optimizer, before, gradient, rate, hyper.max_grad_norm)
            return after, jnp.append(means, norm)

        samples, passes = merge_leading(batch), passes_of(self.config, axis)
        (flat, optimizer), means = over_minibatches(
            step, (flat, learner.optimizer), samples, key, passes
        )
        metrics = dict(zip(METRICS, means, strict=True))
        metrics["train/learning_rate"] = rate
        return learner._replace(net=unravel(flat), optimizer=optimizer), metrics


def _loss(net: QNet, batch: Batch) -> tuple[Array, Array]:
    """The loss, and a vector of the loss and other means in the order of METRICS."""
    q = of_action(net(batch.obs), batch.action)
    losses = 0.5 * value_error(q, batch.target)
    means = jnp.stack([losses, q, jnp.abs(q - batch.target)]) @ batch.weight
    return means[0], means


def pqn(config: PQNConfig, problem: Problem) -> PQN:
    """The agent for the settings, or an error in words where actions or nets are not for it."""
    action_space, network = check_q(problem, "pqn", config.normalize_observations)
    share = config.exploration_fraction * (problem.total_updates or 1) * config.batch_size
    steps = config.exploration_steps or (share if problem.total_updates else STEPS_WITHOUT_BUDGET)
    hyper = make_hyper(
        Hyper,
        config,
        **rate_numbers(config, problem),
        exploration_updates=jnp.float32(steps / config.batch_size),
    )
    static = without_numbers(config, Hyper, "final_learning_rate", "exploration_steps")
    return PQN(hyper, static, problem.without_env(), action_space, network)


def make_batch(learner: Learner, rollout: Transition) -> Batch:
    """The rollout with the targets of Q, (T, B, ...)."""
    hyper = learner.hyper
    cut = cut_rows(rollout.terminated, rollout.truncated, rollout.mask)
    target = lambda_returns(
        hyper.reward_scale * rollout.reward,
        next_values(largest_q, learner, (rollout.next_obs,), rollout.aux, cut),
        rollout.terminated,
        rollout.truncated,
        rollout.mask,
        hyper.gamma,
        hyper.q_lambda,
    )
    obs = normalize(learner.obs_moments, rollout.obs)
    return Batch(obs, rollout.action, target, rollout.mask.astype(jnp.float32))


def largest_q(learner: Learner, obs: PyTree) -> Array:
    """The largest Q of observations."""
    return largest(learner.net(normalize(learner.obs_moments, obs)), obs)


def over_budget(config: PQNConfig) -> tuple[str, ...]:
    """The settings that change over the budget."""
    moving = config.exploration_start != config.exploration_final
    explores = ("exploration_fraction",) if config.exploration_steps is None and moving else ()
    return (*explores, *rate_over_budget(config))


ALGORITHM = Algorithm(
    config=PQNConfig,
    make=pqn,
    rollout_steps=lambda config, num_envs: config.batch_size // num_envs,
    checks=size_faults,
    panels=(
        Panel("loss/q", "loss of Q"),
        Panel("train/q_mean", "mean Q"),
        Panel("train/td_error", "mean absolute TD error"),
        Panel("train/grad_norm", "gradient norm"),
        Panel("train/epsilon", "share of random actions"),
    ),
    shared_samples=lambda config: config.minibatch_size,
    defaults=lambda given, num_envs: default_sizes(given, num_envs, *DEFAULT_SIZES),
    lags=True,
    over_budget=over_budget,
)

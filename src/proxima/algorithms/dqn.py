"""Deep Q-learning (Mnih et al. 2015, doi 10.1038/nature14236), and its best-known variants as values of it.

    repeat:  collect T steps of B environments: with probability ε a random action, else argmax Q(s, ·)
             store what is complete of them in the ring, as samples of n_step steps
             gradient_steps times, by default as often as steps were collected:
                 draw a batch (s, a, R, s', terminated, k), uniformly or by priority
                 y = R + γᵏ (1 − terminated) Q̄(s', argmax Q̄(s', ·));  double: argmax of Q instead
                 one Adam step on the mean of weight · loss(Q(s, a) − y);  priority ← |Q(s, a) − y|
                 every target_period-th time the target moves by τ towards the net

Double: van Hasselt et al. 2016, arXiv 1509.06461. Dueling: Wang et al. 2016, arXiv 1511.06581. Prioritised
replay: Schaul et al. 2016, arXiv 1511.05952. Invalid actions are neither taken nor looked at by the target's
maximum. Left out on purpose: distributional Q, noisy nets. docs/algorithms/dqn.md explains every detail.
Numbers are leaves of the learner: changing one compiles nothing.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from annotated_types import Ge, Gt, Interval
from jax import Array

from proxima.core.adam import adam_step
from proxima.core.algorithm import Algorithm, Panel, Problem
from proxima.core.branch import steps_when
from proxima.core.faults import Fault
from proxima.core.hyper import make_hyper, without_numbers
from proxima.core.losses import smooth_error, value_error
from proxima.core.n_step import Sample, empty_window, n_step_samples
from proxima.core.normalize import Moments, add_samples, first_moments, normalize
from proxima.core.off_policy import buffer_faults, scaled, soft_update
from proxima.core.prioritized import Draw, Priorities, add_rows, change, draw, no_priorities
from proxima.core.replay import (
    Replay,
    add,
    empty,
    pack_samples,
    pack_sequences,
    sample,
    slots,
    take,
)
from proxima.core.returns import td_target
from proxima.core.spaces import Discrete, zeros
from proxima.core.trees import Rows, merge_leading
from proxima.core.types import Acted, PerEnv, PyTree, Transition, View
from proxima.nets.actor_critic import MLPConfig
from proxima.nets.q import (
    QNet,
    check_q,
    epsilon_greedy,
    greedy,
    largest,
    of_action,
    q_net,
)

# The metrics of a gradient step, in the order in which `_gradient_step` stacks them.
METRICS = (
    "loss/q",
    "train/grad_norm",  # before clipping
    "train/q_mean",
    "train/td_error",
    "buffer/reward_mean",  # of what was drawn
)
ADAM = optax.scale_by_adam(eps=1e-8)  # torch's default
STEPS_WITHOUT_BUDGET = 10_000  # in which exploration comes down
LOSSES = {"smooth_l1": smooth_error, "l2": value_error}


@dataclass(frozen=True, kw_only=True)
class DQNConfig:
    """DQN's settings; all but sizes and switches are numbers a running program can change."""

    name: Literal["dqn"]
    """The algorithm."""
    learning_rate: Annotated[float, Gt(0)] = 5e-4
    """Adam's step size."""
    gamma: Annotated[float, Interval(ge=0, le=1)] = 0.99
    """Discount factor."""
    batch_size: Annotated[int, Ge(1)] = 128
    """Samples of a gradient step."""
    buffer_size: Annotated[int, Ge(1)] = 50_000
    """Samples the replay buffer holds; at least batch_size."""
    warmup_steps: Annotated[int, Ge(0)] = 1_000
    """Environment steps with uniformly random actions before learning begins."""
    steps_per_update: Annotated[int, Ge(1)] = 4
    """Steps of each environment collected between two updates."""
    gradient_steps: Annotated[int, Ge(1)] | None = None
    """Gradient steps per update; null takes one for every environment step collected."""
    exploration_start: Annotated[float, Interval(ge=0, le=1)] = 1.0
    """Share of random actions at the beginning."""
    exploration_final: Annotated[float, Interval(ge=0, le=1)] = 0.05
    """Share of random actions once it has come down in a line."""
    exploration_fraction: Annotated[float, Interval(gt=0, le=1)] = 0.1
    """Share of the step budget in which it comes down."""
    exploration_steps: Annotated[int, Ge(1)] | None = None
    """Steps in which it comes down; null: exploration_fraction of the budget, 10,000 where there is none."""
    target_period: Annotated[int, Ge(1)] = 250
    """Gradient steps between two moves of the target net."""
    tau: Annotated[float, Interval(gt=0, le=1)] = 1.0
    """How far the target moves towards the net at a time; 1 copies it."""
    double: bool = False
    """The net itself chooses the action whose value the target net gives."""
    dueling: bool = False
    """Two heads, the value and the advantages, make up Q."""
    layer_norm: bool = False
    """A layer norm before each activation of the net."""
    n_step: Annotated[int, Interval(ge=1, le=64)] = 1
    """Steps of rewards before a target relies on the net."""
    prioritized: bool = False
    """Draw samples by the size of their last error, instead of uniformly."""
    priority_alpha: Annotated[float, Interval(ge=0, le=1)] = 0.6
    """Power of the errors in the probabilities; 0 is uniform."""
    priority_beta: Annotated[float, Interval(ge=0, le=1)] = 0.4
    """How much of what that distorts is weighed out in the loss; it rises in a line to 1 over the budget."""
    loss: Literal["smooth_l1", "l2"] = "smooth_l1"
    """Loss of an error: its square below 1 and its size above, or its square."""
    max_grad_norm: Annotated[float, Gt(0)] | None = field(
        default=10.0, metadata={"none": float("inf")}
    )
    """Gradients longer than this are scaled down to it; null never."""
    reward_scale: Annotated[float, Gt(0)] = 1.0
    """Rewards are multiplied by this before they are learnt from."""
    normalize_observations: bool = False
    """Shift and scale observations by running statistics that belong to the policy."""


class Hyper(NamedTuple):
    """The numbers of DQN, scalar arrays: the settings of these names, and two that follow from the budget."""

    learning_rate: Array
    gamma: Array
    warmup_steps: Array
    exploration_start: Array
    exploration_final: Array
    exploration_steps: Array
    total_steps: Array  # of the budget
    target_period: Array
    tau: Array
    priority_alpha: Array
    priority_beta: Array
    max_grad_norm: Array
    reward_scale: Array


class Nets(NamedTuple):
    """What gradient steps change."""

    net: QNet
    target: QNet
    optimizer: optax.OptState  # Adam's moments; as trees, see docs/performance.md
    gradient_steps: Array  # so far; the target moves every target_period of them


class Learner(NamedTuple):
    """All that changes in training."""

    nets: Nets
    replay: Replay
    priorities: Priorities | None  # of the buffer's rows
    recent: PerEnv | None  # steps whose n-step samples wait for more, packed, (B, width)
    steps: Array  # environment steps so far
    hyper: Hyper
    obs_moments: Moments | None


class Policy(NamedTuple):
    """Only what acting needs of a learner: what an exported policy carries."""

    net: QNet
    obs_moments: Moments | None
    epsilon: Array


class DQN(eqx.Module):
    """The agent: static sizes and switches, and the numbers a fresh learner starts with."""

    hyper: Hyper
    config: DQNConfig = eqx.field(static=True)  # without its numbers
    problem: Problem = eqx.field(static=True)  # without the environment
    action_space: Discrete = eqx.field(static=True)
    network: MLPConfig = eqx.field(static=True)

    @property
    def gradient_steps(self) -> int:
        """Gradient steps per update."""
        return self.config.gradient_steps or self.problem.num_envs * self.config.steps_per_update

    def init(self, key: Array) -> Learner:
        """A fresh learner; the target starts equal to its net."""
        config = self.config
        spaces = self.problem.observation_space, self.action_space
        switches = {"dueling": config.dueling, "layer_norm": config.layer_norm}
        net = q_net(key, self.network, spaces, **switches)
        zero = jnp.zeros((), jnp.int32)
        target, optimizer = jax.tree.map(jnp.copy, net), ADAM.init(net)
        obs, action = self._zeros(1)
        example = Sample(obs, action, jnp.zeros(1), obs, jnp.zeros(1, bool), jnp.zeros(1))
        moments = first_moments(zeros(spaces[0])) if config.normalize_observations else None
        return Learner(
            nets=Nets(net, target, optimizer, zero),
            replay=empty(config.buffer_size, example),
            priorities=no_priorities(config.buffer_size) if config.prioritized else None,
            recent=PerEnv(self._window()[0]) if config.n_step > 1 else None,
            steps=zero,
            hyper=self.hyper,
            obs_moments=moments,
        )

    def _zeros(self, *leading: int) -> tuple[PyTree, Array]:
        """Observations and actions of zeros, which shape buffer and window."""
        obs = jax.tree.map(jnp.asarray, zeros(self.problem.observation_space, leading))
        return obs, jnp.asarray(zeros(self.action_space, leading))

    def _window(self) -> tuple[Rows, Callable[[Rows], PyTree]]:
        """An empty window as rows, and the way back from rows to a window."""
        leading = self.config.n_step - 1, self.problem.num_envs
        return pack_sequences(empty_window(self.config.n_step, *self._zeros(*leading)))

    def noise(self, learner: Learner | None, key: Array, shape: tuple[int, ...]) -> Array:
        """The randomness of `shape` actions, drawn in one call: one number says whether, one which."""
        return jax.random.uniform(key, (*shape, 2))

    def memory(self, num_envs: int) -> None:
        """Nothing is remembered."""

    def explore(self, learner: Learner | Policy, view: View, noise: Array) -> Acted:
        """Random actions with probability ε, else the greedy ones."""
        policy = self.policy(learner)
        q = policy.net(normalize(policy.obs_moments, view.obs))
        return Acted(epsilon_greedy(noise, policy.epsilon, q, view.obs))

    def exploit(self, learner: Learner | Policy, view: View) -> Acted:
        """The actions of the largest Q."""
        policy = self.policy(learner)
        q = policy.net(normalize(policy.obs_moments, view.obs))
        return Acted(greedy(q, view.obs))

    def policy(self, learner: Learner | Policy) -> Policy:
        """The learner's policy, which `explore` and `exploit` take in its place."""
        if isinstance(learner, Policy):
            return learner
        return Policy(learner.nets.net, learner.obs_moments, epsilon(learner.hyper, learner.steps))

    def update(
        self, learner: Learner, rollout: Transition, key: Array
    ) -> tuple[Learner, dict[str, Array]]:
        """The learner with the rollout in its buffer and, after the warm-up, after some gradient steps."""
        config, hyper = self.config, learner.hyper
        samples, complete, recent = self._samples(learner, rollout)
        rows, unpack = pack_samples(merge_leading(samples))
        mask = complete.reshape(-1)
        replay, priorities = add(learner.replay, rows, mask), learner.priorities
        if priorities is not None:
            index, _ = slots(learner.replay, mask)
            priorities = add_rows(priorities, index, hyper.priority_alpha)
        steps = learner.steps + rollout.mask.size
        ready = (steps >= hyper.warmup_steps) & (replay.size >= config.batch_size)

        def step(
            before: tuple[Nets, Priorities | None], key: Array, inputs: PyTree
        ) -> tuple[tuple[Nets, Priorities | None], Array]:
            nets, priorities = before
            replay, hyper, steps, moments = inputs
            drawn = None
            if priorities is None:
                rows = sample(replay, key, config.batch_size)
            else:
                uniforms = jax.random.uniform(key, (config.batch_size,))
                drawn = draw(priorities, uniforms, replay.size, beta(hyper, steps))
                rows = take(replay, drawn.rows)
            batch = scaled(unpack(rows), hyper.reward_scale, moments)
            nets, error, means = self._gradient_step(nets, hyper, batch, drawn)
            if priorities is not None and drawn is not None:
                priorities = change(priorities, drawn.rows, error, hyper.priority_alpha)
            return (nets, priorities), means

        keys = jax.random.split(key, self.gradient_steps)
        inputs = (replay, hyper, steps, learner.obs_moments)
        (nets, priorities), metrics = steps_when(
            ready, step, (learner.nets, priorities), keys, inputs, METRICS
        )
        metrics["train/epsilon"] = self.policy(learner).epsilon
        metrics["buffer/size"] = replay.size.astype(jnp.float32)
        # After the update: actions and losses of one rollout must see the same statistics.
        moments = add_samples(learner.obs_moments, rollout.obs, rollout.mask)
        return Learner(nets, replay, priorities, recent, steps, hyper, moments), metrics

    def _samples(
        self, learner: Learner, rollout: Transition
    ) -> tuple[Sample, Array, PerEnv | None]:
        """The samples that the rollout completes, and the steps that wait for the next one."""
        n, gamma = self.config.n_step, learner.hyper.gamma
        if learner.recent is None:
            samples, complete, _ = n_step_samples(None, rollout, n, gamma)
            return samples, complete, None
        window = self._window()[1](learner.recent.value)
        samples, complete, window = n_step_samples(window, rollout, n, gamma)
        return samples, complete, PerEnv(pack_sequences(window)[0])

    def _gradient_step(
        self, nets: Nets, hyper: Hyper, batch: Sample, drawn: Draw | None
    ) -> tuple[Nets, Array, Array]:
        """The nets after one Adam step and perhaps a move of the target; the errors; the means of METRICS."""
        target = self._target(nets.net, nets.target, hyper, batch)

        def loss_of(net: QNet) -> tuple[Array, Array]:
            q = of_action(net(batch.obs), batch.action)
            losses = LOSSES[self.config.loss](q, target)
            return jnp.mean(losses if drawn is None else drawn.weight * losses), q

        (loss, q), gradient = jax.value_and_grad(loss_of, has_aux=True)(nets.net)
        before, rate = (nets.net, nets.optimizer), hyper.learning_rate
        (net, optimizer), norm = adam_step(ADAM, before, gradient, rate, hyper.max_grad_norm)
        count = nets.gradient_steps + 1
        # A step of 0 leaves the target as it is.
        tau = jnp.where(count % hyper.target_period == 0, hyper.tau, 0.0)
        behind = soft_update(nets.target, net, tau)
        error = q - target
        means = (loss, norm, jnp.mean(q), jnp.mean(jnp.abs(error)), jnp.mean(batch.reward))
        return Nets(net, behind, optimizer, count), error, jnp.stack(means)

    def _target(self, net: QNet, target: QNet, hyper: Hyper, batch: Sample) -> Array:
        """The targets of Q, valued by the target net."""
        values = target(batch.next_obs)
        if self.config.double:
            value = of_action(values, greedy(net(batch.next_obs), batch.next_obs))
        else:
            value = largest(values, batch.next_obs)
        return td_target(batch.reward, value, batch.terminated, hyper.gamma**batch.steps)


def dqn(config: DQNConfig, problem: Problem) -> DQN:
    """The agent for the settings, or an error in words where actions or nets are not for it."""
    action_space, network = check_q(problem, "dqn", config.normalize_observations)
    steps_per_update = problem.num_envs * config.steps_per_update
    total = (problem.total_updates or 1) * steps_per_update
    share = config.exploration_fraction * total if problem.total_updates else STEPS_WITHOUT_BUDGET
    exploration = config.exploration_steps or share
    hyper = make_hyper(
        Hyper,
        config,
        exploration_steps=jnp.float32(exploration),
        total_steps=jnp.float32(total),
    )
    static = without_numbers(config, Hyper, "max_grad_norm", "exploration_steps")
    return DQN(hyper, static, problem.without_env(), action_space, network)


def epsilon(hyper: Hyper, steps: Array) -> Array:
    """The share of random actions after so many steps."""
    progress = jnp.minimum(steps / hyper.exploration_steps, 1.0)
    change = hyper.exploration_final - hyper.exploration_start
    share = hyper.exploration_start + progress * change
    return jnp.where(steps < hyper.warmup_steps, 1.0, share)


def beta(hyper: Hyper, steps: Array) -> Array:
    """How much of the distortion by priorities is weighed out after so many steps."""
    progress = jnp.minimum(steps / hyper.total_steps, 1.0)
    return hyper.priority_beta + progress * (1.0 - hyper.priority_beta)


def checks(scenario: Any) -> Iterator[Fault]:
    """A buffer too small for a batch, and what rises over a budget that there is not."""
    config: DQNConfig = scenario.algorithm
    yield from buffer_faults(scenario)
    rises = config.prioritized and config.priority_beta < 1
    if rises and scenario.training.max_steps is None:
        yield Fault(
            (("algorithm", "priority_beta"), ("training", "max_steps")),
            "rises over training.max_steps, which is null; set that, or priority_beta to 1",
        )


def over_budget(config: DQNConfig) -> tuple[str, ...]:
    """The settings that change over the budget."""
    moving = config.exploration_start != config.exploration_final
    explores = ("exploration_fraction",) if config.exploration_steps is None and moving else ()
    return (*explores, "priority_beta") if config.prioritized else explores


ALGORITHM = Algorithm(
    config=DQNConfig,
    make=dqn,
    rollout_steps=lambda config, num_envs: config.steps_per_update,
    checks=checks,
    panels=(
        Panel("loss/q", "loss of Q"),
        Panel("train/q_mean", "mean Q"),
        Panel("train/td_error", "mean absolute TD error"),
        Panel("train/grad_norm", "gradient norm"),
        Panel("train/epsilon", "share of random actions"),
        Panel("buffer/reward_mean", "mean reward in the buffer"),
    ),
    learning_begins=lambda config: config.warmup_steps + config.batch_size,
    lags=True,
    over_budget=over_budget,
)

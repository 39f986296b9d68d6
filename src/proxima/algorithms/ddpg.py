"""Deep deterministic policy gradient (Lillicrap et al. 2016, arXiv 1509.02971), and TD3 as values of it.

    repeat:  collect T steps of B environments with the actor's actions and noise, store them in the ring
             gradient_steps times, by default as often as steps were collected:
                 draw a batch (s, a, r, s', terminated)
                 y = r + γ (1 − terminated) min over critics of Q̄(s', μ̄(s') + clipped noise)
                 one Adam step of the critics on loss(Q(s, a) − y)
                 every policy_delay-th time: one Adam step of the actor on −Q(s, μ(s)), and
                     both targets move by τ towards their nets

TD3 (Fujimoto et al. 2018, arXiv 1802.09477) is critics 2, policy_delay 2, target_noise 0.2. Left out on
purpose: prioritised replay, n-step targets, batch normalisation. docs/algorithms/ddpg.md
explains every detail. Numbers are leaves of the learner: changing one compiles nothing.
"""

import functools
import math
from dataclasses import dataclass, field
from typing import Annotated, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from annotated_types import Ge, Gt, Interval
from jax import Array

from proxima.core.adam import adam_step
from proxima.core.algorithm import Algorithm, Panel, Problem
from proxima.core.branch import steps_when, when
from proxima.core.errors import ProximaError
from proxima.core.hyper import make_hyper, without_numbers
from proxima.core.normalize import Moments, add_samples, first_moments, normalize
from proxima.core.off_policy import (
    CRITIC_LOSSES,
    Sample,
    buffer_faults,
    example_sample,
    in_warmup,
    ou_path,
    samples_of,
    scaled,
    soft_update,
)
from proxima.core.replay import Replay, add, empty, pack_samples, sample
from proxima.core.returns import td_target
from proxima.core.spaces import Box, Space, flat_size, zeros
from proxima.core.trees import select
from proxima.core.types import Acted, PerEnv, PyTree, Transition, View
from proxima.nets.actor_critic import MLPConfig
from proxima.nets.deterministic import (
    DeterministicActor,
    QEnsemble,
    deterministic_actor,
    from_units,
    q_ensemble,
    to_units,
)
from proxima.nets.encoder import check_normalized
from proxima.nets.perceptrons import perceptron_settings

# The metrics of a gradient step, in the order in which `_gradient_step` stacks them.
METRICS = (
    "loss/critic",
    "loss/actor",
    "train/grad_norm",  # of both nets together, before clipping
    "train/q_mean",
    "train/td_error",
    "buffer/reward_mean",  # of what was drawn
)
ADAM = optax.scale_by_adam(eps=1e-8)  # what both papers' authors and torch use


@dataclass(frozen=True, kw_only=True)
class DDPGConfig:
    """DDPG's and TD3's settings; all but sizes and switches are numbers a running program can change."""

    name: Literal["ddpg"]
    """The algorithm."""
    actor_learning_rate: Annotated[float, Gt(0)] = 1e-3
    """Adam's step size for the actor."""
    critic_learning_rate: Annotated[float, Gt(0)] = 1e-3
    """Adam's step size for the critics."""
    gamma: Annotated[float, Interval(ge=0, le=1)] = 0.99
    """Discount factor."""
    tau: Annotated[float, Interval(gt=0, le=1)] = 0.005
    """How far the target nets move towards their nets at a time."""
    batch_size: Annotated[int, Ge(1)] = 256
    """Samples of a gradient step."""
    buffer_size: Annotated[int, Ge(1)] = 100_000
    """Environment steps the replay buffer holds; at least batch_size."""
    warmup_steps: Annotated[int, Ge(0)] = 1_000
    """Environment steps with uniformly random actions before learning begins."""
    steps_per_update: Annotated[int, Ge(1)] = 1
    """Steps of each environment collected between two updates."""
    gradient_steps: Annotated[int, Ge(1)] | None = None
    """Gradient steps per update; null takes one for every environment step collected."""
    exploration: Literal["gaussian", "ou"] = "gaussian"
    """Noise on the actions: independent from step to step, or an Ornstein-Uhlenbeck path."""
    exploration_noise: Annotated[float, Ge(0)] = 0.1
    """Deviation of the noise (of each step of the path), as a share of half the action range."""
    ou_theta: Annotated[float, Interval(ge=0, le=1)] = 0.15
    """Pull of the Ornstein-Uhlenbeck path back to 0 per step; 1 makes it Gaussian noise."""
    critic_loss: Literal["l2", "l1", "smooth_l1"] = "l2"
    """Loss of a critic's error: its square, its size, or its square below 1 and its size above."""
    critics: Annotated[int, Interval(ge=1, le=64)] = 1
    """Critics, of which the least sets the target; 2 in TD3."""
    policy_delay: Annotated[int, Ge(1)] = 1
    """Critic steps per step of the actor and of the targets; 2 in TD3."""
    target_noise: Annotated[float, Ge(0)] = 0.0
    """Deviation of the noise on the target's actions, as a share of half the range; 0.2 in TD3."""
    target_noise_clip: Annotated[float, Gt(0)] = 0.5
    """The largest such noise, as a share of half the range."""
    max_grad_norm: Annotated[float, Gt(0)] | None = field(default=None, metadata={"none": math.inf})
    """Gradients longer than this are scaled down to it, the actor's and the critics' apart; null never."""
    reward_scale: Annotated[float, Gt(0)] = 1.0
    """Rewards are multiplied by this before they are learnt from."""
    normalize_observations: bool = False
    """Shift and scale observations by running statistics that belong to the policy."""


class Hyper(NamedTuple):
    """The numbers of DDPG, scalar arrays: the settings of these names."""

    actor_learning_rate: Array
    critic_learning_rate: Array
    gamma: Array
    tau: Array
    warmup_steps: Array
    exploration_noise: Array
    ou_theta: Array
    policy_delay: Array
    target_noise: Array
    target_noise_clip: Array
    max_grad_norm: Array
    reward_scale: Array


class Trained(NamedTuple):
    """A net, the target that follows it, and Adam's moments for it."""

    net: PyTree
    target: PyTree
    optimizer: optax.OptState


class Nets(NamedTuple):
    """What gradient steps change."""

    actor: Trained  # of a DeterministicActor
    critic: Trained  # of a QEnsemble
    gradient_steps: Array  # so far; the actor takes one every policy_delay of them


class Learner(NamedTuple):
    """All that changes in training."""

    nets: Nets
    replay: Replay
    steps: Array  # environment steps so far; the warm-up ends after warmup_steps
    hyper: Hyper
    obs_moments: Moments | None
    ou_path: PerEnv | None  # the last point of the noise path, (B, numbers of an action)


class Policy(NamedTuple):
    """Only what acting needs of a learner: what an exported policy carries."""

    net: DeterministicActor
    obs_moments: Moments | None
    exploration_noise: Array


class Noise(NamedTuple):
    """The randomness of actions (..., numbers of an action), in units of half the action range."""

    amount: Array  # scaled and added to the action; in the warm-up it is the action
    warmup: Array  # (...)


class DDPG(eqx.Module):
    """The agent: static sizes and switches, and the numbers a fresh learner starts with."""

    hyper: Hyper
    config: DDPGConfig = eqx.field(static=True)  # without its numbers
    problem: Problem = eqx.field(static=True)  # without the environment
    action_space: Box = eqx.field(static=True)
    network: MLPConfig = eqx.field(static=True)
    smooth_target: bool = eqx.field(static=True)

    @property
    def gradient_steps(self) -> int:
        """Gradient steps per update."""
        return self.config.gradient_steps or self.problem.num_envs * self.config.steps_per_update

    def init(self, key: Array) -> Learner:
        """A fresh learner; the targets start equal to their nets."""
        actor_key, critic_key = jax.random.split(key)
        spaces = self.problem.observation_space, self.action_space
        numbers = flat_size(self.action_space)
        obs, zero = zeros(spaces[0]), jnp.zeros((), jnp.int32)
        path = PerEnv(jnp.zeros((self.problem.num_envs, numbers)))
        actor = deterministic_actor(actor_key, self.network, *spaces)
        critic = q_ensemble(critic_key, self.network, *spaces, self.config.critics)
        return Learner(
            nets=Nets(_untrained(actor), _untrained(critic), gradient_steps=zero),
            replay=empty(self.config.buffer_size, example_sample(*spaces)),
            steps=zero,
            hyper=self.hyper,
            obs_moments=first_moments(obs) if self.config.normalize_observations else None,
            ou_path=path if self.config.exploration == "ou" else None,
        )

    def noise(self, learner: Learner | None, key: Array, shape: tuple[int, ...]) -> Noise:
        """The randomness of a rollout, `shape` being (T, B); without a learner, of single actions."""
        normal = jax.random.normal(key, (*shape, flat_size(self.action_space)))
        if learner is None:
            return Noise(normal, jnp.zeros(shape, bool))
        amount = normal
        if learner.ou_path is not None:
            amount = ou_path(learner.ou_path.value, normal, learner.hyper.ou_theta)
        warmup = in_warmup(learner.steps, learner.hyper.warmup_steps, shape)
        uniform = jax.lax.erf(normal / 2**0.5)  # a normal number's share of the bell, from -1 to 1
        return Noise(select(warmup, uniform, amount), warmup)

    def memory(self, num_envs: int) -> None:
        """Nothing is remembered."""

    def explore(self, learner: Learner | Policy, view: View, noise: Noise) -> Acted:
        """The actor's actions with noise, random ones in the warm-up; and the points of the noise path."""
        policy = self.policy(learner)
        units = policy.net(normalize(policy.obs_moments, view.obs))
        noisy = jnp.clip(units + policy.exploration_noise * noise.amount, -1.0, 1.0)
        action = from_units(self.action_space, select(noise.warmup, noise.amount, noisy))
        if self.config.exploration != "ou":
            return Acted(action)
        return Acted(action, select(noise.warmup, jnp.zeros_like(noise.amount), noise.amount))

    def exploit(self, learner: Learner | Policy, view: View) -> Acted:
        """The actor's actions."""
        policy = self.policy(learner)
        units = policy.net(normalize(policy.obs_moments, view.obs))
        return Acted(from_units(self.action_space, units))

    def policy(self, learner: Learner | Policy) -> Policy:
        """The learner's policy, which `explore` and `exploit` take in its place."""
        if isinstance(learner, Policy):
            return learner
        return Policy(learner.nets.actor.net, learner.obs_moments, learner.hyper.exploration_noise)

    def update(
        self, learner: Learner, rollout: Transition, key: Array
    ) -> tuple[Learner, dict[str, Array]]:
        """The learner with the rollout in its buffer and, after the warm-up, after some gradient steps."""
        config, hyper = self.config, learner.hyper
        rows, unpack = pack_samples(samples_of(rollout))
        replay = add(learner.replay, rows, rollout.mask.reshape(-1))
        steps = learner.steps + rollout.mask.size
        ready = (steps >= hyper.warmup_steps) & (replay.size >= config.batch_size)

        def step(nets: Nets, key: Array, inputs: PyTree) -> tuple[Nets, Array]:
            replay, hyper, moments = inputs
            drawn = unpack(sample(replay, key[0], config.batch_size))
            batch = scaled(drawn, hyper.reward_scale, moments)
            return self._gradient_step(nets, hyper, batch, key[1])

        keys = jax.random.split(key, (self.gradient_steps, 2))  # to draw with, and for the target
        inputs = (replay, hyper, learner.obs_moments)
        nets, metrics = steps_when(ready, step, learner.nets, keys, inputs, METRICS)
        path = learner.ou_path
        if path is not None:
            ended = rollout.terminated[-1] | rollout.truncated[-1]
            path = PerEnv(select(ended, jnp.zeros_like(rollout.aux[-1]), rollout.aux[-1]))
        # After the update: actions and losses of one rollout must see the same statistics.
        moments = add_samples(learner.obs_moments, rollout.obs, rollout.mask)
        metrics["buffer/size"] = replay.size.astype(jnp.float32)
        return Learner(nets, replay, steps, hyper, moments, path), metrics

    def _gradient_step(
        self, nets: Nets, hyper: Hyper, batch: Sample, key: Array
    ) -> tuple[Nets, Array]:
        """One step of the critics and, every policy_delay-th time, of the actor and both targets."""
        target = self._target(nets, hyper, batch, key)
        differentiate = jax.value_and_grad(self._critic_loss, has_aux=True)
        (loss, (q, error)), gradient = differentiate(nets.critic.net, batch, target)
        critic, critic_norm = stepped(nets.critic, gradient, hyper.critic_learning_rate, hyper)
        count = nets.gradient_steps + 1
        due = count % hyper.policy_delay == 0
        before, inputs = (nets.actor, critic, jnp.zeros(2)), (hyper, batch)
        actor, critic, (actor_loss, actor_norm) = when(due, self._delayed_step, before, inputs)
        norm = jnp.sqrt(jnp.square(critic_norm) + jnp.square(actor_norm))
        # Averaged over all steps, the actor's losses are those of the steps that had one.
        actor_loss = actor_loss * hyper.policy_delay
        means = (loss, actor_loss, norm, jnp.mean(q), error, jnp.mean(batch.reward))
        return Nets(actor, critic, count), jnp.stack(means)

    def _target(self, nets: Nets, hyper: Hyper, batch: Sample, key: Array) -> Array:
        """The targets of the critics, computed by the target nets."""
        units = nets.actor.target(batch.next_obs)
        if self.smooth_target:
            noise = hyper.target_noise * jax.random.normal(key, units.shape)
            noise = jnp.clip(noise, -hyper.target_noise_clip, hyper.target_noise_clip)
            units = jnp.clip(units + noise, -1.0, 1.0)
        least = functools.reduce(jnp.minimum, nets.critic.target(batch.next_obs, units))
        return td_target(batch.reward, least, batch.terminated, hyper.gamma)

    def _critic_loss(
        self, critic: QEnsemble, batch: Sample, target: Array
    ) -> tuple[Array, tuple[Array, Array]]:
        """The sum of the critics' mean losses; also Q of the first critic and its mean absolute error."""
        values = critic(batch.obs, to_units(self.action_space, batch.action))
        errors = [CRITIC_LOSSES[self.config.critic_loss](value, target) for value in values]
        td_error = jnp.mean(jnp.abs(values[0] - target))
        return jnp.mean(sum(errors[1:], errors[0])), (values[0], td_error)

    def _delayed_step(
        self, before: tuple[Trained, Trained, Array], inputs: tuple[Hyper, Sample]
    ) -> tuple[Trained, Trained, Array]:
        """Actor and critic after one step of the actor and of both targets; its loss and gradient norm."""
        actor, critic, _ = before
        hyper, batch = inputs

        def loss_of(net: DeterministicActor) -> Array:
            return -jnp.mean(critic.net.first(batch.obs, net(batch.obs)))

        loss, gradient = jax.value_and_grad(loss_of)(actor.net)
        actor, norm = stepped(actor, gradient, hyper.actor_learning_rate, hyper)
        actor, critic = (
            part._replace(target=soft_update(part.target, part.net, hyper.tau))
            for part in (actor, critic)
        )
        return actor, critic, jnp.stack([loss, norm])


def ddpg(config: DDPGConfig, problem: Problem) -> DDPG:
    """The agent for the settings, or an error in words where actions or nets are not for it."""
    observed, normalized = problem.observation_space, config.normalize_observations
    check_normalized(observed, problem.env_name, normalized)
    return DDPG(
        hyper=make_hyper(Hyper, config),
        config=without_numbers(config, Hyper, "max_grad_norm"),
        problem=problem.without_env(),
        action_space=check_actions(problem.action_space, problem.env_name),
        network=perceptron_settings(problem, "ddpg"),
        smooth_target=config.target_noise > 0,
    )


def check_actions(space: Space, env_name: str) -> Box:
    """The space, or an error in words where the actions are not bounded and continuous."""
    if not isinstance(space, Box):
        raise ProximaError(
            f"algorithm.name: ddpg needs continuous actions and {env_name}'s are discrete; "
            "use ppo, or set env.actions: continuous where the environment has both"
        )
    if not space.bounded:
        raise ProximaError(
            f"algorithm.name: ddpg needs bounded actions and {env_name}'s are not; "
            "give the environment finite bounds or use ppo"
        )
    return space


def stepped(trained: Trained, gradient: PyTree, rate: Array, hyper: Hyper) -> tuple[Trained, Array]:
    """The net after one Adam step, and the norm of its gradient before clipping."""
    before = trained.net, trained.optimizer
    (net, optimizer), norm = adam_step(ADAM, before, gradient, rate, hyper.max_grad_norm)
    return trained._replace(net=net, optimizer=optimizer), norm


def _untrained(net: PyTree) -> Trained:
    return Trained(net, jax.tree.map(jnp.copy, net), ADAM.init(net))


ALGORITHM = Algorithm(
    config=DDPGConfig,
    make=ddpg,
    rollout_steps=lambda config, num_envs: config.steps_per_update,
    checks=buffer_faults,
    panels=(
        Panel("loss/actor", "actor loss (−Q)"),
        Panel("loss/critic", "critic loss"),
        Panel("train/q_mean", "mean Q"),
        Panel("train/td_error", "mean absolute TD error"),
        Panel("train/grad_norm", "gradient norm"),
        Panel("buffer/reward_mean", "mean reward in the buffer"),
    ),
    learning_begins=lambda config: config.warmup_steps + config.batch_size,
)

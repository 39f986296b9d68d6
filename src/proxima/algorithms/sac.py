"""Soft actor-critic (Haarnoja et al. 2018, arXiv 1812.05905), for bounded numbers and for choices.

    repeat:  collect T steps of B environments with actions drawn from the policy, store them in the ring
             gradient_steps times, by default as often as steps were collected:
                 draw a batch (s, a, r, s', terminated)
                 V̄(s') = E[min over target critics of Q̄(s', a')] + α H(π(·|s')),  a' ~ π
                 one Adam step of the critics on loss(Q(s, a) − r − γ (1 − terminated) V̄(s'))
                 every policy_delay-th time: one Adam step of the actor on −V(s), through the critics
                     just changed, and one of log α on α (H(π(·|s)) − H̄)
                 the target critics move by τ towards their nets

Of numbers, E and H are estimated by one action, a function of the actor and of noise, and the gradient goes
through it. Of choices (Christodoulou 2019, arXiv 1910.07207) both are exact sums over the valid ones. Left
out on purpose: prioritised replay, n-step targets, state-dependent exploration (gSDE), in whose place there
is `noise_correlation`. docs/algorithms/sac.md explains every detail. Numbers are leaves of the learner:
changing one compiles nothing.
"""

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
from proxima.core.spaces import Box, Discrete, zeros
from proxima.core.trees import select
from proxima.core.types import Acted, PerEnv, PyTree, Transition, View
from proxima.nets.actor_critic import MLPConfig
from proxima.nets.encoder import check_normalized
from proxima.nets.perceptrons import perceptron_settings
from proxima.nets.soft_actor import Actions, Actor, BoundedNumbers, Choices, Critics

# The metrics of a gradient step, in the order in which `_gradient_step` stacks them.
METRICS = (
    "loss/critic",
    "loss/actor",
    "loss/temperature",
    "train/grad_norm",  # of actor and critics together, before clipping
    "train/q_mean",
    "train/td_error",
    "train/temperature",
    "train/entropy",
    "buffer/reward_mean",  # of what was drawn
)
ADAM = optax.scale_by_adam(eps=1e-8)  # what the papers' authors use


@dataclass(frozen=True, kw_only=True)
class SACConfig:
    """SAC's settings; all but sizes and switches are numbers a running program can change."""

    name: Literal["sac"]
    """The algorithm."""
    actor_learning_rate: Annotated[float, Gt(0)] = 3e-4
    """Adam's step size for the actor."""
    critic_learning_rate: Annotated[float, Gt(0)] = 1e-3
    """Adam's step size for the critics."""
    temperature_learning_rate: Annotated[float, Gt(0)] = 1e-3
    """Adam's step size for the logarithm of the temperature."""
    gamma: Annotated[float, Interval(ge=0, le=1)] = 0.99
    """Discount factor."""
    tau: Annotated[float, Interval(gt=0, le=1)] = 0.005
    """How far the target critics move towards their nets at a time."""
    temperature: Annotated[float, Gt(0)] = 1.0
    """Weight α of the entropy against rewards; where it starts if it is learnt."""
    learn_temperature: bool = True
    """Let the temperature settle where the policy has the target entropy."""
    target_entropy: float | None = None
    """Entropy that a learnt temperature aims at; null takes minus the numbers of an action, and of
    discrete actions target_entropy_ratio."""
    target_entropy_ratio: Annotated[float, Interval(ge=0, le=1)] = 0.5
    """Of discrete actions: the entropy aimed at as a share of the largest, log(number of valid actions)."""
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
    noise_correlation: Annotated[float, Interval(ge=0, lt=1)] = 0.0
    """How alike the noise of one step and the next are while exploring, from 0, independent, towards 1.
    Single actions keep their distribution. For continuous actions."""
    critic_loss: Literal["l2", "l1", "smooth_l1"] = "l2"
    """Loss of a critic's error: its square, its size, or its square below 1 and its size above."""
    critics: Annotated[int, Interval(ge=1, le=64)] = 2
    """Critics, of which the least sets the target and teaches the actor."""
    policy_delay: Annotated[int, Ge(1)] = 1
    """Critic steps per step of the actor and of the temperature."""
    max_grad_norm: Annotated[float, Gt(0)] | None = field(default=None, metadata={"none": math.inf})
    """Gradients longer than this are scaled down to it, the actor's and the critics' apart; null never."""
    reward_scale: Annotated[float, Gt(0)] = 1.0
    """Rewards are multiplied by this before they are learnt from."""
    normalize_observations: bool = False
    """Shift and scale observations by running statistics that belong to the policy."""


class Hyper(NamedTuple):
    """The numbers of SAC, scalar arrays: the settings of these names."""

    actor_learning_rate: Array
    critic_learning_rate: Array
    temperature_learning_rate: Array
    gamma: Array
    tau: Array
    temperature: Array
    target_entropy: Array  # H̄ = target_entropy + target_entropy_ratio · log(valid actions)
    target_entropy_ratio: Array
    warmup_steps: Array
    noise_correlation: Array
    policy_delay: Array
    max_grad_norm: Array
    reward_scale: Array


class Trained(NamedTuple):
    """A net, or a number, and Adam's moments for it."""

    net: PyTree
    optimizer: optax.OptState


class Nets(NamedTuple):
    """What gradient steps change."""

    actor: Trained  # of an Actor
    critics: Trained  # of Critics
    target: Critics  # follows the critics
    log_temperature: Trained  # of a scalar; stays as it was where the temperature is fixed
    gradient_steps: Array  # so far; the actor takes one every policy_delay of them


class Learner(NamedTuple):
    """All that changes in training."""

    nets: Nets
    replay: Replay
    steps: Array  # environment steps so far; the warm-up ends after warmup_steps
    hyper: Hyper
    obs_moments: Moments | None
    noise_path: PerEnv | None  # the last step's noise, (B, numbers of an action)


class Policy(NamedTuple):
    """Only what acting needs of a learner: what an exported policy carries."""

    net: Actor
    obs_moments: Moments | None


class Noise(NamedTuple):
    """The randomness of actions."""

    amount: Array  # (..., random numbers of an action)
    warmup: Array  # (...): whether the action is uniform, not the policy's


class SAC(eqx.Module):
    """The agent: static sizes and switches, and the numbers a fresh learner starts with."""

    hyper: Hyper
    config: SACConfig = eqx.field(static=True)  # without its numbers
    problem: Problem = eqx.field(static=True)  # without the environment
    actions: Actions = eqx.field(static=True)
    network: MLPConfig = eqx.field(static=True)

    @property
    def gradient_steps(self) -> int:
        """Gradient steps per update."""
        return self.config.gradient_steps or self.problem.num_envs * self.config.steps_per_update

    def init(self, key: Array) -> Learner:
        """A fresh learner; the targets start equal to their nets."""
        net_key, path_key = jax.random.split(key)
        config, space = self.config, self.problem.observation_space
        actor, critics = self.actions.nets(net_key, self.network, space, config.critics)
        zero, obs = jnp.zeros((), jnp.int32), zeros(space)
        path = PerEnv(self.actions.noise(path_key, (self.problem.num_envs,)))
        return Learner(
            nets=Nets(
                actor=_untrained(actor),
                critics=_untrained(critics),
                target=jax.tree.map(jnp.copy, critics),
                log_temperature=_untrained(jnp.log(self.hyper.temperature)),
                gradient_steps=zero,
            ),
            replay=empty(config.buffer_size, example_sample(space, self.actions.space)),
            steps=zero,
            hyper=self.hyper,
            obs_moments=first_moments(obs) if config.normalize_observations else None,
            noise_path=path if self.actions.noise_lasts else None,
        )

    def noise(self, learner: Learner | None, key: Array, shape: tuple[int, ...]) -> Noise:
        """The randomness of a rollout, `shape` being (T, B); without a learner, of single actions."""
        amount = self.actions.noise(key, shape)
        if learner is None:
            return Noise(amount, jnp.zeros(shape, bool))
        if learner.noise_path is not None:
            kept = learner.hyper.noise_correlation
            fresh = jnp.sqrt(1.0 - jnp.square(kept)) * amount  # every point has deviation 1
            amount = ou_path(learner.noise_path.value, fresh, 1.0 - kept)
        return Noise(amount, in_warmup(learner.steps, learner.hyper.warmup_steps, shape))

    def memory(self, num_envs: int) -> None:
        """Nothing is remembered."""

    def explore(self, learner: Learner | Policy, view: View, noise: Noise) -> Acted:
        """Actions drawn from the policy, uniform ones in the warm-up; and the noise, which has a path."""
        policy, actions = self.policy(learner), self.actions
        drawn = actions.sample(policy.net, normalize(policy.obs_moments, view.obs), noise.amount)
        action = select(noise.warmup, actions.uniform(view.obs, noise.amount), drawn)
        return Acted(action, noise.amount if actions.noise_lasts else None)

    def exploit(self, learner: Learner | Policy, view: View) -> Acted:
        """The likeliest actions: of numbers, the policy's middle."""
        policy = self.policy(learner)
        seen = normalize(policy.obs_moments, view.obs)
        return Acted(self.actions.mode(policy.net, seen))

    def policy(self, learner: Learner | Policy) -> Policy:
        """The learner's policy, which `explore` and `exploit` take in its place."""
        if isinstance(learner, Policy):
            return learner
        return Policy(learner.nets.actor.net, learner.obs_moments)

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
            noise = self.actions.noise(key[1], (2, config.batch_size))
            return self._gradient_step(
                nets, hyper, scaled(drawn, hyper.reward_scale, moments), noise
            )

        keys = jax.random.split(key, (self.gradient_steps, 2))  # to draw with, and for actions
        inputs = (replay, hyper, learner.obs_moments)
        nets, metrics = steps_when(ready, step, learner.nets, keys, inputs, METRICS)
        path = None if learner.noise_path is None else PerEnv(rollout.aux[-1])
        # After the update: actions and losses of one rollout must see the same statistics.
        moments = add_samples(learner.obs_moments, rollout.obs, rollout.mask)
        metrics["buffer/size"] = replay.size.astype(jnp.float32)
        return Learner(nets, replay, steps, hyper, moments, path), metrics

    def _gradient_step(
        self, nets: Nets, hyper: Hyper, batch: Sample, noise: Array
    ) -> tuple[Nets, Array]:
        """One step of the critics and, every policy_delay-th time, of actor and temperature.

        `noise` (2, batch, ...) is for actions at the next observations and at the batch's own.
        """
        target = self._target(nets, hyper, batch, noise[0])
        differentiate = jax.value_and_grad(self._critic_loss, has_aux=True)
        (loss, (q, error)), gradient = differentiate(nets.critics.net, batch, target)
        rate, max_norm = hyper.critic_learning_rate, hyper.max_grad_norm
        critics, critic_norm = stepped(nets.critics, gradient, rate, max_norm)
        count = nets.gradient_steps + 1
        due = count % hyper.policy_delay == 0
        before = (nets.actor, nets.log_temperature, jnp.zeros(4))
        inputs = (critics.net, hyper, batch, noise[1])
        actor, log_temperature, parts = when(due, self._policy_step, before, inputs)
        actor_loss, temperature_loss, entropy, actor_norm = parts
        norm = jnp.sqrt(jnp.square(critic_norm) + jnp.square(actor_norm))
        # Averaged over all steps, the actor's figures are those of the steps that had one.
        of_actor = [hyper.policy_delay * part for part in (actor_loss, temperature_loss, entropy)]
        means = (loss, *of_actor[:2], norm, jnp.mean(q), error)
        means = (
            *means,
            self._alpha(nets.log_temperature, hyper),
            of_actor[2],
            jnp.mean(batch.reward),
        )
        tracked = soft_update(nets.target, critics.net, hyper.tau)
        return Nets(actor, critics, tracked, log_temperature, count), jnp.stack(means)

    def _alpha(self, log_temperature: Trained, hyper: Hyper) -> Array:
        """The temperature as it was learnt, or as it is set."""
        learnt = self.config.learn_temperature
        return jnp.exp(log_temperature.net) if learnt else hyper.temperature

    def _target(self, nets: Nets, hyper: Hyper, batch: Sample, noise: Array) -> Array:
        """The targets of the critics: rewards and what the target critics expect of the policy's actions."""
        value = self.actions.value(nets.actor.net, nets.target, batch.next_obs, noise)
        soft = value.q + self._alpha(nets.log_temperature, hyper) * value.entropy
        return td_target(batch.reward, soft, batch.terminated, hyper.gamma)

    def _critic_loss(
        self, critics: Critics, batch: Sample, target: Array
    ) -> tuple[Array, tuple[Array, Array]]:
        """The sum of the critics' mean losses; also Q of the first critic and its mean absolute error."""
        values = self.actions.taken(critics, batch.obs, batch.action)
        errors = [CRITIC_LOSSES[self.config.critic_loss](value, target) for value in values]
        td_error = jnp.mean(jnp.abs(values[0] - target))
        return jnp.mean(sum(errors[1:], errors[0])), (values[0], td_error)

    def _policy_step(
        self,
        before: tuple[Trained, Trained, Array],
        inputs: tuple[Critics, Hyper, Sample, Array],
    ) -> tuple[Trained, Trained, Array]:
        """Actor and log α after one step of each; their losses, the entropy, the actor's gradient norm."""
        actor, log_temperature, _ = before
        critics, hyper, batch, noise = inputs
        alpha = self._alpha(log_temperature, hyper)
        differentiate = jax.value_and_grad(self._actor_loss, has_aux=True)
        (loss, entropy), gradient = differentiate(actor.net, critics, alpha, batch, noise)
        actor, norm = stepped(actor, gradient, hyper.actor_learning_rate, hyper.max_grad_norm)
        surplus = jnp.mean(entropy - self._target_entropy(hyper, batch))
        temperature_loss = alpha * surplus
        if self.config.learn_temperature:
            rate, unclipped = hyper.temperature_learning_rate, jnp.float32(math.inf)
            slope = temperature_loss  # α = exp(log α) is its own derivative by log α
            log_temperature, _ = stepped(log_temperature, slope, rate, unclipped)
        parts = (loss, temperature_loss, jnp.mean(entropy), norm)
        return actor, log_temperature, jnp.stack(parts)

    def _actor_loss(
        self, actor: Actor, critics: Critics, alpha: Array, batch: Sample, noise: Array
    ) -> tuple[Array, Array]:
        """Minus the mean soft value of the batch's observations; also the entropy at each."""
        value = self.actions.value(actor, critics, batch.obs, noise)
        return -jnp.mean(value.q + alpha * value.entropy), value.entropy

    def _target_entropy(self, hyper: Hyper, batch: Sample) -> Array:
        """H̄ at each observation: a number, or a share of what the valid choices allow."""
        largest = jnp.broadcast_to(self.actions.log_choices(batch.obs), batch.reward.shape)
        return hyper.target_entropy + hyper.target_entropy_ratio * largest


def stepped(
    trained: Trained, gradient: PyTree, rate: Array, max_norm: Array
) -> tuple[Trained, Array]:
    """The net after one Adam step, and the norm of its gradient before clipping."""
    before = trained.net, trained.optimizer
    after, norm = adam_step(ADAM, before, gradient, rate, max_norm)
    return Trained(*after), norm


def _untrained(net: PyTree) -> Trained:
    return Trained(net, ADAM.init(net))


def sac(config: SACConfig, problem: Problem) -> SAC:
    """The agent for the settings, or an error in words where actions or nets are not for it."""
    actions = actions_of(problem, config)
    normalized = config.normalize_observations
    check_normalized(problem.observation_space, problem.env_name, normalized)
    aim = (actions.usual_entropy, config.target_entropy_ratio)
    if config.target_entropy is not None:
        aim = (config.target_entropy, 0.0)
    entropy, ratio = map(jnp.float32, aim)
    return SAC(
        hyper=make_hyper(Hyper, config, target_entropy=entropy, target_entropy_ratio=ratio),
        config=without_numbers(config, Hyper, "max_grad_norm", "target_entropy"),
        problem=problem.without_env(),
        actions=actions,
        network=perceptron_settings(problem, "sac"),
    )


def actions_of(problem: Problem, config: SACConfig) -> Actions:
    """What the actions are to SAC, or an error in words where it cannot choose such."""
    space, env_name = problem.action_space, problem.env_name
    if isinstance(space, Discrete):
        if config.noise_correlation > 0:
            raise ProximaError(
                f"algorithm.noise_correlation: {env_name}'s actions are choices, whose noise has no path; "
                "set it to 0"
            )
        return Choices(space)
    if not isinstance(space, Box):
        raise ProximaError(
            f"algorithm.name: sac needs continuous actions or a single choice, and {env_name}'s are several "
            "choices at once; use ppo"
        )
    if not space.bounded:
        raise ProximaError(
            f"algorithm.name: sac needs bounded actions and {env_name}'s are not; "
            "give the environment finite bounds or use ppo"
        )
    return BoundedNumbers(space)


ALGORITHM = Algorithm(
    config=SACConfig,
    make=sac,
    rollout_steps=lambda config, num_envs: config.steps_per_update,
    checks=buffer_faults,
    panels=(
        Panel("loss/actor", "actor loss (−V)"),
        Panel("loss/critic", "critic loss"),
        Panel("train/temperature", "temperature α"),
        Panel("train/entropy", "entropy of the policy"),
        Panel("train/q_mean", "mean Q"),
        Panel("train/td_error", "mean absolute TD error"),
        Panel("train/grad_norm", "gradient norm"),
        Panel("buffer/reward_mean", "mean reward in the buffer"),
    ),
    learning_begins=lambda config: config.warmup_steps + config.batch_size,
)

"""Sequential Monte Carlo policy optimisation (SPO, Macfarlane et al. 2024, arXiv 2402.07963).

    repeat:  T steps of B environments; at each, N particles search copies of the environment (core/smc.py):
                 play a root action ~ its weight, keep all root actions, weights and advantages
             keep each environment's T steps as one sequence in the ring
             some times:  draw sequences;  V̄ and π̄ by the target net, value targets by GAE over the sequence
                 actor       −Σ w log π(a) + α KL(π̄ ‖ π)      the search's answer, within a trust region
                 critic      ½ (V − target)²
                 temperature η (ε + log mean exp(A / η))       how sharply search weighs
                 α           α (ε_policy − KL)                 how strong the trust region is
                 one Adam step of the nets and one of the two duals; the target moves by τ towards its net

Left out on purpose: a learnt model (search steps the environment itself, so it must be compiled), and
priorities in the ring. What every detail is for is in docs/algorithms/spo.md. Numbers are leaves of the
learner: changing one compiles nothing.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from annotated_types import Ge, Gt, Interval
from jax import Array
from jax.flatten_util import ravel_pytree

from proxima.core import mpo, smc
from proxima.core.algorithm import Algorithm, Panel, Problem
from proxima.core.branch import when
from proxima.core.distributions import Distribution
from proxima.core.errors import ProximaError
from proxima.core.faults import Fault
from proxima.core.hyper import make_hyper
from proxima.core.losses import value_error
from proxima.core.network import NetworkSpec, PolicyAndValue
from proxima.core.normalize import Moments, add_samples, first_moments, seen
from proxima.core.replay import Replay, add, empty, sample
from proxima.core.returns import gae
from proxima.core.spaces import Box, Discrete, zeros
from proxima.core.trees import pack_flags, pack_rows
from proxima.core.types import Env, PyTree, Transition, View
from proxima.nets.network import check_network

# The means of a gradient step, in the order in which they travel as one vector.
METRICS = (
    "loss/total",
    "loss/policy",
    "loss/value",
    "loss/temperature",
    "loss/alpha",
    "train/kl",
    "train/entropy",
    "train/value_mean",
    "train/grad_norm",
)
SEARCH_METRICS = ("effective_sample_size", "weight_entropy", "alive", "resamples", "value_spread")
ADAM_EPS = 1e-5  # openai/baselines ppo2; Optax's own default is 1e-8


@dataclass(frozen=True, kw_only=True)
class SPOConfig:
    """SPO's settings; all but the sizes and the switches are numbers a running program can change."""

    name: Literal["spo"]
    """The algorithm."""
    particles: Annotated[int, Ge(1)] = 16
    """Copies of an environment that search at once."""
    depth: Annotated[int, Ge(1)] = 4
    """Steps that each of them looks ahead."""
    resampling: Literal["period", "ess"] = "period"
    """Resample every resample_period depths, or when the effective sample size falls below its threshold."""
    resample_period: Annotated[int, Ge(1)] = 4
    """Depths between two resamplings; the last depth is followed by none."""
    ess_threshold: Annotated[float, Interval(ge=0, le=1)] = 0.5
    """Share of the particles below which the effective sample size may not fall."""
    search_gamma: Annotated[float, Interval(ge=0, le=1)] = 1.0
    """Discount factor within a search."""
    search_lambda: Annotated[float, Interval(ge=0, le=1)] = 1.0
    """Decay of the advantage estimator within a search."""
    dirichlet_fraction: Annotated[float, Interval(ge=0, le=1)] = 0.0
    """Share of Dirichlet noise in the prior at the root; discrete actions only."""
    dirichlet_alpha: Annotated[float, Gt(0)] = 0.3
    """Concentration of that noise: small puts most of it on few actions."""
    temperature: Annotated[float, Gt(0)] | None = field(default=None, metadata={"none": 0.0})
    """A fixed temperature of the search's weights; null learns it."""
    search_in_evaluation: bool = True
    """Play by search when greedy too, the heaviest root action; else the policy's likeliest action."""
    epsilon: Annotated[float, Gt(0)] = 0.5
    """How far, in KL, the search's weighting goes from the prior; sets the learnt temperature."""
    policy_epsilon: Annotated[float, Gt(0)] = 1e-3
    """How far, in KL, the policy may go from its target; sets the strength of the trust region."""
    initial_log_temperature: float = 3.0
    """The temperature starts at softplus of this."""
    initial_log_alpha: float = 3.0
    """The trust region's strength starts at softplus of this."""
    learning_rate: Annotated[float, Gt(0)] = 3e-4
    """Adam's step size for actor and critic."""
    dual_learning_rate: Annotated[float, Gt(0)] = 1e-3
    """Adam's step size for both duals."""
    tau: Annotated[float, Interval(gt=0, le=1)] = 0.005
    """How far the target net moves towards its net at a time."""
    gamma: Annotated[float, Interval(ge=0, le=1)] = 0.99
    """Discount factor."""
    gae_lambda: Annotated[float, Interval(ge=0, le=1)] = 0.95
    """Decay of the value targets' estimator: 0 one step, 1 the whole sequence."""
    value_coef: Annotated[float, Ge(0)] = 1.0
    """Weight of the value loss."""
    max_grad_norm: Annotated[float, Gt(0)] | None = field(default=40.0, metadata={"none": math.inf})
    """Gradients longer than this are scaled down to it; null never."""
    reward_scale: Annotated[float, Gt(0)] = 1.0
    """Rewards are multiplied by this before they are searched over or learnt from."""
    buffer_size: Annotated[int, Ge(1)] = 65_536
    """Environment steps the replay buffer holds; at least a batch of sequences."""
    sequence_length: Annotated[int, Ge(1)] = 32
    """Steps of each environment collected per update, which are kept as one sequence."""
    batch_size: Annotated[int, Ge(1)] = 32
    """Sequences of a gradient step."""
    gradient_steps: Annotated[int, Ge(1)] = 8
    """Gradient steps per update."""
    normalize_observations: bool = False
    """Shift and scale observations by running statistics that belong to the policy."""


class Hyper(NamedTuple):
    """The numbers of SPO, scalar arrays: the settings of these names, and where the duals start."""

    search_gamma: Array
    search_lambda: Array
    resample_period: Array
    ess_threshold: Array
    dirichlet_fraction: Array
    dirichlet_alpha: Array
    temperature: Array  # unused where it is learnt
    epsilon: Array
    policy_epsilon: Array
    initial_duals: Array  # log temperature, log α
    learning_rate: Array
    dual_learning_rate: Array
    tau: Array
    gamma: Array
    gae_lambda: Array
    value_coef: Array
    max_grad_norm: Array
    reward_scale: Array


class Nets(NamedTuple):
    """What gradient steps change; each of the first four as one flat vector."""

    net: Array
    target: Array
    optimizer: optax.OptState
    duals: Array  # log temperature, log α
    dual_optimizer: optax.OptState


class Learner(NamedTuple):
    """All that SPO learns, keeps or counts."""

    net: PolicyAndValue
    target: PolicyAndValue
    optimizer: optax.OptState  # Adam's moments, each one flat vector
    duals: Array  # log temperature, log α
    dual_optimizer: optax.OptState
    replay: Replay
    hyper: Hyper
    obs_moments: Moments | None


class Policy(NamedTuple):
    """Only what acting needs of a learner; without environment states to search in, the net alone."""

    net: PolicyAndValue
    obs_moments: Moments | None
    rules: smc.Rules
    dirichlet_fraction: Array
    reward_scale: Array


class Noise(NamedTuple):
    """The randomness of searches (..., as many numbers as particles, depths, actions need)."""

    root: Array
    search: smc.Noise | None  # environment before depth; None where evaluation does not search
    choice: Array  # uniform: which particle is played
    log_gamma: Array | None  # of Dirichlet noise


class Aux(NamedTuple):
    """What a search leaves to learn from, (..., N, ...), and its metrics (..., SEARCH_METRICS)."""

    root_action: PyTree
    weight: Array
    advantage: Array
    metrics: Array


class Kept(NamedTuple):
    """What the buffer keeps of a step; the action that was played is one of the root actions."""

    obs: PyTree
    next_obs: PyTree
    reward: Array
    terminated: Array
    truncated: Array
    mask: Array
    root_action: PyTree
    weight: Array
    advantage: Array


class Lesson(NamedTuple):
    """What a gradient step is to bring the nets to, time first."""

    obs: PyTree
    root_action: PyTree
    weight: Array
    advantage: Array
    old: Distribution  # the target net's policy
    target: Array  # of the value
    share: Array  # of each step in the mean; 0 on masked ones


class SPO(eqx.Module):
    """The agent: the environment it searches in, static sizes and switches, a fresh learner's numbers."""

    hyper: Hyper
    env: Env
    network: NetworkSpec = eqx.field(static=True)
    particles: int = eqx.field(static=True)
    depth: int = eqx.field(static=True)
    by_ess: bool = eqx.field(static=True)
    mix_noise: bool = eqx.field(static=True)
    learn_temperature: bool = eqx.field(static=True)
    search_in_evaluation: bool = eqx.field(static=True)
    sequences: int = eqx.field(static=True)  # that the buffer holds
    sequence_length: int = eqx.field(static=True)
    batch_size: int = eqx.field(static=True)
    gradient_steps: int = eqx.field(static=True)
    normalize_observations: bool = eqx.field(static=True)

    def init(self, key: Array) -> Learner:
        """A fresh learner; the target starts equal to its net."""
        net = self.network.make(key, self.env.observation_space, self.env.action_space)
        obs = zeros(self.env.observation_space)
        width = jax.eval_shape(lambda: pack_sequences(self._empty_rollout())[0]).shape[-1]
        return Learner(
            net=net,
            target=jax.tree.map(jnp.copy, net),
            optimizer=_adam().init(ravel_pytree(net)[0]),
            duals=self.hyper.initial_duals,
            dual_optimizer=_adam().init(self.hyper.initial_duals),
            replay=empty(self.sequences, width),
            hyper=self.hyper,
            obs_moments=first_moments(obs) if self.normalize_observations else None,
        )

    def _empty_rollout(self) -> Kept:
        """One sequence of nothing, which shapes the buffer's rows."""
        shape = (self.sequence_length, 1)
        obs = jax.tree.map(jnp.asarray, zeros(self.env.observation_space, shape))
        action = jnp.asarray(zeros(self.env.action_space, (*shape, self.particles)))
        number, flag = jnp.zeros(shape), jnp.zeros(shape, bool)
        each = jnp.zeros((*shape, self.particles))
        return Kept(obs, obs, number, flag, flag, flag, action, each, each)

    def noise(self, learner: Learner | None, key: Array, shape: tuple[int, ...]) -> Noise:
        """The randomness of `shape` searches, drawn in one call; without a learner, of evaluation."""
        root, action, step, resample, choice, gamma = jax.random.split(key, 6)
        if learner is None and not self.search_in_evaluation:
            return Noise(self._action_noise(root, (*shape, 1)), None, jnp.zeros(shape), None)
        copies = (*shape, self.depth, self.particles)
        log_gamma = None
        if self.mix_noise:
            space = self.env.action_space
            assert not isinstance(space, Box)  # checked when the agent was made
            alpha = (self.hyper if learner is None else learner.hyper).dirichlet_alpha
            log_gamma = jax.random.loggamma(gamma, alpha, (*shape, *space.shape, space.n))
        return Noise(
            root=self._root_noise(root, shape),
            search=smc.Noise(
                action=self._action_noise(action, copies),
                step=jax.random.split(step, copies),
                resample=jax.random.uniform(resample, copies),
            ),
            choice=jax.random.uniform(choice, shape),
            log_gamma=log_gamma,
        )

    def _root_noise(self, key: Array, shape: tuple[int, ...]) -> Array:
        space = self.env.action_space
        if not isinstance(space, Discrete):
            return self._action_noise(key, (*shape, self.particles))
        # Evenly spaced from one random start: each action is drawn N·π times, give or take less than one.
        start = jax.random.uniform(key, (*shape, 1))
        rank = jax.lax.broadcasted_iota(jnp.float32, (*shape, self.particles), len(shape))
        return (rank + start) / self.particles

    def _action_noise(self, key: Array, shape: tuple[int, ...]) -> Array:
        space = self.env.action_space
        draw = jax.random.normal if isinstance(space, Box) else jax.random.uniform
        return draw(key, (*shape, *space.shape))

    def explore(
        self, learner: Learner | Policy, view: View, noise: Noise
    ) -> tuple[PyTree, Aux | None]:
        """A root action of each search by its weight, and what the search found; else one of the policy."""
        policy = self.policy(learner)
        if noise.search is None:
            prior = policy.net.policy(seen(policy.obs_moments, view.obs))
            return self._draw(prior, noise.root[:, 0]), None
        found = self._search(policy, view, noise, noise.search)
        chosen = smc.pick(found.weight, noise.choice)
        metrics = jnp.stack([found.metrics[name] for name in SEARCH_METRICS], axis=-1)
        aux = Aux(found.root_action, found.weight, found.advantage, metrics)
        return _particle(found.root_action, chosen), aux

    def exploit(self, learner: Learner | Policy, view: View) -> PyTree:
        """The heaviest root action of a search; without environments to search in, the policy's mode.

        The noise of such a search is a function of the observation: the same each time, whichever other
        environments there are. The same for all observations would favour the same actions everywhere.
        """
        policy = self.policy(learner)
        if view.env_state is None or not self.search_in_evaluation:
            return policy.net.policy(seen(policy.obs_moments, view.obs)).mode()
        keys = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.key(0), fingerprint(view.obs))
        noise = jax.vmap(lambda key: self.noise(None, key, ()))(keys)
        assert noise.search is not None
        found = self._search(policy, view, noise._replace(log_gamma=None), noise.search)
        return _particle(found.root_action, smc.heaviest(found.root_action, found.weight))

    def policy(self, learner: Learner | Policy) -> Policy:
        """The learner's policy, to be handed to `explore` and `exploit` in its stead."""
        if isinstance(learner, Policy):
            return learner
        hyper = learner.hyper
        learnt = mpo.dual(learner.duals[0])
        rules = smc.Rules(
            gamma=hyper.search_gamma,
            lam=hyper.search_lambda,
            temperature=learnt if self.learn_temperature else hyper.temperature,
            resample_period=hyper.resample_period,
            ess_threshold=hyper.ess_threshold,
        )
        fraction, scale = hyper.dirichlet_fraction, hyper.reward_scale
        return Policy(learner.net, learner.obs_moments, rules, fraction, scale)

    def _search(self, policy: Policy, view: View, noise: Noise, depths: smc.Noise) -> smc.Found:
        """Searches from every environment's state; each depth is one pass of actor and critic."""
        prior, value = policy.net(seen(policy.obs_moments, view.obs))
        prior = jax.tree.map(lambda leaf: leaf[:, None], prior)  # one for all particles
        mixed = None
        if noise.log_gamma is not None:
            logits, log_gamma = prior.logits, noise.log_gamma[:, None]  # type: ignore[union-attr]
            mixed = smc.mix_dirichlet(logits, log_gamma, policy.dirichlet_fraction)
        root_action = self._draw(prior, noise.root, mixed)

        def step(state: PyTree, action: PyTree, key: Array):
            state, result = jax.vmap(jax.vmap(self.env.step))(state, action, key)
            return state, result._replace(reward=policy.reward_scale * result.reward)

        def predict(obs: PyTree, noise: Array) -> tuple[PyTree, Array]:
            distribution, value = policy.net(seen(policy.obs_moments, obs))
            return self._draw(distribution, noise), value

        root = smc.first_particles(view.env_state, root_action, value)
        by_depth = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 1, 0), depths)
        return smc.search(smc.Model(step, predict), root, by_depth, policy.rules, self.by_ess)

    def _draw(
        self, distribution: Distribution, noise: Array, probability: Array | None = None
    ) -> PyTree:
        """Actions by the noise; of discrete ones one uniform number draws among all that are valid."""
        if isinstance(self.env.action_space, Box):
            return distribution.sample(noise)
        if probability is None:
            probability = jnp.exp(distribution.logits)  # type: ignore[union-attr]
        return smc.pick(probability, noise)

    def update(
        self, learner: Learner, rollout: Transition, key: Array
    ) -> tuple[Learner, dict[str, Array]]:
        """The learner with the rollout's sequences in its buffer and some gradient steps later."""
        rows, unpack = pack_sequences(kept_of(rollout))
        replay = add(learner.replay, rows, jnp.any(rollout.mask, axis=0))
        ready = replay.size >= self.batch_size
        flat, unravel = ravel_pytree(learner.net)
        target = ravel_pytree(learner.target)[0]

        def learn(before: tuple[Nets, Array], given) -> tuple[Nets, Array]:
            replay, hyper, moments, keys = given

            def step(nets: Nets, key: Array) -> tuple[Nets, Array]:
                batch = unpack(sample(replay, key, self.batch_size))
                lesson = prepare(batch, unravel(nets.target), hyper, moments)
                return self._gradient_step(nets, hyper, lesson, unravel)

            nets, means = jax.lax.scan(step, before[0], keys)
            return nets, jnp.mean(means, axis=0)

        nets = Nets(flat, target, learner.optimizer, learner.duals, learner.dual_optimizer)
        keys = jax.random.split(key, self.gradient_steps)
        given = (replay, learner.hyper, learner.obs_moments, keys)
        nets, means = when(ready, learn, (nets, jnp.zeros(len(METRICS))), given)
        temperature = self.policy(learner).rules.temperature
        learner = learner._replace(
            net=unravel(nets.net),
            target=unravel(nets.target),
            optimizer=nets.optimizer,
            duals=nets.duals,
            dual_optimizer=nets.dual_optimizer,
            replay=replay,
        )
        # After the update, so that a rollout's searches and its lessons see the same statistics.
        if learner.obs_moments is not None:
            moments = add_samples(learner.obs_moments, rollout.obs, rollout.mask)
            learner = learner._replace(obs_moments=moments)
        seen_in_search = jnp.mean(rollout.aux.metrics, axis=(0, 1))
        metrics = dict(zip(METRICS, means, strict=True))
        metrics |= {f"search/{name}": seen_in_search[i] for i, name in enumerate(SEARCH_METRICS)}
        return learner, metrics | {
            "search/temperature": temperature,  # of the searches, before this update's steps
            "train/alpha": mpo.dual(nets.duals[1]),
            "buffer/size": (replay.size * self.sequence_length).astype(jnp.float32),
        }

    def _gradient_step(self, nets: Nets, hyper: Hyper, lesson: Lesson, unravel):
        """One step of the nets and one of the duals, the target moved; also the means of METRICS."""

        def loss_of(flat: Array, duals: Array) -> tuple[Array, Array]:
            return self._loss(unravel(flat), duals, hyper, lesson)

        (_, means), (gradient, dual_gradient) = jax.value_and_grad(
            loss_of, argnums=(0, 1), has_aux=True
        )(nets.net, nets.duals)
        norm = jnp.linalg.norm(gradient)
        gradient = gradient * jnp.minimum(1.0, hyper.max_grad_norm / (norm + 1e-8))
        direction, optimizer = _adam().update(gradient, nets.optimizer)
        net = nets.net - hyper.learning_rate * direction
        direction, dual_optimizer = _adam().update(dual_gradient, nets.dual_optimizer)
        duals = nets.duals - hyper.dual_learning_rate * direction
        nets = Nets(
            net=net,
            target=nets.target + hyper.tau * (net - nets.target),
            optimizer=optimizer,
            duals=jnp.maximum(duals, mpo.LOWEST_LOG_DUAL),
            dual_optimizer=dual_optimizer,
        )
        return nets, jnp.append(means, norm)

    def _loss(
        self, net: PolicyAndValue, duals: Array, hyper: Hyper, lesson: Lesson
    ) -> tuple[Array, Array]:
        """The loss of nets and duals, and it together with its parts, as METRICS names them."""
        distribution, value = net(lesson.obs)
        kl = mpo.kl(lesson.old, distribution)
        temperature, alpha = mpo.dual(duals[0]), mpo.dual(duals[1])
        log_prob = particle_log_prob(distribution, lesson.root_action)
        per_element = (
            mpo.weighted_cross_entropy(log_prob, lesson.weight),
            0.5 * value_error(value, lesson.target),
            mpo.temperature_loss(lesson.advantage, temperature, hyper.epsilon),
            mpo.alpha_loss(kl, alpha, hyper.policy_epsilon),
            kl,
            distribution.entropy(),
            value,
        )
        means = jnp.stack(per_element).reshape(len(per_element), -1) @ lesson.share.ravel()
        trust = jax.lax.stop_gradient(alpha) * means[4]
        loss = means[0] + trust + hyper.value_coef * means[1] + means[2] + means[3]
        return loss, jnp.concatenate([loss[None], means])


def spo(config: SPOConfig, problem: Problem) -> SPO:
    """The agent for the settings, or an error in words where it cannot search there."""
    check_network(problem, config.normalize_observations)
    env = searchable(problem)
    if isinstance(env.action_space, Box) and config.dirichlet_fraction > 0:
        raise ProximaError(
            "algorithm.dirichlet_fraction: Dirichlet noise is over a choice of actions, and these are "
            "continuous; set it to 0"
        )
    duals = [config.initial_log_temperature, config.initial_log_alpha]
    return SPO(
        hyper=make_hyper(Hyper, config, initial_duals=jnp.asarray(duals, jnp.float32)),
        env=env,
        network=problem.network,
        particles=config.particles,
        depth=config.depth,
        by_ess=config.resampling == "ess",
        mix_noise=config.dirichlet_fraction > 0,
        learn_temperature=config.temperature is None,
        # An env that foresees may be searched to learn from what is to come, but not to play by it.
        search_in_evaluation=config.search_in_evaluation and not problem.foresees,
        sequences=config.buffer_size // config.sequence_length,
        sequence_length=config.sequence_length,
        batch_size=config.batch_size,
        gradient_steps=config.gradient_steps,
        normalize_observations=config.normalize_observations,
    )


def searchable(problem: Problem) -> Env:
    """The environment whose states search copies, or an error in words on the host, which has none."""
    if problem.env is None:
        raise ProximaError(
            f"algorithm.name: spo searches copies of the environment's state, and {problem.env_name} "
            f"on {problem.backend} has none to copy; use a compiled environment "
            "(env.backend: gymnax) or ppo"
        )
    return problem.env


def fingerprint(obs: PyTree) -> Array:
    """A number (B,) for each observation (B, ...), another for almost any other observation."""
    packed = pack_rows(obs, 1)[0]
    bits = jax.lax.bitcast_convert_type(packed, jnp.uint32)
    # Odd factors that differ from place to place: no bit is lost, and places do not cancel out.
    places = 2 * jax.lax.broadcasted_iota(jnp.uint32, bits.shape, 1) + 1
    mixed = (bits ^ (bits >> 15)) * (places * jnp.uint32(0x9E3779B1))
    return jnp.sum(mixed ^ (mixed >> 13), axis=-1, dtype=jnp.uint32)


def kept_of(rollout: Transition) -> Kept:
    """What the buffer keeps of a rollout."""
    aux: Aux = rollout.aux
    return Kept(
        obs=rollout.obs,
        next_obs=rollout.next_obs,
        reward=rollout.reward,
        terminated=rollout.terminated,
        truncated=rollout.truncated,
        mask=rollout.mask,
        root_action=aux.root_action,
        weight=aux.weight,
        advantage=aux.advantage,
    )


def pack_sequences(kept: Kept):
    """Steps (T, B, ...) as rows (B, columns), one per environment, and the way back to (T, rows, ...)."""
    by_env = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), kept)
    narrow, widen = pack_flags(by_env, 2)
    rows, unpack = pack_rows(narrow, 1)

    def restore(rows: Array) -> Kept:
        return jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), widen(unpack(rows)))

    return rows, restore


def prepare(batch: Kept, target: PolicyAndValue, hyper: Hyper, moments: Moments | None) -> Lesson:
    """Sequences (T, batch, ...) with the target net's policy and the value targets it gives."""
    obs = seen(moments, batch.obs)
    old, value = target(obs)
    next_value = target.value(seen(moments, batch.next_obs))
    reward = hyper.reward_scale * batch.reward
    endings = (batch.terminated, batch.truncated)
    advantage = gae(reward, value, next_value, *endings, hyper.gamma, hyper.gae_lambda)
    mask = batch.mask.astype(jnp.float32)
    return Lesson(
        obs=obs,
        root_action=batch.root_action,
        weight=batch.weight,
        advantage=batch.advantage,
        old=old,
        target=advantage + value,
        share=mask / jnp.maximum(jnp.sum(mask), 1.0),
    )


def particle_log_prob(distribution: Distribution, action: PyTree) -> Array:
    """log π of every particle's root action (T, B, N, ...) by the step's distribution (T, B, ...)."""
    spread = jax.tree.map(lambda leaf: leaf[:, :, None], distribution)
    return spread.log_prob(action)


def _particle(root_action: PyTree, chosen: Array) -> PyTree:
    """The chosen particle's (B,) root action."""
    return jax.tree.map(lambda leaf: leaf[:, 0], smc.take(root_action, chosen[:, None]))


def _adam() -> optax.GradientTransformation:
    return optax.scale_by_adam(eps=ADAM_EPS)


def checks(scenario: Any) -> Iterator[Fault]:
    """A buffer too small for a batch of sequences, or for the sequences of one update."""
    config: SPOConfig = scenario.algorithm
    length, batch, envs = config.sequence_length, config.batch_size, scenario.env.num_envs
    buffer, sequence = ("algorithm", "buffer_size"), ("algorithm", "sequence_length")
    of_length = f"sequences of algorithm.sequence_length ({length}) steps"
    if config.buffer_size < batch * length:
        yield Fault(
            (buffer, ("algorithm", "batch_size"), sequence),
            f"{config.buffer_size} steps cannot fill a batch of algorithm.batch_size ({batch}) "
            f"{of_length}; take at least {batch * length}",
        )
    if config.buffer_size < envs * length:
        yield Fault(
            (buffer, ("env", "num_envs"), sequence),
            f"{config.buffer_size} steps cannot hold one update: env.num_envs ({envs}) "
            f"{of_length}; take at least {envs * length}",
        )


ALGORITHM = Algorithm(
    config=SPOConfig,
    make=spo,
    rollout_steps=lambda config, num_envs: config.sequence_length,
    checks=checks,
    panels=(
        Panel("loss/policy", "policy loss"),
        Panel("loss/value", "value loss"),
        Panel("train/kl", "KL from the target (nats)"),
        Panel("train/entropy", "entropy (nats)"),
        Panel("search/temperature", "search temperature"),
        Panel("train/alpha", "trust region's strength α"),
        Panel("search/effective_sample_size", "effective sample size"),
        Panel("train/grad_norm", "gradient norm"),
    ),
    acting="search",
)

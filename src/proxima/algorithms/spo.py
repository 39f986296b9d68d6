"""Sequential Monte Carlo policy optimisation (SPO, Macfarlane et al. 2024, arXiv 2402.07963).

    repeat:  T steps of B environments; at every step N particles search copies of the environment:
                 play a root action ~ its weight, keep all root actions, weights and advantages
             keep the T steps of an environment as one sequence in the ring
             gradient_steps times:  draw sequences; the target net gives V̄ and π̄, GAE the value targets
                 actor       −Σ w log π(a) + α KL(π̄ ‖ π)      the search's answer, within a trust region
                 critic      ½ (V − target)²
                 temperature η (ε + log mean exp(A / η))       how sharply search weighs
                 α           α (ε_policy − KL)                 how strong the trust region is
                 one Adam step of the nets and one of the two duals; the target moves by τ towards its net

The search itself is in spo_search.py and core/smc.py. Left out on purpose: a learnt model (search steps the
environment itself, so it must be compiled), and priorities in the ring. docs/algorithms/spo.md explains
every detail. Numbers are leaves of the learner: changing one compiles nothing.
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

from proxima.algorithms.spo_search import Noise, Policy, Search
from proxima.core import mpo, smc
from proxima.core.adam import adam_step
from proxima.core.algorithm import Algorithm, Panel, Problem
from proxima.core.branch import steps_when
from proxima.core.distributions import Distribution
from proxima.core.errors import ProximaError
from proxima.core.faults import Fault
from proxima.core.hyper import make_hyper, without_numbers
from proxima.core.losses import value_error
from proxima.core.network import NetworkSpec, PolicyAndValue
from proxima.core.normalize import Moments, add_samples, first_moments, normalize
from proxima.core.parallel import masked_mean, shares
from proxima.core.replay import Replay, add, empty, pack_sequences, sample
from proxima.core.returns import gae
from proxima.core.spaces import Box, zeros
from proxima.core.trees import blank, fingerprint
from proxima.core.types import Acted, PyTree, Transition, View
from proxima.nets.network import check_network

# The metrics of a gradient step, in the order in which `_loss` and `_gradient_step` stack them.
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
ADAM = optax.scale_by_adam(eps=1e-5)  # openai/baselines ppo2; Optax's own default is 1e-8


@dataclass(frozen=True, kw_only=True)
class SPOConfig:
    """SPO's settings; all but the sizes and the switches are numbers a running program can change."""

    name: Literal["spo"]
    """The algorithm."""
    particles: Annotated[int, Ge(1)] = 16
    """Copies of an environment that search at once."""
    depth: Annotated[int, Ge(1)] = 4
    """Steps that a particle looks ahead."""
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
    """What gradient steps change; nets and duals are flat vectors."""

    net: Array
    target: Array
    optimizer: optax.OptState
    duals: Array  # log temperature, log α
    dual_optimizer: optax.OptState


class Learner(NamedTuple):
    """All that SPO learns or stores."""

    net: PolicyAndValue
    target: PolicyAndValue
    optimizer: optax.OptState  # Adam's moments, each one flat vector
    duals: Array  # log temperature, log α
    dual_optimizer: optax.OptState
    replay: Replay
    hyper: Hyper
    obs_moments: Moments | None


class Aux(NamedTuple):
    """The result of a search, (..., N, ...), to learn from, and its metrics (..., SEARCH_METRICS)."""

    root_action: PyTree  # raw, of which the environment gets `to_action`
    weight: Array
    advantage: Array
    metrics: Array


class StoredStep(NamedTuple):
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


class Batch(NamedTuple):
    """What a gradient step needs of sequences, time first."""

    obs: PyTree
    root_action: PyTree
    weight: Array
    advantage: Array
    old: Distribution  # the target net's policy
    target: Array  # of the value
    share: Array  # of a step in the mean; 0 on masked ones


class SPO(eqx.Module):
    """The agent: its search, static sizes and switches, and the numbers a fresh learner starts with."""

    hyper: Hyper
    search: Search
    config: SPOConfig = eqx.field(static=True)  # without its numbers
    network: NetworkSpec = eqx.field(static=True)
    search_in_evaluation: bool = eqx.field(static=True)

    def init(self, key: Array) -> Learner:
        """A fresh learner; the target starts equal to its net."""
        env = self.search.env
        net = self.network.make(key, env.observation_space, env.action_space)
        obs, config = zeros(env.observation_space), self.config
        sequences = config.buffer_size // config.sequence_length
        return Learner(
            net=net,
            target=jax.tree.map(jnp.copy, net),
            optimizer=ADAM.init(ravel_pytree(net)[0]),
            duals=self.hyper.initial_duals,
            dual_optimizer=ADAM.init(self.hyper.initial_duals),
            replay=empty(sequences, self._empty_rollout(), pack_sequences),
            hyper=self.hyper,
            obs_moments=first_moments(obs) if config.normalize_observations else None,
        )

    def _empty_rollout(self) -> StoredStep:
        """One sequence of zeros, which shapes the buffer's rows."""
        env, shape = self.search.env, (self.config.sequence_length, 1)
        copies = (*shape, self.search.particles)
        obs = jax.tree.map(jnp.asarray, zeros(env.observation_space, shape))
        action = jnp.asarray(zeros(env.action_space, copies))
        number, flag, per_particle = jnp.zeros(shape), jnp.zeros(shape, bool), jnp.zeros(copies)
        return StoredStep(obs, obs, number, flag, flag, flag, action, per_particle, per_particle)

    def noise(self, learner: Learner | None, key: Array, shape: tuple[int, ...]) -> Noise:
        """The randomness of `shape` searches, drawn in one call; without a learner, of evaluation."""
        hyper = self.hyper if learner is None else learner.hyper
        searching = learner is not None or self.search_in_evaluation
        return self.search.noise(key, shape, hyper.dirichlet_alpha, searching)

    def memory(self, num_envs: int) -> None:
        """Nothing is remembered."""

    def explore(self, learner: Learner | Policy, view: View, noise: Noise) -> Acted:
        """A root action drawn by its weight, and the search's result; without search, one of the policy."""
        policy = self.policy(learner)
        if noise.search is None:
            prior = policy.net.policy(normalize(policy.obs_moments, view.obs))
            return Acted(prior.to_action(self.search.draw(prior, noise.root[:, 0])))
        result, action = self.search(policy, view, noise, noise.search)
        chosen = smc.pick(result.weight, noise.choice)
        metrics = jnp.stack([result.metrics[name] for name in SEARCH_METRICS], axis=-1)
        aux = Aux(result.root_action, result.weight, result.advantage, metrics)
        return Acted(smc.take_one(action, chosen), aux)

    def exploit(self, learner: Learner | Policy, view: View) -> Acted:
        """The root action of most weight; without environment states to search in, the policy's mode.

        The noise of such a search is a function of the observation: the same every time, whichever other
        environments are in the batch. One noise for all observations would favour the same actions
        everywhere.
        """
        policy = self.policy(learner)
        if view.env_state is None or not self.search_in_evaluation:
            prior = policy.net.policy(normalize(policy.obs_moments, view.obs))
            return Acted(prior.to_action(prior.mode()))
        keys = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.key(0), fingerprint(view.obs))
        noise = jax.vmap(lambda key: self.noise(None, key, ()))(keys)
        assert noise.search is not None
        result, action = self.search(policy, view, noise._replace(log_gamma=None), noise.search)
        return Acted(smc.take_one(action, smc.heaviest(action, result.weight)))

    def policy(self, learner: Learner | Policy) -> Policy:
        """The learner's policy, which `explore` and `exploit` take in its place."""
        if isinstance(learner, Policy):
            return learner
        hyper = learner.hyper
        learnt = self.config.temperature is None
        rules = smc.Rules(
            gamma=hyper.search_gamma,
            lam=hyper.search_lambda,
            temperature=mpo.dual(learner.duals[0]) if learnt else hyper.temperature,
            resample_period=hyper.resample_period,
            ess_threshold=hyper.ess_threshold,
        )
        fraction, scale = hyper.dirichlet_fraction, hyper.reward_scale
        return Policy(learner.net, learner.obs_moments, rules, fraction, scale)

    def update(
        self, learner: Learner, rollout: Transition, key: Array
    ) -> tuple[Learner, dict[str, Array]]:
        """The learner with the rollout in its buffer, after its gradient steps; and their mean metrics."""
        config, hyper = self.config, learner.hyper
        rollout = blank(rollout.mask, rollout)
        rows, unpack = pack_sequences(stored_steps(rollout))
        replay = add(learner.replay, rows, jnp.any(rollout.mask, axis=0))
        flat, unravel = ravel_pytree(learner.net)

        def step(nets: Nets, key: Array, inputs: PyTree) -> tuple[Nets, Array]:
            replay, hyper, moments = inputs
            steps = unpack(sample(replay, key, config.batch_size))
            batch = make_batch(steps, unravel(nets.target), hyper, moments)
            return self._gradient_step(nets, hyper, batch, unravel)

        target = ravel_pytree(learner.target)[0]
        nets = Nets(flat, target, learner.optimizer, learner.duals, learner.dual_optimizer)
        keys = jax.random.split(key, config.gradient_steps)
        inputs = (replay, hyper, learner.obs_moments)
        ready = replay.size >= config.batch_size
        nets, metrics = steps_when(ready, step, nets, keys, inputs, METRICS)
        search_means = masked_mean(rollout.aux.metrics, rollout.mask)
        metrics |= {f"search/{name}": search_means[i] for i, name in enumerate(SEARCH_METRICS)}
        metrics |= {
            "search/temperature": self.policy(learner).rules.temperature,  # before these steps
            "train/alpha": mpo.dual(nets.duals[1]),
            "buffer/size": (replay.size * config.sequence_length).astype(jnp.float32),
        }
        # After the update: searches and losses of one rollout must see the same statistics.
        moments = add_samples(learner.obs_moments, rollout.obs, rollout.mask)
        trained = nets._asdict() | {"net": unravel(nets.net), "target": unravel(nets.target)}
        return learner._replace(**trained, replay=replay, obs_moments=moments), metrics

    def _gradient_step(self, nets: Nets, hyper: Hyper, batch: Batch, unravel):
        """The nets after one Adam step of theirs and one of the duals, and the means of METRICS."""

        def loss_of(flat: Array, duals: Array) -> tuple[Array, Array]:
            return self._loss(unravel(flat), duals, hyper, batch)

        differentiate = jax.value_and_grad(loss_of, argnums=(0, 1), has_aux=True)
        (_, means), (gradient, dual_gradient) = differentiate(nets.net, nets.duals)
        before, rate = (nets.net, nets.optimizer), hyper.learning_rate
        (net, optimizer), norm = adam_step(ADAM, before, gradient, rate, hyper.max_grad_norm)
        direction, dual_optimizer = ADAM.update(dual_gradient, nets.dual_optimizer)
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
        self, net: PolicyAndValue, duals: Array, hyper: Hyper, batch: Batch
    ) -> tuple[Array, Array]:
        """The loss of nets and duals, and a vector of the loss and its parts in the order of METRICS."""
        distribution, value = net(batch.obs)
        kl = mpo.kl(batch.old, distribution)
        temperature, alpha = mpo.dual(duals[0]), mpo.dual(duals[1])
        spread = jax.tree.map(lambda leaf: leaf[:, :, None], distribution)  # over the particles
        per_element = (
            mpo.weighted_cross_entropy(spread.log_prob(batch.root_action), batch.weight),
            0.5 * value_error(value, batch.target),
            mpo.temperature_loss(batch.advantage, temperature, hyper.epsilon),
            mpo.alpha_loss(kl, alpha, hyper.policy_epsilon),
            kl,
            distribution.entropy(),
            value,
        )
        means = jnp.stack(per_element).reshape(len(per_element), -1) @ batch.share.ravel()
        trust = jax.lax.stop_gradient(alpha) * means[4]
        loss = means[0] + trust + hyper.value_coef * means[1] + means[2] + means[3]
        return loss, jnp.concatenate([loss[None], means])


def spo(config: SPOConfig, problem: Problem) -> SPO:
    """The agent for the settings, or an error in words where it cannot search there."""
    check_network(problem, config.normalize_observations)
    env = problem.env
    if env is None:
        raise ProximaError(
            f"algorithm.name: spo searches copies of the environment's state, and {problem.env_name} "
            f"on {problem.backend} has none to copy; use a compiled environment "
            "(env.backend: gymnax) or ppo"
        )
    if isinstance(env.action_space, Box) and config.dirichlet_fraction > 0:
        raise ProximaError(
            "algorithm.dirichlet_fraction: Dirichlet noise is over a choice of actions, and these are "
            "continuous; set it to 0"
        )
    duals = [config.initial_log_temperature, config.initial_log_alpha]
    return SPO(
        hyper=make_hyper(Hyper, config, initial_duals=jnp.asarray(duals, jnp.float32)),
        search=Search(
            env=env,
            particles=config.particles,
            depth=config.depth,
            by_ess=config.resampling == "ess",
            mix_noise=config.dirichlet_fraction > 0,
        ),
        config=without_numbers(config, Hyper, "max_grad_norm"),
        network=problem.network,
        # An env that foresees may be searched to learn from what is to come, but not to play by it.
        search_in_evaluation=config.search_in_evaluation and not problem.foresees,
    )


def stored_steps(rollout: Transition) -> StoredStep:
    """What the buffer keeps of a rollout."""
    endings = (rollout.terminated, rollout.truncated)
    searched = rollout.aux.root_action, rollout.aux.weight, rollout.aux.advantage
    return StoredStep(
        rollout.obs, rollout.next_obs, rollout.reward, *endings, rollout.mask, *searched
    )


def make_batch(
    steps: StoredStep, target: PolicyAndValue, hyper: Hyper, moments: Moments | None
) -> Batch:
    """Sequences (T, batch, ...) with the target net's policy and the value targets that follow from it."""
    obs = normalize(moments, steps.obs)
    old, value = target(obs)
    next_value = target.value(normalize(moments, steps.next_obs))
    reward = hyper.reward_scale * steps.reward
    endings = (steps.terminated, steps.truncated)
    advantage = gae(reward, value, next_value, *endings, hyper.gamma, hyper.gae_lambda)
    share = shares(steps.mask.astype(jnp.float32).ravel())
    return Batch(
        obs=obs,
        root_action=steps.root_action,
        weight=steps.weight,
        advantage=steps.advantage,
        old=old,
        target=advantage + value,
        share=share.reshape(steps.mask.shape),
    )


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

"""Episodes of compiled environments: evaluation, recording, and sums over those that a rollout ends."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import PartitionSpec as P

from proxima.core.seeds import evaluation_keys
from proxima.core.spaces import Box, Space, action_mask, valid_choices
from proxima.core.trees import with_own
from proxima.core.types import Acted, Agent, Env, PyTree, Step, Transition, View
from proxima.train.devices import TRIAL, Layout, learner_specs, on_devices, over_trials
from proxima.train.program import RECORDED_STEPS, Evaluation, Policy, Recording

Choose = Callable[[View], PyTree]  # a rule: a batch of views → actions
Measured = tuple[Array, Array]  # returns and lengths of episodes


def evaluator(
    agent: Agent, env: Env, layout: Layout, experiment_seed: int
) -> Callable[..., Evaluation]:
    """The function that plays learners' evaluation episodes: the same ones for every learner and policy.

    `own` has what trials do not share of agent and environment.
    """

    def evaluate(learners: PyTree, policy: Policy, episodes: int, own: PyTree = None) -> Evaluation:
        keys = evaluation_keys(jnp.uint32(experiment_seed), episodes)
        played = _evaluate(layout, agent, env, learners, keys, policy, own)
        return Evaluation(*jax.device_get(played))

    return evaluate


def recorder(
    agent: Agent, env: Env, experiment_seed: int, steps: int = RECORDED_STEPS
) -> Callable[[PyTree], Recording]:
    """The function that plays the first evaluation episode greedily, `steps` steps of it at most."""
    record = policy_recorder(agent, env, experiment_seed, steps)
    return lambda learner: record(agent.policy(learner))


def policy_recorder(
    agent: Agent, env: Env, experiment_seed: int, steps: int
) -> Callable[[PyTree], Recording]:
    """The same of a learner's policy; both are one compiled program."""

    def record(policy: PyTree) -> Recording:
        key = evaluation_keys(jnp.uint32(experiment_seed), 1)[0]
        *rows, alive = jax.device_get(_record(agent, env, policy, key, steps))
        return Recording(*jax.tree.map(lambda row: row[: int(alive.sum())], rows))

    return record


@partial(jax.jit, static_argnames=("layout", "policy"))
def _evaluate(
    layout: Layout,
    agent: Agent,
    env: Env,
    learners: PyTree,
    keys: Array,
    policy: Policy,
    own: PyTree = None,
) -> Measured:
    """Returns and lengths, (trials, episodes), each device measuring its own trials."""

    def on_one_device(shared: PyTree, own: PyTree, learners: PyTree, keys: Array) -> Measured:
        def one(lane: tuple[PyTree, PyTree]) -> Measured:
            own, learner = lane
            agent, env = with_own(shared, own)
            act = partial(_act, agent, env.action_space, learner, policy)
            return _episodes(act, env, keys, agent.memory(len(keys)))

        measured: Measured = over_trials(one, (own, learners))
        return measured

    in_specs = (P(), P(TRIAL), learner_specs(learners), P())
    sharded = on_devices(layout, on_one_device, in_specs, P(TRIAL))
    return sharded((agent, env), own, learners, keys)


def play(choose: Choose, env: Env, experiment_seed: int, episodes: int) -> Evaluation:
    """What a fixed rule gets on the evaluation episodes, as one trial."""
    keys = evaluation_keys(jnp.uint32(experiment_seed), episodes)
    return Evaluation(*(rows[None] for rows in jax.device_get(_play(choose, env, keys))))


@partial(jax.jit, static_argnames="choose")
def _play(choose: Choose, env: Env, keys: Array) -> Measured:
    return _episodes(lambda view, _: Acted(choose(view)), env, keys, None)


def _episodes(
    act: Callable[[View, Array], Acted], env: Env, keys: Array, memory: PyTree
) -> Measured:
    """Returns and lengths: each key is one episode, so that short ones count no more than long ones."""
    reset_keys, step_keys = jax.vmap(jax.random.split, out_axes=1)(keys)
    env_state, obs = jax.vmap(env.reset)(reset_keys)
    zeros = jnp.zeros(len(keys))
    start = (jnp.int32(0), env_state, obs, memory, zeros, zeros, jnp.ones(len(keys), bool))

    def step(carry: PyTree) -> PyTree:
        time, env_state, obs, memory, returns, lengths, alive = carry
        now = jax.vmap(jax.random.fold_in, (0, None))(step_keys, time)
        act_keys, env_keys = jax.vmap(jax.random.split, out_axes=1)(now)
        action, _, memory = act(View(obs, env_state, memory), act_keys)
        next_state, result = jax.vmap(env.step)(env_state, action, env_keys)
        returns = returns + jnp.where(alive, result.reward, 0.0)
        ended = result.terminated | result.truncated
        after = (time + 1, next_state, result.obs, memory)
        return *after, returns, lengths + alive, alive & ~ended

    *_, returns, lengths, _ = jax.lax.while_loop(lambda carry: jnp.any(carry[-1]), step, start)
    return returns, lengths


def _act(
    agent: Agent, space: Space, learner: PyTree, policy: Policy, view: View, keys: Array
) -> Acted:
    if policy == "greedy":
        return agent.exploit(learner, view)
    if policy == "random":
        actions = jax.vmap(partial(random_action, space))(keys, action_mask(view.obs))
        return Acted(actions, memory=view.memory)
    noise = jax.vmap(lambda key: agent.noise(None, key, ()))(keys)
    return agent.explore(learner, view, noise)


def random_action(space: Space, key: Array, mask: Array | None = None) -> Array:
    """A uniform valid action; where a bound is infinite, a standard normal one."""
    mask = valid_choices(space, mask, 0)
    if mask is not None:
        weight = jax.random.uniform(key, mask.shape)
        return jnp.argmax(jnp.where(mask, weight, -1.0), axis=-1).astype(jnp.int32)
    if not isinstance(space, Box):
        return jax.random.randint(key, space.shape, 0, space.n)
    if not space.bounded:
        return jax.random.normal(key, space.shape)
    low, high = (jnp.asarray(bound).reshape(space.shape) for bound in (space.low, space.high))
    return jax.random.uniform(key, space.shape, minval=low, maxval=high)


@jax.jit
def step_once(env: Env, state: PyTree, action: PyTree) -> tuple[PyTree, Step]:
    """One step of an environment that needs no chance, as a program of its own, for bars as they arrive."""
    return env.step(state, action, jax.random.key(0))


@partial(jax.jit, static_argnames="steps")
def _record(agent: Agent, env: Env, learner: PyTree, key: Array, steps: int) -> PyTree:
    """Observations, actions and rewards of one episode, and whether it still went on, (steps, ...)."""
    reset_key, step_key = jax.random.split(key)

    def step(carry: PyTree, key: Array) -> tuple[PyTree, PyTree]:
        env_state, obs, memory, alive = carry
        view = jax.tree.map(lambda leaf: leaf[None], View(obs, env_state))
        action, _, memory = agent.exploit(learner, view._replace(memory=memory))
        action = jax.tree.map(lambda leaf: leaf[0], action)
        env_state, result = env.step(env_state, action, key)
        row = (obs, action, result.reward, alive)
        alive = alive & ~(result.terminated | result.truncated)
        return (env_state, result.obs, memory, alive), row

    start = (*env.reset(reset_key), agent.memory(1), jnp.asarray(True))
    return jax.lax.scan(step, start, jax.random.split(step_key, steps))[1]


def finished_episodes(rollout: Transition, actors: PyTree) -> tuple[PyTree, dict[str, PyTree]]:
    """The actors with what their open episodes carry on, and sums over those that the rollout ends.

    A step counts towards a finished episode when an ending lies at or after it; what the episode had
    before this rollout is the actors' `episode_return` and `episode_length`, (B,).
    """
    real = rollout.mask.astype(jnp.float32)
    ended = (rollout.terminated | rollout.truncated) & rollout.mask
    finishes = jax.lax.cummax(ended.astype(jnp.float32), axis=0, reverse=True)

    def divide(amount: Array, carried: Array) -> tuple[Array, Array]:
        within = jnp.sum(amount * finishes) + jnp.sum(carried * finishes[0])
        after = jnp.sum(amount * (1 - finishes), axis=0) + carried * (1 - finishes[0])
        return within, after

    reward = jnp.where(rollout.mask, rollout.reward, 0.0)
    return_sum, open_return = divide(reward, actors.episode_return)
    length_sum, open_length = divide(real, actors.episode_length)
    episodes = {
        "episode/count": jnp.sum(ended, dtype=jnp.float32),
        "episode/return_sum": return_sum,
        "episode/length_sum": length_sum,
    }
    return actors._replace(episode_return=open_return, episode_length=open_length), episodes

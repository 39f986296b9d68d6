"""Acting in host environments: one compiled call per step chooses for the pools of all trials.

A pool's rows are (trials × B, ...), trial by trial; noise is (trials, B, ...).
"""

import functools
from collections.abc import Callable
from functools import partial

import jax
from jax import Array

from proxima.core.types import Agent, PyTree, View
from proxima.train.compiled.chunk import over_trials

Act = Callable[[PyTree, PyTree], PyTree]  # a pool's observations, noise → what was chosen


def explorer(agent: Agent, policies: PyTree) -> Act:
    """The function that gives exploring actions, and what the algorithm wants back of them."""
    return _acting(_explore, agent, policies)


def exploiter(agent: Agent, policies: PyTree) -> Act:
    """The function that gives greedy actions; it needs no noise."""
    return _acting(_exploit, agent, policies)


def _explore(agent: Agent, policy: PyTree, obs: PyTree, noise: PyTree) -> PyTree:
    return agent.explore(policy, View(obs), noise)


def _exploit(agent: Agent, policy: PyTree, obs: PyTree, noise: PyTree) -> PyTree:
    return agent.exploit(policy, View(obs))


def _acting(choose: Callable, agent: Agent, policies: PyTree) -> Act:
    """The compiled function with the agent and the policies of its learners filled in."""
    leaves, structure = jax.tree.flatten((agent, policies))
    return partial(_compiled(choose, structure), leaves)


@functools.cache
def _compiled(choose: Callable, structure) -> Callable:
    """The compiled function (leaves of agent and policy, obs, noise) → what `choose` gives.

    It takes leaves because flattening modules in Python at every step costs more than the nets do.
    """

    @jax.jit
    def act(leaves: list[Array], obs: PyTree, noise: PyTree) -> PyTree:
        agent, policies = jax.tree.unflatten(structure, leaves)
        trials = jax.tree.leaves(policies)[0].shape[0]
        by_trial = jax.tree.map(lambda rows: rows.reshape(trials, -1, *rows.shape[1:]), obs)
        chosen = over_trials(lambda row: choose(agent, *row), (policies, by_trial, noise))
        return jax.tree.map(lambda rows: rows.reshape(-1, *rows.shape[2:]), chosen)

    return act

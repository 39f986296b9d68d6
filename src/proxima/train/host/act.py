"""Acting in host environments: one compiled call per step chooses for the pools of all trials.

A pool's rows are (trials × B, ...), trial by trial; noise is (trials, B, ...).
"""

import functools
from collections.abc import Callable
from functools import partial

import jax
from jax import Array

from proxima.core.trees import merge_leading
from proxima.core.types import Agent, PyTree, View
from proxima.train.devices import over_trials

Act = Callable[[PyTree, PyTree], PyTree]  # a pool's observations, noise → what was chosen


def chooser(agent: Agent, policies: PyTree, greedy: bool) -> Act:
    """The function that gives greedy actions, or exploring ones and what the algorithm wants back of them."""
    leaves, structure = jax.tree.flatten((agent, policies))
    return partial(_compiled(structure, greedy), leaves)


@functools.cache
def _compiled(structure: jax.tree_util.PyTreeDef, greedy: bool) -> Callable[..., PyTree]:
    """The compiled function (leaves of agent and policies, obs, noise) → what is chosen."""

    # Leaves, because flattening modules in Python at every step costs more than the nets do.
    @jax.jit
    def act(leaves: list[Array], obs: PyTree, noise: PyTree) -> PyTree:
        agent, policies = jax.tree.unflatten(structure, leaves)

        def choose(trial: tuple[PyTree, PyTree, PyTree]) -> PyTree:
            policy, obs, noise = trial
            if greedy:
                return agent.exploit(policy, View(obs))
            return agent.explore(policy, View(obs), noise)

        trials = len(jax.tree.leaves(policies)[0])
        by_trial = jax.tree.map(lambda rows: rows.reshape(trials, -1, *rows.shape[1:]), obs)
        return merge_leading(over_trials(choose, (policies, by_trial, noise)))

    return act

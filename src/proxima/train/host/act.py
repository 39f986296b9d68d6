"""Acting in host environments: one compiled call per step chooses for the pools of all trials.

A pool's rows are (trials × B, ...), trial by trial; noise is (trials, B, ...). What an agent remembers
stays on the device between two calls; rows that begin an episode begin without.
"""

import functools
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from proxima.core.trees import merge_leading, select
from proxima.core.types import Acted, Agent, PyTree, View
from proxima.train.devices import over_trials

# A pool's observations, noise, memory and which rows begin an episode → what was done. Both last ones are
# None where the agent has no memory; None for the rows means none of them.
Act = Callable[[PyTree, PyTree, PyTree, np.ndarray | None], Acted]


def chooser(agent: Agent, policies: PyTree, greedy: bool) -> Act:
    """The function that acts greedily, or explores."""
    leaves, structure = jax.tree.flatten((agent, policies))
    return partial(_compiled(structure, greedy), leaves)


@functools.cache
def _compiled(structure: jax.tree_util.PyTreeDef, greedy: bool) -> Callable[..., Acted]:
    """The compiled function (leaves of agent and policies, and what an `Act` takes) → what was done."""

    # Leaves, because flattening modules in Python at every step costs more than the nets do.
    @jax.jit
    def act(
        leaves: list[Array], obs: PyTree, noise: PyTree, memory: PyTree, begins: Array | None
    ) -> Acted:
        agent, policies = jax.tree.unflatten(structure, leaves)

        def choose(trial: tuple[PyTree, PyTree, PyTree]) -> Acted:
            policy, (obs, memory), noise = trial
            view = View(obs, memory=memory)
            acted: Acted = (
                agent.exploit(policy, view) if greedy else agent.explore(policy, view, noise)
            )
            return acted

        if begins is not None:
            memory = select(begins, jax.tree.map(jnp.zeros_like, memory), memory)
        trials = len(jax.tree.leaves(policies)[0])
        by_trial = jax.tree.map(
            lambda rows: rows.reshape(trials, -1, *rows.shape[1:]), (obs, memory)
        )
        acted: Acted = merge_leading(over_trials(choose, (policies, by_trial, noise)))
        return acted

    return act

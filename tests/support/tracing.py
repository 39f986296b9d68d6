"""What a scenario would compute, traced but not compiled."""

from typing import Any

import jax
import numpy as np
import pytest

from proxima.build import domain_of
from proxima.domains import reinforcement
from proxima.scenario import Scenario
from proxima.train.compiled.program import _init, compiled_program, update_step


def traced_update(scenario: Scenario) -> tuple[Any, Any, dict[str, Any]]:
    """The shapes of a trial's state, of the state after an update, and of its metrics."""
    made = []

    def noted(agent, collector, *rest, **more):
        made.append((agent, collector))
        return compiled_program(agent, collector, *rest, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reinforcement, "compiled_program", noted)
        domain_of(scenario).prepare(scenario).close()
    ((agent, collector),) = made
    states = jax.eval_shape(_init, agent, collector, np.zeros(1, np.uint32))
    state = jax.eval_shape(lambda states: jax.tree.map(lambda leaf: leaf[0], states), states)
    return state, *jax.eval_shape(update_step, agent, collector, state)

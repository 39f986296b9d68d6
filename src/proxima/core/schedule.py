"""Numbers that go in a line from a first to a final value, and the learning rate as one of them."""

from typing import Any

import jax.numpy as jnp
from jax import Array

from proxima.core.algorithm import Problem


def on_line(first: Array, final: Array, updates: Array, total: Array) -> Array:
    """The number after some updates: it goes from `first` to `final` in `total` of them, and stays there."""
    progress = jnp.minimum(updates / total, 1.0)
    change = final - first
    return first + progress * change


def learning_rate(hyper: Any, updates: Array) -> Array:
    """The learning rate of the next update, by the three numbers of `rate_numbers`."""
    return on_line(hyper.learning_rate, hyper.final_learning_rate, updates, hyper.total_updates)


def rate_numbers(config: Any, problem: Problem) -> dict[str, Array]:
    """What the learning rate goes to and in how many updates, for `make_hyper`."""
    final = config.final_learning_rate
    return {
        "final_learning_rate": jnp.float32(config.learning_rate if final is None else final),
        "total_updates": jnp.float32(problem.total_updates or 1),
    }


def rate_over_budget(config: Any) -> tuple[str, ...]:
    """The learning rate, if it changes over the budget."""
    steady = config.final_learning_rate in (None, config.learning_rate)
    return () if steady else ("learning_rate",)

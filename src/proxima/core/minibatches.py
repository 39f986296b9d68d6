"""A batch of environment steps that is divided over environments and into minibatches."""

import math
from collections.abc import Iterator
from typing import Any

from proxima.core.faults import Fault


def size_faults(scenario: Any) -> Iterator[Fault]:
    """A batch that its environments or its minibatches do not divide."""
    config, envs = scenario.algorithm, scenario.env.num_envs
    size, samples = config.batch_size, config.minibatch_size
    step = math.lcm(envs, samples)
    below = size // step * step
    nearest = " or ".join(str(value) for value in (below, below + step) if value)
    parts = (("env", "num_envs", envs), ("algorithm", "minibatch_size", samples))
    for section, name, part in parts:
        if size % part:
            yield Fault(
                (("algorithm", "batch_size"), (section, name)),
                f"{size} is not a multiple of {section}.{name} ({part}); nearest that work: {nearest}",
            )

"""Values: what the critic expects before each token, in one causal pass for the whole batch."""

from typing import final

import jax
import jax.numpy as jnp
from jax import Array

from proxima.domains.language.model import Part, values_before
from proxima.domains.language.samples import Samples
from proxima.nets.transformer import Decoder

_compiled = jax.jit(
    lambda base, part, samples: values_before(base, part, samples.prompts, samples.completions)
)


@final
class ValueAdder:
    """The values of a critic over one base; 0 where there is no critic."""

    def __init__(self, base: Decoder) -> None:
        self.base = base

    def add_values(self, part: Part | None, samples: Samples) -> Array:
        """V at the place before each token of the completions, (B, N), 0 on pads."""
        if part is None:
            return jnp.zeros(samples.completions.ids.shape)
        return _compiled(self.base, part, samples)

"""The step of generation says what the full forward says, for every family, with adapters and pads."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from families import SHAPES, decoder_of, rows_of

from proxima.nets.decoding import (
    apart,
    cached_states,
    caches_apart,
    empty_cache,
    next_states,
)
from proxima.nets.lora import LoraConfig, fresh_adapters
from proxima.nets.transformer import hidden_states, matrices

PROMPT, WIDTH = 3, 6


@pytest.mark.parametrize("with_adapters", [False, True])
@pytest.mark.parametrize("family", SHAPES)
def test_token_by_token_is_the_full_forward(family, with_adapters):
    decoder, rows = decoder_of(family), rows_of([6, 4, 5], WIDTH)
    adapters = None
    if with_adapters:
        fresh = fresh_adapters(jax.random.key(3), LoraConfig(rank=2, alpha=4.0), matrices(decoder))
        adapters = jax.tree.map(lambda leaf: leaf + 0.1, fresh)  # fresh ones change nothing
    full = jax.jit(hidden_states)(decoder, *rows, adapters)

    def generated(decoder, adapters):
        cache = empty_cache(decoder, 3, WIDTH)
        prompts = rows.ids[:, :PROMPT], rows.mask[:, :PROMPT]
        _, cache = cached_states(decoder, *prompts, cache, adapters)
        parts, caches, found = apart(decoder, adapters), caches_apart(cache), []
        for at in range(PROMPT, WIDTH):
            h, caches = next_states(decoder, parts, rows.ids[:, at], rows.mask[:, at], caches)
            found.append(h)
        return jnp.stack(found, axis=1)

    found = jax.jit(generated)(decoder, adapters)
    np.testing.assert_allclose(found, full[:, PROMPT:], atol=2e-5, rtol=0)

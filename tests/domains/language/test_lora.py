"""Low-rank adapters: beside the weights or worked into them, the same model."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from families import SHAPES, decoder_of, rows_of

from proxima.nets.lora import TARGETS, LoraConfig, fresh_adapters
from proxima.nets.transformer import hidden_states, matrices, merge

states = jax.jit(hidden_states)


def moved(decoder, targets=TARGETS):
    """Adapters that have learnt something."""
    config = LoraConfig(rank=3, alpha=5.0, targets=targets)
    fresh = fresh_adapters(jax.random.key(5), config, matrices(decoder))
    return jax.tree.map(lambda leaf: leaf + 0.1, fresh)


@pytest.mark.parametrize("family", list(SHAPES))
def test_merged_is_applied(family):
    decoder, rows = decoder_of(family), rows_of([5, 3], 5)
    adapters = moved(decoder)
    applied = states(decoder, rows.ids, rows.mask, adapters)
    worked_in = states(merge(decoder, adapters), rows.ids, rows.mask)
    np.testing.assert_allclose(worked_in, applied, atol=2e-5, rtol=0)
    plain = states(decoder, rows.ids, rows.mask)
    assert jnp.max(jnp.abs(plain - applied)) > 0.01


def test_fresh_adapters_change_nothing():
    decoder, rows = decoder_of("llama"), rows_of([5, 3], 5)
    fresh = fresh_adapters(jax.random.key(5), LoraConfig(), matrices(decoder))
    plain = states(decoder, rows.ids, rows.mask)
    np.testing.assert_array_equal(states(decoder, rows.ids, rows.mask, fresh), plain)
    assert fresh.q is not None and fresh.gate is None
    assert jnp.any(fresh.q.a != 0)


def test_merging_shares_what_it_does_not_change():
    decoder = decoder_of("llama")
    new = merge(decoder, moved(decoder, ("q", "o")))
    assert new.embedding is decoder.embedding
    assert new.layers.up.weight is decoder.layers.up.weight
    assert new.layers.q.weight is not decoder.layers.q.weight
    assert merge(decoder, None) is decoder


def test_optimizers_see_the_two_factors_only():
    decoder = decoder_of("gpt2")
    fresh = fresh_adapters(jax.random.key(5), LoraConfig(rank=3), matrices(decoder))
    assert len(jax.tree.leaves(fresh)) == 2 * 4
    assert "gate" not in matrices(decoder)

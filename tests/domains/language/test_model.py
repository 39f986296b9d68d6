"""The decoder of each family: rows do not see pads or each other, and the cache changes nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from families import SHAPES, decoder_of, rows_of

from proxima.domains.language.config import NewModelConfig
from proxima.domains.language.model import (
    REFERENCE,
    fresh_part,
    new_model,
    score_completions,
    score_texts,
    values_before,
)
from proxima.domains.language.samples import Rows
from proxima.nets.decoding import cached_states, empty_cache
from proxima.nets.lora import LoraConfig
from proxima.nets.transformer import hidden_states, logits_of

FAMILIES = list(SHAPES)
states = jax.jit(hidden_states, static_argnames="checkpoint")


@pytest.mark.parametrize("family", FAMILIES)
def test_padding_and_batch_mates_change_no_log_prob(family):
    decoder = decoder_of(family)
    prompts, completions = rows_of([3, 5, 1], 6), rows_of([4, 4, 4], 4, seed=1)
    score = jax.jit(score_completions)
    together = score(decoder, REFERENCE, prompts, completions, 0.7).log_probs
    for row, length in enumerate([3, 5, 1]):
        alone = Rows(prompts.ids[row : row + 1, -length:], jnp.ones((1, length), bool))
        own = Rows(completions.ids[row : row + 1], completions.mask[row : row + 1])
        scored = score(decoder, REFERENCE, alone, own, 0.7)
        np.testing.assert_allclose(scored.log_probs[0], together[row], atol=2e-6, rtol=0)
    assert together.min() < -1e-3


@pytest.mark.parametrize("family", FAMILIES)
def test_nobody_looks_ahead(family):
    decoder, rows = decoder_of(family), rows_of([7, 4], 7)
    before = states(decoder, rows.ids, rows.mask)
    after = states(decoder, rows.ids.at[:, 5].set(0), rows.mask)
    early = rows.mask & (jnp.arange(7) < 5)[None]
    np.testing.assert_array_equal(before[early], after[early])
    assert jnp.any(jnp.abs(before[:, 6] - after[:, 6]) > 1e-3)


@pytest.mark.parametrize("family", FAMILIES)
def test_cached_is_the_full_forward(family):
    decoder, rows = decoder_of(family), rows_of([9, 4, 6], 9)
    full = states(decoder, rows.ids, rows.mask)
    step = jax.jit(cached_states)
    h, cache = step(decoder, rows.ids[:, :5], rows.mask[:, :5], empty_cache(decoder, 3, 12))
    found = [h]
    for place in range(5, 9):
        h, cache = step(decoder, rows.ids[:, place, None], rows.mask[:, place, None], cache)
        found.append(h)
    cached = jnp.concatenate(found, axis=1)
    np.testing.assert_allclose(cached[rows.mask], full[rows.mask], atol=1e-5, rtol=0)
    assert int(cache.length) == 9


@pytest.mark.parametrize("family", ["gpt2", "qwen3"])
def test_checkpointing_changes_no_gradient(family):
    decoder, rows = decoder_of(family), rows_of([5, 3], 5)

    def loss(decoder, checkpoint):
        h = hidden_states(decoder, rows.ids, rows.mask, checkpoint=checkpoint)
        return jnp.mean(jnp.square(logits_of(decoder, h)))

    slopes = jax.jit(jax.grad(loss), static_argnums=1)
    plain, saved = slopes(decoder, False), slopes(decoder, True)
    for one, other in zip(jax.tree.leaves(plain), jax.tree.leaves(saved), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("family", ["gpt2", "qwen3"])
def test_bfloat16_weights_give_float32_log_probs(family):
    decoder = decoder_of(family, "bfloat16")
    prompts, completions = rows_of([3, 5], 5), rows_of([4, 4], 4, seed=1)
    scored = jax.jit(score_completions)(decoder, REFERENCE, prompts, completions, 1.0)
    exact = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), decoder)
    reference = jax.jit(score_completions)(exact, REFERENCE, prompts, completions, 1.0)
    assert scored.log_probs.dtype == jnp.float32
    np.testing.assert_allclose(scored.log_probs, reference.log_probs, atol=0.15)


def test_a_new_model_is_nearly_uniform():
    decoder = new_model(jax.random.key(0), NewModelConfig(), 3072)
    count = sum(leaf.size for leaf in jax.tree.leaves(decoder))
    assert count == 627_360  # LANGUAGE.md's movie critic
    rows = rows_of([20, 12], 20)
    logits = logits_of(decoder, states(decoder, rows.ids, rows.mask))
    assert 0.05 < float(jnp.std(logits)) < 1.0


def test_a_fresh_part_is_the_base():
    decoder = decoder_of("llama")
    prompts, completions = rows_of([3, 5], 5), rows_of([4, 4], 4, seed=1)
    score = jax.jit(score_completions)
    base = score(decoder, REFERENCE, prompts, completions, 1.0).log_probs
    for lora in (LoraConfig(rank=2), None):
        part = fresh_part(jax.random.key(3), decoder, lora, head=True)
        same = score(decoder, part, prompts, completions, 1.0).log_probs
        np.testing.assert_array_equal(same, base)
        assert not jnp.any(jax.jit(values_before)(decoder, part, prompts, completions))


def test_a_head_reads_the_last_token_whichever_side_is_padded():
    decoder = decoder_of("qwen2")
    part = fresh_part(jax.random.key(3), decoder, None, head=True)
    weight = jax.random.normal(jax.random.key(4), part.head.weight.shape)
    part = part._replace(head=part.head._replace(weight=weight))
    left = rows_of([3], 6)
    right = Rows(jnp.roll(left.ids, -3, axis=1), left.mask[:, ::-1])
    score = jax.jit(score_texts)
    np.testing.assert_allclose(
        score(decoder, part, left), score(decoder, part, right), rtol=1e-5, atol=1e-5
    )

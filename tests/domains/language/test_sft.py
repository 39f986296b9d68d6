"""Supervised fine-tuning: its loss against a slow loop, pads and EOS, exact resumption, it learns."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from families import SIZES, decoder_of

from proxima.core.errors import ProximaError
from proxima.domains.language.batches import drawn, filled, in_batches, with_eos
from proxima.domains.language.config import SFTConfig
from proxima.domains.language.model import REFERENCE, Part, fresh_part, merged_decoder
from proxima.domains.language.optimizers import (
    Tuned,
    adamw_step,
    first_adam,
    numbers,
    one_cycle,
    tuning_step,
)
from proxima.domains.language.samples import Rows
from proxima.domains.language.sft import mean_loss, sft_stage, token_losses
from proxima.domains.language.tokenizer import left_padded, right_padded
from proxima.nets.lora import LoraConfig
from proxima.nets.transformer import hidden_states, logits_of

EOS = 3
LORA = LoraConfig(rank=2, alpha=4.0)


def texts_of(count, seed=0, longest=12):
    random = np.random.default_rng(seed)
    return [random.integers(4, 40, random.integers(2, longest)).tolist() for _ in range(count)]


loss_of = jax.jit(mean_loss)


def stage_of(lora=None, base=None, **settings):
    config = SFTConfig(**({"batch_size": 4, "epochs": 2} | settings))
    base = decoder_of("llama") if base is None else base
    return sft_stage(config, base, lora, texts_of(10), texts_of(5, seed=1), EOS, seed=0), base


def equal(left, right):
    for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_the_loss_is_the_mean_over_tokens_one_by_one(family):
    base, texts = decoder_of(family), with_eos(texts_of(3), EOS, 64)
    width = max(map(len, texts))

    @jax.jit
    def log_prob(ids, place):
        h = hidden_states(base, ids, jnp.arange(width)[None] < place)
        return jax.nn.log_softmax(logits_of(base, h[0, place - 1]))[ids[0, place]]

    losses = []
    for ids in texts:
        row = jnp.asarray([ids + [0] * (width - len(ids))], jnp.int32)
        losses += [-log_prob(row, place) for place in range(1, len(ids))]
    loss, metrics = loss_of(REFERENCE, base, filled(texts, 4, 64))
    assert metrics["train/tokens"] == len(losses) == sum(len(ids) - 1 for ids in texts)
    assert float(loss) == pytest.approx(float(np.mean(losses)), rel=1e-5)


def test_pads_change_nothing_whatever_their_id_and_side():
    base, texts = decoder_of("llama"), with_eos(texts_of(4), EOS, 64)
    expected = loss_of(REFERENCE, base, right_padded(texts, 0, 20))
    for pad in (EOS, 7):
        for padded in (left_padded, right_padded):
            found = loss_of(REFERENCE, base, padded([*texts[1:], [], texts[0]], pad, 20))
            np.testing.assert_allclose(found[0], expected[0], rtol=1e-6)
            assert found[1]["train/tokens"] == expected[1]["train/tokens"]


def test_losses_are_zero_on_pads():
    losses, valid = jax.jit(token_losses)(
        decoder_of("llama"), REFERENCE, right_padded([[5, 6, 7], [5]], 0)
    )
    assert valid.tolist() == [[True, True], [False, False]]
    assert (np.asarray(losses)[~valid] == 0).all() and (np.asarray(losses)[valid] > 0).all()


def test_an_eos_follows_texts_but_not_cut_ones():
    assert with_eos([[5, 6], [5, 6, 7], [5, 6, 7, 8]], EOS, 3) == [
        [5, 6, EOS],
        [5, 6, 7],
        [5, 6, 7],
    ]


def test_every_text_once_per_epoch_in_an_order_of_the_seed():
    epochs = [[drawn(10, 4, 0, 3 * epoch + n) for n in range(3)] for epoch in range(2)]
    for batches in epochs:
        assert [len(each) for each in batches] == [4, 4, 2]
        assert sorted(np.concatenate(batches)) == list(range(10))
    assert not np.array_equal(np.concatenate(epochs[0]), np.concatenate(epochs[1]))
    np.testing.assert_array_equal(drawn(10, 4, 0, 1), epochs[0][1])
    assert not np.array_equal(drawn(10, 4, 1, 0), epochs[0][0])


def test_widths_are_those_of_few_buckets():
    lists = [[1] * length for length in range(1, 41)]
    widths = {filled([ids], 2, 40).ids.shape[1] for ids in lists}
    assert widths == {8, 16, 32, 40}
    seen = np.concatenate([chosen for chosen, _ in in_batches(lists, 7, 40)])
    assert sorted(seen) == list(range(40))
    assert all(rows.ids.shape[0] == 7 for _, rows in in_batches(lists, 7, 40))


def test_one_cycle_is_pytorchs():
    # torch.optim.lr_scheduler.OneCycleLR(max_lr=0.01, total_steps=10), torch 2.x
    rates = [one_cycle(n, 10, 0.01) for n in range(10)]
    assert rates[0] == pytest.approx(0.0004) and max(rates) == rates[2] == pytest.approx(0.01)
    assert rates[1] == pytest.approx((0.0004 + 0.01) / 2)
    assert rates[-1] == pytest.approx(4e-8) and rates[2:] == sorted(rates[2:], reverse=True)
    assert all(one_cycle(n, total, 0.0) == 0.0 for total in (1, 2) for n in range(total))
    assert math.isfinite(one_cycle(0, 1, 1.0)) and one_cycle(0, 1, 1.0) == 1.0


def test_a_step_is_optaxs_adamw_on_the_clipped_gradient():
    params = {"a": jnp.array([1.0, -2.0]), "b": jnp.array(3.0)}
    reference = optax.chain(optax.clip_by_global_norm(0.5), optax.adamw(0.1, weight_decay=0.2))
    ours, theirs = (params, first_adam(params)), (params, reference.init(params))
    for n in range(3):
        gradient = jax.tree.map(lambda leaf, n=n: leaf * (n + 1), params)
        *ours, norm = adamw_step(*ours[:1], gradient, ours[1], numbers(0.1, 0.2, 0.5))
        change, state = reference.update(gradient, theirs[1], theirs[0])
        theirs = (optax.apply_updates(theirs[0], change), state)
        np.testing.assert_allclose(norm, (n + 1) * math.sqrt(14), rtol=1e-6)
    for name in params:
        np.testing.assert_allclose(ours[0][name], theirs[0][name], rtol=1e-5)


@pytest.mark.parametrize("lora", [None, LORA], ids=["full", "lora"])
def test_it_learns_and_only_what_it_should(lora):
    stage, base = stage_of(lora, learning_rate=0.03, epochs=6)
    before = jax.tree.map(np.asarray, base)
    assert stage.updates == 18
    state = stage.init()
    first = stage.evaluate(state)
    assert first["eval/perplexity"] == pytest.approx(math.exp(first["eval/loss"]))
    metrics = []
    for n in range(stage.updates):
        state, found = stage.update(state, n)
        metrics.append(found)
    assert metrics[-1]["loss/sft"] < metrics[0]["loss/sft"] - 0.3
    assert stage.evaluate(state)["eval/loss"] < first["eval/loss"] - 0.1
    assert set(metrics[0]) == {
        "loss/sft",
        "train/learning_rate",
        "train/grad_norm",
        "train/tokens",
    }
    assert metrics[0]["train/learning_rate"] == one_cycle(0, 18, 0.03)
    equal(base, before)  # the base is not touched: it is the reference of whoever comes next
    assert (state.part.decoder is None) == (lora is not None)


def test_merged_says_what_the_part_says():
    stage, base = stage_of(LORA, learning_rate=0.03)
    state, _ = stage.update(stage.init(), 0)
    rows = filled(texts_of(3), 3, 64)
    merged = loss_of(Part(decoder=merged_decoder(base, state.part)), base, rows)
    applied = loss_of(state.part, base, rows)
    np.testing.assert_allclose(merged[0], applied[0], rtol=1e-5)


@pytest.mark.parametrize("lora", [None, LORA], ids=["full", "lora"])
def test_resumed_midway_it_ends_in_the_same_bits(lora):
    stage, _ = stage_of(lora)
    state = stage.init()
    for n in range(stage.updates):
        if n == 3:
            saved = jax.tree.map(np.asarray, state)
        state, metrics = stage.update(state, n)
    again, _ = stage_of(lora)  # a new process would make it anew
    resumed = jax.tree.map(jnp.asarray, saved)
    for n in range(3, again.updates):
        resumed, last = again.update(resumed, n)
    equal(state, resumed)
    assert last == metrics
    assert stage.evaluate(state) == again.evaluate(resumed)


def test_learning_rate_zero_changes_nothing():
    stage, _ = stage_of(learning_rate=0.0)
    first = jax.tree.map(np.asarray, stage.init())
    state, metrics = stage.update(stage.init(), 0)
    equal(first.part, state.part)
    assert metrics["train/grad_norm"] > 0


def test_changing_a_number_compiles_nothing():
    stage, base = stage_of()
    state, _ = stage.update(stage.init(), 0)
    count = tuning_step._cached._cache_size()
    other, _ = stage_of(base=base, learning_rate=0.5, weight_decay=0.3, max_grad_norm=9.0)
    other.update(state, 1)
    assert tuning_step._cached._cache_size() == count


def test_checkpointed_layers_give_the_same_gradient():
    base, rows = decoder_of("llama"), filled(texts_of(4), 4, 64)
    part = fresh_part(jax.random.key(0), base, LORA)

    def gradient(checkpoint):
        return jax.jit(jax.grad(lambda part: mean_loss(part, base, rows, checkpoint)[0]))(part)

    for a, b in zip(jax.tree.leaves(gradient(False)), jax.tree.leaves(gradient(True)), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


def test_texts_are_cut_at_the_context_and_at_max_tokens():
    seen = []

    def layout(rows: Rows) -> Rows:
        seen.append(rows)
        return rows

    base = decoder_of("llama")
    make = partial(sft_stage, base=base, lora=None, eos_id=EOS, seed=0, layout=layout)
    long = [[5] * 200, [6] * 3]
    for limit, longest in ((6, 6), (500, SIZES["context"])):
        stage = make(SFTConfig(batch_size=2, max_tokens=limit), train=long, held_out=long)
        _, metrics = stage.update(stage.init(), 0)
        assert metrics["train/tokens"] == longest - 1 + 3
        assert seen[-1].ids.shape == (2, longest)


def test_no_texts_is_an_error_in_words():
    base = decoder_of("llama")
    for train, held_out, kind in (([], [[5]], "training"), ([[5]], [[]], "held-out")):
        with pytest.raises(ProximaError, match=f"no {kind} text"):
            sft_stage(SFTConfig(), base, None, train, held_out, EOS, 0)


def test_a_state_is_arrays_only():
    state = stage_of(LORA)[0].init()
    assert isinstance(state, Tuned)
    assert all(hasattr(leaf, "dtype") for leaf in jax.tree.leaves(state))

"""Generation: what is drawn, when it ends, what it leaves behind, and that nobody beside a row matters."""

import jax
import jax.numpy as jnp
import language_tiny as tiny
import numpy as np
import pytest

from proxima.core.errors import ProximaError
from proxima.domains.language.generate import (
    Generator,
    bucket,
    compiled_completions,
    completions_of,
    draw,
    likeliest,
    limits_of,
)
from proxima.domains.language.model import REFERENCE, score_completions
from proxima.domains.language.samples import Rows
from proxima.domains.language.tokenizer import left_padded

NEW = 6


@pytest.fixture(scope="module")
def prompts(tokenizer):
    return tiny.prompts(tokenizer.size, [3, 7, 1, 5])


def sample(base, part, rows, key, temperature=1.0, eos=(-1,), greedy=False, new_tokens=NEW):
    decoder = base if part.decoder is None else part.decoder
    ends = jnp.asarray(eos, jnp.int32)
    return compiled_completions(
        decoder,
        part.adapters,
        rows,
        key,
        temperature,
        ends,
        0,
        new_tokens=new_tokens,
        greedy=greedy,
    )


def test_draws_have_the_probabilities_of_the_softmax():
    vocabulary, rows = 70, 40_000  # not a whole number of blocks
    logits = 2.0 * jax.random.normal(jax.random.key(0), (1, vocabulary))
    uniform = jax.random.uniform(jax.random.key(1), (rows,))
    tokens, log_probs = jax.jit(draw)(jnp.broadcast_to(logits, (rows, vocabulary)), uniform)
    expected = jax.nn.log_softmax(logits[0])
    np.testing.assert_allclose(log_probs, expected[tokens], atol=1e-5)
    shares = np.bincount(tokens, minlength=vocabulary) / rows
    error = np.sqrt(np.exp(expected) / rows)
    assert np.all(np.abs(shares - np.exp(expected)) < 5 * error + 1e-4)


def test_draws_are_the_inverse_of_the_distribution_function():
    logits = jax.random.normal(jax.random.key(0), (64, 37))
    uniform = jnp.linspace(0.0, 1.0, 64, endpoint=False)
    tokens, _ = jax.jit(draw)(logits, uniform)
    sums = np.cumsum(np.exp(np.asarray(jax.nn.log_softmax(logits), np.float64)), axis=1)
    for row in range(64):
        near = [int(np.sum(sums[row] <= u)) for u in (uniform[row] - 1e-6, uniform[row] + 1e-6)]
        assert near[0] <= tokens[row] <= near[1]


def test_no_token_of_probability_zero_is_drawn():
    logits = jnp.full((3, 130), -jnp.inf).at[:, 5].set(0.0).at[:, 9].set(1.0)
    uniform = jnp.array([0.0, 1.0 - 2**-24, 1.0])
    tokens, _ = jax.jit(draw)(logits, uniform)
    assert tokens.tolist() == [5, 9, 9]


def test_greedy_takes_the_likeliest(base, prompts):
    rows = left_padded(prompts, 0, 8)
    found = sample(base, REFERENCE, rows, jax.random.key(0), greedy=True)
    ids = jnp.concatenate([rows.ids, found.completions.ids], axis=1)
    mask = jnp.concatenate([rows.mask, found.completions.mask], axis=1)
    from proxima.nets.transformer import hidden_states, logits_of

    logits = logits_of(base, jax.jit(hidden_states)(base, ids, mask))
    assert found.completions.ids.tolist() == jnp.argmax(logits[:, 7:-1], axis=-1).tolist()


@pytest.mark.parametrize("lora", [tiny.LORA, None], ids=["lora", "full"])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
def test_log_probs_are_those_of_the_training_forward(base, prompts, temperature, lora):
    policy, rows = tiny.policy_of(base, lora), left_padded(prompts, 0, 8)
    found = sample(base, policy, rows, jax.random.key(0), temperature, eos=(4, 9))
    score = jax.jit(score_completions)
    scored = score(base, policy, found.prompts, found.completions, temperature)
    np.testing.assert_allclose(found.log_probs, scored.log_probs, atol=1e-4, rtol=0)
    other = score(base, policy, found.prompts, found.completions, temperature + 0.3)
    assert np.max(np.abs(found.log_probs - other.log_probs)) > 1e-2


def test_padding_and_mates_change_nothing(base, prompts):
    policy, key = tiny.policy_of(base), jax.random.key(4)
    together = sample(base, policy, left_padded(prompts, 0, 8), key)
    wider = sample(base, policy, left_padded(prompts, 11, 16), key)
    fewer = sample(base, policy, left_padded(prompts[:2], 0, 8), key)
    assert together.completions.ids.tolist() == wider.completions.ids.tolist()
    assert together.completions.ids[:2].tolist() == fewer.completions.ids.tolist()
    np.testing.assert_allclose(together.log_probs, wider.log_probs, atol=1e-5)
    np.testing.assert_allclose(together.log_probs[:2], fewer.log_probs, atol=1e-5)


def slow_filter(logits, top_k, top_p):
    """The probabilities of the tokens that are left, one after the other; equals stay together."""
    ranked = sorted(set(logits.tolist()), reverse=True)
    kept = set()
    for value in ranked:  # the top_k likeliest, and those as likely as the last of them
        if top_k is None or len(kept) < top_k:
            kept |= set(np.flatnonzero(logits == value).tolist())
    weights = {token: np.exp(float(logits[token])) for token in kept}
    whole, sum_, nucleus = sum(weights.values()), 0.0, set()
    for value in ranked:
        own = [token for token in kept if logits[token] == value]
        for token in own:
            if top_p is None or sum_ < top_p * whole:
                nucleus |= set(own)
            sum_ += weights[token]
    total = sum(weights[token] for token in nucleus)
    return np.array([weights[t] / total if t in nucleus else 0.0 for t in range(len(logits))])


TIED = [0.0, 2.0, 1.0, 2.0, 1.0, 1.0, -3.0, -np.inf]
LIMITS = [(1, None), (2, None), (3, None), (5, None), (100, None), (None, 0.3), (None, 0.55)]
LIMITS += [(None, 0.9), (None, 1.0), (3, 0.5), (6, 0.8), (2, 1.0), (None, 1e-9), (1, 1e-9)]


@pytest.mark.parametrize(("top_k", "top_p"), LIMITS)
def test_the_tokens_that_are_left_are_those_of_a_slow_loop(top_k, top_p):
    rows = np.random.default_rng(0).normal(size=(6, len(TIED))).astype(np.float32)
    rows[0], rows[1] = TIED, 0.0  # ties, and nothing but ties
    logits = jnp.asarray(rows)
    allowed = np.asarray(likeliest(logits, limits_of(top_k, top_p, len(TIED))))
    for row, kept in zip(rows, allowed, strict=True):
        expected = slow_filter(row, top_k, top_p)
        left = np.where(kept, np.exp(row.astype(np.float64)), 0.0)
        np.testing.assert_allclose(left / left.sum(), expected, rtol=1e-6)


def test_draws_have_the_probabilities_of_what_is_left():
    vocabulary, rows = 70, 40_000
    logits = 2.0 * jax.random.normal(jax.random.key(0), (1, vocabulary))
    uniform = jax.random.uniform(jax.random.key(1), (rows,))
    many = jnp.broadcast_to(logits, (rows, vocabulary))
    allowed = jnp.broadcast_to(likeliest(logits, limits_of(20, 0.8, vocabulary)), many.shape)
    tokens, log_probs = jax.jit(draw)(many, uniform, allowed)
    expected = slow_filter(np.asarray(logits)[0], 20, 0.8)
    assert 1 < np.sum(expected > 0) < 20
    shares = np.bincount(tokens, minlength=vocabulary) / rows
    assert np.all(shares[expected == 0] == 0.0)
    assert np.all(np.abs(shares - expected) < 5 * np.sqrt(expected / rows) + 1e-4)
    # what is said of a token is what the policy says, as with greedy
    np.testing.assert_allclose(log_probs, jax.nn.log_softmax(logits[0])[tokens], atol=1e-5)


def test_limits_that_keep_everything_change_no_bit(base, tokenizer, prompts):
    rows, key = left_padded(prompts, 0, 8), jax.random.key(4)
    plain = Generator(base, tokenizer, NEW).generate(REFERENCE, rows, key)
    assert limits_of(None, None, base.config.vocabulary) is None
    for top_k, top_p in ((None, 1.0), (10**6, None), (base.config.vocabulary, 1.0)):
        limited = Generator(base, tokenizer, NEW, top_k=top_k, top_p=top_p)
        found = limited.generate(REFERENCE, rows, key)
        for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(plain), strict=True):
            np.testing.assert_array_equal(ours, theirs)
    one = Generator(base, tokenizer, NEW, top_k=1).generate(REFERENCE, rows, key)
    greedy = Generator(base, tokenizer, NEW, greedy=True).generate(REFERENCE, rows, key)
    assert one.completions.ids.tolist() == greedy.completions.ids.tolist()


def test_any_eos_ends_a_row_and_is_its_last_token(base):
    rows = left_padded([[5, 4, 6]] * 64, 0, 8)  # an EOS in the prompt ends nothing
    free = sample(base, REFERENCE, rows, jax.random.key(0))
    assert free.completions.mask.all() and not free.ended.any()
    common = np.bincount(np.asarray(free.completions.ids).ravel()).argsort()[-3:]
    eos = (4, *common.tolist())
    found = sample(base, REFERENCE, rows, jax.random.key(0), eos=eos)
    ids, mask = np.asarray(found.completions.ids), np.asarray(found.completions.mask)
    first = ids[:, 0]
    assert mask[:, 0].all() and len(set(first.tolist())) > 1
    for row in range(64):
        hits = np.flatnonzero(np.isin(np.asarray(free.completions.ids)[row], eos))
        length = hits[0] + 1 if len(hits) else NEW
        assert mask[row].tolist() == [step < length for step in range(NEW)]
        assert ids[row, :length].tolist() == free.completions.ids[row, :length].tolist()
        assert bool(found.ended[row]) == bool(len(hits))
        assert np.all(ids[row, length:] == 0) and np.all(found.log_probs[row, length:] == 0)
    ends = {ids[row, mask[row].sum() - 1] for row in range(64) if found.ended[row]}
    assert len(ends & set(eos)) >= 2
    assert found.ended.any() and not found.ended.all()


def test_a_pad_that_looks_like_a_token_is_told_by_its_mask(base, prompts):
    rows = left_padded(prompts, 7, 8)
    shown = Rows(jnp.where(rows.mask, rows.ids, 9), rows.mask)
    same = [sample(base, REFERENCE, each, jax.random.key(0)) for each in (rows, shown)]
    assert same[0].completions.ids.tolist() == same[1].completions.ids.tolist()


def test_the_loop_stops_when_all_rows_have_ended(base):
    rows = left_padded([[5]], 0, 8)
    everything = jnp.arange(base.config.vocabulary)
    found = sample(base, REFERENCE, rows, jax.random.key(0), eos=everything, new_tokens=40)
    assert found.completions.mask.sum() == 1 and found.ended.all()


def test_numbers_do_not_compile_again(base, prompts):
    rows, traces = left_padded(prompts, 0, 8), []

    def counted(*args, **sizes):
        traces.append(1)
        return completions_of(*args, **sizes)

    run = jax.jit(counted, static_argnames=("new_tokens", "greedy"))
    for temperature, pad, top_p in ((1.0, 0, 0.9), (0.3, 5, 0.2)):
        ends = jnp.asarray([3], jnp.int32)
        numbers = (temperature, ends, pad)
        limits = limits_of(7, top_p, base.config.vocabulary)
        run(base, None, rows, jax.random.key(0), *numbers, new_tokens=NEW, limits=limits)
    assert len(traces) == 1


def test_buckets_are_few():
    assert [bucket(n) for n in (1, 8, 9, 16, 17, 100)] == [8, 8, 16, 16, 32, 128]
    assert [bucket(n, longest=21) for n in (1, 8, 9, 16, 17, 21)] == [8, 8, 16, 16, 21, 21]
    assert bucket(5, longest=5) == 5


def test_the_generator_takes_texts_ids_and_rows(base, tokenizer):
    generator = Generator(base, tokenizer, NEW)
    texts = ["a good film", "the actors"]
    ids = tokenizer.encode(texts)
    rows = left_padded(ids, tokenizer.pad_id, bucket(max(map(len, ids))))
    key = jax.random.key(2)
    found = [generator.generate(REFERENCE, each, key) for each in (texts, ids, rows)]
    assert all(each.completions.ids.tolist() == found[0].completions.ids.tolist() for each in found)
    said = generator.texts(found[0])
    valid = np.asarray(found[0].completions.ids)[0][np.asarray(found[0].completions.mask)[0]]
    assert said[0] == tokenizer.decode(valid) and len(said) == 2


def test_bad_prompts_are_refused_in_words(base, tokenizer):
    generator = Generator(base, tokenizer, NEW)
    with pytest.raises(ProximaError, match=r"prompts: there are none"):
        generator.rows([])
    with pytest.raises(ProximaError, match=r"prompts\[1\]: is empty"):
        generator.rows([[5], []])
    with pytest.raises(ProximaError, match=r"prompts\[0\]: has 59 tokens.*context of 64"):
        generator.rows([[5] * 59])
    for ids in ([5, tokenizer.size], [-1], [0.5], [True]):
        with pytest.raises(ProximaError, match=r"prompts\[0\]: expected ids from 0 to "):
            generator.rows([ids])
    with pytest.raises(ProximaError, match="new_tokens: 0, and at least 1"):
        Generator(base, tokenizer, 0)
    for temperature in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ProximaError, match=r"temperature: .*above 0; greedy"):
            Generator(base, tokenizer, NEW, temperature)
    for top_k in (0, -3):
        with pytest.raises(ProximaError, match=r"top_k: .*at least 1 token"):
            Generator(base, tokenizer, NEW, top_k=top_k)
    for top_p in (0.0, 1.5, -0.1, float("nan")):
        with pytest.raises(ProximaError, match=r"top_p: .*above 0 and at most 1"):
            Generator(base, tokenizer, NEW, top_p=top_p)
    small = tiny.decoder(tokenizer.size - 1)
    with pytest.raises(ProximaError, match="take the tokenizer that belongs to the model"):
        Generator(small, tokenizer, NEW)

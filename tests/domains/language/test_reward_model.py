"""The reward model: pairs and loss against slow loops, exact resumption, calibration, files."""

import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from families import decoder_of

from proxima.core.errors import ProximaError
from proxima.domains.language.batches import filled
from proxima.domains.language.config import RewardModelConfig
from proxima.domains.language.model import Head, Part, fresh_part, score_texts
from proxima.domains.language.reward_model import (
    calibrated,
    load_reward_model,
    save_reward_model,
    scores,
    text_scores,
)
from proxima.domains.language.reward_stage import (
    Batch,
    Pairs,
    given_pairs,
    make_pairs,
    mean_loss,
    preference_losses,
    rated_pairs,
    reward_stage,
)
from proxima.domains.language.tokenizer import left_padded, right_padded, train_tokenizer
from proxima.nets.lora import LoraConfig

EOS, GOOD, BAD = 3, 10, 20
LORA = LoraConfig(rank=2, alpha=4.0)
scored = jax.jit(score_texts)


def rated_texts(count, seed=0):
    """Texts whose rating is how many more GOOD than BAD tokens they have."""
    random = np.random.default_rng(seed)
    texts = [
        random.choice([GOOD, BAD, 30, 31], random.integers(3, 7)).tolist() for _ in range(count)
    ]
    return texts, [float(ids.count(GOOD) - ids.count(BAD)) for ids in texts]


def stage_of(lora=None, given=False, **settings):
    config = RewardModelConfig(**({"updates": 6, "batch_size": 6, "rating_gap": 0.5} | settings))
    texts, ratings = rated_texts(40)
    held_out = make_pairs(*rated_texts(20, seed=1), 0.5, 30, 0)
    source = rated_pairs(texts, ratings, 0.5, 0)
    if given:
        source = given_pairs(make_pairs(texts, ratings, 0.5, 10, 0), 0)
    base = decoder_of("llama")
    return reward_stage(config, base, lora, source, held_out, EOS, seed=0), base


def part_of(base, seed=0):
    weight = jax.random.normal(jax.random.key(seed), (base.config.width,))
    return Part(head=Head(weight, jnp.asarray(0.3)))


def equal(left, right):
    for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_loss_is_bradley_and_terrys_pair_by_pair():
    base = decoder_of("llama")
    part, texts = part_of(base), rated_texts(5)[0]
    better = np.zeros((6, 6), bool)
    better[[0, 1, 3], [2, 4, 0]] = True
    batch = Batch(filled(texts, 6, 64), jnp.asarray(better))
    loss, metrics = jax.jit(mean_loss, static_argnums=3)(part, base, batch, False)
    singly = [float(scored(base, part, right_padded([ids], 0, 8))[0]) for ids in texts]
    pairs = [(singly[0], singly[2]), (singly[1], singly[4]), (singly[3], singly[0])]
    slow = [-math.log(1 / (1 + math.exp(-(a - b)))) for a, b in pairs]
    assert float(loss) == pytest.approx(np.mean(slow), rel=1e-4)
    assert metrics["train/accuracy"] == pytest.approx(np.mean([a > b for a, b in pairs]))
    table = preference_losses(jnp.asarray(singly))
    np.testing.assert_allclose([table[0, 2], table[1, 4], table[3, 0]], slow, rtol=1e-4)


def test_a_batch_without_a_pair_is_worth_nothing():
    base = decoder_of("llama")
    batch = Batch(filled([[5]], 4, 64), jnp.zeros((4, 4), bool))
    loss, metrics = jax.jit(mean_loss, static_argnums=3)(part_of(base), base, batch, False)
    assert (loss, metrics["train/accuracy"]) == (0.0, 0.0)


def test_the_score_is_read_at_the_last_token_whatever_the_padding():
    base = decoder_of("llama")
    part, texts = part_of(base), rated_texts(4)[0]
    expected = scored(base, part, right_padded(texts, 0, 10))
    for pad in (EOS, 7):
        for padded in (left_padded, right_padded):
            np.testing.assert_allclose(
                scored(base, part, padded(texts, pad, 10)), expected, atol=1e-5
            )
    ended = scored(base, part, right_padded([[*ids, EOS] for ids in texts], 0, 10))
    assert (np.abs(ended - expected) > 1e-3).all()  # an EOS that was written is read; a pad is not


def test_pairs_are_uniform_over_all_that_differ_enough():
    ratings = [0.0, 2.0, 1.0, 2.5, 1.0]
    allowed = {
        (i, j) for i in range(5) for j in range(5) if ratings[i] - ratings[j] > 1.0
    }  # not by exactly the gap
    assert allowed == {(1, 0), (3, 0), (3, 2), (3, 4)}
    pairs = make_pairs(list(range(5)), ratings, 1.0, 4000, 0)
    drawn, counts = np.unique(list(zip(*pairs, strict=True)), axis=0, return_counts=True)
    assert {tuple(map(int, each)) for each in drawn} == allowed
    assert (np.abs(counts - 1000) < 150).all()
    assert make_pairs(range(5), ratings, 1.0, 9, 0) == make_pairs(range(5), ratings, 1.0, 9, 0)
    assert make_pairs(range(5), ratings, 1.0, 9, 0) != make_pairs(range(5), ratings, 1.0, 9, 1)


def test_rated_texts_of_a_batch_are_compared_with_each_other():
    texts, ratings = rated_texts(10)
    source = rated_pairs(texts, ratings, 1.0, 0)
    batches = [source(n, 3) for n in range(2)]
    assert [len(each.texts) for each in batches] == [6, 4]
    assert sorted(batches[0].texts + batches[1].texts) == sorted(texts)
    for compared in batches:
        rated = [each.count(GOOD) - each.count(BAD) for each in compared.texts]
        for i, a in enumerate(rated):
            for j, b in enumerate(rated):
                assert compared.better[i, j] == (a - b > 1.0)


def test_given_pairs_are_compared_within_pairs_only():
    pairs = Pairs([[1], [2], [3]], [[4], [5], [6]])
    source = given_pairs(pairs, 0)
    compared = [source(n, 2) for n in range(2)]
    assert [len(each.texts) for each in compared] == [4, 2]
    found = {
        (each.texts[i][0], each.texts[j][0])
        for each in compared
        for i, j in np.argwhere(each.better)
    }
    assert found == {(1, 4), (2, 5), (3, 6)}


@pytest.mark.parametrize("lora", [None, LORA], ids=["full", "lora"])
def test_it_learns_what_is_better(lora):
    stage, base = stage_of(lora, updates=40, learning_rate=0.01)
    before = jax.tree.map(np.asarray, base)
    state = stage.init()
    first = stage.evaluate(state)
    for n in range(stage.updates):
        state, metrics = stage.update(state, n)
    last = stage.evaluate(state)
    assert last["eval/accuracy"] > max(0.85, first["eval/accuracy"])
    assert last["eval/loss"] < 0.5 and last["eval/loss"] < first["eval/loss"]
    assert set(metrics) == {
        "loss/reward_model",
        "train/accuracy",
        "train/grad_norm",
        "train/learning_rate",
    }
    equal(base, before)
    part = state.part
    good, bad = text_scores(base, part, [[GOOD] * 4 + [EOS], [BAD] * 4 + [EOS]])
    assert good > bad


@pytest.mark.parametrize("given", [False, True], ids=["ratings", "pairs"])
def test_resumed_midway_it_ends_in_the_same_bits(given):
    stage, _ = stage_of(LORA, given)
    state = stage.init()
    for n in range(stage.updates):
        if n == 2:
            saved = jax.tree.map(np.asarray, state)
        state, metrics = stage.update(state, n)
    again, _ = stage_of(LORA, given)
    resumed = jax.tree.map(jnp.asarray, saved)
    for n in range(2, again.updates):
        resumed, last = again.update(resumed, n)
    equal(state, resumed)
    assert last == metrics
    assert stage.evaluate(state) == again.evaluate(resumed)


def test_ties_are_half_right():
    stage, base = stage_of()
    state = stage.init()
    flat = fresh_part(jax.random.key(0), base, None, head=True)  # its head says 0 of everything
    found = stage.evaluate(state._replace(part=flat))
    assert found == {"eval/accuracy": 0.5, "eval/loss": pytest.approx(math.log(2))}


def test_calibrated_scores_have_mean_0_and_deviation_1():
    base = decoder_of("llama")
    rows = left_padded(rated_texts(100)[0], 0, 12)
    model = calibrated(base, part_of(base), rows)
    found = np.asarray(jax.jit(scores)(model, rows))
    assert found.mean() == pytest.approx(0, abs=1e-4) and found.std() == pytest.approx(1, abs=1e-4)
    raw = np.asarray(scored(base, part_of(base), rows))
    np.testing.assert_allclose(found * model.std + model.mean, raw, atol=1e-4)


def test_a_model_without_opinion_is_left_as_it_is():
    base = decoder_of("llama")
    model = calibrated(
        base, Part(head=Head(jnp.zeros(32), jnp.asarray(0.5))), right_padded([[5]], 0)
    )
    assert (float(model.mean), float(model.std)) == (0.5, 1.0)


@pytest.mark.parametrize("lora", [None, LORA], ids=["full", "lora"])
def test_saved_and_loaded_it_says_the_same(tmp_path, lora):
    stage, base = stage_of(lora, learning_rate=0.01)
    state, _ = stage.update(stage.init(), 0)
    rows = left_padded(rated_texts(8)[0], 0, 12)
    model = calibrated(base, state.part, rows)
    tokenizer = train_tokenizer(["a fine film", "a dull film"], 280)
    save_reward_model(model, tokenizer, tmp_path / "model")
    again, its_tokenizer = load_reward_model(tmp_path / "model")
    assert its_tokenizer.serialized() == tokenizer.serialized()
    found, expected = (jax.jit(scores)(each, rows) for each in (again, model))
    np.testing.assert_allclose(found, expected, atol=1e-4 if lora else 1e-6)


def test_folders_that_are_no_reward_model(tmp_path):
    with pytest.raises(ProximaError, match=r"is not a saved reward model \(reward_model.json"):
        load_reward_model(tmp_path / "nowhere")
    (tmp_path / "reward_model.json").write_text(json.dumps({"mean": 0.0}))
    with pytest.raises(ProximaError, match="is not a saved reward model"):
        load_reward_model(tmp_path)


def test_nothing_to_compare_is_an_error_in_words():
    with pytest.raises(
        ProximaError, match=r"rating_gap: 2, and no two ratings differ.*1.5 at most"
    ):
        rated_pairs([[1], [2]], [0.0, 1.5], 2.0, 0)
    with pytest.raises(ProximaError, match=r"no two ratings differ"):
        make_pairs([], [], 1.0, 4, 0)
    with pytest.raises(ProximaError, match="no training pairs"):
        given_pairs(Pairs([], []), 0)
    with pytest.raises(ProximaError, match="no held-out pairs"):
        reward_stage(
            RewardModelConfig(),
            decoder_of("llama"),
            None,
            given_pairs(Pairs([[1]], [[2]]), 0),
            Pairs([], []),
            EOS,
            0,
        )

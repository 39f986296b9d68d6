"""DPO: its losses against slow loops and TRL's formulas, what counts in a text, and that it learns."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from families import decoder_of
from language_tiny import moved

from proxima.core.errors import ProximaError
from proxima.domains.language.batches import filled
from proxima.domains.language.config import DPOConfig, TextDataConfig
from proxima.domains.language.data import Answer, answers_of
from proxima.domains.language.dpo import (
    MEAN_LOSSES,
    Batch,
    Hyper,
    Preferences,
    answer_log_probs,
    dpo_stage,
    ipo_losses,
    sigmoid_losses,
)
from proxima.domains.language.model import REFERENCE, fresh_part
from proxima.domains.language.optimizers import tuning_step
from proxima.domains.language.reward_stage import Pairs, given_pairs, rated_pairs
from proxima.domains.language.tables import Table
from proxima.domains.language.tokenizer import right_padded, train_tokenizer
from proxima.nets.lora import LoraConfig
from proxima.nets.transformer import hidden_states, logits_of

EOS, COUNT = 3, 4
LORA = LoraConfig(rank=2, alpha=4.0)


def hyper(beta=0.1, label_smoothing=0.0):
    return Hyper(jnp.float32(beta), jnp.float32(label_smoothing))


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


GAPS = np.array([-30.0, -2.0, -0.5, 0.0, 0.5, 3.0, 40.0], np.float32)


@pytest.mark.parametrize(("beta", "smoothing"), [(0.1, 0.0), (0.5, 0.0), (0.1, 0.2)])
def test_the_sigmoid_loss_is_that_of_the_paper_and_of_trl(beta, smoothing):
    """TRL: −logsigmoid(β Δ) (1 − ε) − logsigmoid(−β Δ) ε; without ε equation 7 of the paper."""
    found = sigmoid_losses(jnp.asarray(GAPS), hyper(beta, smoothing))
    expected = [
        -(1 - smoothing) * np.log(sigmoid(beta * gap)) - smoothing * np.log(sigmoid(-beta * gap))
        for gap in GAPS.astype(np.float64)
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)


def test_the_ipo_loss_is_that_of_the_paper_and_of_trl():
    """TRL: (Δ − 1 / (2 β)) ** 2; equation 17 of the paper with τ = β."""
    found = ipo_losses(jnp.asarray(GAPS), hyper(0.25))
    np.testing.assert_allclose(found, [(gap - 2.0) ** 2 for gap in GAPS.astype(np.float64)])


ANSWERS = [
    Answer([5, 6, 7, 8, 9], 2),
    Answer([5, 6, 10], 2),
    Answer([11, 12, 13, 14], 3),
    Answer([11, 12, 13, 15, 16, 17], 3),
]


@jax.jit
def next_logits(decoder, ids, place):
    """What may stand at a place of one text, of which only what comes before it is seen."""
    h = hidden_states(decoder, ids, jnp.arange(ids.shape[1])[None] < place)
    return logits_of(decoder, h[0, place - 1])


def slow_log_prob(decoder, ids, given):
    """Token by token, nothing beside it."""
    total, row = 0.0, jnp.asarray([ids + [0] * (8 - len(ids))], jnp.int32)
    for place in range(given, len(ids)):
        logits = np.asarray(next_logits(decoder, row, place), np.float64)
        total += logits[ids[place]] - np.log(np.sum(np.exp(logits)))
    return total


@pytest.fixture(scope="module")
def base():
    return decoder_of("llama")


@pytest.fixture(scope="module")
def policy(base):
    return moved(base, fresh_part(jax.random.key(0), base, None), 0.02)


@pytest.fixture(scope="module")
def slow(base, policy):
    """What policy and reference say of the answers with their EOS."""
    ids = [[*answer.ids, EOS] for answer in ANSWERS]
    rows = list(zip(ids, [answer.given for answer in ANSWERS], strict=True))
    return tuple(
        np.array([slow_log_prob(decoder, *row) for row in rows])
        for decoder in (policy.decoder, base)
    )


log_probs = jax.jit(answer_log_probs)


def test_prompts_and_pads_never_count(base, policy, slow):
    ids = [[*answer.ids, EOS] for answer in ANSWERS]
    given = jnp.asarray([answer.given for answer in ANSWERS])
    for pad, width in ((0, 8), (EOS, 8), (9, 16)):
        rows = right_padded(ids, pad, width)
        np.testing.assert_allclose(log_probs(base, policy, rows, given), slow[0], rtol=1e-5)
        np.testing.assert_allclose(log_probs(base, REFERENCE, rows, given), slow[1], rtol=1e-5)
    more = log_probs(base, policy, right_padded(ids, 0, 8), given - 1)
    assert np.all(np.asarray(more) < slow[0] - 1e-3), "a token more is less likely"


@pytest.mark.parametrize("normalized", [False, True])
def test_a_batch_is_the_mean_over_its_pairs_one_by_one(base, policy, slow, normalized):
    ids = [[*answer.ids, EOS] for answer in ANSWERS]
    lengths = np.array([len(answer.ids) + 1 - answer.given for answer in ANSWERS])
    weight = 1.0 / lengths if normalized else np.ones(4)
    better = np.zeros((6, 6), bool)
    pairs = [(0, 1), (3, 2), (0, 2)]
    for one, other in pairs:
        better[one, other] = True
    padded = [np.pad(each, (0, 2)) for each in ([a.given for a in ANSWERS], weight, slow[1])]
    given, weights, reference = (jnp.asarray(each) for each in padded)
    numbers = hyper(0.3, 0.1)
    batch = Batch(
        filled(ids, 6, 16),
        given,
        weights.astype(jnp.float32),
        reference.astype(jnp.float32),
        jnp.asarray(better),
        numbers,
    )
    ratio = weight * (slow[0] - slow[1])
    for kind in ("sigmoid", "ipo"):
        losses, right = [], []
        for one, other in pairs:
            gap = ratio[one] - ratio[other]
            ours = -0.9 * np.log(sigmoid(0.3 * gap)) - 0.1 * np.log(sigmoid(-0.3 * gap))
            losses.append(ours if kind == "sigmoid" else (gap - 1 / 0.6) ** 2)
            right.append(gap > 0)
        loss, metrics = MEAN_LOSSES[kind](policy, base, batch, False)
        assert float(loss) == pytest.approx(np.mean(losses), rel=1e-3)
        assert float(metrics["train/accuracy"]) == pytest.approx(np.mean(right))
        margins = [0.3 * (ratio[one] - ratio[other]) for one, other in pairs]
        assert float(metrics["train/reward_margin"]) == pytest.approx(np.mean(margins), rel=1e-3)
        chosen, rejected = ([slow[0][pair[side]] for pair in pairs] for side in (0, 1))
        assert float(metrics["train/chosen_log_prob"]) == pytest.approx(np.mean(chosen), rel=1e-5)
        assert float(metrics["train/rejected_log_prob"]) == pytest.approx(
            np.mean(rejected), rel=1e-5
        )


def preferences(count=12, rated=False):
    """Answers in which people like the tokens 20 to 24 better than 25 to 29, after prompts of two tokens."""
    random = np.random.default_rng(0)

    def answers(number, low):
        return [
            Answer(
                [*random.integers(5, 15, 2).tolist(), *random.integers(low, low + 5, 3).tolist()], 2
            )
            for _ in range(number)
        ]

    def side(number):
        good, bad = answers(number, 20), answers(number, 25)
        bad = [Answer([*g.ids[:2], *b.ids[2:]], 2) for g, b in zip(good, bad, strict=True)]
        return [*good, *bad]

    train, others = side(count), side(6)
    by_number = [Pairs(range(half), range(half, 2 * half)) for half in (count, 6)]
    ratings = [1.0] * count + [-1.0] * count
    source = (
        rated_pairs(range(2 * count), ratings, 1.0, 0) if rated else given_pairs(by_number[0], 0)
    )
    return Preferences(train, source, others, by_number[1])


def stage_of(base, lora=None, pairs=None, **settings):
    config = DPOConfig(**({"updates": 12, "batch_size": COUNT, "learning_rate": 3e-2} | settings))
    return dpo_stage(config, base, lora, pairs or preferences(), EOS, seed=0, evaluate_every=4)


def trained(stage):
    state, history = stage.init(), []
    for n in range(stage.updates):
        state, metrics = stage.update(state, n)
        history.append(metrics)
    return state, history


@pytest.fixture(scope="module")
def learnt(base):
    before = jax.tree.map(np.array, base)
    stage = stage_of(base)
    first = stage.evaluate(stage.init())
    state, history = trained(stage)
    return stage, before, first, state, history


def test_it_starts_as_the_reference(learnt):
    _, _, first, _, history = learnt
    assert first["eval/loss"] == pytest.approx(np.log(2.0), rel=1e-5)
    assert first["eval/accuracy"] == 0.5 and first["eval/reward_margin"] == 0.0
    assert history[0]["loss/dpo"] == pytest.approx(np.log(2.0), rel=1e-5)
    assert abs(history[0]["train/reward_margin"]) < 1e-5, "what the reference says is exact"


def test_the_margin_of_chosen_answers_grows_and_carries_over(learnt):
    stage, _, first, state, history = learnt
    last = stage.evaluate(state)
    assert history[-1]["train/reward_margin"] > history[3]["train/reward_margin"] > 0.0
    assert history[-1]["train/accuracy"] == 1.0 and history[-1]["loss/dpo"] < 0.6
    assert last["eval/accuracy"] > 0.9 and last["eval/loss"] < first["eval/loss"]
    difference = [
        each["eval/chosen_log_prob"] - each["eval/rejected_log_prob"] for each in (first, last)
    ]
    assert difference[1] > difference[0] + 1.0


def test_the_reference_stays_as_it_was(learnt, base):
    for was, now in zip(jax.tree.leaves(learnt[1]), jax.tree.leaves(base), strict=True):
        np.testing.assert_array_equal(was, now)


def test_what_the_stage_says_of_held_out_pairs_is_what_the_models_say(learnt, base):
    stage, _, _, state, _ = learnt
    answers = preferences().held_out_answers
    rows = right_padded([[*answer.ids, EOS] for answer in answers], 0, 8)
    given = jnp.full(len(answers), 2)
    now, then = (np.asarray(log_probs(base, part, rows, given)) for part in (state.part, REFERENCE))
    ratio = now - then
    margin = 0.1 * np.mean(ratio[:6] - ratio[6:])
    assert stage.evaluate(state)["eval/reward_margin"] == pytest.approx(margin, rel=1e-4)


def test_a_stage_goes_on_from_where_it_was_and_other_numbers_compile_nothing(learnt, base):
    *_, state, _ = learnt
    again = stage_of(base)
    half = again.init()
    for n in range(6):
        half, _ = again.update(half, n)
    resumed = stage_of(base)
    half = jax.tree.map(jnp.asarray, jax.tree.map(np.array, half))
    for n in range(6, 12):
        half, _ = resumed.update(half, n)
    for ours, theirs in zip(jax.tree.leaves(half), jax.tree.leaves(state), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    programs = tuning_step._cached._cache_size()
    other = stage_of(base, beta=0.7, label_smoothing=0.1, learning_rate=1e-3)
    other.update(other.init(), 0)
    assert tuning_step._cached._cache_size() == programs


def test_ipo_ends_at_its_margin_and_ratings_are_pairs_too(base):
    """The squared loss wants Δ = 1 / (2 β) and no more, where the sigmoid wants ever more."""
    pairs = preferences(rated=True)
    stage = stage_of(base, LORA, pairs, loss="ipo", beta=0.5, updates=16, learning_rate=1e-2)
    state, history = trained(stage)
    assert history[0]["loss/dpo"] == pytest.approx(1.0, rel=1e-3)
    assert history[-1]["loss/dpo"] < 0.5
    assert 0.2 < history[-1]["train/reward_margin"] < 1.0
    assert state.part.decoder is None and state.part.adapters is not None


def test_what_cannot_be_learnt_from_is_refused_in_words(base):
    nobody = preferences()._replace(held_out=Pairs([], []))
    with pytest.raises(ProximaError, match="dpo: there are no held-out pairs"):
        stage_of(base, pairs=nobody)
    with pytest.raises(ProximaError, match="dpo: there are no training pairs"):
        given_pairs(Pairs([], []), 0, "dpo")
    with pytest.raises(ProximaError, match=r"dpo\.rating_gap: 5, and no two ratings differ"):
        rated_pairs([0, 1], [1.0, 2.0], 5.0, 0, "dpo")
    long = [Answer([5] * 70, 64), *preferences().answers[1:]]
    with pytest.raises(ProximaError, match="pair 0: a prompt of 64 tokens leaves no room"):
        stage_of(base, pairs=preferences()._replace(answers=long))


def test_answers_begin_where_their_prompts_end():
    tokenizer = train_tokenizer(["the film is good", "the film is bad"] * 4, 290)
    table = Table([1, 2], prompt=["the film is", "the fi"])
    found = answers_of(TextDataConfig(), table, [" good", "lm is bad"], tokenizer)
    for answer, prompt, text in zip(found, table.prompt, (" good", "lm is bad"), strict=True):
        assert answer.ids[: answer.given] == tokenizer.encode([prompt])[0]
        assert tokenizer.decode(answer.ids) == prompt + text
    assert found[0].ids == tokenizer.encode(["the film is good"])[0]
    assert found[1].ids != tokenizer.encode(["the film is bad"])[0], "a token reaches over"
    (alone,) = answers_of(TextDataConfig(), Table([1]), ["the film"], tokenizer)
    assert alone == Answer(tokenizer.encode(["the film"])[0], 1), "only what every text begins with"
    template = TextDataConfig(prompt_template="Say: {text}")
    (worded,) = answers_of(template, Table([1], prompt=["the"]), [" film"], tokenizer)
    assert tokenizer.decode(worded.ids) == "Say: the film"

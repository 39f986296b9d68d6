"""Rewards: where they fall, what is taken off, and what is said of a reward function that fails."""

import dataclasses

import jax
import jax.numpy as jnp
import language_tiny as tiny
import numpy as np
import pytest

from proxima.core.errors import ProximaError
from proxima.domains.language.config import RewardConfig
from proxima.domains.language.model import fresh_part, joined
from proxima.domains.language.reward_model import RewardModel, scores
from proxima.domains.language.rewards import RewardComputer, last_tokens
from proxima.domains.language.samples import Rows, Samples
from proxima.domains.language.tokenizer import left_padded, right_padded, train_tokenizer

PROMPTS = [[5, 6], [7], [8, 9, 10]]
SAID = [[30, 31, 32, 33], [34, 35], [36]]
FUNCTION = RewardConfig(kind="function", missing_eos_penalty=0.0)


def samples(ended=(False, True, True)) -> Samples:
    completions = right_padded(SAID, 0, 4)
    return Samples(
        left_padded(PROMPTS, 0, 4),
        completions,
        jnp.zeros(completions.ids.shape),
        jnp.asarray(ended),
    )


@pytest.fixture(scope="module")
def tokenizer():
    return tiny.tokenizer()


def computer(tokenizer, function, **settings) -> RewardComputer:
    config = RewardConfig(**({"kind": "function", "missing_eos_penalty": 0.0} | settings))
    return RewardComputer(config, function=function, tokenizer=tokenizer)


def log_probs():
    now = jax.random.normal(jax.random.key(0), (3, 4))
    then = jax.random.normal(jax.random.key(1), (3, 4))
    mask = samples().completions.mask
    return jnp.where(mask, now, 0.0), jnp.where(mask, then, 0.0)


def test_the_score_is_on_the_last_valid_token_only(tokenizer):
    found = computer(tokenizer, lambda p, c: [1.0, 2.0, 3.0]).compute_rewards(
        samples(), *log_probs(), beta=0.0
    )
    assert found.rewards.tolist() == [[0, 0, 0, 1.0], [0, 2.0, 0, 0], [3.0, 0, 0, 0]]
    assert found.rewards.dtype == jnp.float32


def test_three_quarters_stay_three_quarters(tokenizer):
    reward = computer(tokenizer, lambda p, c: [0.75] * 3)
    found = reward.compute_rewards(samples(), *log_probs(), beta=0.0)
    assert found.scores.tolist() == [0.75] * 3
    assert reward.scores(samples()).tolist() == [0.75] * 3


def test_rewards_add_up_to_the_score_less_the_price_of_kl(tokenizer):
    now, then = log_probs()
    given = [0.5, -1.0, 2.0]
    reward = computer(tokenizer, lambda p, c: given, missing_eos_penalty=1.5)
    found = reward.compute_rewards(samples(), now, then, beta=0.3)
    worth = np.array(given) - np.array([1.5, 0.0, 0.0])
    np.testing.assert_allclose(found.scores, worth, rtol=1e-6)
    kl = np.sum(np.asarray(now) - np.asarray(then), axis=1)
    np.testing.assert_allclose(found.rewards.sum(axis=1), worth - 0.3 * kl, rtol=1e-5)
    per_token = -0.3 * (np.asarray(now) - np.asarray(then))  # k1, on each token
    np.testing.assert_allclose(found.rewards[0, :3], per_token[0, :3], rtol=1e-5)
    assert np.all(np.asarray(found.rewards)[~np.asarray(samples().completions.mask)] == 0)


def test_a_cut_completion_costs_the_penalty_and_no_other_does(tokenizer):
    reward = computer(tokenizer, lambda p, c: [0.0] * 3, missing_eos_penalty=1.0)
    found = reward.compute_rewards(samples((False, True, False)), *log_probs(), beta=0.0)
    assert found.scores.tolist() == [-1.0, 0.0, -1.0]
    # the plain score, which evaluation reports, knows nothing of it
    assert reward.scores(samples((False, True, False))).tolist() == [0.0] * 3


def test_scores_are_normalised_by_all_that_were_seen(tokenizer):
    given = [[1.0, 2.0, 3.0], [7.0, 8.0, 9.0]]
    turn = iter(given)
    reward = computer(tokenizer, lambda p, c: next(turn), normalize=True)
    first = reward.compute_rewards(samples(), *log_probs(), beta=0.0)
    np.testing.assert_allclose(first.scores, (np.array(given[0]) - 2) / np.std(given[0]), rtol=1e-5)
    second = reward.compute_rewards(samples(), *log_probs(), beta=0.0, moments=first.moments)
    seen = np.array(given).ravel()
    np.testing.assert_allclose(
        second.scores, (np.array(given[1]) - seen.mean()) / seen.std(), rtol=1e-5
    )
    assert int(second.moments.number) == 6


def test_scores_are_clipped_before_the_penalty(tokenizer):
    reward = computer(tokenizer, lambda p, c: [5.0, -5.0, 0.5], clip=2.0, missing_eos_penalty=1.0)
    found = reward.compute_rewards(samples(), *log_probs(), beta=0.0)
    assert found.scores.tolist() == [1.0, -2.0, 0.5]


def test_a_number_per_token_falls_on_its_token(tokenizer):
    given = [[1.0, 2.0, 3.0, 4.0], [5.0, 6.0], [7.0]]
    reward = computer(tokenizer, lambda p, c: given, per_token=True, missing_eos_penalty=1.0)
    found = reward.compute_rewards(samples(), *log_probs(), beta=0.0)
    assert found.rewards.tolist() == [[1, 2, 3, 3], [5, 6, 0, 0], [7, 0, 0, 0]]
    assert found.scores.tolist() == [9.0, 11.0, 7.0]
    assert reward.scores(samples()).tolist() == [10.0, 11.0, 7.0]


def test_the_function_is_given_texts(tokenizer):
    heard = {}

    def listen(prompts, completions):
        heard.update(prompts=prompts, completions=completions)
        return [0.0] * 3

    computer(tokenizer, listen).scores(samples())
    assert heard["prompts"] == [tokenizer.decode(ids) for ids in PROMPTS]
    assert heard["completions"] == [tokenizer.decode(ids) for ids in SAID]


def steps(prompts, completions):
    yield 1.0
    raise KeyError("lost")


def spoils(prompts, completions):
    completions.clear()
    return [0.0]


class Strange:
    """A number that is none."""

    def __float__(self):
        raise RuntimeError("no")

    def __iter__(self):
        raise RuntimeError("no")


def raises(prompts, completions):
    if completions[-1] == completions[0] or len(completions) > 1:
        raise KeyError("lost")
    return [0.0]


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (raises, r"test_rewards\.raises, row 0 .*raised KeyError: 'lost'"),
        (lambda p, c: [1.0, float("nan"), 2.0], r"lambda>, row 1: returned nan for"),
        (lambda p, c: [1.0, float("inf"), 2.0], r"row 1: returned inf"),
        (lambda p, c: [1.0], r"returned 1 numbers for 3 completions"),
        (lambda p, c: 1.0, r"returned float; return one number per completion"),
        (lambda p, c: [1.0, "good", 2.0], r"row 1: returned 'good'; return a number"),
        (lambda p, c: [1.0, "2", 3.0], r"row 1: returned '2'; return a number"),
        (lambda p, c: "123", r"returned str; return one number per completion"),
        (lambda p, c: dict.fromkeys((1, 2, 3)), r"returned dict; return one number"),
        (lambda p, c: {1, 2, 3}, r"returned set; return one number"),
        (lambda p, c: None, r"returned NoneType; return one number"),
        (lambda p, c: Strange(), r"returned Strange; return one number"),
        (lambda p, c: [0.0, Strange(), 0.0], r"row 1: returned <.*>; return a number"),
        (lambda p, c: np.zeros((3, 1)), r"row 0: returned array\(\[0.\]\); return a number"),
        (lambda p, c: [[1.0], 2.0, 3.0], r"row 0: returned \[1.0\]; return a number"),
        (lambda p, c: [0.0, None, 0.0], r"row 1: returned None; return a number"),
        (lambda p, c: [0.0, 1j, 0.0], r"row 1: returned 1j; return a number"),
        (lambda p, c: [0.0, 10**400, 0.0], r"row 1: returned inf for"),
        (lambda p, c: [0.0, 1e39, 0.0], r"row 1: returned 1e\+39 for"),
        (steps, r"steps, row 0 .*raised KeyError: 'lost'"),
        (spoils, r"returned 1 numbers for 3 completions"),
    ],
)
def test_a_failing_function_is_named_with_its_row(tokenizer, function, told):
    with pytest.raises(ProximaError, match=told):
        computer(tokenizer, function).scores(samples())


def test_a_list_of_the_wrong_length_names_its_row(tokenizer):
    wrong = [[1.0] * 4, [1.0] * 3, [1.0]]
    with pytest.raises(ProximaError, match="row 1: returned 3 numbers for 2 tokens"):
        computer(tokenizer, lambda p, c: wrong, per_token=True).scores(samples())


def test_a_text_past_the_reward_models_context_is_refused(tokenizer):
    model = reward_model(tokenizer.size)
    config = dataclasses.replace(model.base.config, context=5)
    small = dataclasses.replace(model.base, config=config)
    with pytest.raises(
        ProximaError, match=r"row 0 has 6 tokens for the reward model.*context of 5"
    ):
        RewardComputer(RewardConfig(), model=model._replace(base=small)).scores(samples())


def test_settings_that_do_not_fit_are_refused(tokenizer):
    with pytest.raises(ProximaError, match=r"reward\.kind is model, and there is none"):
        RewardComputer(RewardConfig())
    with pytest.raises(ProximaError, match=r"reward\.function is not set"):
        RewardComputer(FUNCTION, tokenizer=tokenizer)
    with pytest.raises(ProximaError, match="policy's tokenizer"):
        RewardComputer(FUNCTION, function=lambda p, c: [])
    with pytest.raises(ProximaError, match="cannot import nowhere"):
        RewardComputer(FUNCTION, function="nowhere.to.be_found", tokenizer=tokenizer)


def reward_model(vocabulary: int) -> RewardModel:
    base = tiny.decoder(vocabulary)
    part = tiny.moved(base, fresh_part(jax.random.key(0), base, tiny.LORA, head=True), 0.3)
    return RewardModel(base, part, jnp.float32(0.5), jnp.float32(2.0))


def test_a_model_reads_the_policys_ids(tokenizer):
    model, batch = reward_model(tokenizer.size), samples()
    reward = RewardComputer(RewardConfig(), model=model)
    expected = scores(model, joined(batch.prompts, batch.completions))
    assert reward.model_of_ids is model
    np.testing.assert_allclose(reward.scores(batch), expected, rtol=1e-5)


def test_a_model_may_have_another_tokenizer(tokenizer):
    other = train_tokenizer(["quite other words", "and other pieces"] * 3, 270)
    model, batch = reward_model(other.size), samples()
    reward = RewardComputer(RewardConfig(), model, tokenizer=tokenizer, model_tokenizer=other)
    assert reward.model_of_ids is None
    lists = []
    for prompt, said, ended in zip(PROMPTS, SAID, batch.ended, strict=True):
        ids = other.encode([tokenizer.decode([*prompt, *said])])[0]
        lists.append([*ids, other.eos_id] if ended else ids)
    expected = scores(model, Rows(*map(jnp.asarray, right_padded(lists, 0))))
    np.testing.assert_allclose(reward.scores(batch), expected, atol=1e-5)


def test_last_tokens():
    mask = jnp.asarray([[True, True, False], [True, True, True], [False, False, False]])
    assert last_tokens(mask).tolist() == [
        [False, True, False],
        [False, False, True],
        [False, False, False],
    ]

"""PPO on tokens: steps, gradients, beta, early stops, resuming; and that it learns."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import language_tiny as tiny
import numpy as np
import pytest

from proxima.core.errors import ProximaError
from proxima.domains.language import learn as learning
from proxima.domains.language.config import KLConfig, LanguagePPOConfig, RewardConfig
from proxima.domains.language.learn import (
    ModelTrainer,
    critic_from,
    first_state,
    gradient_of,
    hyper_of,
    next_beta,
    plan_of,
    rates,
)
from proxima.domains.language.model import fresh_part, values_before
from proxima.domains.language.ppo import experience_from, next_prompts, ppo_stage, prompt_rows
from proxima.domains.language.reward_model import RewardModel, scores
from proxima.domains.language.rewards import RewardComputer

CONFIG = LanguagePPOConfig(
    updates=4,
    batch_size=8,
    new_tokens=5,
    epochs_per_update=2,
    minibatch_size=4,
    learning_rate=1e-2,
    kl=KLConfig(coefficient=0.1, target=2.0, horizon=80.0),
)


def letters(prompts, completions):
    """Worth: the share of bytes that are letters of the first half of the alphabet."""
    return [sum(c in "abcdefghijklm" for c in text) / 5 for text in completions]


@pytest.fixture(scope="module")
def prompts(tokenizer):
    return tiny.prompts(tokenizer.size, [2, 4, 3, 5, 1, 3, 2, 4, 5, 3, 2])


def reward_of(tokenizer, **settings) -> RewardComputer:
    config = RewardConfig(kind="function", **({"missing_eos_penalty": 0.0} | settings))
    return RewardComputer(config, function=letters, tokenizer=tokenizer)


def stage_of(base, tokenizer, prompts, config=CONFIG, lora=tiny.LORA, seed=0):
    return ppo_stage(config, reward_of(tokenizer), base, lora, prompts, tokenizer, seed)


def ran(stage, state, start, updates):
    history = []
    for n in range(start, start + updates):
        state, metrics = stage.update(state, n)
        history.append(metrics)
    return state, history


def numbers(history):
    return [{k: v for k, v in each.items() if not k.startswith("time/")} for each in history]


def same(one, other) -> bool:
    def raw(leaf):
        is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        return np.asarray(jax.random.key_data(leaf) if is_key else leaf)

    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.array_equal(raw(a), raw(b)) for a, b in pairs)


def saved(state):
    """What a checkpoint keeps: arrays on the host."""

    def keep(leaf):
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(np.asarray(jax.random.key_data(leaf)))
        return np.array(leaf)

    return jax.tree.map(keep, state)


@pytest.fixture(scope="module")
def four_updates(base, tokenizer, prompts):
    stage = stage_of(base, tokenizer, prompts)
    state, first = ran(stage, stage.init(), 0, 2)
    halfway = saved(state)
    state, rest = ran(stage, state, 2, 2)
    return halfway, state, first + rest


def test_steps_are_updates_times_epochs_times_minibatches(four_updates):
    _, state, history = four_updates
    steps = 4 * CONFIG.epochs_per_update * (CONFIG.batch_size // CONFIG.minibatch_size)
    assert int(state.policy_optimizer.count) == int(state.value_optimizer.count) == steps
    assert sum(each["train/optimizer_steps"] for each in history) == steps
    assert int(state.updates) == 4 and int(state.cursor) == 4 * CONFIG.batch_size


def test_a_resumed_run_goes_on_to_the_bit(base, tokenizer, prompts, four_updates):
    halfway, state, history = four_updates
    stage = stage_of(base, tokenizer, prompts)
    again, rest = ran(stage, jax.tree.map(jnp.asarray, halfway), 2, 2)
    assert same(again, state)
    assert numbers(rest) == numbers(history[2:])


def test_what_is_logged(four_updates):
    _, _, history = four_updates
    for each in history:
        assert each["train/log_prob_gap"] < 1e-4 and each["train/first_ratio_gap"] < 1e-5
        assert each["train/reward"] == pytest.approx(
            each["train/score"] - each["train/beta"] * each["train/kl"], abs=1e-4
        )
        assert {
            "loss/policy",
            "loss/value",
            "train/entropy",
            "train/length",
            "train/eos_rate",
        } <= set(each)
        assert {"train/grad_norm", "train/value_grad_norm", "train/clip_fraction"} <= set(each)
        assert all(np.isfinite(value) for value in each.values())
    rates_seen = [each["train/learning_rate"] for each in history]
    np.testing.assert_allclose(rates_seen, [1e-2, 7.5e-3, 5e-3, 2.5e-3], rtol=1e-5)
    assert abs(history[0]["train/kl"]) < 1e-4 < abs(history[1]["train/kl"])


def test_beta_follows_kl(four_updates):
    _, state, history = four_updates
    betas = [each["train/beta"] for each in history] + [float(state.beta)]
    for before, after, each in zip(betas[:-1], betas[1:], history, strict=True):
        error = np.clip(each["train/kl"] / 2.0 - 1.0, -0.2, 0.2)
        assert after == pytest.approx(before * (1 + error * 8 / 80.0), rel=1e-5)


@pytest.mark.parametrize(
    ("kl", "factor"), [(0.0, 0.8), (4.5, 0.9), (5.0, 1.0), (5.5, 1.1), (50, 1.2)]
)
def test_betas_step(kl, factor):
    hyper = hyper_of(LanguagePPOConfig(kl=KLConfig(target=5.0, horizon=64.0)))
    assert float(next_beta(jnp.float32(0.2), kl, 64, hyper)) == pytest.approx(
        0.2 * factor, rel=1e-5
    )


def test_learning_rates_are_lines_to_the_final_one():
    config = LanguagePPOConfig(
        updates=10, learning_rate=1e-3, value_learning_rate=5e-3, final_learning_rate=1e-4
    )
    policy, value = rates(hyper_of(config), jnp.int32(5))
    assert float(policy) == pytest.approx(5.5e-4) and float(value) == pytest.approx(2.55e-3)


@pytest.fixture(scope="module")
def experience(base, tokenizer, prompts):
    """A rollout of a policy that has moved on since: ratios are not 1, some are clipped."""
    from proxima.domains.language.generate import Generator

    state = first_state(CONFIG, base, tiny.LORA, 0)
    rows = prompt_rows(prompts[:8], 1, tokenizer.pad_id, 5)
    made = Generator(base, tokenizer, 5).generate(state.policy, rows, jax.random.key(0))
    found = experience_from(CONFIG, reward_of(tokenizer), base, state, made)
    # one completion much shorter than the others, so that rows and tokens are not the same
    mask = found.completions.mask.at[0, 1:].set(False)
    return found._replace(completions=found.completions._replace(mask=mask))


def moved_state(base, config=CONFIG):
    state = first_state(config, base, tiny.LORA, 0)
    value = None if state.value is None else tiny.moved(base, state.value, 0.1)
    return state._replace(policy=tiny.moved(base, state.policy, 0.1), value=value)


def test_micro_batches_change_no_gradient(base, experience):
    state, hyper = moved_state(base), hyper_of(CONFIG)
    find = jax.jit(gradient_of, static_argnames="plan")
    whole, means, gap = find(base, state, experience, hyper, plan_of(CONFIG))
    for parts in (2, 8):
        plan = plan_of(replace(CONFIG, micro_batches=parts))
        found, same_means, same_gap = find(base, state, experience, hyper, plan)
        np.testing.assert_allclose(means, same_means, rtol=1e-4, atol=1e-6)
        assert float(gap) == pytest.approx(float(same_gap), rel=1e-4)
        for a, b in zip(jax.tree.leaves(whole), jax.tree.leaves(found), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-6)


def test_the_value_coefficient_scales_the_critics_gradient_alone(base, experience):
    state, find = moved_state(base), jax.jit(gradient_of, static_argnames="plan")
    hyper, plan = hyper_of(CONFIG), plan_of(CONFIG)
    (policy, value), *_ = find(base, state, experience, hyper, plan)
    tripled = hyper._replace(value_coef=3.0 * hyper.value_coef)
    (same, larger), *_ = find(base, state, experience, tripled, plan)
    for a, b in zip(jax.tree.leaves(policy), jax.tree.leaves(same), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-8)
    for a, b in zip(jax.tree.leaves(value), jax.tree.leaves(larger), strict=True):
        np.testing.assert_allclose(3.0 * a, b, rtol=1e-4, atol=1e-7)


def test_the_loss_is_the_sum_over_valid_tokens_by_their_number(base, experience):
    from proxima.domains.language.model import score_completions

    config = replace(CONFIG, value_clip_epsilon=0.01)
    state, hyper = moved_state(base), hyper_of(config)
    rows = (experience.prompts, experience.completions)
    now = jax.jit(score_completions)(base, state.policy, *rows, 1.0).log_probs
    value = jax.jit(values_before)(base, state.value, *rows)
    experience = experience._replace(returns=1.1 * value)  # most went towards it, further than 0.01
    _, means, gap = jax.jit(gradient_of, static_argnames="plan")(
        base, state, experience, hyper, plan_of(config)
    )
    policy_loss = value_loss = unclipped = largest = 0.0
    valid = np.argwhere(np.asarray(experience.completions.mask))
    for at in map(tuple, valid):
        ratio = np.exp(float(now[at] - experience.log_probs[at]))
        advantage = float(experience.advantages[at])
        policy_loss -= min(ratio * advantage, np.clip(ratio, 0.8, 1.2) * advantage)
        old, target = float(experience.values[at]), float(experience.returns[at])
        near = old + np.clip(float(value[at]) - old, -0.01, 0.01)
        value_loss += max((float(value[at]) - target) ** 2, (near - target) ** 2)
        unclipped += (float(value[at]) - target) ** 2
        largest = max(largest, abs(ratio - 1))
    assert float(means[0]) == pytest.approx(policy_loss / len(valid), rel=1e-3)
    assert float(means[1]) == pytest.approx(value_loss / len(valid), rel=1e-3)
    assert value_loss > 1.01 * unclipped
    assert float(gap) == pytest.approx(largest, rel=1e-3)


def test_a_train_step_is_one_optimizer_step(base, experience):
    trainer = ModelTrainer(base, CONFIG)
    before = saved(moved_state(base))
    state, seen = trainer.train_step(jax.tree.map(jnp.asarray, before), experience)
    assert int(state.policy_optimizer.count) == 1
    assert float(seen.policy_loss) != 0 and float(seen.value_loss) > 0
    leaves = zip(jax.tree.leaves(before.policy), jax.tree.leaves(state.policy), strict=True)
    # Adam's first step is as long as the learning rate, in every direction with a slope
    steps = np.concatenate([np.abs(a - b).ravel() for a, b in leaves])
    assert np.median(steps) == pytest.approx(CONFIG.learning_rate, rel=0.05)


def test_updates_end_when_the_policy_has_gone_far(base, tokenizer, prompts):
    config = replace(CONFIG, epochs_per_update=4, target_kl=1e-3, kl=KLConfig(target=None))
    stage = stage_of(base, tokenizer, prompts, config)
    state, history = ran(stage, stage.init(), 0, 1)
    taken = history[0]["train/optimizer_steps"]
    assert 1 <= taken < 8 and int(state.policy_optimizer.count) == taken
    assert float(state.beta) == pytest.approx(0.2)  # no target: fixed


@pytest.mark.parametrize("kind", ["group", "leave_one_out"])
def test_groups_have_no_critic(base, tokenizer, prompts, kind):
    config = replace(CONFIG, advantage=kind, group_size=4, updates=1)
    stage = stage_of(base, tokenizer, prompts, config)
    state, history = ran(stage, stage.init(), 0, 1)
    assert state.value is None and state.value_optimizer is None
    assert int(state.cursor) == 2  # prompts, four completions of each
    assert history[0]["loss/value"] == 0 and history[0]["train/grad_norm"] > 0


def test_prompts_come_each_once_per_pass_and_repeat_side_by_side(tokenizer):
    seen = [next_prompts(5, 2, 7, cursor) for cursor in range(0, 10, 2)]
    flat = [index for batch in seen for index in batch]
    assert sorted(flat[:5]) == sorted(flat[5:]) == list(range(5)) and flat[:5] != flat[5:]
    rows = prompt_rows([[5], [6, 7]], 2, 0, longest=2)
    assert rows.ids.tolist() == [[0, 5], [0, 5], [6, 7], [6, 7]]


def test_numbers_do_not_compile_again(base, tokenizer, prompts, monkeypatch):
    traces = []
    original = learning.loss_of

    def counted(*args):
        traces.append(1)
        return original(*args)

    monkeypatch.setattr(learning, "loss_of", counted)
    jax.clear_caches()
    configs = (
        CONFIG,
        replace(CONFIG, learning_rate=1e-4, clip_epsilon=0.1, temperature=0.5, value_coef=0.3),
        replace(CONFIG, gae_lambda=0.5, gamma=0.9, kl=KLConfig(coefficient=0.5, target=9.0)),
    )
    counts = []
    for config in configs:
        stage = stage_of(base, tokenizer, prompts, config)
        ran(stage, stage.init(), 0, 1)
        counts.append(len(traces))
    assert counts[0] > 0 and len(set(counts)) == 1


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"minibatch_size": 3}, r"ppo.batch_size: 8 is not a multiple of ppo.minibatch_size \(3\)"),
        ({"micro_batches": 3}, r"ppo.minibatch_size: 4 is not a multiple of ppo.micro_batches"),
        ({"advantage": "group", "group_size": 3}, "not a multiple of ppo.group_size"),
    ],
)
def test_sizes_that_do_not_divide_are_refused(base, tokenizer, prompts, settings, told):
    with pytest.raises(ProximaError, match=told):
        stage_of(base, tokenizer, prompts, replace(CONFIG, **settings))


def test_the_reward_goes_up(base, tokenizer, prompts):
    config = replace(
        CONFIG,
        updates=16,
        batch_size=32,
        minibatch_size=16,
        learning_rate=2e-2,
        final_learning_rate=1e-2,
        kl=KLConfig(coefficient=0.01, target=None),
    )
    before = saved(base)
    stage = stage_of(base, tokenizer, prompts, config, lora=None)
    _, history = ran(stage, stage.init(), 0, 16)
    scores = [each["train/score"] for each in history]
    assert np.mean(scores[-3:]) > np.mean(scores[:2]) + 0.5
    assert same(before, base)  # the base is nobody's to change


def test_adapters_make_good_tokens_likelier(base, experience):
    """Of a random trunk adapters move little; so the direction is tried, not how far a reward gets."""
    mask = experience.completions.mask
    praised = experience._replace(advantages=jnp.where(mask, 1.0, 0.0))
    trainer, state = (
        ModelTrainer(base, replace(CONFIG, clip_epsilon=100.0)),
        first_state(CONFIG, base, tiny.LORA, 0),
    )
    losses = []
    for _ in range(10):
        state, seen = trainer.train_step(state, praised)
        losses.append(float(seen.policy_loss))
    # −mean ratio: −1 at first
    assert losses[0] == pytest.approx(-1.0, abs=1e-4) and losses[-1] < -1.2


def test_a_critic_may_start_with_the_reward_models_opinion(base, experience):
    part = tiny.moved(base, fresh_part(jax.random.key(0), base, tiny.LORA, head=True), 0.3)
    model = RewardModel(base, part, jnp.float32(0.5), jnp.float32(2.0))
    state = first_state(CONFIG, base, tiny.LORA, 0, critic_from(model))
    rows = (experience.prompts, experience.completions)
    values = jax.jit(values_before)(base, state.value, *rows)
    # the value before a completion is the score of its prompt
    np.testing.assert_allclose(values[:, 0], jax.jit(scores)(model, experience.prompts), atol=1e-5)

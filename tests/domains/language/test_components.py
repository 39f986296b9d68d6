"""The components one by one from Python, by the names of the design, and the trainer made of them."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import language_tiny as tiny
import numpy as np
import pytest

from proxima.core.errors import ProximaError
from proxima.domains.language import (
    AdvantageComp,
    Evaluator,
    ExperienceBuffer,
    Generator,
    ModelTrainer,
    PPOTrainer,
    RewardComputer,
    TokenAttributor,
    ValueAdder,
)
from proxima.domains.language.config import (
    KLConfig,
    LanguageEvaluationConfig,
    LanguagePPOConfig,
    RewardConfig,
)
from proxima.domains.language.experience import shuffled
from proxima.domains.language.model import (
    REFERENCE,
    features,
    fresh_part,
    joined,
    numbers,
    score_completions,
)
from proxima.domains.language.reward_model import text_scores
from proxima.domains.language.samples import Experience, Rows

CONFIG = LanguagePPOConfig(
    batch_size=4,
    minibatch_size=2,
    new_tokens=4,
    learning_rate=1e-2,
    kl=KLConfig(coefficient=0.1, target=None),
)


@pytest.fixture(scope="module")
def samples(base, tokenizer):
    prompts = tiny.prompts(tokenizer.size, [2, 4, 3, 1])
    return Generator(base, tokenizer, 4).generate(REFERENCE, prompts, jax.random.key(0))


@pytest.fixture(scope="module")
def reward(tokenizer):
    config = RewardConfig(kind="function")
    return RewardComputer(
        config, function=lambda p, c: [float(len(text)) for text in c], tokenizer=tokenizer
    )


def test_the_package_is_cheap_to_import():
    told = "import sys, proxima.domains.language as l; print('jax' in sys.modules, dir(l) != [])"
    found = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["False", "True"]
    import proxima.domains.language as language

    with pytest.raises(AttributeError, match="no attribute 'Genrator'"):
        _ = language.Genrator


def test_a_rollout_by_hand(base, tokenizer, samples, reward):
    """The chain of the design: generate, attribute, reward, value, advantage, store, train."""
    from proxima.domains.language.learn import first_state

    state = first_state(CONFIG, base, tiny.LORA, 0)
    critic = tiny.moved(base, state.value, 0.3)
    score = jax.jit(score_completions)
    now = score(base, state.policy, samples.prompts, samples.completions, 1.0).log_probs
    then = score(base, REFERENCE, samples.prompts, samples.completions, 1.0).log_probs
    rewards = reward.compute_rewards(samples, now, then, beta=0.1)
    values = ValueAdder(base).add_values(critic, samples)
    mask = samples.completions.mask
    advantages = AdvantageComp().compute_advantages(rewards.rewards, values, mask)
    experience = Experience(
        samples.prompts,
        samples.completions,
        now,
        then,
        rewards.rewards,
        values,
        advantages.advantages,
        advantages.returns,
        rewards.scores,
    )
    pairs = TokenAttributor(tokenizer).extract_pairs(experience)
    assert len(pairs) == int(jnp.sum(mask))
    first = [pair for pair in pairs if pair.row == 1]
    prompt = np.asarray(samples.prompts.ids)[1][np.asarray(samples.prompts.mask)[1]]
    said = np.asarray(samples.completions.ids)[1][np.asarray(mask)[1]]
    assert first[0].state == tokenizer.decode(prompt)
    assert [pair.action for pair in first] == tokenizer.tokens(said)
    assert first[-1].state == tokenizer.decode([*prompt, *said[:-1]])
    assert first[0].kl == pytest.approx(first[0].logprob_policy - first[0].logprob_ref)
    assert [pair.value for pair in first] == pytest.approx(values[1][mask[1]].tolist())
    assert [pair.advantage for pair in first] == pytest.approx(
        experience.advantages[1][mask[1]].tolist()
    )
    buffer = ExperienceBuffer(4)
    buffer.store(experience)
    trainer = ModelTrainer(base, CONFIG)
    for minibatch in buffer.minibatches(jax.random.key(1), 2):
        state, seen = trainer.train_step(state, minibatch)
        assert np.isfinite(float(seen.policy_loss)) and float(seen.value_loss) > 0
    assert int(state.policy_optimizer.count) == 2


def test_values_are_those_before_each_token(base, samples):
    critic = tiny.moved(base, fresh_part(jax.random.key(0), base, tiny.LORA, head=True), 0.3)
    found = ValueAdder(base).add_values(critic, samples)
    width = samples.prompts.ids.shape[1]
    h = jax.jit(features)(base, critic, joined(samples.prompts, samples.completions))
    everywhere = np.asarray(numbers(critic, h))
    for row in range(4):
        for step in range(int(samples.completions.mask[row].sum())):
            assert found[row, step] == pytest.approx(everywhere[row, width + step - 1], abs=1e-5)
    # what is said after a token does not change the value before it
    changed = samples.completions.ids.at[:, -1].set(5)
    other = samples._replace(completions=Rows(changed, samples.completions.mask))
    np.testing.assert_allclose(ValueAdder(base).add_values(critic, other), found, atol=1e-5)
    assert not ValueAdder(base).add_values(None, samples).any()


def rollout(rows: int, start: int = 0, before: int = 2, after: int = 3) -> Experience:
    marks = jnp.arange(start, start + rows, dtype=jnp.float32)
    wide = jnp.broadcast_to(marks[:, None], (rows, after))
    ids = jnp.broadcast_to(marks[:, None].astype(jnp.int32), (rows, before))
    prompts = Rows(ids, jnp.ones((rows, before), bool))
    completions = Rows(wide.astype(jnp.int32), jnp.ones((rows, after), bool))
    return Experience(prompts, completions, wide, wide, wide, wide, wide, wide, marks)


def test_minibatches_hold_every_row_once_in_fresh_orders():
    buffer = ExperienceBuffer(8)
    buffer.store(rollout(8))
    orders = []
    for seed in range(3):
        batches = list(buffer.minibatches(jax.random.key(seed), 4))
        assert all(each.scores.shape == (2,) for each in batches)
        for each in batches:  # rows stay whole
            assert each.rewards[:, 0].tolist() == each.scores.tolist()
            assert each.prompts.ids[:, 0].tolist() == each.scores.tolist()
        order = [score for each in batches for score in each.scores.tolist()]
        assert sorted(order) == list(range(8))
        orders.append(order)
    assert orders[0] != orders[1] != orders[2]
    assert orders[0] == shuffled(rollout(8), jax.random.key(0), 4).scores.ravel().tolist()


def test_the_buffer_is_bounded_and_joins_other_widths():
    buffer = ExperienceBuffer(5)
    buffer.store(rollout(3))
    buffer.store(rollout(2, start=3, before=4, after=5))
    (all_of_them,) = buffer.minibatches(jax.random.key(0), 1)
    order = np.argsort(all_of_them.scores)
    masks = np.asarray(all_of_them.completions.mask)[order]
    assert masks.sum(axis=1).tolist() == [3, 3, 3, 5, 5] and masks[0].tolist()[:3] == [True] * 3
    assert np.asarray(all_of_them.prompts.mask)[order][0].tolist() == [False, False, True, True]
    buffer.store(rollout(4, start=5))
    assert len(buffer) == 4  # whole rollouts leave
    buffer.store(rollout(9, start=9))
    assert len(buffer) == 5
    (last,) = buffer.minibatches(jax.random.key(0), 1)
    assert sorted(last.scores.tolist()) == [13, 14, 15, 16, 17]
    with pytest.raises(ProximaError, match="5 completions do not make 2 minibatches"):
        next(buffer.minibatches(jax.random.key(0), 2))
    buffer.clear()
    assert len(buffer) == 0


def test_the_trainer_refuses_what_it_cannot_do(base, tokenizer, reward):
    config = LanguagePPOConfig(batch_size=4, minibatch_size=2, new_tokens=4)
    trainer = PPOTrainer(base, tokenizer, reward, config)
    state = None  # nobody gets as far as asking it
    with pytest.raises(ProximaError, match="prompts: there are none"):
        trainer.sample([], state)
    with pytest.raises(ProximaError, match=r"prompts\[0\]: has 61 tokens, and with 4 new ones"):
        trainer.sample([[5] * 61], state)
    with pytest.raises(ProximaError, match="num_epochs: 0"):
        trainer.train(["a film"], num_epochs=0)
    with pytest.raises(ProximaError, match=r"texts\[0\]: has 65 tokens, more than .* 64"):
        text_scores(base, fresh_part(jax.random.key(0), base, None, head=True), [[5] * 65])


def test_the_trainer_trains_evaluates_and_goes_on(base, tokenizer, reward):
    prompts = ["a good film", "the actors", "not bad", "a film", "good", "bad actors"]
    evaluator = Evaluator(
        Generator(base, tokenizer, 4),
        reward,
        None,
        LanguageEvaluationConfig(prompts=2),
        tokenizer.encode(prompts[:2]),
        tokenizer,
        0,
    )

    def trainer():
        return PPOTrainer(
            base, tokenizer, reward, CONFIG, tiny.LORA, evaluator=evaluator, evaluate_every=2
        )

    told = []
    results = trainer().train(prompts, 2, report=lambda n, metrics: told.append(n))
    assert told == [1, 2, 3] and len(results.history) == 3  # twice six prompts, four at a time
    assert "eval/reward" in results.history[1] and "eval/reward" in results.history[2]
    assert "eval/reward" not in results.history[0]
    assert int(results.state.updates) == 3
    pairs = trainer().pairs(prompts[:4], results.state)
    assert {pair.row for pair in pairs} == {0, 1, 2, 3}
    assert any(pair.advantage != 0 for pair in pairs)
    further = trainer().train(prompts, 4, state=results.state)
    assert int(further.state.updates) == 6 and len(further.history) == 3

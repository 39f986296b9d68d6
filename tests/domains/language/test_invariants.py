"""What must hold whatever the model: on tiny decoders of every family, with LoRA and with all weights."""

from dataclasses import replace

import families
import jax
import jax.numpy as jnp
import language_tiny as tiny
import numpy as np
import pytest

from proxima.domains.language.config import KLConfig, LanguagePPOConfig, RewardConfig
from proxima.domains.language.generate import Generator
from proxima.domains.language.model import REFERENCE, Part, merged_decoder, score_completions
from proxima.domains.language.ppo import ppo_stage
from proxima.domains.language.rewards import RewardComputer
from proxima.domains.language.samples import Rows, Samples
from proxima.domains.language.tokenizer import left_padded

CONFIG = LanguagePPOConfig(
    updates=2,
    batch_size=8,
    minibatch_size=4,
    new_tokens=4,
    learning_rate=0.0,
    kl=KLConfig(coefficient=0.1, target=None),
)


@pytest.fixture(scope="module")
def tokenizer():
    return tiny.tokenizer()


def stage_of(base, tokenizer, config, lora):
    reward = RewardComputer(
        RewardConfig(kind="function"),
        function=lambda prompts, texts: [float(len(text)) for text in texts],
        tokenizer=tokenizer,
    )
    prompts = tiny.prompts(tokenizer.size, [2, 4, 3, 5, 1, 3, 2, 4])
    return ppo_stage(config, reward, base, lora, prompts, tokenizer, 0)


@pytest.mark.parametrize("family", families.SHAPES)
def test_with_no_learning_rate_nothing_moves_at_any_temperature(family, tokenizer):
    base = families.decoder_of(family)
    lora = tiny.LORA if family != "gpt2" else None
    for temperature in (1.0, 0.6, 1.8):
        stage = stage_of(base, tokenizer, replace(CONFIG, temperature=temperature), lora)
        state = stage.init()
        for n in range(2):
            state, metrics = stage.update(state, n)
            assert metrics["train/first_ratio_gap"] < 1e-5
            assert metrics["train/approx_kl"] < 1e-9 and metrics["train/clip_fraction"] == 0
            assert abs(metrics["train/kl"]) < 2e-5
            assert metrics["train/log_prob_gap"] < 1e-4
            assert metrics["train/optimizer_steps"] == 4


@pytest.mark.parametrize("family", families.SHAPES)
def test_padding_and_mates_change_no_log_prob(family, tokenizer):
    base = families.decoder_of(family)
    policy = tiny.policy_of(base)
    prompts = tiny.prompts(tokenizer.size, [2, 4, 3])
    made = Generator(base, tokenizer, 4).generate(policy, prompts, jax.random.key(0))
    score = jax.jit(score_completions)

    def log_probs(rows, some=slice(None)):
        completions = Rows(made.completions.ids[some], made.completions.mask[some])
        return score(base, policy, rows, completions, 0.7).log_probs

    expected = log_probs(made.prompts)
    wider = log_probs(left_padded(prompts, 17, 13))
    alone = log_probs(left_padded(prompts[:1], 0, 8), slice(0, 1))
    np.testing.assert_allclose(wider, expected, atol=2e-5)
    np.testing.assert_allclose(alone, expected[:1], atol=2e-5)


def test_adapters_merged_are_adapters_applied(tokenizer):
    base = families.decoder_of("qwen2")
    policy = tiny.policy_of(base)
    merged = Part(decoder=merged_decoder(base, policy))
    generator = Generator(base, tokenizer, 4)
    prompts = tiny.prompts(tokenizer.size, [2, 4, 3])
    made, same = (generator.generate(each, prompts, jax.random.key(0)) for each in (policy, merged))
    assert made.completions.ids.tolist() == same.completions.ids.tolist()
    scored = [
        jax.jit(score_completions)(base, each, made.prompts, made.completions, 1.0).log_probs
        for each in (policy, merged, REFERENCE)
    ]
    np.testing.assert_allclose(scored[0], scored[1], atol=1e-4)
    assert np.max(np.abs(scored[0] - scored[2])) > 1e-2


def test_weights_in_bfloat16_give_log_probs_in_float32(tokenizer):
    base = families.decoder_of("llama", "bfloat16")
    policy = tiny.policy_of(base)
    made: Samples = Generator(base, tokenizer, 4).generate(policy, [[5, 6]], jax.random.key(0))
    scored = jax.jit(score_completions)(base, policy, made.prompts, made.completions, 1.0)
    assert made.log_probs.dtype == scored.log_probs.dtype == jnp.float32
    # two programs round to eight bits in different places
    np.testing.assert_allclose(made.log_probs, scored.log_probs, atol=0.1)
    stage = stage_of(base, tokenizer, replace(CONFIG, learning_rate=1e-3), tiny.LORA)
    _, metrics = stage.update(stage.init(), 0)
    assert np.isfinite(metrics["loss/policy"]) and metrics["train/grad_norm"] > 0

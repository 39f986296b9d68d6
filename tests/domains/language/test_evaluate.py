"""Evaluation of policies: what each figure means, that nothing but the policy changes it, and alarms."""

import json
import re
from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tokenizers

from proxima.core.errors import ProximaError
from proxima.domains.language import evaluate
from proxima.domains.language.alarms import alarms, new_alarms, observe_patience, sounding
from proxima.domains.language.config import AlarmConfig, LanguageEvaluationConfig, RewardConfig
from proxima.domains.language.evaluate import Evaluator, distinct, figures
from proxima.domains.language.generate import Generator
from proxima.domains.language.model import (
    REFERENCE,
    Part,
    fresh_part,
    score_completions,
)
from proxima.domains.language.rewards import RewardComputer
from proxima.domains.language.samples import Experience
from proxima.domains.language.stages import DPO, PPO
from proxima.domains.language.tokenizer import Tokenizer, train_tokenizer, unpadded
from proxima.nets.lora import LoraConfig
from proxima.nets.transformer import DecoderConfig, new_decoder
from proxima.train.convergence import Convergence

TEXTS = ["the film is good", "the film is bad", "a very good film", "not a very bad film"] * 5
PROMPTS = ["the film", "a very", "not", "the", "a very good", "bad film is"]
SIZES = dict(width=16, layers=2, heads=2, kv_heads=2, head_width=8, inner=24, context=32)


def letters(prompts, completions):
    """A reward that is the number of letters."""
    return [float(len(text)) for text in completions]


class Setting:
    """A tiny model, its tokenizer, and a policy that has moved away from it."""

    def __init__(self):
        learnt = train_tokenizer(TEXTS, 290)
        core = tokenizers.Tokenizer.from_str(learnt.serialized())
        ends = (learnt.eos_id, *range(100, 150))  # so many that some completions end
        self.tokenizer = Tokenizer(core, ends, learnt.pad_id, learnt.bos_id)
        config = DecoderConfig(vocabulary=self.tokenizer.size, **SIZES)
        blank = new_decoder(jax.random.key(0), config, "float32")
        # a new model finds all words about equally likely; this one has opinions
        self.base = eqx.tree_at(lambda decoder: decoder.embedding, blank, 20 * blank.embedding)
        fresh = fresh_part(jax.random.key(1), self.base, LoraConfig(rank=2))
        self.same = fresh
        noise = jax.random.normal
        self.moved = Part(
            adapters=jax.tree.map(
                lambda leaf: leaf + noise(jax.random.key(2), leaf.shape), fresh.adapters
            )
        )
        self.prompts = self.tokenizer.encode(PROMPTS)
        self.judged = []

    def judge(self, texts):
        self.judged.append(list(texts))
        return np.array([len(text) for text in texts], float)

    def evaluator(self, temperature=1.0, judge=True, seed=0, **settings):
        generator = Generator(self.base, self.tokenizer, 6, temperature)
        config = LanguageEvaluationConfig(**({"prompts": 6, "samples": 3} | settings))
        asked = self.judge if judge else None
        return Evaluator(
            generator, self.reward(), asked, config, self.prompts, self.tokenizer, seed
        )

    def reward(self):
        config = RewardConfig(kind="function")
        return RewardComputer(config, function=letters, tokenizer=self.tokenizer)


@pytest.fixture(scope="module")
def setting():
    return Setting()


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_a_policy_that_is_the_reference_has_no_kl(setting, temperature):
    found = setting.evaluator(temperature).evaluate(setting.same)
    assert found["eval/kl"] == pytest.approx(0.0, abs=1e-5)
    assert found == pytest.approx(setting.evaluator(temperature).evaluate(REFERENCE), abs=1e-5)


def test_evaluation_is_the_same_every_time_and_another_with_another_seed(setting):
    one, other = setting.evaluator(), setting.evaluator()
    one.evaluate(setting.same)
    assert one.evaluate(setting.moved) == other.evaluate(setting.moved)
    assert (
        one.measure(setting.moved).texts != setting.evaluator(seed=1).measure(setting.moved).texts
    )


@pytest.mark.parametrize("temperature", [1.0, 1.7])
def test_figures_are_what_they_say(setting, temperature):
    evaluator = setting.evaluator(temperature)
    measured = evaluator.measure(setting.moved)
    found = figures(measured)
    samples = measured.samples
    assert 0 < np.mean(samples.ended) < 1
    score = jax.jit(score_completions)
    scored = [
        score(setting.base, part, samples.prompts, samples.completions, temperature)
        for part in (setting.moved, REFERENCE)
    ]
    mask = np.asarray(samples.completions.mask)
    sums, entropies, tokens = [], [], []
    for row in range(len(PROMPTS)):
        ids = np.asarray(samples.completions.ids)[row][mask[row]].tolist()
        sums.append(
            sum(
                float(scored[0].log_probs[row, i] - scored[1].log_probs[row, i])
                for i in range(len(ids))
            )
        )
        entropies += [float(scored[0].entropies[row, i]) for i in range(len(ids))]
        assert (ids[-1] in setting.tokenizer.eos_ids) == bool(samples.ended[row])
        tokens.append(ids[:-1] if samples.ended[row] else ids)
    pairs = [pair for ids in tokens for pair in pairwise(ids)]
    assert found["eval/kl"] == pytest.approx(np.mean(sums), rel=1e-4) and found["eval/kl"] > 0.05
    assert found["eval/entropy"] == pytest.approx(np.mean(entropies), rel=1e-4)
    assert found["eval/length"] == pytest.approx(mask.sum(axis=1).mean())
    # the plain score: one penalty fewer than training sees for each that did not end
    assert found["eval/reward"] == found["eval/judge"]
    assert found["eval/eos_rate"] == pytest.approx(np.mean(samples.ended))
    assert found["eval/distinct_2"] == pytest.approx(len(set(pairs)) / len(pairs))
    assert found["eval/judge"] == pytest.approx(np.mean([len(text) for text in measured.texts]))
    spread = np.std(measured.reward, ddof=1) / np.sqrt(len(PROMPTS))
    assert found["eval/reward_error"] == pytest.approx(spread)
    # drawn from the policy itself: what generation says of them is what scoring says
    np.testing.assert_allclose(samples.log_probs, scored[0].log_probs, atol=1e-4)


def test_the_judge_reads_the_completion_alone(setting):
    evaluator = setting.evaluator()
    setting.judged.clear()
    measured = evaluator.measure(setting.moved)
    completions = unpadded(measured.samples.completions)
    assert setting.judged == [[setting.tokenizer.decode(ids) for ids in completions]]


def test_without_a_judge_there_is_no_opinion(setting):
    evaluator = setting.evaluator(judge=False)
    assert "eval/judge" not in evaluator.evaluate(setting.same)
    assert "judge" not in evaluator.measure(setting.same).by_prompt()
    assert evaluator.samples(setting.same)[0]["after"]["judge"] is None


def test_rows_at_a_time_change_nothing(setting, monkeypatch):
    whole = setting.evaluator().measure(setting.moved)
    monkeypatch.setattr(evaluate, "MOST_LOGITS", 4 * 6 * setting.tokenizer.size)  # 4 of 6 rows
    parts = setting.evaluator().measure(setting.moved)
    assert parts.log_probs.shape == whole.log_probs.shape
    np.testing.assert_allclose(parts.log_probs, whole.log_probs, atol=1e-5)
    np.testing.assert_allclose(parts.entropy, whole.entropy, atol=1e-5)


def test_samples_tell_before_and_after_token_by_token(setting):
    evaluator = setting.evaluator()

    def learnt(samples):
        """Experience whose numbers are the tokens' places."""
        found = evaluator.measure(setting.moved)
        shape = samples.completions.ids.shape
        places = jnp.arange(shape[0] * shape[1], dtype=jnp.float32).reshape(shape)
        rest = {name: places for name in Experience._fields} | {"advantages": -places}
        rest |= {"log_probs": found.log_probs, "reference_log_probs": found.reference_log_probs}
        both = {"prompts": samples.prompts, "completions": samples.completions}
        return Experience(**rest | both)

    rows = evaluator.samples(setting.moved, learnt)
    assert rows == json.loads(json.dumps(rows))
    before, after = evaluator.reference(), evaluator.measure(setting.moved)
    assert [row["prompt"] for row in rows] == PROMPTS[:3]
    assert [row["before"]["text"] for row in rows] == before.texts[:3]
    for place, row in enumerate(rows):
        tokens = row["after"]["tokens"]
        assert len(tokens) == after.length[place]
        assert row["after"]["kl"] == pytest.approx(sum(token["kl"] for token in tokens))
        ids = unpadded(after.samples.completions)[place]
        assert [token["action"] for token in tokens] == setting.tokenizer.tokens(ids)
        assert [token["value"] for token in tokens] == [6.0 * place + i for i in range(len(tokens))]
        assert [token["advantage"] for token in tokens] == [-each["value"] for each in tokens]
    plain = evaluator.samples(setting.moved)
    assert plain[0]["after"]["tokens"][0]["advantage"] is None


def test_before_and_after_can_be_paired(setting):
    found = setting.evaluator().measure(setting.moved).by_prompt()
    assert set(found) == {"reward", "judge", "kl", "entropy", "length", "ended"}
    assert {len(values) for values in found.values()} == {len(PROMPTS)}


def test_too_few_prompts_are_refused(setting):
    generator = Generator(setting.base, setting.tokenizer, 6)
    config = LanguageEvaluationConfig()
    with pytest.raises(ProximaError, match=r"1 held-out prompt.*data\.held_out"):
        Evaluator(
            generator, setting.reward(), None, config, setting.prompts[:1], setting.tokenizer, 0
        )


def test_distinct():
    assert distinct([[1, 2, 1, 2]], 1) == 0.5
    assert distinct([[1, 2, 1, 2]], 2) == pytest.approx(2 / 3)
    assert distinct([[1, 2], [1, 2]], 2) == 0.5  # no pair across texts
    assert distinct([[], [3]], 2) == 1.0


def row(step, **figures):
    whole = {"reward": 0.0, "judge": 0.2, "kl": 0.0, "eos_rate": 0.4, "distinct_2": 0.8}
    return {"step": step} | {f"eval/{name}": value for name, value in (whole | figures).items()}


START = row(0)
GOOD = [START] + [
    row(10 * i, reward=0.3 * i, judge=0.2 + 0.03 * i, kl=i, eos_rate=0.9) for i in range(1, 6)
]


def kinds(history, **settings):
    return [alarm.kind for alarm in alarms(history, AlarmConfig(**settings))]


def test_a_good_run_sounds_no_alarm():
    assert kinds(GOOD) == [] and kinds([]) == [] and kinds([START]) == []


@pytest.mark.parametrize(
    ("kind", "figures", "words"),
    [
        ("kl", {"kl": 10.5}, "10.5 nats.*budget is 10"),
        (
            "hacking",
            {"reward": 2.0, "judge": 0.1},
            "rose from 0.00 to 2.00.*fell from 0.20 to 0.10",
        ),
        ("repetition", {"distinct_2": 0.39}, "39 % are different, 80 % at the start"),
        ("endings", {"eos_rate": 0.15}, "15 % do, 40 % at the start"),
    ],
)
def test_each_alarm(kind, figures, words):
    (alarm,) = sounding([START, row(10, **figures)], AlarmConfig())
    assert alarm.kind == kind and alarm.step == 10
    assert re.search(words, alarm.text)
    assert re.search("Raise|Read", alarm.text)  # what to do


def test_remedies_are_those_of_the_stage_that_trains_the_policy():
    history = [{"eval/kl": 0.0, "eval/eos_rate": 0.5}, {"eval/kl": 11.0, "eval/eos_rate": 0.1}]
    ppo, dpo = (sounding(history, AlarmConfig(), stage.remedies) for stage in (PPO, DPO))
    assert [alarm.kind for alarm in ppo] == [alarm.kind for alarm in dpo] == ["kl", "endings"]
    assert "Raise kl.coefficient or lower kl.target, or" in ppo[0].text
    assert "Raise reward.missing_eos_penalty, or" in ppo[1].text
    assert "Raise dpo.beta or lower dpo.learning_rate, or" in dpo[0].text
    assert "Raise dpo.beta or lower dpo.learning_rate, or allow" in dpo[1].text


def test_alarms_have_bounds():
    edge = row(10, kl=10.0, distinct_2=0.4, eos_rate=0.2, reward=1.0, judge=0.19)
    assert kinds([START, edge]) == []
    assert kinds([START, row(10, eos_rate=0.0)], endings=0.0) == []
    seldom = [row(0, eos_rate=0.05), row(10, eos_rate=0.0)]
    assert kinds(seldom) == []  # never ended, so it did not stop to


def test_a_judge_that_falls_with_the_reward_is_no_hacking():
    assert kinds([START, row(10, reward=-1.0, judge=-0.5)]) == []


def test_the_judge_is_compared_with_its_best():
    risen = row(10, reward=1.0, judge=0.5)
    assert kinds([START, risen, row(20, reward=2.0, judge=0.3)]) == ["hacking"]
    assert kinds([START, risen, row(20, reward=0.9, judge=0.3)]) == []


def test_what_chance_can_do_is_no_alarm():
    def pair(reward, judge, reward_error=0.1, judge_error=0.04):
        errors = {"eval/reward_error": reward_error, "eval/judge_error": judge_error}
        return [each | errors for each in (START, row(10, reward=reward, judge=judge))]

    assert kinds(pair(1.0, 0.05)) == ["hacking"]
    assert kinds(pair(1.0, 0.12)) == []  # the judge fell by less than two errors of a difference
    assert kinds(pair(0.2, 0.05)) == []  # the reward rose by less
    assert kinds(pair(0.2, 0.12, 0.0, 0.0)) == ["hacking"]


def test_an_alarm_is_told_once_when_it_starts():
    history = [START, row(10, kl=12.0), row(20, kl=20.0, distinct_2=0.1), row(30)]
    told = [[a.kind for a in new_alarms(history[:n], AlarmConfig())] for n in range(1, 5)]
    assert told == [[], ["kl"], ["repetition"], []]
    assert [(a.kind, a.step) for a in alarms(history, AlarmConfig())] == [
        ("kl", 10),
        ("repetition", 20),
    ]


def test_missing_and_broken_figures_sound_nothing():
    history = [{"step": 0}, {"step": 10, "eval/kl": None, "eval/judge": float("nan")}]
    assert kinds(history) == []


def test_converged_after_so_many_without_a_better_reward():
    def memory_of(*rewards):
        memory = Convergence()
        for step, reward in enumerate(rewards):
            memory = observe_patience(memory, reward, step, patience=2)
        return memory

    def of(*rewards):
        return memory_of(*rewards).converged

    assert not of() and not of(1.0, 0.5) and not of(0.0, 0.5, 1.0)
    assert of(1.0, 0.5, 0.9) and of(0.0, 1.0, 0.5, 1.0) and not of(0.0, 1.0, 0.5, 1.1)
    assert memory_of(1.0, 0.5, 0.9, 0.8).reached_at_step == 2

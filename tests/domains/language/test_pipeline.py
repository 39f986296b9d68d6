"""Before the first stage trains, everything that a later one reads is looked at."""

import polars as pl
import pytest
from texts import TINY, write_texts

import proxima
from proxima.core.errors import ProximaError
from proxima.domains.language.domain import prepare
from proxima.scenario import load

FUNCTION = {"reward_model": None, "reward.kind": "function"}
TEXTS = ["the film was great", "the story was dull", "a warm ending", "an awful cast"] * 3
PROMPTS = {"prompt": [f"say {i}" for i in range(12)]}


def table(path, **columns):
    pl.DataFrame(columns).write_parquet(path)


def short_prompts(root):
    table(root / "texts.parquet", text=TEXTS, rating=list(range(12)))
    return {"data.prompt_tokens": 9}


def no_pairs(root):
    table(root / "texts.parquet", text=TEXTS, rating=[1.0] * 12)
    return {}


def no_ratings(root):
    table(root / "texts.parquet", text=TEXTS)
    return {}


def long_prompt(root):
    prompts = [*PROMPTS["prompt"][:11], "word " * 30]
    table(root / "texts.parquet", text=TEXTS, rating=list(range(12)), prompt=prompts)
    return {}


def one_held_out(root):
    table(root / "texts.parquet", text=TEXTS[:4], rating=[1.0, 5.0, 9.0, 3.0])
    return {"reward_model": None, "reward.kind": "function", "reward.function": "texts.good_words"}


def damaged_folder(root):
    (root / "reward").mkdir()
    (root / "reward" / "reward_model.json").write_text('{"mean": 0.0, "std": 1.0}')
    return {"reward_model": None, "reward.path": "reward"}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"evaluation.judge": "vader"}, "vader_lexicon.parquet: no such file"),
        ({"evaluation.judge": "no_module.judge"}, "evaluation.judge: cannot import no_module"),
        ({"evaluation.judge": "texts.good_words"}, "evaluation.judge texts.good_words: .*one list"),
        (FUNCTION | {"reward.function": "texts:nothing"}, "reward.function: texts has no function"),
        (FUNCTION | {"reward.function": "texts.judge"}, "reward.function texts.judge: .*two lists"),
        ({"reward_model": None, "reward.path": "nowhere"}, "'nowhere': no such folder"),
        (damaged_folder, r"reward.*config\.json"),
        (short_prompts, r"longer than data\.prompt_tokens \(9\)"),
        (no_pairs, "no two ratings differ"),
        (no_ratings, "the reward model needs columns text and rating"),
        (long_prompt, "row 12: a prompt of .* tokens"),
        (one_held_out, r"1 held-out prompt\(s\), at least 2"),
        ({"model.mesh.data": 3}, "model.mesh"),
    ],
)
def test_nothing_is_trained_before_all_is_there(settings, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_texts(tmp_path)
    settings = settings if isinstance(settings, dict) else settings(tmp_path)
    with pytest.raises(ProximaError, match=words):
        prepare(load("movie_critic", TINY | settings))


DPO = {key: value for key, value in TINY.items() if not key.startswith(("ppo.", "reward_model."))}
DPO |= {"reward_model": None, "dpo.new_tokens": 6}


def long_prompts(root):
    pairs = {"chosen": ["good"] * 12, "rejected": ["bad"] * 12}
    table(root / "texts.parquet", prompt=[*PROMPTS["prompt"][:11], "word " * 30], **pairs)
    return {}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (no_pairs, r"dpo\.rating_gap: 1, and no two ratings differ"),
        (
            no_ratings,
            "data: dpo needs pairs: columns prompt, chosen and rejected, or text and rating",
        ),
        (long_prompts, r"row 12: a prompt of .* or dpo\.new_tokens"),
        ({"evaluation.judge": "no_module.judge"}, "evaluation.judge: cannot import no_module"),
    ],
)
def test_dpo_too_is_refused_before_anything_is_trained(settings, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_texts(tmp_path)
    settings = settings if isinstance(settings, dict) else settings(tmp_path)
    with pytest.raises(ProximaError, match=words):
        prepare(load("movie_critic_dpo", DPO | settings))


def test_a_run_that_lacks_its_judge_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_texts(tmp_path)
    with pytest.raises(ProximaError, match="vader_lexicon"):
        proxima.run_multiple_experiments(load("movie_critic", TINY | {"evaluation.judge": "vader"}))
    assert not (tmp_path / "logs").exists()

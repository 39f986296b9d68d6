"""Runs of DPO end to end on a tiny budget: files, pages, exact resume, no number for a loss, given pairs."""

import json
import runpy
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from resume import check_same
from texts import BAD, GOOD, TINY, write_texts
from tiny import run_main

import proxima
from proxima.domains.language.samples_page import report_trial
from proxima.run.display import silent
from proxima.run.files import read_rows
from proxima.run.report import compare_references
from proxima.scenario import load

FEW = {key: value for key, value in TINY.items() if not key.startswith(("ppo.", "reward_model."))}
FEW |= {
    "reward_model": None,
    "dpo.updates": 4,
    "dpo.batch_size": 8,
    "dpo.held_out_pairs": 16,
    "dpo.learning_rate": 5e-3,
    "dpo.new_tokens": 6,
}
REWARD = {"reward.kind": "function", "reward.function": "texts.good_words"}


class Stop(Exception):
    """What the process died of."""


def run(directory, callback=None, said=None, **more):
    write_texts(directory)
    display = silent()._replace(say=(said if said is not None else []).append)
    scenario = load("movie_critic_dpo", FEW | more)
    return proxima.run_multiple_experiments(scenario, callback=callback, display=display)


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """SFT and DPO alone, measured by the judge, in a directory of its own."""
    directory = tmp_path_factory.mktemp("judged")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)
        summary = run(directory)
    return summary, directory


def test_without_a_reward_the_judge_speaks_for_the_policy(judged):
    summary, directory = judged
    trial = directory / summary["paths"]["run"] / "trial_0"
    rows = read_rows(trial / "dpo" / "metrics.jsonl")
    assert [row["step"] for row in rows] == [0, 1, 2, 3, 4]
    assert rows[0]["eval/loss"] == pytest.approx(np.log(2.0), rel=1e-5)
    assert rows[0]["eval/kl"] == pytest.approx(0.0, abs=1e-4)
    for name in ("eval/accuracy", "eval/judge", "eval/kl", "eval/distinct_2"):
        assert name in rows[-1], name
    assert "eval/reward" not in rows[-1]
    assert rows[-1]["train/reward_margin"] > rows[1]["train/reward_margin"]
    (result,) = summary.trials
    assert list(result.stages) == ["sft", "dpo"] and result.algorithm == "dpo"
    assert result.evaluation.return_mean == pytest.approx(rows[-1]["eval/judge"], abs=1e-6)
    assert summary.metric == "judge's opinion on held-out prompts"
    assert "reward" not in result.details.gains and "judge" in result.details.gains
    for name in ("model", "reference"):
        assert (trial / name / "model.safetensors").exists()
    for name in ("dpo", "performance"):
        assert (trial / "dpo" / "plots" / f"{name}.png").exists()


def test_its_pages_say_what_it_is(judged, monkeypatch):
    summary, directory = judged
    monkeypatch.chdir(directory)
    page = Path(summary["paths"]["report"]).read_text()
    assert "On held-out prompts the judge went from" in page
    assert "Supervised fine-tuning, DPO" in page and "DPO: held-out pairs told apart" in page
    trial = Path(summary["paths"]["run"]) / "trial_0"
    written = report_trial(load("movie_critic_dpo", FEW), trial, Path("again.html"))
    assert "the model that DPO started from" in written.read_text()


@pytest.mark.parametrize("step", [0, 3])
def test_a_run_that_died_and_was_resumed_ends_bit_for_bit_alike(
    step, judged, tmp_path, monkeypatch
):
    summary, directory = judged
    monkeypatch.chdir(tmp_path)

    def dies(view):
        if (view["stage"], view["step"]) == ("dpo", step):
            raise Stop

    with pytest.raises(Stop):
        run(tmp_path, callback=dies)
    resumed = proxima.resume_experiment("movie_critic_dpo", display=silent())
    check_same(Path(resumed["paths"]["run"]), directory / summary["paths"]["run"])


def test_a_loss_that_is_no_number_ends_its_trial_with_its_last_good_state(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said: list[str] = []
    summary = run(tmp_path, said=said, **{"dpo.learning_rate": 1e30})
    assert any("A lower dpo.learning_rate or dpo.max_grad_norm" in words for words in said)
    assert summary.trials[0].stopped == "nan"


def test_given_pairs_with_lora_by_ipo_and_the_best_checkpoint(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    rows = {
        "prompt": [f"film {i}" for i in range(60)],
        "chosen": [f" was {rng.choice(GOOD)} ." for _ in range(60)],
        "rejected": [f" was {rng.choice(BAD)} ." for _ in range(60)],
    }
    scenario = load(
        "movie_critic_dpo",
        FEW
        | REWARD
        | {
            "data.path": "pairs.parquet",
            "lora.rank": 2,
            "dpo.loss": "ipo",
            "dpo.length_normalized": True,
            "evaluation.checkpoint": "best",
        },
    )
    pl.DataFrame(rows).write_parquet("pairs.parquet")
    summary = proxima.run_multiple_experiments(scenario, display=silent())
    (result,) = summary.trials
    assert result.stages["dpo"].first["loss"] == pytest.approx(25.0, rel=1e-3)
    assert result.stages["dpo"].last["loss"] < 25.0
    assert summary.metric == "reward on held-out prompts"
    trial = Path(summary["paths"]["run"]) / "trial_0"
    assert (trial / "adapter" / "adapter_config.json").exists()
    rows, _ = compare_references(["movie_critic_dpo", "movie_critic_dpo"], Path("both.png"))
    assert rows[0]["iqm"] == pytest.approx(result.evaluation.return_mean)
    asked = ["generate", "movie_critic_dpo", "--prompt", "the film", "--before", "--json"]
    assert len(json.loads(run_main(asked, capsys, monkeypatch).out)["before"]) == 1
    methods = runpy.run_path(str(Path(__file__).parents[3] / "benchmarks" / "language_methods.py"))
    text = methods["table"](methods["read_methods"](["movie_critic_dpo"], "logs"))
    assert "| SFT |" in text and "| IPO |" in text and "One trial (seed 0)" in text

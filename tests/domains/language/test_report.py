"""Pictures of language stages and the page of samples: what is said, escaped, and needed from outside."""

import json
from dataclasses import replace

import numpy as np
import pytest
from page_reader import read as read_page
from PIL import Image
from run_directories import info_of, stage_result, summary_of, trial_result

from proxima.core.errors import ProximaError
from proxima.domains.language.page import page
from proxima.domains.language.plots import (
    PERFORMANCE,
    _on_common_steps,
    performance,
    performance_figure,
    stage,
    trials_figure,
)
from proxima.domains.language.results import Gain, LanguageTrial
from proxima.domains.language.samples_page import SamplesData, gains, samples_page
from proxima.report.html import write_page
from proxima.report.page import RunData, report
from proxima.report.style import save
from proxima.run.files import RunFiles
from proxima.run.results import Aggregate, Alarm, Change

EVIL = """<script>alert("x")</script> & 'so on' \x00 \ud83d"""


def read(page):
    """Nothing stands between tokens: they are pieces of words."""
    return read_page(page, between="")


def metrics():
    rows = [
        {"step": 0, "eval/reward": 0.0, "eval/reward_error": 0.1, "eval/judge": 0.2, "eval/kl": 0.0}
    ]
    for step in range(1, 21):
        row = {"step": step, "train/score": 0.1 * step, "loss/policy": 0.01, "time/update": 0.5}
        if step % 10 == 0:
            row |= {"eval/reward": 0.1 * step, "eval/reward_error": 0.1, "eval/judge": 0.3}
            row |= {"eval/kl": float(step), "eval/eos_rate": 1.0, "eval/distinct_2": 0.5}
        rows.append(row)
    return rows


def token(action, kl=0.5, advantage: float | None = 1.0):
    numbers = {"logprob_policy": -1.0, "logprob_ref": -1.5, "kl": kl}
    return {"action": action, **numbers, "value": 0.25, "advantage": advantage}


def sample(tokens, prompt="The film is"):
    before = {"text": " dull", "ended": False, "reward": -0.5, "judge": None}
    after = {"text": "", "ended": True, "reward": 1.5, "judge": 0.75, "kl": 4.25, "tokens": tokens}
    return {"prompt": prompt, "before": before, "after": after}


def data(**changes):
    tokens = [token(" very"), token(" good", kl=-2.0), token("<eos>")]
    before = {"reward": [0.0, 1.0, 2.0, 1.0], "judge": [0.1] * 4, "ended": [0.0, 0.0, 1.0, 0.0]}
    after = {"reward": [1.0, 2.0, 3.0, 2.0], "judge": [0.3] * 4, "ended": [1.0, 1.0, 1.0, 0.0]}
    alarms = [{"kind": "kl", "text": "KL is over.", "step": 10}]
    about = ["run 1", "trial 0"]
    made = SamplesData("critic", about, [sample(tokens)], metrics(), before, after, alarms, 10.0)
    return made._replace(**changes)


def test_page_says_what_came_out():
    reader = read(samples_page(data()))
    assert "the reward went from 1 to 2 (+1, 95 % interval +1 … +1)" in reader.words
    assert "75 % of its completions end by themselves, 25 % did before" in reader.words
    assert "Since update 10: KL is over." in reader.words
    assert "The film is very good" in reader.words
    assert "reward 1.50 · judge 0.75 · KL 4.25" in reader.words
    assert "reward −0.50" in reader.words and "judge –" not in reader.words


def test_page_escapes_everything():
    row = sample([token(EVIL), token("b" + EVIL)], prompt=EVIL)
    row["before"]["text"] = EVIL
    alarms = [{"kind": "kl", "text": EVIL, "step": 1}]
    page = samples_page(data(title=EVIL, about=[EVIL], samples=[row], alarms=alarms))
    names = {name for name, _ in read(page).seen}
    assert "script" not in names and "alert" in page
    assert not any(name.startswith("on") for _, given in read(page).seen for name in given)


def test_page_needs_nothing_from_outside_and_writes_any_text(tmp_path):
    row = sample([token(EVIL)], prompt=EVIL)
    path = tmp_path / "deep" / "samples.html"
    write_page(path, samples_page(data(samples=[row])), "samples")
    reader = read(path.read_text(encoding="utf-8"))
    for _, given in reader.seen:
        for name in ("src", "href", "srcset"):
            assert given.get(name, "data:").startswith("data:")


def test_tokens_are_coloured_by_sign_and_size():
    tokens = [
        token("a", kl=2.0, advantage=-1.0),
        token("b", kl=-1.0, advantage=1.0),
        token("c", 0.0),
    ]
    seen = read(samples_page(data(samples=[sample([*tokens, token("end", 2.0)])]))).seen
    styles = [given["style"] for name, given in seen if given.get("class") == "token"]
    assert len(styles) == 3  # the last token is the ending, drawn as one
    assert "--kl: rgba(0, 114, 178, calc(1.00" in styles[0]
    assert "--advantage: rgba(213, 94, 0, calc(1.00" in styles[0]
    assert "--kl: rgba(213, 94, 0, calc(0.50" in styles[1]
    assert "calc(0.00" in styles[2].partition(";")[0]


def test_no_switch_where_no_advantage_is_known():
    rows = [sample([token("a", advantage=None), token("b", advantage=None)])]
    ids = {given.get("id") for _, given in read(samples_page(data(samples=rows))).seen}
    assert "kl" in ids and "advantage" not in ids


def test_an_unevaluated_run_has_a_page():
    page = samples_page(data(samples=[], metrics=[], before={}, after={}, alarms=[]))
    assert "not been evaluated" in read(page).words


def test_page_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ProximaError, match="cannot write the samples there"):
        write_page(tmp_path / "file" / "samples.html", samples_page(data()), "samples")


def test_gains_are_paired():
    rng = np.random.default_rng(0)
    level = 10 * rng.normal(size=200)
    found = gains({"reward": level}, {"reward": level + 1 + 0.1 * rng.normal(size=200)})["reward"]
    assert found["gain"] == pytest.approx(1.0, abs=0.05)
    assert 0.9 < found["low"] < found["gain"] < found["high"] < 1.1
    assert gains({"reward": [1.0]}, {"judge": [1.0]}) == {}


def test_pictures_are_drawn(tmp_path):
    performance(tmp_path / "performance.png", metrics(), {"kl": 10, "hacking": 20}, 10.0)
    stage(tmp_path / "stage.png", metrics(), "PPO")
    for name in ("performance", "stage"):
        with Image.open(tmp_path / f"{name}.png") as image:
            assert image.width == 1200 and len(np.unique(image.convert("L"))) > 10


def words_of(figure):
    return [text.get_text() for text in figure.texts]


def test_alarms_are_marked_in_the_panels_they_are_about():
    words = words_of(performance_figure(metrics(), {"kl": 10, "hacking": 20}, 10.0))
    assert words.count("alarm") == 3  # KL; reward and judge
    caption = " ".join(words[0].split())
    assert "KL over its budget at update 10; reward up, judge down at update 20" in caption


def test_only_what_was_recorded_has_a_panel():
    titles = {panel.title for panel in PERFORMANCE}
    shown = titles & set(words_of(performance_figure(metrics(), {}, None)))
    pairs = {"pairs told apart", "margin of pairs"}  # of DPO
    assert shown == titles - {"tokens per completion", *pairs}
    rows = [{"step": 1, "train/accuracy": 0.5, "train/reward_margin": 0.0, "eval/judge": 0.1}]
    shown = titles & set(words_of(performance_figure(rows, {}, None)))
    assert shown == {"judge's opinion", *pairs}


@pytest.mark.parametrize(
    "rows", [[], [{"step": 0, "eval/reward": 1.0}], [{"step": 0, "eval/kl": None}]]
)
def test_pictures_of_next_to_nothing(tmp_path, rows):
    performance(tmp_path / "performance.png", rows, {})
    stage(tmp_path / "stage.png", rows, "SFT")


def middle(value, spread: float | None = 0.1):
    low, high = (None, None) if spread is None else (value - spread, value + spread)
    return Aggregate(iqm=value, low=low, high=high, n=1 if spread is None else 3, failed=0)


def over_budget(trial, step=10):
    return Alarm(kind="kl", text="KL is over.", step=step, trial=trial)


def language_trial(trial, **changes):
    gain = Gain(before=0.0, after=1.0, gain=1.0, low=0.5, high=1.5)
    gains = dict.fromkeys(("reward", "judge", "kl", "ended"), gain)
    ppo = {"updates": 20, "training_seconds": 12.0, "last": {"reward": 0.5 * trial}}
    usual = dict(
        domain="language",
        seed=7 + trial,
        details=LanguageTrial(gains=gains, alarms=(over_budget(trial),)),
        stages={
            "sft": stage_result(trial, stage="sft"),
            "ppo": stage_result(trial, stage="ppo", **ppo),
        },
    )
    return trial_result(trial, **(usual | changes))


def run_data(directory, trials=3, samples=None, rows=None, **changes):
    """A run whose median trial by reward is the second of three."""
    spread = 0.1 if trials > 1 else None
    figures = {
        name: Change(before=middle(0.25, spread), after=middle(1.5, spread))
        for name in ("sft/loss", "reward_model/accuracy", "ppo/reward", "ppo/judge", "ppo/kl")
    }
    results = [language_trial(k) for k in range(trials)]
    files = RunFiles(directory / "runs" / "20260101-000000-abcd")
    alarms = tuple(over_budget(k, 10 + k) for k in range(trials))
    summary = summary_of(files, results, scenario="critic", figures=figures, alarms=alarms)
    info = info_of(files, results, mlflow_run_id=None)
    written = [sample([token(" good"), token("<eos>")])] if samples is None else samples
    for trial in range(trials):
        (directory / f"trial_{trial}").mkdir()
        (directory / f"trial_{trial}" / "samples.json").write_text(json.dumps(written))
    made = RunData(
        summary=summary,
        info=info,
        scenario={
            "description": "what",
            "ppo": {},
            "evaluation": {"alarms": {"kl_budget": 10.0}},
        },
        scenario_text="a: 1",
        metrics=lambda trial, stage: metrics() if rows is None and stage == "ppo" else [],
        directory=directory,
        root="logs/critic",
        options="",
    )
    return made._replace(**changes)


def test_report_of_a_run(tmp_path):
    run = run_data(tmp_path)
    reader = read(report(run, page(run)))
    assert "the reward went from 0.25 to 1.50 [1.40, 1.60]" in reader.words
    assert "over 3 trials" in reader.words
    assert "Since update 10: (trials 0, 1, 2) KL is over." in reader.words
    assert reader.words.count("KL is over.") == 1
    assert "+1.00 [0.50, 1.50]" in reader.words and "The film is good" in reader.words
    assert "Of trial 1; every trial" in reader.words
    assert "150 %" in reader.words  # an accuracy, in per cent
    assert "Performance over updates" in reader.words
    assert "proxima generate 20260101-000000-abcd --prompt" in reader.words


def test_report_of_one_trial_has_no_intervals(tmp_path):
    run = run_data(tmp_path, 1)
    words = read(report(run, page(run))).words
    assert "0.25 to 1.50 and" in words and "over 1 trial" not in words


def test_report_of_256_trials_is_short(tmp_path):
    run = run_data(tmp_path, 256)
    made = report(run, page(run))
    assert len(made) < 500_000
    words = read(made).words
    assert "(trials 0, 1, 2, 3, 4, 5, 6 and 249 more) KL is over." in words
    shown = made[made.index("<h2>Trials</h2>") :]
    assert shown[: shown.index("<details>")].count("<tr>") == 4  # head, first and worst, …
    assert "All 256 trials" in words and "Of trial 127;" in words


def test_report_escapes_everything(tmp_path):
    row = sample([token(EVIL)], prompt=EVIL)
    run = run_data(tmp_path, samples=[row], scenario_text=EVIL, root=EVIL)
    made = report(run._replace(scenario=run.scenario | {"description": EVIL}), page(run))
    assert "script" not in {name for name, _ in read(made).seen} and "alert" in made


def test_report_of_a_run_without_ppo(tmp_path):
    run = run_data(tmp_path, 1, samples=[], rows=[])
    summary = replace(
        run.summary,
        figures={"sft/loss": Change(before=middle(5.0), after=middle(4.0))},
        trials=(language_trial(0, details=None, stages={"sft": stage_result(0, stage="sft")}),),
        alarms=(),
    )
    run = run._replace(summary=summary, scenario=run.scenario | {"ppo": None})
    words = read(report(run, page(run))).words
    assert "trains no policy" in words and "Supervised fine-tuning: loss" in words
    assert "Performance" not in words and "Samples" not in words


def measured(step, **figures):
    return {"step": step, **{f"eval/{name}": value for name, value in figures.items()}}


def test_the_mean_is_over_the_trials_that_were_measured():
    lines = [
        (np.array([0.0, 10.0]), np.array([1.0, 3.0])),
        (np.array([0.0, 10.0, 20.0]), np.array([3.0, 5.0, 7.0])),
    ]
    steps, values = _on_common_steps(lines)
    assert steps.tolist() == [0, 10, 20]
    assert np.nanmean(values, axis=0).tolist() == [2, 4, 7]


def test_many_trials_are_drawn_as_shades(tmp_path):
    trials = [[measured(s, reward=0.1 * s * k) for s in range(5)] for k in range(256)]
    figure = trials_figure(trials)
    assert "Shades" in words_of(figure)[0] and len(figure.patches) <= 1
    assert sum(type(artist).__name__ == "Polygon" for artist in figure.artists) == 2
    save(figure, tmp_path / "trials.png")
    assert (tmp_path / "trials.png").stat().st_size < 50_000


def test_trials_are_drawn_with_their_mean(tmp_path):
    figure = trials_figure([metrics(), metrics()[:11]], 10.0)
    assert "Thick: their mean" in words_of(figure)[0]
    save(figure, tmp_path / "trials.png")
    save(trials_figure([[]]), tmp_path / "nothing.png")

"""Whole trading runs on small budgets: what they say agrees with their files, and nothing leaks."""

import json
import math
from pathlib import Path

import jax
import numpy as np
import polars as pl
import pytest
from portfolio import by_hand
from tiny import SIZES, SMALL, budget, equal_bits, read, rows_of, run_main, tensors_of

import proxima
from proxima.cli.data import generate_for
from proxima.domains import judging
from proxima.domains.trading import metrics, walk_forward
from proxima.domains.trading.data import prepare_data
from proxima.domains.trading.market import SPLITS
from proxima.domains.trading.synthetic import generate
from proxima.run import session
from proxima.run.display import silent
from proxima.run.files import RunFiles
from proxima.run.read import load_scenario, read_summary
from proxima.run.results import Summary, to_json
from proxima.scenario import load
from proxima.track.tracker import no_tracker

REFERENCES = ("buy_and_hold", "momentum", "foresight", "model")
# Short episodes, so that it is often evaluated; four trials, one on each of the tests' devices.
OFTEN = ("env.max_steps_per_episode=32", "evaluation.eval_frequency=1")
FOUR = (*OFTEN, "trials=4", "seed=3")
FEE = 0.001
SHORT = (*OFTEN, "training.max_steps=640")


def go(name: str, *settings: str) -> tuple[Summary, Path]:
    """A small run's summary and directory."""
    summary = proxima.run_multiple_experiments(load(name, [*budget(name), *settings]))
    return summary, Path(summary["paths"]["run"]).resolve()


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A working directory with the prices that these tests trade."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("place"))
        for name in ("sine_wave", "sine_wave_ddpg", "mean_reversion"):
            generate_for(load(name, budget(name)))
        yield Path.cwd()


@pytest.fixture(scope="module", params=["sine_wave", "sine_wave_ddpg"])
def four(request, place):
    """Four trials of discrete or of continuous positions."""
    return go(request.param, *FOUR)


def rollouts(root: Path) -> dict[tuple[str, str], pl.DataFrame]:
    """What was recorded of every trial and reference, by its name and split."""
    found = {}
    for path in root.glob("rollouts/*.parquet"):
        name, _, split = path.stem.rpartition("_")
        found[name, split] = pl.read_parquet(path)
    for path in root.glob("trial_*/rollouts/*.parquet"):
        found[path.parent.parent.name, path.stem] = pl.read_parquet(path)
    return found


def sheet_of(summary: Summary, name: str, split: str) -> dict[str, float]:
    """What the summary says of a trial or a reference."""
    if name in REFERENCES:
        return summary["details"]["references"]["splits"][split][name]
    trial = int(name.removeprefix("trial_"))
    return summary["trials"][trial]["details"]["splits"][split]["agent"]


def values_by_hand(frame: pl.DataFrame, prices: pl.DataFrame) -> list[float]:
    """The portfolio's values, kept by hand from the recorded targets and the prices in the file."""
    times = prices["time"].dt.replace_time_zone(None)
    first = times.to_list().index(frame["time"][0])
    fills = prices["open"].to_list()[first + 1 : first + 2 + len(frame)]
    return by_hand(frame["target"].to_list(), fills, FEE)


def test_onlookers_see_the_equity_of_a_trials_newest_evaluation(four):
    _, root = four
    for trial in range(4):
        preview = read(root / f"trial_{trial}" / "preview.json")
        (chart,) = preview["charts"]
        (evaluated,) = [
            row["eval/return_mean"]
            for row in rows_of(root / f"trial_{trial}")
            if row["step"] == preview["step"]
        ]
        equity, held = chart["lines"]["equity"], chart["lines"]["buy and hold"]
        assert chart["title"] == "Equity on the validation split" and chart["x_is_time"]
        assert equity[0] == held[0] == 1.0 and math.log(equity[-1]) == pytest.approx(
            evaluated, abs=1e-4
        )
        frame = pl.read_parquet(root / "rollouts" / "buy_and_hold_validation.parquet")
        assert held[-1] == pytest.approx(frame["equity"][-1])
        assert len(chart["x"]) == len(equity) == len(held) <= 300
        assert chart["x"] == sorted(set(chart["x"]))
        assert chart["x"][0] == frame["time"][0].timestamp()


def test_the_summary_is_made_of_the_trials(four):
    summary, root = four
    assert to_json(summary) == read(root / "summary.json")
    assert read_summary(RunFiles(root)) == summary
    results = [read(root / f"trial_{k}" / "results.json") for k in range(4)]
    assert to_json(summary)["trials"] == results
    judged = summary["details"]
    for split in SPLITS:
        parts = [each["details"]["splits"][split] for each in results]
        assert judged["aggregate"][split].keys() == parts[0]["agent"].keys()
        for name, found in judged["aggregate"][split].items():
            values = sorted(
                part["agent"][name] for part in parts if part["agent"][name] is not None
            )
            assert found["n"] == len(values) and found["failed"] == 4 - len(values)
            if len(values) == 4:  # the middle half
                assert found["iqm"] == pytest.approx(np.mean(values[1:3])), name
        scores = sorted(part["score"]["foresight"] for part in parts)
        assert judged["score"][split]["foresight"]["iqm"] == pytest.approx(np.mean(scores[1:3]))
        assert judged["score"][split]["model"] is None, "a sine has no model"
    validated = [each["details"]["splits"]["validation"]["agent"]["log_return"] for each in results]
    assert judged["chosen_trial"] == int(np.argmax(validated))
    assert judged["alarms"] == ()
    assert summary["metric"] == "log return on the test split"


def test_rollouts_are_what_the_prices_in_the_file_make_of_their_targets(four, place):
    summary, root = four
    found = rollouts(root)
    assert found.keys() == {
        (name, split)
        for split in SPLITS
        for name in ("buy_and_hold", "momentum", "foresight", *(f"trial_{k}" for k in range(4)))
    }
    prices = pl.read_parquet(place / f"data/raw/synthetic/{summary['scenario']}.parquet")
    for (name, split), frame in found.items():
        values, sheet = values_by_hand(frame, prices), sheet_of(summary, name, split)
        np.testing.assert_allclose(frame["equity"], values[1:], rtol=1e-9)
        assert sheet["log_return"] == pytest.approx(math.log(values[-1]), rel=1e-9)
        falls = np.array(values) / np.maximum.accumulate(values) - 1
        assert sheet["max_drawdown"] == pytest.approx(falls.min(), abs=1e-12)
        assert sheet["fills"] == np.count_nonzero(np.diff(frame["target"], prepend=0.0))
        if name.startswith("trial_"):
            trades = pl.read_parquet(root / name / "trades" / f"{split}.parquet")
            assert trades["net"].sum() == pytest.approx(values[-1] - 1, abs=1e-8)
            assert sheet["trades"] == len(trades)
            closed = trades.filter(pl.col("status") != "open")
            if len(closed):
                assert sheet["win_rate"] == pytest.approx((closed["net"] > 0).mean())
            if len(trades):
                assert set(trades["entry_time"]) <= set(frame["time"])
        assert sheet["exposure_flat"] == np.mean(frame["weight"].to_numpy() == 0)
    assert found["buy_and_hold", "test"]["target"].unique().to_list() == [1.0]


def test_scores_lie_between_chance_and_perfect_foresight(four):
    summary, _ = four
    for split in SPLITS:
        others = summary["details"]["references"]["splits"][split]
        chance, best = others["random"]["log_return"], others["foresight"]["log_return"]
        assert chance["low"] < chance["mean"] < chance["high"] < best and others["model"] is None
        for trial in summary["trials"]:
            part = trial["details"]["splits"][split]
            reached = (part["agent"]["log_return"] - chance["mean"]) / (best - chance["mean"])
            assert part["score"] == {"foresight": pytest.approx(reached), "model": None}
            assert reached < 1
            low, high = (part["agent"][f"log_return_{end}"] for end in ("low", "high"))
            assert low <= part["agent"]["log_return"] <= high
    for trial in summary["trials"]:
        others = summary["details"]["references"]["splits"]["test"]
        assert trial["baselines"] == {"random": trial["random"]["return_mean"]} | {
            name: others[name]["log_return"] for name in ("buy_and_hold", "momentum", "foresight")
        }


def test_the_environments_own_return_is_the_accounts(four):
    """What the compiled float32 environment adds up is what the float64 account of its actions says."""
    summary, _ = four
    for trial in summary["trials"]:
        closing, splits = trial["evaluation"], trial["details"]["splits"]
        assert len(set(closing["returns"])) == 1, "every closing episode is the whole test split"
        assert closing["returns"][0] == pytest.approx(
            splits["test"]["agent"]["log_return"], rel=1e-4
        )
        assert len(set(trial["random"]["returns"])) > 1
    earned = [trial["evaluation"]["return_mean"] for trial in summary["trials"]]
    assert len(set(earned)) == 4 and summary["aggregate"]["iqm"] == pytest.approx(
        summary["details"]["aggregate"]["test"]["log_return"]["iqm"], rel=1e-4
    )


def test_what_is_judged_is_the_best_checkpoint_on_validation(four):
    summary, root = four
    earlier = 0
    for k, trial in enumerate(summary["trials"]):
        evaluated = {
            row["step"]: row["eval/return_mean"]
            for row in rows_of(root / f"trial_{k}")
            if "eval/return_mean" in row
        }
        step = read(root / f"trial_{k}" / "checkpoints" / "best" / "manifest.json")["step"]
        assert evaluated[step] == max(evaluated.values()) == trial["best_return"]
        judged = trial["details"]["splits"]["validation"]["agent"]["log_return"]
        assert judged == pytest.approx(evaluated[step], rel=1e-4)
        earlier += step < max(evaluated)
    assert earlier, "else the last checkpoint would have passed too"


def test_the_last_checkpoint_is_judged_where_the_scenario_says_so(four):
    summary, root = four
    name = summary["scenario"]
    last, again = go(name, *FOUR, "evaluation.checkpoint=last", f"output_directory={root}/last")
    assert equal_bits(tensors_of(again / "trial_0"), tensors_of(root / "trial_0"))
    for k, trial in enumerate(last["trials"]):
        (*_, final) = rows_of(again / f"trial_{k}")
        judged = trial["details"]["splits"]["validation"]["agent"]["log_return"]
        assert judged == pytest.approx(final["eval/return_mean"], rel=1e-4)
    assert last["details"]["aggregate"] != summary["details"]["aggregate"]


def test_deflated_sharpe_counts_the_trials_of_earlier_runs_too(place):
    generate("random_walk", 1000, 0).write_parquet("walk.parquet")
    walking = ("data.pattern=null", "data.path=walk.parquet", "output_directory=walks")
    sharpes = []
    for seed in (0, 10):
        # The first run counts other years than the second; ratios are brought to the same.
        year = "data.periods_per_year=null" if seed else "data.periods_per_year=91.25"
        settings = (*FOUR, *walking, "training.max_steps=640", f"seed={seed}", year)
        summary, root = go("sine_wave", *settings)
        tested = [trial["details"]["splits"]["test"]["agent"] for trial in summary["trials"]]
        scale = 1 if seed else 2
        sharpes += [scale * agent["sharpe"] for agent in tested if agent["sharpe"] is not None]
        chosen = rollouts(root)[f"trial_{summary['details']['chosen_trial']}", "test"]
        returns = np.expm1(chosen["log_return"].to_numpy())
        expected = metrics.deflated_sharpe(returns, sharpes, 365)
        assert summary["details"]["deflated_sharpe"] == pytest.approx(expected)
    assert len(sharpes) >= 6
    assert expected != pytest.approx(metrics.deflated_sharpe(returns, sharpes[4:], 365))


def test_evaluate_measures_the_checkpoint_that_the_run_was_judged_by(four, capsys, monkeypatch):
    summary, root = four
    arguments = ["evaluate", root.name, "--episodes", 4, "--json"]
    said = run_main(arguments, capsys, monkeypatch)
    assert said.code == 0, said.err
    found, first = json.loads(said.out), summary["trials"][0]
    best = read(root / "trial_0" / "checkpoints" / "best" / "manifest.json")
    assert found["step"] == best["step"]
    for policy in ("evaluation", "sampled", "random"):
        assert found[policy]["returns"] == pytest.approx(first[policy]["returns"], rel=1e-5)
    said = run_main([*arguments, "--film", "film.gif"], capsys, monkeypatch)
    assert said.code == 1 and "there is no drawing of proxima/Trading-v0" in said.err


def test_a_run_leaves_its_pictures_and_its_report(four):
    _, root = four
    for k in range(4):
        drawn = {path.name for path in (root / f"trial_{k}" / "plots").iterdir()}
        assert drawn == {"learning_curve.png", "actions.png", "rewards.png", "rollouts.png"}
    page = (root / "report.html").read_text()
    assert page.startswith("<!doctype html>") and "Perfect foresight" in page


def test_report_rollouts_and_every_metric_are_handed_to_the_tracker(place, monkeypatch):
    logged, numbers = [], {}

    def recording(*_arguments, **_options):
        return no_tracker()._replace(
            log_artifacts=lambda trial, path, artifact_path: logged.append((trial, path.name)),
            log_metrics=lambda trial, step, found: numbers.update(found),
        )

    monkeypatch.setattr(session, "connect", recording)
    summary, _ = go("mean_reversion", *SHORT, "output_directory=tracked")
    assert {(None, "report.html"), (None, "summary.json"), (0, "rollouts"), (0, "trades")} <= set(
        logged
    )
    (trial,) = summary["trials"]
    for split in SPLITS:
        part = trial["details"]["splits"][split]
        for name, value in part["agent"].items():
            assert numbers.get(f"{split}/{name}") == value
        assert numbers[f"{split}/score_foresight"] == part["score"]["foresight"]
        assert numbers[f"{split}/score_model"] == part["score"]["model"]
    assert "model" in trial["baselines"]


def test_at_the_end_learners_are_on_the_host(place, monkeypatch):
    """One trial out of arrays that lie over devices would need these to talk, and they can hang."""
    seen, layouts = {}, []
    judge, draw, export = walk_forward.judge_folds, walk_forward.draw_fold, judging.export

    def note(what, trained):
        seen.update({(what, k): state.learner for k, state in enumerate(trained.lanes)})

    def judged(runs, trained, outcomes):
        note("judge", trained)
        return judge(runs, trained, outcomes)

    def drawing(runs, trained, lane, outcome):
        seen["draw", lane] = trained.lanes[lane].learner
        return draw(runs, trained, lane, outcome)

    def exporting(scenario, built, trained):
        note("export", trained)
        layouts.append(built.layout)
        return export(scenario, built, trained)

    monkeypatch.setattr(walk_forward, "judge_folds", judged)
    monkeypatch.setattr(walk_forward, "draw_fold", drawing)
    monkeypatch.setattr(judging, "export", exporting)
    go("sine_wave", *FOUR, "training.max_steps=640", "output_directory=hosted")
    assert len(seen) == 4 + 4 + 4 and layouts[0].trial_devices > 1
    for name, learner in seen.items():
        leaves = jax.tree.leaves(learner)
        assert len(leaves) > 10
        assert all(isinstance(leaf, np.ndarray | np.generic) for leaf in leaves), name


LEAKING = "[{kind: price_level}, {kind: ma_ratio, window: 50}, {kind: next_return}]"


def trained(name: str, prices: pl.DataFrame, *settings: str) -> Path:
    """The directory of a short run on these prices as a file of the user's own."""
    Path("own").mkdir(exist_ok=True)
    prices.write_parquet(f"own/{name}.parquet")
    own = ("data.pattern=null", f"data.path=own/{name}.parquet", f"output_directory=own/{name}")
    _, root = go("mean_reversion", *SHORT, *own, *settings)
    return root / "trial_0"


def changed(prices: pl.DataFrame, row: int) -> pl.DataFrame:
    """Other prices from a row (from 0) on, in every column."""
    random = np.random.default_rng(1)
    later = np.arange(len(prices)) >= row
    factor = np.where(later, np.exp(np.cumsum(later * random.normal(0, 0.05, len(prices)))), 1.0)
    traded = np.where(later, 3.0, 1.0)
    columns = [pl.col(name) * factor for name in ("open", "high", "low", "close")]
    return prices.with_columns(*columns, pl.col("volume") * traded)


def training_rows(trial: Path) -> list[dict]:
    """Metrics of the training alone."""
    return [
        {key: value for key, value in row.items() if not key.startswith("eval/")}
        for row in rows_of(trial)
    ]


@pytest.fixture(scope="module")
def walk(place):
    """A random walk, where its splits are, and a run on it."""
    prices = generate("random_walk", 1000, 0)
    trial = trained("plain", prices)
    data = load_scenario(RunFiles(trial.parent)).data
    return prices, prepare_data(data, "plain").bounds, trial


def test_prices_after_the_train_split_change_nothing_in_training(walk):
    prices, bounds, plain = walk
    other = trained("after_train", changed(prices, bounds["train"][1]))
    assert training_rows(other) == training_rows(plain)
    assert equal_bits(tensors_of(other), tensors_of(plain))
    assert rows_of(other) != rows_of(plain), "its validation split is another one"


def test_prices_after_the_validation_split_change_only_what_is_tested(walk):
    prices, bounds, plain = walk
    other = trained("after_validation", changed(prices, bounds["validation"][1]))
    assert rows_of(other) == rows_of(plain)
    for link in ("best", "last"):
        assert equal_bits(tensors_of(other, link), tensors_of(plain, link))
    found, before = (read(each / "results.json")["details"]["splits"] for each in (other, plain))
    for split in ("train", "validation"):
        assert found[split] == before[split]
    assert found["test"] != before["test"]


def test_a_changed_price_of_the_train_split_and_a_leak_would_have_been_seen(walk):
    """The same comparisons with something to find: they are not blind."""
    prices, bounds, plain = walk
    end = bounds["train"][1]
    other = trained("in_train", changed(prices, end - 1))
    assert training_rows(other) != training_rows(plain)
    longer = generate("random_walk", 1001, 0)  # the last one has no next return
    leaking = ("data.leaky=true", f"data.features={LEAKING}")
    first = trained("leak", longer, *leaking)
    second = trained("leak_after", changed(longer, end), *leaking)
    assert training_rows(first) != training_rows(second)


OWN = """
data:
  path: own.parquet
  split: {train_until: 2001-01-01, validation_until: 2001-03-01}
env: {backend: trading}
"""


def test_appended_bars_leave_what_is_trained_as_it_was(place):
    """Also: a file without a volume has features that it can feed, which are said and stored."""
    (place / "own.yaml").write_text(OWN)
    settings = [*SMALL, *SIZES["ppo"], *OFTEN, "training.max_steps=128"]
    frame, sentences, states = generate("gbm", 600, 0).drop("volume"), [], []
    for rows in (500, 600):
        frame.head(rows).write_parquet("own.parquet")
        display = silent()._replace(say=sentences.append)
        scenario = load("own.yaml", settings)
        run = RunFiles(
            Path(proxima.run_multiple_experiments(scenario, display=display).paths["run"])
        )
        states.append(tensors_of(run.trial(0)))
        stored = load_scenario(run).data
        kinds = ["log_return", "volatility", "rsi", "ma_ratio"]
        assert scenario.data.features is None and [f.kind for f in stored.features] == kinds
    assert equal_bits(*states)
    assert (
        sum("own.parquet: has no volume; the features are log_return" in s for s in sentences) == 2
    )

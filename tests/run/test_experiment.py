"""Whole experiments on small budgets: what a run writes, what it promises, and the Python doors."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file
from tiny import (
    BUDGET,
    equal_bits,
    flags,
    read,
    results_of,
    rows_of,
    run_main,
    tensors_of,
    tiny,
)

import proxima
from proxima.core.types import View
from proxima.domains.control.domain import build
from proxima.report.chosen import chosen_trials
from proxima.run.files import RunFiles
from proxima.run.read import read_summary
from proxima.run.results import Summary, to_json
from proxima.scenario import from_mapping, load, parse
from proxima.track.registry import load_exported
from proxima.train import checkpoint
from proxima.train.compiled.episodes import _evaluate
from proxima.train.compiled.program import chunk

RESULT_KEYS = {
    *("scenario", "algorithm", "seed", "trial", "environment_steps", "updates", "episodes"),
    *("compile_seconds", "training_seconds", "steps_per_second", "converged", "converged_at_step"),
    *("evaluation", "random", "baselines", "mlflow_run_id"),
}
EVALUATION_KEYS = {
    *("episodes", "returns", "lengths", "length_mean"),
    *("return_mean", "return_std", "return_min", "return_max"),
}
NEVER = "evaluation.eval_frequency=1000000"


def run(output: Path, *settings: str, **more) -> tuple[Summary, Path]:
    """A small run's summary and directory."""
    summary = proxima.run_multiple_experiments(tiny(output, *settings), **more)
    return summary, Path(summary["paths"]["run"])


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    return run(tmp_path_factory.mktemp("one"))


# On the tests' four devices they lie two by two on three: side by side in both senses.
SIX = ("trials=6", "seed=5", "evaluation.eval_frequency=1")


@pytest.fixture(scope="module")
def six(tmp_path_factory):
    """Six trials, evaluated after every chunk."""
    return run(tmp_path_factory.mktemp("six"), *SIX)


def test_a_run_leaves_all_its_files(six):
    summary, root = six
    experiment = root.parent.parent
    assert read(root / "run.json")["status"] == "finished"
    for trial in range(6):
        directory = root / f"trial_{trial}"
        for name in ("policy.json", "policy.safetensors", "policy.stablehlo"):
            assert (directory / "policy" / name).stat().st_size
        for link in ("best", "last"):
            assert (directory / "checkpoints" / link / "state.safetensors").is_file()
        assert (experiment / f"trial_{trial}").resolve() == directory.resolve()
    assert (experiment / "latest").resolve() == root.resolve()
    assert read(experiment / "summary.json") == read(root / "summary.json")
    pictures = [*root.glob("plots/*.png"), *root.glob("trial_*/plots/*.png")]
    assert {path.name for path in pictures} >= {
        *("learning_curves.png", "final_returns.png", "trials.png"),
        *("learning_curve.png", "rewards.png", "actions.png"),
    }
    drawn = chosen_trials([trial.evaluation.return_mean for trial in summary.trials])
    assert len(pictures) == 3 + 3 * len(drawn) and 0 in drawn and len(drawn) < 6
    assert all((root / f"trial_{trial}" / "plots" / "rewards.png").exists() for trial in drawn)
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in pictures)
    assert not list(root.rglob(".*")), "nothing half written stays"


def test_what_a_run_says_agrees_with_itself(six):
    summary, root = six
    assert summary == read_summary(RunFiles(root))
    assert to_json(summary) == read(root / "summary.json")
    assert to_json(summary)["trials"] == [
        read(root / f"trial_{k}" / "results.json") for k in range(6)
    ]
    written = from_mapping(parse((root / "scenario.yaml").read_text(), "scenario.yaml"), "")
    assert written == tiny(root.parents[2], *SIX)
    assert summary["environment_steps"] == sum(t["environment_steps"] for t in summary["trials"])
    for trial, results in enumerate(summary["trials"]):
        rows = rows_of(root / f"trial_{trial}")
        assert rows[-1]["step"] == results["environment_steps"] == 2048
        assert rows[-1]["episode/total"] == results["episodes"]
        assert results["episodes"] == sum(row["episode/count"] for row in rows)
        assert results["best_return"] == max(row["eval/return_mean"] for row in rows)
        manifest = read(root / f"trial_{trial}" / "checkpoints" / "last" / "manifest.json")
        assert manifest["step"] == 2048 and manifest["trial"] == trial


def test_results_have_the_keys_that_others_rely_on(six):
    summary, _ = six
    for results in map(to_json, summary.trials):
        assert results.keys() >= RESULT_KEYS
        assert results["updates"] * 64 == results["environment_steps"]
        per_second = results["environment_steps"] / results["training_seconds"]
        assert results["steps_per_second"] == pytest.approx(per_second)
        assert results["converged"] is False and results["converged_at_step"] is None
        assert results["baselines"]["random"] == results["random"]["return_mean"]
        for policy in ("evaluation", "sampled", "random"):
            found = results[policy]
            assert found.keys() >= EVALUATION_KEYS
            assert found["episodes"] == len(found["returns"]) == len(found["lengths"]) == 4
            assert found["return_mean"] == pytest.approx(np.mean(found["returns"]))
            assert found["return_std"] == pytest.approx(np.std(found["returns"]))
            assert found["return_min"] == min(found["returns"])
            assert found["return_max"] == max(found["returns"])
            assert found["returns"] == found["lengths"], "CartPole pays one point a step"


def test_the_random_policy_plays_the_same_episodes_beside_every_trial(six):
    summary, _ = six
    vectors = [results["random"]["returns"] for results in summary["trials"]]
    assert all(vector == vectors[0] for vector in vectors)
    assert len(set(vectors[0])) > 1


def test_the_aggregate_is_the_interquartile_mean_over_trials(six):
    summary, _ = six
    for name, found in (
        ("evaluation", summary["aggregate"]),
        ("random", summary["baselines"]["random"]),
    ):
        means = sorted(np.mean(results[name]["returns"]) for results in summary["trials"])
        cut = len(means) // 4
        assert found["iqm"] == pytest.approx(np.mean(means[cut : len(means) - cut]))
        assert means[0] <= found["low"] <= found["iqm"] <= found["high"] <= means[-1]
        assert found["n"] == 6


def test_trial_k_has_the_seed_of_the_experiment_plus_k(six, tmp_path):
    summary, root = six
    assert [results["seed"] for results in summary["trials"]] == list(range(5, 11))
    _, later = run(tmp_path, "trials=6", "seed=6", NEVER)
    for k in range(5):
        assert equal_bits(tensors_of(later / f"trial_{k}"), tensors_of(root / f"trial_{k + 1}"))
    assert not equal_bits(tensors_of(root / "trial_0"), tensors_of(root / "trial_1"))


def test_the_same_seed_repeats_bit_for_bit_and_another_does_not(one, tmp_path):
    _, root = one
    _, again = run(tmp_path)
    assert results_of(root / "trial_0") == results_of(again / "trial_0")
    assert rows_of(root / "trial_0") == rows_of(again / "trial_0")
    assert equal_bits(tensors_of(root / "trial_0"), tensors_of(again / "trial_0"))

    _, other = run(tmp_path, "seed=1")
    assert rows_of(root / "trial_0") != rows_of(other / "trial_0")
    assert not equal_bits(tensors_of(root / "trial_0"), tensors_of(other / "trial_0"))


@pytest.mark.parametrize("name", ["cartpole", "cartpole_host"])
def test_evaluating_changes_nothing(name, tmp_path):
    settings = [*BUDGET, "training.max_steps=1000", f"output_directory={tmp_path}"]
    often = proxima.run_single_experiment(load(name, [*settings, "evaluation.eval_frequency=1"]))
    often_trial = tmp_path / name / "runs" / often["run_id"] / "trial_0"
    rarely = proxima.run_single_experiment(load(name, [*settings, NEVER]))
    rarely_trial = tmp_path / name / "runs" / rarely["run_id"] / "trial_0"

    def count(trial: Path) -> int:
        return sum("eval/return_mean" in row for row in rows_of(trial))

    assert count(often_trial) > 5 and count(rarely_trial) == 1
    assert equal_bits(tensors_of(often_trial), tensors_of(rarely_trial))
    assert often["evaluation"] == rarely["evaluation"]


def test_the_exported_policy_acts_as_the_agent_does_statistics_included(one):
    _, root = one
    trial = root / "trial_0"
    built = build(tiny(root.parents[2]))
    (template,) = checkpoint.split_trials(built.program.init([0]))
    state, _ = checkpoint.load(trial, template)
    learner = jax.tree.map(jnp.asarray, state.learner)
    assert float(learner.obs_moments.number) >= 2048
    assert np.abs(learner.obs_moments.mean).max() > 0

    scale = np.array([2.4, 3.0, 0.2, 3.0], np.float32)
    obs = np.random.default_rng(0).normal(size=(512, 4)).astype(np.float32) * scale
    actions = np.asarray(built.agent.exploit(learner, View(obs)).action)
    assert np.array_equal(load_exported(trial / "policy").act(obs), actions)
    assert len(set(actions.tolist())) == 2

    blind = learner._replace(obs_moments=template.learner.obs_moments)
    assert not np.array_equal(built.agent.exploit(blind, View(obs)).action, actions)


def test_every_trial_exports_its_own_policy(six):
    _, root = six
    for k in range(6):
        weights = load_file(root / f"trial_{k}" / "policy" / "policy.safetensors")
        saved = {
            name.replace("[", ".").replace("]", ""): values
            for name, values in tensors_of(root / f"trial_{k}").items()
        }
        assert len(weights) > 4
        for name, values in weights.items():
            assert np.array_equal(values, saved[f"learner.{name}"]), name


def test_the_callback_hears_of_every_chunk_and_stops_the_run(tmp_path):
    heard = []

    def callback(metrics):
        heard.append(metrics)
        return len(heard) < 3

    _, root = run(tmp_path, "evaluation.eval_frequency=1", callback=callback)
    results = read(root / "trial_0" / "results.json")
    assert len(heard) == 3
    assert results["stopped"] == "callback" and not results["converged"]
    assert results["environment_steps"] == heard[-1]["step"] < 2000
    rows = rows_of(root / "trial_0")
    assert [view["step"] for view in heard] == [row["step"] for row in rows]
    for view, row in zip(heard, rows, strict=True):
        assert view["episode"] == row["episode/total"]
        assert view["step_metrics"]["loss/policy"] == row["loss/policy"]
        if "episode/return" in row:
            assert view["step_metrics"]["avg_reward"] == row["episode/return"]
        if view["eval_metrics"] is not None:
            assert view["eval_metrics"]["avg_reward"] == row["eval/return_mean"]
            assert view["eval_metrics"]["std_reward"] == row["eval/return_std"]
    assert any(view["eval_metrics"] is not None for view in heard)

    assert read(root / "run.json")["status"] == "finished"
    assert read(root / "summary.json")["trials"] == [results]
    manifest = read(root / "trial_0" / "checkpoints" / "last" / "manifest.json")
    assert manifest["step"] == results["environment_steps"]
    assert load_exported(root / "trial_0" / "policy").act(np.zeros((2, 4))).shape == (2,)


def test_a_callback_that_returns_nothing_does_not_stop_the_run(tmp_path):
    _, root = run(tmp_path, callback=lambda metrics: None)
    assert read(root / "trial_0" / "results.json")["stopped"] == "budget"


def test_a_converged_trial_is_frozen_while_the_others_go_on(six, tmp_path):
    _, whole = six
    curves = [
        [(row["step"], row["eval/return_mean"]) for row in rows_of(whole / f"trial_{k}")[:-1]]
        for k in range(6)
    ]
    best = [max(mean for _, mean in curve) for curve in curves]
    winner = int(np.argmax(best))
    target = (sorted(best)[-2] + best[winner]) / 2
    expected_step = next(step for step, mean in curves[winner] if mean >= target)
    assert sorted(best)[-2] < target

    _, root = run(
        tmp_path,
        *SIX,
        *(f"convergence.target_reward={target}", "convergence.convergence_window=4"),
        "convergence.early_stopping_patience=0",
    )
    for k in range(6):
        trial, results = root / f"trial_{k}", read(root / f"trial_{k}" / "results.json")
        if k != winner and not results["converged"]:
            assert results["stopped"] == "budget" and results["environment_steps"] == 2048
            assert equal_bits(tensors_of(trial), tensors_of(whole / f"trial_{k}"))
    won, trial = read(root / f"trial_{winner}" / "results.json"), root / f"trial_{winner}"
    assert won["converged"] and won["stopped"] == "converged"
    assert won["converged_at_step"] == won["environment_steps"] == expected_step
    assert rows_of(trial) == rows_of(whole / f"trial_{winner}")[: len(rows_of(trial))]
    assert rows_of(trial)[-1]["step"] == expected_step
    steps = {
        link: read(trial / "checkpoints" / link / "manifest.json")["step"]
        for link in ("best", "last")
    }
    assert steps == {"best": expected_step, "last": expected_step}, "its own, not the run's"
    names = [path.name for path in (trial / "checkpoints").glob("step_*")]
    assert max(names) == f"step_{expected_step:012d}"
    assert equal_bits(tensors_of(trial, "best"), tensors_of(trial, "last"))


def test_training_ends_with_the_episode_budget(tmp_path):
    _, root = run(tmp_path, "training.max_steps=null", "training.max_episodes=20", NEVER)
    results = read(root / "trial_0" / "results.json")
    totals = [row["episode/total"] for row in rows_of(root / "trial_0")]
    assert results["stopped"] == "budget"
    assert results["episodes"] == totals[-1] >= 20
    assert all(total < 20 for total in totals[:-1])


def test_convergence_can_be_judged_by_the_training_episodes(tmp_path):
    _, root = run(
        tmp_path,
        *("convergence.source=training", "convergence.target_reward=5", NEVER),
        *("convergence.convergence_window=8", "convergence.early_stopping_patience=0"),
    )
    results, rows = read(root / "trial_0" / "results.json"), rows_of(root / "trial_0")
    assert results["converged"] and results["converged_at_step"] == rows[-1]["step"] < 2000
    assert rows[-1]["episode/total"] >= 8
    assert rows[-2]["episode/total"] < 8
    assert not any("eval/return_mean" in row for row in rows)


def test_changing_a_number_compiles_nothing(one, tmp_path):
    sizes = (chunk._cache_size(), _evaluate._cache_size())
    assert min(sizes) > 0
    run(
        tmp_path,
        *("seed=3", "algorithm.learning_rate=1e-2", "algorithm.gamma=0.9"),
        *("algorithm.gae_lambda=0.5", "algorithm.clip_epsilon=0.1", "algorithm.entropy_coef=0.5"),
        *("algorithm.value_coef=0.1", "algorithm.max_grad_norm=5", "training.max_steps=640"),
        *("algorithm.final_learning_rate=null", "convergence.target_reward=1000"),
        *("training.updates_per_chunk=3", "env.max_steps_per_episode=50"),
    )
    assert (chunk._cache_size(), _evaluate._cache_size()) == sizes


def test_retention_counts_only_the_runs_own_checkpoints(tmp_path):
    settings = ("checkpoint.frequency=2", "checkpoint.keep=2", NEVER, "training.max_steps=640")
    _, first = run(tmp_path, *settings)
    before = sorted(path.name for path in (first / "trial_0" / "checkpoints").iterdir())
    run(tmp_path, *settings)
    assert sorted(path.name for path in (first / "trial_0" / "checkpoints").iterdir()) == before
    assert before == ["best", "last", "step_000000000512", "step_000000000640"]


TRAINER = dict(
    num_envs=4,
    hidden=[8],
    batch_size=64,
    minibatch_size=32,
    epochs_per_update=2,
    normalize_observations=True,
    normalize_rewards=True,
    max_steps_per_episode=500,
    eval_episodes=4,
    final_episodes=4,
    film=False,
)


def test_the_trainer_as_the_first_document_has_it(workdir, capsys):
    from proxima import PPOTrainer

    trainer = PPOTrainer(
        env="CartPole-v1",
        max_episodes=60,
        target_reward=195.0,
        enable_mlflow=False,
        **TRAINER,
    )

    def custom_callback(metrics):
        episode = metrics["episode"]
        step_metrics = metrics["step_metrics"]
        print(f"Episode {episode}: Reward = {step_metrics['avg_reward']:.2f}")

    results = trainer.train(callback=custom_callback)
    assert results["episodes"] >= 60 and results["stopped"] == "budget"
    assert "Reward = " in capsys.readouterr().out

    eval_metrics = trainer.evaluate(num_episodes=4)
    text = f"{eval_metrics['avg_reward']:.2f} ± {eval_metrics['std_reward']:.2f}"
    assert text == f"{np.mean(eval_metrics['returns']):.2f} ± {np.std(eval_metrics['returns']):.2f}"
    assert tuple(eval_metrics["returns"]) == results["evaluation"]["returns"]
    assert not (workdir / "mlflow.db").exists()


def test_the_trainer_refuses_a_setting_it_does_not_know():
    with pytest.raises(proxima.ProximaError, match=r"learning_rat.*did you mean learning_rate"):
        proxima.PPOTrainer(learning_rat=1.0)
    with pytest.raises(proxima.ProximaError, match=r"gamma: 2.* is not allowed"):
        proxima.PPOTrainer(gamma=2.0)
    with pytest.raises(proxima.ProximaError, match="train"):
        proxima.PPOTrainer().evaluate()


def test_the_trainer_leaves_a_scenario_as_it_is():
    scenario = load("cartpole", ["seed=7", "training.max_episodes=12"])
    trainer = proxima.PPOTrainer(scenario, learning_rate=0.5, enable_mlflow=True)
    assert trainer.scenario.seed == 7
    assert trainer.scenario.training == scenario.training
    assert trainer.scenario.convergence == scenario.convergence
    assert trainer.scenario.algorithm.learning_rate == 0.5
    assert trainer.scenario.tracking.enabled


@pytest.mark.filterwarnings(r"ignore:::(mlflow|alembic|sqlalchemy)(\.|$)")
def test_a_run_is_tracked_and_its_model_needs_nothing_of_ours(workdir, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)

    def interrupt(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(
            workdir / "logs",
            *("tracking.enabled=true", "convergence.target_reward=1"),
            *("convergence.convergence_window=4", "convergence.early_stopping_patience=0"),
            callback=interrupt,
        )
    interrupted = read(workdir / "logs" / "cartpole" / "latest" / "run.json")
    summary = proxima.resume_experiment("cartpole")
    root = Path(summary["paths"]["run"])
    assert summary["tracking_error"] is None
    assert summary["mlflow_run_id"] == interrupted["mlflow_run_id"]
    assert summary["trials"][0]["mlflow_run_id"] == interrupted["mlflow_children"][0]
    assert (workdir / "mlflow.db").is_file()
    (model,) = summary["registered"]
    assert model["name"] == "cartpole"

    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{workdir / 'mlflow.db'}")
    import mlflow

    loaded = mlflow.pyfunc.load_model(model["uri"])
    obs = np.random.default_rng(1).normal(size=(64, 4)).astype(np.float32)
    actions = load_exported(root / "trial_0" / "policy").act(obs)
    assert np.array_equal(loaded.predict(obs), actions)

    client = mlflow.MlflowClient()
    (results,) = summary["trials"]
    parent = client.get_run(summary["mlflow_run_id"])
    child = client.get_run(results["mlflow_run_id"])
    assert child.data.tags["mlflow.parentRunId"] == parent.info.run_id
    assert {parent.info.status, child.info.status} == {"FINISHED"}
    assert float({**parent.data.params, **child.data.params}["algorithm.gamma"]) == 0.99
    for key, value in rows_of(root / "trial_0")[-1].items():
        if key != "step":
            assert child.data.metrics[key] == pytest.approx(value), key
    assert child.data.metrics["final/greedy_return"] == results["evaluation"]["return_mean"]
    logged = {item.path for item in client.list_artifacts(child.info.run_id)}
    assert logged >= {"plots", "policy", "results.json", "checkpoints"}
    kept = client.list_artifacts(child.info.run_id, "checkpoints")
    assert [item.path for item in kept] == ["checkpoints/last"], "what was judged, and no other"
    info = read(root / "run.json")
    assert info["mlflow_run_id"] == parent.info.run_id
    assert info["mlflow_children"] == [child.info.run_id]

    aimless, _ = run(workdir / "logs", "tracking.enabled=true", "convergence.target_reward=null")
    (second,) = aimless["registered"]
    for registered, why in ((model, "target"), (second, "validation")):
        version = client.get_model_version("cartpole", registered["version"])
        assert version.tags["proxima.selected_by"] == why
        assert "ppo on CartPole-v1" in version.description
    scores = [
        float(client.get_model_version("cartpole", str(number)).tags["proxima.score"])
        for number in (1, 2)
    ]
    champion = client.get_model_version_by_alias("cartpole", "champion")
    assert int(champion.version) == (1 if scores[0] > scores[1] else 2)


def test_without_tracking_there_is_no_store(workdir, capsys, monkeypatch):
    settings = [each for each in BUDGET if not each.startswith("tracking")]
    arguments = ["experiment", "--scenario", "cartpole", "--no-mlflow", *flags(*settings)]
    said = run_main([*arguments, "--max-steps", "128", "--json"], capsys, monkeypatch)
    assert said.code == 0, said.err
    assert json.loads(said.out)["mlflow_run_id"] is None
    assert sorted(path.name for path in workdir.iterdir()) == ["logs"]

"""Every shipped scenario about environments trains, is evaluated and summed up on a small budget."""

import math

import jax
import pytest
from programs import forget_programs
from tiny import budget, read, rows_of
from tracing import traced_update

import proxima
from proxima.build import domain_of
from proxima.cli.data import generate_for
from proxima.run.results import to_json
from proxima.scenario import EnvironmentScenario, load, shipped


@pytest.fixture(autouse=True)
def forget():
    """All of them together would map more memory than a process may."""
    yield
    forget_programs()


# Another scenario runs the same algorithm with the same kind of net, and another one this environment:
# to compile both together would tell no more than to trace them.
MET = (
    "breakout_pqn",
    "freeway_pqn",
    "space_invaders_pqn",
    "mountain_car_memory",
    "pendulum_sac",
    "pendulum_td3",
)
NAMES = [name for name in shipped() if isinstance(load(name), EnvironmentScenario)]


@pytest.mark.parametrize("name", MET)
def test_every_shipped_scenario_updates(name):
    state, after, metrics = traced_update(load(name, budget(name)))
    assert jax.tree.structure(after) == jax.tree.structure(state)
    assert jax.tree.leaves(after) == jax.tree.leaves(state)
    assert any("loss/" in key for key in metrics)


@pytest.mark.parametrize("name", sorted({*NAMES} - {*MET}))
def test_every_shipped_scenario_runs(name, workdir):
    settings = ["training.max_steps=256", "evaluation.eval_frequency=1"]
    scenario = load(name, [*budget(name), *settings])
    if domain_of(scenario).data is not None:
        generate_for(scenario)
    results = proxima.run_single_experiment(scenario)
    assert results["environment_steps"] == 256
    assert all(math.isfinite(value) for value in results["evaluation"]["returns"])
    root = workdir / "logs" / name / "runs" / results["run_id"]
    losses = [
        value for row in rows_of(root / "trial_0") for key, value in row.items() if "loss/" in key
    ]
    assert losses and all(isinstance(loss, float) for loss in losses)
    assert read(workdir / "logs" / name / "summary.json")["trials"] == [to_json(results)]

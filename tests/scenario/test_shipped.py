"""Every shipped scenario about environments trains, is evaluated and summed up on a small budget."""

import math

import pytest
from programs import forget_programs
from tiny import budget, read, rows_of

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


@pytest.mark.parametrize(
    "name", [name for name in shipped() if isinstance(load(name), EnvironmentScenario)]
)
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

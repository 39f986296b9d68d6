"""Runs that are interrupted, and the ones that nobody disturbed to compare them with."""

from pathlib import Path

from safetensors.numpy import load_file
from tiny import equal_bits, flags, read, results_of, rows_of

from proxima import load, run_multiple_experiments


class Case:
    """A scenario as the command line and as a call run it."""

    def __init__(self, name: str, *settings: str):
        self.name, self.settings = name, settings

    def command(self) -> list[str]:
        return ["experiment", "--scenario", self.name, *flags(*self.settings)]

    def uninterrupted(self, output: Path) -> Path:
        """The directory of a run that nobody disturbed, within this process."""
        scenario = load(self.name, [*self.settings, f"output_directory={output}"])
        return Path(run_multiple_experiments(scenario)["paths"]["run"])


def latest(workdir: Path, case: Case) -> Path:
    return (workdir / "logs" / case.name / "latest").resolve()


def check_same(run: Path, whole: Path) -> None:
    """Whether weights, results and metrics are those of the uninterrupted run, of every stage."""
    assert read(run / "run.json")["status"] == "finished"
    trials = sorted(path.parent for path in whole.glob("trial_*/results.json"))
    assert trials and len(trials) == len(list(run.glob("trial_*/results.json")))
    for trial in trials:
        assert results_of(run / trial.name) == results_of(trial)
    for metrics in whole.glob("trial_*/**/metrics.jsonl"):
        folder = metrics.parent.relative_to(whole)
        assert rows_of(run / folder) == rows_of(whole / folder), folder
    weights = weights_of(whole)
    assert weights and weights_of(run).keys() == weights.keys()
    for name, path in weights_of(run).items():
        assert equal_bits(load_file(path), load_file(weights[name])), name
    for path in whole.rglob("*.parquet"):
        assert (run / path.relative_to(whole)).read_bytes() == path.read_bytes(), path.name
    found, expected = read(run / "summary.json"), read(whole / "summary.json")
    for name in ("aggregate", "sampled", "baselines", "scores", "figures", "details"):
        assert found[name] == expected[name], name


def weights_of(run: Path) -> dict[str, Path]:
    """Exported models and policies, and what the links `last` and `best` point to, by their names."""
    links = [
        path
        for link in ("last", "best")
        for path in run.glob(f"trial_*/**/checkpoints/{link}/*.safetensors")
    ]
    exported = [
        path
        for path in run.glob("trial_*/**/*.safetensors")
        if not any(part.startswith("step_") for part in path.parts)
    ]
    return {str(path.relative_to(run)): path for path in (*links, *exported)}

"""Runs that are interrupted, and the ones that nobody disturbed to compare them with."""

from pathlib import Path

from tiny import equal_bits, flags, read, results_of, rows_of, tensors_of

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


def check_same(run: Path, whole: Path, trials: int = 1) -> None:
    """Whether checkpoints, results and metrics are those of the uninterrupted run."""
    assert read(run / "run.json")["status"] == "finished"
    for name in (f"trial_{k}" for k in range(trials)):
        for link in ("last", "best"):
            assert equal_bits(tensors_of(run / name, link), tensors_of(whole / name, link))
        assert results_of(run / name) == results_of(whole / name)
        assert rows_of(run / name) == rows_of(whole / name)
    assert read(run / "summary.json")["aggregate"] == read(whole / "summary.json")["aggregate"]

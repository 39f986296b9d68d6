"""The command `proxima tune`, as a person uses it."""

import json

import pytest
from lanes import LAMBDA, RATE, small

from proxima.cli import main
from proxima.cli.tune import _loaded
from proxima.run.files import read_json
from proxima.scenario import dump, load
from proxima.tune.files import find_search


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A directory with a scenario that has no search."""
    folder = tmp_path_factory.mktemp("tune")
    text = dump(small()).replace("pendulum", "swing", 1)
    before, _, after = text.partition("search:\n")
    rest = after[after.index("checkpoint:") :]
    (folder / "swing.yaml").write_text(f"{before}{rest}".replace("name: swing\n", "", 1))
    return folder


@pytest.fixture
def proxima(place, monkeypatch, capsys):
    """Runs a command there; its exit code, and what it printed."""
    monkeypatch.chdir(place)

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["proxima", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        shown = capsys.readouterr()
        return ended.value.code or 0, shown.out, shown.err

    return run


SEARCH = (
    "tune",
    "--config",
    "swing.yaml",
    "--search",
    f"{RATE}=log:1e-4:1e-1",
    "--search",
    f"{LAMBDA}=0.5:1.0",
    "--configs",
    "5",
    "--set",
    "search.lanes=4",
    "--set",
    "search.evaluations=5",
)


def test_a_dry_run_says_the_plan_and_writes_nothing(proxima, place):
    code, out, _ = proxima(*SEARCH, "--method", "random", "--seeds", "2", "--dry-run")
    assert code == 0 and not (place / "logs").exists()
    assert "5 configurations × 2 seeds by random, 4 side by side in 1 program" in out
    assert "about 6,400 environment steps" in out and "steps/s, as just measured" in out


def test_ranges_on_the_command_line_take_the_place_of_the_scenarios_own():
    shipped = load("pendulum").search
    assert len(shipped.space) > 1 and _loaded("pendulum", [], []).search == shipped
    mine = _loaded("pendulum", ["search.configs=5"], ["algorithm.gamma=0.9:0.99"]).search
    assert mine.space == {"algorithm.gamma": "0.9:0.99"}
    assert (mine.configs, mine.seeds) == (5, shipped.seeds)


def test_a_search_from_the_command_line_its_report_and_its_best_settings(proxima, place):
    there = ("--output", "searches")
    code, out, _ = proxima(*SEARCH, "--set", "search.confirm=0", "--no-mlflow", *there)
    assert code == 0 and not (place / "logs").exists()
    assert "Chosen among 5 configurations: number" in out and "too good" in out
    files = find_search("swing", "searches")
    assert f"proxima experiment --config searches/swing/tune/{files.search_id}/best.yaml" in out
    assert all(len(line) <= 110 for line in out.splitlines() if not line.startswith("swing "))
    code, out, _ = proxima("report", "swing", *there)
    assert code == 0 and "report.html" in out
    code, out, _ = proxima("tune", "--resume", "swing", "--json", *there)
    assert code == 0 and json.loads(out) == read_json(files.result)
    code, out, _ = proxima("experiment", "--config", str(files.best), "--no-mlflow")
    assert code == 0 and (place / "searches" / "best" / "latest").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("tune",), "name one scenario"),
        (("tune", "--config", "swing.yaml"), "give --search PATH=RANGE, or write one"),
        (("tune", "--config", "swing.yaml", "--search", "rate"), "expected PATH=RANGE"),
        ((*SEARCH, "--search", f"{RATE}=log:1:1e-3"), "is empty: the first end must be below"),
        ((*SEARCH, "--method", "ahsa"), "search.method"),
        (("tune", "--resume", "swnig"), "no search of that name"),
    ],
)
def test_mistakes_are_answered_in_words(proxima, arguments, words):
    code, _, err = proxima(*arguments)
    assert code == 1 and words in err.replace("\n", " ")

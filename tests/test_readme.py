"""The README's commands and examples run as written, but for a small budget."""

import json
import re
import shlex
import tomllib
from pathlib import Path

import polars as pl
import pytest
from tiny import LANGUAGE, TINY, flags, run_main

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
DAILY = re.findall(r"^proxima .*$", README, re.MULTILINE)
EXAMPLES = re.findall(r"```python\n(import proxima.*?)```", README, re.DOTALL)


def test_the_daily_commands_run_in_their_order(workdir, capsys, monkeypatch):
    """What the budget leaves alone is the README's own: names, flags, order."""
    assert [words.split()[1] for words in DAILY] == [
        "experiment", "scenarios", "evaluate", "resume", "compare", "tune", "experiment",
        "generate-data", "peek", "experiment", "report", "trade", "export", "experiment", "generate",
    ]  # fmt: skip
    small, sizes = flags(*TINY), LANGUAGE | {"sft.batch_size": 512}
    language = flags(*(f"{key}={json.dumps(value)}" for key, value in sizes.items()))
    host = run_main(["experiment", "--scenario", "cartpole_host", *small], capsys, monkeypatch)
    assert host.code == 0, host.err
    for words in DAILY:
        arguments = shlex.split(words)[1:]
        if arguments[0] == "trade":
            write_bars_after(Path("data/raw/synthetic/sine_wave.parquet"), Path("new_bars.csv"))
        if "movie_critic" in arguments:
            arguments += language if arguments[0] == "experiment" else ["--new-tokens", "4"]
        elif arguments[0] == "experiment":
            arguments += small
        elif arguments[0] == "resume":
            arguments = ["4000" if word == "200000" else word for word in arguments]
        elif arguments[0] == "tune":
            arguments += [*small, *flags("search.confirm=0", "search.configs=4", "search.seeds=1")]
        done = run_main(arguments, capsys, monkeypatch)
        assert done.code == 0, f"{words}\n{done.err}"
        assert done.out
    assert Path("cartpole.gif").read_bytes().startswith(b"GIF8")
    assert Path("comparison.png").exists()


def write_bars_after(known: Path, new: Path) -> None:
    """The first bars once more, after the last one."""
    bars = pl.read_parquet(known)
    spacing = bars["time"][1] - bars["time"][0]
    times = [bars["time"][-1] + spacing * step for step in range(1, 6)]
    bars.head(5).with_columns(time=pl.Series(times)).write_csv(new)


@pytest.mark.parametrize("code", EXAMPLES)
def test_the_python_example_runs(code, workdir):
    shrunk = code.replace('"trials": 5', '"trials": 1, "training.max_steps": 4096').replace(
        "max_episodes=1000", "max_episodes=20"
    )
    assert shrunk != code
    names: dict = {}
    exec(shrunk, names)
    assert names["summary"]["aggregate"]["n"] == 1
    assert names["results"]["episodes"] >= 20


def test_make_and_ci_do_what_the_readme_says():
    makefile = (ROOT / "Makefile").read_text()
    main_job = "proxima experiment --scenario sine_wave --generate-data"
    assert main_job in makefile.split("\ndemo:")[1].split("\n\n")[0]
    assert "$(PYTEST)" in makefile.split("\ntest:")[1].split("\n\n")[0]
    commands = [line for line in (ROOT / ".ci" / "run").read_text().splitlines() if "make" in line]
    assert commands == ["make test"]


def test_every_link_and_picture_is_a_file():
    links = re.findall(r"\]\(([^)#:]+)\)", README)
    assert len(links) > 10
    for link in links:
        assert (ROOT / link).is_file(), link


def test_every_extra_is_in_the_table_of_extras():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = set(settings["project"]["optional-dependencies"]) - {"test", "oracle"}
    table = README.split("## Install")[1].split("## One command")[0]
    assert set(re.findall(r"`(\w+)`(?=.*\|.*\|)", table)) == extras


def test_headlines_are_figures_of_the_result_tables():
    """A figure in the README that docs/results.md does not have is out of date."""
    tables = (ROOT / "docs" / "results.md").read_text()
    headlines = README.split("## Five results")[1].split("## What it promises")[0]
    figures = re.findall(r"−?\d[\d,]*\.?\d+", headlines.split("Returns are")[0])
    assert len(figures) > 15
    for figure in figures:
        assert figure in tables, figure


def test_it_is_short():
    assert len(README.splitlines()) <= 130

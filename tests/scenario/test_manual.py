"""The page of every setting says what the classes say, and is current."""

from pathlib import Path

from tiny import run_main

from proxima.scenario import load
from proxima.scenario.manual import settings_page
from proxima.scenario.read import to_mapping

PAGE = Path(__file__).parent.parent.parent / "docs" / "settings.md"
SCENARIOS = (
    "cartpole",
    "pendulum",
    "sine_wave",
    "portfolio_reversion",
    "binpack_spo",
    "movie_critic",
    "pong",
)
REMEDY = "write it anew:  .venv/bin/proxima schema --markdown > docs/settings.md"


def test_the_page_is_current(capsys, monkeypatch):
    said = run_main(["schema", "--markdown"], capsys, monkeypatch)
    assert said.code == 0 and said.out == settings_page()
    assert PAGE.read_text() == said.out, REMEDY


def test_every_setting_of_scenarios_of_every_domain_is_there_with_its_meaning():
    rows = [(line.split("`")[1], line) for line in settings_page().splitlines() if "| `" in line]
    known = {path for path, _ in rows}
    for name in SCENARIOS:
        for path in paths_of(to_mapping(load(name))):
            assert path in known, f"{name}: {path}"
    for path, row in rows:
        _, _, default, allowed, meaning, _ = row.replace("\\|", "/").split("|")
        assert default.strip() and allowed.strip(), path
        assert meaning.strip(), path


def test_bounds_and_defaults_are_in_words():
    rows = settings_page().splitlines()
    rate = "| `algorithm.learning_rate` | `0.0003` | number, more than 0 | Adam's step size. |"
    assert rate in rows
    fees = [row for row in rows if row.startswith("| `env.fee` ")]
    assert len(fees) == 2, "one asset's and a portfolio's"
    assert all("| `0.001` | number, at least 0, less than 1 |" in fee for fee in fees)
    (env,) = [row for row in rows if row.startswith("| `env` ")]
    assert env.endswith("| The environment. The account. |"), "two domains say the same"
    (skip,) = [row for row in rows if row.startswith("| `env.atari.frame_skip` ")]
    assert "| `4` | whole number, at least 1, at most 60 |" in skip
    (path,) = [row for row in rows if row.startswith("| `env.wrappers.path` ")]
    assert "| must be given | text |" in path


def paths_of(mapping, above=""):
    """The dotted paths of settings; what is a user's own is not looked into."""
    for key, value in mapping.items():
        path = f"{above}.{key}".lstrip(".")
        yield path
        if isinstance(value, dict) and not path.endswith(
            ("params", "space", "parameters", "beyond")
        ):
            yield from paths_of(value, path)

"""docs/domains/trading.md says what is true: its examples run, and it leaves no name out."""

import re
import sys
from dataclasses import fields
from datetime import timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from tiny import budget, flags, run_main

from proxima.domains.trading import features
from proxima.domains.trading.accounting import account
from proxima.domains.trading.config import (
    DEFAULT_FEATURES,
    DataConfig,
    FeatureConfig,
    SplitConfig,
    TradingEnvConfig,
)
from proxima.domains.trading.data import prepare_data
from proxima.domains.trading.domain import TradingScenario
from proxima.domains.trading.metrics import tear_sheet
from proxima.domains.trading.ohlcv import _checks
from proxima.domains.trading.patterns import PATTERNS
from proxima.domains.trading.synthetic import generate
from proxima.scenario import load, shipped

PRICES = "data/raw/synthetic/sine_wave.parquet"
PAGE = (Path(__file__).parents[3] / "docs" / "domains" / "trading.md").read_text()
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", PAGE, re.DOTALL)
EXAMPLES = [code for kind, code in BLOCKS if kind == "python" and not code.startswith("# ")]
COMMANDS = re.findall(r"^proxima [^\n#$]*?(?= *(?:#|$))", PAGE, re.MULTILINE)


def file_in_page(name: str) -> str:
    """The code block that begins with a file's name."""
    (found,) = [code for _, code in BLOCKS if code.startswith(f"# {name}\n")]
    return found


@pytest.fixture
def here(workdir, monkeypatch):
    """A directory with the files that the page speaks of, and a registry of features of its own."""
    monkeypatch.setattr(features, "FEATURES", dict(features.FEATURES))
    monkeypatch.syspath_prepend(workdir)
    monkeypatch.delitem(sys.modules, "my_features", raising=False)
    (workdir / "my_features.py").write_text(file_in_page("my_features.py"))
    (workdir / "gold.yaml").write_text(file_in_page("gold.yaml"))
    prices = generate("gbm", 1000, 0)
    prices.write_parquet("prices.parquet")
    hours = pl.datetime_range(
        pl.datetime(2024, 1, 1), pl.datetime(2025, 1, 1), "1h", time_zone="UTC", eager=True
    )
    gaps = np.exp(np.random.default_rng(0).normal(0, 1e-3, 1000))
    opened = (pl.col("open") * gaps).alias("open")
    gold = prices.with_columns(opened, time=hours[:1000]).with_columns(
        high=pl.max_horizontal("open", "high"), low=pl.min_horizontal("open", "low")
    )
    gold.write_parquet("gold.parquet")
    yield workdir
    sys.modules.pop("my_features", None)


@pytest.mark.parametrize("code", EXAMPLES, ids=["account", "gymnasium", "prepare"])
def test_the_examples_run(code, here, capsys):
    names: dict = {}
    exec(code, names)
    said = capsys.readouterr().out
    printed = [line.removeprefix("# ") for line in code.splitlines() if line.startswith("# [")]
    assert said.splitlines() == printed if printed else said
    if "env" in names:
        assert names["over"] and names["obs"].shape == (5 * len(DEFAULT_FEATURES) + 1,)
    if "prepared" in names:
        assert names["prepared"].feature_names == ("log_return_1", "rsi_30")


def test_the_commands_run(here, capsys, monkeypatch):
    assert [words.split()[1] for words in COMMANDS] == [
        *("experiment", "peek", "report", "generate-data"),
        *("generate-data", "generate-data", "experiment", "experiment"),
        *("evaluate", "trade"),
    ]
    small = flags(*budget("sine_wave"), "training.max_steps=256")
    for words in COMMANDS:
        arguments = words.split()[1:]
        if arguments[0] == "experiment":
            one_walk = flags("trials=5") if "data.split.fold=all" in arguments else []
            arguments += [*small, *one_walk]
        if arguments[0] == "evaluate":
            write_new_bars(Path(PRICES))
        said = run_main(arguments, capsys, monkeypatch)
        if arguments[0] == "peek":  # the scenario's own settings are not these small ones
            assert "was made with rows 1000, the scenario says 5000" in said.err
            continue
        assert said.code == 0 and said.out, f"{words}\n{said.err}"
        if arguments[0] in ("evaluate", "trade"):
            title = next(
                line for line in said.out.splitlines() if line.split()[0] in ("log", "bar")
            )
            assert title.split() in [line.split() for line in PAGE.splitlines()]
    exec(file_in_page("decide.py"), {})
    needed, flat, held, *steps = capsys.readouterr().out.splitlines()
    assert 10 < int(needed) < 40 and {float(flat), float(held)} <= {-1.0, 0.0, 1.0}
    assert len(steps) == 3 and {float(line.split()[1]) for line in steps} <= {-1.0, 0.0, 1.0}


def write_new_bars(path: Path) -> None:
    """Sixty bars that continue a file, where the page has them."""
    known = pl.read_parquet(path)
    days = known["time"][-1] + pl.Series(range(1, 61)).cast(pl.Int64) * timedelta(days=1)
    new = (
        known.tail(60).with_columns(time=days).with_columns(pl.col("time").dt.strftime("%Y-%m-%d"))
    )
    new.write_csv("new.csv")


def test_a_scenario_and_a_feature_of_ones_own(here, capsys, monkeypatch):
    small = [each for each in budget("sine_wave") if not each.startswith("data.")]
    arguments = ["experiment", "--config", "gold.yaml", *flags(*small), "--max-steps", "256"]
    said = run_main(arguments, capsys, monkeypatch)
    assert said.code == 0, said.err
    scenario = load("gold.yaml")
    assert scenario.data.features[-1].kind == "my_features:gap" and scenario.trials == 5
    (loop,) = re.findall(r"^  proxima (experiment --config gold.yaml .+)$", PAGE, re.MULTILINE)
    settings = re.findall(r"--set (\S+)", loop.replace("$k", "4"))
    bounds = [prepare_data(load("gold.yaml", each).data, "gold").bounds for each in ([], settings)]
    assert bounds[0]["test"][1] == bounds[1]["test"][1] == 1000
    assert bounds[1]["test"][0] > bounds[0]["test"][0], "the last fold tests on less"


def test_the_refusals_are_those_of_the_reader(here, capsys, monkeypatch):
    for _, _, words in _checks():
        assert words in PAGE
    (here / "bad.csv").write_text(
        "date,open,high,low,close,volume\n2024-01-01,100,103,99,102,10\n"
        "2024-01-02,102,103,100,101,-5\n2024-01-02,101,x,100,100,7\n"
    )
    said = run_main(["peek", "bad.csv"], capsys, monkeypatch)
    assert said.code == 1 and said.err in PAGE


def test_no_feature_pattern_metric_or_setting_is_left_out():
    done = account(np.ones(5), np.full(5, 0.01), 0.0, 0.0)
    own = [
        name for name, each in features.FEATURES.items() if "proxima" in each.expression.__module__
    ]
    settings = [
        field.name
        for kind in (DataConfig, FeatureConfig, SplitConfig, TradingEnvConfig)
        for field in fields(kind)
        if field.name not in ("rows", "seed", "params")  # of patterns, which list their own
    ]
    prose = re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL)
    quoted = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]+)`", prose))))
    written = set(re.findall(r"\w+", file_in_page("gold.yaml")))
    trading = [name for name in shipped() if isinstance(load(name), TradingScenario)]
    for name in (*own, *PATTERNS, *tear_sheet(done, [], 252), *settings, *trading):
        assert name in quoted | written, name


def test_windows_in_the_table_are_the_defaults():
    section = PAGE.split("\n## Features\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`[^|]+`) \| [^|]+ \| (\w+) \|$", section, re.MULTILINE)
    assert len(rows) > 8
    for names, window in rows:
        for name in re.findall(r"`(\w+)`", names):
            assert str(features.FEATURES[name].default_window).lower() == window, name

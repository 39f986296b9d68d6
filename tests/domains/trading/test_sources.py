"""Real prices out of packages: read as they are, written as a user's own file, with whose they are."""

import json
import sys

import numpy as np
import pytest
from tiny import run_main

from proxima.core.errors import ProximaError
from proxima.domains.trading import sources
from proxima.domains.trading.data import prepare_data
from proxima.domains.trading.ohlcv import read_bars
from proxima.scenario import load


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def main(here, capsys, monkeypatch):
    """The command line there."""
    return lambda *arguments: run_main(arguments, capsys, monkeypatch)


@pytest.mark.parametrize(
    ("name", "rows", "first", "last", "close"),
    [
        ("sp500", 5031, "1999-01-04", "2018-12-31", 2506.850098),
        ("nasdaq", 5031, "1999-01-04", "2018-12-31", 6635.279785),
        ("eurusd", 6225, "2017-01-01T22", "2017-12-29T21", 1.20075),
    ],
)
def test_a_source_is_the_packages_file_bar_by_bar(here, name, rows, first, last, close):
    path = sources.write_source(name)
    frame = read_bars(path).frame
    time = frame["time"].to_numpy()
    assert (frame.height, frame["close"][-1]) == (rows, close)
    assert (time[0], time[-1]) == (np.datetime64(first), np.datetime64(last))
    note = path.with_suffix(".origin.txt").read_text()
    source = sources.SOURCES[name]
    assert source.licence in note and source.distribution in note and source.origin in note
    before = path.read_bytes()
    assert sources.write_source(name).read_bytes() == before  # the same file gives the same bytes


def test_no_code_of_a_package_runs(here, monkeypatch):
    for name in ("arch", "gym_anytrading"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    sources.write_source("sp500")
    sources.write_source("eurusd")
    assert "arch" not in sys.modules and "gym_anytrading" not in sys.modules


def test_a_package_that_is_missing_is_named_with_its_remedy(here, monkeypatch):
    monkeypatch.setitem(sys.modules, "gym_anytrading", None)
    with pytest.raises(
        ProximaError, match=r"--source eurusd needs the package gym-anytrading; .*prices"
    ):
        sources.write_source("eurusd")
    assert not list(here.rglob("*.parquet"))


def test_the_command_says_whose_the_prices_are(main):
    said = main("generate-data", "--source", "sp500")
    assert said.code == 0 and "Wrote data/raw/real/sp500.parquet" in said.out
    assert "licence: University of Illinois/NCSA" in said.out and "package: arch 8" in said.out
    listed = json.loads(main("generate-data", "--list-sources", "--json").out)
    assert set(sources.SOURCES) <= {about["source"] for about in listed}
    assert "eurusd" in main("generate-data", "--list-sources").out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--source", "dax"], "dax is no source; there are sp500, nasdaq, eurusd"),
        (["--source", "sp500", "--pattern", "gbm"], "name what to generate: --scenario"),
        (["--source", "sp500", "--set", "rows=5"], "leave out --name and --set"),
    ],
)
def test_what_cannot_be_taken_is_refused_in_words(here, main, arguments, words):
    said = main("generate-data", *arguments)
    assert said.code == 1 and words in said.err
    assert not list(here.rglob("*.parquet"))


@pytest.mark.parametrize("name", ["sp500_daily", "eurusd_hourly"])
def test_the_scenarios_read_what_their_source_writes(here, name):
    scenario = load(name)
    with pytest.raises(ProximaError, match="no such file; make it with `proxima generate-data"):
        prepare_data(scenario.data, scenario.name)
    sources.write_source(scenario.data.source)
    prepared = prepare_data(scenario.data, scenario.name)
    assert len(prepared.test.close) > 900
    assert prepared.pattern is None


def test_a_source_of_another_name_is_refused_at_the_setting():
    with pytest.raises(ProximaError, match="source: dax is no source of prices; there are sp500"):
        load("sp500_daily", ["data.source=dax"])
    with pytest.raises(ProximaError, match="both are given; set one of data"):
        load("sp500_daily", ["data.path=x.csv"])

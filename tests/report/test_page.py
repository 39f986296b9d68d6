"""The report of a run: what it says, what it escapes, that it needs nothing from outside."""

import base64
import json
from io import BytesIO

import numpy as np
import pytest
from page_reader import read
from PIL import Image
from rollout_frames import random_prices, rollout
from tiny import run_main

from proxima.core.errors import ProximaError
from proxima.report import html, metrics, statistics
from proxima.report.page import report
from proxima.run import report as experiment_report
from proxima.run.files import create_run, write_json

BARS = 80
TRIALS = 3
EVIL = """<script>alert("x")</script> & 'so on' https://example.org"""
SPLITS = ("train", "validation", "test")


def prices():
    return random_prices(BARS + 1)


def sheet(frame):
    """Every metric that a table can have, most of them made up."""
    log_return = float(frame["log_return"].sum())
    found = {name: 0.25 for name in metrics.METRICS} | {"sortino": None, "trades": 12}
    return found | {"log_return": log_return, "total_return": float(np.expm1(log_return))}


def trial_result(trial, frame=None):
    returns = [10.0 + trial, 12.0]
    found = {
        "trial": trial,
        "seed": trial,
        "environment_steps": 4_096,
        "steps_per_second": 1_000.0,
        "training_seconds": 1.5,
        "converged": False,
        "converged_at_step": None,
        "stopped": None,
        "nan_at_step": None,
        "evaluation": {"returns": returns, "return_mean": np.mean(returns), "return_std": 1.0}
        | {"return_min": min(returns), "return_max": max(returns)},
        "random": {"returns": [1.0, 2.0], "return_mean": 1.5},
    }
    if frame is None:
        return found
    agent = sheet(frame) | {"log_return_low": -1.0, "log_return_high": 1.0}
    judged = {"agent": agent, "score": {"foresight": 0.5, "model": None}, "too_good": []}
    return found | {"trading": {"splits": dict.fromkeys(SPLITS, judged)}}


def over_trials(results, part):
    rows = [result["trading"]["splits"]["test"][part] for result in results]
    return {
        name: statistics.aggregate([np.nan if row[name] is None else row[name] for row in rows])
        for name in rows[0]
    }


def trading_summary(results, references):
    known = {name: sheet(frame) for name, frame in references.items()} | {"model": None}
    known["random"] = {"log_return": {"mean": -0.1, "low": -0.3, "high": 0.1, "runs": 200}}
    return {
        "references": {"splits": dict.fromkeys(SPLITS, known)},
        "aggregate": dict.fromkeys(SPLITS, over_trials(results, "agent")),
        "score": dict.fromkeys(SPLITS, over_trials(results, "score") | {"model": None}),
        "chosen_trial": 1,
        "deflated_sharpe": 0.61,
        "alarms": [],
    }


def write_run(output, trials=TRIALS, trading=False):
    """A finished run's directory, as far as a report reads it."""
    files = create_run(str(output), "cartpole", trials)
    data = "{periods_per_year: 252.0, leaky: false}" if trading else "null"
    files.scenario.write_text(
        f"name: cartpole\ndescription: {json.dumps(EVIL)}\ndata: {data}\n"
        "env: {name: CartPole-v1, backend: gymnax}\nevaluation: {checkpoint: best}\n"
    )
    held = [
        np.repeat(np.random.default_rng(k).choice([-1.0, 1.0], BARS // 10), 10)
        for k in range(trials)
    ]
    frames = [rollout(prices(), each) for each in held]
    results = [trial_result(k, frames[k] if trading else None) for k in range(trials)]
    summary = {
        "scenario": "cartpole",
        "algorithm": "ppo",
        "run_id": files.run_id,
        "target_reward": 11.5,
        "converged": 1,
        "environment_steps": 4_096 * trials,
        "trials": results,
        "aggregate": statistics.aggregate([each["evaluation"]["return_mean"] for each in results]),
        "baselines": {"random": {"iqm": 1.5, "low": 1.5, "high": 1.5}},
    }
    if trading:
        ahead = np.sign(np.diff(prices()))
        chosen = {"buy_and_hold": np.ones(BARS), "momentum": np.roll(ahead, 1), "foresight": ahead}
        references = {name: rollout(prices(), each) for name, each in chosen.items()}
        summary["trading"] = trading_summary(results, references)
        (files.root / "rollouts").mkdir()
        for name, frame in references.items():
            frame.write_parquet(files.root / "rollouts" / f"{name}_test.parquet")
    for trial in range(trials):
        rows = [{"step": 1_024 * k, "eval/return_mean": 3.0 * k + trial} for k in range(1, 5)]
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (files.trial(trial) / "metrics.jsonl").write_text(lines)
        if trading:
            (files.trial(trial) / "rollouts").mkdir()
            frames[trial].write_parquet(files.trial(trial) / "rollouts" / "test.parquet")
    write_json(files.summary, summary)
    started = {"started": "2026-01-02T03:04:05+00:00", "versions": {"proxima": "0.1.0"}}
    write_json(files.info, {"run_id": files.run_id, "mlflow_run_id": "abc123", **started})
    return files


@pytest.fixture(scope="module")
def plain_run(tmp_path_factory):
    return experiment_report.read_run(write_run(tmp_path_factory.mktemp("plain")))


@pytest.fixture(scope="module")
def trading_run(tmp_path_factory):
    return experiment_report.read_run(write_run(tmp_path_factory.mktemp("market"), trading=True))


@pytest.fixture(scope="module")
def plain_page(plain_run):
    return report(plain_run)


@pytest.fixture(scope="module")
def trading_page(trading_run):
    return report(trading_run)


@pytest.fixture
def undrawn(monkeypatch):
    """Pages without their pictures, which take most of the time."""
    monkeypatch.setattr(html, "png", lambda figure, dots: b"")


def test_text_and_attributes_are_escaped():
    inner = html.tag("b", "c")
    made = html.tag("p.lead", "a < b & ", inner, attributes={"title": '"quoted" <x>'})
    expected = '<p class="lead" title="&quot;quoted&quot; &lt;x&gt;">a &lt; b &amp; <b>c</b></p>'
    assert made.html == expected
    assert html.table(["<i>"], [["<u>", "<s>"]]).html.count("&lt;") == 3


@pytest.mark.parametrize("kind", ["plain_page", "trading_page"])
def test_a_page_needs_nothing_from_outside_and_runs_nothing(kind, request):
    page = request.getfixturevalue(kind)
    reader = read(page)
    names = {name for name, _ in reader.seen}
    assert not names & {"script", "link", "iframe", "object", "base", "form", "a"}
    for _, attributes in reader.seen:
        for key, value in attributes.items():
            assert not key.startswith("on")
            if key in ("src", "srcset", "href"):
                assert value.startswith("data:image/")
    style = page[page.index("<style>") : page.index("</style>")]
    assert "url(" not in style and "@import" not in style
    assert "https://example.org" in reader.words  # where it can stand: as text


@pytest.mark.parametrize("kind", ["plain_page", "trading_page"])
def test_what_users_wrote_is_text(kind, request):
    page = request.getfixturevalue(kind)
    assert "<script" not in page
    assert read(page).words.count(EVIL) == 1  # the description; settings spell it in YAML
    assert "alert(" in read(page).words


@pytest.mark.parametrize("kind", ["plain_page", "trading_page"])
def test_pictures_come_in_two_widths_with_words(kind, request):
    reader = read(request.getfixturevalue(kind))
    images = [given for name, given in reader.seen if name == "img"]
    narrow = [given for name, given in reader.seen if name == "source"]
    assert len(images) == len(narrow) >= 2
    for image, phone in zip(images, narrow, strict=True):
        assert image["alt"]
        widths = [
            Image.open(BytesIO(base64.b64decode(address.split(",")[1]))).width
            for address in (image["src"], phone["srcset"])
        ]
        assert widths == [1760, 924]


def test_a_page_says_what_came_out_and_how_sure_that_is(plain_page, plain_run):
    words = read(plain_page).words
    found = plain_run.summary["aggregate"]
    ends = f"[{metrics.figure(found['low'])}, {metrics.figure(found['high'])}]"
    assert f"{metrics.figure(found['iqm'])} {ends}" in words
    assert "over 3 trials" in words and "the random policy 1.50" in words
    assert "The target is 11.5: 1 of 3 trials reached it" in words
    assert plain_run.summary["run_id"] in words and "proxima 0.1.0" in words and "abc123" in words
    assert f"proxima evaluate {plain_run.summary['run_id']} --output" in words
    assert "2026-01-02 03:04:05 UTC" in words
    assert "Test split" not in words and "Sharpe" not in words


def test_a_trading_page_has_the_tear_sheet(trading_page, trading_run):
    words = read(trading_page).words
    summary = trading_run.summary
    found = summary["trading"]["aggregate"]["test"]["log_return"]
    assert f"log return after fees of {metrics.figure(found['iqm'])}" in words
    for metric in metrics.METRICS.values():
        assert words.count(metric.name) >= 3  # once for each split
    for word in ("Buy and hold", "Momentum", "Random", "Perfect foresight", "Validation split"):
        assert word in words
    assert "Model-optimal" not in words  # there is none for these prices
    assert "Returns by month in percent" in words and "2020" in words
    assert "61 %" in words and "mean of 200 runs" in words
    returns = {k: frame["log_return"].sum() for k, frame in trading_run.rollouts.trials.items()}
    median = sorted(returns, key=returns.get)[1]
    assert f"{median} (median)" in words and f"trial {median}, the one with the median" in words
    assert "Too good" not in words


def with_trading(run, **changes):
    summary = run.summary | {"trading": run.summary["trading"] | changes}
    return run._replace(summary=summary)


def test_alarms_come_before_everything_else(trading_run, undrawn):
    run = with_trading(trading_run, alarms=["trial 0, test split: its value <never> fell"])
    words = read(report(run)).words
    assert "its value <never> fell" in words
    assert words.index("Too good to be true?") < words.index("Learning")


def test_a_leak_on_purpose_is_said_at_the_top(trading_run, undrawn):
    data = trading_run.scenario["data"]
    run = trading_run._replace(scenario=trading_run.scenario | {"data": data | {"leaky": True}})
    words = read(report(run)).words
    assert words.index("The agent sees the future") < words.index("Learning")
    assert "sees the future" not in read(report(trading_run)).words


def test_trials_that_broke_down_are_named(plain_run, undrawn):
    broken = plain_run.summary["trials"][1] | {"stopped": "nan", "nan_at_step": 2_048}
    trials = [plain_run.summary["trials"][0], broken]
    words = read(report(plain_run._replace(summary=plain_run.summary | {"trials": trials}))).words
    assert "trial 1, after step 2,048" in words


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (90.0, 99.0, "above buy and hold, momentum and random trading."),
        (-99.0, -90.0, "below buy and hold, momentum and random trading."),
        (-99.0, 99.0, "not told apart from buy and hold, momentum and random trading."),
    ],
)
def test_the_verdict_follows_the_interval(low, high, verdict, trading_run, undrawn):
    test = trading_run.summary["trading"]["aggregate"]["test"]
    found = {"iqm": (low + high) / 2, "low": low, "high": high}
    changed = {**trading_run.summary["trading"]["aggregate"], "test": test | {"log_return": found}}
    words = read(report(with_trading(trading_run, aggregate=changed))).words
    assert f"The interval is {verdict}" in words


@pytest.mark.parametrize("trading", [False, True])
def test_one_trial_has_no_interval_and_says_so(trading, tmp_path, undrawn):
    words = read(report(experiment_report.read_run(write_run(tmp_path, 1, trading)))).words
    assert "interval over" not in words
    assert not trading or "One trial says nothing about the next" in words


def test_a_run_without_recorded_rollouts_still_has_its_tables(tmp_path, undrawn):
    files = write_run(tmp_path, trading=True)
    for path in files.root.rglob("*.parquet"):
        path.unlink()
    words = read(report(experiment_report.read_run(files))).words
    assert "Maximum drawdown" in words and "median" not in words


def test_the_page_is_written_where_it_is_asked_for(tmp_path, undrawn):
    files = write_run(tmp_path / "logs")
    written = experiment_report.report_reference("cartpole", None, str(tmp_path / "logs"))
    assert written == files.root.resolve() / "report.html"
    assert read(written.read_text(encoding="utf-8"))
    elsewhere = tmp_path / "deep" / "page.html"
    assert experiment_report.write_report(files, elsewhere) == elsewhere
    assert elsewhere.read_text() == written.read_text()
    assert not list(elsewhere.parent.glob(".*"))


def test_a_page_that_cannot_be_written_is_told_in_words(tmp_path, undrawn):
    files = write_run(tmp_path / "logs")
    (tmp_path / "file").write_text("")
    with pytest.raises(ProximaError, match=r"file/page\.html: cannot write the report there"):
        experiment_report.write_report(files, tmp_path / "file" / "page.html")


def test_a_run_that_did_not_finish_is_told_in_words(tmp_path):
    files = write_run(tmp_path / "logs")
    files.summary.unlink()
    with pytest.raises(ProximaError, match=r"summary\.json: no such file; did that run finish"):
        experiment_report.write_report(files)


def test_the_command_writes_the_page_and_says_where(workdir, capsys, monkeypatch, undrawn):
    files = write_run("logs")
    said = run_main(["report", "cartpole"], capsys, monkeypatch)
    path = files.root.resolve() / "report.html"
    assert (said.code, said.out, said.err) == (0, f"Report: {path}\n", "")
    assert path.is_file()
    run_main(["report", files.run_id, "--out", "page.html"], capsys, monkeypatch)
    assert (workdir / "page.html").is_file()
    said = run_main(["report", "nothing"], capsys, monkeypatch)
    assert said.code == 1 and "there are: cartpole" in said.err


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (float("inf"), "–"),
        (0.0, "0"),
        (-0.0211, "−0.021"),
        (2.7149, "2.71"),
        (123.45, "123.5"),
        (-12_345.6, "−12,346"),
        (3.1e9, "3.1e9"),
        (2e-5, "2e−5"),
    ],
)
def test_figures_read_well(value, text):
    assert metrics.figure(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0.0, "0 %"),
        (-0.2761, "−27.6 %"),
        (0.0012, "0.12 %"),
        (-0.000012, "0.00 %"),
        (17.6, "1,760 %"),
        (249.0, "×250"),
        (1e12, "×1e12"),
    ],
)
def test_shares_read_well(value, text):
    assert metrics.share(value).replace("\u00a0", " ") == text

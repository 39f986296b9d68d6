"""The commands as a user types them: help, lists, evaluation, comparison, JSON, dashboard."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest
from PIL import Image
from ruamel.yaml import YAML
from tiny import TINY, command, flags, read, run_main, tiny

import proxima
from proxima.build import DOMAINS
from proxima.report.numbers import brief
from proxima.scenario import from_mapping, load, parse, shipped
from proxima.track import dashboard

COMMANDS = (
    "experiment",
    "scenarios",
    "evaluate",
    "export",
    "resume",
    "tune",
    "compare",
    "profile",
    "generate-data",
    "peek",
    "trade",
    "report",
    "chat",
    "generate",
    "model",
    "dashboard",
    "schema",
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The output directory of two finished runs of two experiments, and where each is."""
    output = tmp_path_factory.mktemp("runs")
    first = proxima.run_multiple_experiments(tiny(output))
    second = proxima.run_multiple_experiments(
        tiny(output, "name=faster", "algorithm.learning_rate=0.01")
    )
    return output, Path(first["paths"]["run"]), Path(second["paths"]["run"])


@pytest.fixture
def main(workdir, capsys, monkeypatch):
    """The command line in an empty directory."""
    return lambda *arguments: run_main(arguments, capsys, monkeypatch)


def test_help_names_every_command(main):
    said = main("--help")
    assert said.code == 0 and said.err == ""
    for name in COMMANDS:
        assert re.search(rf"\b{name}\b", said.out)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "experiment",
            [
                *("--scenario", "--config", "--trials", "--seed", "--max-steps", "--set"),
                *("--generate-data", "--no-mlflow"),
            ],
        ),
        ("scenarios", ["NAME"]),
        ("evaluate", ["RUN", "--episodes", "--trial", "--film", "--data"]),
        ("export", ["RUN", "--onnx", "--trial", "--out"]),
        ("resume", ["RUN"]),
        (
            "tune",
            [
                "--search",
                "--method",
                "--configs",
                "--seeds",
                "--resume",
                "--dry-run",
                "--no-mlflow",
            ],
        ),
        ("compare", ["RUN", "--plot"]),
        ("generate-data", ["--scenario", "--pattern", "--set", "--name", "--list"]),
        ("peek", ["DATA", "--plot"]),
        ("trade", ["RUN", "--bars", "--state", "--capital", "--from", "--fresh", "--any-gap"]),
        ("report", ["EXPERIMENT", "--out"]),
        ("dashboard", ["--port"]),
        ("schema", ["JSON schema"]),
    ],
)
def test_help_of_every_command(name, words, main):
    said = main(name, "--help")
    assert said.code == 0
    assert all(word in said.out for word in words)
    if name not in ("scenarios", "report", "dashboard", "schema"):
        assert "--json" in said.out


def test_help_waits_for_nothing_heavy(workdir):
    said = subprocess.run(
        [
            *(sys.executable, "-X", "importtime", "-c"),
            "from proxima.cli import main; main()",
            "--help",
        ],
        cwd=workdir,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert said.returncode == 0 and "experiment" in said.stdout
    imported = {line.rpartition("|")[2].strip().split(".")[0] for line in said.stderr.splitlines()}
    assert "typer" in imported
    assert not imported & {
        *("jax", "jaxlib", "equinox", "optax", "gymnax", "gymnasium", "numpy"),
        *("mlflow", "matplotlib", "pydantic", "PIL", "ruamel"),
    }


def test_the_list_of_scenarios_has_them_all(main):
    said = main("scenarios")
    assert said.code == 0
    lines = said.out.splitlines()
    assert [line.split()[0] for line in lines[: len(shipped())]] == list(shipped())
    assert all(len(line) <= 80 for line in lines), "a line each, also in a narrow terminal"
    assert len(lines) == len(shipped()) + 2


def test_a_scenario_is_named_as_an_argument_too(main):
    said = main("experiment", "cartpol")
    assert said.code == 1 and "cartpol: no such scenario; did you mean cartpole" in said.err
    for both in (["cartpole", "--scenario", "pendulum"], ["cartpole", "--config", "my.yaml"], []):
        said = main("experiment", *both)
        assert said.code == 1 and "name one scenario: proxima experiment NAME" in said.err
    said = main("experiment", "cartpole", "--set", "training.max_step=1")
    assert said.code == 1 and "--set: training.max_step: unknown key" in said.err


def test_the_version(main):
    said = main("--version")
    assert (said.code, said.out) == (0, f"proxima {proxima.__version__}\n")


def test_a_shell_completes_commands_scenarios_and_experiments(workdir, monkeypatch):
    (workdir / "logs" / "carriage" / "latest").mkdir(parents=True)
    for words, expected in {
        "proxima expe": ["experiment"],
        "proxima experiment pendulum_sp": ["pendulum_spo"],
        "proxima scenarios maze_p": ["maze_ppo"],
        "proxima resume carr": ["carriage"],
    }.items():
        asked = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
        start = "import sys; sys.argv[0] = 'proxima'; from proxima.cli import main; main()"
        said = subprocess.run(
            [sys.executable, "-c", start],
            env=os.environ | asked | {"_PROXIMA_COMPLETE": "complete_bash"},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert said.stdout.split() == expected, said


def test_a_scenario_is_shown_in_full_and_can_be_run_from_that(main, workdir):
    said = main("scenarios", "pendulum")
    assert said.code == 0
    assert from_mapping(parse(said.out, "shown"), "shown") == load("pendulum")


def branches(schema, part):
    """The schemas that a part may follow: those it refers to, or chooses among."""
    if "$ref" in part:
        return branches(schema, schema["$defs"][part["$ref"].rpartition("/")[2]])
    choices = part.get("oneOf", part.get("anyOf"))
    return (
        [part] if choices is None else [one for each in choices for one in branches(schema, each)]
    )


def fits(schema, part, value):
    """Whether a value fits a part of the schema, as far as keys, lists and named choices go."""
    found = [each for each in branches(schema, part) if fits_one(schema, each, value)]
    return len(found) == 1 if "oneOf" in part else bool(found)


def fits_one(schema, part, value):
    if isinstance(value, list):
        return part.get("type") == "array" and all(fits(schema, part["items"], v) for v in value)
    if not isinstance(value, dict):
        allowed = [part["const"]] if "const" in part else part.get("enum", [value])
        return part.get("type") not in ("array", "object") and value in allowed
    known, others = part.get("properties", {}), part.get("additionalProperties")
    anything = others is True  # under keys that are not known
    return (
        part.get("type") == "object"
        and value.keys() >= set(part.get("required", []))
        and (value.keys() <= known.keys() or anything or isinstance(others, dict))
        and all(
            (anything and key not in known) or fits(schema, known.get(key, others), inner)
            for key, inner in value.items()
        )
    )


def test_the_schema_knows_every_key_that_shipped_scenarios_use(main):
    said = main("schema")
    assert said.code == 0 and said.err == ""
    schema = json.loads(said.out)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    roots = dict(zip(DOMAINS, (branch["then"] for branch in schema["allOf"]), strict=True))
    assert all(each["additionalProperties"] is False for each in roots.values())
    sections = [each for each in schema["$defs"].values() if each["type"] == "object"]
    assert all(each["additionalProperties"] is False for each in sections)
    for name, path in shipped().items():
        written = YAML(typ="safe", pure=True).load(path.read_text())
        keys = roots[load(name).domain]["properties"]
        for key, value in written.items():
            assert fits(schema, keys[key], value), (name, key)
        for key in {"env", "algorithm", "ppo"} & set(written):
            assert not fits(schema, keys[key], written[key] | {"no_such_key": 1})
    # an editor that is told of two fitting choices calls the file wrong
    keys = roots["control"]["properties"]
    assert not fits(schema, keys["env"], {"backend": "gymnax", "fee": 0.0})
    assert not fits(schema, keys["algorithm"], {"name": "ppo", "tau": 0.1})
    gamma = schema["$defs"]["PPOConfig"]["properties"]["gamma"]
    assert (gamma["minimum"], gamma["maximum"], gamma["default"]) == (0, 1, 0.99)
    assert gamma["description"]


def test_the_json_of_an_experiment_is_its_summary_and_nothing_else(main, workdir):
    arguments = ["--scenario", "cartpole", "--trials", "1", "--seed", "7", "--max-steps", "300"]
    said = main("experiment", *flags(*TINY), *arguments, "--no-mlflow", "--json")
    assert said.code == 0, said.err
    summary = json.loads(said.out)
    assert summary == read(workdir / "logs" / "cartpole" / "summary.json")
    assert summary["trials"][0]["seed"] == 7
    assert summary["trials"][0]["environment_steps"] == 320
    assert "300 steps" in said.err, "progress goes elsewhere"


def test_an_experiment_ends_with_a_table_an_interval_and_where_everything_is(main, workdir):
    said = main("experiment", "--scenario", "cartpole", *flags(*TINY), "--max-steps", "640")
    assert said.code == 0 and said.err == ""
    summary = read(workdir / "logs" / "cartpole" / "summary.json")
    (results,) = summary["trials"]
    assert "steps/s" in said.out and "s left" in said.out
    mean, deviation = (results["evaluation"][key] for key in ("return_mean", "return_std"))
    assert f"{mean:.1f} ± {deviation:.1f}" in said.out
    assert f"interquartile mean of 1 trial(s): {summary['aggregate']['iqm']:.1f}" in said.out
    assert summary["paths"]["run"] in said.out
    assert (workdir / summary["paths"]["run"] / "summary.json").is_file()


def test_a_config_file_of_ones_own(main, workdir):
    lines = ["env:", "  num_envs: 2"]
    (workdir / "mine.yaml").write_text("\n".join(lines))
    arguments = ["--config", "mine.yaml", *flags(*TINY), "--max-steps", "64", "--json"]
    said = main("experiment", *arguments)
    assert said.code == 0, said.err
    assert json.loads(said.out)["scenario"] == "mine"
    assert (workdir / "logs" / "mine" / "summary.json").is_file()


@pytest.mark.parametrize("reference", ["experiment", "id", "run", "trial", "link", "step"])
def test_evaluate_takes_a_run_a_trial_or_a_checkpoint(reference, runs, main):
    output, run, _ = runs
    named = {
        "experiment": "cartpole",
        "id": run.name,
        "run": run,
        "trial": output / "cartpole" / "trial_0",
        "link": run / "trial_0" / "checkpoints" / "last",
        "step": run / "trial_0" / "checkpoints" / "step_000000002048",
    }
    said = main("evaluate", named[reference], "--episodes", 4, "--output", output, "--json")
    assert said.code == 0, said.err
    found, results = json.loads(said.out), read(run / "trial_0" / "results.json")
    assert found["step"] == 2048
    for policy in ("evaluation", "sampled", "random"):
        assert found[policy] == results[policy], "the same fixed episodes as at the end of training"


def test_evaluate_takes_the_number_of_episodes_and_draws_a_film(runs, main, workdir):
    _, run, _ = runs
    said = main("evaluate", run, "--episodes", 2, "--film", "film.gif")
    assert said.code == 0, said.err
    expected = read(run / "trial_0" / "results.json")["evaluation"]["returns"][:2]
    assert f"return {brief(sum(expected) / 2):>9}" in said.out
    assert "over 2 episodes" in said.out and "film.gif" in said.out
    with Image.open(workdir / "film.gif") as film:
        assert film.format == "GIF" and film.n_frames > 1


def test_a_film_that_cannot_be_written_is_told_in_words(runs, main, workdir):
    _, run, _ = runs
    (workdir / "file").touch()
    said = main("evaluate", run, "--episodes", 4, "--film", "file/film.gif")
    assert said.code == 1 and said.out == ""
    assert said.err.startswith("Error: --film file/film.gif: cannot write there")


def test_compare_puts_runs_side_by_side(runs, main, workdir):
    output, first, second = runs
    arguments = ["compare", "cartpole", second.name, "--output", output]
    said = main(*arguments, "--plot", "both.png")
    assert said.code == 0, said.err
    assert "cartpole" in said.out and "faster" in said.out
    for run in (first, second):
        assert brief(read(run / "summary.json")["aggregate"]["iqm"]) in said.out
    assert (workdir / "both.png").read_bytes().startswith(b"\x89PNG")

    said = main(*arguments, "--json")
    assert said.code == 0 and (workdir / "comparison.png").is_file()
    found = json.loads(said.out)
    assert [row["name"] for row in found["runs"]] == ["cartpole", "faster"]
    iqms = [read(run / "summary.json")["aggregate"]["iqm"] for run in (first, second)]
    assert [row["iqm"] for row in found["runs"]] == pytest.approx(iqms)
    (improvement,) = found["improvements"]
    assert improvement["difference"] == pytest.approx(iqms[0] - iqms[1])


def test_compare_tells_two_runs_of_one_experiment_apart(runs, main, tmp_path):
    _, first, _ = runs
    again = proxima.run_multiple_experiments(tiny(tmp_path, "seed=2"))
    said = main("compare", first, again["paths"]["run"], "--json")
    assert said.code == 0, said.err
    found = json.loads(said.out)
    names = [row["name"] for row in found["runs"]]
    assert names == [f"cartpole {first.name}", f"cartpole {again['run_id']}"]
    # episode k starts from the experiment's seed + k: other seeds are other episodes
    (unpaired,) = found["improvements"]
    assert unpaired["differences"] == ["seed"] and "difference" not in unpaired
    assert f"{names[0]} and {names[1]} are not paired, for they were not" in unpaired["text"]


def test_a_plot_that_cannot_be_written_is_told_in_words(runs, main, workdir):
    _, first, second = runs
    (workdir / "file").touch()
    said = main("compare", first, second, "--plot", "file/plot.png")
    assert said.code == 1 and said.out == ""
    assert said.err.startswith("Error: --plot file/plot.png: cannot write there")


def test_home_is_expanded_in_references_and_options(runs, main, monkeypatch):
    output, first, _ = runs
    monkeypatch.setenv("HOME", str(output))
    said = main("report", f"~/{first.relative_to(output)}", "--out=~/page.html")
    assert said.code == 0 and (output / "page.html").exists(), said.err
    said = main("compare", "cartpole", "faster", "--output=~", "--plot=~/plot.png")
    assert said.code == 0 and (output / "plot.png").exists(), said.err
    said = main("experiment", "--config=~/none.yaml")
    assert said.code == 1 and f"{output}/none.yaml: no such file" in said.err


def test_the_dashboard_listens_on_this_machine_only(workdir):
    words = dashboard.command(5123)
    assert words[words.index("--host") + 1] == "127.0.0.1"
    assert words[words.index("--port") + 1] == "5123"
    store = dashboard.environment(None)["MLFLOW_BACKEND_STORE_URI"]
    assert store == f"sqlite:///{workdir / 'mlflow.db'}"


def test_the_dashboards_command_line_shows_no_password(workdir):
    uri = "postgresql://me:secret@host/db"
    assert "secret" not in " ".join(dashboard.command(5123))
    assert dashboard.environment(uri)["MLFLOW_BACKEND_STORE_URI"] == uri


def listeners(port: int) -> set[str]:
    """The addresses on which something listens at a port, as the kernel lists them."""
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            _, local, _, state, *_ = line.split()
            address, number = local.split(":")
            if state == "0A" and int(number, 16) == port:
                found.add(address)
    return found


def members(group: int) -> list[int]:
    """The processes of a group or session, as the kernel lists them."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _parent, its_group, session = stat.read_text().rpartition(")")[2].split()[:4]
            if group in (int(its_group), int(session)) and state != "Z":
                found.append(int(stat.parent.name))
    return found


def children(parent: int) -> list[int]:
    """The processes a process has started itself."""
    listed = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [int(child) for child in listed]


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="reads Linux's tables")
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_the_dashboard_serves_and_ends_with_all_its_workers(workdir, sent):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        command("dashboard", "--port", port),
        cwd=workdir,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        text=True,
    )
    server = 0
    try:
        deadline = time.monotonic() + 120
        while not listeners(port):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.1)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=60) as page:
            assert page.status == 200 and b"MLflow" in page.read()
        assert listeners(port) == {"0100007F"}, "127.0.0.1 and no other address"
        (server,) = children(process.pid)
        assert len(members(server)) > 1, "the server has workers"
        os.kill(process.pid, sent)
        said, _ = process.communicate(timeout=60)
        assert process.returncode in (0, 130)
        assert f"http://127.0.0.1:{port}/#/experiments?workflowType=machine_learning" in said
        assert not members(server) and not listeners(port)
    finally:
        for group in filter(None, (process.pid, server)):
            with suppress(ProcessLookupError):  # whoever of its workers is left
                os.killpg(group, signal.SIGKILL)
        process.wait()

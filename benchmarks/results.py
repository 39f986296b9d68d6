"""Every shipped scenario's result beside the published one: runs them, keeps their figures, writes the table.

    python benchmarks/results.py                  runs what is not finished yet, then as --table
    python benchmarks/results.py --only cartpole  this one alone
    python benchmarks/results.py --long           those too that take more than a quarter of an hour
    python benchmarks/results.py --table          runs nothing: the figures of finished runs, and the table

Runs go to results/, one directory per scenario, of which the latest counts; one that was stopped goes on
where it was. Of each finished run its figures are kept in benchmarks/results/scenarios/NAME.json, and the
table in docs/results.md is made of these files alone, so that it can be made again without the runs.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from proxima.build import domain_of
from proxima.core.errors import ProximaError
from proxima.run.files import RunFiles, find_run
from proxima.run.read import load_scenario, read_info, read_summary
from proxima.scenario import load, shipped
from proxima.yaml import read_yaml

ROOT = Path(__file__).parent.parent
RECORDS = ROOT / "benchmarks" / "results" / "scenarios"
PUBLISHED = ROOT / "benchmarks" / "published.yaml"
PAGE = ROOT / "docs" / "results.md"
BEGIN, END = "<!-- made by python benchmarks/results.py -->", "<!-- end of what is made -->"
TRIALS = 5
EARLIER = "recorded earlier, trials not kept"  # the source of figures whose runs are gone
NOTHING = "–"
SHOWN = {"judge": "independent judge", "kl": "KL"}  # held-out figures that get into the table
HEADER = [
    *("scenario", "algorithm", "on", "budget", "figure", "ours", "random", "beside"),
    *("target or line", "published", "measured"),
]

Record = dict[str, Any]


def described(scenario: Any) -> Record:
    """What a scenario is, in a few words."""
    algorithm, environment, budget, target = domain_of(scenario).overview(scenario)
    if scenario.domain in (
        "trading",
        "portfolio",
    ):  # the environment is the same; the prices differ
        several = "several " if scenario.domain == "portfolio" else ""
        environment = f"{several}{scenario.data.pattern or scenario.data.source} prices"
    return {
        "algorithm": algorithm,
        "environment": environment,
        "budget": budget,
        "target": None if target == NOTHING else target,
    }


def record_of(files: RunFiles) -> Record:
    """The figures of a finished run."""
    info, summary, scenario = read_info(files), read_summary(files), load_scenario(files)

    # By the last part of their names: of a pipeline's stages the last one's count.
    changes = {name.rpartition("/")[2]: each for name, each in summary.figures.items()}
    before = {"before": changes["reward"].before.iqm} if "reward" in changes else {}

    def figures(aggregate: Any) -> Record | None:
        if aggregate is None:
            return None
        return {name: getattr(aggregate, name) for name in ("iqm", "low", "high", "n", "failed")}

    return {
        "source": "run",
        "run": summary.run_id,
        "date": info.started[:10],
        "versions": dict(info.versions),
        "seconds": round(sum(info.time.values())),
        "metric": summary.metric,
        **described(scenario),
        "ours": figures(summary.aggregate),
        "sampled": figures(summary.sampled),
        "beside": {name: each.iqm for name, each in summary.baselines.items()} | before,
        "scores": {name: figures(each) for name, each in summary.scores.items()},
        "figures": {
            SHOWN[part]: {"before": figures(change.before), "after": figures(change.after)}
            for part, change in changes.items()
            if part in SHOWN
        },
        "converged": summary.converged,
        "trials": [
            {
                "trial": trial.trial,
                "seed": trial.seed,
                "steps": trial.environment_steps,
                "stopped": trial.stopped,
                "converged_at_step": trial.converged_at_step,
                "training_seconds": round(trial.training_seconds, 1),
                "mean": None if trial.evaluation is None else trial.evaluation.return_mean,
                "episodes": None if trial.evaluation is None else trial.evaluation.episodes,
            }
            for trial in summary.trials
        ],
    }


def state_of(name: str, directory: Path) -> tuple[Literal["absent", "begun", "finished"], Path]:
    """How far a scenario's latest run in the directory has come, and where it is."""
    if not (directory / name / "latest").exists():
        return "absent", directory / name
    files = find_run(str(directory / name))
    return "finished" if read_info(files).status == "finished" else "begun", files.root


def command_for(name: str, directory: Path, trials: int) -> list[str] | None:
    """What is left to be done for a scenario's run, as arguments of `proxima`; None: nothing."""
    state, root = state_of(name, directory)
    if state == "finished":
        return None
    if state == "begun":
        return ["resume", str(root)]
    generate = ["--generate-data"] if domain_of(load(name)).data is not None else []
    place = ["--set", f"output_directory={directory}"]
    return ["experiment", name, "--trials", str(trials), "--no-mlflow", *generate, *place]


def run(names: Sequence[str], directory: Path, trials: int) -> list[str]:
    """Run what is not finished; the names of those that failed."""
    failed = []
    for name in names:
        arguments = command_for(name, directory, trials)
        if arguments is None:
            print(f"{name}: finished already")
            continue
        print(f"{name}: proxima {' '.join(arguments)}", flush=True)
        entry = "from proxima.cli import main; main()"
        done = subprocess.run([sys.executable, "-c", entry, *arguments], cwd=ROOT, check=False)
        if done.returncode:
            failed.append(name)
    return failed


def refresh(directory: Path) -> None:
    """The figures of every finished run in the directory, written down."""
    for name in shipped():
        try:
            state, root = state_of(name, directory)
            if state == "finished":
                write_record(name, record_of(RunFiles(root)))
        except ProximaError as error:
            print(f"{name}: its run was not read: {error}", file=sys.stderr)


def write_record(name: str, record: Record) -> None:
    RECORDS.mkdir(parents=True, exist_ok=True)
    text = json.dumps(record, indent=2, ensure_ascii=False, allow_nan=False)
    (RECORDS / f"{name}.json").write_text(text + "\n")


def read_records() -> dict[str, Record]:
    return {path.stem: json.loads(path.read_text()) for path in sorted(RECORDS.glob("*.json"))}


def read_published() -> dict[str, Record]:
    content: dict[str, Record] = read_yaml(PUBLISHED.read_text(), str(PUBLISHED))
    return content


def number(value: float | str | None) -> str:
    """In digits that its size asks for; what was written down as text has the digits it was given."""
    if value is None:
        return NOTHING
    if isinstance(value, str):
        return value.replace("-", "−")
    digits = 0 if abs(value) >= 1000 else 1 if abs(value) >= 100 else 2 if abs(value) >= 10 else 3
    return f"{value + 0.0:,.{digits}f}".replace("-", "−")


def with_interval(figures: Mapping[str, Any] | None) -> str:
    if figures is None or figures.get("iqm") is None:
        return NOTHING
    if figures.get("low") is None:
        return number(figures["iqm"])
    return f"{number(figures['iqm'])} [{number(figures['low'])}, {number(figures['high'])}]"


def ours(record: Record) -> str:
    """What our trials came to, and how many they were."""
    if "words" in record:
        return str(record["words"])
    figures = record["ours"]
    before = record["beside"].get("before")
    text = f"{number(before)} → " * (before is not None) + with_interval(figures)
    count = figures["n"] if figures else 0
    lost = f", {figures['failed']} failed" if figures and figures.get("failed") else ""
    return f"{text} of {count}{lost}" if (count, lost) != (TRIALS, "") else text


def beside(record: Record) -> str:
    """Fixed rules, the best that is known, and further figures of the trials."""
    rules = {
        name: each for name, each in record["beside"].items() if name not in ("random", "before")
    }
    parts = [f"{name.replace('_', ' ')} {number(each)}" for name, each in rules.items()]
    for name, change in record.get("figures", {}).items():
        start, after = change["before"], change["after"]
        first = f"{number(start['iqm'])} → " if start and start["iqm"] is not None else ""
        parts.append(f"{name.replace('_', ' ')} {first}{with_interval(after)}")
    parts += [
        f"{name.replace('_', ' ')} {with_interval(each)}"
        for name, each in record.get("scores", {}).items()
    ]
    return "; ".join(parts) or NOTHING


def cells(
    name: str, record: Record | None, about: Record, published: Record, mark: str
) -> list[str]:
    """A row of the table."""
    if record is None:
        record = {**about, "beside": {}, "words": "not run", "metric": NOTHING, "date": NOTHING}
    goal = record.get("target") or published.get("line")
    theirs = (
        f"{number(str(published['figure']))} ({published['source']})"
        if "figure" in published
        else NOTHING
    )
    note = f", {EARLIER.split(', ')[1]}" if record.get("source") == EARLIER else ""
    changed = " †" if {**record, **about} != record else ""
    return [
        f"`{name}`{changed}",
        *(record[key] for key in ("algorithm", "environment", "budget")),
        record["metric"].partition(" (")[0],
        f"{ours(record)}{mark}",
        number(record["beside"].get("random")),
        beside(record),
        number(None if goal is None else str(goal)),
        theirs,
        f"{record['date']}{note}",
    ]


def table(records: Mapping[str, Record], published: Mapping[str, Record]) -> str:
    """One row per shipped scenario, and what is to be said of some."""
    rows, notes = [], []
    for name in shipped():
        record, about = records.get(name), described(load(name))
        mark = ""
        if record is not None and "note" in record:
            notes.append(record["note"])
            mark = f" ({len(notes)})"
        rows.append(cells(name, record, about, published.get(name, {}), mark))
    right = {"ours", "random", "target or line"}
    rule = [" ---: " if each in right else " --- " for each in HEADER]
    lines = ["| " + " | ".join(HEADER) + " |", "|" + "|".join(rule) + "|"]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    if any(" †" in row[0] for row in rows):
        lines += ["", "† Its settings have changed since: the row is of the run as it was."]
    for index, note in enumerate(notes, 1):
        lines += ["", f"({index}) {note}"]
    return "\n".join(lines)


def page(text: str, made: str) -> str:
    """The page with what stands between its marks made anew."""
    head, _, rest = text.partition(BEGIN)
    _, found, tail = rest.partition(END)
    if not found:
        raise SystemExit(
            f"{PAGE}: has not the lines {BEGIN!r} and {END!r} between which the table stands"
        )
    return f"{head}{BEGIN}\n\n{made}\n\n{END}{tail}"


def write_page() -> None:
    published = read_published()
    for name in sorted(set(published) - set(shipped())):
        print(
            f"{PUBLISHED.name}: {name} is no shipped scenario, so its figure is in no row",
            file=sys.stderr,
        )
    PAGE.write_text(page(PAGE.read_text(), table(read_records(), published)))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=list(shipped()), default=None)
    parser.add_argument("--long", action="store_true", help="those too that take long")
    parser.add_argument("--table", action="store_true", help="run nothing")
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--directory", type=Path, default=ROOT / "results")
    given = parser.parse_args(arguments)
    directory = given.directory.resolve()
    published = read_published()
    usual = [name for name in shipped() if given.long or not published.get(name, {}).get("long")]
    failed = [] if given.table else run(given.only or usual, directory, given.trials)
    refresh(directory)
    write_page()
    if failed:
        raise SystemExit(f"not finished: {', '.join(failed)}")


if __name__ == "__main__":
    main()

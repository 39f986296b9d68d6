"""What a person sees while a run trains and when it has ended."""

import math
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from proxima.cli.terminal import Progress, open_screen
from proxima.run.recording import Display, StageView
from proxima.scenario import AnyScenario, LanguageScenario, Scenario
from proxima.train.loop import ChunkReport

STATES = {
    None: "running",
    "converged": "converged",
    "budget": "done",
    "nan": "NaN: stopped",
    "callback": "stopped",
}


PREPARING = "Preparing: building and compiling the program…"


def live_display(console: Console, scenario: AnyScenario) -> Display:
    """A progress line with steps, speed, return and time left, and the state of each trial or stage."""
    screen = open_screen(console, PREPARING)

    def chunk(report: ChunkReport, seconds: float) -> None:
        assert not isinstance(scenario, LanguageScenario)
        fraction, ended = done_fraction(report, scenario), not report.progress.active.any()
        line = progress_line(report, seconds, scenario)
        screen.show(Progress("run", fraction, ended, line, trial_states(report)))

    def stage(view: StageView, seconds: float) -> None:
        fraction = view.done / view.updates
        line = stage_line(view, seconds, scenario)
        screen.show(Progress((view.trial, view.stage), fraction, fraction == 1, line))

    return Display(screen.say, chunk, screen.close, stage)


# The figures of a stage that a person wants to see while it runs, by what they are called there.
STAGE_FIGURES = {
    "loss/sft": "loss",
    "eval/perplexity": "held-out perplexity",
    "loss/reward_model": "loss",
    "eval/accuracy": "held-out accuracy",
    "train/score": "reward",
    "train/kl": "KL",
    "train/eos_rate": "EOS",
    "eval/reward": "held-out reward",
    "eval/judge": "judge",
}


def stage_line(view: StageView, seconds: float, scenario: AnyScenario) -> Text:
    """Updates, the stage's figures, time left."""
    text = _bar(scenario.name, view.done / view.updates)
    trial = f"trial {view.trial} " if scenario.trials > 1 else ""
    text.append(f"  {trial}{view.stage.replace('_', ' ')} {view.done:,} / {view.updates:,} updates")
    for key, name in STAGE_FIGURES.items():
        if key in view.metrics:
            text.append(f"  {name} {shown(view.metrics[key])}", style="cyan")
    left = seconds * (view.updates - view.done)
    text.append(f"  {left:.0f} s left" if view.done else "", style="dim")
    return text


def _bar(name: str, fraction: float) -> Text:
    width = 24
    filled = round(width * fraction)
    text = Text()
    text.append(f"{name}  ", style="bold")
    text.append("━" * filled, style="green")
    text.append("━" * (width - filled), style="dim")
    return text


def done_fraction(report: ChunkReport, scenario: Scenario) -> float:
    """How much of the budget is used, the larger of steps and episodes."""
    books = report.progress.books
    parts = [0.0]
    if scenario.training.max_steps:
        parts.append(max(book.steps for book in books) / scenario.training.max_steps)
    if scenario.training.max_episodes:
        parts.append(max(book.episodes for book in books) / scenario.training.max_episodes)
    return min(1.0, max(parts))


def progress_line(report: ChunkReport, seconds: float, scenario: Scenario) -> Text:
    """Steps, steps/s over all trials, mean return, time left."""
    steps = max(book.steps for book in report.progress.books)
    total = sum(book.steps for book in report.progress.books)
    fraction = done_fraction(report, scenario)
    rows = [row for row in report.metrics if row is not None]
    returns = [row["episode/return"] for row in rows if "episode/return" in row]
    left = seconds * (1 - fraction) / fraction if fraction > 0 else math.nan
    budget = f" / {scenario.training.max_steps:,}" if scenario.training.max_steps else ""
    text = _bar(scenario.name, fraction)
    text.append(f"  {steps:,}{budget} steps")
    text.append(f"  {total / max(seconds, 1e-9):,.0f} steps/s", style="cyan")
    text.append(f"  return {shown(sum(returns) / len(returns))}" if returns else "  return –")
    evaluated = [row["eval/return_mean"] for row in rows if "eval/return_mean" in row]
    if evaluated:
        text.append(f"  greedy {shown(sum(evaluated) / len(evaluated))}")
    memory = [row["memory/rss_mb"] for row in rows if "memory/rss_mb" in row]
    text.append(f"  {memory[0]:,.0f} MB" if memory else "", style="dim")
    text.append(f"  {left:.0f} s left" if math.isfinite(left) else "", style="dim")
    return text


def trial_states(report: ChunkReport) -> Text:
    """One word per trial."""
    text = Text()
    for trial, book in enumerate(report.progress.books):
        row = report.metrics[trial]
        number = f" {shown(row['episode/return'])}" if row and "episode/return" in row else ""
        style = {"converged": "green", "nan": "red"}.get(book.stopped or "", "")
        text.append(
            f"  trial {trial}: {STATES[book.stopped]}{number if book.stopped is None else ''}",
            style,
        )
    return text


def shown(value: float) -> str:
    """A return with as many digits as its size asks for: 493.6, but 0.0312."""
    return f"{value:.1f}" if abs(value) >= 10 or value == 0 else f"{value:.3g}"


def print_summary(console: Console, summary: dict[str, Any]) -> None:
    """The table of trials, the interval over them, what was registered, and where everything is."""
    console.print(trials_table(summary))
    console.print(interval_line(summary), soft_wrap=True)
    if "time" in summary:  # runs of an older version did not note it
        console.print(time_line(summary), soft_wrap=True, style="dim")
    for model in summary.get("registered", []):
        console.print(
            Text.assemble(
                "Registered ",
                (str(model["name"]), "bold"),
                f" version {model['version']}:  mlflow.pyfunc.load_model({model['uri']!r})",
            ),
            soft_wrap=True,
        )
    if summary.get("tracking_error"):
        words = Text.assemble(("Tracking failed: ", "yellow"), summary["tracking_error"])
        console.print(words, soft_wrap=True)
    console.print(f"Results, plots and checkpoints:  {summary['paths']['run']}", soft_wrap=True)
    console.print(f"The report, one page:            {summary['paths']['report']}", soft_wrap=True)
    if summary.get("mlflow_run_id"):
        console.print("Look at it in the browser:       proxima dashboard")


def trials_table(summary: dict[str, Any]) -> Table:
    """One row per trial."""
    title = f"{summary['scenario']} · {summary['algorithm']}"
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    for name in ("trial", "steps", "episodes", "greedy", "sampled", "state"):
        table.add_column(name, justify="left" if name == "state" else "right", no_wrap=True)
    for result in summary["trials"]:
        state = STATES[result["stopped"]]
        if result["converged"]:
            state = f"solved at {result['converged_at_step']:,}"
        table.add_row(
            str(result["trial"]),
            f"{result['environment_steps']:,}",
            f"{result['episodes']:,}",
            *(
                f"{shown(result[key]['return_mean'])} ± {shown(result[key]['return_std'])}"
                for key in ("evaluation", "sampled")
            ),
            state,
        )
    return table


def interval_line(summary: dict[str, Any]) -> str:
    """The interquartile mean and its interval, beside the random policy."""
    aggregate, random = summary["aggregate"], summary["baselines"]["random"]
    if aggregate["iqm"] is None:
        return "No trial ended with a usable policy."
    what = "Greedy log return on the test split" if "trading" in summary else "Greedy return"
    line = f"{what}, interquartile mean of {aggregate['n']} trial(s): {shown(aggregate['iqm'])}"
    if aggregate["low"] is not None:
        line += f"  (95 % interval {shown(aggregate['low'])} … {shown(aggregate['high'])})"
    line += f"; random policy {shown(random['iqm'])}"
    for name in summary.get("references", ()):
        line += f"; {name.replace('_', ' ')} {shown(summary['baselines'][name]['iqm'])}"
    if summary["target_reward"] is not None:
        line += f"; target {summary['target_reward']:g}"
    for name, score in summary.get("scores", {}).items():
        if score["iqm"] is None:
            continue
        line += f"\n{name.replace('_', ' ')}: {shown(score['iqm'])}"
        if score["low"] is not None:
            line += f"  (95 % interval {shown(score['low'])} … {shown(score['high'])})"
    return line + (_beside(summary["trading"]) if "trading" in summary else "")


def time_line(summary: dict[str, Any]) -> str:
    """Where the wall time went, and the memory it took."""
    spent = dict(summary["time"])
    total = spent.pop("total")
    parts = ", ".join(f"{part} {seconds:.1f}" for part, seconds in spent.items() if seconds >= 0.05)
    line = f"{total:.1f} s: {parts}; memory at most {summary['memory_peak_mb']:,.0f} MB"
    phases = summary["trials"][0]["phases"]
    if phases is None:
        return line
    whole = phases["rollout"] + phases["learn"]
    shares = [
        f"{part} {100 * phases[part] / whole:.0f} %"
        for part in phases
        if part not in ("rollout", "update")
    ]
    return f"{line}; of an update {', '.join(shares)}"


def _beside(trading: dict[str, Any]) -> str:
    """What others would have made of the same prices, and the score: 0 is chance, 1 the oracle."""
    references, scores = trading["references"]["splits"]["test"], trading["score"]["test"]
    names = {
        "buy_and_hold": "buy and hold",
        "momentum": "momentum",
        "model": "the model's best rule",
    }
    names |= {"foresight": "perfect foresight"}
    told = ""
    for key, name in names.items():
        if references[key] is None:
            continue
        told += f"; {name} {shown(references[key]['log_return'])}"
        if scores.get(key) is not None:
            told += f" (score {scores[key]['iqm']:.2f})"
    return told

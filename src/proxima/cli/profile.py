"""The command that measures: profile."""

import json as json_module
from typing import Any

from rich.table import Table
from rich.text import Text

from proxima.cli.terminal import plain_console

INNER = ("env", "act", "search")  # the parts of a rollout


def run_profile(scenario: str, trials: int | None, settings: list[str], json: bool) -> None:
    """The `profile` command."""
    from proxima.scenario import load, with_environment

    given = [] if trials is None else [f"trials={trials}"]
    loaded = with_environment(
        load(scenario, [*settings, *given]), "its runs note the time of every part of an update"
    )

    from proxima.run.profile import profile_scenario

    found = profile_scenario(loaded)
    if json:
        print(json_module.dumps(found, indent=2))
        return
    console = plain_console()
    console.print(
        Text.assemble(
            (found["scenario"], "bold"),
            f" · {found['algorithm']}, {found['trials']} trial(s), "
            f"{found['steps_per_update']:,} steps per update",
        ),
        soft_wrap=True,
    )
    console.print(phase_table(found))
    episodes, memory = loaded.evaluation.eval_episodes, found["memory"]
    for line in (
        f"An evaluation of {episodes} episodes takes {found['evaluate']:.2f} s, compiling took "
        f"{found['compile']:.1f} s.",
        f"Memory: {memory['memory/rss_mb']:,.0f} MB, at most {memory['memory/peak_mb']:,.0f} MB; arrays "
        f"on devices {memory['memory/arrays_mb']:,.1f} MB.",
    ):
        console.print(line, soft_wrap=True)


def phase_table(found: dict[str, Any]) -> Table:
    """A row per part of an update; shares are of rollout and learning together."""
    phases, steps = found["phases"], found["steps_per_update"]
    whole = phases["rollout"] + phases["learn"]
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("phase", no_wrap=True)
    for name in ("ms per update", "share", "steps/s"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, seconds in phases.items():
        table.add_row(
            f"  {name}" if name in INNER else name,
            f"{seconds * 1e3:,.3f}",
            "" if name == "update" else f"{100 * seconds / whole:.0f} %",
            f"{steps / seconds:,.0f}" if seconds > 0 else "–",
        )
    return table

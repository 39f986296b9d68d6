"""What a report says about a packing run: returns beside those of fixed rules, and scores of its own."""

from proxima.report import returns
from proxima.report.html import Content
from proxima.report.numbers import figure, share, with_interval
from proxima.report.page import Page, RunData

# What the scores of assess.py are called, and how they are written.
SCORES = {
    "utilisation": ("Volume filled", share),
    "utilisation_min": ("Volume filled, worst episode", share),
    "success_rate": ("Mazes solved", share),
    "path_ratio": ("Path over shortest, solved mazes", figure),
    "length_ratio": ("Path over shortest, all mazes", figure),
}


def page(run: RunData) -> Page:
    """Its returns and scores beside the fixed rules, how they were learnt, and every trial."""
    picture = returns.still(run, "episode.png", "How one episode of the trained policy ended")
    return Page(
        about=returns.about(run),
        result=returns.result(run, _rules(run)),
        alarms=returns.broken_trials(run),
        figures=_figures(run),
        sections=[returns.learning_section(run), returns.trials_section(run, *picture)],
        commands=returns.commands(run),
        facts=returns.facts(run),
    )


def _rules(run: RunData) -> dict[str, float]:
    """What fixed rules earn on the same episodes, by their names."""
    names = run.summary["references"]
    baselines = run.summary["baselines"]
    return {f"the rule {name.replace('_', ' ')}": baselines[name]["iqm"] for name in names}


def _figures(run: RunData) -> list[tuple[str, Content]]:
    scores = run.summary["scores"]
    return [
        (words, with_interval(scores[name], write))
        for name, (words, write) in SCORES.items()
        if name in scores and scores[name]["iqm"] is not None
    ]

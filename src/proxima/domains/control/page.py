"""What a report says about a run in a control environment."""

from proxima.report import returns
from proxima.report.page import Page, RunData


def page(run: RunData) -> Page:
    """Its returns, how they were learnt, and every trial."""
    return Page(
        about=returns.about(run),
        result=returns.result(run),
        alarms=returns.broken_trials(run),
        figures=(),
        sections=[returns.learning_section(run), returns.trials_section(run)],
        commands=returns.commands(run),
        facts=returns.facts(run),
    )

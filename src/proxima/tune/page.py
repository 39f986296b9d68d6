"""The page of a search: what came out, how sure that is, what mattered, and everything that was tried."""

from collections import Counter
from collections.abc import Mapping, Sequence

from proxima.report import html
from proxima.report.html import Content, Markup, fold, picture, section, table, tag
from proxima.report.numbers import NOTHING, figure, first_few, has_interval, interval, with_interval
from proxima.report.statistics import aggregate, interval_words
from proxima.report.trials import MOST_ROWS, column_cells
from proxima.tune import lineage_plots, plots
from proxima.tune.alarms import alarms
from proxima.tune.axes import axes_of, short_names, spelled
from proxima.tune.effects import better, ranks, values_of
from proxima.tune.lineage import last_settings
from proxima.tune.mattered import MOST_SLICES, mattered
from proxima.tune.panels import value_words
from proxima.tune.results import Confirmed, SearchResult
from proxima.tune.verdict import Verdict, chosen_row, numbers, values_are_returns, verdict

TABLE_FILE = "configurations.parquet"  # in the search's directory
MOST_LISTED = 500  # rows of the table of configurations
METHODS = {
    "random": "random search",
    "grid": "grid",
    "sobol": "Sobol points",
    "asha": "successive halving (ASHA)",
    "tpe": "Parzen estimators (TPE)",
    "cma-es": "CMA-ES",
    "pbt": "population-based training",
    "table": "a table of configurations",
}
STATES = {
    "done": "done",
    "converged": "converged",
    "stopped": "stopped early",
    "broken": "broke down",
}
# Dotted paths have no spaces at which a line could break.
STYLE = """
.alarm li { overflow-wrap: anywhere; }
@media (max-width: 600px) { .paths tbody th { min-width: 42vw; max-width: 42vw; overflow-wrap: anywhere; } }
"""


def search_page(result: SearchResult, root: str, options: str = "") -> str:
    """The page, whole: HTML that needs nothing besides itself.

    root: the search's directory, as a user in the working directory would write it; options: what a command
    needs besides the search's id to find it, for example --output DIRECTORY.
    """
    found = verdict(result)
    tried, searched = len(result.configurations), len(axes_of(result))
    about = [
        METHODS.get(result.method, result.method),
        f"{tried:,} configuration{'s' * (tried != 1)} tried",
        f"{searched} setting{'s' * (searched != 1)}",
        f"{result.steps:,} environment steps",
        f"search {result.search_id}",
    ]
    cards = (tag("div", tag("dt", name), tag("dd", value)) for name, value in _cards(result, found))
    return html.document(
        f"{result.scenario} · Proxima search",
        html.heading(f"{result.scenario}: search", "", about),
        tag("p.result", *_sentence(result, found)),
        *_optimism(result, found),
        *alarms(result, found),
        tag("dl.figures", *cards),
        *_best_settings(result),
        *_progress(result),
        *_population(result),
        mattered(result),
        *_new_seeds(result),
        _configurations(result, root),
        section("How it was made", *_making(result, root, options)),
        style=STYLE,
    )


def _sentence(result: SearchResult, found: Verdict | None) -> list[Content]:
    """What came out."""
    tried, row = len(result.configurations), chosen_row(result)
    if row is None:
        broken = all(each.state == "broken" for each in result.configurations)
        why = "all broke down, and none is best" if broken else "none is best"
        return [
            f"Not one of {tried:,} configurations has a value: {why}."
            if tried
            else "Nothing was tried."
        ]
    name = f"Configuration {row.number} of {tried:,} tried"
    if tried == 1:
        name = "The only configuration tried"
    if found is None:
        value, best = tag("strong", figure(row.value)), "best " if tried > 1 else ""
        return [f"{name} has the {best}value ", value, " in the search. It was not confirmed."]
    parts: list[Content] = [f"{name}: ", tag("strong", figure(found.best["iqm"]))]
    parts.append(f"{_interval(found.best)} on {_seeds(found.best)} the search had not seen")
    if found.own is not None:
        reached = f"{figure(found.own['iqm'])}{_interval(found.own)}"
        words = "broke down" if found.own["iqm"] is None else reached
        parts.append(f"; the scenario's own settings {words}")
    if found.improvement is not None and found.improvement.probability is not None:
        parts.append(f"; probability of improvement {found.improvement.probability:.2f}")
    return [*parts, "."]


def _interval(reached: Mapping[str, float | None]) -> str:
    return f" {interval(reached)}" if has_interval(reached) else ""


def _seeds(reached: Mapping[str, int]) -> str:
    broken = f" ({reached['failed']} more broke down)" if reached["failed"] else ""
    return f"{reached['n']} seed{'s' * (reached['n'] != 1)}{broken}"


def _optimism(result: SearchResult, found: Verdict | None) -> list[Markup]:
    """Why the search's own values are not to be believed, and by how much the best one was too good."""
    row, tried = chosen_row(result), len(result.configurations)
    if row is None:
        return []
    text = ""
    if tried > 1:
        text = (
            f"Values of the search itself are optimistic: the best of {tried:,} is in part the luckiest "
            "(the winner's curse). "
        )
    if found is None:
        text += "Only seeds that the search has not seen say how good its settings are."
    elif found.optimism is None:
        kind = value_words(result.objective, result.metric)
        text += f"They are the {kind}, and what new seeds gave is the mean return after training."
    else:
        side = "better than" if found.optimism >= 0 else "worse than"
        text += (
            f"That of configuration {row.number} was {figure(row.value)}, "
            f"{figure(abs(found.optimism))} {side} what it earned on new seeds."
        )
    if found is not None and has_interval(found.best):
        text += (
            f" In brackets: {interval_words(found.best['n'])} of the interquartile mean over seeds."
        )
    return [tag("p.note", text)]


def _cards(result: SearchResult, found: Verdict | None) -> list[tuple[str, Content]]:
    """The figures of the page."""
    row = chosen_row(result)
    cards: list[tuple[str, Content]] = []
    if found is not None:
        cards.append(("Best settings, new seeds", with_interval(found.best)))
        if found.own is not None:
            cards.append(("Scenario's own settings, new seeds", with_interval(found.own)))
        if found.improvement is not None and found.improvement.gain is not None:
            gain, low, high = found.improvement[:3]
            better_by = with_interval({"iqm": gain, "low": low, "high": high})
            cards.append(("Better by, seed for seed", better_by))
    if row is not None:
        cards.append(("Its value in the search", figure(row.value)))
    cards.append(("Configurations tried", _tried(result)))
    return cards


def _tried(result: SearchResult) -> Markup:
    """How many, and smaller, how they ended where not all trained to their end."""
    states = Counter[str](row.state for row in result.configurations)
    ended = [
        f"{states[state]:,} {STATES[state]}" for state in ("stopped", "broken") if states[state]
    ]
    return html.join([f"{len(result.configurations):,} ", tag("small", ", ".join(ended))])


def _best_settings(result: SearchResult) -> list[Markup]:
    row = chosen_row(result)
    if row is None:
        return []
    settings = last_settings(result, row)
    paths = [axis.path for axis in axes_of(result)]
    rows: list[list[Content]] = [
        [
            path,
            tag("strong", spelled(settings.get(path))),
            spelled(result.own[path]) if path in result.own else NOTHING,
            result.space.get(path, NOTHING),
        ]
        for path in paths
    ]
    parts = [table(["Setting", "Best", "Scenario's own", "Searched"], rows, "paths")]
    if result.copies:
        text = "They changed in the course of training; these are the last ones."
        parts.append(tag("p.note", text))
    return [section("Best settings", *parts)]


def _progress(result: SearchResult) -> list[Markup]:
    """The best so far, and the learning curves."""
    parts = []
    own = aggregate(
        [v for each in result.test if each.number is None for v in numbers(each.values)]
    )
    level = own["iqm"] if values_are_returns(result) else None
    if len({row.finished for row in result.configurations if row.value is not None}) > 1:
        words = "The best value so far over the environment steps of the search"
        parts.append(picture(lambda width: plots.best_figure(result, level, width), words))
    if any(len(row.curve) > 1 for row in result.configurations):
        words = "Learning curves: the best configurations in colour over all others"
        parts.append(picture(lambda width: plots.curves_figure(result, width), words))
    return [section("Progress", *parts)] if parts else []


def _population(result: SearchResult) -> list[Markup]:
    """Who copied whom, and the settings that led to the best member."""
    axes = [axis for axis in axes_of(result) if axis.kind != "choice"] or list(axes_of(result))
    if not result.copies or not axes:
        return []
    path, paths = axes[0].path, [axis.path for axis in axes_of(result)][:MOST_SLICES]
    words = (
        f"Members of the population over their training, coloured by {path}, and who copied whom"
    )
    parts = [picture(lambda width: lineage_plots.lineage_figure(result, path, width), words)]
    if chosen_row(result) is not None:
        words = "The settings over the training that ended in the best member"
        parts.append(
            picture(lambda width: lineage_plots.ancestry_figure(result, paths, width), words)
        )
    count = len(result.copies)
    times = f"{count:,} time{'s' * (count != 1)}"
    text = f"{times} a member went on as a copy of a better one, with changed settings."
    return [section("Population", *parts, tag("p.note", text))]


def _new_seeds(result: SearchResult) -> list[Markup]:
    """What was run again: the best few to choose from, then the chosen one and the scenario's own."""
    parts: list[Content] = []
    for title, rows in (("To choose the best", result.choosing), ("To judge it", result.test)):
        if rows:
            seeds = f"seeds {first_few(rows[0].seeds)}"
            parts += [tag("h3", f"{title}: {seeds}"), _seeds_table(rows)]
    if not parts:
        return []
    text = "Values are mean returns of the closing evaluation; no seed was used in the search or twice."
    return [section("On new seeds", *parts, tag("p.note", text))]


def _seeds_table(rows: Sequence[Confirmed]) -> Markup:
    cells: list[list[Content]] = []
    for each in rows:
        name = "scenario's own" if each.number is None else f"configuration {each.number}"
        values = first_few([figure(value) for value in each.values])
        cells.append([name, with_interval(aggregate(numbers(each.values))), values])
    return table(["Settings", "Interquartile mean", "By seed"], cells)


def _configurations(result: SearchResult, root: str) -> Markup:
    """All that was tried, the best first; of many the first few, then a fold of all."""
    order = ranks(result)
    rows = _rows(result, order[:MOST_LISTED])
    head = _head(result)
    where = f"{root}/{TABLE_FILE}"
    parts: list[Content] = (
        [table(head, rows[:MOST_ROWS])] if rows else [tag("p", "Nothing was tried.")]
    )
    if len(rows) > MOST_ROWS:
        title = f"All {len(order):,} configurations"
        if len(order) > MOST_LISTED:
            title = f"The best {MOST_LISTED} of {len(order):,} configurations"
        parts.append(fold(title, table(head, rows)))
    side = "higher" if better(result) > 0 else "lower"
    text = f"Value: {value_words(result.objective, result.metric)}; {side} is better. All are in {where}."
    return section("Configurations", *parts, tag("p.note", text))


def _head(result: SearchResult) -> list[Content]:
    names = short_names(axis.path for axis in axes_of(result))
    by_seed = ["By seed"] if result.seeds > 1 else []
    return ["", "Value", *names.values(), *by_seed, "State", "Steps"]


def _rows(result: SearchResult, order: Sequence[int]) -> list[list[Content]]:
    paths = [axis.path for axis in axes_of(result)]
    known = values_of(result)
    values = column_cells([None if known[k] != known[k] else float(known[k]) for k in order])
    rows: list[list[Content]] = []
    for value, index in zip(values, order, strict=True):
        row = result.configurations[index]
        settings = last_settings(result, row)
        name = str(row.number)
        by_seed = [first_few([figure(each) for each in row.values])] if result.seeds > 1 else []
        rows.append(
            [
                tag("span.chosen", name) if row.number == result.chosen else name,
                value,
                *(spelled(settings.get(path)) for path in paths),
                *by_seed,
                STATES.get(row.state, row.state),
                f"{row.steps:,}",
            ]
        )
    return rows


def _making(result: SearchResult, root: str, options: str) -> list[Content]:
    """How it was made, and commands that go on from here."""
    states = Counter[str](row.state for row in result.configurations)
    ended = ", ".join(
        f"{states[state]:,} {words}" for state, words in STATES.items() if states[state]
    )
    side = "higher" if better(result) > 0 else "lower"
    facts = {
        "Search": result.search_id,
        "Files": root,
        "Method": METHODS.get(result.method, result.method),
        "Configurations tried": f"{len(result.configurations):,}" + (f": {ended}" if ended else ""),
        "Objective": f"{value_words(result.objective, result.metric)}; {side} is better",
        "Seeds": f"{result.seeds} for each configuration, the same for all",
        "Environment steps": f"{result.steps:,}, without what was run again",
        "Time": f"{result.seconds:,.1f} s",
        "Programs compiled": f"{result.programs:,}",
    }
    commands = {f"proxima tune --resume {result.search_id}{options}": "go on, if it was stopped"}
    if result.chosen is not None:
        commands[f"proxima experiment --config {root}/best.yaml"] = "train with the best settings"
    commands[f"proxima report {result.search_id}{options}"] = "write this page again"
    shown = "".join(f"# {purpose}\n{command}\n" for command, purpose in commands.items())
    return [
        table(["", ""], [[name, value] for name, value in facts.items()], "facts"),
        tag("pre", shown),
    ]

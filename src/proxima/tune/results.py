"""What a search leaves behind: a result per configuration, those run again, and who copied whom."""

from collections.abc import Mapping
from typing import Literal, NamedTuple

from proxima.scenario.search import Value

# done: trained for the whole budget; stopped: dropped before; broken: the loss was no longer a number
State = Literal["done", "converged", "stopped", "broken"]
Curve = tuple[tuple[int, float], ...]  # environment steps, and the metric's mean over the seeds


class Configuration(NamedTuple):
    """Settings that were tried, and what came of them; the better value is the higher or the lower one."""

    number: int  # in the order in which they were drawn, from 0
    settings: Mapping[str, Value]  # by dotted path
    value: float | None  # the objective, the mean over seeds; None: broken
    values: tuple[float | None, ...]  # by seed
    state: State
    steps: int  # environment steps of each of its trainings
    curve: Curve
    finished: int  # environment steps of the whole search when its result was known
    program: int = 0  # which of the programs it ran in


class Confirmed(NamedTuple):
    """Settings that were run again on seeds which the search had not seen."""

    number: int | None  # None: the scenario's own settings
    values: tuple[float | None, ...]  # by seed: mean return of the closing evaluation
    seeds: tuple[int, ...]


class Copy(NamedTuple):
    """A member of a population that went on as a copy of another, with settings changed."""

    steps: int  # environment steps of a training when it happened
    member: int
    source: int
    settings: Mapping[str, Value]  # the member's from then on


class SearchResult(NamedTuple):
    """A whole search."""

    scenario: str
    search_id: str
    method: str
    metric: str
    objective: str
    direction: Literal["maximise", "minimise"]
    space: Mapping[str, str]  # path → its range as written
    seeds: int
    own: Mapping[str, Value]  # the scenario's own values of the searched settings
    configurations: tuple[Configuration, ...]
    chosen: int | None  # the configuration in best.yaml; None: every one broke down
    choosing: tuple[Confirmed, ...]  # the best few on new seeds: by these the best was chosen
    # The chosen one and the scenario's own settings, on seeds nobody had seen.
    test: tuple[Confirmed, ...]
    copies: tuple[Copy, ...]  # of population-based training
    steps: int  # environment steps of the search, without what was run again
    seconds: float
    programs: int

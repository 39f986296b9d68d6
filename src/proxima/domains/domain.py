"""What a domain brings: its settings, the stages that train it, and how it judges, draws and tells.

Each folder in `domains/` has a `domain.py` that ends with its `Domain`; `build.py` finds it by name. A
user's own comes in by the same door: `domain: "my_package:DOMAIN"`. Nothing else in the house knows one.

    scenario ─► prepare ─► stages ─► train ─► judge ─► export, draw ─► summarize ─► page, closing lines
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from proxima.core.faults import Fault
from proxima.core.types import PyTree
from proxima.report.page import Page, RunData
from proxima.run.results import Alarm, Details, Episodes, Outcome, StageResult, Summary, TrialResult
from proxima.train.books import Book
from proxima.train.program import Program
from proxima.train.stage import Row, Stage


class Trained(NamedTuple):
    """A stage that has ended, as its domain judges it; everything by lane."""

    lanes: list[PyTree]  # the last or best states, on the host
    books: tuple[Book, ...]
    trials: list[Path]  # directories of the trials
    folders: list[Path]  # of the stage's own files: those of the trials, or a directory in each
    rows: Callable[[int], list[Row]]  # lane → metrics recorded
    say: Callable[[str], None]  # a sentence for the user
    # A function of a module and its arguments: a picture, drawn at once or beside other work.
    paint: Callable[..., None] = lambda draw, *args, **kwargs: draw(*args, **kwargs)


class Verdict(NamedTuple):
    """What judging a stage gives."""

    outcomes: list[Outcome]  # by lane
    details: Any = None  # of all lanes together, for `summarize`


class Trainable(NamedTuple):
    """A stage that is ready to train, and what its domain does when it has."""

    stage: Stage  # over all lanes
    judge: Callable[[Trained], Verdict]  # writes what stages after it start from
    export: Callable[[Trained], None] = lambda trained: None  # policies, for others to use
    draw: Callable[[Trained, int, Outcome], None] = lambda trained, lane, outcome: None  # pictures
    # Seconds per update by part, and those of a stage that says them in every row.
    profile: Callable[[PyTree, list[Row], int], dict[str, float] | None] = (
        lambda states, rows, updates: None
    )
    # A lane's state and a number of episodes → those of each policy; a state → one greedy episode. None
    # where a policy is not played in episodes.
    measure: Callable[[PyTree, int], dict[str, Episodes]] | None = None
    record: Callable[[PyTree], Any] | None = None
    # The stage's lanes in parts that train independently of each other; empty: all lanes together.
    blocks: Sequence[Stage] = ()
    close: Callable[[], None] = lambda: None


class Planned(NamedTuple):
    """A stage to come."""

    name: str  # "" where it is the only one of its trials
    trials: tuple[int, ...]
    make: Callable[[Callable[[int], Path]], Trainable]  # given the trials' directories
    # True: its result is written when it has ended, and a resumed run neither trains nor judges it again.
    kept: bool = False
    # Its trials in parts that train, and are saved, without each other; empty: all together.
    blocks: Sequence[tuple[int, ...]] = ()


class Facts(NamedTuple):
    """What a run notes of its data, so that nobody resumes it on other data."""

    noted: Mapping[str, Any]
    # What was noted when the run was started → a sentence for the user where something differs that does
    # not matter; an error where it does.
    check: Callable[[Mapping[str, Any]], str | None]


class Counts(NamedTuple):
    """How much a trial has seen."""

    steps: int
    episodes: int


class Added(NamedTuple):
    """What a domain adds to a summary."""

    metric: str  # what the aggregate is of
    target: float | None = None  # mean return that counts as solved
    details: Any = None
    alarms: tuple[Alarm, ...] = ()
    paths: Mapping[str, str] = {}


class Prepared(NamedTuple):
    """A scenario made runnable: data read, environments and programs made."""

    algorithm: str
    stages: Sequence[Planned]
    summarize: Callable[[Sequence[TrialResult], Sequence[Any]], Added]  # trials, verdicts' details
    facts: Facts | None = None
    # Fixed rules on the episodes of the closing evaluation.
    references: Callable[[], Mapping[str, Episodes]] = dict
    # A trial's last stage and its metrics → how much it has seen.
    counts: Callable[[StageResult, Sequence[Row]], Counts] = lambda stage, rows: Counts(
        stage.steps, stage.episodes
    )
    final_metrics: Callable[[TrialResult], Mapping[str, float]] = lambda trial: {}  # to the tracker
    # Files and folders of a trial that the tracker keeps besides the usual.
    artifacts: Sequence[str] = ()
    scenario: Any = None  # with what the data decided written into it; None: as it was
    notes: Sequence[str] = ()  # sentences about the data, for the user
    program: Program | None = None  # where all trials train side by side in one
    close: Callable[[], None] = lambda: None


class Patterns(NamedTuple):
    """Synthetic data that can be made by itself."""

    describe: Callable[[], list[dict[str, Any]]]  # every pattern with its settings
    write: Callable[[str, str | None, Mapping[str, Any]], Path]  # pattern, file's name, settings


class Sources(NamedTuple):
    """Real data that published packages have in them."""

    # Every source: source, description, package, licence.
    describe: Callable[[], list[dict[str, Any]]]
    write: Callable[[str], Path]  # of a source; a note of its origin is written beside it


class Data(NamedTuple):
    """How a domain's data is made."""

    what: str  # what it is, for sentences: Prices, Texts
    generate: Callable[[Any, Path], Path]  # scenario, directory → where it was written
    patterns: Patterns | None = None
    sources: Sources | None = None


class Overview(NamedTuple):
    """A scenario in a line of the list of scenarios."""

    algorithm: str
    environment: str
    budget: str
    target: str


class Closing(NamedTuple):
    """What a person reads when a run has ended."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    lines: Sequence[str]  # sentences below the table
    pointers: Mapping[str, str] = {}  # where to look, and what is there


PolicyStep = Callable[[Any, Any], tuple[Any, Any]]  # observations, memory → actions, memory


class RawPolicy(NamedTuple):
    """How an exported policy is used on what is there before its environment makes observations of it."""

    takes: Callable[[Any], bool]  # whether something is raw, and not observations
    # The policy's step, something raw, and the state that goes with it → what to do.
    decide: Callable[[PolicyStep, Any, Any], Any]
    # The same → what to do, and the state that goes with what is raw next.
    step: Callable[[PolicyStep, Any, Any], tuple[Any, Any]]


class TextRequest(NamedTuple):
    """A text or a conversation to go on from, and how; None: as the model was trained."""

    prompt: str | Sequence[int]  # text, or ids
    seed: int
    turns: Sequence[Mapping[str, str]] = ()  # instead of a prompt: role and content
    new_tokens: int | None = None
    temperature: float | None = None  # 0: the likeliest token each time
    top_p: float = 1.0
    stop: tuple[str, ...] = ()
    texts: int = 1  # each drawn by itself


class TextJob(NamedTuple):
    """A request that was read and can be begun."""

    request: TextRequest
    prompt: Sequence[int]  # its tokens
    new_tokens: int


class Piece(NamedTuple):
    """What one more token adds to one of a job's texts."""

    job: TextJob
    number: int  # of the text among its job's
    text: str  # may be empty: a character can take several tokens
    tokens: int  # of the text so far
    finish: str | None  # "stop" or "length"; None: it goes on


class TextModel(NamedTuple):
    """A model that writes several texts at once, a token of each a step; one thread at a time may use it."""

    name: str
    about: Mapping[str, Any]
    rows: int  # texts at once
    read: Callable[[TextRequest], TextJob]  # refuses what cannot be written; any thread may
    begin: Callable[[TextJob], list[Piece] | None]  # None where no row is free
    step: Callable[[], list[Piece]]
    drop: Callable[[TextJob], None]  # nobody waits for it any more


class TextModels(NamedTuple):
    """How a domain's models that write text are found and loaded."""

    is_folder: Callable[[Path], bool]  # whether a directory is such a model, of no run
    # A run, trial or directory; where runs are; the trial; texts at once.
    load: Callable[[str, str, int | None, int], TextModel]


class DataFigures(NamedTuple):
    """What a trained policy makes of data that its run has never seen."""

    content: Mapping[str, Any]  # as JSON holds it
    lines: Sequence[str]  # for people


# Sections that say what a policy meets, and the settings in them that only training depends on.
WORLD = ("env", "data", "reward")
TRAINING_ONLY = (
    *("num_envs", "workers", "actors", "groups"),
    *("worker_timeout", "on_worker_failure"),
)


def evaluated_on(
    settings: Mapping[str, Any], data: Mapping[str, Any] | None
) -> Mapping[str, Mapping[str, Any] | Any]:
    """What the closing episodes of a run depend on, from its scenario and what it noted of its data."""
    sections = {name: dict(settings[name]) for name in WORLD if settings.get(name)}
    for name in TRAINING_ONLY:
        sections.get("env", {}).pop(name, None)
    return {"domain": settings["domain"], "seed": settings["seed"], **sections}


class Domain(NamedTuple):
    """A domain as the rest of the house sees it."""

    name: str
    scenario: type  # a frozen dataclass: the sections of such a scenario, over the common ones
    checks: Callable[[Any], Iterator[Fault]]
    prepare: Callable[[Any], Prepared]  # of a scenario
    overview: Callable[[Any], Overview]  # of a scenario
    closing: Callable[[Summary], Closing]
    page: Callable[[RunData], Page]
    # A page of one trial: scenario, the trial's directory, where to write it → where it was written.
    trial_page: Callable[[Any, Path, Path | None], Path] | None = None
    details: Details = (None, None)  # types of a trial's and a summary's
    backends: tuple[str, ...] = ()  # env.backend of scenarios that do not name their domain
    networks: Mapping[str, str] = {}  # kinds of network it offers, and where their Network is
    # What a program gives as its environment, a name or an object → the section `env` of a scenario.
    env_settings: Callable[[Any], Mapping[str, Any]] | None = None
    # Of a scenario, stage and metric of the learning curve.
    curve: Callable[[Any], tuple[str, str]] = lambda scenario: ("", "eval/return_mean")
    # Runs in which it differs were not evaluated on the same episodes, so these are not paired.
    evaluated_on: Callable[[Mapping[str, Any], Mapping[str, Any] | None], Mapping[str, Any]] = (
        evaluated_on
    )
    data: Data | None = None
    # Of a scenario, the files that it reads, as it names them; None: its stages train on this machine only.
    reads: Callable[[Any], Sequence[Path]] | None = lambda scenario: ()
    # What policy.json says of a policy → how it is used on raw input; None: only on observations.
    raw_policy: Callable[[Mapping[str, Any]], RawPolicy] | None = None
    text_models: TextModels | None = None  # None: its policies act, and write no text
    # An exported policy's directory and a file of new data → its figures there.
    evaluate_data: Callable[[Path, Path], DataFigures] | None = None
    # Of a scenario and a trial, the scenario of this trial by itself, on which its checkpoint is evaluated.
    one_trial: Callable[[Any, int], Any] = lambda scenario, trial: replace(scenario, trials=1)
    # Of a scenario, an error where a search cannot train its configurations.
    check_search: Callable[[Any], None] = lambda scenario: None
    # A film of an episode: path, name of the environment, recording → whether it can be drawn.
    film: Callable[[Path, str, Any], bool] = lambda path, env_name, recording: False
    # Asks for devices before JAX starts.
    prepare_host: Callable[[Any], None] = lambda scenario: None
    gangs: bool = False  # whether several processes can train one of its scenarios together

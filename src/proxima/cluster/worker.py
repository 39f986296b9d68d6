"""A worker: carries out orders in a process of its own, and keeps what it has built for the next one."""

import atexit
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, final

from proxima.cluster.luggage import unpacked
from proxima.cluster.messages import Answer, ChunkReport, Message, Order, read, written
from proxima.core.errors import ProximaError
from proxima.core.types import PyTree
from proxima.train.books import Progress, fresh_progress
from proxima.train.checkpoint import Stored, state_of, stored_state
from proxima.train.loop import Observer, Report, train
from proxima.train.memory import memory_metrics
from proxima.train.stage import Stage

CarryOut = Callable[[Message], Message]

LANES = "lanes"  # the name of a block's states in a message
VERSIONS = ("proxima", "jax", "jaxlib", "numpy")


class Hello(NamedTuple):
    """What a worker says of itself."""

    host: str
    pid: int
    versions: dict[str, str]


def hello() -> Hello:
    """This process."""
    versions = {name: version(name) for name in VERSIONS} | {"python": platform.python_version()}
    return Hello(platform.node(), os.getpid(), versions)


@final
class Worker:
    """What a worker's process does; errors are returned in words, as no traceback survives the way."""

    def __init__(self) -> None:
        self._root = Path(tempfile.mkdtemp(prefix="proxima-worker-"))
        atexit.register(shutil.rmtree, self._root, ignore_errors=True)
        self._scenario: Any
        self._carriers: dict[str, CarryOut] = {}  # by kind

    def begin(self, scenario: str, luggage: Mapping[str, bytes]) -> tuple[str, str]:
        """Reads the scenario and what it needs: what this worker is, and the text of an error or nothing."""
        return written(hello()), _in_words(lambda: self._prepare(scenario, luggage))

    def carry_out(self, message: Message) -> Message:
        """The order carried out; `{"error": …}` where that failed."""
        answers: list[Message] = []
        error = _in_words(lambda: answers.append(self._carry_out(message)))
        return Message(json.dumps({"error": error}), {}) if error else answers[0]

    def _prepare(self, text: str, luggage: Mapping[str, bytes]) -> None:
        from proxima.scenario import from_mapping, parse

        root = self._root
        os.chdir(root)
        source = "the driver's scenario"
        self._scenario = from_mapping(unpacked(luggage, root, parse(text, source)), source)

    def _carry_out(self, message: Message) -> Message:
        if message.kind not in self._carriers:
            made = KINDS[message.kind](self._scenario, self._root)
            self._carriers[message.kind] = made
        return self._carriers[message.kind](message)


def _stages(scenario: Any, root: Path) -> CarryOut:
    """Carries out orders of a stage's blocks; the scenario is built once."""
    from proxima.run.start import make_runnable

    prepared = make_runnable(scenario).prepared
    templates: dict[tuple[int, int], list[PyTree]] = {}  # by stage and width

    @cache
    def built(planned: int) -> Any:
        return prepared.stages[planned].make(lambda trial: root / f"trial_{trial}")

    def carry_out(message: Message) -> Message:
        started = time.perf_counter()
        order = read(message.text, Order)
        trainable = built(order.planned)
        stage: Stage = (trainable.blocks or (trainable.stage,))[order.block]
        kind = order.planned, len(stage.trials)
        is_new = kind not in templates
        if is_new:
            templates[kind] = stage.split(stage.init())
        states, progress = _begun(stage, order, message.states, templates[kind])
        compiling = time.perf_counter()
        if is_new:
            states = stage.prepare(states)
        compiled = time.perf_counter() - compiling
        reports, kept = trained(stage, states, progress, order.chunks)
        leaves = next(iter(kept.values())).leaves  # the same for every lane
        answer = Answer(reports, leaves, compiled, time.perf_counter() - started)
        return Message(written(answer), {name: state.content for name, state in kept.items()})

    return carry_out


def _lanes(scenario: Any, root: Path) -> CarryOut:
    """Carries out orders of blocks of a search's lanes; its programs are built once."""
    from proxima.build import domain_of
    from proxima.train.devices import use_compilation_cache
    from proxima.tune.blocks import BlockOrder, Work
    from proxima.tune.carry import carry_out
    from proxima.tune.programs import Programs

    domain_of(scenario).prepare_host(scenario)
    use_compilation_cache()

    @cache
    def programs(width: int, paths: tuple[str, ...]) -> Programs:
        return Programs(scenario, width, paths)

    def carry_out_message(message: Message) -> Message:
        order = read(message.text, BlockOrder)
        of_search = programs(len(order.settings), tuple(order.program))
        answer, states = carry_out(of_search, Work(order, message.states[LANES]))
        return Message(written(answer), {LANES: states})

    return carry_out_message


def _echo(scenario: Any, root: Path) -> CarryOut:
    """Gives back what it was given: what a driver alone can do is measured with it."""
    return lambda message: message


# What orders there are, and who carries them out, made of the scenario and the worker's directory.
KINDS: Mapping[str, Callable[[Any, Path], CarryOut]] = {
    "stage": _stages,
    "lanes": _lanes,
    "echo": _echo,
}


def _begun(
    stage: Stage, order: Order, states: Mapping[str, bytes], template: list[PyTree]
) -> tuple[PyTree, Progress]:
    """Where the order begins: at the states that came with it, or with fresh ones."""
    if order.progress is None:
        return stage.init(), fresh_progress(len(template))
    lanes = [state_of(states[str(lane)], like) for lane, like in enumerate(template)]
    return stage.join(lanes), order.progress


def trained(
    stage: Stage, states: PyTree, progress: Progress, chunks: int
) -> tuple[list[ChunkReport], dict[str, Stored]]:
    """Some chunks of a stage: the reports, and its lanes' states.

    The last states of a lane go by its number; those of its best moment, where it is among these chunks,
    by `best` and the number.
    """
    reports: list[ChunkReport] = []
    best: dict[str, Stored] = {}
    end = progress.chunks + chunks

    def record(report: Report) -> Mapping[int, str]:
        lanes = stage.split(report.states) if report.best else []
        best.update({f"best {lane}": stored_state(lanes[lane]) for lane in report.best})
        memory = memory_metrics()
        rows = [None if row is None else row | memory for row in report.rows]
        chunk = ChunkReport(
            report.progress,
            rows,
            report.scores,
            report.seconds,
            report.evaluate_seconds,
            report.best,
            report.save,
            stage.notices(),
        )
        reports.append(chunk)
        return {}

    def enough() -> bool:
        return bool(reports) and reports[-1].progress.chunks >= end

    observer = Observer(record, lambda states, progress: None, enough)
    states, _ = train(stage, states, progress, observer)
    last = {str(lane): stored_state(state) for lane, state in enumerate(stage.split(states))}
    return reports, last | best


def _in_words(work: Callable[[], None]) -> str:
    """Does the work; the text of what it raised, or nothing."""
    try:
        work()
    except ProximaError as error:
        return str(error)
    except Exception:
        import traceback

        lines = traceback.format_exc().splitlines()
        sys.stderr.write("\n".join(lines) + "\n")
        return "\n".join(["the worker failed:", *lines[-12:]])
    return ""

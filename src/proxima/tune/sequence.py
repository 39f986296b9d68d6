"""Configurations one after the other, each an experiment: for scenarios whose stages share no program.

<phase>/events.jsonl    what was ordered and told
<phase>/<number>/       the experiment of a configuration
"""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from proxima.files import explaining, flush
from proxima.run.files import read_text
from proxima.tune.experiments import curves_of, experiment
from proxima.tune.ledger import Ledger, Training, event_line, event_of, told_trainings
from proxima.tune.method import Method, Outcome, Settings, replay
from proxima.tune.objective import score_of
from proxima.tune.phase import Carried, Phase


def run_sequence(
    phase: Phase, scenario_of: Callable[[Settings], Any], show: Callable[[Carried], None]
) -> Carried:
    """All orders carried out; what is interrupted goes on where it was."""
    ledger, method = _opened(phase)
    carried = Carried(method, phase.rules, ledger, lambda number: 0)
    before, began = ledger.seconds, time.perf_counter()
    while (order := method.next(lambda number: True)) is not None:
        ledger.events.append(order)
        number = order.number
        trainings = _trained(phase, scenario_of(method.settings[number]), str(number))
        ledger.trainings |= {(number, place): each for place, each in enumerate(trainings)}
        value = score_of(phase.rules.objective, carried.values(number))
        ledger.events.append(Outcome(number, order.end, value))
        ledger.chunks += 1
        ledger.finished[number] = ledger.chunks
        ledger.seconds = before + time.perf_counter() - began
        method.tell(number, order.end, value)
        _append(phase, ledger, ledger.events[-2:])
        show(carried)
    ledger.is_over = True
    return carried


def _trained(phase: Phase, scenario: Any, name: str) -> list[Training]:
    """The experiment of a configuration, as the trainings of its seeds."""
    seeds, metric = phase.rules.seeds, phase.rules.objective.metric
    summary = experiment(scenario, phase.folder, name, len(seeds), seeds[0])
    curves = curves_of(scenario, phase.folder, name, metric)
    return [
        Training(tuple(curve), trial.episodes, ended="broken" if trial.stopped == "nan" else None)
        for trial, curve in zip(summary.trials, curves, strict=True)
    ]


def _opened(phase: Phase) -> tuple[Ledger, Method]:
    """What was told before, and the method as it was then."""
    path = phase.folder / "events.jsonl"
    *whole, _ = read_text(path).split("\n") if path.is_file() else [""]  # a kill may cut the last
    lines = [json.loads(line) for line in whole]
    ledger = Ledger([], events=[event_of(line) for line in lines if line[0] != "seconds"])
    for line in lines:
        ledger.trainings |= dict(told_trainings(line))
        if line[0] == "told":
            ledger.chunks += 1
            ledger.finished[line[1]] = ledger.chunks
        if line[0] == "seconds":
            ledger.seconds = line[1]
    method = phase.make_method(())
    replay(method, ledger.events)
    return ledger, method


def _append(phase: Phase, ledger: Ledger, events: list[Any]) -> None:
    """An order and its value, in one piece."""
    lines = [event_line(ledger, event, len(phase.rules.seeds)) for event in events]
    path: Path = phase.folder / "events.jsonl"
    with explaining(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write(
                "".join(json.dumps(line) + "\n" for line in [*lines, ["seconds", ledger.seconds]])
            )
        flush(path)

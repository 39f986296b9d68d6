"""A phase of a search: a method's orders carried out from where they stand to the last one."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from proxima.run.signals import interruptible
from proxima.tune.bench import Bench
from proxima.tune.engine import Engine, Rules, Schedules, values_of
from proxima.tune.ledger import Ledger
from proxima.tune.method import Method, Settings, replay
from proxima.tune.programs import Programs
from proxima.tune.store import Store


class Phase(NamedTuple):
    """What is trained, and where it is kept."""

    folder: Path
    make_method: Callable[[Sequence[Settings]], Method]  # given what was drawn before
    rules: Rules
    scenario: dict[str, Any]  # as files hold it
    schedules: Schedules | None = None


class Carried(NamedTuple):
    """Orders of a phase that were carried out, and what came of them."""

    method: Method
    rules: Rules
    ledger: Ledger
    program_of: Callable[[int], int]  # of a configuration's number

    def values(self, number: int) -> tuple[float | None, ...]:
        """The objective of each seed of a configuration."""
        return values_of(self.ledger, self.rules, number)


def run_phase(
    phase: Phase, programs: Programs, bench: Bench, show: Callable[[Carried], None]
) -> Carried:
    """What came of all orders; an interruption is saved and raised."""
    began = time.perf_counter()  # drawing configurations takes its time too
    store = Store(phase.folder, phase.scenario, bench.width)
    engine = _opened(phase, programs, bench, store)
    carried = Carried(engine.method, engine.rules, engine.ledger, engine.program_of)
    before = engine.ledger.seconds
    if engine.ledger.is_over:
        return carried
    with interruptible() as interrupted:
        while engine.take_up():
            engine.advance()
            engine.ledger.seconds = before + time.perf_counter() - began
            show(carried)
            if store.is_due() or interrupted():
                store.save(engine)
            if interrupted():
                raise KeyboardInterrupt
        engine.ledger.is_over = True
        store.save(engine)
    return carried


def _opened(phase: Phase, programs: Programs, bench: Bench, store: Store) -> Engine:
    """The phase's engine, as it was at the last checkpoint or new."""
    resumed = store.resumed()
    ledger, drawn = resumed or (Ledger([None] * bench.width), [])
    method = phase.make_method(drawn)
    replay(method, ledger.events)
    engine = Engine(method, phase.rules, bench, programs.of, store, ledger, phase.schedules)
    if resumed is not None and not ledger.is_over:
        # Programs have the numbers that they had: the order in which configurations first need them.
        for number in range(len(method.settings)):
            engine.program_of(number)
        lanes = {i: lane for i, lane in enumerate(ledger.lanes) if lane is not None}
        first = next(iter(lanes.values())).job.number
        bench.load(ledger.program, method.settings[first])
        bench.restore(store.states(bench), {i: engine.start_of(lane) for i, lane in lanes.items()})
    return engine

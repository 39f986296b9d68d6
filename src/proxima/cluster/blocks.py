"""Blocks of a stage trained by the workers of a cluster, and recorded here.

    every block that is not at its end is ordered, as far as its next checkpoint
    an answer comes: its reports are recorded as if the block had trained here, its states saved
    the block goes on from these states, on whichever worker is free

Only this process writes. A worker that is lost costs what it was doing; this process, killed, goes on from
the checkpoints. Neither changes a bit.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from proxima.build import domain_of
from proxima.cluster.address import parse_address
from proxima.cluster.luggage import packed
from proxima.cluster.messages import Answer, ChunkReport, Message, Order, written
from proxima.cluster.pool import Done, Pool, answered
from proxima.cluster.session import Session, nodes, open_session
from proxima.core.errors import ProximaError
from proxima.core.types import PyTree
from proxima.run.clock import note
from proxima.run.record import Run
from proxima.run.signals import interruptible
from proxima.run.train import Block, TrainBlocks
from proxima.scenario import EnvironmentScenario, Scenario, dump, to_mapping
from proxima.train import checkpoint
from proxima.train.checkpoint import Stored
from proxima.train.loop import Observer, Report, observed
from proxima.train.reinforcement import block_width


def in_blocks(scenario: Scenario, lanes: Callable[[Scenario], int] | None = None) -> Scenario:
    """The scenario with a width of its blocks, which depends on nothing but the number of trials.

    With `lanes`, which counts those of its search, on their number: they are what is divided then.
    """
    if domain_of(scenario).reads is None or not isinstance(scenario, EnvironmentScenario):
        raise ProximaError(
            f"--cluster: the stages of domain {scenario.domain} do not train in blocks; leave it out, or "
            "train over several machines with --hosts"
        )
    if scenario.training.trials_per_block or steps_environments(scenario):
        return scenario
    trials = scenario.trials
    width = block_width(trials) if lanes is None else block_width(lanes(scenario), trials)
    return replace(scenario, training=replace(scenario.training, trials_per_block=width))


def steps_environments(scenario: Scenario) -> bool:
    """Whether the cluster is there for the scenario's environments, which step in actors of its own."""
    return bool(to_mapping(scenario).get("env", {}).get("actors"))


@contextmanager
def on_cluster(address: str, scenario: Scenario | None = None) -> Iterator[TrainBlocks | None]:
    """Trains blocks on the cluster while this is open; None where it steps the scenario's environments."""
    with open_session(parse_address(address)) as session:
        steps = scenario is not None and steps_environments(scenario)
        yield None if steps else train_on(session)


def train_on(session: Session) -> TrainBlocks:
    """Trains blocks on the workers of a session."""
    return partial(_train_blocks, session)


def _train_blocks(session: Session, run: Run, planned: int, blocks: list[Block]) -> list[Block]:
    """All blocks trained to their end."""
    going = [n for n, block in enumerate(blocks) if block.progress.active.any()]
    if not going:
        return blocks
    travelling = {number: _stored(blocks[number]) for number in going}
    pool = Pool(session, dump(run.scenario), luggage_of(run.scenario), run.display.say)
    run.display.say(workers_line(session, pool, len(going)))
    started, saving = time.perf_counter(), run.clock.seconds.get("save", 0.0)
    try:
        with interruptible(at_once=True):
            _until_all_end(run, planned, travelling, pool)
    finally:
        pool.close()
        saving = run.clock.seconds.get("save", 0.0) - saving
        note(run.clock, "train", time.perf_counter() - started - saving)
    return [
        _closed(block, travelling[number]) if number in travelling else block
        for number, block in enumerate(blocks)
    ]


def _until_all_end(run: Run, planned: int, blocks: dict[int, Block], pool: Pool) -> None:
    """Orders and answers in turn, until every block is at its end; `blocks` stand where they came to."""
    for number, block in blocks.items():
        block.recorder.begin()
        pool.submit(number, _order(run, planned, number, block))
        block.recorder.note_trainers(pool.standing(0, len(blocks)))
    left, answers, busy = len(blocks), 0, dict[str, float]()
    while left:
        done = pool.next()
        answer = _answer(done)
        answers += 1
        busy[done.worker] = busy.get(done.worker, 0.0) + answer.seconds
        block = blocks[done.key]
        block = blocks[done.key] = _recorded(run, block, answer, done.answer.states)
        run.tracker.log_parent_metrics(answers, {_metric(done.worker): busy[done.worker]})
        if block.progress.active.any():
            pool.submit(done.key, _order(run, planned, done.key, block))
        else:
            left -= 1
        block.recorder.note_trainers(pool.standing(len(blocks) - left, len(blocks)))


def _stored(block: Block) -> Block:
    """The block with states as they travel; nothing here takes them apart."""
    lanes = None
    if block.states is not None:
        lanes = [checkpoint.stored_state(lane) for lane in block.stage.split(block.states)]
    stage = block.stage._replace(split=lambda lanes: lanes, notices=list)
    block.recorder.train_elsewhere(stage)
    return block._replace(stage=stage, states=lanes)


def _closed(block: Block, ended: Block) -> Block:
    """The block at its end, with the states of its last checkpoints."""
    template = block.stage.split(block.stage.init())
    lanes = [
        checkpoint.state_of(lane.content, like)
        for lane, like in zip(ended.states or (), template, strict=True)
    ]
    return ended._replace(stage=block.stage, states=block.stage.join(lanes))


def _order(run: Run, planned: int, number: int, block: Block) -> Message:
    """The block as far as its next checkpoint; where somebody may stop it before, by one chunk."""
    every, done = block.stage.schedule.save_every, block.progress.chunks
    may_stop = run.callback is not None or block.stage.schedule.stop_on_alarm
    chunks = 1 if may_stop and block.stage.exact_anywhere else every - done % every
    progress = block.progress if block.states is not None else None
    lanes = {str(lane): state.content for lane, state in enumerate(block.states or ())}
    return Message(written(Order(planned, number, progress, chunks)), lanes)


def _answer(done: Done) -> Answer:
    """What a worker answered; an error of its own is raised here."""
    return answered(done, Answer)


def _recorded(run: Run, block: Block, answer: Answer, states: Mapping[str, bytes]) -> Block:
    """The block after an answer, which is recorded as if it had trained here."""
    stored = {name: Stored(content, answer.leaves) for name, content in states.items()}
    lanes = [stored[str(lane)] for lane in range(len(block.stage.trials))]
    # Of a lane that was at its best more than once, only the last such state has travelled.
    last_best = {lane: n for n, chunk in enumerate(answer.reports) for lane in chunk.best}
    recorder, progress = block.recorder, block.progress
    observer = Observer(recorder.record, recorder.save, lambda: False)
    for number, chunk in enumerate(answer.reports):
        for sentence in chunk.notices:
            run.display.say(sentence)
        best = [lane for lane in chunk.best if last_best[lane] == number]
        is_end = number == len(answer.reports) - 1
        moment = lanes if is_end else [stored.get(f"best {lane}") for lane in range(len(lanes))]
        progress = observed(observer, _report(chunk, best, moment))
    return block._replace(
        states=lanes,
        progress=progress,
        compile_seconds=block.compile_seconds + answer.compile_seconds,
        training_seconds=recorder.seconds(),
    )


def _report(chunk: ChunkReport, best: list[int], states: PyTree) -> Report:
    return Report(
        chunk.progress,
        chunk.rows,
        chunk.scores,
        chunk.seconds,
        chunk.evaluate_seconds,
        best,
        chunk.save,
        states,
    )


def luggage_of(scenario: Scenario) -> dict[str, bytes]:
    """What workers need besides the scenario."""
    reads = domain_of(scenario).reads
    assert reads is not None  # `in_blocks` refuses others
    return packed(to_mapping(scenario), reads(scenario))


def workers_line(session: Session, pool: Pool, blocks: int) -> str:
    """Where blocks are trained, for a person."""
    machines = len([node for node in nodes(session) if node.is_alive])
    line = f"{blocks} blocks on {pool.width} workers of {machines} machine{'s' * (machines > 1)}"
    return line + (f"; Ray's dashboard: {session.dashboard}" if session.dashboard else "")


def _metric(worker: str) -> str:
    """The name of a worker's time with the tracker."""
    return f"time/{worker.replace(' ', '_')}"

"""Searches in blocks: the same bits in this process, on workers, and when killed and resumed."""

import json
import os
import signal
from contextlib import nullcontext

import jax
import pytest
from clusters import living, worker_pids
from lanes import LAMBDA, RATE, SPACE, small
from tiny import equal_trees

from proxima.cluster.address import parse_address
from proxima.cluster.blocks import train_on
from proxima.cluster.lanes import elsewhere, search_in_blocks
from proxima.cluster.messages import Message, read, written
from proxima.cluster.session import open_session
from proxima.cluster.worker import LANES, Worker
from proxima.core.errors import ProximaError
from proxima.run.files import read_json
from proxima.run.train import _train_here
from proxima.scenario import changed, load
from proxima.train.checkpoint import stored_blocks, with_blocks
from proxima.train.reinforcement import block_width, fits_blocks
from proxima.tune import store
from proxima.tune.bench import Bench, Evaluations, Start
from proxima.tune.blocks import BlockAnswer, BlockOrder, Blocks, Elsewhere, Work
from proxima.tune.carry import carry_out, carry_out_here
from proxima.tune.experiments import in_blocks_for
from proxima.tune.files import SearchFiles, find_search
from proxima.tune.plan import TUNING_ROLE, Watch, prepare_search
from proxima.tune.programs import Programs
from proxima.tune.run import resume_search, start_search

METHODS = ["random", "asha", "pbt"]
SILENT = Watch(lambda text: None, lambda standing: None)
FIRST = {RATE: 3e-3, LAMBDA: 0.9}
OTHERS = [{RATE: 1e-4, LAMBDA: 0.5}, {RATE: 5e-2, LAMBDA: 1.0}, {RATE: 1e-2, LAMBDA: 0.7}]


class Killed(BaseException):
    """Ends a search as a kill does: nothing more is saved."""


def scenario_of(method: str, output: str = "logs", name: str = "pendulum", **more):
    wanted = {"method": method, "configs": 6, "evaluations": 3, "lanes": 4} | more
    wanted |= {"configs": 4} if method == "pbt" else {}
    blocks = {"training.trials_per_block": 2, "output_directory": str(output)}
    return changed(small(name, **wanted), blocks, "test")


def content(files: SearchFiles) -> dict:
    """What a search came to, without what differs between two of them."""
    result = read_json(files.result)
    return {key: value for key, value in result.items() if key not in ("seconds", "search_id")}


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """Searches in this process that nobody disturbed, by method."""
    known: dict[str, SearchFiles] = {}

    def of(method: str) -> SearchFiles:
        if method not in known:
            output = tmp_path_factory.mktemp(method)
            known[method], _ = start_search(scenario_of(method, output), SILENT)
        return known[method]

    return of


@pytest.fixture(scope="module")
def workers(compiled):
    """Two workers on this machine, the same for all searches here: starting them takes seconds."""
    said = []
    with (
        open_session(parse_address("local:2")) as session,
        elsewhere(session).carrying(scenario_of("random"), 2, said.append) as carry,
    ):
        assert said == ["2 blocks on 2 workers of 1 machine"]
        yield Elsewhere(lambda scenario, blocks, say: nullcontext(carry), train_on(session))


@pytest.mark.parametrize("method", METHODS)
def test_workers_give_the_bits_of_this_process(method, here, workers, tmp_path):
    """Also where one of them is killed after the first chunk, once: it takes seconds to start again."""
    killed = []

    def kill_one(standing) -> None:
        if method == "asha" and not killed:
            killed.append(worker_pids()[0])
            os.kill(killed[0], signal.SIGKILL)

    files, _ = start_search(scenario_of(method, tmp_path), SILENT._replace(show=kill_one), workers)
    assert bool(killed) == (method == "asha") and not living(killed)
    assert content(files) == content(here(method))


def test_closing_tests_are_trained_by_whoever_carries_out_the_blocks(workdir):
    carried, trained = [], []

    def train(run, planned, blocks):
        trained.append([block.stage.trials for block in blocks])
        return [_train_here(run, block) for block in blocks]

    scenario = scenario_of("random", confirm=1, configs=2, evaluations=1)
    programs = Programs(scenario, 2, tuple(SPACE))

    def carry(work):
        carried.append(len(work))
        return carry_out_here(programs, work)

    others = Elsewhere(lambda *arguments: nullcontext(carry), train)
    _, result = start_search(scenario, SILENT, others)
    assert carried == [1] * 4  # two configurations in two lanes, then six seeds of the best
    assert trained == [[(0, 1), (2, 3), (4, 5)]] * 2
    assert all(value is not None for each in result.test for value in each.values)


@pytest.mark.parametrize("method", METHODS)
def test_killed_at_any_chunk_and_resumed_it_is_the_same_search(
    method, here, workers, workdir, monkeypatch
):
    """By turns here and on the workers."""
    chunks = 0

    def killing(standing) -> None:
        nonlocal chunks
        chunks += 1
        if chunks % 2 == 0:
            raise Killed

    monkeypatch.setattr(store.Store, "is_due", lambda self: chunks % 3 != 2)
    with pytest.raises(Killed):
        start_search(scenario_of(method), SILENT._replace(show=killing))
    files = find_search("pendulum")
    for turn in range(100):
        try:
            resume_search(files, SILENT._replace(show=killing), None if turn % 2 else workers)
            break
        except Killed:
            continue
    assert content(files) == content(here(method))


def bench_of(scenario, width: int, block: int | None, settings=FIRST) -> Bench:
    programs = Programs(scenario, block or width, tuple(settings))
    blocks = None if block is None else Blocks(block, lambda work: carry_out_here(programs, work))
    bench = Bench(programs, width, Evaluations(4, 999), blocks)
    bench.load(programs.of(settings), settings)
    return bench


def test_a_block_has_the_bits_of_a_bench_of_its_width():
    scenario = scenario_of("random")
    bench = bench_of(scenario, 4, 2)
    starts = [Start(each, 5 + lane) for lane, each in enumerate([FIRST, *OTHERS])]
    bench.begin(dict(enumerate(starts)))
    rows, scores = bench.advance([2, 1, 3, 2]), bench.evaluate()
    alone = bench_of(scenario, 2, None)
    alone.begin({0: starts[2], 1: starts[3]})
    assert alone.advance([3, 2]) == rows[2:] and alone.evaluate() == scores[2:]
    assert equal_trees(alone.take(0), bench.take(2)) and equal_trees(alone.take(1), bench.take(3))


def test_what_has_nothing_to_train_is_not_ordered_and_keeps_its_scores():
    scenario, ordered = scenario_of("random"), []
    programs = Programs(scenario, 2, tuple(FIRST))

    def carry(work):
        ordered.append(sorted(work))
        return carry_out_here(programs, dict(reversed(work.items())))  # in whichever order

    bench = Bench(programs, 6, Evaluations(4, 999), Blocks(2, carry))
    bench.load(programs.of(FIRST), FIRST)
    bench.begin({0: Start(FIRST, 1), 2: Start(OTHERS[0], 2)})
    bench.advance([1, 0, 1, 0, 0, 0])
    first = bench.evaluate()
    bench.advance([0, 0, 1, 0, 0, 0])
    second, before = bench.evaluate(), bench.take(4)
    bench.begin({4: Start(OTHERS[1], 3)})
    assert bench.advance([0] * 6) == [{"episode/count": 0.0}] * 6  # an evaluation without updates
    third = bench.evaluate()
    assert ordered == [[0, 1], [1], [2]]
    assert first[0] == second[0] == third[0] and first[2] != second[2]
    assert third[4].episodes == 4 and not equal_trees(bench.take(4), before)


def test_evaluating_alone_leaves_states_as_they_are_on_the_host_too():
    path = "algorithm.learning_rate"
    scenario = scenario_of("random", name="cartpole_host", space={path: "log:1e-4:1e-1"})
    bench = bench_of(scenario, 2, 2, {path: 1e-3})
    bench.begin({lane: Start({path: 1e-3}, lane) for lane in range(2)})
    bench.advance([1, 1])
    before = bench.take(0)
    bench.begin({1: Start({path: 1e-2}, 1)})
    bench.advance([0, 0])
    assert equal_trees(bench.take(0), before)
    bench._programs.close()


def test_blocks_are_taken_out_and_put_back():
    bench = bench_of(scenario_of("random"), 4, 2)
    bench.begin({lane: Start(each, lane) for lane, each in enumerate([FIRST, *OTHERS])})
    stored = stored_blocks(bench.states, 2, [0, 1])
    swapped = with_blocks(bench.states, 2, {0: stored[1]})
    for lane, source in enumerate((2, 3, 2, 3)):
        one = jax.tree.map(lambda leaf, lane=lane: leaf[lane], swapped)
        assert equal_trees(one, bench.take(source))


@pytest.fixture
def worker():
    """A worker in this process."""
    return Worker()


def test_an_order_survives_the_way_and_a_worker_carries_it_out(worker):
    scenario = scenario_of("random")
    bench = bench_of(scenario, 2, None)
    bench.begin({0: Start(FIRST, 5), 1: Start(OTHERS[0], 6)})
    order = BlockOrder(FIRST, [FIRST, OTHERS[0]], [5, 6], [2, 1], 4, 999)
    assert read(written(order), BlockOrder) == order
    work = Work(order, stored_blocks(bench.states, 2, [0])[0])
    answer, states = carry_out(Programs(scenario, 2, tuple(FIRST)), work)
    worker._scenario = scenario
    heard = worker.carry_out(Message(written(order), {LANES: work.states}, "lanes"))
    assert read(heard.text, BlockAnswer) == answer and heard.states[LANES] == states


def test_what_a_worker_cannot_do_comes_back_in_words(worker):
    worker._scenario = scenario_of("random")
    order = BlockOrder({"algorithm.lerning_rate": 1.0}, [{}], [1], [1], 4, 9)
    heard = worker.carry_out(Message(written(order), {LANES: b""}, "lanes"))
    assert "unknown key; did you mean learning_rate" in json.loads(heard.text)["error"]


def test_the_width_of_blocks_depends_on_the_scenario_alone():
    assert [block_width(lanes) for lanes in (1, 4, 16, 64, 100, 5000)] == [1, 1, 2, 8, 10, 10]
    assert (block_width(32), block_width(32, 6), block_width(32, 3)) == (4, 2, 4)
    scenario = small(lanes=16, configs=100)
    assert search_in_blocks(scenario).training.trials_per_block == 2
    given = changed(scenario, {"training.trials_per_block": 4}, "test")
    assert search_in_blocks(given) == given


def test_lanes_are_whole_blocks():
    def sizes(block: int, **more):
        scenario = changed(small(**more), {"training.trials_per_block": block}, "test")
        search = prepare_search(scenario, SILENT)
        return search.width, search.blocks.width

    assert sizes(2) == (4, 2)
    assert sizes(3, lanes=4) == (6, 3)
    assert sizes(100, lanes=4) == (4, 4)


def test_closing_tests_have_blocks_that_divide_their_trials():
    scenario = changed(small(), {"training.trials_per_block": 4}, "test")
    assert in_blocks_for(scenario, 8) == in_blocks_for(scenario, 4) == scenario
    block = in_blocks_for(scenario, 6).training.trials_per_block
    assert fits_blocks(6, block) and in_blocks_for(small(), 6) == small()


def test_the_evaluation_of_a_search_in_blocks_is_its_roles():
    search = prepare_search(scenario_of("random"), SILENT)
    assert search.bench(TUNING_ROLE)._evaluations == search.evaluations(TUNING_ROLE)


def test_a_search_without_blocks_is_not_gone_on_with_elsewhere(workdir):
    with pytest.raises(ProximaError, match=r"--cluster: this search has no blocks"):
        prepare_search(small(), SILENT, elsewhere=object())


def test_searches_of_language_are_refused_in_words():
    scenario = load("smollm2_positive")
    with pytest.raises(
        ProximaError, match=r"--cluster: the stages of domain language do not train"
    ):
        search_in_blocks(scenario)

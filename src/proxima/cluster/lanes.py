"""Blocks of a search's lanes carried out by the workers of a cluster.

A chunk of the search is one order per block; the next chunk begins when all are answered, in whichever
order that was. The search itself, copies of members and states that wait included, stays here.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from proxima.cluster.address import parse_address
from proxima.cluster.blocks import in_blocks, luggage_of, train_on, workers_line
from proxima.cluster.messages import Message, written
from proxima.cluster.pool import Pool, answered
from proxima.cluster.session import Session, open_session
from proxima.cluster.worker import LANES
from proxima.scenario import Scenario, dump
from proxima.tune.blocks import BlockAnswer, Carry, Elsewhere, Work, Worked
from proxima.tune.plan import lanes_of


def search_in_blocks(scenario: Scenario) -> Scenario:
    """The scenario with a width for the blocks of its search."""
    return in_blocks(scenario, lanes_of)


@contextmanager
def search_on_cluster(address: str) -> Iterator[Elsewhere]:
    """The cluster works for a search while this is open."""
    with open_session(parse_address(address)) as session:
        yield elsewhere(session)


def elsewhere(session: Session) -> Elsewhere:
    """The workers of a session, for a search."""
    return Elsewhere(partial(_carrying, session), train_on(session))


@contextmanager
def _carrying(
    session: Session, scenario: Scenario, blocks: int, say: Callable[[str], None]
) -> Iterator[Carry]:
    """Workers that know the scenario, while this is open."""
    pool = Pool(session, dump(scenario), luggage_of(scenario), say)
    say(workers_line(session, pool, blocks))
    try:
        yield partial(_carry_out, pool)
    finally:
        pool.close()


def _carry_out(pool: Pool, work: Mapping[int, Work]) -> dict[int, Worked]:
    """All blocks of a chunk, by number."""
    for block, (order, states) in work.items():
        pool.submit(block, Message(written(order), {LANES: states}, "lanes"))
    done: dict[int, Worked] = {}
    while len(done) < len(work):
        carried_out = pool.next()
        answer = answered(carried_out, BlockAnswer)
        done[carried_out.key] = Worked(answer, carried_out.answer.states[LANES])
    return done

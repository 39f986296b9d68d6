"""Carries out orders of blocks: an ordinary bench of the block's width, begun where the order begins."""

from collections.abc import Mapping

from proxima.train import checkpoint
from proxima.tune.bench import NOTHING, Bench, Evaluations, Start
from proxima.tune.blocks import BlockAnswer, Work, Worked
from proxima.tune.programs import Programs


def carry_out(programs: Programs, work: Work) -> Worked:
    """The block trained and evaluated, a function of the scenario and of what is ordered alone."""
    order, width = work.order, len(work.order.settings)
    bench = Bench(programs, width, Evaluations(order.episodes, order.evaluation_seed))
    bench.load(programs.of(order.program), order.program)
    lanes = zip(order.settings, order.seeds, strict=True)
    starts = {lane: Start(settings, seed) for lane, (settings, seed) in enumerate(lanes)}
    bench.restore(checkpoint.state_of(work.states, bench.states), starts)
    # What is only evaluated stays as it is: on the host, advancing by nothing begins new episodes too.
    rows = bench.advance(order.updates) if any(order.updates) else [NOTHING] * width
    scores = bench.evaluate()
    return Worked(BlockAnswer(rows, scores), checkpoint.stored_state(bench.states).content)


def carry_out_here(programs: Programs, work: Mapping[int, Work]) -> dict[int, Worked]:
    """All blocks one after the other in this process."""
    return {block: carry_out(programs, order) for block, order in work.items()}

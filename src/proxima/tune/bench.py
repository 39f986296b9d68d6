"""The lanes of the loaded program: their states, and the numbers that each has of its own.

The width never changes, so nothing compiles anew when a lane goes on with another configuration; and no
lane reads another's numbers, so what becomes of a configuration depends on its settings and seed alone.

Lanes train here, or in blocks that somebody carries out (blocks.py); then their states are here in between.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from proxima.core.types import PyTree, TrainState
from proxima.train import checkpoint, lanes
from proxima.train.reinforcement import blocks_of, scores, trial_metrics
from proxima.train.stage import Row, Score
from proxima.tune.blocks import BlockOrder, Blocks, Work
from proxima.tune.method import Settings
from proxima.tune.programs import Loaded, Numbers, Programs

NOTHING: Row = {"episode/count": 0.0}  # of a lane that did no update
UNKNOWN = Score(np.nan, 0, {})  # of a lane that nobody has begun


class Start(NamedTuple):
    """What a lane goes on with."""

    settings: Settings
    seed: int
    state: TrainState | None = None  # on the host; None: a fresh one


class Evaluations(NamedTuple):
    """The episodes of an evaluation."""

    episodes: int
    seed: int


@final
class Bench:
    """All lanes, advancing together."""

    def __init__(
        self,
        programs: Programs,
        width: int,
        evaluations: Evaluations,
        blocks: Blocks | None = None,
    ):
        self._programs, self._evaluations, self.width = programs, evaluations, width
        self._blocks = blocks
        self._first: Settings = {}  # a configuration of the loaded program
        self._settings: list[Settings] = []  # by lane
        self._numbers: list[Numbers] = []
        self._seeds = [0] * width
        self._scores = [UNKNOWN] * width  # with blocks: of the last evaluation
        self._unscored: set[int] = set()  # lanes that have changed since then
        self._own: PyTree = None
        self.loaded: Loaded
        self.states: TrainState

    def load(self, program: int, settings: Settings) -> None:
        """Another program, with lanes of nothing in particular; `settings` are a configuration of it."""
        self.loaded = self._programs.load(program)
        self._first, self._settings = settings, [settings] * self.width
        self._scores, self._unscored = [UNKNOWN] * self.width, set()
        self._numbers = [self._programs.numbers(settings)] * self.width
        self._own = jax.device_put(self._programs.own(self._numbers))
        self.states = self.loaded.lanes.init(self._own, self._seeds)

    def begin(self, starts: Mapping[int, Start]) -> None:
        """Lanes go on with something else: a fresh state, or one that was taken from a lane before."""
        fresh = [lane for lane, start in starts.items() if start.state is None]
        self._renumber({lane: start.settings for lane, start in starts.items()})
        for lane, start in starts.items():
            self._seeds[lane] = start.seed
            if start.state is not None:
                self.states = lanes.put(self.states, jnp.int32(lane), start.state)
        if fresh:
            new = self.loaded.lanes.init(self._own, self._seeds)
            self.states = lanes.chosen(self._mask(fresh), new, self.states)

    def change(
        self, settings: Mapping[int, Settings], sources: Sequence[int] | None = None
    ) -> None:
        """Lanes go on with other numbers and, with `sources`, each as a copy of another lane.

        A copy has the other's learner and environments, and keeps its own random streams.
        """
        if sources is not None and list(sources) != list(range(self.width)):
            self._unscored |= {lane for lane, source in enumerate(sources) if lane != source}
            copied = lanes.copies(self.states, np.asarray(sources))
            self.states = self.loaded.program.lay_out(copied)
        if settings:
            self._renumber(settings)
            new = self.loaded.lanes.init(self._own, self._seeds)
            self.states = lanes.numbered(self._mask(list(settings)), new, self.states)

    def advance(self, updates: Sequence[int]) -> list[Row]:
        """So many updates of each lane, in as few calls as these numbers need; a row of metrics per lane."""
        if self._blocks is not None:
            return self._advance_blocks(self._blocks, updates)
        done = np.zeros(self.width, int)
        totals: dict[str, np.ndarray] = {}
        while (left := np.asarray(updates) - done).any():
            active, amount = left > 0, int(left[left > 0].min())
            self.states, sums = self.loaded.lanes.chunk(self._own, self.states, active, amount)
            counted = {name: np.where(active, values, 0.0) for name, values in sums.items()}
            totals = {name: totals.get(name, 0.0) + values for name, values in counted.items()}
            done += np.where(active, amount, 0)
        self.states = self.loaded.program.reseed(self.states)
        if not totals:  # more evaluations than updates
            return [NOTHING] * self.width
        return [trial_metrics(totals, lane, max(1, done[lane])) for lane in range(self.width)]

    def evaluate(self) -> list[Score]:
        """Every lane's greedy policy, all on the same episodes; a block was evaluated as it advanced."""
        if self._blocks is not None:
            return list(self._scores)
        episodes, seed = self._evaluations
        learners = self.states.learner
        return scores(self.loaded.lanes.evaluate(self._own, learners, episodes, seed))

    def take(self, lane: int) -> TrainState:
        """A lane's state, on the host."""
        return checkpoint.lane_of(self.states, lane)

    def unseeded(self, settings: Sequence[Settings]) -> TrainState:
        """First states that differ in these settings alone; the lanes stay as they are."""
        numbers = [self._programs.numbers(each) for each in settings]
        own = self._programs.own([*numbers, *[numbers[-1]] * (self.width - len(numbers))])
        return self.loaded.lanes.init(own, [0] * self.width)

    def restore(self, states: TrainState, starts: Mapping[int, Start]) -> None:
        """All lanes as they were saved."""
        self._renumber({lane: start.settings for lane, start in starts.items()})
        for lane, start in starts.items():
            self._seeds[lane] = start.seed
        self.states = self.loaded.program.lay_out(states)

    def _advance_blocks(self, blocks: Blocks, updates: Sequence[int]) -> list[Row]:
        """The same in blocks; one with nothing to train and nothing to evaluate is left alone."""
        rows, parts = [NOTHING] * self.width, blocks_of(self.width, blocks.width)
        due = [
            block
            for block, part in enumerate(parts)
            if any(updates[lane] or lane in self._unscored for lane in part)
        ]
        stored = checkpoint.stored_blocks(self.states, blocks.width, due)
        work = {
            block: Work(self._order(parts[block], updates), content)
            for block, content in stored.items()
        }
        done = blocks.carry(work)
        for block, (answer, _) in done.items():
            lanes = slice(parts[block][0], parts[block][-1] + 1)
            rows[lanes], self._scores[lanes] = answer.rows, answer.scores
        contents = {block: each.states for block, each in done.items()}
        states = checkpoint.with_blocks(self.states, blocks.width, contents)
        self.states, self._unscored = self.loaded.program.lay_out(states), set()
        return rows

    def _order(self, lanes: Sequence[int], updates: Sequence[int]) -> BlockOrder:
        return BlockOrder(
            self._first,
            [self._settings[lane] for lane in lanes],
            [self._seeds[lane] for lane in lanes],
            [int(updates[lane]) for lane in lanes],
            *self._evaluations,
        )

    def _renumber(self, settings: Mapping[int, Settings]) -> None:
        self._unscored |= settings.keys()
        for lane, each in settings.items():
            self._settings[lane] = each
            self._numbers[lane] = self._programs.numbers(each)
        self._own = jax.device_put(self._programs.own(self._numbers))

    def _mask(self, lanes: Sequence[int]) -> Array:
        return jnp.asarray(np.isin(np.arange(self.width), lanes))

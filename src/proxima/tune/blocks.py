"""Lanes of a search in blocks: what is ordered of one, what comes back, and who carries it out.

A block's lanes train in a program of the block's width, apart from all others. That width is the
scenario's, so the bits of a result depend neither on how many machines there are nor on which one had a
block. Who carries out an order needs nothing but the scenario and what travels with the order.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import NamedTuple

from proxima.run.train import TrainBlocks
from proxima.scenario import Scenario
from proxima.train.stage import Row, Score
from proxima.tune.method import Settings


class BlockOrder(NamedTuple):
    """A block that is to be trained and evaluated; everything by lane but the first and the last two."""

    program: Settings  # a configuration of the program that the block is of
    settings: list[Settings]
    seeds: list[int]
    updates: list[int]
    episodes: int  # of the evaluation
    evaluation_seed: int


class BlockAnswer(NamedTuple):
    """What came of an order; by lane."""

    rows: list[Row]
    scores: list[Score]


class Work(NamedTuple):
    """An order, and the states of the block's lanes as safetensors."""

    order: BlockOrder
    states: bytes


class Worked(NamedTuple):
    """The answer, and the states of the block's lanes as they are now."""

    answer: BlockAnswer
    states: bytes


Carry = Callable[[Mapping[int, Work]], Mapping[int, Worked]]  # by the block's number


class Blocks(NamedTuple):
    """How wide the blocks are, and who carries out their orders."""

    width: int
    carry: Carry


class Elsewhere(NamedTuple):
    """Processes that work for a search: they carry out its blocks, and train those of its closing tests."""

    # scenario, number of blocks, who tells a person about it
    carrying: Callable[[Scenario, int, Callable[[str], None]], AbstractContextManager[Carry]]
    train: TrainBlocks

"""A stage trained by a gang: process 0 says what comes next, and all do it with their parts of the states.

process 0:   loop ─► stage, led ─┬─► says to all what comes next ─► does it with them
the others:            follow ───┘   init, join, prepare, advance, evaluate, gather, reseed, end
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from proxima.core.types import PyTree
from proxima.train.gang import Member, Message
from proxima.train.stage import Row, Score, Stage


def led(stage: Stage, member: Member) -> Stage:
    """The stage as process 0 has it: what it does, all others do with it."""

    def together(name: str, *values: Any) -> None:
        member.send({"name": name, "values": values})

    def init() -> PyTree:
        together("init")
        with member.explained():
            return stage.init()

    def split(states: PyTree) -> list[PyTree]:
        together("gather")
        with member.explained():
            return stage.split(gathered(states))

    def join(lanes: Sequence[PyTree]) -> PyTree:
        together("join")
        with member.explained():
            return stage.join(shared(lanes))

    def prepare(states: PyTree) -> PyTree:
        together("prepare")
        with member.explained():
            states = stage.prepare(states)
        member.meet()
        return states

    def advance(
        states: PyTree, active: np.ndarray, updates: int, done: int
    ) -> tuple[PyTree, list[Row]]:
        together("advance", active.tolist(), updates, done)
        with member.explained():
            return stage.advance(states, active, updates, done)

    def evaluate(states: PyTree) -> list[Score]:
        together("evaluate")
        with member.explained():
            return stage.evaluate(states)

    def reseed(states: PyTree) -> PyTree:
        together("reseed")
        return stage.reseed(states)

    return stage._replace(
        init=init,
        split=split,
        join=join,
        prepare=prepare,
        advance=advance,
        evaluate=evaluate,
        reseed=reseed,
        layout={**stage.layout, "processes": member.gang.processes},
    )


class Held(NamedTuple):
    """What a process that follows has of a stage."""

    states: PyTree = None
    # Fresh states as lanes: those that process 0 restores have their shapes. None until they were gathered.
    fresh: Sequence[PyTree] | None = None


def follow(stage: Stage, member: Member) -> Message:
    """Does what process 0 says with this process's part of the stage; the message that is none of it."""
    held = Held()
    while (message := member.receive())["name"] in ANSWERS:
        with member.explained():
            held = ANSWERS[message["name"]](stage, member, held, *message["values"])
    return message


def _init(stage: Stage, member: Member, held: Held) -> Held:
    return Held(stage.init())


def _gather(stage: Stage, member: Member, held: Held) -> Held:
    whole = gathered(held.states)
    return held if held.fresh is not None else held._replace(fresh=stage.split(whole))


def _join(stage: Stage, member: Member, held: Held) -> Held:
    assert held.fresh is not None  # whoever restores asks for fresh states first
    return Held(stage.join(shared(held.fresh)), fresh=())


def _prepare(stage: Stage, member: Member, held: Held) -> Held:
    states = stage.prepare(held.states)
    member.meet()
    return Held(states, fresh=())


def _advance(
    stage: Stage, member: Member, held: Held, active: list[bool], updates: int, done: int
) -> Held:
    return held._replace(states=stage.advance(held.states, np.array(active), updates, done)[0])


def _evaluate(stage: Stage, member: Member, held: Held) -> Held:
    stage.evaluate(held.states)
    return held


def _reseed(stage: Stage, member: Member, held: Held) -> Held:
    return held._replace(states=stage.reseed(held.states))


ANSWERS: Mapping[str, Callable[..., Held]] = {
    "init": _init,
    "gather": _gather,
    "join": _join,
    "prepare": _prepare,
    "advance": _advance,
    "evaluate": _evaluate,
    "reseed": _reseed,
}


def gathered(tree: PyTree) -> PyTree:
    """The tree with what lies on several processes on this one's host, whole."""
    leaves, structure = jax.tree.flatten(tree)
    apart = [index for index, leaf in enumerate(leaves) if _is_apart(leaf)]
    if apart:
        whole = _whole(leaves[apart[0]].sharding.mesh)([leaves[index] for index in apart])
        for index, leaf in zip(apart, whole, strict=True):
            leaves[index] = leaf
    return jax.tree.unflatten(structure, [_here(leaf) for leaf in leaves])


def _is_apart(leaf: Any) -> bool:
    return (
        isinstance(leaf, jax.Array)
        and not leaf.is_fully_addressable
        and not leaf.is_fully_replicated
    )


def _here(leaf: Any) -> Any:
    if not isinstance(leaf, jax.Array) or leaf.is_fully_addressable:
        return leaf
    own = leaf.addressable_data(0)
    # a copy, as the next chunk wants the memory; on the host, from where it may go to any devices
    return _like(own, np.array(_numbers(own)))


@cache
def _whole(mesh: Mesh) -> Callable[[list[jax.Array]], list[jax.Array]]:
    return jax.jit(lambda leaves: leaves, out_shardings=NamedSharding(mesh, P()))


def shared(lanes: Sequence[PyTree]) -> list[PyTree]:
    """Process 0's lanes in every process, bit for bit; the others give some of the same shapes."""
    leaves, structure = jax.tree.flatten(list(lanes))
    arrays = [_numbers(leaf) for leaf in leaves]
    # as bytes: floats are added up on the way, and −0.0 + 0.0 is not −0.0
    sent = b"".join(array.tobytes() for array in arrays)
    received = np.frombuffer(shared_bytes(sent, len(sent)), np.uint8)
    ends = np.cumsum([array.nbytes for array in arrays])[:-1]
    parts = [
        np.frombuffer(part.tobytes(), array.dtype).reshape(array.shape)
        for part, array in zip(np.split(received, ends), arrays, strict=True)
    ]
    restored = [_like(leaf, part) for leaf, part in zip(leaves, parts, strict=True)]
    same: list[PyTree] = jax.tree.unflatten(structure, restored)
    return same


def shared_bytes(content: bytes, size: int) -> bytes:
    """Process 0's bytes in every process; the others know how many come."""
    if size == 0:
        return b""
    own = np.frombuffer(content.ljust(size, b"\0"), np.uint8)
    return np.asarray(multihost_utils.broadcast_one_to_all(own)).tobytes()


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _numbers(leaf: Any) -> np.ndarray:
    return np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)


def _like(leaf: Any, numbers: np.ndarray) -> Any:
    if _is_key(leaf):
        return jax.random.wrap_key_data(jnp.asarray(numbers), impl=jax.random.key_impl(leaf))
    return numbers

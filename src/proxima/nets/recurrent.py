"""Nets with memory: a cell between the encoded observation and the heads of policy and value.

    obs ─► encode ─► cell ─► heads: policy and value of what was seen
                     │ ▲
                     └─┘ memory, zeros when an episode begins

Two cells: the gated recurrent unit (Cho et al. 2014, arXiv 1406.1078, with the reset gate after the product,
as torch has it) and the LSTM (Hochreiter and Schmidhuber 1997, its forget gate biased to 1). Over a sequence
everything that does not depend on the memory is one large product; only the rest is a loop.
"""

from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from proxima.core.network import PolicyAndValue
from proxima.core.spaces import ACTION_MASK, Fields, ObservationSpace, action_mask, box, fields
from proxima.core.trees import select
from proxima.core.types import PyTree
from proxima.nets.encoder import Encoder
from proxima.nets.gru import gru, gru_unrolled
from proxima.nets.mlp import Linear, affine, linear, orthogonal

Kind = Literal["gru", "lstm"]
GATES = {"gru": 3, "lstm": 4}
FEATURES = "features"  # what is seen, where a mask stands beside it


class Memory(NamedTuple):
    """What a cell carries on, (..., size) each."""

    output: Array
    cell: Array | None = None  # of an LSTM


class Cell(eqx.Module):
    """A recurrent layer over any leading axes; zeros are the memory of nothing."""

    inputs: Linear  # to all gates
    recurrent: Array  # (size, gates · size)
    candidate_bias: Array | None  # of the GRU's candidate, inside its reset gate

    def project(self, x: Array) -> Array:
        """The part of the gates that does not depend on the memory, (..., gates · size)."""
        return self.inputs(x)

    def __call__(self, memory: Memory, projected: Array) -> Memory:
        """The memory after one step; what it gives on is its `output`."""
        recalled = affine(memory.output, self.recurrent, None)
        if memory.cell is not None:
            return _lstm(memory.cell, projected + recalled)
        assert self.candidate_bias is not None
        return Memory(gru(memory.output, projected, recalled, self.candidate_bias)[0])

    def unroll(self, memory: Memory, projected: Array, ended: Array) -> Array:
        """The outputs of steps (T, B, ...); the memory begins anew after a row that ended."""
        if memory.cell is None:
            fixed = self.recurrent, self.candidate_bias
            return gru_unrolled(*fixed, memory.output, projected, ended)  # type: ignore[no-any-return]

        def step(memory: Memory, row: tuple[Array, Array]) -> tuple[Memory, Array]:
            projected, ended = row
            memory = self(memory, projected)
            return select(ended, jax.tree.map(jnp.zeros_like, memory), memory), memory.output

        return jax.lax.scan(step, memory, (projected, ended))[1]


def _lstm(cell: Array, gates: Array) -> Memory:
    """i, f, o = σ(…); g = tanh(…); c' = f c + i g; h' = o tanh(c')."""
    write, keep, read, candidate = jnp.split(gates, 4, axis=-1)
    content = jax.nn.sigmoid(write) * jnp.tanh(candidate)
    cell = jax.nn.sigmoid(keep + 1.0) * cell + content
    return Memory(jax.nn.sigmoid(read) * jnp.tanh(cell), cell)


class Recurrent(eqx.Module):
    """A policy and a value of what was seen; satisfies `core.network.Remembering`."""

    encode: Encoder
    cell: Cell
    heads: PolicyAndValue  # over the cell's output, beside it the action mask

    @property
    def critic(self) -> PyTree:
        return self.heads.critic

    def policy(self, seen: PyTree) -> Any:
        """The action distribution at what was seen."""
        return self.heads.policy(seen)

    def value(self, seen: PyTree) -> Array:
        """V of what was seen."""
        return self.heads.value(seen)

    def __call__(self, seen: PyTree) -> tuple[Any, Array]:
        """Both."""
        return self.heads(seen)

    def remember(self, memory: Memory, obs: PyTree) -> tuple[PyTree, Memory]:
        """What is seen at one observation after the memory, and the memory after it."""
        memory = self.cell(memory, self.cell.project(self.encode(obs)))
        return _seen(memory.output, obs), memory

    def unroll(self, memory: Memory, obs: PyTree, ended: Array) -> PyTree:
        """What is seen along sequences (T, B, ...); the memory begins anew after a row that ended."""
        projected = self.cell.project(self.encode(obs))
        return _seen(self.cell.unroll(memory, projected, ended), obs)


def _seen(output: Array, obs: PyTree) -> PyTree:
    mask = action_mask(obs)
    return output if mask is None else {FEATURES: output, ACTION_MASK: mask}


def seen_space(size: int, observation_space: ObservationSpace) -> ObservationSpace:
    """The space of what heads see in place of the observation."""
    features = box(-jnp.inf, jnp.inf, (size,))
    mask = observation_space.get(ACTION_MASK) if isinstance(observation_space, Fields) else None
    return features if mask is None else fields({FEATURES: features, ACTION_MASK: mask})


def cell(key: Array, kind: Kind, inputs: int, size: int) -> Cell:
    """Orthogonal weights, a block for each gate; biases of 0."""
    input_key, *gate_keys = jax.random.split(key, 1 + GATES[kind])
    blocks = [orthogonal(gate_key, size, size) for gate_key in gate_keys]
    width = GATES[kind] * size
    # So that a gate varies as much as what it sees: three numbers would else reach 192 gates at an eighth.
    gain = max(1.0, width / inputs) ** 0.5
    return Cell(
        inputs=linear(input_key, inputs, width, gain),
        recurrent=jnp.concatenate(blocks, axis=1),
        candidate_bias=jnp.zeros(size) if kind == "gru" else None,
    )


def first_memory(kind: Kind, size: int, num_envs: int) -> Memory:
    """What a cell remembers when an episode begins."""
    output, cell = jnp.zeros((2, num_envs, size))
    return Memory(output, cell if kind == "lstm" else None)

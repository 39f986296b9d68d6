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
        return Memory(_gru(memory.output, projected, recalled, self.candidate_bias)[0])

    def unroll(self, memory: Memory, projected: Array, ended: Array) -> Array:
        """The outputs of steps (T, B, ...); the memory begins anew after a row that ended."""
        if memory.cell is None:
            fixed = self.recurrent, self.candidate_bias
            return _gru_unrolled(*fixed, memory.output, projected, ended)  # type: ignore[no-any-return]

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


class GRUStep(NamedTuple):
    """What a step of a GRU computes on the way, (..., size) each but for the gates."""

    gates: Array  # r and z side by side, (..., 2 · size): one call of the sigmoid costs half of two
    within: Array  # U h + b of the candidate, inside the reset gate
    candidate: Array


def _gru(before: Array, projected: Array, recalled: Array, bias: Array) -> tuple[Array, GRUStep]:
    """r, z = σ(…); n = tanh(W x + r (U h + b)); h' = (1 − z) n + z h."""
    size = before.shape[-1]
    gates = jax.nn.sigmoid(projected[..., : 2 * size] + recalled[..., : 2 * size])
    within = recalled[..., 2 * size :]
    within = within + jnp.broadcast_to(bias, within.shape)
    candidate = jnp.tanh(projected[..., 2 * size :] + gates[..., :size] * within)
    after = candidate + gates[..., size:] * (before - candidate)
    return after, GRUStep(gates, within, candidate)


@jax.custom_vjp
def _gru_unrolled(
    recurrent: Array, bias: Array, memory: Array, projected: Array, ended: Array
) -> Array:
    """The outputs along sequences. Their gradient is the usual one, what can be outside of the loop.

    A unit depends on its own gates alone: how, is known of all steps before going back through them, and
    the loop is left with two products, by these slopes and by the weights (docs/performance.md).
    """
    return _gru_forward(recurrent, bias, memory, projected, ended)[0]


def _gru_forward(
    recurrent: Array, bias: Array, memory: Array, projected: Array, ended: Array
) -> tuple[Array, tuple[Any, ...]]:
    def step(before: Array, row: tuple[Array, Array]) -> tuple[Array, Any]:
        projected, ended = row
        after, made = _gru(before, projected, before @ recurrent, bias)
        return jnp.where(ended[..., None], 0.0, after), (after, before, made)

    _, (outputs, before, made) = jax.lax.scan(step, memory, (projected, ended))
    return outputs, (recurrent, before, made, ended)


def _gru_backward(residuals: tuple[Any, ...], slopes: Array) -> tuple[Any, ...]:
    recurrent, before, made, ended = residuals
    reset, update = jnp.split(made.gates, 2, axis=-1)
    candidate = (1.0 - update) * (1.0 - made.candidate**2)  # ∂h' by the candidate's argument
    by_recalled = jnp.concatenate(
        [
            candidate * made.within * reset * (1.0 - reset),
            (before - made.candidate) * update * (1.0 - update),
            candidate * reset,
        ],
        axis=-1,
    )
    goes_on = (~ended)[..., None].astype(slopes.dtype)

    def step(later: Array, row: tuple[Array, ...]) -> tuple[Array, Array]:
        by_recalled, update, goes_on, slope = row
        slope = later * goes_on + slope
        recalled = jnp.tile(slope, 3) * by_recalled
        return slope * update + recalled @ recurrent.T, slope

    rows = by_recalled, update, goes_on, slopes
    first, totals = jax.lax.scan(step, jnp.zeros_like(before[0]), rows, reverse=True)
    recalled = jnp.tile(totals, 3) * by_recalled
    size = before.shape[-1]
    projected = jnp.concatenate([recalled[..., : 2 * size], totals * candidate], axis=-1)
    _, of_weights = jax.vjp(lambda weights: affine(before, weights, None), recurrent)
    bias = jnp.sum(recalled[..., 2 * size :].reshape(-1, size), axis=0)
    return *of_weights(recalled), bias, first, projected, None


_gru_unrolled.defvjp(_gru_forward, _gru_backward)


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
    # So that a gate varies as much as what it sees: three numbers to 192 gates would else arrive at a tenth.
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

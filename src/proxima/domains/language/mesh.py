"""A model and its batches over several devices: batches along `data`, matrices along `tensor`.

Each matrix is divided so that a layer needs two sums over devices (Shoeybi et al. 2019, arXiv 1909.08053):
q, k, v, gate and up by their outputs (whole heads), o and down by their inputs, the embedding by tokens.
Arrays are only laid out here; the compiler adds the communication, and programs stay as they are.
"""

from functools import cache

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from proxima.core.errors import ProximaError
from proxima.core.types import PyTree
from proxima.domains.language.config import MeshConfig
from proxima.nets.transformer import Decoder, DecoderConfig

DATA, TENSOR = "data", "tensor"
BY_OUTPUTS = {"q", "k", "v", "gate", "up"}
BY_INPUTS = {"o", "down"}


def lay_out(tree: PyTree, config: MeshConfig) -> PyTree:
    """A decoder, adapters or a part over the mesh; optimizer states made of it lie like it."""
    if config.data * config.tensor == 1:
        return tree
    mesh = device_mesh(config)
    for decoder in _decoders(tree):
        _check(decoder.config, config.tensor)

    def place(path: tuple, leaf: jax.Array) -> jax.Array:
        names = [name for key in path if (name := getattr(key, "name", None)) is not None]
        return jax.device_put(leaf, NamedSharding(mesh, _spec(names, leaf, config.tensor)))

    return jax.tree_util.tree_map_with_path(place, tree)


def lay_out_rows(rows: PyTree, config: MeshConfig) -> PyTree:
    """Rows, samples or experience with their first axis, the batch, along `data`."""
    if config.data * config.tensor == 1:
        return rows
    mesh = device_mesh(config)

    def place(leaf: jax.Array) -> jax.Array:
        if leaf.shape[0] % config.data:
            raise ProximaError(
                f"model.mesh.data: a batch of {leaf.shape[0]} cannot be divided into {config.data} equal "
                "parts; make the batch a multiple"
            )
        return jax.device_put(leaf, NamedSharding(mesh, PartitionSpec(DATA)))

    return jax.tree.map(place, rows)


@cache
def device_mesh(config: MeshConfig) -> Mesh:
    """The first data × tensor devices; too few are an error."""
    wanted, devices = config.data * config.tensor, jax.devices()
    if wanted > len(devices):
        raise ProximaError(
            f"model.mesh: {config.data} × {config.tensor} devices are asked for, {len(devices)} are here; "
            "make data or tensor smaller"
        )
    grid = np.array(devices[:wanted]).reshape(config.data, config.tensor)
    return Mesh(grid, (DATA, TENSOR))


def _spec(names: list[str], leaf: jax.Array, tensor: int) -> PartitionSpec:
    """Which axis of a leaf is divided, by the names on the way to it."""
    nothing = PartitionSpec()
    if names[-1] == "embedding":
        # a vocabulary that cannot be divided is kept whole by every device
        return PartitionSpec(TENSOR) if leaf.shape[0] % tensor == 0 else nothing
    if names[-1] == "head":
        return PartitionSpec(None, TENSOR) if leaf.shape[1] % tensor == 0 else nothing
    if len(names) < 2:
        return nothing
    owner, name = names[-2:]
    if owner in BY_OUTPUTS and name in ("weight", "b"):
        return PartitionSpec(None, None, TENSOR)
    if owner in BY_OUTPUTS and name == "bias":
        return PartitionSpec(None, TENSOR)
    if owner in BY_INPUTS and name in ("weight", "a"):
        return PartitionSpec(None, TENSOR)
    return nothing


def _decoders(tree: PyTree) -> list[Decoder]:
    def is_decoder(node: object) -> bool:
        return isinstance(node, Decoder)

    return [node for node in jax.tree.leaves(tree, is_leaf=is_decoder) if is_decoder(node)]


def _check(config: DecoderConfig, tensor: int) -> None:
    sizes = {"heads": config.heads, "key-value heads": config.kv_heads, "inner width": config.inner}
    for what, size in sizes.items():
        if size % tensor:
            raise ProximaError(
                f"model.mesh.tensor: {size} {what} cannot be divided into {tensor} equal parts; "
                "take a divisor"
            )

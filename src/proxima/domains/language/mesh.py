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
from proxima.train.devices import process_count

DATA, TENSOR = "data", "tensor"
BY_OUTPUTS = {"q", "k", "v", "gate", "up"}
BY_INPUTS = {"o", "down"}


def lay_out(tree: PyTree, config: MeshConfig) -> PyTree:
    """A decoder, adapters or a part over the mesh; optimizer states made of it lie like it."""
    if config.data * config.tensor == 1:
        return tree
    mesh = device_mesh(config)
    for node in jax.tree.leaves(tree, is_leaf=lambda node: isinstance(node, Decoder)):
        if isinstance(node, Decoder):
            _check(node.config, config.tensor)

    def put(path: tuple, leaf: jax.Array) -> jax.Array:
        names = [key.name for key in path if isinstance(key, jax.tree_util.GetAttrKey)]
        return jax.device_put(leaf, NamedSharding(mesh, _spec(names, leaf, config.tensor)))

    return jax.tree_util.tree_map_with_path(put, tree)


def lay_out_rows(rows: PyTree, config: MeshConfig) -> PyTree:
    """Rows, samples or experience with their first axis, the batch, along `data`."""
    if config.data * config.tensor == 1:
        return rows
    for leaf in jax.tree.leaves(rows):
        if leaf.shape[0] % config.data:
            raise ProximaError(
                f"model.mesh.data: a batch of {leaf.shape[0]} cannot be divided into {config.data} equal "
                "parts; make the batch a multiple"
            )
    sharding = NamedSharding(device_mesh(config), PartitionSpec(DATA))
    if process_count() == 1:
        return jax.device_put(rows, sharding)
    # every process has all rows: device_put would ask the others whether theirs are the same
    return jax.tree.map(
        lambda leaf: jax.make_array_from_callback(
            leaf.shape, sharding, lambda index: np.asarray(leaf)[index]
        ),
        rows,
    )


def check_gang(config: MeshConfig) -> None:
    """An error where the mesh does not give every process of the gang its part."""
    processes, devices = process_count(), config.data * config.tensor
    if devices % processes:
        raise ProximaError(
            f"model.mesh: {config.data} × {config.tensor} devices cannot be divided among {processes} "
            "processes; make data or tensor a multiple"
        )


@cache
def device_mesh(config: MeshConfig) -> Mesh:
    """The first data × tensor devices; too few are an error."""
    wanted, devices = config.data * config.tensor, jax.devices()
    if wanted > len(devices):
        raise ProximaError(
            f"model.mesh: {config.data} × {config.tensor} devices are asked for, {len(devices)} are here; "
            "make data or tensor smaller"
        )
    if process_count() > 1:
        check_gang(config)
        here = jax.local_device_count()
        per_process = wanted // process_count()
        if here < per_process:
            raise ProximaError(
                f"model.mesh: {config.data} × {config.tensor} takes {per_process} devices of each process, "
                f"and here are {here}; make it smaller, or give more devices to every process"
            )
        of_each = [[d for d in devices if d.process_index == p] for p in range(process_count())]
        devices = [device for own in of_each for device in own[:per_process]]
    grid = np.array(devices[:wanted]).reshape(config.data, config.tensor)
    return Mesh(grid, (DATA, TENSOR))


def _spec(names: list[str], leaf: jax.Array, tensor: int) -> PartitionSpec:
    """Which axis of a leaf is divided, by the names on the way to it."""
    owner, name = ["", *names][-2:]
    first, second, third = (PartitionSpec(*[None] * axis, TENSOR) for axis in range(3))
    # a vocabulary that cannot be divided is kept whole by every device
    if name == "embedding" and leaf.shape[0] % tensor == 0:
        return first
    if name == "head" and leaf.shape[1] % tensor == 0:
        return second
    if owner in BY_OUTPUTS and name in ("weight", "b"):
        return third
    if (owner in BY_OUTPUTS and name == "bias") or (owner in BY_INPUTS and name in ("weight", "a")):
        return second
    return PartitionSpec()


def _check(config: DecoderConfig, tensor: int) -> None:
    sizes = {"heads": config.heads, "key-value heads": config.kv_heads, "inner width": config.inner}
    for what, size in sizes.items():
        if size % tensor:
            raise ProximaError(
                f"model.mesh.tensor: {size} {what} cannot be divided into {tensor} equal parts; "
                "take a divisor"
            )

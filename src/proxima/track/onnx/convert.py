"""An exported policy as an ONNX model: its program read, its operations translated one by one.

    policy directory: program (StableHLO), weights, policy.json
      ─► functions called are put in place, branches by platform decided, loops of known length unrolled
      ─► ONNX graph: weights as constants by their names, inputs and outputs as in policy.json, any batch

The program is what the policy *is*, so nothing of the agent, its scenario or its environment is needed.
Inputs and outputs are called as in the program: `observation`, `action`, and of an observation with fields
`observation.NAME` each.
"""

import json
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from proxima.core.errors import ProximaError
from proxima.core.extras import needs_extra
from proxima.track.onnx.graph import Graph, Shape
from proxima.track.onnx.operations import Unsupported
from proxima.track.onnx.program import call_function, open_program
from proxima.track.registry import read_exported

PLATFORM = "cpu"  # whose branch is taken where a program has one for each


def onnx_model(directory: Path) -> bytes:
    """The exported policy in a directory as an ONNX model; what it cannot hold is an error in words."""
    with needs_extra("onnx", "proxima export --onnx"):
        import onnx  # noqa: F401  (before the work, not after it)
    policy = read_exported(directory)
    graph = Graph()
    try:
        translate_program(graph, policy.program, policy.weights)
    except Unsupported as error:
        raise ProximaError(
            f"{directory}: cannot be an ONNX model: it needs {error}, which has no translation; "
            "use it as it is (proxima.load_policy), or train with another network"
        ) from error
    text = json.dumps(policy.about, indent=2)
    return graph.model(version("proxima"), {"policy": text}, policy.about.get("policy", ""))


def translate_program(graph: Graph, program: Any, weights: Mapping[str, np.ndarray]) -> None:
    """The program's nodes, and its ends by their names."""
    import jax

    (kinds, inputs), _ = jax.tree.unflatten(program.in_tree, program.in_avals)
    given = [graph.constant(weights[name], name) for name, _ in leaves(kinds)]
    given += [graph.input(name, kind.dtype, _sizes(kind.shape)) for name, kind in leaves(inputs)]
    # A program leaves out what it does not use.
    kept = [given[k] for k in program.module_kept_var_idx]
    scope = open_program(graph, program.mlir_module_serialized)
    main = scope.functions["main"]
    if len(main.arguments) > len(kept):  # its first one says on which platform it runs
        kept.insert(0, graph.constant(np.int64(program.platforms.index(PLATFORM))))
    results = call_function(scope, main, kept)
    outputs = jax.tree.unflatten(program.out_tree, program.out_avals)
    for (name, _), tensor in zip(leaves(outputs), results, strict=True):
        graph.output(name, tensor)


def leaves(tree: Any) -> Iterable[tuple[str, Any]]:
    """Arrays by their names in the tree, `observation.mask` for one within."""
    import jax

    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        yield jax.tree_util.keystr(path, simple=True, separator="."), leaf


def _sizes(shape: Iterable[Any]) -> Shape:
    return tuple(size if isinstance(size, int) else None for size in shape)

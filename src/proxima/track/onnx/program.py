"""A StableHLO program as its reader walks it: functions, branches and loops resolved, operations translated.

Functions that are called are put in place of their calls, of branches the one that is known to be taken
stays, and loops are written out round by round. What an operation becomes is in the table below.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import chlo, stablehlo

from proxima.track.onnx import operations as simple
from proxima.track.onnx import products
from proxima.track.onnx.graph import Graph, Tensor
from proxima.track.onnx.operations import Call, Result, Unsupported

LONGEST_LOOP = 10_000  # rounds; each is written out
DTYPES = {
    **{"i1": "bool", "f16": "float16", "f32": "float32", "f64": "float64"},
    **{f"i{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"ui{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
}
ARGMAX = ["or", "and", "or", "select", "select", "return"]  # and comparisons

Values = dict[Any, Tensor]  # by the program's own values
Translation = Callable[[Call], Tensor | Sequence[Tensor]]

TRANSLATIONS: dict[str, Translation] = {
    **{name: partial(simple.binary, name) for name in simple.BINARY},
    **{name: partial(simple.logical, name) for name in simple.LOGICAL},
    **{name: partial(simple.unary, name) for name in simple.UNARY},
    "broadcast_in_dim": simple.broadcast_in_dim,
    "clamp": simple.clamp,
    "compare": simple.compare,
    "concatenate": simple.concatenate,
    "convert": simple.convert,
    "convolution": products.convolution,
    "dot_general": products.dot_general,
    "dynamic_broadcast_in_dim": simple.broadcast_in_dim,
    "dynamic_iota": simple.iota,
    "dynamic_gather": products.gather,
    "dynamic_reshape": simple.reshape,
    "dynamic_slice": simple.dynamic_slice,
    "exponential_minus_one": simple.exponential_minus_one,
    "gather": products.gather,
    "get_dimension_size": simple.get_dimension_size,
    "iota": simple.iota,
    "is_finite": simple.is_finite,
    "log_plus_one": simple.log_plus_one,
    "pad": simple.pad,
    "real_dynamic_slice": simple.real_dynamic_slice,
    "reduce": simple.reduce,
    "reduce_window": products.reduce_window,
    "reshape": simple.reshape,
    "reverse": simple.reverse,
    "rsqrt": simple.rsqrt,
    "select": simple.select,
    "slice": simple.slice_,
    "square": simple.square,
    "transpose": simple.transpose,
}


class Scope(NamedTuple):
    """Where what is read goes, and the functions that can be called."""

    graph: Graph
    functions: Mapping[str, Any]
    module: Any  # which owns the functions


def open_program(graph: Graph, serialized: bytes) -> Scope:
    """A program whose functions can be called, their operations added to the graph."""
    context = ir.Context()
    for dialect in (stablehlo, chlo):
        dialect.register_dialect(context)
    module = stablehlo.deserialize_portable_artifact(context, serialized)
    return Scope(graph, {_name(op): op for op in module.body.operations}, module)


def _name(function: Any) -> str:
    return str(function.name.value)


def call_function(scope: Scope, function: Any, tensors: Sequence[Tensor]) -> list[Tensor]:
    """What the function returns for these."""
    (block,) = function.body.blocks
    return _run(scope, block, tensors, {})


def _run(scope: Scope, block: Any, tensors: Sequence[Tensor], around: Values) -> list[Tensor]:
    """What a block returns; it sees the values around it."""
    values = around | dict(zip(block.arguments, tensors, strict=True))
    for op in block.operations:
        operation = op.operation
        given = [values[operand] for operand in operation.operands]
        if operation.name in ("func.return", "stablehlo.return"):
            return given
        made = _step(scope, operation, given, values)
        values |= dict(zip(operation.results, made, strict=True))
    raise AssertionError("a block ends by returning")


def _step(scope: Scope, op: Any, tensors: Sequence[Tensor], values: Values) -> Sequence[Tensor]:
    """What one operation of a program gives."""
    name = op.name.removeprefix("stablehlo.").removeprefix("chlo.")
    match name:
        case "func.call":
            called = scope.functions[ir.FlatSymbolRefAttr(op.attributes["callee"]).value]
            return call_function(scope, called, tensors)
        case "composite":
            return _composite(scope, op, tensors)
        case "constant":
            return [scope.graph.constant(_array(op.attributes["value"]))]
        case "custom_call":
            target = ir.StringAttr(op.attributes["call_target_name"]).value
            if target == "shape_assertion":  # runtimes check shapes themselves
                return []
            raise Unsupported(f"a call of {target}")
        case "optimization_barrier":
            return tensors
        case "case":
            return _branch(scope, op, tensors[0], values)
        case "while":
            return _loop(scope, op, tensors, values)
    return _translated(scope, name, op, tensors)


def _translated(scope: Scope, name: str, op: Any, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    if name not in TRANSLATIONS:
        raise Unsupported(f"the operation {name}")
    settings = {each: _setting(op, each) for each in op.attributes}
    results = [_result(value.type) for value in op.results]
    body = _repeated(op) if name in ("reduce", "reduce_window") else None
    made = TRANSLATIONS[name](Call(scope.graph, tensors, settings, results, body))
    return [made] if isinstance(made, Tensor) else made


def _composite(scope: Scope, op: Any, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """An operation that the program also has in simpler ones: those, unless it is known itself."""
    name = ir.StringAttr(op.attributes["name"]).value.removeprefix("chlo.")
    if name in TRANSLATIONS:
        return _translated(scope, name, op, tensors)
    called = ir.FlatSymbolRefAttr(op.attributes["decomposition"]).value
    return call_function(scope, scope.functions[called], tensors)


def _branch(scope: Scope, op: Any, index: Tensor, values: Values) -> Sequence[Tensor]:
    if index.known is None:
        raise Unsupported("a branch that depends on the observation")
    chosen = int(index.known)
    last = len(op.regions) - 1
    (block,) = op.regions[chosen if 0 <= chosen <= last else last].blocks
    return _run(scope, block, [], values)


def _loop(scope: Scope, op: Any, tensors: Sequence[Tensor], values: Values) -> Sequence[Tensor]:
    (condition,), (body,) = (region.blocks for region in op.regions)
    for _ in range(LONGEST_LOOP):
        (goes_on,) = _run(scope, condition, tensors, values)
        if goes_on.known is None:
            raise Unsupported("a loop whose length depends on the observation")
        if not goes_on.known:
            return tensors
        tensors = _run(scope, body, tensors, values)
    raise Unsupported(f"a loop of more than {LONGEST_LOOP:,} rounds")


def _repeated(op: Any) -> str:
    """What a reduction repeats: the one operation of its body, or the search for the largest."""
    (block,) = op.regions[0].blocks
    inner = [each.operation for each in block.operations]
    names = [each.name.removeprefix("stablehlo.") for each in inner]
    if len(names) == 2:
        return names[0]
    # JAX's argmax: larger, or no number; of equal ones the first. Its second part counts along the axis.
    is_search = [each for each in names if each != "compare"] in (ARGMAX, ARGMAX[1:])
    if is_search and len(block.arguments) == 4 and _counts(op):
        direction = _setting(inner[0], "comparison_direction")
        return {"GT": "argmax", "LT": "argmin"}.get(direction, direction)
    return " and ".join(names)


def _counts(op: Any) -> bool:
    """Whether the second of what is reduced is 0, 1, 2 … along the axis of the reduction."""
    maker = op.operands[1].owner
    if isinstance(maker, ir.Block):  # an argument: anything
        return False
    is_iota = maker.operation.name in ("stablehlo.iota", "stablehlo.dynamic_iota")
    return is_iota and [_setting(maker.operation, "iota_dimension")] == _setting(op, "dimensions")


def _result(kind: Any) -> Result:
    tensor = ir.RankedTensorType(kind)
    shape = (
        None if tensor.is_dynamic_dim(axis) else tensor.get_dim_size(axis)
        for axis in range(tensor.rank)
    )
    return Result(np.dtype(_dtype(tensor.element_type)), tuple(shape))


def _dtype(element: Any) -> str:
    name = str(element)
    if name not in DTYPES:
        raise Unsupported(f"numbers of the type {name}")
    return DTYPES[name]


def _array(attribute: Any) -> np.ndarray:
    """A constant's numbers."""
    dtype, shape = _result(attribute.type)
    dense = ir.DenseElementsAttr(attribute)
    if dense.is_splat:
        splat: Any = dense.get_splat_value()
        return np.full([size or 0 for size in shape], splat.value).astype(dtype)
    return np.array(dense).astype(dtype).reshape([size or 0 for size in shape])


def _whole(attribute: Any) -> int:
    return int(ir.IntegerAttr(attribute).value)


def _list(attribute: Any) -> list[int]:
    return [int(each) for each in ir.DenseI64ArrayAttr(attribute)]


def _named(kind: Any, names: Iterable[str], attribute: Any) -> dict[str, Any]:
    """The parts of a structured attribute."""
    read = kind(attribute)
    parts = {name: getattr(read, name) for name in names}
    return {name: part if isinstance(part, int) else list(part) for name, part in parts.items()}


DOT = [
    f"{side}_{kind}_dimensions" for side in ("lhs", "rhs") for kind in ("batching", "contracting")
]
GATHER = [
    *("offset_dims", "collapsed_slice_dims", "operand_batching_dims"),
    *("start_indices_batching_dims", "start_index_map", "index_vector_dim"),
]
CONVOLUTION = [
    *(f"{end}_{part}_dimension" for end in ("input", "output") for part in ("batch", "feature")),
    *(f"kernel_{part}_feature_dimension" for part in ("input", "output")),
    *(f"{part}_spatial_dimensions" for part in ("input", "kernel", "output")),
]
STRUCTURES: dict[str, Callable[[Any], Any]] = {
    "stablehlo.dot_general": partial(_named, stablehlo.DotDimensionNumbers, DOT),
    "stablehlo.gather": partial(_named, stablehlo.GatherDimensionNumbers, GATHER),
    "stablehlo.dynamic_gather": partial(_named, stablehlo.GatherDimensionNumbers, GATHER),
    "stablehlo.convolution": partial(_named, stablehlo.ConvDimensionNumbers, CONVOLUTION),
}
SETTINGS: dict[str, Callable[[Any], Any]] = {
    "comparison_direction": lambda each: stablehlo.ComparisonDirectionAttr(each).value,
    **{name: _whole for name in ("dimension", "iota_dimension")},
    **{name: _whole for name in ("batch_group_count", "feature_group_count")},
    "padding": lambda each: np.array(ir.DenseElementsAttr(each)),
    "window_reversal": lambda each: [bool(flag) for flag in ir.DenseBoolArrayAttr(each)],
    **{name: _list for name in ("broadcast_dimensions", "dimensions", "permutation")},
    **{name: _list for name in ("start_indices", "limit_indices", "strides", "slice_sizes")},
    **{f"edge_padding_{end}": _list for end in ("low", "high")},
    **{name: _list for name in ("interior_padding", "window_dimensions", "window_strides")},
    **{name: _list for name in ("base_dilations", "window_dilations")},
    **{f"{side}_dilation": _list for side in ("lhs", "rhs")},
}


def _setting(op: Any, name: str) -> Any:
    """An attribute as plain numbers and words; None for one that no translation asks for."""
    if name in ("dimension_numbers", "dot_dimension_numbers"):
        return STRUCTURES[op.name](op.attributes[name])
    return SETTINGS[name](op.attributes[name]) if name in SETTINGS else None

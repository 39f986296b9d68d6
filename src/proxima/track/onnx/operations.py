"""StableHLO's operations in ONNX, a function each: what goes in and the operation's settings, what comes out.

Left out on purpose: random numbers, sorting, scatters, complex numbers, and convolutions that go backwards;
a policy needs none of them, and whatever is left out is refused by name.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from proxima.track.onnx.graph import SMALL, Graph, Shape, Tensor


class Unsupported(Exception):
    """What has no translation, in words."""


class Result(NamedTuple):
    """The type of what an operation gives, as the program has it."""

    dtype: np.dtype[Any]
    shape: Shape


class Call(NamedTuple):
    """One operation of the program."""

    graph: Graph
    tensors: Sequence[Tensor]
    settings: Mapping[str, Any]  # its attributes as plain numbers, words and lists of them
    results: Sequence[Result]
    body: str | None = None  # of a reduction, which operation it repeats: "add", "argmax" …

    @property
    def result(self) -> Result:
        return self.results[0]


# Where all is known, NumPy computes it; the other name is ONNX's.
BINARY: dict[str, tuple[str, Callable[..., Any]]] = {
    "add": ("Add", np.add),
    "subtract": ("Sub", np.subtract),
    "multiply": ("Mul", np.multiply),
    "divide": ("Div", lambda a, b: a / b if a.dtype.kind == "f" else np.fix(a / b).astype(a.dtype)),
    "maximum": ("Max", np.maximum),
    "minimum": ("Min", np.minimum),
    "power": ("Pow", np.power),
    "remainder": ("Mod", np.fmod),
}
LOGICAL: dict[str, tuple[str, Callable[..., Any]]] = {
    "and": ("And", np.bitwise_and),
    "or": ("Or", np.bitwise_or),
    "xor": ("Xor", np.bitwise_xor),
    "not": ("Not", np.invert),
}
UNARY = {
    **{"abs": "Abs", "negate": "Neg", "sign": "Sign", "sqrt": "Sqrt", "floor": "Floor"},
    **{"exponential": "Exp", "log": "Log", "sine": "Sin", "cosine": "Cos", "tan": "Tan"},
    **{"tanh": "Tanh", "logistic": "Sigmoid", "erf": "Erf", "ceil": "Ceil"},
    "round_nearest_even": "Round",
}
COMPARED: dict[str, tuple[str, Callable[..., Any]]] = {
    "EQ": ("Equal", np.equal),
    "NE": ("Equal", np.not_equal),
    "LT": ("Less", np.less),
    "LE": ("LessOrEqual", np.less_equal),
    "GT": ("Greater", np.greater),
    "GE": ("GreaterOrEqual", np.greater_equal),
}
# What a reduction repeats: ONNX's operation, and what it begins with.
REDUCTIONS: dict[str, tuple[str, Callable[[np.dtype[Any]], Any]]] = {
    "add": ("ReduceSum", lambda dtype: 0),
    "multiply": ("ReduceProd", lambda dtype: 1),
    "maximum": ("ReduceMax", lambda dtype: -math.inf if dtype.kind == "f" else np.iinfo(dtype).min),
    "minimum": ("ReduceMin", lambda dtype: math.inf if dtype.kind == "f" else np.iinfo(dtype).max),
    "and": ("ReduceMin", lambda dtype: True),
    "or": ("ReduceMax", lambda dtype: False),
}


def _folded(call: Call, compute: Callable[..., Any]) -> Tensor | None:
    """The result, if all that it is made of is known; None otherwise."""
    values = [each.known for each in call.tensors if each.known is not None]
    if len(values) < len(call.tensors) or any(value.size > SMALL for value in values):
        return None
    return call.graph.constant(np.asarray(compute(*values)).astype(call.result.dtype))


def binary(name: str, call: Call) -> Tensor:
    """Sums, products and the like of two tensors, element by element."""
    kind, compute = BINARY[name]
    if (known := _folded(call, compute)) is not None:
        return known
    if call.result.dtype == bool:
        raise Unsupported(f"{name} of truth values")
    fmod = {"fmod": 1} if name == "remainder" else {}
    return call.graph.elementwise(kind, call.tensors, **fmod)


def logical(name: str, call: Call) -> Tensor:
    """And, or, not: of truth values, or bit by bit."""
    kind, compute = LOGICAL[name]
    if (known := _folded(call, compute)) is not None:
        return known
    prefix = "" if call.result.dtype == bool else "Bitwise"
    return call.graph.elementwise(f"{prefix}{kind}", call.tensors)


def unary(name: str, call: Call) -> Tensor:
    """A function of every element."""
    return call.graph.elementwise(UNARY[name], call.tensors)


def number_like(graph: Graph, tensor: Tensor, value: float) -> Tensor:
    """A number of the type that a tensor has."""
    return graph.constant(np.asarray(value, tensor.dtype))


def exponential_minus_one(call: Call) -> Tensor:
    """exp(x) − 1; near 0 right to an absolute 1e-7, which is what a net's sums have anyway."""
    graph, (x,) = call.graph, call.tensors
    return graph.elementwise("Sub", [graph.elementwise("Exp", [x]), number_like(graph, x, 1)])


def log_plus_one(call: Call) -> Tensor:
    """log(1 + x)."""
    graph, (x,) = call.graph, call.tensors
    return graph.elementwise("Log", [graph.elementwise("Add", [x, number_like(graph, x, 1)])])


def rsqrt(call: Call) -> Tensor:
    """1 / √x."""
    return call.graph.elementwise("Reciprocal", [call.graph.elementwise("Sqrt", call.tensors)])


def square(call: Call) -> Tensor:
    """x²."""
    return call.graph.elementwise("Mul", [call.tensors[0]] * 2)


def is_finite(call: Call) -> Tensor:
    """x − x is a number, and only then equal to itself."""
    graph, (x,) = call.graph, call.tensors
    difference = graph.elementwise("Sub", [x, x])
    return graph.elementwise("Equal", [difference, difference], dtype=bool)


def compare(call: Call) -> Tensor:
    """Truth values: less, equal and so on."""
    direction = call.settings["comparison_direction"]
    kind, compute = COMPARED[direction]
    if (known := _folded(call, compute)) is not None:
        return known
    graph, tensors = call.graph, call.tensors
    if tensors[0].dtype == bool and kind != "Equal":
        tensors = [graph.cast(each, np.int32) for each in tensors]
    made = graph.elementwise(kind, tensors, dtype=bool)
    return graph.elementwise("Not", [made]) if direction == "NE" else made


def select(call: Call) -> Tensor:
    """One tensor where a condition holds, another one elsewhere."""
    known = _folded(call, lambda chosen, yes, no: np.where(chosen, yes, no))
    if known is not None:
        return known
    graph, (chosen, yes, no) = call.graph, call.tensors
    if call.result.dtype != bool:
        return graph.elementwise("Where", [chosen, yes, no])
    both = graph.elementwise("And", [chosen, yes])  # runtimes choose numbers, no truth values
    neither = graph.elementwise("And", [graph.elementwise("Not", [chosen]), no])
    return graph.elementwise("Or", [both, neither])


def clamp(call: Call) -> Tensor:
    """No less than one bound and no more than another."""
    low, x, high = call.tensors
    return call.graph.elementwise("Min", [call.graph.elementwise("Max", [x, low]), high])


def convert(call: Call) -> Tensor:
    """As another type; where the program stops at the ends of a narrow one, a runtime would go round."""
    graph, (x,), dtype = call.graph, call.tensors, call.result.dtype
    if x.dtype.kind == "f" and (dtype.kind == "u" or (dtype.kind == "i" and dtype.itemsize < 4)):
        ends = np.iinfo(dtype)
        x = graph.elementwise("Max", [x, number_like(graph, x, ends.min)])
        if dtype.itemsize < 4:
            x = graph.elementwise("Min", [x, number_like(graph, x, ends.max)])
    return graph.cast(x, dtype)


def sizes(graph: Graph, shape: Shape) -> Tensor:
    """A shape as numbers, none of it unknown."""
    return graph.constant(np.array(shape, np.int64))


def broadcast_in_dim(call: Call) -> Tensor:
    """Axes put where they belong among new ones of size 1, then copied; the second tensor is the shape."""
    graph, (x, *target) = call.graph, call.tensors
    axes, shape = call.settings["broadcast_dimensions"], call.result.shape
    if list(axes) != sorted(axes):
        raise Unsupported("a broadcast that changes the order of axes")
    new = [axis for axis in range(len(shape)) if axis not in axes]
    wanted = target[0] if target else sizes(graph, shape)
    return graph.expanded(graph.unsqueezed(x, new), wanted, shape)


def reshape(call: Call) -> Tensor:
    """The same numbers in another shape; the second tensor, if any, is the shape."""
    graph, (x, *target) = call.graph, call.tensors
    shape = call.result.shape
    if shape.count(None) > 1:  # then only the program knows
        return graph.add("Reshape", [x, graph.cast(target[0], np.int64)], x.dtype, shape)
    return graph.shaped(x, shape)


def transpose(call: Call) -> Tensor:
    """Axes in another order."""
    return call.graph.transposed(call.tensors[0], call.settings["permutation"])


def concatenate(call: Call) -> Tensor:
    """Tensors one after the other along an axis."""
    axis = call.settings["dimension"]
    known = _folded(call, lambda *values: np.concatenate(values, axis))
    if known is not None:
        return known
    return call.graph.add("Concat", call.tensors, call.result.dtype, call.result.shape, axis=axis)


def iota(call: Call) -> Tensor:
    """0, 1, 2, … along an axis; the first tensor, if any, is the shape."""
    graph, (dtype, shape) = call.graph, call.result
    axis = call.settings["iota_dimension"]
    count = shape[axis]
    if count is None:
        (target,) = call.tensors
        size = graph.add("Gather", [target, graph.constant(np.int64(axis))], target.dtype, ())
        one, zero = graph.constant(np.int64(1)), graph.constant(np.int64(0))
        numbers = graph.add("Range", [zero, graph.cast(size, np.int64), one], np.int64, (None,))
    else:
        numbers = graph.constant(np.arange(count))
    others = [k for k in range(len(shape)) if k != axis]
    along = graph.unsqueezed(graph.cast(numbers, dtype), others)
    wanted = call.tensors[0] if call.tensors else sizes(graph, shape)
    return graph.expanded(along, wanted, shape)


def get_dimension_size(call: Call) -> Tensor:
    """How long an axis is, when the model runs if it is not known before."""
    graph, (x,) = call.graph, call.tensors
    axis = call.settings["dimension"]
    if (size := x.shape[axis]) is not None:
        return graph.constant(np.asarray(size, call.result.dtype))
    shape = graph.add("Shape", [x], np.int64, (1,), start=axis, end=axis + 1)
    return graph.cast(graph.shaped(shape, ()), call.result.dtype)


def _sliced(call: Call, starts: Any, ends: Any, steps: Any) -> Tensor:
    graph, x = call.graph, call.tensors[0]
    vectors = [
        graph.cast(each, np.int64)
        if isinstance(each, Tensor)
        else graph.constant(np.asarray(each, np.int64))
        for each in (starts, ends, range(len(x.shape)), steps)
    ]
    return graph.add("Slice", [x, *vectors], x.dtype, call.result.shape)


def slice_(call: Call) -> Tensor:
    """What lies between fixed bounds."""
    settings = call.settings
    return _sliced(call, settings["start_indices"], settings["limit_indices"], settings["strides"])


def real_dynamic_slice(call: Call) -> Tensor:
    """What lies between bounds that are tensors."""
    return _sliced(call, *call.tensors[1:])


def dynamic_slice(call: Call) -> Tensor:
    """A window of fixed size whose start is moved so far that it fits, as the program would."""
    graph, (x, *starts) = call.graph, call.tensors
    lengths = call.settings["slice_sizes"]
    if None in x.shape:
        raise Unsupported("a slice of the batch at a place that is computed")
    room = graph.constant(np.array(x.shape, np.int64) - np.array(lengths))
    wide = [graph.shaped(graph.cast(each, np.int64), (1,)) for each in starts]
    first = graph.add("Concat", wide, np.int64, (len(wide),), axis=0)
    first = graph.elementwise("Max", [first, graph.constant(np.zeros(len(wide), np.int64))])
    first = graph.elementwise("Min", [first, room])
    last = graph.elementwise("Add", [first, graph.constant(np.array(lengths, np.int64))])
    return _sliced(call, first, last, np.ones(len(wide)))


def reverse(call: Call) -> Tensor:
    """Some axes backwards."""
    graph, (x,) = call.graph, call.tensors
    axes = call.settings["dimensions"]
    ends = np.full(len(axes), np.iinfo(np.int64).min)
    vectors = [np.full(len(axes), -1), ends, np.array(axes), np.full(len(axes), -1)]
    constants = [graph.constant(each.astype(np.int64)) for each in vectors]
    return graph.add("Slice", [x, *constants], x.dtype, x.shape)


def pad(call: Call) -> Tensor:
    """A value put before and after, along every axis."""
    x, value = call.tensors[:2]
    settings = call.settings
    low, high = settings["edge_padding_low"], settings["edge_padding_high"]
    if any(settings["interior_padding"]):
        raise Unsupported("padding between elements")
    pads = call.graph.constant(np.array([*low, *high], np.int64))
    return call.graph.add("Pad", [x, pads, value], x.dtype, call.result.shape)


def _reduced(call: Call, kind: str, x: Tensor, dtype: Any) -> Tensor:
    graph = call.graph
    axes = graph.constant(np.array(call.settings["dimensions"], np.int64))
    return graph.add(kind, [x, axes], dtype, call.result.shape, keepdims=0)


def reduce(call: Call) -> Sequence[Tensor]:
    """Sums, products, largest and smallest, all and any; or the largest and where it is."""
    graph, x, body = call.graph, call.tensors[0], call.body
    if body in ("argmax", "argmin"):
        return _where_largest(call, body)
    if body not in REDUCTIONS or len(call.results) > 1:
        raise Unsupported(f"a reduction by {body}")
    kind, neutral = REDUCTIONS[body]
    if body in ("and", "or") and x.dtype != bool:
        raise Unsupported(f"a reduction by {body} of numbers")
    first = call.tensors[1].known
    if first is None or first != np.asarray(neutral(x.dtype), x.dtype):
        raise Unsupported(f"a reduction by {body} that begins with another number")
    wide = graph.cast(x, np.float32 if x.dtype == np.float16 else np.int32) if narrow(x) else x
    return [graph.cast(_reduced(call, kind, wide, wide.dtype), call.result.dtype)]


def narrow(x: Tensor) -> bool:
    """Whether runtimes do not compute with this type."""
    return x.dtype == bool or x.dtype.itemsize < 4


def _where_largest(call: Call, body: str) -> Sequence[Tensor]:
    """The first of equal ones, as the program has it."""
    graph, x = call.graph, call.tensors[0]
    (axis,) = call.settings["dimensions"]
    if narrow(x):
        x = graph.cast(x, np.float32 if x.dtype.kind == "f" else np.int32)
    kind, value = ("ArgMax", "ReduceMax") if body == "argmax" else ("ArgMin", "ReduceMin")
    shape = call.result.shape
    at = graph.add(kind, [x], np.int64, shape, axis=axis, keepdims=0, select_last_index=0)
    best = _reduced(call, value, x, x.dtype)
    return [graph.cast(best, call.results[0].dtype), graph.cast(at, call.results[1].dtype)]

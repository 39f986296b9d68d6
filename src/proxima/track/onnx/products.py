"""StableHLO's products, convolutions, windows and look-ups in ONNX."""

import string
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from proxima.track.onnx.graph import Graph, Tensor
from proxima.track.onnx.operations import Call, Unsupported, narrow


def dot_general(call: Call) -> Tensor:
    """A matrix product where it is one, else Einstein's sum."""
    graph, (left, right) = call.graph, call.tensors
    settings, (dtype, shape) = call.settings["dot_dimension_numbers"], call.result
    batch = settings["lhs_batching_dimensions"], settings["rhs_batching_dimensions"]
    summed = settings["lhs_contracting_dimensions"], settings["rhs_contracting_dimensions"]
    left, right = graph.cast(left, dtype), graph.cast(right, dtype)
    if len(right.shape) == 2 and not batch[0]:
        if summed == ([len(left.shape) - 1], [0]):
            return graph.add("MatMul", [left, right], dtype, shape)
        if summed == ([len(left.shape) - 1], [1]):
            return graph.add("MatMul", [left, graph.transposed(right, (1, 0))], dtype, shape)
    letters = iter(string.ascii_letters)
    of_left = [next(letters) for _ in left.shape]
    of_right = [next(letters) for _ in right.shape]
    for ours, theirs in zip((*batch[0], *summed[0]), (*batch[1], *summed[1]), strict=True):
        of_right[theirs] = of_left[ours]
    shared = [of_left[axis] for axis in batch[0]]
    gone = {of_left[axis] for axis in summed[0]}
    free = [each for each in (*of_left, *of_right) if each not in gone and each not in shared]
    equation = f"{''.join(of_left)},{''.join(of_right)}->{''.join([*shared, *free])}"
    return graph.add("Einsum", [left, right], dtype, shape, equation=equation)


def _complete(call: Call, axes: int) -> dict[str, Any]:
    """The settings of something with windows, those that the program leaves out included."""
    ones = ("window_strides", "base_dilations", "window_dilations", "lhs_dilation", "rhs_dilation")
    defaults = {name: [1] * axes for name in ones}
    others = {"padding": np.zeros((axes, 2), int), "window_reversal": [False] * axes}
    counts = {"batch_group_count": 1, "feature_group_count": 1}
    return {**defaults, **others, **counts, **call.settings}


def convolution(call: Call) -> Tensor:
    """Axes in ONNX's order, batch and features first, and back."""
    graph, (pictures, kernel) = call.graph, call.tensors
    places = call.settings["dimension_numbers"]
    count = len(places["input_spatial_dimensions"])
    settings = _complete(call, count)
    if settings["batch_group_count"] != 1 or any(settings["window_reversal"]):
        raise Unsupported("a convolution that goes backwards, or groups its batch")
    if any(each != 1 for each in settings["lhs_dilation"]):
        raise Unsupported("a convolution of dilated pictures (a transposed one)")
    pads = np.array(settings["padding"]).reshape(count, 2)
    if pads.min(initial=0) < 0:
        raise Unsupported("a convolution with negative padding")
    order = [
        *(places[f"input_{name}_dimension"] for name in ("batch", "feature")),
        *places["input_spatial_dimensions"],
    ]
    kernel_order = [
        *(places[f"kernel_{name}_feature_dimension"] for name in ("output", "input")),
        *places["kernel_spatial_dimensions"],
    ]
    result_order = [
        *(places[f"output_{name}_dimension"] for name in ("batch", "feature")),
        *places["output_spatial_dimensions"],
    ]
    dtype, shape = call.result
    made = graph.add(
        "Conv",
        [graph.transposed(pictures, order), graph.transposed(kernel, kernel_order)],
        dtype,
        tuple(shape[axis] for axis in result_order),
        strides=settings["window_strides"],
        dilations=settings["rhs_dilation"],
        pads=[int(each) for each in pads.T.ravel()],
        group=settings["feature_group_count"],
    )
    return graph.transposed(made, np.argsort(result_order).tolist())


def reduce_window(call: Call) -> Sequence[Tensor]:
    """Pooling over two axes by the largest or the sum; a sum of all that came before is CumSum."""
    graph, (x, first) = call.graph, call.tensors
    settings, (dtype, shape) = _complete(call, len(x.shape)), call.result
    window, pads = settings["window_dimensions"], np.array(settings["padding"]).reshape(-1, 2)
    if any(each != 1 for each in (*settings["base_dilations"], *settings["window_dilations"])):
        raise Unsupported("pooling with dilations")
    wide = [axis for axis, size in enumerate(window) if size > 1]
    start = -np.inf if call.body == "maximum" else 0
    if call.body not in ("maximum", "add") or first.known is None or first.known != start:
        raise Unsupported(f"pooling by {call.body}")
    if len(wide) == 1 and call.body == "add" and shape == x.shape:
        (axis,) = wide
        if window[axis] == shape[axis] and tuple(pads[axis]) == (window[axis] - 1, 0):
            return [graph.add("CumSum", [x, graph.constant(np.int64(axis))], dtype, shape)]
    if len(wide) > 2 or len(x.shape) != 4 or narrow(x):
        raise Unsupported("pooling over more than two axes of pictures")
    inner = [*wide, *(axis for axis in (2, 1, 3) if axis not in wide)][:2]
    order = [*(axis for axis in range(4) if axis not in inner), *sorted(inner)]
    attributes = {
        "kernel_shape": [window[axis] for axis in order[2:]],
        "strides": [settings["window_strides"][axis] for axis in order[2:]],
        "pads": [int(pads[axis][end]) for end in (0, 1) for axis in order[2:]],
    }
    outer = [settings["window_strides"][axis] for axis in order[:2]] + pads[
        order[:2]
    ].ravel().tolist()
    if outer != [1, 1, 0, 0, 0, 0]:
        raise Unsupported("pooling over more than two axes of pictures")
    across = graph.transposed(x, order)
    moved = tuple(shape[axis] for axis in order)
    if call.body == "maximum":
        made = graph.add("MaxPool", [across], dtype, moved, **attributes)
    else:
        mean = graph.add("AveragePool", [across], dtype, moved, count_include_pad=1, **attributes)
        cells = np.asarray(np.prod(attributes["kernel_shape"]), dtype)
        made = graph.elementwise("Mul", [mean, graph.constant(cells)])
    return [graph.transposed(made, np.argsort(order).tolist())]


def gather(call: Call) -> Tensor:
    """Whole slices looked up by one or several indices, which are moved into range as the program does."""
    graph, (x, indices) = call.graph, call.tensors[:2]
    places, shape = call.settings["dimension_numbers"], call.result.shape
    looked_up, batched = places["start_index_map"], places["operand_batching_dims"]
    gone = (*places["collapsed_slice_dims"], *batched)
    if not set(gone) <= {*looked_up, *batched}:
        raise Unsupported("looking up what lies along an axis of size 1")
    remaining = [axis for axis in range(len(x.shape)) if axis not in gone]
    lengths = dict(zip(remaining, (shape[axis] for axis in places["offset_dims"]), strict=True))
    if indices.shape == (len(looked_up),) and places["index_vector_dim"] == 0:
        return _window(graph, x, indices, looked_up, lengths)
    whole = [axis for axis in range(len(x.shape)) if axis not in (*looked_up, *batched)]
    singles = [axis for axis in looked_up if axis in lengths]
    partial = any(lengths[axis] != x.shape[axis] for axis in whole)
    if partial or any(lengths[axis] != 1 for axis in singles):
        raise Unsupported("looking up slices that are neither single elements nor whole axes")
    indices, leading = _index_rows(call)
    room = [x.shape[axis] for axis in looked_up]
    indices = _within(graph, indices, room, [1] * len(room))
    x = graph.transposed(x, [*batched, *looked_up, *whole])
    found = graph.add(
        "GatherND",
        [x, indices],
        call.result.dtype,
        (*indices.shape[:-1], *x.shape[len(batched) + len(looked_up) :]),
        batch_dims=len(batched),
    )
    found = graph.transposed(found, [*leading, *range(len(leading), len(found.shape))])
    new = [len(leading) + sorted([*whole, *singles]).index(axis) for axis in singles]
    offsets = places["offset_dims"]
    placed = [axis for axis in range(len(shape)) if axis not in offsets]
    return graph.transposed(graph.unsqueezed(found, new), np.argsort([*placed, *offsets]).tolist())


def _index_rows(call: Call) -> tuple[Tensor, list[int]]:
    """Indices with shared axes first and each index last; and the order that undoes it afterwards."""
    graph, indices = call.graph, call.tensors[1]
    places = call.settings["dimension_numbers"]
    vector, shared = places["index_vector_dim"], places["start_indices_batching_dims"]
    if vector == len(indices.shape):
        indices = graph.unsqueezed(indices, [vector])
    others = [axis for axis in range(len(indices.shape)) if axis not in (*shared, vector)]
    rows = graph.transposed(indices, [*shared, *others, vector])
    return graph.cast(rows, np.int64), np.argsort([*shared, *others]).tolist()


def _window(
    graph: Graph, x: Tensor, first: Tensor, axes: Sequence[int], lengths: Mapping[int, int | None]
) -> Tensor:
    """One slice, from these indices on along these axes; those that the result has not are taken away."""
    steps = np.array([lengths.get(axis, 1) for axis in axes], np.int64)
    room = [x.shape[axis] for axis in axes]
    starts = _within(graph, graph.cast(first, np.int64), room, steps.tolist())
    ends = graph.elementwise("Add", [starts, graph.constant(steps)])
    shape = tuple(
        int(steps[axes.index(axis)]) if axis in axes else size for axis, size in enumerate(x.shape)
    )
    along = graph.constant(np.array(axes, np.int64))
    cut = graph.add("Slice", [x, starts, ends, along], x.dtype, shape)
    left = tuple(size for axis, size in enumerate(shape) if axis in lengths)
    if len(left) == len(shape):
        return cut
    single = graph.constant(np.array([axis for axis in axes if axis not in lengths], np.int64))
    return graph.add("Squeeze", [cut, single], x.dtype, left)


def _within(
    graph: Graph, indices: Tensor, room: Sequence[int | None], lengths: Sequence[int]
) -> Tensor:
    """Indices moved so far that what begins there has its length within the room."""
    last = [size - n for size, n in zip(room, lengths, strict=True) if size is not None]
    if len(last) < len(room):
        raise Unsupported("looking up rows of the batch")
    bound = np.array(last, np.int64).reshape((1,) * (len(indices.shape) - 1) + (len(last),))
    highest, lowest = graph.constant(bound), graph.constant(np.zeros_like(bound))
    return graph.elementwise("Min", [graph.elementwise("Max", [indices, lowest]), highest])

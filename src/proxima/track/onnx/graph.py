"""An ONNX graph under construction: tensors, the operations between them, and the model they become.

Three habits keep the model as small as the net that it came from: what is known is computed here and now,
an operation that was already asked for is not added again, and what leads to no output is left out.
"""

import math
from collections.abc import Container, Mapping, Sequence
from typing import Any, NamedTuple, final

import numpy as np

from proxima.core.errors import ProximaError
from proxima.core.extras import needs_extra

# Of early 2023, so that runtimes of several years can read it; both are fixed, for the same bytes.
OPSET, IR_VERSION = 18, 8
BATCH = "batch"  # the dimension of any size
SMALL = 1024  # numbers up to which what is known is computed here
# Runtimes compute with few types; the others go through a wider one, in which nothing is lost.
WIDER = {
    **{"float16": "float32", "uint32": "int64"},
    **{name: "int32" for name in ("int8", "int16", "uint8", "uint16")},
}

Shape = tuple[int | None, ...]  # None: not known before the model runs


class Tensor(NamedTuple):
    """A tensor of the graph."""

    name: str
    dtype: np.dtype[Any]
    shape: Shape
    # Its value, where that is small and does not depend on the inputs.
    known: np.ndarray | None = None
    # The same before it was broadcast: as ONNX broadcasts by itself, most copies are never made.
    narrow: "Tensor | None" = None


class Node(NamedTuple):
    """An operation: its inputs, outputs and attributes."""

    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]


@final
class Graph:
    """Collects nodes and constants; `model` gives those that an output needs."""

    def __init__(self) -> None:
        self._nodes: list[Node] = []
        self._made: dict[Any, tuple[str, ...]] = {}
        self._constants: dict[str, np.ndarray] = {}
        self._inputs: dict[str, Tensor] = {}
        self._outputs: dict[str, Tensor] = {}

    def input(self, name: str, dtype: Any, shape: Shape) -> Tensor:
        """What the model is given."""
        self._inputs[name] = Tensor(name, np.dtype(dtype), shape)
        return self._inputs[name]

    def output(self, name: str, tensor: Tensor) -> None:
        """What the model gives back."""
        name = output_name(name, self._inputs)
        self._nodes.append(Node("Identity", (tensor.name,), (name,), {}))
        self._outputs[name] = tensor._replace(name=name)

    def constant(self, value: Any, name: str | None = None) -> Tensor:
        """A value that does not depend on the inputs: a weight by its name, or a number of the program."""
        value = np.asarray(value)
        if (
            name is not None
        ):  # a weight stays one, also where what is made of it could be computed here
            self._constants[name] = value
            return Tensor(name, value.dtype, value.shape)
        key = (value.dtype.str, value.shape, value.tobytes())
        if key not in self._made:
            self._made[key] = (f"constant_{len(self._made)}",)
        (name,) = self._made[key]
        self._constants[name] = value
        return Tensor(name, value.dtype, value.shape, value if value.size <= SMALL else None)

    def add(
        self, kind: str, inputs: Sequence[Tensor], dtype: Any, shape: Shape, **attributes: Any
    ) -> Tensor:
        """The result of an operation of ONNX."""
        names = tuple(each.name for each in inputs)
        key = (
            kind,
            names,
            tuple(sorted((name, repr(value)) for name, value in attributes.items())),
        )
        if key not in self._made:
            self._made[key] = (f"{kind.lower()}_{len(self._made)}",)
            self._nodes.append(Node(kind, names, self._made[key], attributes))
        return Tensor(self._made[key][0], np.dtype(dtype), shape)

    def cast(self, tensor: Tensor, dtype: Any) -> Tensor:
        """The tensor as another type."""
        dtype = np.dtype(dtype)
        if tensor.dtype == dtype:
            return tensor
        if tensor.known is not None:
            return self.constant(tensor.known.astype(dtype))
        made = self.add("Cast", [tensor], dtype, tensor.shape, to=onnx_type(dtype))
        narrow = tensor.narrow
        return made._replace(narrow=None if narrow is None else self.cast(narrow, dtype))

    def elementwise(
        self, kind: str, tensors: Sequence[Tensor], dtype: Any = None, **attributes: Any
    ) -> Tensor:
        """An operation on tensors of one shape; those that were broadcast go in as they were before.

        `dtype` is the result's, where it is not the tensors' own.
        """
        own = tensors[-1].dtype
        wide = [self.cast(each, WIDER.get(each.dtype.name, each.dtype)) for each in tensors]
        shape = max((each.shape for each in tensors), key=len)  # a scalar may stand among them
        narrow = [each.narrow or each for each in wide]
        if not _covers([each.shape for each in narrow], shape):
            whole = next(k for k, each in enumerate(wide) if len(each.shape) == len(shape))
            narrow[whole] = wide[whole]
        made = self.add(kind, narrow, dtype or wide[-1].dtype, shape, **attributes)
        return made if dtype is not None else self.cast(made, own)

    def shaped(self, tensor: Tensor, shape: Shape) -> Tensor:
        """The same numbers in another shape, of which one size at most may be unknown."""
        if tensor.known is not None:
            return self.constant(tensor.known.reshape([-1 if n is None else n for n in shape]))
        if tensor.shape == shape and shape.count(None) < 2:
            return tensor
        target = self.constant(np.array([-1 if n is None else n for n in shape], np.int64))
        return self.add("Reshape", [tensor, target], tensor.dtype, shape)

    def unsqueezed(self, tensor: Tensor, axes: Sequence[int]) -> Tensor:
        """With axes of size 1 at these places of the result."""
        if not axes:
            return tensor
        shape = list(tensor.shape)
        for axis in sorted(axes):
            shape.insert(axis, 1)
        if tensor.known is not None:
            return self.constant(tensor.known.reshape([n or 0 for n in shape]))
        at = self.constant(np.array(sorted(axes), np.int64))
        return self.add("Unsqueeze", [tensor, at], tensor.dtype, tuple(shape))

    def expanded(self, tensor: Tensor, target: Tensor, shape: Shape) -> Tensor:
        """Copied along its axes of size 1 to the shape that `target` has as numbers."""
        if tensor.shape == shape:  # programs broadcast no axis whose size they do not know
            return tensor
        if tensor.known is not None and None not in shape:
            sizes = [n or 0 for n in shape]
            if math.prod(sizes) <= SMALL:
                return self.constant(np.broadcast_to(tensor.known, sizes))
        made = self.add("Expand", [tensor, self.cast(target, np.int64)], tensor.dtype, shape)
        return made._replace(narrow=tensor.narrow or tensor)

    def transposed(self, tensor: Tensor, order: Sequence[int]) -> Tensor:
        """With its axes in this order."""
        if list(order) == list(range(len(order))):
            return tensor
        if tensor.known is not None:
            return self.constant(tensor.known.transpose(order))
        shape = tuple(tensor.shape[axis] for axis in order)
        return self.add("Transpose", [tensor], tensor.dtype, shape, perm=[int(n) for n in order])

    def model(self, version: str, about: Mapping[str, str], words: str) -> bytes:
        """The model's bytes, the same for the same policy; an error in words if it is not valid ONNX."""
        with needs_extra("onnx", "ONNX"):
            import onnx
            from onnx import helper, numpy_helper
        nodes = self._needed()
        used = {name for node in nodes for name in node.inputs}
        graph = helper.make_graph(
            [
                helper.make_node(node.kind, node.inputs, node.outputs, **node.attributes)
                for node in nodes
            ],
            "policy",
            [_described(tensor) for tensor in self._inputs.values()],
            [_described(tensor) for tensor in self._outputs.values()],
            [
                numpy_helper.from_array(np.array(value, order="C"), name)
                for name, value in self._constants.items()
                if name in used
            ],
        )
        model = helper.make_model(
            graph,
            producer_name="proxima",
            producer_version=version,
            doc_string=words,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
        )
        helper.set_model_props(model, dict(about))
        try:
            onnx.checker.check_model(model, full_check=True)
        except Exception as error:  # of several kinds, all of which mean the same here
            raise ProximaError(f"the policy became no valid ONNX model: {error}") from error
        return bytes(model.SerializeToString(deterministic=True))

    def _needed(self) -> list[Node]:
        """The nodes that some output depends on, in order."""
        wanted, kept = set(self._outputs), list[Node]()
        for node in reversed(self._nodes):
            if wanted & set(node.outputs):
                wanted |= set(node.inputs)
                kept.append(node)
        return kept[::-1]


def output_name(name: str, inputs: Container[str]) -> str:
    """What an output is called: what a model also takes, a memory say, has another name afterwards."""
    return f"next_{name}" if name in inputs else name


def _covers(shapes: Sequence[Shape], shape: Shape) -> bool:
    """Whether tensors of these shapes together are broadcast to the shape."""
    full = [each for each in shapes if len(each) == len(shape)]
    return all(any(each[axis] == size for each in full) for axis, size in enumerate(shape))


def onnx_type(dtype: Any) -> int:
    """ONNX's number of a type."""
    with needs_extra("onnx", "ONNX"):
        from onnx import helper
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def _described(tensor: Tensor) -> Any:
    from onnx import helper

    shape = [BATCH if size is None else size for size in tensor.shape]
    return helper.make_tensor_value_info(tensor.name, onnx_type(tensor.dtype), shape)

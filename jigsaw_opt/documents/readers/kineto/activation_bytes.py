"""Estimate the bytes that the nodes of a backward pass keep, from the shapes in a trace of the PyTorch profiler.

A trace names no tensor. It has the shapes that every operation reads, that each node is given as gradients, which are
those of the outputs of the operation that made it, and that the operations within the node read, which are gradients
and what was kept. So a tensor is taken for the latest output of its shape, and what two nodes keep counts once.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from math import prod
from typing import Any

from jigsaw_opt.documents.readers.kineto.events import OP, TraceSpan

_Shape = tuple[int, ...]
BYTES: Mapping[str, int] = {
    "float": 4,
    "double": 8,
    "c10::Half": 2,
    "c10::BFloat16": 2,
    "c10::complex<float>": 8,
    "c10::complex<double>": 16,
}
"""Of the types that gradients have."""
_OTHER_BYTES = {"long int": 8, "long": 8, "int": 4, "short": 2, "signed char": 1, "unsigned char": 1, "bool": 1}
_MOST_SIZE = 2**40
_MOST_ALIKE = 200
"""Outputs that are looked through for what is read: few are older."""
_WEIGHTS: Mapping[str, frozenset[int]] = {
    "aten::linear": frozenset({1, 2}),
    "aten::embedding": frozenset({0}),
    **dict.fromkeys((f"aten::conv{kind}d" for kind in (1, 2, 3)), frozenset({1, 2})),
    **dict.fromkeys((f"aten::conv_transpose{kind}d" for kind in (1, 2, 3)), frozenset({1, 2})),
    "aten::layer_norm": frozenset({2, 3}),
    "aten::rms_norm": frozenset({2}),
    "aten::group_norm": frozenset({2, 3}),
    "aten::batch_norm": frozenset({1, 2, 3, 4}),
}
"""Which tensors of an operation are parameters and statistics, also where they are frozen and have no gradient."""
_VIEWS = re.compile(
    "Alias|AsStrided|Detach|Diagonal|Expand|Imag|Permute|Real|Reshape|ReshapeAlias|Select|Slice|Split|SplitWithSizes"
    "|Squeeze|T|Transpose|Unbind|Unfold|UnsafeSplit|UnsafeView|Unsqueeze|View|ViewAsComplex|ViewAsReal"
)
"""Nodes of operations whose output shares the storage of what they read."""
_NOTHING = re.compile(
    "Add|Cat|Ceil|Clone|ConstantPadNd|Copy|CopyBackwards|CopySlices|Cumsum|Fill|Flip|Floor|Mean|Neg|PixelShuffle"
    "|Repeat|Roll|Round|Rsub|Sign|Stack|Sub|Sum|ToCopy|Tril|Triu|Upsample.*|Zero"
)
"""Nodes of other operations that keep neither what is read nor what is put out."""
_OUTPUT = re.compile("Elu|Exp|Expm1|LogSoftmax|Logsumexp|Reciprocal|Relu|Rsqrt|Sigmoid|Softmax|Sqrt|Tan|Tanh")
"""Nodes of operations that keep what they put out."""
_PRODUCTS = frozenset({"Mm", "Addmm", "Bmm", "Baddbmm", "Mul", "Mv", "Dot", "Addcmul", "Div"})
_MULTIPLY = frozenset({"aten::mm", "aten::bmm", "aten::mul", "aten::mv", "aten::div"})


@dataclass(frozen=True, slots=True)
class Tensor:
    """The shape and type of a tensor that an operation reads."""

    shape: _Shape
    kind: str
    position: int
    numbers: int
    """Of its storage: a dimension with stride 0 repeats them."""

    @property
    def size(self) -> int:
        """Bytes; 0 where the type is unknown, and for one number alone."""
        return self.numbers * (BYTES.get(self.kind) or _OTHER_BYTES.get(self.kind, 0)) if self.shape else 0


@dataclass(slots=True)
class MadeNode:
    """A node of the backward pass that has run.

    `name`: name of its function, as `AddmmBackward0`. `gradients`: what it is given, as large as the outputs of its
    maker.
    """

    maker: TraceSpan
    name: str
    gradients: list[Tensor] = field(default_factory=list)
    inside: list[TraceSpan] = field(default_factory=list)

    @property
    def kind(self) -> str:
        """Its name without number."""
        return self.name.rpartition("Backward")[0] or self.name


def tensors_of(span: TraceSpan) -> list[Tensor]:
    """Return the tensors that an operation reads, as far as the trace has them."""
    shapes, kinds = span.arguments.get("Input Dims"), span.arguments.get("Input type")
    if not isinstance(shapes, list) or not isinstance(kinds, list):
        return []
    strides = span.arguments.get("Input Strides")
    strides = strides if isinstance(strides, list) and len(strides) == len(shapes) else [None] * len(shapes)
    return [
        Tensor(tuple(shape), str(kind), k, _numbers(shape, stride))
        for k, (shape, kind, stride) in enumerate(zip(shapes, kinds, strides, strict=False))
        if isinstance(shape, list) and all(type(size) is int and 0 <= size <= _MOST_SIZE for size in shape)
    ]


def _numbers(shape: Sequence[int], stride: Any) -> int:
    if not isinstance(stride, list) or len(stride) != len(shape):
        return prod(shape)
    return prod(size for size, step in zip(shape, stride, strict=True) if step != 0)


def kept_bytes(nodes: Iterable[MadeNode], parameters: Iterable[_Shape]) -> int:
    """Return the bytes of the storages that some nodes keep, without weights.

    `parameters`: shapes of the parameters that the makers may read.
    """
    storages = _Storages(parameters)
    for node in nodes:
        storages.take(node)
    return sum(storages.kept.values())


_Stored = tuple[Tensor, object, int]
"""A tensor, its storage, and the bytes of this storage."""


class _Storages:
    """The storages that are known, and those of them that are kept."""

    def __init__(self, parameters: Iterable[_Shape]) -> None:
        self.kept: dict[object, int] = {}
        # A weight may be read transposed.
        self._parameters = {each for shape in parameters for each in (shape, shape[::-1])}
        self._outputs: list[_Stored] = []
        """Of all operations so far, the storage of each and its bytes."""
        self._alike: dict[tuple[str, int], list[int]] = defaultdict(list)
        self._read: set[int] = set()
        self._fresh = count()

    def take(self, node: MadeNode) -> None:
        """Take in what a node keeps, and what its maker has put out."""
        read = next((listed for one in node.maker.above() if (listed := tensors_of(one))), [])
        weights = weights_read(node.maker, read)
        found: list[_Stored] = []
        used: set[int] = set()
        for tensor in reversed([one for one in read if one.size and one.position not in weights]):
            origin = self._origin(tensor, used)
            if origin is None and tensor.shape in self._parameters:
                weights.add(tensor.position)
            elif origin is not None or tensor.kind in BYTES:
                found.append((tensor, *(origin or (("outside", tensor.numbers, tensor.kind), tensor.size))))
        found.reverse()
        # A view and an operation in place put out the storage that they read.
        shared = _VIEWS.fullmatch(node.kind) or node.maker.name.endswith("_")
        outputs = [
            (one, *(found[0][1:] if shared and found else (next(self._fresh), one.size)))
            for one in node.gradients
            if one.size
        ]
        besides = [one for one in read if one.position in weights or one.kind not in BYTES]  # as indices of classes
        self._read |= used
        self._keep(node, found, outputs, besides)
        for one in outputs:
            self._alike[one[0].kind, prod(one[0].shape)].append(len(self._outputs))
            self._outputs.append(one)

    def _origin(self, tensor: Tensor, used: set[int]) -> tuple[object, int] | None:
        """Return the latest output that can be a tensor and is none of those used.

        One of its shape is taken before one of as many numbers, and of those one that nothing has read yet.
        """
        alike = [
            (self._outputs[k][0].shape == tensor.shape, k not in self._read, k)
            for k in self._alike[tensor.kind, prod(tensor.shape)][-_MOST_ALIKE:]
            if k not in used
        ]
        if not alike:
            return None
        *_, k = max(alike)
        used.add(k)
        return self._outputs[k][1:]

    def _keep(
        self, node: MadeNode, found: Sequence[_Stored], outputs: Sequence[_Stored], besides: Sequence[Tensor]
    ) -> None:
        if _VIEWS.fullmatch(node.kind) or _NOTHING.fullmatch(node.kind):
            return
        # A node keeps its output, or what its own backward operations read, or the other factor of its product; of any
        # other node all that its maker read counts as kept.
        own = [one for one in node.inside if "_backward" in one.name]
        products = [one for one in node.inside if one.name in _MULTIPLY and tensors_of(one)]
        if _OUTPUT.fullmatch(node.kind) and outputs:
            self.kept.update((storage, size) for _, storage, size in outputs)
        elif own:
            self._keep_read(own, node.gradients, [*found, *outputs], besides)
        elif node.kind in _PRODUCTS and len(products) == 1:
            self._keep_factor(products[0], node.gradients, found, besides)
        else:
            self.kept.update((storage, size) for _, storage, size in found)

    def _keep_read(
        self,
        operations: Iterable[TraceSpan],
        gradients: Iterable[Tensor],
        known: Sequence[_Stored],
        weights: Iterable[Tensor],
    ) -> None:
        """Keep what operations of a node read beside gradients and weights."""
        besides = Counter((one.shape, one.kind) for one in (*gradients, *weights))
        left = list(known)
        for operation in operations:
            for tensor in tensors_of(operation):
                key = (tensor.shape, tensor.kind)
                if besides[key]:
                    besides[key] -= 1
                    continue
                same = next((one for one in left if (one[0].shape, one[0].kind) == key), None)
                if same is not None:
                    left.remove(same)
                    self.kept[same[1]] = same[2]
                elif tensor.shape not in self._parameters:
                    self.kept[next(self._fresh)] = tensor.size

    def _keep_factor(
        self, product: TraceSpan, gradients: Iterable[Tensor], found: Sequence[_Stored], weights: Sequence[Tensor]
    ) -> None:
        """Keep the only factor whose product with the gradient a node computes: it has no gradient itself."""
        besides = {shape for one in gradients for shape in (one.shape, one.shape[::-1])}
        others = [one for one in tensors_of(product) if one.shape not in besides] or tensors_of(product)[1:]
        for tensor in others:
            known = [one for one in found if prod(one[0].shape) == prod(tensor.shape)]
            if not known and any(sorted(one.shape) == sorted(tensor.shape) for one in weights):
                continue
            if len(known) == 1:
                self.kept[known[0][1]] = known[0][2]
            else:
                self.kept[next(self._fresh)] = tensor.size


def weights_read(maker: TraceSpan, read: Sequence[Tensor]) -> set[int]:
    """Return the positions of what an operation reads that are weights of the operation around it, or its own."""
    around = next((one for one in maker.above() if one.category == OP and one.name in _WEIGHTS), None)
    if around is None:
        return set()
    if around is maker or not tensors_of(maker):
        return set(_WEIGHTS[around.name])
    left = [one.shape for one in tensors_of(around) if one.position in _WEIGHTS[around.name]]
    found = set()
    for tensor in reversed(read):
        for shape in (tensor.shape, tensor.shape[::-1]):
            if tensor.shape and shape in left:
                left.remove(shape)
                found.add(tensor.position)
                break
    return found

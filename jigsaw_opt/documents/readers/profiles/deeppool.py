"""Layer profiles of DeepPool (``A100_vgg.prof``).

Each line has a layer, its total time in milliseconds, and its forward and backward time in microseconds. A layer is its
type, its parameters as JSON, the samples in brackets and the shape of its input:
``conv2d{"in_channels":3,...}[64][3,224,224]``. The layers of a run stand in their order; a line ``SUM``, or ``sum:``,
ends the run. Each layer reads what the one before puts out: which layers of a network with branches read what is not in
the file. Sizes are not in it either; they follow from the shapes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import chain, count
from math import prod
from typing import Any, TypeVar

from jigsaw_opt.documents.readers.lines import Lines, whole
from jigsaw_opt.documents.readers.profiles.layers import MOST_LINES, Group, model_of, one_layer
from jigsaw_opt.problem import Model
from jigsaw_opt.problem.measured.layers import MeasuredLayer

Shape = tuple[int, ...]
Sizes = tuple[int, list[Shape]]
"""Number of weights, and the shapes (without the batch) of the outputs that the backward pass needs."""
_LINE = re.compile(
    r"\s*(?P<kind>\w+)(?P<parameters>\{.*\})\[(?P<batch>[0-9]{1,9})\]"
    r"(?:\[(?P<shape>[0-9]{1,9}(?:,[0-9]{1,9}){0,7})\]|(?P<length>[0-9]{1,9}))"
    r"\s+(?P<total>[0-9]{1,12}(?:\.[0-9]{0,9})?)\s+(?P<forward>[0-9]{1,16})\s+(?P<backward>[0-9]{1,16})"
)
_FLOAT = 4
"""Bytes of a number."""
_END_OF_RUN = re.compile(r"\s*SUM\b.*", re.IGNORECASE)
Line = tuple[int, re.Match[str]]
Run = list[Line]
Layer = TypeVar("Layer")


def sizes(kind: str, parameters: Mapping[str, Any], shape: Shape) -> Sizes:
    """Return the weights and kept outputs of a layer.

    `shape`: shape of its input without the batch: ``(C, H, W)`` or ``(features,)``.
    """
    if kind not in _SIZES:
        raise ValueError(f"unknown type; known are {', '.join(_SIZES)}")
    try:
        return _SIZES[kind](parameters, shape)
    except KeyError as error:
        raise ValueError(f"parameter {error.args[0]!r} is missing") from error


def _count(parameters: Mapping[str, Any], key: str, least: int = 1) -> int:
    value = parameters[key]
    if type(value) is not int or not least <= value < 2**31:
        raise ValueError(f"parameter {key!r} must be an integer from {least} to 2^31 - 1")
    return value


def _image(shape: Shape, channels: int | None = None) -> Shape:
    if len(shape) != 3 or (channels is not None and shape[0] != channels):
        raise ValueError(f"the input must be [{'C' if channels is None else channels},H,W]; is {list(shape)}")
    return shape


def _slid(shape: Shape, channels: int, kernel: int, stride: int, padding: int) -> Shape:
    """Return the shape after a window has slid over an image (PyTorch's rule for convolutions and pools)."""
    height, width = ((length + 2 * padding - kernel) // stride + 1 for length in shape[1:])
    if height < 1 or width < 1:
        raise ValueError("the window is larger than the input")
    return channels, height, width


def _window(parameters: Mapping[str, Any]) -> tuple[int, int, int]:
    return _count(parameters, "kernel_size"), _count(parameters, "stride"), _count(parameters, "padding", 0)


def _conv2d(parameters: Mapping[str, Any], shape: Shape) -> Sizes:
    kernel, stride, padding = _window(parameters)
    inputs, outputs = _count(parameters, "in_channels"), _count(parameters, "out_channels")
    weights = inputs * outputs * kernel**2 + (outputs if parameters.get("bias") is True else 0)
    return weights, [_slid(_image(shape, inputs), outputs, kernel, stride, padding)]


def _average_pool(parameters: Mapping[str, Any], shape: Shape) -> Sizes:
    channels = _image(shape)[0]
    return 0, [(channels, _count(parameters, "output_height"), _count(parameters, "output_width"))]


def _linear(parameters: Mapping[str, Any], shape: Shape) -> Sizes:
    inputs, outputs = _count(parameters, "in_features"), _count(parameters, "out_features")
    if shape != (inputs,):
        raise ValueError(f"the input must be {inputs} features; is {list(shape)}")
    return inputs * outputs + (outputs if parameters.get("bias") is True else 0), [(outputs,)]


def _relu(parameters: Mapping[str, Any], shape: Shape) -> Sizes:
    return 0, [] if parameters.get("inplace") is True else [shape]


def _bottleneck(parameters: Mapping[str, Any], shape: Shape) -> Sizes:
    """Return the sizes of a bottleneck block of torchvision's (wide) ResNet.

    It has three convolutions, each with a batch normalisation. The output of a convolution and of its normalisation
    are both kept; ReLU and the sum work in place.
    """
    inputs, groups = _count(parameters, "inplanes"), _count(parameters, "groups")
    width = _count(parameters, "planes") * _count(parameters, "base_width") // 64 * groups
    outputs = 4 * _count(parameters, "planes")
    stride = _count(parameters, "stride") if "stride" in parameters else 1
    narrow = (width, *_image(shape, inputs)[1:])
    inner = _slid(shape, width, 3, stride, 1)
    outer = (outputs, *inner[1:])
    weights = inputs * width + width * width // groups * 9 + width * outputs + 2 * (2 * width + outputs)
    kept = [narrow, narrow, inner, inner, outer, outer]
    if "downsampleParams" in parameters:  # the shortcut has a convolution of 1x1 and a normalisation too
        weights += inputs * outputs + 2 * outputs
        kept += [outer, outer]
    return weights, kept


_SIZES: dict[str, Callable[[Mapping[str, Any], Shape], Sizes]] = {
    "conv2d": _conv2d,
    "ReLU1d": _relu,
    "ReLU2d": _relu,
    "maxPool2d": lambda parameters, shape: (0, [_slid(_image(shape), shape[0], *_window(parameters))]),
    "adAvgPool2d": _average_pool,
    "flatten": lambda *_: (0, []),
    "linear": _linear,
    "ResnetBottleneck": _bottleneck,
}


@dataclass(frozen=True, slots=True)
class ProfiledLayer:
    """A line of a profile.

    `kind, parameters`: its type, and its parameters as they stand in the file. `shape`: shape of the input of a sample.
    `total_us, forward_us, backward_us`: microseconds of both passes, and of each.
    """

    kind: str
    parameters: str
    shape: tuple[int, ...]
    weights: int
    total_us: float
    forward_us: int
    backward_us: int

    @property
    def key(self) -> tuple[str, str, tuple[int, ...]]:
        """What it has in common with its lines in runs of other batch sizes."""
        return self.kind, self.parameters, self.shape


def read_deeppool(
    data: bytes | str, gpu_type: str, batch: int, *, segments: int | None = None, source: str = "layers.prof"
) -> Model:
    """Read the run of one batch size from a layer profile of DeepPool.

    The profiles credit the backward time of a convolution or a linear layer to the ReLU that follows it, so a segment
    never ends between the two. Activations are the outputs of the layers in 4-byte floats; a ReLU in place and a
    reshape keep nothing of their own. Parameters count a bias where the profile says that there is one.

    Parameters
    ----------
    data
        The text of the file.
    gpu_type
        The type of GPU that it was measured on; it does not say.
    batch
        Samples a GPU.
    segments
        The greatest number of segments; None for as many as there are places to cut.
    source
        What problems call the text.

    Returns
    -------
    Model
        Times of one minibatch in microseconds, sizes in bytes.

    Raises
    ------
    InvalidInputError
        With every line that is wrong, or if there is not exactly one run of `batch`.
    UsageError
        If `segments` is below 1.
    """
    return model_of([[layer] for layer in read_deeppool_layers(data, batch, source=source)], gpu_type, segments)


def read_deeppool_layers(data: bytes | str, batch: int, *, source: str = "layers.prof") -> tuple[MeasuredLayer, ...]:
    """Return the layers of such a run in their order, a ReLU with the layer before it.

    What a layer sends is the input of the next one.

    `data`: the content of the file; text, or bytes in UTF-8.
    """
    lines = Lines(data, source, MOST_LINES)
    runs = _runs(lines)
    chosen = [run for run in runs if int(run[0][1]["batch"]) == batch]
    if not lines.problems and len(chosen) != 1:
        known = ", ".join(str(size) for size in sorted({int(run[0][1]["batch"]) for run in runs})) or "none"
        told = f"{len(chosen)} runs of batch size {batch}; exactly one is needed"
        lines.add(None, told, f"batch sizes here: {known}", code="wrong-count")
    if runs and chosen == runs[-1:] and (cut := _unended(lines)):
        lines.add(cut, f"the run of batch size {batch} has no line SUM, as others have: it is cut off", code="damaged")
    place = count()
    found = _layers(chain(*chosen), lines, lambda match: _layer(next(place), match))
    if not lines.problems and sum(layer.forward_us for layer in found) == 0:
        lines.add(None, f"the forward times of batch size {batch} add up to 0", code="out-of-range")
    lines.raise_if_any()
    inputs = [_FLOAT * batch * prod(_shape(match)) for _, match in chain(*chosen)]
    # Each layer sends what the next one reads; what the last one puts out is not in the file.
    sent = [replace(layer, output_bytes=size) for layer, size in zip(found, [*inputs[1:], None], strict=True)]
    sent[0] = replace(sent[0], input_bytes=inputs[0])
    return tuple(map(one_layer, _groups(sent)))


def read_deeppool_runs(data: bytes | str, *, source: str = "layers.prof") -> dict[int, tuple[ProfiledLayer, ...]]:
    """Read all runs of a layer profile of DeepPool, by their samples a GPU."""
    lines = Lines(data, source, MOST_LINES)
    found: dict[int, tuple[ProfiledLayer, ...]] = {}
    for run in _runs(lines):
        number, batch = run[0][0], int(run[0][1]["batch"])
        if batch in found:
            lines.add(number, f"batch size {batch} has a run before", code="duplicate-name")
        found[batch] = tuple(_layers(run, lines, _profiled))
        first = next(iter(found.values()))
        if not lines.problems and [layer.key for layer in found[batch]] != [layer.key for layer in first]:
            lines.add(number, "this run has other layers than the first", code="mismatch")
    if not found and not lines.problems:
        lines.add(None, "there is no run", code="empty")
    lines.raise_if_any()
    return found


def _profiled(match: re.Match[str]) -> ProfiledLayer:
    weights, _ = _sizes(match)
    times = float(Decimal(match["total"]) * 1000), int(match["forward"]), int(match["backward"])
    return ProfiledLayer(match["kind"], match["parameters"], _shape(match), weights, *times)


def _layers(run: Iterable[Line], lines: Lines, read: Callable[[re.Match[str]], Layer]) -> list[Layer]:
    """Return what is read of the lines of a run; those whose sizes cannot be worked out are noted."""
    found = []
    for number, match in run:
        try:
            found.append(read(match))
        except (ValueError, RecursionError) as error:
            lines.add(number, f"layer {match['kind']}: {error}", code="malformed")
    return found


def _sizes(match: re.Match[str]) -> Sizes:
    return sizes(match["kind"], json.loads(match["parameters"]), _shape(match))


def _shape(match: re.Match[str]) -> tuple[int, ...]:
    return tuple(int(length) for length in (match["shape"] or match["length"]).split(","))


def _runs(lines: Lines) -> list[Run]:
    runs: list[Run] = [[]]
    for number, line in lines:
        if _END_OF_RUN.fullmatch(line):
            runs.append([])
        elif match := _LINE.fullmatch(line):
            if runs[-1] and match["batch"] != runs[-1][0][1]["batch"]:
                told = f"batch size {match['batch']} in a run of batch size {runs[-1][0][1]['batch']}"
                lines.add(number, told, code="mismatch")
            runs[-1].append((number, match))
        else:
            lines.add(number, "no layer with its three times", "see docs/documents.md for the format", code="malformed")
    runs = [run for run in runs if run]
    if not lines.problems and (branch := next(filter(None, map(_branch, runs)), None)):
        lines.add(*branch, "only chains of layers are read", code="unsupported")
        lines.raise_if_any()
    return runs


def _branch(run: Run) -> tuple[int, str] | None:
    """Return where a layer reads something else than the layer before puts out, and how; None where none does."""
    before: tuple[int, ...] | None = None
    for number, match in run:
        shape, output = _shape(match), None
        with suppress(ValueError, RecursionError):  # told of the layer, where nothing branches
            _, outputs = _sizes(match)
            output = (shape, *outputs)[-1]
        if before and output and prod(before) != prod(shape):
            told = f"{match['kind']} reads {list(shape)} and the layer before puts out {list(before)}"
            return number, f"the network branches: {told}"
        before = output
    return None


def _unended(lines: Lines) -> int | None:
    """Return the number of the last line, where runs of a file end with ``SUM`` and this line does not."""
    last, ends = 0, list[int]()
    for last, line in lines:
        if _END_OF_RUN.fullmatch(line):
            ends.append(last)
    return last if ends and ends[-1] < last else None


def _layer(index: int, match: re.Match[str]) -> MeasuredLayer:
    weights, outputs = _sizes(match)
    kept = int(match["batch"]) * sum(map(prod, outputs))
    times = whole(Decimal(match["forward"])), whole(Decimal(match["backward"]))
    return MeasuredLayer(
        f"{match['kind']}{index}", *times, whole(Decimal(_FLOAT * weights)), whole(Decimal(_FLOAT * kept))
    )


def _groups(layers: list[MeasuredLayer]) -> list[Group]:
    groups: list[Group] = []
    for layer in layers:
        if groups and layer.name.startswith("ReLU"):
            groups[-1].append(layer)
        else:
            groups.append([layer])
    return groups

"""Sizes of the layers that DeepPool profiles, from their parameters and the shape of their input."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["sizes"]

Shape = tuple[int, ...]
Sizes = tuple[int, list[Shape]]
"""Number of weights, and the shapes (without the batch) of the outputs that the backward pass needs."""


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


def _max_pool(parameters: Mapping[str, Any], shape: Shape) -> Sizes:
    return 0, [_slid(_image(shape), shape[0], *_window(parameters))]


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


def _flatten(parameters: Mapping[str, Any], shape: Shape) -> Sizes:
    return 0, []


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
    "maxPool2d": _max_pool,
    "adAvgPool2d": _average_pool,
    "flatten": _flatten,
    "linear": _linear,
    "ResnetBottleneck": _bottleneck,
}

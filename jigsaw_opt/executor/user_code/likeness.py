"""Whether a state that was read from a file is one that a worker has: same keys, same types, tensors of same shapes."""

from __future__ import annotations

from pickle import UnpicklingError
from typing import Any

import torch
from torch import Tensor

from jigsaw_opt.problem.rules.report import Place, Report

UNREADABLE = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    ImportError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
    UnpicklingError,
)
"""What reading a file raises that torch has not written, or only in part."""

ANYTHING = object()
"""Stands for what only whoever loads it can judge."""

_LONGEST = 60


def compare(found: Any, own: Any, place: Place, report: Report) -> None:
    """Report where `found` differs from `own` in keys, lengths, types, or shapes and types of tensors.

    `found`: nested dictionaries, lists and tuples of tensors and plain values; not to be trusted.
    """
    if own is ANYTHING:
        return
    if isinstance(own, Tensor):
        _compare_tensors(found, own, place, report)
    elif type(found) is not type(own):
        report.add(place, f"must be {_named(own)}; is {_named(found)}", code="mismatch")
    elif isinstance(own, dict):
        for key in found.keys() - own.keys():
            report.add(place, f"has an unknown key {_cut(repr(key))}", code="unknown-field")
        for key, below in own.items():
            if key in found:
                compare(found[key], below, (place, key), report)
            else:
                report.add(place, f"lacks the key {_cut(repr(key))}", code="missing-field")
    elif isinstance(own, (list, tuple)):
        if len(found) != len(own):
            report.add(place, f"must have {len(own)} items; has {len(found)}", code="wrong-count")
        for index, (item, below) in enumerate(zip(found, own, strict=False)):
            compare(item, below, (place, index), report)


def _compare_tensors(found: Any, own: Tensor, place: Place, report: Report) -> None:
    if not isinstance(found, Tensor):
        report.add(place, f"must be a tensor; is {_named(found)}", code="wrong-type")
    elif found.layout != torch.strided or found.device.type != "cpu":
        report.add(place, "must be a dense tensor on the CPU", code="unsupported")
    elif (found.shape, found.dtype) != (own.shape, own.dtype):
        report.add(place, f"must be {_shape(own)}; is {_shape(found)}", code="mismatch")


def _shape(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} of shape {list(tensor.shape)}"


def _named(value: object) -> str:
    return "None" if value is None else f"of type {type(value).__name__}"


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "..."

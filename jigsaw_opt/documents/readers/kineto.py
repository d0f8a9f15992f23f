"""Models from traces of the PyTorch profiler (``export_chrome_trace``); docs/documents.md tells the mapping.

In short: layers are annotations or modules of the forward pass. Work inside a layer, or after it and outside all
others, is its forward pass. A node of the backward pass belongs to the layer of the operation with its sequence
number, and one without, as the nodes that add up gradients, to that of the node before it. The optimiser's step is
shared out to the backward passes by parameters. Each time is the median over the profiled steps.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from math import inf, prod
from operator import itemgetter
from statistics import median

from jigsaw_opt.documents.readers.kineto_events import MODULE, NODE, OP, Trace, TraceSpan, read_trace_events
from jigsaw_opt.documents.readers.layers import MOST_LINES, MeasuredLayer, model_of
from jigsaw_opt.documents.report import Report, quoted
from jigsaw_opt.problem import Model

__all__ = ["read_kineto", "read_kineto_layers"]

_STEP = re.compile(r"ProfilerStep#[0-9]+")
_OPTIMISER = "Optimizer.step"
_GRADIENT = "torch::autograd::AccumulateGrad"
_BYTES: Mapping[str, int] = {
    "float": 4,
    "double": 8,
    "c10::Half": 2,
    "c10::BFloat16": 2,
    "c10::complex<float>": 8,
    "c10::complex<double>": 16,
}
"""Of the types that gradients have."""
_HINT = "wrap layers in record_function, or profile with with_stack=True"
_MOST_SIZE = 2**40
_Times = dict[str, float]


def read_kineto(
    data: bytes | str,
    gpu_type: str,
    *,
    segments: int | None = None,
    layers: Sequence[str] = (),
    parameter_bytes: Mapping[str, int] | None = None,
    source: str = "trace.json",
) -> Model:
    """Read a trace of training steps, each with a forward and a backward pass.

    Parameters
    ----------
    data
        The text of the file.
    gpu_type
        What it was measured on.
    segments
        The greatest number of segments; None for one a layer.
    layers
        Patterns as of a shell for the names of layers; without one the outermost annotations, or modules where there
        are fewer than two annotations, are layers.
    parameter_bytes
        Of layers by name; others take the sizes of their gradients, which need ``record_shapes=True``.
    source
        What problems call the text.

    Raises
    ------
    InvalidInputError
        With every problem and its path.
    UsageError
        If `segments` is below 1.
    """
    found = read_kineto_layers(data, layers=layers, parameter_bytes=parameter_bytes, source=source)
    return model_of([[layer] for layer in found], gpu_type, segments)


def read_kineto_layers(
    data: bytes | str,
    *,
    layers: Sequence[str] = (),
    parameter_bytes: Mapping[str, int] | None = None,
    source: str = "trace.json",
) -> tuple[MeasuredLayer, ...]:
    """The layers of such a trace in the order of the forward pass; parameters as of `read_kineto`.

    Raises
    ------
    InvalidInputError
        With every problem and its path.
    """
    trace = read_trace_events(data, source)
    report, chosen = Report(), _layer_spans(trace.spans, layers)
    steps = _steps(trace, chosen)
    names = tuple(dict.fromkeys(chosen.values()))
    _check(steps, names, trace, source, report)
    sizes = _sizes(steps[0], names, dict(parameter_bytes or {}), source, report)
    report.raise_if_any()
    optimiser = median(step.optimiser_us for step in steps)
    total = sum(sizes.values())
    return tuple(
        MeasuredLayer(
            name,
            round(median(step.forward_us[name] for step in steps)),
            round(median(step.backward_us[name] for step in steps) + (optimiser * sizes[name] / total if total else 0)),
            sizes[name],
            steps[0].activation_bytes(name),
        )
        for name in names
    )


class _ProfiledStep:
    """What one step does in which layer; spans and work are given by their start.

    Parameters
    ----------
    name
        Of its annotation.
    chosen
        Names of the layers by their spans.
    """

    def __init__(self, name: str, chosen: Mapping[TraceSpan, str]) -> None:
        self.name, self._chosen = name, chosen
        self.seen: dict[str, None] = {}
        self.forward_us: _Times = defaultdict(float)
        self.backward_us: _Times = defaultdict(float)
        self.optimiser_us = 0.0
        self.gradients: dict[str, list[TraceSpan]] = defaultdict(list)
        self.operations: dict[str, list[TraceSpan]] = defaultdict(list)
        self.restarted: TraceSpan | None = None
        self._recent = next(iter(chosen.values()), "")
        self._by_sequence: dict[int, str] = {}
        self._of_node: dict[TraceSpan, str] = {}
        self._latest = ""
        self._outside: dict[TraceSpan, str] = {}

    def see(self, span: TraceSpan) -> None:
        """Take a span in, after all that began before it."""
        node = _node(span)
        if node is span:
            self._see_node(span)
        elif node is not None:
            if span.name == _GRADIENT and node in self._of_node:
                self.gradients[self._of_node[node]].append(span)
        elif span in self._chosen:
            self._recent = self._chosen[span]
            self.seen[self._recent] = None
            self.restarted = self.restarted or (span if self._of_node else None)
        elif span.category == OP and span.sequence is not None:
            self._see_operation(span, span.sequence)

    def _see_node(self, node: TraceSpan) -> None:
        known = None if node.sequence is None else self._by_sequence.get(node.sequence)
        self._latest = known or self._latest or self._recent
        self._of_node[node] = self._latest

    def _see_operation(self, span: TraceSpan, sequence: int) -> None:
        """An operation of the forward pass; the last one with its number made the node."""
        outer = [one for one in span.above() if one.category == OP][-1]
        layer = self._layer(span) or self._outside.setdefault(outer, self._recent)
        self._by_sequence[sequence] = layer
        if outer is span:
            self.operations[layer].append(span)

    def _layer(self, span: TraceSpan) -> str | None:
        return next((self._chosen[one] for one in span.above() if one in self._chosen), None)

    def add(self, span: TraceSpan, duration: float) -> None:
        """Add work to the pass that it belongs to, if to any."""
        node = _node(span)
        if node is not None:
            self.backward_us[self._of_node.get(node, "")] += duration  # "": it began before the step
        elif any(one.name.startswith(_OPTIMISER) for one in span.above()):
            self.optimiser_us += duration
        elif layer := self._layer(span) or next(filter(None, map(self._outside.get, span.above())), None):
            self.forward_us[layer] += duration

    def activation_bytes(self, name: str) -> int:
        """Bytes that the outermost operations of a layer read, what is shaped as a parameter aside."""
        parameters = {shape for span in self.gradients[name] for shape, _ in _inputs(span)}
        read = [one for span in self.operations[name] for one in _inputs(span)]
        return sum(prod(shape) * _BYTES[kind] for shape, kind in read if kind in _BYTES and shape not in parameters)


def _node(span: TraceSpan) -> TraceSpan | None:
    """The outermost node of the backward pass that holds a span."""
    return next((one for one in reversed(list(span.above())) if one.name.startswith(NODE)), None)


def _inputs(span: TraceSpan) -> list[tuple[tuple[int, ...], str]]:
    """Shapes and types of the tensors that an operation reads, as far as the trace has them."""
    shapes, kinds = span.arguments.get("Input Dims"), span.arguments.get("Input type")
    if not isinstance(shapes, list) or not isinstance(kinds, list):
        return []
    return [
        (tuple(shape), str(kind))
        for shape, kind in zip(shapes, kinds, strict=False)
        if isinstance(shape, list) and all(type(size) is int and 0 <= size <= _MOST_SIZE for size in shape)
    ]


def _steps(trace: Trace, chosen: Mapping[TraceSpan, str]) -> list[_ProfiledStep]:
    """The profiled steps; one without end where none is annotated."""
    marks = [span for span in trace.spans if span.is_annotation and _STEP.fullmatch(span.name)]
    windows = [(mark.start, mark.end, mark.name) for mark in marks] or [(0.0, inf, "the trace")]
    steps = [_ProfiledStep(name, chosen) for *_, name in windows]

    def step_of(span: TraceSpan) -> _ProfiledStep | None:
        k = bisect_right(windows, span.start, key=itemgetter(0)) - 1
        return steps[k] if k >= 0 and span.start < windows[k][1] else None

    for span in trace.spans:
        if step := step_of(span):
            step.see(span)
    for span, duration in trace.work:
        if step := step_of(span):
            step.add(span, duration)
    return steps


def _layer_spans(spans: Sequence[TraceSpan], patterns: Sequence[str]) -> dict[TraceSpan, str]:
    """The spans that are layers, with their names.

    They hold operations of a forward pass. Without patterns they are the outermost annotations, or the outermost
    modules where those are fewer than two; a span that holds all others counts for what is in it.
    """
    holding = {
        one
        for span in spans
        if span.category == OP and span.sequence is not None and _node(span) is None
        for one in span.above()
        if (one.is_annotation or one.is_module) and not _STEP.fullmatch(one.name)
    }
    ordered = [span for span in spans if span in holding]
    if patterns:
        return _outermost([span for span in ordered if any(fnmatchcase(_layer_name(span), one) for one in patterns)])
    found = [_divided([span for span in ordered if span.is_module is module]) for module in (False, True)]
    return next((one for one in found if len(set(one.values())) > 1), found[0] or found[1])


def _layer_name(span: TraceSpan) -> str:
    return span.name.removeprefix(MODULE)


def _outermost(spans: Sequence[TraceSpan]) -> dict[TraceSpan, str]:
    among = set(spans)
    return {
        span: _layer_name(span) for span in spans if not any(one in among for one in span.above() if one is not span)
    }


def _divided(spans: Sequence[TraceSpan]) -> dict[TraceSpan, str]:
    """The outermost of some spans, but not one alone that holds others."""
    found = _outermost(spans)
    while len(set(found.values())) == 1 and (inner := [span for span in spans if span not in found]):
        spans, found = inner, _outermost(inner)
    return found


def _check(steps: Sequence[_ProfiledStep], names: Sequence[str], trace: Trace, source: str, report: Report) -> None:
    """Note what makes the trace none of training steps of one model."""
    if not names:
        report.add(source, "no layer: no annotation or module holds operations with sequence numbers", _HINT)
    if len(names) > MOST_LINES:
        report.add(source, f"{len(names)} layers, and at most {MOST_LINES} are read")
    if not any(span.name.startswith(NODE) for span in trace.spans):
        report.add(source, "no node of a backward pass")
    if not trace.work:
        report.add(source, "no operation takes time")
    for step in steps if names else ():
        missing = [name for name in names if name not in step.seen]
        if missing:
            report.add(source, f"{step.name} has no layer {', '.join(map(quoted, missing))}")
        if step.restarted is not None:
            report.add(step.restarted.place, f"{step.name} begins a layer after its backward pass; it has one of each")


def _sizes(
    step: _ProfiledStep, names: Iterable[str], stated: dict[str, int], source: str, report: Report
) -> dict[str, int]:
    """Bytes of parameters by layer: stated, or those of the gradients."""
    sizes = {}
    for name in names:
        sizes[name] = (
            stated.pop(name) if name in stated else sum(_gradient(one, report) for one in step.gradients[name])
        )
    for name, size in sizes.items():
        if not 0 <= size <= _MOST_SIZE:
            report.add(source, f"layer {quoted(name)} has parameters of 0 to {_MOST_SIZE} bytes, not {size}")
    for name in stated:
        report.add(source, f"parameters of a layer {quoted(name)}, which there is not")
    return sizes


def _gradient(span: TraceSpan, report: Report) -> int:
    found = _inputs(span)[:1]
    if found and found[0][1] in _BYTES:
        return prod(found[0][0]) * _BYTES[found[0][1]]
    report.add(span.place, "a gradient without shape and type", "profile with record_shapes=True, or state parameters")
    return 0

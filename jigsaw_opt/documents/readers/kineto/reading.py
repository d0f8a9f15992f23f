"""Models from traces of the PyTorch profiler (``export_chrome_trace``); docs/documents.md tells the mapping.

In short: layers are annotations or modules of the forward pass. Work inside a layer is its forward pass, and so is work
after it and outside all others that made a node of the backward pass. A node belongs to the layer of the operation that
made it, and one without a sequence number, as the nodes that add up gradients, to that of the node before it. The
optimiser's step is shared out to the backward passes by parameters. Each time is the median over the profiled steps.
What belongs to no layer is told.
"""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from heapq import nlargest
from statistics import median

from jigsaw_opt.documents.readers.kineto.events import Trace, TraceSpan, read_trace_events
from jigsaw_opt.documents.readers.kineto.layers import (
    STEP,
    calls_of_names,
    crossed_layers,
    layer_spans,
    names_within,
    numbered_layers,
    spans_seen,
    unlayered,
    without_weights,
)
from jigsaw_opt.documents.readers.kineto.steps import UNMARKED, Owners, ProfiledStep, steps_of
from jigsaw_opt.documents.readers.profiles.layers import MOST_LINES, model_of
from jigsaw_opt.problem import Model
from jigsaw_opt.problem.measured.layers import MeasuredLayer
from jigsaw_opt.problem.rules.report import Report, quoted
from jigsaw_opt.text import Tell, counted, say_nothing

_MARK = "profile with schedule=torch.profiler.schedule(...), so that step() of the profiler marks the steps"
_TRAIN = "profile training steps, each with its backward pass"
_HINT = "wrap layers in record_function, or profile with with_stack=True"
_NEST = "spans of one thread must lie apart or within one another"
_ACTIVATIONS = "profile with record_shapes=True, or state activations"
_MOST_SIZE = 2**40
_MOST_TOLD = 5
_LARGE_PERCENT = 80
"""Of the time: a layer that has so much of it is worth dividing."""


def read_kineto(
    data: bytes | str,
    gpu_type: str,
    *,
    segments: int | None = None,
    layers: Sequence[str] = (),
    parameter_bytes: Mapping[str, int] | None = None,
    activation_bytes: Mapping[str, int] | None = None,
    source: str = "trace.json",
    tell: Tell = say_nothing,
) -> Model:
    """Read a trace of training steps, each with a forward and a backward pass.

    Parameters
    ----------
    data
        The text of the file, which may be compressed by gzip.
    gpu_type
        What it was measured on.
    segments
        The greatest number of segments; None for one a layer.
    layers
        Patterns as of a shell for the names of layers; without one the outermost annotations, or modules where there
        are fewer than two annotations, are layers.
    parameter_bytes
        Bytes of parameters, by name of a layer; others take the sizes of their gradients, which need
        ``record_shapes=True``.
    activation_bytes
        Bytes of activations, by name of a layer; those of others are estimated from shapes, which is told.
    source
        What problems call the text.
    tell
        Called with what is left out of the layers, and with what was mended in the text.

    Raises
    ------
    InvalidInputError
        With every problem and its path.
    UsageError
        If `segments` is below 1.
    """
    found = read_kineto_layers(
        data,
        layers=layers,
        parameter_bytes=parameter_bytes,
        activation_bytes=activation_bytes,
        source=source,
        tell=tell,
    )
    return model_of([[layer] for layer in found], gpu_type, segments)


def read_kineto_layers(
    data: bytes | str,
    *,
    layers: Sequence[str] = (),
    parameter_bytes: Mapping[str, int] | None = None,
    activation_bytes: Mapping[str, int] | None = None,
    of_a_pass: bool = False,
    source: str = "trace.json",
    tell: Tell = say_nothing,
) -> tuple[MeasuredLayer, ...]:
    """Return the layers of such a trace in the order of the forward pass; sizes as of `read_kineto`.

    A backward pass is told as a whole, for many nodes compute gradients of inputs and of weights at once. What a
    layer sends is known where the shapes show it: its last operation puts out what the first one of the next layer
    reads.

    `of_a_pass`: whether times are those of one pass, without the optimiser's step, in place of those of a whole step.
    """

    def say(told: str) -> None:
        tell(f"{source}: {told}")

    trace = read_trace_events(data, source, tell)
    report, chosen = Report(), layer_spans(trace, layers)
    _check_spans(trace, chosen, layers, source, report)
    report.raise_if_any()
    chosen, calls = numbered_layers(chosen, calls_of_names(trace, chosen))
    names = tuple(dict.fromkeys(chosen.values()))
    owners = Owners(trace, chosen, unlayered(trace, chosen) if layers else ())
    steps, outside_us = steps_of(trace, owners)
    whole = [step for step in steps if step.seen and step.passes]
    _check(whole, names, layers, trace, source, report)
    report.raise_if_any()
    first = whole[0]
    sizes = _sizes("parameters", partial(first.gradient_bytes, report=report), names, parameter_bytes, source, report)
    if not first.has_shapes and (unknown := [name for name in names if name not in (activation_bytes or {})]):
        wrong = f"no operation has shapes, so activations are unknown of {_first_of(unknown)}"
        report.add(source, wrong, _ACTIVATIONS, code="missing-field")
    kept = _sizes("activations", first.activation_bytes, names, activation_bytes, source, report)
    report.raise_if_any()
    _tell_calls(calls, sizes, say)
    _tell_without_gradient(first, [name for name in names if name not in (parameter_bytes or {})], say)
    passes = [step.passes if of_a_pass else 1 for step in whole]
    _tell_passes(whole, of_a_pass, say)
    _tell_rest(whole, len(steps), outside_us + trace.unknown_us, say)
    if set(names) - set(activation_bytes or {}):
        say("bytes of activations are estimated from shapes; `jigsaw profile` measures them")
    optimiser = 0 if of_a_pass else _optimiser_us(whole, say)
    total = sum(sizes.values()) + first.gradient_bytes("")
    found = []
    for name, following in zip(names, (*names[1:], ""), strict=True):
        shared = optimiser * sizes[name] / total if total else 0
        forward = [step.forward_us[name] / of for step, of in zip(whole, passes, strict=True)]
        backward = [step.backward_us[name] / of + shared for step, of in zip(whole, passes, strict=True)]
        times = round(median(forward)), round(median(backward))
        ahead, back = ((round(min(each)), round(max(each))) if len(whole) > 1 else None for each in (forward, backward))
        sent = first.output_bytes(name, following)
        found.append(MeasuredLayer(name, *times, sizes[name], kept[name], None, sent, (), ahead, back))
    found[0] = replace(found[0], input_bytes=first.input_bytes(names[0]))
    _tell_scatter(found, len(whole), say)
    if not layers:
        _tell_undivided(trace, chosen, found, say)
    return tuple(found)


def _tell_undivided(trace: Trace, chosen: Mapping[TraceSpan, str], layers: Sequence[MeasuredLayer], tell: Tell) -> None:
    """Tell how to divide a layer that alone has parameters, or has most of the time, and holds what could be layers."""
    total = sum(one.time_us for one in layers)
    sized = [one for one in layers if one.parameter_bytes]
    largest = sized[0] if len(sized) == 1 else max(layers, key=lambda one: one.time_us)
    share = 100 * largest.time_us // total if total else 0
    if len(sized) != 1 and (len(layers) == 1 or share < _LARGE_PERCENT):
        return
    within = names_within(trace, {span for span, name in chosen.items() if name == largest.name})
    if len(within) > 1:
        has = "alone has parameters" if len(sized) == 1 else f"has {share} % of the time"
        others = [quoted(one.name) for one in layers if one is not largest][:_MOST_TOLD]
        beside = f"; name {', '.join(others)} too" if others else ""
        tell(f"layer {quoted(largest.name)} {has}: --layers chooses from what it holds, {_first_of(within)}{beside}")


def _first_of(names: Sequence[str]) -> str:
    return ", ".join(map(quoted, names[:_MOST_TOLD])) + (", ..." if len(names) > _MOST_TOLD else "")


def _check_spans(
    trace: Trace, chosen: Mapping[TraceSpan, str], patterns: Sequence[str], source: str, report: Report
) -> None:
    """Note spans of which it cannot be told what belongs to which layer, and layers that cannot be named."""
    for (outer, inner), span in crossed_layers(trace, patterns).items():
        told = f"{quoted(inner)} begins within {quoted(outer)} and ends after it"
        report.add(span.place, told, _NEST, code="wrong-order")
    if unnamed := next((span for span, name in chosen.items() if not name), None):
        report.add((unnamed.place, "name"), "is empty, so that it names no layer", _HINT, code="empty")
    names = set(chosen.values())
    for name, others in numbered_layers(chosen, calls_of_names(trace, chosen))[1].items():
        for one in names.intersection(others):
            wrong = f"{quoted(one)} may be a layer, and a call of {quoted(name)}"
            report.add(source, wrong, "rename one of them", code="ambiguous")


def _tell_calls(calls: Mapping[str, Sequence[str]], sizes: Mapping[str, int], tell: Tell) -> None:
    """Tell which layers are calls of one name, and which of them may share their weights."""
    for name, each in calls.items():
        tell(f"{quoted(name)} is called {len(each)} times in a pass: {quoted(each[0])} to {quoted(each[-1])}")
    for one, other in without_weights(calls, sizes):
        tell(
            f"{quoted(one)} adds up no gradients and {quoted(other)} does: if they share weights, "
            "both belong in one stage of a pipeline"
        )


def _tell_passes(steps: Sequence[ProfiledStep], of_a_pass: bool, tell: Tell) -> None:
    """Tell what becomes of several passes of a step and, where times are of one pass, of the optimiser's step."""
    if (passes := max(step.passes for step in steps)) > 1:
        told = "times are means over them" if of_a_pass else "their times are added up"
        tell(f"a step has {passes} backward passes: {told}")
    if of_a_pass and (left := round(median(step.optimiser_us for step in steps))):
        tell(f"{left} us of Optimizer.step in a step are left out, for a step may have many micro-batches")


def _optimiser_us(steps: Sequence[ProfiledStep], tell: Tell) -> float:
    """Return the optimiser's time of a step: the median, or the mean where only some of the steps have it."""
    times = [step.optimiser_us for step in steps]
    without = times.count(0)
    if not 0 < without < len(times):
        return median(times)
    tell(f"{without} of {len(times)} steps have no Optimizer.step: the mean of its time over all steps counts")
    return sum(times) / len(times)


def _tell_rest(steps: Sequence[ProfiledStep], profiled: int, outside_us: float, tell: Tell) -> None:
    """Tell what is left out of all layers, and what is added up that may not be expected."""
    if profiled > len(steps):
        tell(f"{profiled - len(steps)} of {profiled} profiled steps have no forward and backward pass: left out")
    if compiled := sorted(steps[0].compiled):
        tell(
            f"{', '.join(map(quoted, compiled[:_MOST_TOLD]))}"
            f"{f' and {len(compiled) - _MOST_TOLD} others' if len(compiled) > _MOST_TOLD else ''} run compiled: "
            "activations count what the compiled function reads alone, so profile without torch.compile for their sizes"
        )
    rest: dict[str, float] = defaultdict(float)
    for step in steps:
        for name, time in step.left_out.items():
            rest[name] += time
    if outside_us:
        rest["work outside the steps"] += outside_us
    total = sum(step.total_us for step in steps) + outside_us
    left = sum(rest.values())
    if not round(left):
        return
    largest = [f"{name} {round(rest[name])}" for name in nlargest(_MOST_TOLD, rest, key=rest.__getitem__)]
    others = f", {len(rest) - _MOST_TOLD} others" if len(rest) > _MOST_TOLD else ""
    tell(
        f"{round(left)} of {round(total)} us of work in {len(steps)} steps ({100 * left / total:.1f} %) "
        f"belong to no layer and are left out: {', '.join(largest)}{others}"
    )


def _check(
    steps: Sequence[ProfiledStep],
    names: Sequence[str],
    patterns: Sequence[str],
    trace: Trace,
    source: str,
    report: Report,
) -> None:
    """Note what makes the trace none of training steps of one model."""
    nodes = any(span.is_node for span in trace.spans)
    if not names and (nodes or not trace.spans):
        wanted = f"called {' or '.join(map(quoted, patterns))}" if patterns else "that holds operations with a gradient"
        seen = spans_seen(trace)
        hint = f"spans are {seen}: choose with --layers PATTERN, as of a shell; or {_HINT}" if seen else _HINT
        report.add(source, f"no layer: no annotation or module {wanted}", hint, code="empty")
    if len(names) > MOST_LINES:
        report.add(source, f"{len(names)} layers, and at most {MOST_LINES} are read", code="too-large")
    if not nodes:
        report.add(source, "no node of a backward pass", _TRAIN, code="empty")
    if not trace.work:
        report.add(source, "no operation takes time", code="empty")
    if names and not steps and not report.problems:
        report.add(source, "no profiled step has a forward and a backward pass", code="empty")
    for step in steps if names else ():
        if step.passes > 1 and step.name == UNMARKED:
            report.add(source, f"{step.passes} backward passes, and no step is marked", _MARK, code="ambiguous")
        if missing := [name for name in names if name not in step.seen]:
            hint = "" if STEP.fullmatch(step.name) else _MARK
            wrong = f"{step.name} has no layer {', '.join(map(quoted, missing))}"
            report.add(source, wrong, hint, code="missing-field")


def _sizes(
    what: str,
    found_in: Callable[[str], int],
    names: Iterable[str],
    stated: Mapping[str, int] | None,
    source: str,
    report: Report,
) -> dict[str, int]:
    """Return bytes of something by layer: stated, or found in the trace."""
    left = dict(stated or {})
    sizes = {name: left.pop(name) if name in left else found_in(name) for name in names}
    for name, size in sizes.items():
        if not 0 <= size <= _MOST_SIZE:
            told = f"layer {quoted(name)} has {what} of 0 to {_MOST_SIZE} bytes, not {size}"
            report.add(source, told, code="out-of-range")
    for name in left:
        report.add(source, f"{what} of a layer {quoted(name)}, which there is not", code="unknown-name")
    return sizes


def _tell_scatter(layers: Sequence[MeasuredLayer], steps: int, tell: Tell) -> None:
    """Tell from where to where the times of all layers go over the steps, and which layer has the widest range.

    `layers`: layers with the ranges of their times, or without them, where nothing is told.
    """
    pairs = [(one.forward_range_us, one.backward_range_us) for one in layers]
    ranges = [(f[0] + b[0], f[1] + b[1]) for f, b in pairs if f is not None and b is not None]
    if not ranges:
        return
    total, (low, high) = sum(one.time_us for one in layers), map(sum, zip(*ranges, strict=True))
    widest, ends = max(zip(layers, ranges, strict=True), key=lambda one: one[1][1] - one[1][0])
    tell(
        f"times are medians of {steps} steps: {total} us in all layers, {low} to {high} us where each takes "
        f"its least or greatest time; layer {quoted(widest.name)} scatters most, {ends[0]} to {ends[1]} us"
    )


def _tell_without_gradient(step: ProfiledStep, names: Iterable[str], tell: Tell) -> None:
    """Tell which layers have parameters that got no gradient, so that their bytes are not known.

    `names`: names of the layers whose bytes nobody has stated.
    """
    for name in names:
        if count := step.gradients_without_value(name):
            tell(
                f"{counted(count, 'parameter')} of layer {quoted(name)} got no gradient and counts 0 bytes: "
                f"state all of the layer's with --parameter-bytes {shlex.quote(f'{name}=BYTES')}"
            )

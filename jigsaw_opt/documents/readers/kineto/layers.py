"""Choose the spans of a PyTorch profiler trace that are layers; docs/documents.md tells the rules."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from math import inf
from operator import or_

from jigsaw_opt.documents.readers.kineto.events import MODULE, NODE, OP, Trace, TraceSpan
from jigsaw_opt.problem.rules.report import quoted

GRADIENT = "torch::autograd::AccumulateGrad"
"""Name of what adds up the gradient of a parameter."""
OPTIMISER = "Optimizer.step"
STEP = re.compile(r"ProfilerStep#[0-9]+")
_FRAMEWORK = re.compile(
    r"ProfilerStep#[0-9]+|enumerate\(.*|Optimizer\..*|(Distributed|FullySharded)?DataParallel\..*|FSDP::.*"
    r"|Torch-Compiled Region.*|## Call CompiledFxGraph.*|TorchDynamo .*|AOTDispatcher .*|Pregraph bytecode"
    r"|.*\(dynamo_timed\)|(nccl|gloo|mpi|ucc):.*",
    re.DOTALL,
)
"""Annotations that PyTorch itself makes, none of which is a layer."""
_MOST_SEEN = 5


def node_around(span: TraceSpan) -> TraceSpan | None:
    """Return the innermost node of the backward pass that holds a span, or is it."""
    return next((one for one in span.above() if one.is_node), None)


def _is_named(span: TraceSpan) -> bool:
    """Return whether a span has a name that could be a layer's: an annotation or a module."""
    return span.is_annotation or span.is_module


def layer_spans(trace: Trace, patterns: Sequence[str]) -> dict[TraceSpan, str]:
    """Return the spans that are layers, with their names.

    Those that run within a node of the backward pass compute a layer again, and are in it under its name.

    `patterns`: of names, as of a shell, or names as they stand. Without one, layers are the outermost annotations, or
    the outermost modules where those are fewer than two. They belong to a forward pass: see `_of_forward_passes`. Spans
    that a pattern names may lie outside, as of a frozen layer, where none of their name lies inside.
    """
    holding = {one for span in trace.spans if span.category == OP for one in span.above() if _is_named(one)}
    spans = [span for span in trace.spans if span in holding and not STEP.fullmatch(span.name)]
    if patterns:
        chosen = _outermost([span for span in spans if _is_meant(_layer_name(span), patterns)])
        beside = {span for span in chosen if node_around(span) is None}
        inside = set(_of_forward_passes(trace, beside))
        names = {chosen[span] for span in inside}
        return {
            span: name for span, name in chosen.items() if span not in beside or span in inside or name not in names
        }
    found = [_of_kind(trace, [span for span in spans if span.is_module is module], module) for module in (False, True)]
    first = next((one for one in found if len(set(one.values())) > 1), found[0] or found[1])
    names, module = set(first.values()), any(span.is_module for span in first)
    again = [
        span
        for span in spans
        if span.is_module is module and _layer_name(span) in names and node_around(span) is not None
    ]
    return dict(sorted((first | _outermost(again)).items(), key=lambda one: one[0].start))


def crossed_layers(trace: Trace, patterns: Sequence[str]) -> dict[tuple[str, str], TraceSpan]:
    """Return the names of two spans that could be layers, the second of which begins in the first and ends after it.

    Each pair of names has the first such span that ends too late. With patterns, one of the two has such a name.

    `patterns`: patterns of names of layers; empty for any.
    """
    found: dict[tuple[str, str], TraceSpan] = {}
    for outer, inner in trace.crossings:
        names = _layer_name(outer), _layer_name(inner)
        wanted = [_is_meant(name, patterns) for name in names]
        could_be = [_is_named(span) and not _FRAMEWORK.fullmatch(span.name) for span in (outer, inner)]
        if all(map(or_, wanted, could_be)) and (not patterns or any(wanted)):
            found.setdefault(names, inner)
    return found


def spans_seen(trace: Trace) -> str:
    """Return the names of some spans that could be named as layers, with how many there are; empty without any."""
    counts = Counter(_layer_name(span) for span in trace.spans if _is_named(span) and not STEP.fullmatch(span.name))
    shown = [f"{quoted(name)} ({count} times)" for name, count in counts.most_common(_MOST_SEEN)]
    return ", ".join(shown) + (f" and {len(counts) - len(shown)} others" if len(counts) > len(shown) else "")


def _is_meant(name: str, patterns: Sequence[str]) -> bool:
    """Return whether a pattern as of a shell, or a name with brackets as it stands, means a name."""
    return any(name == one or fnmatchcase(name, one) for one in patterns)


def _layer_name(span: TraceSpan) -> str:
    return span.name.removeprefix(MODULE)


def _of_kind(trace: Trace, spans: Sequence[TraceSpan], modules: bool) -> dict[TraceSpan, str]:
    """Return the layers among the annotations, or among the modules."""
    nodes = [span.start for span in trace.spans if span.is_node]

    def in_one_pass(span: TraceSpan) -> bool:
        """Return whether no node runs within a span, nor it within a node; on a GPU, nodes have their own thread."""
        return bisect_left(nodes, span.start) == bisect_left(nodes, span.end) and node_around(span) is None

    candidates = {span for span in spans if in_one_pass(span) and (modules or not _FRAMEWORK.fullmatch(span.name))}
    return _divided(list(_of_forward_passes(trace, candidates)), modules, _with_parameters(trace))


def _with_parameters(trace: Trace) -> set[TraceSpan]:
    """Return the spans that hold an operation whose node is followed by one that adds up a gradient."""
    latest: dict[object, TraceSpan] = {}
    found: set[TraceSpan] = set()
    for span in trace.spans:
        if maker := trace.makers.get(span):
            latest[span.thread] = maker
        elif span.name == NODE + GRADIENT and span.thread in latest:
            found.update(latest[span.thread].above())
    return found


def _of_forward_passes(trace: Trace, candidates: Collection[TraceSpan]) -> Iterator[TraceSpan]:
    """Yield the candidates that are part of a forward pass.

    A pass reaches from the first to the last span that holds an operation with a node, or is in one as a layer whose
    activations are forgotten; it ends where a node runs. So
    what prepares a batch before it and what measures the result after it is none of it, and a layer within it that is
    frozen or whose result nobody uses is.
    """
    made = set(trace.makers.values())
    with_node = {one for maker in made for one in maker.above()}
    waiting: list[TraceSpan] = []
    end: float | None = None
    for span in trace.spans:
        if span.is_node:
            waiting, end = [], None
        elif span in candidates:
            if span in with_node or any(one in made for one in span.above()):
                yield from waiting
                waiting, end = [], max(end or -inf, span.end)
                yield span
            elif end is not None and span.start < end:
                yield span
            elif end is not None:
                waiting.append(span)


def _outermost(spans: Sequence[TraceSpan]) -> dict[TraceSpan, str]:
    among = set(spans)
    return {
        span: _layer_name(span) for span in spans if not any(one in among for one in span.above() if one is not span)
    }


def _divided(spans: Sequence[TraceSpan], modules: bool, sized: Collection[TraceSpan]) -> dict[TraceSpan, str]:
    """Return the outermost of some spans, but not one alone that holds others.

    Outermost spans are often the model and a loss: the only one that holds others counts for what is in it where those
    beside it have no parameters, and so on. The only outermost module that holds others does so in any case.
    """
    found = _outermost(spans)
    alone = modules
    while inner := [span for span in spans if span not in found]:
        holders = {found[one] for span in inner for one in span.above() if one in found}
        beside = set(found.values()) - holders
        if len(holders) != 1 or (not alone and beside & {found[one] for one in sized if one in found}):
            break
        spans = [span for span in spans if found.get(span) not in holders]
        found = _outermost(spans)
        alone = modules and len(set(found.values()) - beside) == 1
    return found


def names_within(trace: Trace, layers: Collection[TraceSpan]) -> tuple[str, ...]:
    """Return the names of the spans within layers that could be layers themselves."""
    named = (span for span in trace.spans if _is_named(span) and span not in layers)
    return tuple(dict.fromkeys(_layer_name(span) for span in named if any(one in layers for one in span.above())))


def unlayered(trace: Trace, chosen: Mapping[TraceSpan, str]) -> set[TraceSpan]:
    """Return the named spans that neither hold a layer nor are in one, and are not the framework's."""
    around = {one for span in chosen for one in span.above()}
    named = (span for span in trace.spans if _is_named(span) and not _FRAMEWORK.fullmatch(span.name))
    return {span for span in named if span not in around and not any(one in chosen for one in span.above())}


def calls_of_names(trace: Trace, chosen: Mapping[TraceSpan, str]) -> dict[TraceSpan, int]:
    """Return the number of each span among those of its name in its forward pass, from 1.

    A span that a node runs again has the number of the call that it repeats. The node's operation tells which one: what
    is computed again ends with the last layer that began before this operation ended.
    """
    nodes = [span.start for span in trace.spans if span.is_node]
    order = list(chosen)
    starts = [span.start for span in order]
    numbers: dict[TraceSpan, int] = {}
    again: dict[TraceSpan, list[TraceSpan]] = defaultdict(list)
    counts: Counter[str] = Counter()
    nodes_before = 0
    for span in order:
        if node := node_around(span):
            again[node].append(span)
            continue
        if (before := bisect_left(nodes, span.start)) > nodes_before:
            nodes_before = before
            counts.clear()
        counts[chosen[span]] += 1
        numbers[span] = counts[chosen[span]]
    for node, spans in again.items():
        maker = trace.makers.get(node)
        earlier = iter(reversed(order[: bisect_left(starts, node.start if maker is None else maker.end)]))
        for span in reversed(spans):
            numbers[span] = next((numbers[one] for one in earlier if chosen[one] == chosen[span]), 1)
    return numbers


def numbered_layers(
    chosen: Mapping[TraceSpan, str], numbers: Mapping[TraceSpan, int]
) -> tuple[dict[TraceSpan, str], dict[str, tuple[str, ...]]]:
    """Return the layers with a number behind each name that a pass calls several times, and the calls of such names."""
    most: Counter[str] = Counter()
    for span, name in chosen.items():
        most[name] = max(most[name], numbers[span])
    calls = {name: tuple(f"{name}.{k}" for k in range(1, n + 1)) for name, n in most.items() if n > 1}
    layers = {span: calls[name][numbers[span] - 1] if name in calls else name for span, name in chosen.items()}
    return layers, calls


def without_weights(
    calls: Mapping[str, Collection[str]], parameter_bytes: Mapping[str, int]
) -> Iterator[tuple[str, str]]:
    """Yield a call without parameters, and one of the same name that has some: they may share their weights.

    `calls`: by name, the layers that its calls are.
    """
    for names in calls.values():
        sized = next((name for name in names if parameter_bytes[name]), None)
        for name in names:
            if sized is not None and not parameter_bytes[name]:
                yield name, sized

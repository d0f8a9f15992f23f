"""The work of one profiled step of a trace, by layer."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from itertools import pairwise, takewhile
from math import inf, prod
from operator import itemgetter

from jigsaw_opt.documents.readers.kineto.activation_bytes import BYTES, MadeNode, kept_bytes, tensors_of, weights_read
from jigsaw_opt.documents.readers.kineto.events import NODE, OP, Trace, TraceSpan
from jigsaw_opt.documents.readers.kineto.layers import GRADIENT, OPTIMISER, STEP, node_around
from jigsaw_opt.problem.rules.report import Report

_COMPILED = "CompiledFunction"
"""What `torch.compile` calls the forward pass of a function."""
_SHAPES = "profile with record_shapes=True, or state parameters"
UNMARKED = "the trace"
"""Name of the only step of a trace that marks none."""
_Part = tuple[str, int]
"""A layer, and the number of a backward pass within the step."""


class Owners:
    """The layer of each span, as far as the whole trace says.

    `chosen`: names of the layers by their spans. `others`: spans whose work is no layer's, though it has a gradient.
    `with_node`: operations that made a node of the backward pass, and what holds such ones.
    """

    def __init__(self, trace: Trace, chosen: Mapping[TraceSpan, str], others: Collection[TraceSpan]) -> None:
        self.chosen, self.makers = chosen, trace.makers
        self.first = next(iter(chosen.values()), "")
        self.others = frozenset(others)
        self._made = frozenset(trace.makers.values())
        self.with_node = {one for maker in self._made for one in maker.above()}
        self._first_inside: dict[TraceSpan, str] = {}
        for span, name in chosen.items():
            for one in span.above():
                self._first_inside.setdefault(one, name)

    def layer_around(self, span: TraceSpan) -> str | None:
        """Return the layer that holds a span, or is it; None where a node of the backward pass lies between."""
        found = next((one for one in span.above() if one in self.chosen or one.is_node), None)
        return None if found is None else self.chosen.get(found)

    def beside_layers(self, operation: TraceSpan, recent: str | None) -> str | None:
        """Return the layer of an operation of the forward pass that is in none.

        It is the first one that runs within the operation, which then keeps only what it reads; or else the most
        recent one, if the operation, one in it or one around it made a node. After another span there is no recent
        one.
        """
        if operation in self._first_inside:
            return self._first_inside[operation]
        above = list(operation.above())
        if any(one in self.others for one in above):
            return None
        return recent if operation in self.with_node or any(one in self._made for one in above) else None


class ProfiledStep:
    """The work of one step by layer; spans, and then work, are given by their start."""

    def __init__(self, name: str, owners: Owners) -> None:
        self.name, self._owners = name, owners
        self.seen: dict[str, None] = {}
        self.forward_us: dict[str, float] = defaultdict(float)
        self.backward_us: dict[str, float] = defaultdict(float)
        self.optimiser_us = self.total_us = 0.0
        self.left_out: dict[str, float] = defaultdict(float)
        self._recent: str | None = owners.first
        self._recent_again: dict[TraceSpan, str] = {}
        self._owner: dict[TraceSpan, str | None] = {}
        """Of operations with a sequence number or beside the layers, and of nodes."""
        self._latest: dict[object, str | None] = {}
        self._inputs_within: dict[TraceSpan, Counter[tuple[int, ...]]] = {}
        self._inputs_after: dict[TraceSpan, Counter[tuple[int, ...]]] = {}
        self._before: dict[tuple[TraceSpan | None, object], TraceSpan] = {}
        self._pass = 0
        self._forward_runs = False
        self._ran: set[TraceSpan] = set()
        self._made: dict[TraceSpan, MadeNode] = {}
        """By node."""
        self._nodes_of: dict[TraceSpan, list[MadeNode]] = defaultdict(list)
        """By outermost operation of the forward pass."""
        self._passes: set[int] = set()
        self._gradients: dict[_Part, list[TraceSpan]] = defaultdict(list)
        self._kept: dict[_Part, list[TraceSpan]] = defaultdict(list)
        self._kept_keys: dict[_Part, Counter[str]] = defaultdict(Counter)
        self._computed_again: dict[_Part, Counter[str]] = defaultdict(Counter)
        self._regions: dict[TraceSpan, tuple[_Part, TraceSpan]] = {}

    @property
    def passes(self) -> int:
        """Number of its backward passes."""
        return len(self._passes)

    @property
    def compiled(self) -> set[str]:
        """Layers that run compiled functions, whose activations no operation reads."""
        return {name for (name, _), kept in self._kept.items() if any(one.name == _COMPILED for one in kept)}

    @property
    def has_shapes(self) -> bool:
        """Whether an operation that made a node has the shapes of what it reads."""
        return any("Input Dims" in one.arguments for kept in self._kept.values() for one in kept)

    def see(self, span: TraceSpan) -> None:
        """Take a span in, after all that began before it."""
        node = node_around(span)
        if node in self._made and span is not node:
            self._see_within(self._made[node], node, span)
        if node is span:
            self._see_node(span)
        elif node is None:
            self._see_forward(span)
        elif span in self._owners.chosen:
            self._recent_again[node] = self._owners.chosen[span]
        elif span.name == GRADIENT:
            owner = self._owner.get(node)
            if not self._is_of_an_input(span, node):
                self._gradients[owner or "", self._pass].append(span)
        elif span.is_recorded:
            self._see_again(span, node)

    def _see_within(self, made: MadeNode, node: TraceSpan, span: TraceSpan) -> None:
        """Take an operation in that runs in a node: its function, or one that this calls."""
        if span.parent is node and span.name == made.name:
            made.gradients = tensors_of(span)
        elif span.category == OP and (span.parent is node or (span.parent and span.parent.name == made.name)):
            made.inside.append(span)

    def _see_forward(self, span: TraceSpan) -> None:
        """Take a span in that runs in no node: a layer, or an operation of the forward pass or of none."""
        if span in self._owners.chosen:
            self._begin_forward()
            self.seen[self._owners.chosen[span]] = None
            self._recent = self._owners.chosen[span]
        elif span in self._owners.others:
            if span in self._owners.with_node:
                self._begin_forward()
                self._recent = None
        elif span.category == OP:
            if span in self._owners.with_node:
                self._begin_forward()
            layer = self._owners.layer_around(span) or self._owners.beside_layers(span, self._recent)
            self._owner[span] = layer
            outermost = not any(one.is_recorded for one in span.above() if one is not span)
            if layer and outermost and span in self._owners.with_node:
                self._kept[layer, self._pass].append(span)
                self._kept_keys[layer, self._pass][_key(span)] += 1

    def _begin_forward(self) -> None:
        """Begin another pass, if nodes have run since the last operation of one."""
        if not self._forward_runs:
            self._forward_runs = True
            self._pass += 1
            self._ran.clear()
            self._recent = self._owners.first

    def _see_node(self, node: TraceSpan) -> None:
        maker = self._owners.makers.get(node)
        if maker is not None and maker in self._ran:  # once more through the same graph
            self._ran.clear()
            self._pass += 1
        if maker is not None:
            if maker not in self._ran:
                self._made[node] = MadeNode(maker, node.name.removeprefix(NODE))
                outermost = [one for one in maker.above() if one.is_recorded][-1]
                self._nodes_of[outermost].append(self._made[node])
            self._ran.add(maker)
        if maker is not None and maker in self._owner:
            owner = self._owner[maker]
        else:
            owner = self._latest.get(node.thread, self._recent)
        self._latest[node.thread] = self._owner[node] = owner
        if outer := node.parent and node_around(node.parent):
            self._inputs_within.setdefault(outer, self._inputs_of(outer))
        if node.name != NODE + GRADIENT:
            self._before[outer, node.thread] = node
        self._forward_runs = False
        self._passes.add(self._pass)

    def _inputs_of(self, node: TraceSpan) -> Counter[tuple[int, ...]]:
        maker = self._owners.makers.get(node)
        return Counter(one.shape for one in tensors_of(maker)) if maker is not None else Counter()

    def _is_of_an_input(self, gradient: TraceSpan, node: TraceSpan) -> bool:
        """Return whether a gradient is no parameter's, but of an input of an operation whose node runs a backward pass.

        There is one for each input within the node, of the copy that is cut from the graph, and another after it where
        the input is a leaf of the graph.
        """
        outer = node.parent and node_around(node.parent)
        before = self._before.get((outer, node.thread))
        expected = [] if outer is None else [self._inputs_within[outer]]
        if before in self._inputs_within:
            expected.append(self._inputs_after.setdefault(before, self._inputs_of(before)))
        for one in tensors_of(gradient)[:1]:
            for left in expected:
                if left[one.shape]:
                    left[one.shape] -= 1
                    return True
        return False

    def _see_again(self, span: TraceSpan, node: TraceSpan) -> None:
        """Take in an operation that a node runs in order to compute activations again that were not kept."""
        layer = self._owners.layer_around(span) or self._recent_again.get(node) or self._owner.get(node)
        self._owner[span] = layer
        within = takewhile(lambda one: one is not node, span.above())
        if layer is None or any(one.is_recorded for one in within if one is not span):
            return
        part, key = (layer, self._pass), _key(span)
        if self._kept_keys[part][key] > self._computed_again[part][key]:
            self._computed_again[part][key] += 1
            self._regions.setdefault([one for one in span.above() if one.is_node][-1], (part, span))

    def add(self, span: TraceSpan, duration: float) -> None:
        """Add work to the pass that it belongs to, if to any."""
        self.total_us += duration
        node, layer = node_around(span), self._owners.layer_around(span)
        for one in span.above():
            layer = layer or self._owner.get(one)
            if one is node:
                break
        if node is None and layer is None and any(one.name.startswith(OPTIMISER) for one in span.above()):
            self.optimiser_us += duration
        elif layer is None:
            self.left_out[_label(span)] += duration
        else:
            (self.forward_us if node is None else self.backward_us)[layer] += duration

    def activation_bytes(self, name: str) -> int:
        """Estimate the bytes that the nodes of a layer keep in a pass, each storage once.

        Of operations that are computed again in the backward pass, what the first of them reads is kept alone.
        """
        parameters = {
            one.shape
            for part, found in self._gradients.items()
            if part[0] == name
            for gradient in found
            for one in tensors_of(gradient)
        }
        most = 0
        for part in [part for part in self._kept if part[0] == name]:
            again = self._computed_again[part].copy()
            nodes = [MadeNode(first, "") for of, first in self._regions.values() if of == part]
            for span in self._kept[part]:
                if again[_key(span)]:
                    again[_key(span)] -= 1
                else:
                    nodes += self._nodes_of.get(span, ())
            nodes.sort(key=lambda one: one.maker.start)
            most = max(most, kept_bytes(nodes, parameters))
        return most

    def output_bytes(self, name: str, following: str) -> int | None:
        """Return the bytes that the last operation of a layer puts out, if the first of the following layer reads them.

        None where it reads something else, as after an operation without a gradient, or where shapes are not known.
        """
        for part in [part for part in self._kept if part[0] == name]:
            nodes = [node for span in self._kept[part] for node in self._nodes_of.get(span, ())]
            last = max(nodes, key=lambda one: one.maker.start, default=None)
            readers = self._kept.get((following, part[1]), ())
            if last is None or not last.gradients or not readers:
                continue
            outputs = Counter((prod(one.shape), one.kind) for one in last.gradients)
            read = Counter((prod(one.shape), one.kind) for one in tensors_of(readers[0]))
            if outputs <= read and all(kind in BYTES for _, kind in outputs):
                return sum(count * numbers * BYTES[kind] for (numbers, kind), count in outputs.items())
        return None

    def input_bytes(self, name: str) -> int | None:
        """Return the bytes that the first operation of a layer reads, without its weights; None if they are unknown."""
        for first in [spans[0] for part, spans in self._kept.items() if part[0] == name and spans]:
            read = tensors_of(first)
            weights = weights_read(first, read)
            read = [one for one in read if one.position not in weights]
            if len(read) == 1 and read[0].size:
                return read[0].size
        return None

    def gradient_bytes(self, name: str, report: Report | None = None) -> int:
        """Return the bytes of gradients that a layer adds up in a pass.

        `name`: name of the layer; empty for operations of none. `report`: receives the first gradient without a shape,
        which counts as nothing. One that the node did not compute, so that there is none, counts as nothing, too.
        """
        parts = [found for part, found in self._gradients.items() if part[0] == name]
        shapeless = [one for found in parts for one in found if _gradient_bytes(one) is None and not _is_none(one)]
        if shapeless and report is not None:
            report.add(shapeless[0].place, "a gradient without shape and type", _SHAPES, code="missing-field")
        return max((sum(_gradient_bytes(one) or 0 for one in found) for found in parts), default=0)

    def gradients_without_value(self, name: str) -> int:
        """Return how many parameters of a layer got no gradient, at most, in a pass."""
        parts = [found for part, found in self._gradients.items() if part[0] == name]
        return max((sum(map(_is_none, found)) for found in parts), default=0)


def _is_none(gradient: TraceSpan) -> bool:
    """Return whether what adds up a gradient got none: it has the shapes of what it reads, and no type of it."""
    return gradient.arguments.get("Input type") == [""] and gradient.arguments.get("Input Dims") == [[]]


def _key(span: TraceSpan) -> str:
    """Return what an operation and the same one computed again have in common."""
    return f"{span.name} {span.arguments.get('Input Dims')}"


def _label(span: TraceSpan) -> str:
    """Return what work is called that belongs to no layer: the outermost annotation, module or operation around it."""
    above = [one for one in span.above() if not STEP.fullmatch(one.name)]
    named = [one for one in above if one.is_annotation or one.is_module]
    return (named or above)[-1].name.removeprefix(NODE)


def _gradient_bytes(span: TraceSpan) -> int | None:
    """Return the bytes of the gradient that an operation adds up; None where it has no shape or type."""
    found = next(iter(tensors_of(span)), None)
    return prod(found.shape) * BYTES[found.kind] if found and found.kind in BYTES else None


def steps_of(trace: Trace, owners: Owners) -> tuple[list[ProfiledStep], float]:
    """Return the profiled steps, one without end where none is annotated, and microseconds of work outside them."""
    marks = [span for span in trace.spans if span.is_annotation and STEP.fullmatch(span.name)]
    windows = [(mark.start, mark.end, mark.name) for mark in marks] or _windows_by_optimiser(trace)
    steps = [ProfiledStep(name, owners) for *_, name in windows]

    def step_at(time: float) -> ProfiledStep | None:
        k = bisect_right(windows, time, key=itemgetter(0)) - 1
        return steps[k] if k >= 0 and time < windows[k][1] else None

    for span in trace.spans:
        if step := step_at(span.start):
            step.see(span)
    outside = 0.0
    for span, duration in trace.work:
        if step := step_at(span.start):
            step.add(span, duration)
        else:
            outside += duration
    return steps, outside


def _windows_by_optimiser(trace: Trace) -> list[tuple[float, float, str]]:
    """Return start, end and name of the steps of a trace that marks none: each ends with the optimisers' step."""
    ends: list[float] = []
    nodes_since = True
    for span in trace.spans:
        if span.is_node:
            nodes_since = True
        elif span.is_annotation and span.name.startswith(OPTIMISER) and node_around(span) is None:
            ends[len(ends) - (not nodes_since) :] = [span.end]
            nodes_since = False
    return [(start, end, f"step {k}") for k, (start, end) in enumerate(pairwise([0.0, *ends]))] or [
        (0.0, inf, UNMARKED)
    ]

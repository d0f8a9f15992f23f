"""Profile graphs of PipeDream (``graph.txt``), which DAPPLE uses too.

A node a line, ``node12 -- Conv2d(...) -- forward_compute_time=10.814, backward_compute_time=18.335,
activation_size=411041792.000, parameter_size=1180672.000``, then an edge a line, ``<TAB>node11 -- node12``. Times are
milliseconds a minibatch, sizes bytes; ``activation_size`` may be a list ``[a; b]`` of several outputs. Behind them may
stand the stage that a partitioner chose, ``-- stage_id=0`` or ``-- vlayer_id=0``, which is left aside.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from graphlib import CycleError, TopologicalSorter

from jigsaw_opt.documents.readers.lines import Lines, whole
from jigsaw_opt.documents.readers.profiles.layers import MOST_LINES, Group, model_of
from jigsaw_opt.problem import Model
from jigsaw_opt.problem.measured.layers import LayerGraph, MeasuredLayer, parts_of

_NUMBER = r"[0-9]{1,20}(?:\.[0-9]{1,20})?(?:[eE][+-]?[0-9]{1,2})?"
_NODE = re.compile(
    r"(?P<name>\w+) -- (?P<kind>.+) -- "
    rf"forward_compute_time=(?P<forward>{_NUMBER}), backward_compute_time=(?P<backward>{_NUMBER}), "
    rf"activation_size=(?P<activation>{_NUMBER}|\[{_NUMBER}(?:; ?{_NUMBER})*\]), "
    rf"parameter_size=(?P<parameter>{_NUMBER})"
    r"(?: -- (?:stage_id|vlayer_id)=[0-9]+)*"
)
_EDGE = re.compile(r"\s+(?P<tail>\w+) -- (?P<head>\w+)")


@dataclass(slots=True)
class _ProfileGraph:
    layers: dict[str, MeasuredLayer] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    before: dict[str, dict[str, int]] = field(default_factory=dict)
    """For each node its predecessors, each with the line of the edge."""

    def drop(self, names: set[str]) -> None:
        self.layers = {name: layer for name, layer in self.layers.items() if name not in names}
        self.before = {
            head: {tail: line for tail, line in tails.items() if tail not in names}
            for head, tails in self.before.items()
            if head not in names
        }

    def edges_in(self, order: Sequence[str]) -> list[tuple[int, int]]:
        """Return the edges by the places of their ends."""
        place = {name: at for at, name in enumerate(order)}
        return [(place[tail], place[head]) for head, tails in self.before.items() for tail in tails]

    def sinks(self) -> set[str]:
        return self.layers.keys() - {tail for tails in self.before.values() for tail in tails}


def read_pipedream(
    data: bytes | str, gpu_type: str, *, segments: int | None = None, source: str = "graph.txt"
) -> Model:
    """Read a profile graph of PipeDream or DAPPLE.

    As PipeDream does, ``Input*`` nodes are dropped (their time is that of loading data), and so are sinks called
    ``__getitem__``. A segment ends only at a node that every path passes through on which a gradient can flow, so that
    every level is a suffix of the model. Profiles credit the backward time of some layers to their neighbours (the LSTM
    of gnmt, for one): sums over several layers are trustworthier than a single layer.

    Parameters
    ----------
    data
        The text of the file.
    gpu_type
        The type of GPU that it was measured on; it does not say.
    segments
        The greatest number of segments; None for as many as there are places to cut.
    source
        What problems call the text.

    Returns
    -------
    Model
        Times of one minibatch of the profile, in microseconds rounded to the nearest; sizes in bytes.

    Raises
    ------
    InvalidInputError
        With every line that is wrong.
    UsageError
        If `segments` is below 1.
    """
    graph, order = _read(data, source)
    return model_of(_groups(graph, order), gpu_type, segments)


def read_layer_graph(data: bytes | str, *, source: str = "graph.txt") -> LayerGraph:
    """Read a profile graph of PipeDream or DAPPLE layer by layer, without `Input*` nodes and unused ``__getitem__``.

    Times of one minibatch of the profile, in microseconds rounded to the nearest; sizes in bytes. Each layer stands
    behind those that it reads from.
    """
    graph, order = _read(data, source)
    return LayerGraph(tuple(graph.layers[name] for name in order), tuple(sorted(graph.edges_in(order))))


def _read(data: bytes | str, source: str) -> tuple[_ProfileGraph, list[str]]:
    """Return the graph without what has no place in a plan, and its nodes so that every edge goes forward."""
    lines = Lines(data, source, MOST_LINES)
    graph = _parse(lines)
    lines.raise_if_any()
    inputs = {name for name, kind in graph.kinds.items() if kind.startswith("Input")}
    for name, layer in graph.layers.items():
        # Many profiles state 0 bytes of inputs that were not measured.
        if size := sum(graph.layers[tail].activation_bytes for tail in graph.before[name] if tail in inputs):
            graph.layers[name] = replace(layer, input_bytes=size)
    graph.drop(inputs)
    graph.drop({name for name in graph.sinks() if graph.kinds[name].startswith("__getitem__")})
    order = _order(graph, lines)
    if sum(layer.forward_us for layer in graph.layers.values()) == 0:
        lines.add(None, "no node with a forward time, inputs aside", code="empty")
    names = list(graph.layers)
    if len(parts := parts_of(len(names), graph.edges_in(names))) > 1:
        wrong = (
            f"the nodes are in {len(parts)} parts that no edge joins, as {names[parts[0][0]]} and {names[parts[1][0]]}"
        )
        lines.add(None, wrong, "a file that was cut off has no edges at its end", code="empty")
    lines.raise_if_any()
    return graph, order


def _parse(lines: Lines) -> _ProfileGraph:
    graph = _ProfileGraph()
    edges: list[tuple[int, str, str]] = []
    for number, line in lines:
        if node := _NODE.fullmatch(line):
            _add_node(graph, node, number, lines)
        elif edge := _EDGE.fullmatch(line):
            edges.append((number, edge["tail"], edge["head"]))
        else:
            lines.add(number, "neither a node nor an edge", "see docs/documents.md for the format", code="malformed")
    for number, tail, head in edges:
        for name in (tail, head):
            if name not in graph.kinds:
                lines.add(number, f"no node is called {name}", code="unknown-name")
        graph.before.setdefault(head, {})[tail] = number
    return graph


def _add_node(graph: _ProfileGraph, node: re.Match[str], number: int, lines: Lines) -> None:
    name = node["name"]
    if name in graph.kinds:
        lines.add(number, f"duplicate node {name}", code="duplicate-name")
    outputs = [Decimal(size) for size in node["activation"].strip("[]").split(";")]
    quantities = [Decimal(node["forward"]) * 1000, Decimal(node["backward"]) * 1000, Decimal(node["parameter"])]
    graph.kinds[name] = node["kind"]
    graph.before.setdefault(name, {})
    try:
        forward, backward, parameters = map(whole, quantities)
        size = whole(sum(outputs, Decimal()))
        graph.layers[name] = MeasuredLayer(name, forward, backward, parameters, size, output_bytes=size)
    except ValueError as error:
        lines.add(number, f"a number is {error}", code="out-of-range")


def _order(graph: _ProfileGraph, lines: Lines) -> list[str]:
    """Return the nodes so that every edge goes forward."""
    try:
        return list(TopologicalSorter(graph.before).static_order())
    except CycleError as error:
        cycle = error.args[1]
        lines.add(graph.before[cycle[1]][cycle[0]], "the edges form a cycle: " + " -- ".join(cycle), code="cycle")
        return []


def _groups(graph: _ProfileGraph, order: list[str]) -> list[Group]:
    """Return the nodes between neighbouring cuts, nodes that no gradient reaches first.

    Such a node (an attention mask, say) has no parameters and no backward time, and neither has anything before it.
    Its edges may run past a cut, for no gradient flows along them.
    """
    idle: set[str] = set()
    for name in order:
        layer = graph.layers[name]
        if not layer.parameter_bytes and not layer.backward_us and idle.issuperset(graph.before[name]):
            idle.add(name)
    active = [name for name in order if name not in idle]
    cuts = _cuts(graph, active)
    groups: list[Group] = [[graph.layers[name] for name in order if name in idle]]
    for name in active:
        groups[-1].append(graph.layers[name])
        if name in cuts:
            groups.append([])
    return [group for group in groups if group]


def _cuts(graph: _ProfileGraph, active: list[str]) -> set[str]:
    """Return the nodes of `active` that every path among them passes through: those that dominate its end."""
    import networkx as nx

    begin, end = " begin", " end"  # no name has a blank
    among = set(active)
    paths = nx.DiGraph((tail, head) for head in active for tail in graph.before[head] if tail in among)
    paths.add_nodes_from((*active, begin, end))
    paths.add_edges_from([(begin, name) for name in active if not paths.in_degree(name)])
    paths.add_edges_from([(name, end) for name in active if not paths.out_degree(name)])
    above, cuts, at = nx.immediate_dominators(paths, begin), set[str](), end
    while (at := above.get(at, begin)) != begin:
        cuts.add(at)
    return cuts

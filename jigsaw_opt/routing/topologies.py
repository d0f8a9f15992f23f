"""Fabrics by their parameters, from GraphML text, and from the collection of the package `topohub`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations
from typing import Any
from xml.etree import ElementTree

from jigsaw_opt.errors import InvalidInputError, MissingEngineError, UsageError
from jigsaw_opt.problem.rules.report import Report
from jigsaw_opt.routing.fabric import Fabric
from jigsaw_opt.text import printable

__all__ = ["collected", "dragonfly", "fat_tree", "leaf_spine", "read_graphml"]


def fat_tree(k: int) -> Fabric:
    """Build three layers of switches with `k` ports, for `k ** 3 / 4` servers (Al-Fares et al., SIGCOMM'08)."""
    if k < 2 or k % 2:
        raise UsageError(f"a fat tree has an even number of ports, at least 2, not {k}", code="out-of-range")
    half = k // 2
    servers = [f"h{pod}.{e}.{h}" for pod in range(k) for e in range(half) for h in range(half)]
    edges = [f"e{pod}.{e}" for pod in range(k) for e in range(half)]
    middle = [f"a{pod}.{a}" for pod in range(k) for a in range(half)]
    cores = [f"c{a}.{c}" for a in range(half) for c in range(half)]
    pairs = [(name, f"e{name[1:].rpartition('.')[0]}") for name in servers]
    pairs += [(f"e{pod}.{e}", f"a{pod}.{a}") for pod in range(k) for e in range(half) for a in range(half)]
    pairs += [(f"a{pod}.{a}", f"c{a}.{c}") for pod in range(k) for a in range(half) for c in range(half)]
    return Fabric.alike(f"fat-tree-{k}", servers, (*edges, *middle, *cores), pairs)


def leaf_spine(spines: int, leaves: int, servers: int) -> Fabric:
    """Join every leaf to every spine."""
    ends = [f"h{leaf}.{s}" for leaf in range(leaves) for s in range(servers)]
    pairs = [(f"h{leaf}.{s}", f"leaf{leaf}") for leaf in range(leaves) for s in range(servers)]
    pairs += [(f"leaf{leaf}", f"spine{spine}") for leaf in range(leaves) for spine in range(spines)]
    others = [f"leaf{leaf}" for leaf in range(leaves)] + [f"spine{spine}" for spine in range(spines)]
    return Fabric.alike(f"leaf-spine-{spines}x{leaves}", ends, others, pairs)


def dragonfly(groups: int, routers: int, servers: int) -> Fabric:
    """Build groups whose routers are all joined, with one link between any two groups (Kim et al., ISCA'08).

    `groups, routers, servers`: groups, routers of each group, servers of each router. Links between groups go to
    routers in turn.
    """
    others = [f"r{g}.{r}" for g in range(groups) for r in range(routers)]
    ends = [f"h{g}.{r}.{s}" for g in range(groups) for r in range(routers) for s in range(servers)]
    pairs = [(name, f"r{name[1:].rpartition('.')[0]}") for name in ends]
    pairs += [(f"r{g}.{a}", f"r{g}.{b}") for g in range(groups) for a, b in combinations(range(routers), 2)]
    for one, other in combinations(range(groups), 2):
        pairs.append((f"r{one}.{(other - 1) % routers}", f"r{other}.{one % routers}"))
    return Fabric.alike(f"dragonfly-{groups}x{routers}", ends, others, pairs)


def collected(key: str) -> Fabric:
    """Return a topology of the collection `topohub`, as ``topozoo/Abilene``; flows may end at every node."""
    try:
        import topohub
    except ModuleNotFoundError:
        raise MissingEngineError("topohub", "jigsaw-opt[routing]") from None
    try:
        found: dict[str, Any] = topohub.get(key)
    except KeyError:
        raise UsageError(f"topohub has no topology {printable(key)}", code="unknown-name") from None
    nodes = [str(node["id"]) for node in found["nodes"]]
    pairs = {tuple(sorted((str(edge["source"]), str(edge["target"])))) for edge in found["edges"]}
    return Fabric.alike(key, nodes, (), sorted((a, b) for a, b in pairs if a != b))


def read_graphml(text: str, name: str = "graph") -> Fabric:
    """Read a topology from GraphML text, by the identifiers of its nodes; flows may end at every node."""
    report = Report()
    nodes: set[str] = set()
    pairs: dict[frozenset[str], tuple[str, str]] = {}
    graph = _graph(text, report)
    if graph is not None:
        for place, node in _each(graph, "node"):
            _add_node(place, node.get("id", ""), nodes, report)
        for place, edge in _each(graph, "edge"):
            _add_edge(place, (edge.get("source", ""), edge.get("target", "")), nodes, pairs, report)
        if not nodes:
            report.add("graph", "has no node", code="empty")
    if report.problems:
        raise InvalidInputError(report.problems)
    return Fabric.alike(name, sorted(nodes), (), pairs.values())


def _graph(text: str, report: Report) -> ElementTree.Element | None:
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        report.add("$", "declares a document type, which is not read", code="not-allowed")
        return None
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        report.add("$", f"is no XML: {error}", code="malformed")
        return None
    for element in root.iter():
        if _tag(element) == "graph":
            return element
    report.add("$", "has no graph", code="empty")
    return None


def _tag(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


def _each(graph: ElementTree.Element, tag: str) -> Iterator[tuple[str, ElementTree.Element]]:
    found: Iterable[ElementTree.Element] = (element for element in graph if _tag(element) == tag)
    return ((f"graph.{tag}[{index}]", element) for index, element in enumerate(found))


def _add_node(place: str, name: str, nodes: set[str], report: Report) -> None:
    if not name:
        report.add(place, "has no id", code="missing-field")
    elif name in nodes:
        report.add(place, f"the id {printable(name)} comes twice", code="duplicate-name")
    else:
        nodes.add(name)


def _add_edge(
    place: str,
    ends: tuple[str, str],
    nodes: set[str],
    pairs: dict[frozenset[str], tuple[str, str]],
    report: Report,
) -> None:
    unknown = [end for end in ends if end not in nodes]
    for end in unknown:
        report.add(place, f"ends at {printable(end)}, which is no node" if end else "lacks an end", code="unknown-name")
    if unknown:
        return
    if ends[0] == ends[1]:
        report.add(place, f"joins {printable(ends[0])} to itself", code="duplicate-name")
    elif frozenset(ends) in pairs:
        report.add(place, f"joins {printable(ends[0])} and {printable(ends[1])} a second time", code="duplicate-name")
    pairs[frozenset(ends)] = ends

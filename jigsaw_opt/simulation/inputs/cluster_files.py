"""Clusters from what others write: ``sinfo`` of Slurm, and ``nvidia-smi topo -m``.

``sinfo:FILE`` is what ``sinfo -N -o "%N|%G"`` prints: a node a line under a header, with its generic resources as in
``gpu:a100:8(S:0-1)``. Nodes without a GPU are left out; all others stand behind one switch. A node with GPUs of several
types, or with parts of GPUs (MIG) beside whole ones, is a server for each, as ``node1.a100``, behind a switch of the
node.

``nvidia-smi[,OPTION=VALUE...]:FILE`` is a matrix of GPUs, as `read_gpu_topology` tells.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, takewhile
from typing import Any

from jigsaw_opt.documents import exists
from jigsaw_opt.documents.file_bytes import read_text
from jigsaw_opt.documents.readers.lines import Lines
from jigsaw_opt.documents.readers.slurm.records import nodes_of
from jigsaw_opt.documents.recognising import expecting
from jigsaw_opt.errors import InvalidInputError, UsageError, malformed, out_of_range
from jigsaw_opt.instances.gpus import nvlink_bandwidth, server
from jigsaw_opt.instances.sources import instance_from
from jigsaw_opt.instances.topologies import star
from jigsaw_opt.problem.cluster import Cluster, Link, Server
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.model import Model
from jigsaw_opt.problem.rules.report import Report
from jigsaw_opt.problem.workload import MOST_GPUS
from jigsaw_opt.text import suggestion

_GB = 10**9
BANDWIDTHS: Mapping[str, int] = {
    "NV": 25 * _GB,
    "PIX": 12 * _GB,
    "PXB": 12 * _GB,
    "PHB": 12 * _GB,
    "NODE": 12 * _GB,
    "SYS": 10 * _GB,
}
"""Bytes a second of a class, one direction, where nothing is stated: an NVLink of the second to the fourth generation,
of which ``NV4`` has four (one of the fifth is twice as fast); PCI Express 3.0 with 16 lanes; the link between two
sockets."""
_APART = "SYS"
_FORMER_NAMES = {"SOC": _APART, "PSB": "PIX"}
"""How older drivers, and DCGM, call a class."""
_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_GPU = re.compile(r"GPU[0-9]{1,3}")
_CELL = re.compile(r"NV(?P<links>[1-9][0-9]?)|PIX|PXB|PHB|NODE|SYS")
_OPTION = re.compile(r"(?P<key>\w+)=(?P<value>[\w.-]+)", re.ASCII)
_COUNT = re.compile(r"[1-9][0-9]{0,6}")
_AMOUNT = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6})?")
_RATES = "=GB/s, ".join(["net", *BANDWIDTHS])
Pairs = Mapping[tuple[int, int], str]


def read_gpu_topology(data: bytes | str, source: str, options: str = "") -> Cluster:
    """Return the cluster of equal machines of which the text shows one.

    `options`: words as in ``machines=4,type=a100,memory=80,net=12.5,SYS=16``: GB for the memory of a GPU, GB/s for all
    others.
    """
    chosen = _options(options)
    lines = Lines(data, source)
    names, cells = _matrix(lines)
    pairs = _pairs(lines, names, cells)
    lines.raise_if_any()
    require_count(len(names) * chosen["machines"])
    islands = tuple(_islands(len(names), pairs, chosen))
    hosts = {f"net{k}": _host(f"host{k}", islands, chosen) for k in range(chosen["machines"])}
    return joined(hosts, chosen["net"]) if len(hosts) > 1 else hosts["net0"]


def _options(text: str) -> Mapping[str, Any]:
    """Return the value of each option, and the rate of each class in bytes a second; a memory of 0 is the usual one."""
    report, chosen = Report(), dict[str, Any](machines=1, type="gpu", memory=0, net=LINK_BANDWIDTH)
    for word in text.split(",") if text else ():
        found = _OPTION.fullmatch(word)
        key, value = (found["key"], found["value"]) if found else ("", "")
        known = key != "type" and key in {*chosen, *BANDWIDTHS}
        if key == "machines":
            chosen[key] = int(value) if _COUNT.fullmatch(value) else 0
        elif known:
            chosen[key] = round(float(value) * _GB) if _AMOUNT.fullmatch(value) else 0
        elif key == "type":
            chosen[key] = value.lower()
        if not (key and chosen.get(key)):
            told = f"{word!r} is none of machines=N, type=NAME, memory=GB, {_RATES}=GB/s, each number above 0"
            report.add("cluster", told, code="out-of-range" if known else "unknown-option")
    if report.problems:
        raise UsageError.of(report.problems)
    return {**BANDWIDTHS, "NV": nvlink_bandwidth(chosen["type"]), **chosen}


def _matrix(lines: Lines) -> tuple[list[str], dict[str, tuple[int, list[str]]]]:
    """Return the names of the columns with GPUs, and for each GPU its line number and its cells under these columns."""
    names: list[str] = []
    places: list[int] = []
    rows: dict[str, tuple[int, list[str]]] = {}
    for number, line in lines:
        first, *rest = _COLOUR.sub("", line).split() or [""]
        if first.startswith("Legend"):
            break
        if not _GPU.fullmatch(first):
            continue
        if not names:
            heads = list(takewhile(lambda head: head != "CPU", (first, *rest)))
            places = [k for k, head in enumerate(heads) if _GPU.fullmatch(head)]
            names = [heads[k] for k in places]
        elif first in rows:
            lines.add(number, f"{first} has a row already", code="duplicate-name")
        else:
            rows[first] = number, [_FORMER_NAMES.get(rest[k], rest[k]) for k in places if k < len(rest)]
    return names, rows


def _pairs(lines: Lines, names: Sequence[str], rows: Mapping[str, tuple[int, list[str]]]) -> Pairs:
    """Return the connection of each two GPUs, with what is wrong with the matrix noted."""
    if not names:
        lines.add(None, "has no line that begins with GPU0, as nvidia-smi topo -m prints it", code="unknown-format")
    for name in dict.fromkeys([*names, *rows]):
        if name not in rows:
            lines.add(None, f"{name} has no row", code="missing-field")
        elif names.count(name) != 1:
            lines.add(rows[name][0], f"{name} has {names.count(name)} columns", code="wrong-count")
        else:
            _check_row(lines, names, name, *rows[name])
    if lines.problems:
        return {}
    pairs = {}
    for one, other in combinations(range(len(names)), 2):
        (number, row), back = rows[names[other]], rows[names[one]][1][other]
        if row[one] != back:
            told = f"{names[other]} to {names[one]} is {row[one]}, and the other way {back}"
            lines.add(number, told, code="contradiction")
        pairs[one, other] = back
    return pairs


def _check_row(lines: Lines, names: Sequence[str], name: str, number: int, row: Sequence[str]) -> None:
    if len(row) != len(names):
        lines.add(number, f"{name} has cells for {len(row)} of {len(names)} GPUs", code="wrong-count")
        return
    for other, cell in zip(names, row, strict=True):
        good = cell == "X" if other == name else _CELL.fullmatch(cell)
        if not good:
            known = "X" if other == name else f"one of NV#, {', '.join([*BANDWIDTHS][1:])}"
            lines.add(number, f"{name} to {other} is {known}, not {cell[:20]!r}", code="unknown-value")


def _islands(count: int, pairs: Pairs, rates: Mapping[str, int]) -> Iterator[tuple[int, int | None]]:
    """Yield the number of GPUs of each server, and the rate of its fabric; None where it has one GPU.

    The slowest connection that is needed is the slowest one of a maximum spanning tree.
    """
    import networkx as nx

    graph: nx.Graph[int] = nx.empty_graph(count)
    graph.add_weighted_edges_from((*pair, _rate(cell, rates)) for pair, cell in pairs.items() if cell != _APART)
    tree = nx.maximum_spanning_tree(graph)
    for part in nx.connected_components(tree):
        yield len(part), min(nx.get_edge_attributes(tree.subgraph(part), "weight").values(), default=None)


def _rate(cell: str, rates: Mapping[str, int]) -> int:
    found = _CELL.fullmatch(cell)
    assert found is not None
    return int(found["links"]) * rates["NV"] if found["links"] else rates[cell]


def _host(name: str, islands: Sequence[tuple[int, int | None]], options: Mapping[str, Any]) -> Cluster:
    """Return a machine of so many servers."""
    names = [name] if len(islands) == 1 else [f"{name}.{k}" for k in range(len(islands))]
    servers = [_server(each, *island, options) for each, island in zip(names, islands, strict=True)]
    return machine(name, servers, options[_APART])


def _server(name: str, gpus: int, rate: int | None, options: Mapping[str, Any]) -> Server:
    usual = server(name, options["type"], gpus)
    memory, fabric = options["memory"] or usual.gpu_memory, rate or usual.fabric_bandwidth
    return replace(usual, gpu_memory=memory, fabric_bandwidth=fabric)


_PART = re.compile(r"(?P<servers>[0-9]{1,6})x(?P<gpus>[0-9]{1,6})(?::(?P<type>[^+:/]+))?")
BEGINS_AS_GRID = re.compile(r"[0-9]+x[0-9]|\w{1,4}x\w{1,4}:")
"""What a text begins with that `grid` does not read and that was most likely meant for it."""
_GPU_TYPE = "gpu"
LINK_BANDWIDTH = 1_250_000_000
"""Bytes a second of a server's link where nothing is stated: 10 Gb/s."""


def require_count(gpus: int) -> None:
    """Refuse a number of GPUs that cannot be simulated one by one."""
    if not 1 <= gpus <= MOST_GPUS:
        raise out_of_range("cluster", f"a cluster has between 1 and {MOST_GPUS} GPUs, not {gpus}")


def grid(text: str) -> Cluster | None:
    """Return a cluster from text as in ``16x4:v100`` or ``6x4:aws+3x8:rtx``: servers x GPUs of each, and their type.

    All servers stand behind one switch at 10 Gb/s. A type that means one with a data sheet, by its words, has
    its memory and fabric, any other 16 GB and 12 GB/s.

    None where the text does not read so.
    """
    parts = [_PART.fullmatch(part) for part in text.split("+")]
    servers: list[Server] = []
    for part in parts:
        if part is None:
            return None
        count, gpus = int(part["servers"]), int(part["gpus"])
        require_count(count * gpus)
        servers += [server(f"s{len(servers) + k}", part["type"] or _GPU_TYPE, gpus) for k in range(count)]
    return star(servers, LINK_BANDWIDTH, 0)


def machine(name: str, servers: Sequence[Server], bandwidth: int) -> Cluster:
    """Return the servers of a machine; where there are several they share a switch of its own."""
    switches = (f"{name}-sys",) if len(servers) > 1 else ()
    links = (Link(one.name, (one.name, switch), bandwidth) for switch in switches for one in servers)
    return Cluster(tuple(servers), switches, tuple(links))


def joined(machines: Mapping[str, Cluster], bandwidth: int) -> Cluster:
    """Return machines behind one switch, each over the link of its name, which is plugged in at its own switch if any.

    A machine without one has a single server, and the link leads there.
    """
    plugs = {name: one.switches[0] if one.switches else one.servers[0].name for name, one in machines.items()}
    servers = tuple(server for one in machines.values() for server in one.servers)
    switches = tuple(switch for one in machines.values() for switch in one.switches)
    inner = tuple(link for one in machines.values() for link in one.links)
    outer = (Link(name, (plug, "switch"), bandwidth) for name, plug in plugs.items())
    return Cluster(servers, (*switches, "switch"), (*inner, *outer))


_BETWEEN = re.compile(r",(?![^(]*\))")
"""What stands between resources; sockets and cores in brackets have commas of their own."""
_GPUS = re.compile(r"gpu(?::(?![0-9]{1,6}$)(?P<type>[^:,()]+))?(?::no_consume)?(?::(?P<gpus>[0-9]{1,6}))?")
"""GPUs of a node; without a number there is one."""
_WITH_OPTIONS = "nvidia-smi"


def read_cluster(given: str | Cluster | Instance) -> tuple[Cluster, Mapping[str, Model] | None]:
    """Return the cluster of a simulation, and the models of the instance that it comes from."""
    found = _named(given) if isinstance(given, str) else given
    cluster, models = (found, None) if isinstance(found, Cluster) else (found.cluster, found.models)
    require_count(cluster.gpu_count)
    cluster.require_no_capacities("a simulation keeps none")
    return cluster, models


def _named(text: str) -> Cluster | Instance:
    """Return a cluster in words, or an instance from a file or by name."""
    is_file = exists(text)
    made = None if is_file else cluster_in_words(text)
    if made is not None:
        return made
    if BEGINS_AS_GRID.match(text) and not is_file:
        raise malformed("cluster", f"SERVERSxGPUS:TYPE is wanted, as in 2x4:a100 or 2x4:v100+1x8:a100, not {text!r}")
    try:
        return instance_from(text)
    except InvalidInputError as error:
        if is_file:
            raise
        hint = "a cluster in words is SERVERSxGPUS:TYPE, as in 2x4:a100"
        raise InvalidInputError(replace(one, hint=one.hint or hint) for one in error.problems) from error


def cluster_in_words(text: str) -> Cluster | None:
    """Read a cluster as on the command line: ``FORMAT[,OPTIONS]:FILE``, or as `grid`; None for neither."""
    words, colon, path = text.partition(":")
    name, comma, options = words.partition(",")
    if not colon or name not in FORMATS:
        made, hint = grid(text), suggestion(name, FORMATS) if colon else ""
        if made is None and hint:
            raise UsageError(f"no format {name!r} of clusters; {hint}", code="unknown-value", path="cluster")
        return made
    if comma and name != _WITH_OPTIONS:
        raise UsageError(f"cluster {text}: {name} takes no options", code="unknown-option", path="cluster")
    data = read_text(path)
    with expecting(data, path, name):
        return read_gpu_topology(data, path, options) if comma else FORMATS[name](data, path)


def read_sinfo(data: bytes | str, source: str) -> Cluster:
    """Return the nodes that Slurm knows, each once."""
    lines = Lines(data, source)
    nodes: dict[str, tuple[Server, ...]] = {}
    for number, line in lines:
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) != 2:
            message = f"{len(cells)} cells; they are NODELIST|GRES, as sinfo -N -o '%N|%G' prints them"
            lines.add(number, message, code="wrong-count")
        elif cells != ["NODELIST", "GRES"]:
            _add_nodes(lines, number, cells, nodes)
    if not any(nodes.values()) and not lines.problems:
        lines.add(None, "has no node with a GPU", code="empty")
    lines.raise_if_any()
    machines = {name: machine(name, servers, BANDWIDTHS["SYS"]) for name, servers in nodes.items() if servers}
    return joined(machines, LINK_BANDWIDTH)


def _add_nodes(lines: Lines, number: int, cells: list[str], nodes: dict[str, tuple[Server, ...]]) -> None:
    """Add the nodes of a line, which may be a list as ``gpu[1-4]``."""
    names = nodes_of(cells[0])
    counts = Counter[str]()
    for resource in (one.partition("(")[0].strip() for one in _BETWEEN.split(cells[1])):
        match = _GPUS.fullmatch(resource)
        if match is not None:
            counts[(match["type"] or "gpu").lower()] += int(match["gpus"] or 1)
        elif resource.partition(":")[0] == "gpu":
            lines.add(number, f"{resource[:40]!r} is no number of GPUs, as in gpu:a100:8", code="malformed")
    if names is None or "/" in cells[0]:
        lines.add(number, f"{cells[0]!r} is no name of a node, and no list of them", code="malformed")
        return
    counts = +counts
    for name in names:
        several = len(counts) > 1
        made = tuple(server(f"{name}.{kind}" if several else name, kind, gpus) for kind, gpus in counts.items())
        if nodes.setdefault(name, made) != made:
            lines.add(number, f"node {name!r} has other GPUs than in a line before", code="contradiction")


FORMATS: Mapping[str, Callable[[bytes | str, str], Cluster]] = {"sinfo": read_sinfo, _WITH_OPTIONS: read_gpu_topology}
"""Readers by the name before the colon."""

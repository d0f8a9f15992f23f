"""Clusters of machines whose GPUs are joined as ``nvidia-smi topo -m`` prints it.

GPUs that connections better than ``SYS`` join, be it over other GPUs, are one server. Its fabric is as fast as the
slowest connection that is needed to join them all. The servers of one machine share a switch ``host0-sys``, over links
as fast as ``SYS``; machines are joined by one switch. Columns and rows of network cards are left aside.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, takewhile
from typing import Any

from jigsaw_opt.documents.readers.lines import Lines
from jigsaw_opt.errors import UsageError
from jigsaw_opt.instances.gpus import nvlink_bandwidth, server
from jigsaw_opt.problem.cluster import Cluster, Server
from jigsaw_opt.problem.rules.report import Report
from jigsaw_opt.simulation.inputs.clusters import LINK_BANDWIDTH, joined, machine, require_count

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

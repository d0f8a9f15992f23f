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
from collections.abc import Callable, Mapping
from dataclasses import replace

from jigsaw_opt.documents import exists
from jigsaw_opt.documents.file_bytes import read_text
from jigsaw_opt.documents.readers.lines import Lines
from jigsaw_opt.documents.readers.slurm.records import nodes_of
from jigsaw_opt.documents.recognising import expecting
from jigsaw_opt.errors import InvalidInputError, UsageError, malformed
from jigsaw_opt.instances.gpus import server
from jigsaw_opt.instances.sources import instance_from
from jigsaw_opt.problem.cluster import Cluster, Server
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.model import Model
from jigsaw_opt.simulation.inputs.clusters import (
    BEGINS_AS_GRID,
    LINK_BANDWIDTH,
    grid,
    joined,
    machine,
    require_count,
)
from jigsaw_opt.simulation.inputs.gpu_topology import BANDWIDTHS, read_gpu_topology
from jigsaw_opt.text import suggestion

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


FORMATS: Mapping[str, Callable[[bytes | str, str], Cluster]] = {
    "sinfo": read_sinfo,
    _WITH_OPTIONS: read_gpu_topology,
}
"""Readers by the name before the colon."""

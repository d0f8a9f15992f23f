"""Clusters of equal servers from a few characters."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from jigsaw_opt.errors import out_of_range
from jigsaw_opt.instances.gpus import server
from jigsaw_opt.instances.topologies import star
from jigsaw_opt.problem.cluster import Cluster, Link, Server
from jigsaw_opt.problem.workload import MOST_GPUS

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

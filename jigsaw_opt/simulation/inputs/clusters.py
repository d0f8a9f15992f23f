"""Clusters of equal servers from a few characters."""

from __future__ import annotations

import re
from collections.abc import Sequence

from jigsaw_opt.errors import out_of_range
from jigsaw_opt.instances.gpus import data_sheet, memory_in, server, type_name
from jigsaw_opt.instances.topologies import star
from jigsaw_opt.problem.cluster import Cluster, Server
from jigsaw_opt.problem.workload import MOST_GPUS

_PART = re.compile(r"(?P<servers>[0-9]{1,6})x(?P<gpus>[0-9]{1,6})(?::(?P<type>[^+:/]+))?")
_BEGINNING = re.compile(r"[0-9]+x[0-9]|\w{1,4}x\w{1,4}:")
_GPU_TYPE = "gpu"
_GPU_MEMORY = 16 * 10**9
_FABRIC_BANDWIDTH = 12 * 10**9
LINK_BANDWIDTH = 1_250_000_000
"""Bytes a second of a server's link where nothing is stated: 10 Gb/s."""


def require_count(gpus: int, text: str) -> None:
    """Refuse a number of GPUs that cannot be simulated one by one."""
    if not 1 <= gpus <= MOST_GPUS:
        raise out_of_range("cluster", f"cluster {text}: between 1 and {MOST_GPUS} GPUs, not {gpus}")


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
        require_count(count * gpus, text)
        servers += [typed_server(f"s{len(servers) + k}", part["type"] or _GPU_TYPE, gpus) for k in range(count)]
    return behind_one_switch(servers)


def begins_as_grid(text: str) -> bool:
    """Return whether a text that `grid` does not read was most likely meant for it."""
    return _BEGINNING.match(text) is not None


def behind_one_switch(servers: Sequence[Server]) -> Cluster:
    """Return servers behind one switch at 10 Gb/s."""
    return star(servers, LINK_BANDWIDTH, 0)


def typed_server(name: str, gpu_type: str, gpus: int) -> Server:
    """Return a server with the memory and fabric of its type's data sheet, or else 16 GB and 12 GB/s.

    The name of a type without a data sheet may tell its memory.
    """
    gpu_type = type_name(gpu_type)
    if data_sheet(gpu_type) is not None:
        return server(name, gpu_type, gpus)
    return Server(name, gpu_type, gpus, memory_in(gpu_type) or _GPU_MEMORY, _FABRIC_BANDWIDTH)

"""Windows of contiguous servers that a job may be put on, and how many of its workers each server takes there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from jigsaw_opt.problem.clock import checking_deadline
from jigsaw_opt.problem.cluster import Channel, Routes
from jigsaw_opt.problem.operations import OperationGraph
from jigsaw_opt.solvers.assignments.layout import Layout

__all__ = ["ServerWindow", "windows"]


class ServerWindow(NamedTuple):
    """Servers for a job.

    `fewest, most`: workers that each of them takes at least and at most. The channel is the same for all numbers
    between.
    """

    servers: tuple[int, ...]
    fewest: tuple[int, ...]
    most: tuple[int, ...]
    channel: Channel


def windows(layout: Layout, job: OperationGraph) -> tuple[list[ServerWindow], list[ServerWindow]]:
    """Return the fewest contiguous servers from each one on that have a GPU for each worker, and wider windows.

    The wider ones are a reserve. They have one or two servers more, or twice or three times as many. Contiguous means
    in the order of the cluster, among the servers that may run the job and that routes join.
    """
    usable: dict[int, list[int]] = {}
    routes = layout.routes.under(job.route_policy)
    for s, server in enumerate(layout.servers):
        if server.gpu_type in job.gpu_types:
            usable.setdefault(routes.component[s], []).append(s)
    narrow: list[ServerWindow] = []
    wide: list[ServerWindow] = []
    for servers in usable.values():
        for at in checking_deadline(range(len(servers))):
            room = fewest = 0
            joined = list(islice(routes.mutual(islice(servers, at, None)), job.slots))
            for count, last in enumerate(joined, 1):
                room += layout.servers[last].gpus
                if room >= job.slots and (not fewest or count in (fewest + 1, fewest + 2, 2 * fewest, 3 * fewest)):
                    found = _with_workers(layout, routes, joined[:count], job.slots)
                    (wide if fewest else narrow).extend(found)
                    fewest = fewest or count
                if fewest and count >= 3 * fewest:
                    break
    return narrow, wide


def _with_workers(layout: Layout, routes: Routes, servers: Sequence[int], slots: int) -> Iterator[ServerWindow]:
    """Yield ways to share out the workers: any, if all give one channel; else all but the rest on full servers."""
    gpus = [min(slots, layout.servers[s].gpus) for s in servers]
    if len(servers) == 1:
        channel = routes.channel({servers[0]: slots})
        if channel is not None:
            yield ServerWindow((servers[0],), (slots,), (slots,), channel)
        return
    ones, twos = (routes.channel(dict.fromkeys(servers, count)) for count in (1, 2))
    if ones is not None and ones == twos:
        yield ServerWindow(tuple(servers), (1,) * len(servers), tuple(gpus), ones)
        return
    for counts in dict.fromkeys((_filled(gpus, slots), _filled(gpus[::-1], slots)[::-1])):
        channel = routes.channel(dict(zip(servers, counts, strict=True)))
        if channel is not None:
            yield ServerWindow(tuple(servers), counts, counts, channel)


def _filled(gpus: Sequence[int], slots: int) -> tuple[int, ...]:
    """Return workers by server: one each, and of the others as many as have room from the first server on."""
    counts, left = [1] * len(gpus), slots - len(gpus)
    for n, room in enumerate(gpus):
        more = min(left, room - 1)
        counts[n] += more
        left -= more
    return tuple(counts)

"""Which links the transfers of a job use, and how long that makes them (SPEC section 3, *Ring* and *Transfer*).

A transfer lasts ``A(rate) + steps * latency``. The rate is the smallest and the latency the largest among
the links and shared fabrics in use, so each of them only ever pushes a transfer up one *ladder*: step ``r``
is climbed where something in use is at least as slow as value ``r``. This states the channel exactly
without listing sets of servers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING, cast

from jigsaw_opt.formulations.cpsat_timetable.ladder import Ladder, climb, ladder
from jigsaw_opt.formulations.cpsat_timetable.variables import Ground, JobVariables, add_any
from jigsaw_opt.problem.cluster import Channel

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

    from jigsaw_opt.formulations.cpsat_timetable.variables import Expression

__all__ = ["Network", "Pace", "add_links", "add_pace", "transfer_expression"]


@dataclass(frozen=True, slots=True)
class Pace:
    """Rate and latency of the channel of a job."""

    rate: Ladder
    latency: Ladder

    @property
    def fixed(self) -> bool:
        """Whether every placement has the same rate and latency."""
        return not self.rate.steps and not self.latency.steps

    @property
    def best(self) -> Channel:
        """Largest rate and smallest latency of any placement."""
        return Channel((), self.rate.values[0], self.latency.values[0])

    @property
    def worst(self) -> Channel:
        """Smallest rate and largest latency of any placement."""
        return Channel((), self.rate.values[-1], self.latency.values[-1])


class Network:
    """What the routes have in common for all jobs.

    Parameters
    ----------
    ground
        GPUs and routes.
    """

    def __init__(self, ground: Ground) -> None:
        self.ground = ground
        self.cluster = ground.pieces.cluster

    @cached_property
    def sides(self) -> dict[int, frozenset[int]]:
        """For each link that is the only way between its ends, the servers on one side of it."""
        import networkx as nx

        routes = self.ground.pieces.routes
        servers = {server.name: s for s, server in enumerate(self.cluster.servers)}
        graph = routes.graph.copy()
        sides = {}
        # The published types say that bridges are nodes; they are edges.
        for first, second in cast("list[tuple[str, str]]", list(nx.bridges(graph))):
            link = graph[first][second]["link"]
            graph.remove_edge(first, second)
            sides[link] = frozenset(servers[n] for n in nx.node_connected_component(graph, first) if n in servers)
            graph.add_edge(first, second, link=link)
        return sides

    def routes(self, servers: Sequence[int]) -> dict[int, list[tuple[int, int]]]:
        """For each link, the pairs of the given servers whose route it is part of."""
        pairs: dict[int, list[tuple[int, int]]] = {}
        for pair in combinations(servers, 2):
            for link in self.ground.pieces.routes.between(*pair) or ():
                pairs.setdefault(link, []).append(pair)
        return pairs


def add_links(model: cp_model.CpModel, network: Network, it: JobVariables) -> None:
    """SPEC section 3, *Ring*: a job uses the links on the routes between neighbours of its ring."""
    if it.job.slots < 2 or not network.cluster.links:
        return
    # Links on the routes of the same pairs of servers are used together: one literal serves them all.
    known: dict[tuple[tuple[int, int], ...], cp_model.IntVar] = {}
    for link, pairs in sorted(network.routes(tuple(it.used)).items()):
        if tuple(pairs) in known:
            it.links[link] = known[tuple(pairs)]
            continue
        literal = model.new_bool_var(f"{it.job.name} over link {link}")
        it.links[link] = known[tuple(pairs)] = literal
        if link in network.sides:
            _bridge(model, network, it, literal, network.sides[link])
        else:
            _ring_neighbours(model, network, it, literal, pairs)


def _bridge(
    model: cp_model.CpModel, network: Network, it: JobVariables, literal: cp_model.IntVar, side: frozenset[int]
) -> None:
    """A closed ring crosses the only way between two sides exactly where it has servers on both."""
    part = {network.ground.pieces.routes.component[s] for s in side}
    inside = [s for s in it.used if network.ground.pieces.routes.component[s] in part]
    near, far = [s for s in inside if s in side], [s for s in inside if s not in side]
    first, second = (_any_used(model, network, it, servers) for servers in (near, far))
    model.add_bool_or([literal, *(~x for x in (first, second) if x is not None)])
    if first is not None and second is not None:
        for x in (first, second):
            model.add_implication(literal, x)


def _any_used(
    model: cp_model.CpModel, network: Network, it: JobVariables, servers: Sequence[int]
) -> cp_model.IntVar | None:
    """Literal of a worker on one of the servers."""
    if len(servers) == 1:
        return it.used[servers[0]]
    literal = model.new_bool_var("")
    add_any(model, literal, [it.used[s] for s in servers])
    return literal


def _ring_neighbours(
    model: cp_model.CpModel,
    network: Network,
    it: JobVariables,
    literal: cp_model.IntVar,
    pairs: Iterable[tuple[int, int]],
) -> None:
    """Two servers in use are neighbours where none between them is in use, or none outside (the ring closes there)."""
    component = network.ground.pieces.routes.component
    for first, second in pairs:
        others = [s for s in it.used if component[s] == component[first] and s not in (first, second)]
        both = [~it.used[first], ~it.used[second], literal]
        between = [it.used[s] for s in others if first < s < second]
        outside = [it.used[s] for s in others if not first < s < second]
        model.add_bool_or([*both, *between])
        model.add_bool_or([*both, *outside])


def add_pace(model: cp_model.CpModel, network: Network, it: JobVariables) -> Pace:
    """SPEC section 3, *Ring*: smallest rate and largest latency among links and shared fabrics in use."""
    if it.job.slots < 2:
        return Pace(Ladder((1,), ()), Ladder((0,), ()))
    cluster = network.cluster
    uses = [(cluster.links[k].bandwidth, cluster.links[k].latency_us, literal) for k, literal in it.links.items()]
    for s in it.used:
        workers = it.on_server(network.ground, s)
        if len(workers) > 1:
            shared = _shared(model, workers)
            uses.append((cluster.servers[s].fabric_bandwidth, cluster.servers[s].fabric_latency_us, shared))
    rate = ladder(model, [(-rate, literal) for rate, _, literal in uses])
    latency = ladder(model, [(latency, literal) for _, latency, literal in uses])
    return Pace(Ladder(tuple(-value for value in rate.values), rate.steps), latency)


def _shared(model: cp_model.CpModel, workers: Sequence[cp_model.IntVar]) -> cp_model.IntVar:
    """Literal that two or more of the workers force."""
    literal = model.new_bool_var("")
    model.add(sum(workers) <= 1 + (len(workers) - 1) * literal)
    return literal


def transfer_expression(it: JobVariables, pace: Pace, bucket: int, contributors: int) -> Expression:
    """Duration of a transfer with a known number of contributors; an integer where the pace is fixed."""
    moves = [it.job.transfer_us(bucket, contributors, Channel((), rate, 0)) for rate in pace.rate.values]
    steps = contributors + it.job.slots - 2
    waits = [steps * latency for latency in pace.latency.values]
    return climb(moves, pace.rate.steps) + climb(waits, pace.latency.steps)

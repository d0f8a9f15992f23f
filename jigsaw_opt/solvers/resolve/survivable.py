"""Plans that outlive the failure of any one link: no job stops, and with the order kept all guarantees are kept.

A link is a bridge where its failure parts the cluster. Between servers that no bridge parts, a least path has no
bridge, and a job on servers that one parts stops with it (Tarjan, *A note on finding the bridges of a graph*, 1974). So
without route policies, a cluster without its bridges has just the placements that stop for no link, on the same routes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from time import monotonic
from typing import Any

from jigsaw_opt.documents import instance_sha256
from jigsaw_opt.problem.cluster import Cluster, Link, Routes
from jigsaw_opt.problem.compiled.operations import Operations, compile_instance
from jigsaw_opt.problem.compiled.timetable import Timetable
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.plan import Plan
from jigsaw_opt.problem.rules.keyed import altered
from jigsaw_opt.solvers.certification import certified
from jigsaw_opt.solvers.correct import require_correct
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.resolve.failures import FailedPart, PhaseEffects
from jigsaw_opt.solvers.resolve.kept_order import KeptOrder, timetable_in
from jigsaw_opt.solvers.result import Event, LiveEvent, Report, Result, Status
from jigsaw_opt.solvers.run import run
from jigsaw_opt.solvers.solve_state import SolveState
from jigsaw_opt.solvers.solve_state.proofs import first_bound
from jigsaw_opt.solvers.solve_state.request import Condition, Opening, Request, Solver

_FIRST_SHARE = 0.3
"""Share of the limits for plans to begin with."""


def solve_survivable(request: Request, method: Solver, on_event: Report | None = None) -> Result:
    """Carry out a request as `run` does, among plans that outlive the failure of any one link.

    Its bound is one of all plans, and ``optimal`` means optimal among all. The status is ``infeasible`` where it is
    proven that no plan is such a one, and ``unknown`` where none was found.
    """
    instance, options = request.instance, request.options
    conditions = (LinkFailures(instance.cluster).outlived,)
    dead = bridges(instance.cluster) if not instance.policed else frozenset()
    narrow = altered(instance, cluster=instance.cluster.without(dead)) if dead else instance
    openings: tuple[Opening, ...] = ()
    if instance.guaranteed_jobs and instance.cluster.links:
        openings = (_FirstPlans(method, _shared(options, _FIRST_SHARE / 2), conditions),)
    if not dead:
        return _told(run(Request(narrow, options, openings, conditions), method, on_event))
    started = monotonic()
    # What is proven of the narrower cluster is not so of all plans.
    bound = first_bound(compile_instance(instance), options)

    def of_all(event: Event) -> Event:
        least = min(event.bound, bound.value)
        return LiveEvent.of(event._replace(bound=least), lambda: _with_bound(instance, event.plan, least))

    def report(event: Event) -> None:
        if on_event is not None:
            on_event(of_all(event))

    result = _told(run(Request(narrow, options, openings, conditions), method, report))
    trajectory = tuple(event._replace(bound=min(event.bound, bound.value)) for event in result.trajectory)
    plan = _with_bound(instance, result.plan, bound.value)
    status = result.status
    if plan is not None:
        require_correct(instance, plan, "what makes plans survivable")
        status = Status.OPTIMAL if plan.status == "optimal" else Status.FEASIBLE
    result = replace(result, bound=bound.value, proof=bound.proof, bound_proof=None)
    result = replace(result, status=status, plan=plan, trajectory=trajectory)
    return certified(instance, result, started, options)


def _told(result: Result) -> Result:
    """Return a result whose conflicts say what they are about."""
    if result.status is not Status.INFEASIBLE:
        return result
    told = (replace(each, message=f"no plan outlives every link: {each.message}") for each in result.conflicts)
    return replace(result, conflicts=tuple(told))


@dataclass(frozen=True, slots=True)
class _FirstPlans(Opening):
    """Offers plans that are likely to outlive the failure of a link.

    In one of them every job is on one server; in the other, links are no faster than the ways around them. The latter
    is timed anew in its order with the links as they are.
    """

    method: Solver
    options: Options
    conditions: tuple[Condition, ...]

    def offer(self, solve_state: SolveState) -> None:
        """Offer the plans, each made in its share of the limits."""
        instance = solve_state.operations.instance
        cluster, options = instance.cluster, replace(self.options, survivable=False)
        apart = altered(instance, cluster=cluster.without({link.name for link in cluster.links}))
        plan = run(Request(apart, options, (), self.conditions), self.method).plan
        if plan is not None:
            solve_state.offer(timetable_in(plan))
        slow = altered(cluster, links=tuple(_slowed(cluster)))
        plan = run(Request(altered(instance, cluster=slow), options), self.method).plan
        if plan is not None:
            order, routes = KeptOrder.of(instance, plan), Routes(cluster)
            timing = order.timed((), (), routes)
            if timing is not None:
                solve_state.offer(order.timetable(timing, (), routes)[1])
        work = options.work_limit
        solve_state.spend(0.0 if work is None else 2 * work)


def _slowed(cluster: Cluster) -> Iterator[Link]:
    """Yield each link with the bandwidth and latency of the way around it, where that is slower."""
    import networkx as nx

    graph: nx.Graph[Any] = nx.Graph()
    graph.add_edges_from((*link.ends, {"link": link}) for link in cluster.links)
    for link in cluster.links:
        graph.remove_edge(*link.ends)
        if nx.has_path(graph, *link.ends):
            way = nx.shortest_path(graph, *link.ends)
            around = [graph[one][other]["link"] for one, other in pairwise(way)]
            bandwidth = min([link.bandwidth, *(neighbour.bandwidth for neighbour in around)])
            latency = max([link.latency_us, *(neighbour.latency_us for neighbour in around)])
            yield altered(link, bandwidth=bandwidth, latency_us=latency)
        else:
            yield link
        graph.add_edge(*link.ends, link=link)


def bridges(cluster: Cluster) -> frozenset[str]:
    """Return the names of the links whose removal would separate two parts of the cluster."""
    import networkx as nx

    graph: nx.Graph[Any] = nx.Graph()
    graph.add_edges_from((*link.ends, {"name": link.name}) for link in cluster.links)
    return frozenset(graph[one][other]["name"] for one, other in nx.bridges(graph))


def _shared(options: Options, share: float) -> Options:
    """Return the options with a share of their limits of time and work."""
    limits = [None if limit is None else share * limit for limit in (options.time_limit, options.work_limit)]
    return replace(options, time_limit=limits[0], work_limit=limits[1])


class LinkFailures:
    """The failure of each link of a cluster alone."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._routes: dict[frozenset[str], Routes] = {}
        self._worst: str | None = None

    def outlived(self, operations: Operations, timetable: Timetable) -> bool:
        """Return whether no failure of a link stops a job or, with the order kept, makes one break a guarantee."""
        effects = PhaseEffects(KeptOrder(self._whole(operations), timetable), self._without)
        # What broke the last plan is likely to break this one.
        links = sorted(effects.used_links, key=lambda name: name != self._worst)
        failures = [[FailedPart("link", name)] for name in links]
        if any(map(effects.stops, failures)):
            return False
        for failed in failures if operations.instance.guaranteed_jobs else ():
            effect = effects.of(failed)
            if effect.broken or effect.objective is None:
                self._worst = failed[0].name
                return False
        return True

    def _whole(self, operations: Operations) -> Operations:
        """Return the instance with all of its links."""
        instance = altered(operations.instance, cluster=self._cluster)
        return replace(operations, instance=instance, cluster=self._cluster).with_routes(self._without(frozenset()))

    def _without(self, dead: frozenset[str]) -> Routes:
        """Return the routes without some links, computed once."""
        if dead not in self._routes:
            self._routes[dead] = Routes(self._cluster.without(dead))
        return self._routes[dead]


def _with_bound(instance: Instance, plan: Plan | None, bound: int) -> Plan | None:
    """Return a plan of the narrower cluster as one of the instance, with a bound of all plans."""
    if plan is None:
        return None
    return replace(
        plan,
        instance_sha256=instance_sha256(instance),
        bound=bound,
        status="optimal" if plan.objective <= bound else "feasible",
    )

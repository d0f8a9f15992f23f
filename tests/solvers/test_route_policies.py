"""Route policies: exact models find the optimum of brute force, bounds stay below it, and heuristics keep them."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from jigsaw_opt.problem import Cluster, Instance, Job, Link, Model, Segment, Server, compile_instance
from jigsaw_opt.problem.network.route_policy import RoutePolicy
from jigsaw_opt.solvers.bounds import lower_bound
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.placement.assignment import ProblemData
from jigsaw_opt.solvers.placement.layout import demands
from jigsaw_opt.solvers.result import Status
from jigsaw_opt.solvers.search.cyclic.candidate_table import CandidateTable
from jigsaw_opt.solvers.solve import solve
from tests.oracle import optimum
from tests.random_instances import GOALS, random_instance, with_route_policies
from tests.random_task_graphs import random_mixed_instance, random_task_graph_instance

pytest.importorskip("ortools")

from tests.refusals import carries
from tests.task_graph_oracle import task_graph_optimum

CHANGED, SAME = (16, 29, 32, 44, 77, 83, 87, 98, 104, 114), (12, 14, 15, 33, 50)
"""Seeds of task-graph jobs where policies change the optimum or leave no plan, and some others."""
OF_WORKERS = (10, 93, 106, 122, 149, 150, 165, 173, 212, 232, 242, 259, 264, 273, 289, 298, 310)
"""Seeds of data-parallel jobs where policies change the optimum or leave no plan."""
OF_BOTH = (2, 4, 17, 18, 23)
"""Seeds of jobs of both kinds."""


def on_two_ways(instance: Instance, seed: int, single: bool = True) -> Instance:
    """The instance under policies on servers of one GPU each, or as they are, with two ways between any two."""
    servers = [
        replace(server, name=f"{server.name}.{k}", gpus=1)
        for server in instance.cluster.servers
        for k in range(server.gpus)
    ][:4]
    if not single:
        servers = list(instance.cluster.servers)
    ways = (("hub", 10**6, 0), ("relay", 5 * 10**5, 1))
    links = (
        Link(f"{to}{k}", (each.name, to), rate, delay) for k, each in enumerate(servers) for to, rate, delay in ways
    )
    cluster = Cluster(tuple(servers), ("hub", "relay"), tuple(links))
    return with_route_policies(replace(instance, cluster=cluster), Random(seed))


def drawn(seed: int) -> Instance:
    """A random instance of task-graph jobs alone."""
    instance = random_task_graph_instance(seed, *GOALS[seed % 3])
    return on_two_ways(replace(instance, jobs=instance.task_graph_jobs), seed)


def of_workers(seed: int) -> Instance:
    """A random instance of data-parallel jobs."""
    return on_two_ways(random_instance(seed, *GOALS[seed % 3], operations=7), seed, single=seed % 2 == 0)


def free(instance: Instance) -> Instance:
    """The instance with no job under a policy."""
    return replace(instance, jobs=tuple(replace(job, route_policy=None) for job in instance.jobs))


@pytest.mark.parametrize("seed", [*CHANGED, *SAME])
def test_optima_under_policies_are_those_of_brute_force(seed: int) -> None:
    instance = drawn(seed)
    result = solve(instance, "cpsat", Options(threads=1, work_limit=20.0))
    assert result.status in (Status.OPTIMAL, Status.INFEASIBLE)
    assert result.objective == task_graph_optimum(instance)
    without = solve(free(instance), "cpsat", Options(threads=1, work_limit=20.0)).objective
    assert (result.objective != without) == (seed in CHANGED)


@pytest.mark.parametrize("seed", OF_WORKERS)
def test_optima_of_data_parallel_jobs_are_those_of_brute_force(seed: int) -> None:
    instance = of_workers(seed)
    best = optimum(instance)
    assert best != optimum(free(instance))
    for solver in ("cpsat", "ilp") if instance.horizon == "finite" else ("cpsat",):
        result = solve(instance, solver, Options(threads=1, work_limit=5.0))
        assert (result.status, result.objective) == (Status.INFEASIBLE if best is None else Status.OPTIMAL, best)
    if best is not None:
        assert lower_bound(compile_instance(instance)).value <= best
        for solver in ("greedy", "search"):
            heuristic = solve(instance, solver, Options(threads=1, work_limit=0.02))
            assert heuristic.bound <= best and (heuristic.objective or 0) >= best


@pytest.mark.parametrize("seed", OF_BOTH)
def test_optima_of_both_kinds_together_are_those_of_brute_force(seed: int) -> None:
    instance = on_two_ways(random_mixed_instance(seed, *GOALS[seed % 3]), seed)
    assert any(isinstance(job, Job) for job in instance.policed)
    result = solve(instance, "cpsat", Options(threads=1, work_limit=20.0))
    assert result.status in (Status.OPTIMAL, Status.INFEASIBLE)
    assert result.objective == task_graph_optimum(instance)


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["greedy", "auto"])
def test_heuristics_keep_policies(solver: str) -> None:
    found = [solve(drawn(seed), solver, Options(threads=1, work_limit=1.0)).objective for seed in (32, 44, 79, 114)]
    assert found == [12, 24, 75, 22]


def circle(workers: int, horizon: str = "finite") -> Instance:
    """A job on six servers in a circle whose routes have one link: only neighbours hold it together."""
    servers = tuple(Server(f"s{k}", "v", 1, 100, 10**6) for k in range(6))
    links = tuple(Link(f"l{k}", (f"s{k}", f"s{(k + 1) % 6}"), 10**6) for k in range(6))
    cluster = Cluster(servers, (), links, {"near": RoutePolicy(max_links=1)})
    model = {"m": Model((Segment("s", {"v": 5}, {"v": 5}, 3, 0),))}
    jobs = tuple(Job(f"j{k}", "m", workers, 2, route_policy="near") for k in range(3))
    return Instance("circle", cluster, model, jobs, *(("cyclic", "period") if horizon == "cyclic" else GOALS[0]))


@pytest.mark.parametrize("horizon", ["finite", "cyclic"])
@pytest.mark.parametrize("solver", ["greedy", "search", "auto"])
def test_jobs_find_servers_of_which_any_two_are_joined(solver: str, horizon: str) -> None:
    result = solve(circle(2, horizon), solver, Options(threads=1, work_limit=1.0))
    assert result.objective == 2 * (10 + 3) and result.plan is not None
    assert {abs(int(a[1]) - int(b[1])) for a, b in (job.gpus for job in result.plan.jobs)} <= {1, 5}


def test_three_servers_in_a_row_are_no_place() -> None:
    """Each is joined to another one, and links join all: the placement model alone sees it."""
    result = solve(circle(3), "cpsat", Options(threads=1, work_limit=5.0))
    assert result.status is Status.INFEASIBLE
    assert [(found.kind, found.jobs) for found in result.conflicts] == [("reach", ("j0",))]
    assert carries(result.conflicts[0].message, "'near'", "servers")


def test_links_that_a_policy_leaves_are_named_as_the_cause() -> None:
    instance = circle(2)
    cluster = replace(
        instance.cluster, route_policies={"near": RoutePolicy(avoid_links=("l0", "l1", "l2", "l3", "l4", "l5"))}
    )
    result = solve(replace(instance, cluster=cluster), "greedy", Options(threads=1))
    assert result.status is Status.INFEASIBLE
    assert carries(result.conflicts[0].message, "1", "'near'")


def test_groups_are_inserted_where_no_buddies_are_joined() -> None:
    """Only three of four servers are joined to one another; large instances are searched by such sets."""
    instance = circle(2, "cyclic")
    servers = instance.cluster.servers[:4]
    links = tuple(Link(f"l{a}{b}", (f"s{a}", f"s{b}"), 10**6) for a, b in ("01", "02", "03", "23"))
    cluster = replace(instance.cluster, servers=servers, links=links)
    jobs = tuple(replace(job, workers=3, iterations=2500) for job in instance.jobs)
    operations = compile_instance(replace(instance, cluster=cluster, jobs=jobs))
    asked = demands(operations)
    assert asked is not None
    table = CandidateTable(ProblemData(operations, asked))
    assert table.complete and {each.servers for each in table.of(0)} == {(0, 2, 3)}
    result = solve(operations.instance, "search", Options(threads=1, work_limit=0.05))
    assert result.objective == 3 * 2500 * 10

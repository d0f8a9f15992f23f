"""Route policies of shaped jobs: the exact model finds the optimum of brute force, and heuristics keep them."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from jigsaw_opt.errors import UsageError
from jigsaw_opt.problem import Cluster, Instance, Job, Link, Model, Segment
from jigsaw_opt.problem.route_policy import RoutePolicy
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.result import Status
from jigsaw_opt.solvers.solve import solve
from tests.random_instances import GOALS, with_route_policies
from tests.random_shapes import random_shaped_instance

pytest.importorskip("ortools")

from tests.shaped_oracle import shaped_optimum

CHANGED, SAME = (16, 29, 32, 44, 77, 83, 87, 98, 104, 114), (12, 14, 15, 33, 50)
"""Seeds where policies change the optimum or leave no plan, and some others."""


def drawn(seed: int) -> Instance:
    """A random instance of shaped jobs alone on servers of one GPU with two ways between any two, under policies."""
    instance = random_shaped_instance(seed, *GOALS[seed % 3])
    servers = [
        replace(server, name=f"{server.name}.{k}", gpus=1)
        for server in instance.cluster.servers
        for k in range(server.gpus)
    ][:4]
    ways = (("hub", 10**6, 0), ("relay", 5 * 10**5, 1))
    links = (Link(f"{to}{k}", (it.name, to), rate, delay) for k, it in enumerate(servers) for to, rate, delay in ways)
    cluster = Cluster(tuple(servers), ("hub", "relay"), tuple(links))
    return with_route_policies(replace(instance, cluster=cluster, jobs=instance.shaped), Random(seed))


@pytest.mark.parametrize("seed", [*CHANGED, *SAME])
def test_optima_under_policies_are_those_of_brute_force(seed: int) -> None:
    instance = drawn(seed)
    result = solve(instance, "cpsat", Options(workers=1, work_limit=20.0))
    assert result.status in (Status.OPTIMAL, Status.INFEASIBLE)
    assert result.objective == shaped_optimum(instance)
    free = replace(instance, jobs=tuple(replace(job, route_policy=None) for job in instance.jobs))
    without = solve(free, "cpsat", Options(workers=1, work_limit=20.0)).objective
    assert (result.objective != without) == (seed in CHANGED)


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["greedy", "auto"])
def test_heuristics_keep_policies(solver: str) -> None:
    found = [solve(drawn(seed), solver, Options(workers=1, work_limit=1.0)).objective for seed in (32, 44, 79, 114)]
    assert found == [12, 24, 75, 22]


def test_policies_of_data_parallel_jobs_are_refused_by_name() -> None:
    instance = random_shaped_instance(3)
    cluster = replace(instance.cluster, route_policies={"p": RoutePolicy()})
    times = {server.gpu_type: 1 for server in cluster.servers}
    model = {"m": Model((Segment("s", times, times, 1, 0),))}
    jobs = (*instance.shaped, Job("d", "m", 1, 1, route_policy="p"))
    for solver in ("greedy", "cpsat", "portfolio", "auto", "search", "ilp"):
        with pytest.raises(UsageError, match=r"has a (route policy|shape)"):
            solve(replace(instance, cluster=cluster, models=model, jobs=jobs), solver)

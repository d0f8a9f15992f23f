"""The cyclic model against brute force and against what can be worked out by hand."""

from __future__ import annotations

import pytest

from jigsaw_opt.checking import check
from jigsaw_opt.problem import Cluster, Instance, Job, Link, Model, Segment, Server, StaircaseDepth
from jigsaw_opt.solvers.cpsat import search as cpsat_search
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.result import Status
from jigsaw_opt.solvers.solve import solve
from tests.oracle import optimum
from tests.random_instances import random_instance

EXACT = Options(threads=1, work_limit=30)


def cyclic(
    jobs: tuple[Job, ...], servers: tuple[Server, ...], links: tuple[Link, ...] = (), payload: int = 0
) -> Instance:
    segments = (Segment("body", {"v": 3}, {"v": 4}, payload, 0), Segment("head", {"v": 1}, {"v": 2}, 0, 0))
    return Instance("cyclic", Cluster(servers, (), links), {"m": Model(segments)}, jobs, "cyclic", "period")


def least_period(instance: Instance) -> int:
    result = solve(instance, "cpsat", EXACT)
    assert result.status == Status.OPTIMAL
    assert result.plan is not None and result.objective is not None
    assert check(instance, result.plan) == ()
    return result.objective


@pytest.mark.parametrize("seed", range(40))
def test_agrees_with_brute_force(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    instance = random_instance(seed, "cyclic", "period", 6)
    if seed % 2:  # from the model alone, without the heuristic's plan
        monkeypatch.setattr(cpsat_search, "offer_greedy", lambda solve_state, operations, seed: False)
    result = solve(instance, "cpsat", EXACT)
    best = optimum(instance)
    assert result.objective == best
    assert result.status == (Status.INFEASIBLE if best is None else Status.OPTIMAL)


def test_a_lone_worker_repeats_its_iterations() -> None:
    assert least_period(cyclic((Job("a", "m", 1, 3),), (Server("s", "v", 1, 1, 1),))) == 30


def test_jobs_on_one_gpu_add_up() -> None:
    assert least_period(cyclic((Job("a", "m", 1, 1), Job("b", "m", 1, 2)), (Server("s", "v", 1, 1, 1),))) == 30


def test_a_stairs_pair_leaves_a_hole_for_another_job() -> None:
    # The pair takes 10 and 6 units; a lone worker of 10 follows the shallow worker: 16 on that GPU.
    jobs = (Job("pair", "m", 2, 1, depth=StaircaseDepth()), Job("lone", "m", 1, 1))
    assert least_period(cyclic(jobs, (Server("s", "v", 2, 1, 1),))) == 16


def test_compute_and_transfers_of_two_pairs_interleave() -> None:
    # Each pair computes for 10 on both GPUs and sends for 10 over the link: the pairs take turns.
    servers = (Server("s", "v", 1, 1000, 1), Server("t", "v", 1, 1000, 1))
    jobs = (Job("a", "m", 2, 1), Job("b", "m", 2, 1))
    assert least_period(cyclic(jobs, servers, (Link("st", ("s", "t"), 1_000_000),), payload=10)) == 20

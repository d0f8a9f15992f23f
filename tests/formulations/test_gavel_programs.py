"""Gavel's programs: small cases worked by hand, and the shared programs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from reference_programs import gavel_cluster

from jigsaw_opt.formulations.gavel import OBJECTIVES, SharedCluster
from jigsaw_opt.solvers.allocation.gavel import bisected_duration, solve_gavel


def cluster(throughput: list[list[float]], gpus: list[int], capacity: list[int], steps: list[float]) -> SharedCluster:
    jobs = len(gpus)
    return SharedCluster(
        np.array(throughput), np.array(gpus), np.array(capacity), np.array(steps), priority=np.ones(jobs)
    )


def test_equal_jobs_share_one_gpu_equally() -> None:
    solved = solve_gavel(cluster([[10.0], [10.0]], [1, 1], [1], [1, 1]), "max_min")
    assert solved.allocation.ravel().tolist() == pytest.approx([0.5, 0.5])
    assert solved.value == pytest.approx(0.5)


def test_every_job_goes_where_it_is_relatively_fastest() -> None:
    solved = solve_gavel(cluster([[4.0, 2.0], [2.0, 2.0]], [1, 1], [1, 1], [1, 1]), "max_sum")
    assert solved.allocation.tolist() == [[1, 0], [0, 1]]
    assert solved.value == pytest.approx(6)


def test_the_total_duration_is_the_work_over_the_capacity() -> None:
    solved = solve_gavel(cluster([[1.0], [2.0]], [1, 1], [1], [300, 1400]), "makespan")
    assert solved.value == pytest.approx(300 + 700)


def test_a_job_runs_on_as_many_gpus_as_it_asks_for() -> None:
    solved = solve_gavel(cluster([[1.0], [1.0]], [4, 1], [4], [100, 100]), "makespan")
    assert solved.value == pytest.approx(125)


def test_a_type_that_a_job_cannot_use_is_not_given_to_it() -> None:
    for objective in OBJECTIVES:
        solved = solve_gavel(cluster([[0.0, 1.0], [1.0, 0.5]], [1, 1], [1, 1], [10, 10]), objective)
        assert solved.allocation[0, 0] == 0


@pytest.mark.parametrize("least", [1.0, 599_318.0, 999_999.0, 1_000_001.0, 2e7])
def test_where_the_bisection_ends(least: float) -> None:
    found = bisected_duration(least)
    assert least <= found <= max(1.06 * least, 106)


@pytest.mark.parametrize("jobs", [64, 256, 1024])
def test_shared_programs_have_their_known_values(shared_data: Path, jobs: int) -> None:
    document = json.loads((shared_data / f"cluster/instances/gavel/gavel_jobs{jobs}_seed2.json").read_text())
    problem, reference = gavel_cluster(document), document["reference"]
    fairness, throughput = (solve_gavel(problem, name).value for name in ("max_min", "max_sum"))
    assert fairness == pytest.approx(reference["max_min_fairness_perf/HIGHS"]["val"], rel=1e-6)
    assert throughput == pytest.approx(reference["max_sum_throughput_perf/HIGHS"]["val"], rel=1e-6)
    duration = solve_gavel(problem, "makespan").value
    known = reference["min_total_duration_perf/HIGHS"]["T_hours"]
    assert duration / 3600 <= reference["min_total_duration_perf/ECOS"]["T_hours"]
    assert round(bisected_duration(duration) / 3600, 3) == known


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_an_allocation_fits_into_the_cluster(objective: str) -> None:
    rng = np.random.default_rng(7)
    problem = SharedCluster(
        rng.uniform(1, 10, (20, 3)), rng.integers(1, 5, 20), np.array([4, 8, 2]), rng.uniform(10, 99, 20), np.ones(20)
    )
    x = solve_gavel(problem, objective).allocation
    assert (x >= 0).all()
    assert (x.sum(axis=1) <= 1 + 1e-9).all()
    assert (problem.gpus @ x <= problem.capacity + 1e-6).all()

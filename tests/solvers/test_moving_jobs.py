"""Phased plans of jobs that may pause and move (specification: moves)."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from jigsaw_opt.checking import check
from jigsaw_opt.problem import Cluster, FreeDepth, Instance, Job, Link, Model, Segment, Server
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.phased import solve_phased
from jigsaw_opt.solvers.phased.limits import bounded_instance, phased_bound

ONE = Model((Segment("s", {"v": 5}, {"v": 5}, 0, 30),))
TWO = Cluster((Server("x", "v", 2, 1000, 10**6),))


def three_jobs(restart_us: int | None) -> Instance:
    """Three equal jobs on two GPUs: with moves they end after 150, without after 200 (McNaughton, 1959)."""
    jobs = tuple(Job(name, "one", 1, 10, restart_us=restart_us) for name in "abc")
    return Instance("three", TWO, {"one": ONE}, jobs)


def test_a_bound_does_not_need_jobs_to_keep_their_gpus() -> None:
    assert phased_bound(three_jobs(None), Options(), 0.0).value == 200
    assert phased_bound(three_jobs(0), Options(), 0.0).value == 150


def test_the_least_total_of_levels_is_rounded_down_where_a_job_may_move() -> None:
    net = Model((Segment("a", {"v": 1}, {"v": 8}, 10, 0), Segment("b", {"v": 1}, {"v": 2}, 10**6, 0)))
    job = Job("j", "net", 2, 5, depth=FreeDepth(mean_depth="67/100"))
    asked = Instance("free", TWO, {"net": net}, (job, replace(job, name="k", restart_us=0)))
    stays, moves = (it.depth for it in bounded_instance(asked).data_parallel)
    assert stays == job.depth  # 13.4 levels of 20, so 14.
    assert isinstance(moves, FreeDepth) and moves.mean(2) == Fraction(13, 20)


def test_plans_are_correct_where_jobs_may_move() -> None:
    servers = tuple(Server(name, "v", 2, 1000, 10**6) for name in "xy")
    cluster = Cluster(servers, (), (Link("xy", ("x", "y"), 10**6, 1),))
    widths = (1, 2, 4, 1, 3)
    jobs = tuple(
        Job(f"j{k}", "one", width, 30 + 7 * k, release_us=40 * k, restart_us=(None, 0, 25)[k % 3])
        for k, width in enumerate(widths)
    )
    for objective in ("makespan", "weighted_completion"):
        instance = Instance("mixed", cluster, {"one": ONE}, jobs, "finite", objective)
        result = solve_phased(instance, Options(seed=1))
        assert result.plan is not None and check(instance, result.plan) == ()
        assert result.bound is not None and result.bound <= result.plan.objective

"""Phased plans of jobs that may pause and move (specification: moves)."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import pytest

from jigsaw_opt.checking import check
from jigsaw_opt.documents import instance_sha256
from jigsaw_opt.problem import Cluster, FreeDepth, FullDepth, Instance, Job, Link, Model, Segment, Server
from jigsaw_opt.problem.compiled.operations import compile_instance
from jigsaw_opt.problem.plan import JobPlan, Plan
from jigsaw_opt.solvers.bounds.relaxation import rounded_for_moves
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.phased.moving import MovingPolicy
from jigsaw_opt.solvers.phased.phases import Gpus, GroupProgress, phases_of
from jigsaw_opt.solvers.phased.rates.jobs import RateJob, RateJobs
from jigsaw_opt.solvers.phased.rates.model import RateModel
from jigsaw_opt.solvers.phased.shelves import cyclic_part
from jigsaw_opt.solvers.phased.side_by_side import SideBySide
from jigsaw_opt.solvers.phased.timer import PhaseTimer, UntimedError
from jigsaw_opt.solvers.portfolio.auto import is_listed_first
from jigsaw_opt.solvers.solve import solve
from jigsaw_opt.solvers.solve_state import SolveState
from tests.phased_referee import accepts

ONE = Model((Segment("s", {"v": 5}, {"v": 5}, 0, 30),))
TWO = Cluster((Server("x", "v", 2, 1000, 10**6),))


def three_jobs(restart_us: int | None) -> Instance:
    """Three equal jobs on two GPUs: with moves they end after 150, without after 200 (McNaughton, 1959)."""
    jobs = tuple(Job(name, "one", 1, 10, restart_us=restart_us) for name in "abc")
    return Instance("three", TWO, {"one": ONE}, jobs)


def state_of(instance: Instance) -> SolveState:
    """A solve of an instance that has just begun."""
    return SolveState("phased", compile_instance(instance), Options(), lambda _: None)


def test_a_bound_does_not_need_jobs_to_keep_their_gpus() -> None:
    assert solve(three_jobs(None), "phased").bound == 200
    assert solve(three_jobs(0), "phased").bound == 150


@pytest.mark.parametrize(("restart_us", "makespan_us"), [(0, 150), (50, 150), (60, 160), (200, 200)])
def test_who_can_wait_makes_room_for_who_cannot(restart_us: int, makespan_us: int) -> None:
    """One of three jobs is cut in two, so that no plan is shorter than it is with its restart."""
    instance = three_jobs(restart_us)
    result = solve(instance, "phased", Options(seed=1))
    assert result.plan is not None and accepts(instance, result.plan)
    assert result.plan.objective == makespan_us


@pytest.mark.parametrize("seed", range(4))
def test_jobs_of_one_gpu_that_move_at_no_cost_reach_the_bound_of_mcnaughton(seed: int) -> None:
    """In units of an iteration, as no job stops within one."""
    draw = random.Random(seed)
    gpus = draw.randint(2, 4)
    cluster = Cluster((replace(TWO.servers[0], gpus=gpus),))
    lengths = [draw.randint(3, 60) for _ in range(draw.randint(gpus + 1, 2 * gpus + 1))]
    jobs = tuple(Job(f"j{k}", "one", 1, length, restart_us=0) for k, length in enumerate(lengths))
    instance = Instance("wrapped", cluster, {"one": ONE}, jobs)
    assert solve(instance, "phased", Options(seed=1)).objective == 10 * max(*lengths, -(-sum(lengths) // gpus))


def test_balance_is_kept_in_periods_that_have_a_part_several_times() -> None:
    """An iteration of `even` has another level on each of its GPUs; beside `long` it takes place often in a period."""
    net = Model((Segment("a", {"v": 1}, {"v": 20}, 10, 0), Segment("b", {"v": 1}, {"v": 2}, 10, 0)))
    long = Model((Segment("s", {"v": 500}, {"v": 500}, 0, 30),))
    even = Job("even", "net", 2, 400, depth=FreeDepth(balance=1), restart_us=0)
    cluster = Cluster((replace(TWO.servers[0], gpus=3),))
    jobs = (even, Job("long", "long", 1, 10, restart_us=0))
    instance = Instance("balanced", cluster, {"net": net, "long": long}, jobs, "finite", "weighted_completion")
    timing = partial(PhaseTimer(state_of(instance)).timed, ())
    model = RateModel(instance, random.Random(0))
    order = model.anywhere()
    assert order is not None
    policy = MovingPolicy(order, model.rate_jobs, SideBySide(instance, timing, lambda: False), False)
    phases = phases_of({job.name: job for job in jobs}, policy, timing)
    assert len(phases[0].jobs) == 2
    for job in (job for phase in phases for job in phase.jobs if isinstance(job, JobPlan) and job.name == "even"):
        one, other = (
            sum(block.level for block in own) for own in zip(*(iteration.blocks for iteration in job.iterations))
        )
        assert abs(one - other) <= 1


def test_the_least_total_of_levels_is_rounded_down_where_a_job_may_move() -> None:
    net = Model((Segment("a", {"v": 1}, {"v": 8}, 10, 0), Segment("b", {"v": 1}, {"v": 2}, 10**6, 0)))
    job = Job("j", "net", 2, 5, depth=FreeDepth(mean_depth="67/100"))
    asked = Instance("free", TWO, {"net": net}, (job, replace(job, name="k", restart_us=0)))
    stays, moves = (each.rule.min_total for each in rounded_for_moves(compile_instance(asked)).jobs)
    assert (stays, moves) == (14, 13)  # 13.4 levels of 20


def test_plans_are_correct_where_jobs_may_move() -> None:
    servers = tuple(Server(name, "v", 2, 1000, 10**6) for name in "xy")
    cluster = Cluster(servers, (), (Link("xy", ("x", "y"), 10**6, 1),))
    widths = (1, 2, 4)
    jobs = tuple(
        Job(f"j{k}", "one", width, 30 + 7 * k, release_us=40 * k, restart_us=(None, 0, 25)[k % 3])
        for k, width in enumerate(widths)
    )
    instance = Instance("mixed", cluster, {"one": ONE}, jobs, "finite", "weighted_completion")
    result = solve(instance, "phased", Options(seed=1))
    assert result.plan is not None and check(instance, result.plan) == ()
    assert result.bound is not None and result.bound <= result.plan.objective


def gpu_hog(restart_us: int | None) -> Instance:
    """Two long jobs of one GPU each, and later a short one that needs both GPUs, and a short one that needs one."""
    long = [Job(name, "one", 1, 100, restart_us=restart_us) for name in "ab"]
    wide = Job("wide", "one", 2, 5, release_us=205, restart_us=restart_us)
    short = Job("short", "one", 1, 10, release_us=500, restart_us=restart_us)
    return Instance("hog", TWO, {"one": ONE}, (*long, wide, short), "finite", "weighted_completion")


def test_who_pauses_and_may_move_makes_room_in_memory() -> None:
    """Each GPU has the memory for one job. Who may not move keeps its memory until its end."""
    one = Model((Segment("s", {"v": 5}, {"v": 5}, 5, 30),))
    cluster = Cluster((replace(TWO.servers[0], gpu_memory=60),))
    moving, staying = (replace(gpu_hog(each), cluster=cluster, models={"one": one}) for each in (0, None))
    result, stays = solve(moving, "phased", Options(seed=1)), solve(staying, "phased", Options(seed=1))
    assert result.plan is not None and accepts(moving, result.plan) and stays.plan is not None
    # `wide` runs at 210, then `short` at 500 beside one of the others, of which the other one ends 50 later than alone.
    assert result.plan.objective <= 320 + 600 + 1110 + 1210 < stays.plan.objective
    assert result.bound is not None and result.bound <= result.plan.objective


def test_a_restart_is_paid_for_or_not_worth_it() -> None:
    objectives = []
    for restart_us in (0, 50, 10**6):
        result = solve(gpu_hog(restart_us), "phased", Options(seed=1))
        assert result.plan is not None and check(gpu_hog(restart_us), result.plan) == ()
        objectives.append(result.plan.objective)
    assert objectives == sorted(objectives) and objectives[0] < objectives[-1]


def test_a_job_goes_on_elsewhere() -> None:
    """`first` leaves x/0 to `heavy`, the only job with a faster GPU of its own, and goes on on the other server."""
    model = Model((Segment("s", {"fast": 5, "slow": 10}, {"fast": 5, "slow": 10}, 0, 30),))
    only = Model((Segment("s", {"fast": 5}, {"fast": 5}, 0, 30),))
    cluster = Cluster(
        (Server("x", "fast", 1, 1000, 10**6), Server("y", "slow", 1, 1000, 10**6)), (), (Link("xy", ("x", "y"), 10**6),)
    )
    jobs = (
        Job("first", "any", 1, 60, restart_us=30),
        Job("heavy", "only", 1, 50, release_us=200, weight=9),
    )
    asked = Instance("types", cluster, {"any": model, "only": only}, jobs, "finite", "weighted_completion")
    plan = solve(asked, "phased", Options(seed=1)).plan
    assert plan is not None
    places = [job.gpus for _, _, phase in plan.all_phases() for job in phase.jobs if job.name == "first"]
    assert places[0] == ("x/0",) and ("y/0",) in places
    # 20 iterations on x, a restart, and 25 of 20 us on y until `heavy` has ended; staying on x takes to 1100.
    assert plan.objective < 9 * 700 + 1100


def test_mean_depth_is_kept_in_every_period_of_a_job_alone() -> None:
    net = Model((Segment("a", {"v": 1}, {"v": 8}, 10, 0), Segment("b", {"v": 1}, {"v": 2}, 10, 0)))
    job = Job("j", "net", 2, 50, depth=FreeDepth(mean_depth="5/8"), restart_us=0)
    asked = Instance("free", TWO, {"net": net}, (job, replace(job, name="k", release_us=7)), "finite")
    for objective in ("makespan", "weighted_completion"):
        instance = replace(asked, objective=objective)
        result = solve(instance, "phased", Options(seed=1))
        assert result.plan is not None and check(instance, result.plan) == ()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_random_jobs_that_move_have_correct_plans(seed: int) -> None:
    draw = random.Random(seed)
    servers = tuple(Server(name, draw.choice("vw"), draw.choice((1, 2, 4)), 100, 10**6, 1) for name in "xyz")
    cluster = Cluster(servers, (), (Link("xy", ("x", "y"), 10**6, 1), Link("yz", ("y", "z"), 10**5, 3)))
    both = Model(
        (
            Segment("s", {"v": 5, "w": 9}, {"v": 5, "w": 7}, 1, 30),
            Segment("t", {"v": 2, "w": 2}, {"v": 3, "w": 3}, 5, 9),
        )
    )
    jobs = tuple(
        Job(
            f"j{k}",
            "both",
            draw.choice((1, 1, 2, 3)),
            draw.randint(5, 300),
            release_us=draw.randint(0, 3000),
            weight=draw.choice((1, 5)),
            depth=draw.choice((FullDepth(), FreeDepth())),
            restart_us=draw.choice((None, 0, 0, 100, 1000)),
        )
        for k in range(5)
    )
    for objective in ("weighted_completion", "makespan"):
        instance = Instance("random", cluster, {"both": both}, jobs, "finite", objective)
        plan = solve(instance, "phased", Options(seed=seed)).plan
        assert plan is not None and check(instance, plan) == () and accepts(instance, plan)


def test_solve_tries_phases_where_jobs_may_move() -> None:
    assert is_listed_first(gpu_hog(None), Options()) and not is_listed_first(gpu_hog(0), Options())


def test_of_jobs_that_cannot_be_timed_together_the_last_one_waits() -> None:
    instance = gpu_hog(0)
    jobs = {job.name: job for job in instance.jobs[:2]}
    fluids = RateJobs({"x/0": 100, "x/1": 100})
    one = RateJob("b", 100, 1, 0, None, ("x/0",), 10, ((0, 4.0),), 10, 20, 0)
    order = [one, replace(one, name="a")]

    def timing(counts: Mapping[str, int], gpus: Gpus) -> Plan:
        if len(counts) > 1:
            raise UntimedError("not together")
        plan = solve(cyclic_part(instance, counts), "greedy", Options()).plan
        assert plan is not None
        return plan

    policy = MovingPolicy(order, fluids, SideBySide(instance, timing, lambda: False), False)
    assert policy.running(jobs, GroupProgress({"a": 100, "b": 100})).counts.keys() == {"b"}


def shortest_remaining_first(jobs: Sequence[Job]) -> int:
    """The sum of ends on one GPU, unit by unit: Schrage's rule, which nothing is better than (Schrage, 1968)."""
    left, now, total = {job.name: job.iterations for job in jobs}, 0, 0
    while left:
        ready = [job.name for job in jobs if job.name in left and job.release_us <= now]
        now += 10
        if not ready:
            continue
        shortest = min(ready, key=left.__getitem__)
        left[shortest] -= 1
        if not left[shortest]:
            del left[shortest]
            total += now
    return total


@pytest.mark.parametrize("seed", range(3))
def test_jobs_of_one_gpu_end_as_soon_as_by_shortest_remaining_time_first(seed: int) -> None:
    draw = random.Random(seed)
    cluster = Cluster((replace(TWO.servers[0], gpus=1),))
    jobs = tuple(
        Job(f"j{k}", "one", 1, draw.randint(1, 20), release_us=10 * draw.randint(0, 30), restart_us=0) for k in range(5)
    )
    instance = Instance("srpt", cluster, {"one": ONE}, jobs, "finite", "weighted_completion")
    assert solve(instance, "phased", Options(seed=seed)).objective == shortest_remaining_first(jobs)


def test_parts_that_are_alike_get_one_cyclic_plan() -> None:
    servers = tuple(Server(name, "v", 4, 1000, 10**6) for name in "xy")
    cluster = Cluster(servers, (), (Link("xy", ("x", "y"), 10**6, 1),))
    jobs = tuple(Job(name, "one", 2, 10, release_us=k, weight=1 + k, restart_us=0) for k, name in enumerate("abcd"))
    instance = Instance("alike", cluster, {"one": ONE}, jobs, "finite", "weighted_completion")
    asked, timer = list[Mapping[str, int]](), PhaseTimer(state_of(instance))

    def timing(counts: Mapping[str, int], gpus: Gpus) -> Plan:
        asked.append(counts)
        return timer.timed((), counts, gpus)

    gpus = {"a": ("x/0", "x/1"), "b": ("x/1", "x/0"), "c": ("y/3", "y/1"), "d": ("y/1", "y/3")}
    beside = SideBySide(instance, timing, lambda: False)
    counts = {"a": 1, "b": 2, "c": 2, "d": 1}
    parts = [{name: counts[name] for name in names} for names in beside.parts(gpus)]
    plan = beside.together([(beside.part(part, gpus), 1) for part in parts])
    assert asked == [{"a": 1, "b": 2}, {"a": 1, "b": 2}]
    assert {job.name: job.gpus for job in plan.jobs} == gpus
    assert {job.name: len(job.iterations) for job in plan.jobs} == counts
    part = cyclic_part(instance, counts)
    assert check(part, replace(plan, instance_sha256=instance_sha256(part))) == ()
    # Across servers it matters which they are, and in which order.
    beside.part({"a": 1}, {"a": ("x/0", "y/0")})
    beside.part({"b": 1}, {"b": ("x/2", "y/3")})
    beside.part({"c": 1}, {"c": ("y/0", "x/0")})
    assert asked[2:] == [{"a": 1}, {"a": 1}, {"c": 1}]


def test_a_job_waits_that_the_others_lose_more_by_than_it_gains() -> None:
    instance = gpu_hog(0)
    jobs = {job.name: job for job in instance.jobs[:2]}
    fluids = RateJobs({"x/0": 100, "x/1": 100})
    one = RateJob("b", 100, 1, 0, None, ("x/0",), 10, ((0, 4.0),), 10, 20, 0)
    order = [one, replace(one, name="a")]

    class Beside(SideBySide):
        """Has cyclic plans in which two jobs take three times as long as one."""

        def part(self, counts: Mapping[str, int], gpus: Gpus) -> Plan:
            period_us = 10 * sum(counts.values()) if len(counts) == 1 else 15 * sum(counts.values())
            return Plan.of_jobs(instance.name, "", "feasible", period_us, 0, period_us, ())

    progress = GroupProgress({"a": 100, "b": 100})
    beside = Beside(instance, lambda counts, gpus: Plan.of_jobs("", "", "feasible", 1, 0, 1, ()), lambda: False)
    assert MovingPolicy(order, fluids, beside, False).running(jobs, progress).counts.keys() == {"a", "b"}
    assert MovingPolicy(order, fluids, beside, False, thorough=True).running(jobs, progress).counts.keys() == {"b"}

"""Limits of progress: every solver keeps them, exact ones find what brute force finds, and bounds stay below."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from random import Random

import pytest

from jigsaw_opt.checking import check
from jigsaw_opt.cli import main
from jigsaw_opt.documents import save_instance, save_plan
from jigsaw_opt.errors import TooLargeError
from jigsaw_opt.instances import load
from jigsaw_opt.problem import (
    Cluster,
    Efficiency,
    FreeDepth,
    FullDepth,
    Instance,
    Job,
    JobExchange,
    Link,
    Model,
    OperationGraph,
    Segment,
    Server,
    compile_instance,
)
from jigsaw_opt.problem.efficiency import progress_of
from jigsaw_opt.solvers.bounds import lower_bound
from jigsaw_opt.solvers.explanation import explain
from jigsaw_opt.solvers.infeasibility.conflict import placement_feasible
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.placement.levels import SHAPES, level_plan, multisets
from jigsaw_opt.solvers.result import Status, StoppedBy
from jigsaw_opt.solvers.solve import solve
from tests.oracle import optimum
from tests.random_instances import GOALS, random_instance, with_progress_limits
from tests.refusals import carries

NOISY = Efficiency((500, 4_000, 60_000), (1, 1, 3))
SEGMENTS = tuple(Segment(f"g{k}", {"v": 4}, {"v": 9}, 6, 3) for k in range(3))


def random_limited(seed: int, operations: int = 6) -> Instance:
    return with_progress_limits(random_instance(seed, *GOALS[seed % 3], operations=operations), Random(seed))


def alone(
    share: int | str, workers: int = 4, iterations: int = 2, efficiency: Efficiency = NOISY, **rule: int
) -> Instance:
    """One job on a server with a GPU for each of its workers."""
    cluster = Cluster((Server("s", "v", workers, 10**6, 10**6),))
    model = Model(SEGMENTS, efficiency=efficiency)
    depth = FreeDepth(min_progress=share, **rule)  # type: ignore[arg-type]
    return Instance("alone", cluster, {"net": model}, (Job("j", "net", workers, iterations, depth=depth),))


def graph(instance: Instance) -> OperationGraph:
    return compile_instance(instance).jobs[0]


def test_exact_solvers_find_what_brute_force_finds() -> None:
    proven = 0
    for seed in range(15):
        instance = random_limited(seed)
        best = optimum(instance)
        for solver in ("cpsat", "ilp")[: 1 if instance.horizon == "cyclic" else 2]:
            result = solve(instance, solver, Options(threads=1, work_limit=10.0))
            assert result.objective == best, (seed, solver)
            assert (result.status is Status.INFEASIBLE) == (best is None)
            assert result.plan is None or check(instance, result.plan) == ()
            proven += result.status is Status.OPTIMAL
    assert proven > 12


@pytest.mark.parametrize("seeds", [range(1000, 1030), pytest.param(range(1030, 1200), marks=pytest.mark.slow)], ids=str)
def test_bounds_are_never_above_the_optimum(seeds: range) -> None:
    tight = 0
    for seed in seeds:
        instance = random_limited(seed, operations=5)
        best = optimum(instance)
        if best is not None:
            bound = lower_bound(compile_instance(instance)).value
            assert bound <= best, seed
            tight += bound == best
    assert tight > len(seeds) // 3


@pytest.mark.parametrize("share", ["9/10", 1])
@pytest.mark.parametrize("name", ["server/free", "server/cyclic", "server/tight-memory"])
def test_heuristics_keep_the_limit_on_instances_of_a_server(name: str, share: int | str) -> None:
    instance, random = load(name), Random(name)
    models = {
        key: replace(
            model,
            efficiency=Efficiency(
                tuple(random.choice((500, 4_000, 60_000)) for _ in range(model.depth)), (1,) * model.depth
            ),
        )
        for key, model in instance.models.items()
    }
    jobs = tuple(replace(job, depth=FreeDepth(min_progress=share)) for job in instance.data_parallel)
    limited = replace(instance, models=models, jobs=jobs)
    objectives = {}
    for solver, options in (("greedy", Options(threads=1)), ("search", Options(threads=1, work_limit=0.2))):
        result = solve(limited, solver, options)
        assert result.plan is not None and check(limited, result.plan) == ()
        objectives[solver] = result.objective
    assert objectives["search"] <= objectives["greedy"]


def test_a_limit_of_1_is_full_depth_where_gradients_are_noisy() -> None:
    rule = graph(alone(1)).rule
    assert (rule.min_contributors, rule.min_total) == (4, 24)
    limited = alone(1)
    whole = replace(limited, jobs=(replace(limited.jobs[0], depth=FullDepth()),))
    assert solve(limited, "cpsat").objective == solve(whole, "cpsat").objective


def test_without_noise_one_contributor_is_enough() -> None:
    limited = alone(1, efficiency=Efficiency((0, 0, 0), (1, 1, 1)))
    rule = graph(limited).rule
    assert (rule.min_contributors, rule.min_total) == (1, 2 * (4 + 2))
    assert multisets(graph(limited)) == ((3, 1, 1, 1),) * 2
    free = replace(limited, jobs=(replace(limited.jobs[0], depth=FreeDepth(mean_depth=0)),))
    assert solve(limited, "cpsat").objective == solve(free, "cpsat").objective


def test_a_share_above_1_is_infeasible_and_told() -> None:
    result = solve(alone("11/10"), "auto", Options(threads=1))
    assert result.status is Status.INFEASIBLE
    assert carries(str(result.conflicts), "job j", "more progress")


def test_the_least_levels_are_a_bound_of_all_levels_that_keep_the_limit() -> None:
    for share in ("1/2", "4/5", "9/10", "19/20", "99/100"):
        for workers, iterations in ((1, 2), (2, 3), (3, 2)):
            instance = alone(share, workers, iterations)
            job = graph(instance)
            asked = Fraction(share) * iterations * NOISY.most
            rows = multisets(job)
            assert rows is not None and sum(map(NOISY.progress, rows)) >= asked
            assert sum(map(sum, rows)) >= job.rule.min_total
            assert all(row.count(3) >= job.rule.min_contributors for row in rows)


@pytest.mark.parametrize("share", ["1/2", "9/10", "19/20", 1])
def test_every_shape_and_every_cap_keeps_the_limit(share: int | str) -> None:
    for rule in ({}, {"balance": 1}):
        job = graph(alone(share, iterations=3, **rule))
        assert job.rule.progress is not None
        for shape in SHAPES:
            rows = multisets(job, shape)
            assert rows is not None and job.rule.progress.is_kept(rows)
            assert all(row == tuple(sorted(row, reverse=True)) for row in rows)
            for caps in ((3, 3, 3, 3), (3, 3, 3, 1), (3, 2, 3, 2), (1, 3, 1, 1)):
                plan = level_plan(job, rows, caps)
                if plan is not None:
                    assert job.rule.progress.is_kept(plan.rows)
                # What memory admits at most keeps the limit, or nothing does.
                elif not rule:
                    assert not job.rule.progress.is_kept([caps] * 3)


def test_levels_under_the_caps_of_memory_go_no_deeper_than_the_limit_asks() -> None:
    """Where only one slot may go to level 3, the others make up for that: with some level 1 less it is broken."""
    job = graph(alone("1/2", iterations=3))
    limit, rows = job.rule.progress, multisets(job)
    assert limit is not None and rows is not None and (3, 3, 1, 1) in rows
    plan = level_plan(job, rows, (1, 2, 2, 3))
    assert plan is not None and not plan.fixed and limit.is_kept(plan.rows)
    assert sum(map(sum, plan.rows)) < 3 * (1 + 2 + 2 + 3)
    for at, row in enumerate(plan.rows):
        assert all(level <= cap for level, cap in zip(row, (3, 2, 2, 1), strict=True))
        for slot, level in enumerate(row):
            if level == 2:
                lower = (*row[:slot], 1, *row[slot + 1 :])
                assert not limit.is_kept((*plan.rows[:at], lower, *plan.rows[at + 1 :]))


def test_memory_that_leaves_too_little_progress_is_infeasible() -> None:
    """Of two GPUs one has room for level 1 alone, where the least progress of the job asks for both at level 3."""
    segments = tuple(replace(segment, activation_bytes=10) for segment in SEGMENTS)
    servers = (Server("deep", "v", 1, 200, 10**6), Server("low", "v", 1, 95, 10**6))
    for share, feasible in (("1/2", True), ("99/100", False)):
        instance = alone(share, workers=2)
        model = Model(segments, state_factor=4, efficiency=NOISY)
        wired = replace(instance.cluster, servers=servers, links=(Link("l", ("deep", "low"), 10**6),))
        both = replace(instance, cluster=wired, models={"net": model})
        assert placement_feasible(compile_instance(both)) is feasible
        assert (solve(both, "auto", Options(threads=1, work_limit=5.0)).plan is not None) is feasible
        assert (optimum(replace(both, jobs=(replace(both.jobs[0], iterations=1),))) is not None) is feasible


def test_a_phased_plan_keeps_the_limit_in_every_period() -> None:
    instance = alone("9/10", iterations=2_000)
    result = solve(instance, "phased", Options(threads=1, time_limit=2.0))
    assert result.plan is not None and result.plan.groups and check(instance, result.plan) == ()
    full = replace(instance, jobs=(replace(instance.jobs[0], depth=FullDepth()),))
    whole = solve(full, "phased", Options(threads=1, time_limit=2.0))
    assert result.objective is not None and whole.objective is not None
    assert result.bound <= result.objective <= whole.objective


def test_weights_beyond_64_bits_are_refused_by_name() -> None:
    huge = Efficiency((1, 1, 1), (2**53 - 1, 2**53 - 2, 1))
    with pytest.raises(TooLargeError, match="choose smaller weights"):
        compile_instance(alone("1/2", efficiency=huge))


def test_weights_count_beside_each_other_alone() -> None:
    large = Efficiency(NOISY.noise_scale, tuple(3 * 2**40 * weight for weight in NOISY.weight))
    assert graph(alone("9/10", efficiency=large)).rule == graph(alone("9/10")).rule


def test_what_exceeds_the_engines_is_planned_without_them() -> None:
    """A phased plan of a long job has one period, of few iterations; exact models of all of them are left out."""
    measured = Efficiency(NOISY.noise_scale, (200_003, 300_001, 499_999))
    instance = alone("9/10", iterations=10_000_000, efficiency=measured)
    result = solve(instance, "auto", Options(threads=1, work_limit=0.01))
    assert result.solver == "phased" and result.plan is not None and check(instance, result.plan) == ()
    large = Efficiency(NOISY.noise_scale, (2**38 + 1, 2**37, 1))
    few = alone("9/10", iterations=8, efficiency=large, balance=0)
    for solver in ("cpsat", "ilp"):
        result = solve(few, solver, Options(threads=1, work_limit=1.0))
        assert result.plan is not None and check(few, result.plan) == ()
        assert result.stopped_by is StoppedBy.MODEL_TOO_LARGE
        result = solve(alone("9/10", iterations=8, balance=0), solver, Options(threads=1, work_limit=0.1))
        assert result.stopped_by is not StoppedBy.MODEL_TOO_LARGE


@pytest.mark.parametrize("kind", ["listed", "cyclic", "phased"])
def test_what_iterations_are_worth_is_told(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Beside a job of a model whose efficiency is not known, of which nothing is told."""
    instance = alone("9/10", iterations=200 if kind == "phased" else 2)
    bare = {"bare": replace(instance.models["net"], efficiency=None)}
    jobs = (*instance.data_parallel_jobs, Job("other", "bare", 1, 2))
    instance = replace(instance, models={**instance.models, **bare}, jobs=jobs)
    if kind == "cyclic":
        instance = replace(instance, horizon="cyclic", objective="period")
    method = "phased" if kind == "phased" else "greedy"
    plan = solve(instance, method, Options(threads=1)).plan
    assert plan is not None and plan.is_phased == (kind == "phased")
    rows = [
        row
        for _, _, phase in plan.all_phases()
        for job in phase.data_parallel_jobs
        if job.name == "j"
        for row in job.levels * (phase.repeats or 1)
    ]
    worth = Fraction(sum(map(NOISY.progress, rows)), len(rows) * NOISY.most)
    assert Fraction(9, 10) <= worth < 1
    assert progress_of(instance, plan) == {"j": float(worth)}
    sparse = replace(jobs[0], exchange=JobExchange(progress_ppm=900_000))
    told = progress_of(replace(instance, jobs=(sparse, jobs[1])), plan)
    assert told == {"j": pytest.approx(0.9 * float(worth), rel=1e-12)}
    assert explain(instance, plan, "other").progress() == {}
    files = [str(tmp_path / "i.json"), str(tmp_path / "p.json")]
    save_instance(instance, files[0])
    save_plan(plan, files[1])
    assert main(["explain", *files]) == 0
    assert carries(capsys.readouterr().out, "Progress of j", f"{100 * float(worth):.1f} %")
    assert main(["explain", *files, "j", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["progress"] == {"j": float(worth)}
    assert main(["solve", files[0], "--solver", method, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["progress"] == {"j": float(worth)}

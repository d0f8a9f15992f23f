"""Re-solving: correct plans from old ones, what is fixed stays, changed instances are validated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from jigsaw_opt.checking import check
from jigsaw_opt.documents import add_job, change_bandwidth, remove_job
from jigsaw_opt.errors import InvalidInputError
from jigsaw_opt.instances.families import generate
from jigsaw_opt.problem import Cluster, Instance, Job, JobPlan, Model, Plan, Segment, Server
from jigsaw_opt.problem.instance import Horizon, Objective
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.resolve import Fix, placements_of
from jigsaw_opt.solvers.result import Status, StoppedBy
from jigsaw_opt.solvers.solve import solve
from tests.random_instances import GOALS, random_instance
from tests.random_task_graphs import random_task_graph_instance
from tests.refusals import refuses

pytest.importorskip("ortools")

ONE = Options(threads=1, work_limit=0.01)


def old_plan(instance: Instance) -> Plan | None:
    return solve(instance, "greedy", Options(threads=1)).plan


def changed(instance: Instance, seed: int) -> Iterator[Instance]:
    """The instance with each kind of change."""
    job = instance.jobs[seed % len(instance.jobs)]
    yield instance
    yield add_job(instance, replace(job, name="new"))
    yield replace(instance, jobs=tuple(replace(j, iterations=j.iterations + (j is job)) for j in instance.jobs))
    if len(instance.jobs) > 1:
        yield remove_job(instance, job.name)
    for link in instance.cluster.links[:1]:
        yield change_bandwidth(instance, link.name, max(1, link.bandwidth // 2))
        yield change_bandwidth(instance, link.name, 3 * link.bandwidth)


def two_jobs(memory: int = 100) -> Instance:
    """Two one-worker jobs on two GPUs; a worker holds 50 bytes."""
    model = Model((Segment("s", {"v": 10}, {"v": 10}, 10, 10),), state_factor=4)
    cluster = Cluster((Server("s0", "v", 2, memory, 10),))
    return Instance("two", cluster, {"m": model}, (Job("a", "m", 1, 2), Job("b", "m", 1, 1)))


def everything_before(plan: Plan, moment: int) -> dict[tuple[object, ...], int]:
    """Starts of all that starts before a moment, by what it is."""
    found: dict[tuple[object, ...], int] = {}
    for job in plan.jobs:
        for i, each in enumerate(job.iterations):
            for gpu, block in zip(job.gpus, each.blocks, strict=True):
                found[job.name, i, gpu, block.level] = block.start_us
            for transfer in each.transfers:
                found[job.name, i, "bucket", transfer.bucket] = transfer.start_us
    return {what: start for what, start in found.items() if start < moment}


@pytest.mark.slow
@pytest.mark.parametrize(("horizon", "objective"), GOALS)
def test_plans_of_changed_random_instances_are_correct_and_keep_placements(
    horizon: Horizon, objective: Objective
) -> None:
    found = 0
    for seed in range(7):
        instance = random_instance(seed, horizon, objective, operations=14)
        plan = old_plan(instance)
        for after in changed(instance, seed) if plan is not None else ():
            assert plan is not None
            names = {job.name for job in after.jobs}
            places = {name: gpus for name, gpus in placements_of(plan).items() if name in names}
            for fix in (Fix(), Fix(places)):
                result = solve(after, "auto", ONE, start=plan, fix=fix)
                if result.plan is None:
                    continue
                found += 1
                assert check(after, result.plan) == ()
                assert (result.status is Status.OPTIMAL) == (result.objective == result.bound)
                for job in result.plan.jobs:
                    assert fix.placements.get(job.name, job.gpus) == job.gpus
    assert found >= 20


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["makespan", "weighted_completion"])
def test_what_has_started_stays_and_nothing_else_starts_before(objective: Objective) -> None:
    found = 0
    for seed in range(8):
        instance = random_instance(seed, "finite", objective, operations=14)
        plan = old_plan(instance)
        for after in changed(instance, seed) if plan is not None else ():
            assert plan is not None
            moment = (
                1 + max(b.start_us for job in plan.jobs for iteration in job.iterations for b in iteration.blocks) // 2
            )
            try:
                result = solve(after, "auto", ONE, start=plan, fix=Fix(before_us=moment))
            except InvalidInputError as error:
                # Longer transfers may overlap what has started; jobs that have begun cannot change.
                assert all("before_us" in problem.path for problem in error.problems)
                continue
            if result.plan is None:
                continue
            found += 1
            names = {job.name for job in after.jobs}
            past = {what: at for what, at in everything_before(plan, moment).items() if what[0] in names}
            assert everything_before(result.plan, moment) == past
    assert found >= 12


@pytest.mark.parametrize(("family", "seed"), [("server", 2), ("server", 5)])
def test_an_unchanged_instance_loses_nothing(family: str, seed: int) -> None:
    instance = generate(family, seed)
    plan = old_plan(instance)
    assert plan is not None
    result = solve(instance, "auto", ONE, start=plan, fix=Fix())
    assert result.objective is not None and result.objective <= plan.objective


def test_a_removed_job_makes_room_for_the_others() -> None:
    instance = generate("server", 2)
    plan = old_plan(instance)
    assert plan is not None
    longest = max(
        plan.jobs, key=lambda job: sum(b.end_us - b.start_us for iteration in job.iterations for b in iteration.blocks)
    )
    result = solve(remove_job(instance, longest.name), "auto", Options(threads=1), start=plan, fix=Fix())
    assert result.stopped_by is StoppedBy.COMPLETED or result.status is Status.OPTIMAL
    assert result.objective is not None and result.objective < plan.objective


def test_a_longer_period_is_found_for_one_more_job() -> None:
    instance = replace(two_jobs(), horizon="cyclic", objective="period")
    plan = solve(instance, "cpsat", Options(threads=1)).plan
    assert plan is not None and plan.objective == 40
    after = add_job(instance, Job("c", "m", 1, 2))
    result = solve(
        replace(after, cluster=Cluster((Server("s0", "v", 2, 1000, 10),))), "auto", ONE, start=plan, fix=Fix()
    )
    assert result.objective == 60
    assert result.status is Status.FEASIBLE or result.bound == 60


def test_a_new_job_follows_those_that_leave_it_no_memory() -> None:
    instance = two_jobs()
    model = Model((Segment("s", {"v": 10}, {"v": 10}, 20, 10),), state_factor=4)
    apart = Plan.of_jobs("two", "", "feasible", 40, 40, None, _apart(instance))
    result = solve(add_job(instance, Job("c", "wide", 1, 1), {"wide": model}), "auto", ONE, start=apart, fix=Fix())
    assert result.plan is not None
    places = {job.name: job.gpus for job in result.plan.jobs}
    assert places["a"] != places["b"] == places["c"]
    assert result.objective == 40
    kept = solve(
        add_job(instance, Job("c", "wide", 1, 1), {"wide": model}),
        "auto",
        ONE,
        start=apart,
        fix=Fix(placements_of(apart)),
    )
    assert kept.objective == 40
    bound = {"a": ("s0/0",), "b": ("s0/1",), "c": ("s0/0",)}
    behind = solve(add_job(instance, Job("c", "wide", 1, 1), {"wide": model}), "auto", ONE, start=apart, fix=Fix(bound))
    assert behind.objective == 60


def _apart(instance: Instance) -> tuple[JobPlan, ...]:
    plan = old_plan(instance)
    assert plan is not None
    return tuple(replace(job, gpus=(f"s0/{k}",)) for k, job in enumerate(plan.jobs))


def test_an_invalid_fix_lists_all_problems() -> None:
    instance = two_jobs()
    plan = old_plan(instance)
    assert plan is not None
    fix = Fix({"a": ("s0/0", "s0/0"), "b": ("s9/0",), "z": ("s0/0",)}, before_us=-1)
    with pytest.raises(InvalidInputError) as caught:
        solve(instance, "auto", start=plan, fix=fix)
    messages = [str(problem) for problem in caught.value.problems]
    assert len(messages) == 5
    for part in ("2 GPUs for 1", "twice", '"s9/0"', "no such job", "at least 0"):
        assert any(part in message for message in messages)


def test_a_job_that_has_begun_cannot_change() -> None:
    instance = two_jobs()
    plan = old_plan(instance)
    assert plan is not None
    other = replace(instance, jobs=tuple(replace(job, iterations=3) for job in instance.jobs))
    with pytest.raises(InvalidInputError) as caught:
        solve(other, "auto", start=plan, fix=Fix(before_us=1))
    assert len(caught.value.problems) == 2


def test_a_cyclic_plan_has_no_past() -> None:
    instance = replace(two_jobs(), horizon="cyclic", objective="period")
    plan = old_plan(instance)
    assert plan is not None
    with refuses("contradiction $.before_us"):
        solve(instance, "auto", start=plan, fix=Fix(before_us=5))


@pytest.mark.parametrize(("horizon", "objective"), GOALS)
@pytest.mark.parametrize("held", [None, 3])
def test_the_search_goes_on_with_placements_held(horizon: Horizon, objective: Objective, held: int | None) -> None:
    instance = replace(generate("server", 2), horizon=horizon, objective=objective)
    best = solve(instance, "auto", Options(threads=1, work_limit=0.3)).plan
    poor = old_plan(instance)
    assert best is not None and poor is not None
    fix = Fix(placements_of(best, [job.name for job in instance.jobs[:held]]))
    result = solve(instance, "auto", Options(threads=1, work_limit=0.3), start=poor, fix=fix)
    assert result.plan is not None and check(instance, result.plan) == ()
    assert fix.placements.items() <= placements_of(result.plan).items()
    assert result.objective is not None and best.objective is not None
    # Jobs are not inserted in order where some are held.
    assert result.objective <= (1.01 if held is None else 1.05) * best.objective
    assert "opening" in {record.name for record in result.moves}
    # Bounds that take work hold with placements held, too.
    quick = solve(instance, "greedy").bound
    assert result.bound > quick if objective == "weighted_completion" else result.bound >= quick


def test_placements_of_a_job_that_the_plan_lacks() -> None:
    plan = old_plan(two_jobs())
    assert plan is not None
    assert set(placements_of(plan, ["a"])) == {"a"}
    with pytest.raises(InvalidInputError) as caught:
        placements_of(plan, ["x", "a", "y"])
    assert len(caught.value.problems) == 2


def test_placements_are_of_data_parallel_jobs() -> None:
    instance = random_task_graph_instance(3)
    name = instance.task_graph_jobs[0].name
    plan = solve(instance, "greedy", threads=1).plan
    assert plan is not None and name not in placements_of(plan)
    with refuses("unsupported $.jobs; unknown-name $.jobs", naming=[name, "task graph", "nobody"]):
        placements_of(plan, [name, "nobody"])


def test_changes_are_validated() -> None:
    instance = generate("rack", 4)
    with refuses("duplicate-name $.jobs[13].name"):
        add_job(instance, instance.jobs[0])
    with refuses("unknown-name $.jobs"):
        remove_job(instance, "nobody")
    with refuses("unknown-name $.jobs", naming=[f"'{instance.jobs[0].name}'"]):
        remove_job(instance, f"{instance.jobs[0].name}-")
    with refuses("unknown-name $.cluster.links"):
        change_bandwidth(instance, "nothing", 5)
    with pytest.raises(InvalidInputError):
        change_bandwidth(instance, instance.cluster.links[0].name, 0)


def test_same_seed_and_work_give_the_same_plan() -> None:
    instance = generate("server", 5)
    plan = old_plan(instance)
    assert plan is not None
    after = add_job(instance, replace(instance.jobs[0], name="new"))
    runs = [solve(after, "auto", Options(threads=1, work_limit=0.05, seed=3), start=plan, fix=Fix()) for _ in range(2)]
    assert runs[0].plan is not None and runs[1].plan is not None
    assert runs[0].plan.jobs == runs[1].plan.jobs


def test_jobs_with_task_graphs_stay_on_their_gpus_beside_a_new_one() -> None:
    instance = random_task_graph_instance(2)
    plan = old_plan(instance)
    assert plan is not None
    after = add_job(instance, replace(instance.task_graph_jobs[0], name="new"))
    result = solve(after, "auto", ONE, start=plan, fix=Fix())
    assert result.plan is not None and check(after, result.plan) == ()

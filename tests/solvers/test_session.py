"""Sessions: the plans are those of a fresh solve, what was forgotten fits to what follows, and calls are refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jigsaw_opt import explain
from jigsaw_opt.checking import check
from jigsaw_opt.checking.proofs import check_proof
from jigsaw_opt.documents import add_job, instance_sha256, remove_job
from jigsaw_opt.errors import InvalidInputError, UsageError
from jigsaw_opt.instances.families import generate
from jigsaw_opt.problem import Block, Cluster, Instance, Iteration, Job, JobPlan, Model, Plan, Segment, Server
from jigsaw_opt.problem.compiled.operations import compile_instance
from jigsaw_opt.problem.compiled.timetable import objective_of
from jigsaw_opt.problem.depth import FreeDepth
from jigsaw_opt.problem.instance import Objective
from jigsaw_opt.problem.power import PowerCap
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.resolve import Fix
from jigsaw_opt.solvers.result import Status
from jigsaw_opt.solvers.session import Session
from jigsaw_opt.solvers.solve import solve
from tests.random_instances import random_instance, tight_instance
from tests.refusals import misuse, refuses

pytest.importorskip("ortools")

ONE = Options(threads=1, work_limit=0.01)


def two_jobs() -> Instance:
    """Two one-worker jobs on one GPU, each block 20 us."""
    model = Model((Segment("s", {"v": 10}, {"v": 10}, 10, 10),))
    cluster = Cluster((Server("s0", "v", 1, 10**6, 10),))
    return Instance("two", cluster, {"m": model}, (Job("a", "m", 1, 3), Job("b", "m", 1, 2)))


@pytest.mark.parametrize(
    "instance", [generate("tiny", 0), generate("tiny", 2), generate("tiny", 4), random_instance(4, "cyclic", "period")]
)
def test_without_time_going_on_a_session_is_solve_and_then_resolve(instance: Instance) -> None:
    session = Session(instance)
    first = session.solve(ONE)
    assert first.plan is not None and first.plan.jobs == _jobs(solve(instance, options=ONE).plan)
    session.add(job := replace(instance.jobs[0], name="new"))
    changed = add_job(instance, job)
    second = session.solve(ONE)
    assert second.plan is not None and second.plan.jobs == _jobs(
        solve(changed, "auto", ONE, start=first.plan, fix=Fix()).plan
    )
    session.remove(instance.jobs[0].name)
    changed = remove_job(changed, instance.jobs[0].name)
    left = second.plan.with_jobs(second.plan.jobs[1:])
    assert _jobs(session.solve(ONE).plan) == _jobs(solve(changed, "auto", ONE, start=left, fix=Fix()).plan)


def _jobs(plan: Plan | None) -> object:
    assert plan is not None
    return plan.jobs


@pytest.mark.parametrize("tight", [False, True])
@pytest.mark.parametrize("objective", ["makespan", "weighted_completion"])
def test_what_was_forgotten_and_what_follows_are_one_correct_plan(objective: Objective, tight: bool) -> None:
    forgotten = 0
    for seed in range(4):
        instance = random_instance(seed, "finite", objective, operations=14)
        if tight:
            instance = replace(tight_instance(seed, objective, kind="data-parallel"), name="tight")
            longer = (replace(job, iterations=3 * job.iterations, deadline_us=None) for job in instance.data_parallel)
            instance = replace(instance, jobs=tuple(longer))
        session, whole = Session(instance), Rolled(instance)
        for step in range(4):
            result = session.solve(ONE)
            if result.plan is None:
                break
            assert check(session.instance, result.plan) == ()
            assert result.bound_proof is not None and check_proof(session.instance, result.bound_proof) is None
            whole.take(session, result.plan)
            assert check(*whole.plan()) == ()
            starts = sorted(
                {b.start_us for j in result.plan.data_parallel for iteration in j.iterations for b in iteration.blocks}
            )
            now = session.origin_us + starts[len(starts) // 2] + 1
            iterations = sum(job.iterations for job in session.instance.jobs)
            session.advance(max(now, session.now_us))
            forgotten += sum(job.iterations for job in session.instance.jobs) < iterations
            late = replace(instance.data_parallel[0], name=f"late {step}", release_us=session.now_us)
            session.add(late)
            whole.jobs[late.name] = late
    assert forgotten >= 4


class Rolled:
    """All that a session has carried out and planned, with the times of the session."""

    def __init__(self, instance: Instance) -> None:
        self.instance, self.jobs = instance, {job.name: job for job in instance.data_parallel}
        self.done: dict[str, tuple[Iteration, ...]] = {}
        self.gpus: dict[str, tuple[str, ...]] = {}

    def take(self, session: Session, plan: Plan) -> None:
        """Put what is planned in the place of what was planned before from there on."""
        for job in plan.data_parallel:
            kept = self.jobs[job.name].iterations - len(job.iterations)
            past = self.done.get(job.name, ())
            if kept:
                assert self.gpus[job.name] == job.gpus
            if past and session.now_us:
                self._require_history(past[kept:], job, session)
            self.done[job.name] = past[:kept] + tuple(
                _later(iteration, session.origin_us) for iteration in job.iterations
            )
            self.gpus[job.name] = job.gpus

    def _require_history(self, past: tuple[Iteration, ...], job: JobPlan, session: Session) -> None:
        for before, now in zip(past, job.iterations, strict=True):
            after = _later(now, session.origin_us)
            for old, new in zip((*before.blocks, *before.transfers), (*after.blocks, *after.transfers), strict=True):
                assert old == new or min(old.start_us, new.start_us) >= session.now_us

    def plan(self) -> tuple[Instance, Plan]:
        """The instance of all jobs ever, and their plan."""
        jobs = tuple(self.jobs[name] for name in self.done)
        instance = replace(self.instance, jobs=jobs)
        plans = tuple(JobPlan(name, self.gpus[name], its) for name, its in self.done.items())
        value = objective_of(compile_instance(instance), plans, None)
        return instance, Plan.of_jobs(instance.name, instance_sha256(instance), "feasible", value, 0, None, plans)


def _later(iteration: Iteration, us: int) -> Iteration:
    return Iteration(
        tuple(replace(b, start_us=b.start_us + us, end_us=b.end_us + us) for b in iteration.blocks),
        tuple(replace(t, start_us=t.start_us + us, end_us=t.end_us + us) for t in iteration.transfers),
    )


def test_time_counts_from_the_oldest_iteration_under_way_and_ended_jobs_are_gone() -> None:
    session = Session(two_jobs())
    first = session.solve(ONE)
    assert first.objective == 100 and first.plan is not None
    session.advance(50)  # blocks start at 0, 20, 40, 60 and 80, of either job in turn
    assert (session.origin_us, session.now_us) == (20, 50)  # One of them waits, and stays in memory.
    second = session.solve(ONE)
    assert second.objective == 80 and second.plan is not None
    assert sum(len(job.iterations) for job in second.plan.jobs) == 4
    assert set(session.advance(100)) == {job.name for job in second.plan.jobs}
    assert session.instance.jobs == () and session.origin_us == 100
    with refuses("wrong-count $.jobs"):
        session.solve(ONE)
    assert session.fix.placements == {} and session.advance(100) == ()
    session.add(Job("c", "m", 1, 1, release_us=130, deadline_us=150))
    third = session.solve(ONE)
    assert third.objective == 50 and third.status is Status.OPTIMAL


def test_a_job_with_a_rule_on_all_its_iterations_keeps_them_until_it_ends() -> None:
    instance = two_jobs()
    session = Session(replace(instance, jobs=(Job("a", "m", 1, 3, depth=FreeDepth()),)))
    session.solve(ONE)
    session.advance(50)
    assert session.origin_us == 0 and session.instance.jobs[0].iterations == 3
    assert session.advance(60) == ("a",) and session.origin_us == 60


def test_jobs_that_do_not_fit_together_wait_for_one_another() -> None:
    """A GPU that holds one job at a time, and a queue of them: one that waits between two iterations stays in it."""
    model = Model((Segment("s", {"v": 10}, {"v": 10}, 10, 10),), state_factor=1)
    cluster = Cluster((Server("s0", "v", 1, 20, 10),))
    jobs = tuple(Job(name, "m", 1, 3) for name in "abcdef")
    instance = Instance("queue", cluster, {"m": model}, jobs)
    session = Session(instance)
    assert session.solve(ONE).objective == 360
    [first] = session.advance(70)
    session.add(Job("g", "m", 1, 2))
    result = session.solve(ONE)
    assert (result.objective, result.status, session.origin_us) == (340, Status.OPTIMAL, 60)
    session.advance(1000)
    assert first in "abcdef" and session.instance.jobs == ()
    # Its plan has a gap of 30 us after the first iteration.
    blocks = [Iteration((Block(1, start, start + 20),), ()) for start in (0, 50)]
    alone = replace(instance, jobs=(Job("a", "m", 1, 2),))
    plan = Plan.of_jobs(
        "queue", instance_sha256(alone), "feasible", 70, 40, None, (JobPlan("a", ("s0/0",), tuple(blocks)),)
    )
    session = Session(alone, plan)
    session.advance(30)
    session.add(Job("b", "m", 1, 1))
    rolled = session.solve(ONE).plan
    assert session.origin_us == 0 and rolled is not None and check(session.instance, rolled) == ()
    assert max(block.end_us for job in rolled.data_parallel for own in job.iterations for block in own.blocks) >= 70


def test_a_removed_job_that_comes_back_may_go_anywhere() -> None:
    session = Session(two_jobs())
    session.solve(ONE)
    session.advance(30)
    begun = set(session.fix.placements)
    assert begun
    for name in begun:
        session.remove(name)
        session.add(Job(name, "m", 1, 1))
    session.solve(ONE)
    assert session.fix.placements == {}


def test_a_deadline_that_has_passed_is_told_in_times_of_the_session() -> None:
    session = Session(two_jobs())
    session.solve(ONE)
    session.advance(50)
    session.add(Job("c", "m", 1, 1, deadline_us=90))
    session.advance(90)
    assert (session.origin_us, session.now_us) == (80, 90)
    session.add(Job("d", "m", 1, 1, deadline_us=95))
    session.advance(98)
    with refuses(
        'out-of-range $.jobs["c"].deadline_us; out-of-range $.jobs["d"].deadline_us', naming=["90", "98", "95"]
    ):
        session.solve(ONE)
    session.remove("c")
    session.remove("d")
    assert session.solve(ONE).plan is not None


def test_calls_that_make_no_sense_change_nothing() -> None:
    session = Session(two_jobs())
    session.advance(10)
    for wrong in (Job("a", "m", 1, 1), Job("c", "no such", 1, 1), Job("c", "m", 1, 1, deadline_us=5)):
        with pytest.raises(InvalidInputError):
            session.add(wrong)
    with refuses("unknown-name $.jobs"):
        session.remove("c")
    with misuse("wrong-order now_us"):
        session.advance(9)
    assert [job.name for job in session.instance.jobs] == ["a", "b"]
    cyclic = Session(replace(two_jobs(), horizon="cyclic", objective="period"))
    with pytest.raises(UsageError, match="no past"):
        cyclic.advance(1)
    with pytest.raises(UsageError, match="task graph"):
        Session(generate_task_graphs())


def generate_task_graphs() -> Instance:
    """An instance with one task-graph job."""
    from jigsaw_opt.documents import InstanceBuilder
    from jigsaw_opt.problem.task_graph import Slot, TaskGraph, TaskGraphBlock

    builder = InstanceBuilder("shaped")
    builder.add_cluster(two_jobs().cluster)
    builder.add_task_graph_job("p", TaskGraph((Slot("x"),), (TaskGraphBlock("F", ("x",), {"v": 5}),)), iterations=1)
    return builder.build()


def test_time_does_not_go_on_under_power_caps() -> None:
    instance = two_jobs()
    capped = replace(instance, cluster=replace(instance.cluster, power_caps=(PowerCap("all", ("s0",), 100),)))
    session = Session(capped)
    session.solve(ONE)
    with pytest.raises(UsageError, match="power cap 'all'"):
        session.advance(20)
    assert session.now_us == 0


def test_moments_of_other_types_are_refused() -> None:
    session = Session(two_jobs())
    for moment in (500.5, float("nan"), "5", None):
        with misuse("wrong-type now_us"):
            session.advance(moment)  # type: ignore[arg-type]
    session.solve(ONE)
    assert session.advance(10**6) == ("a", "b")
    for call in (solve, explained, checked):
        with refuses("empty $.jobs"):
            call(session.instance)


def explained(instance: Instance) -> None:
    explain(instance, solve(two_jobs(), options=ONE).plan)  # type: ignore[arg-type]


def checked(instance: Instance) -> None:
    check(instance, solve(two_jobs(), options=ONE).plan)  # type: ignore[arg-type]

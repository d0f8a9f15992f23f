"""Proves that plans keep deadlines and cycle-time limits, and that where none can, the fewest jobs are named.

Optima are those of brute force; what a message says of more time or more memory is true of the instance so changed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from jigsaw_opt.checking import check
from jigsaw_opt.errors import UsageError
from jigsaw_opt.problem import (
    Cluster,
    Instance,
    Job,
    Link,
    Model,
    Segment,
    Server,
    Slot,
    TaskGraph,
    TaskGraphBlock,
    TaskGraphJob,
)
from jigsaw_opt.problem.compiled.operations import compile_instance
from jigsaw_opt.problem.instance import Horizon, Objective
from jigsaw_opt.solvers.bounds import Proof
from jigsaw_opt.solvers.ilp import solver as ilp
from jigsaw_opt.solvers.infeasibility.guarantees import exceeded_guarantees
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.resolve import Fix
from jigsaw_opt.solvers.result import Result, Status, StoppedBy
from jigsaw_opt.solvers.solve import solve
from jigsaw_opt.solvers.solve_state import SolveState
from tests.oracle import optimum
from tests.random_instances import GOALS, random_instance, with_guarantees
from tests.random_task_graphs import random_mixed_instance, random_task_graph_instance
from tests.refusals import carries
from tests.task_graph_oracle import task_graph_optimum

pytest.importorskip("ortools")


def solved(instance: Instance, solver: str = "cpsat", workers: int = 1) -> Result:
    return solve(instance, solver, Options(threads=workers, work_limit=0.2 if solver == "search" else 20.0))


def agrees(instance: Instance, result: Result, best: int | None) -> str:
    """Sees that a result is the truth; says what it is."""
    assert result.objective == best, instance.name
    assert result.status == (Status.INFEASIBLE if best is None else Status.OPTIMAL), instance.name
    if best is None:
        named = [conflict for conflict in result.conflicts if conflict.kind in ("deadline", "pace")]
        guaranteed_jobs = {job.name for job in instance.guaranteed_jobs}
        assert any(guaranteed_jobs & set(conflict.jobs) for conflict in named), instance.name
        return "infeasible"
    assert result.plan is not None
    assert check(instance, result.plan) == ()
    return "optimal"


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["cpsat", "auto"])
@pytest.mark.parametrize(("horizon", "objective"), GOALS)
def test_data_parallel_jobs_agree_with_brute_force(horizon: Horizon, objective: Objective, solver: str) -> None:
    found: Counter[str] = Counter()
    for seed in range(300, 315):
        free = random_instance(seed, horizon, objective, operations=6)
        best = optimum(free)
        if best is None:
            continue
        about = best if horizon == "cyclic" else optimum(replace(free, objective="makespan")) or 1
        instance = with_guarantees(free, Random(seed), about)
        guaranteed = optimum(instance)
        found[agrees(instance, solved(instance, solver), guaranteed)] += 1
        found["other"] += guaranteed is not None and guaranteed > best
    assert found["infeasible"] and found["optimal"]
    assert found["other"] or horizon == "cyclic" or objective == "makespan"


@pytest.mark.slow
@pytest.mark.parametrize(("solver", "seeds"), [("cpsat", range(300, 306)), ("auto", range(314, 320))])
@pytest.mark.parametrize(("horizon", "objective"), GOALS)
def test_task_graph_jobs_agree_with_brute_force(
    horizon: Horizon, objective: Objective, solver: str, seeds: range
) -> None:
    found: Counter[str] = Counter()
    for seed in seeds:
        make = random_mixed_instance if seed % 2 else random_task_graph_instance
        free = make(seed, horizon, objective)
        result = solved(replace(free, objective="makespan") if horizon == "finite" else free)
        if result.objective is None:
            continue
        instance = with_guarantees(free, Random(seed), result.objective)
        found[agrees(instance, solved(instance, solver), task_graph_optimum(instance))] += 1
    assert found["infeasible"] and found["optimal"]


def two_on_one_gpu(**guarantees: int) -> Instance:
    """A short job and a long one on one GPU; the guarantee is that of the long one."""
    models = {name: Model((Segment("all", {"v": time}, {"v": time}, 0, 0),)) for name, time in (("a", 5), ("b", 10))}
    jobs = (Job("short", "a", 1, 1), Job("long", "b", 1, 2, **guarantees))
    horizon: Horizon = "cyclic" if "pace_us" in guarantees else "finite"
    objective: Objective = "period" if horizon == "cyclic" else "weighted_completion"
    return Instance("two", Cluster((Server("s", "v", 1, 1, 1),)), models, jobs, horizon, objective)


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["makespan", "weighted_completion"])
def test_the_integer_program_agrees_with_brute_force(objective: Objective, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("highspy")
    monkeypatch.setattr(ilp, "offer_greedy", lambda solve_state, operations, seed: False)
    found: Counter[str] = Counter()
    for seed in range(500, 512):
        free = random_instance(seed, "finite", objective, operations=6)
        about = optimum(replace(free, objective="makespan"))
        if about is not None:
            instance = with_guarantees(free, Random(seed), about)
            result = solve(instance, "ilp", Options(threads=1))
            found[agrees(instance, result, optimum(instance))] += 1
    assert found["infeasible"] and found["optimal"]


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["greedy", "search", "cpsat", "auto", "ilp"])
def test_a_deadline_turns_the_order_round(solver: str) -> None:
    assert solved(two_on_one_gpu(), solver).objective == 10 + 50
    assert solved(two_on_one_gpu(deadline_us=49), solver).objective == 40 + 50


def in_task_graph(instance: Instance) -> Instance:
    """The same with jobs that state their operations."""
    jobs = []
    for job in instance.data_parallel:
        block = TaskGraphBlock("all", ("one",), {"v": 2 * instance.models[job.model].segments[0].forward_us["v"]})
        given = job.iterations, job.release_us, job.weight, job.deadline_us, job.pace_us
        jobs.append(TaskGraphJob(job.name, TaskGraph((Slot("one"),), (block,)), *given))
    return replace(instance, models={}, jobs=tuple(jobs))


@pytest.mark.parametrize("solver", ["greedy", "cpsat", "auto"])
def test_a_deadline_turns_the_order_of_task_graph_jobs_round(solver: str) -> None:
    assert solved(in_task_graph(two_on_one_gpu()), solver).objective == 10 + 50
    assert solved(in_task_graph(two_on_one_gpu(deadline_us=49)), solver).objective == 40 + 50
    late = solved(in_task_graph(two_on_one_gpu(deadline_us=39)), solver)
    assert [(conflict.kind, conflict.jobs) for conflict in late.conflicts] == [("deadline", ("long",))]


@pytest.mark.parametrize("solver", ["greedy", "search", "cpsat", "auto"])
def test_certain_causes_name_the_guarantee(solver: str) -> None:
    late = solved(two_on_one_gpu(deadline_us=39), solver)
    assert (late.status, late.stopped_by) == (Status.INFEASIBLE, StoppedBy.PROOF)
    assert [(conflict.kind, conflict.jobs) for conflict in late.conflicts] == [("deadline", ("long",))]
    assert carries(late.conflicts[0].message, "earlier", "40 us", "39 us")
    assert carries(late.conflicts[0].message, "deadline", "1 us")
    slow = solved(two_on_one_gpu(pace_us=24), solver)
    assert (slow.status, [conflict.kind for conflict in slow.conflicts]) == (Status.INFEASIBLE, ["pace"])
    assert slow.conflicts[0].jobs == ("long", "short")  # The work of both on the only GPU.
    assert carries(slow.conflicts[0].message, "shorter", "50 us")
    assert carries(slow.conflicts[0].message, "25 us", "guaranteed")
    assert solved(two_on_one_gpu(pace_us=25), solver).objective == 50


def test_a_cycle_time_limit_names_the_job_that_is_too_long_for_it() -> None:
    asked = two_on_one_gpu(pace_us=25)
    jobs = (replace(asked.jobs[0], pace_us=30), asked.jobs[1])
    result = solved(replace(asked, jobs=jobs), "greedy")
    assert [(conflict.kind, conflict.jobs) for conflict in result.conflicts] == [("pace", ("short", "long"))]
    assert carries(result.conflicts[0].message, "job long", "40 us", "job short", "30 us")


def test_a_proof_that_no_plan_keeps_all_guarantees_names_them() -> None:
    free = two_on_one_gpu(deadline_us=40)
    jobs = (replace(free.jobs[0], deadline_us=10), free.jobs[1])
    result = solved(replace(free, jobs=jobs, objective="makespan"))
    assert result.status is Status.INFEASIBLE
    assert result.conflicts[0].kind == "deadline" and set(result.conflicts[0].jobs) == {"short", "long"}
    assert carries(result.conflicts[0].message, "deadline", "10 us")


def exchanging(memory: int, *more: Job, deadline_us: int = 40) -> Instance:
    """Two jobs over two GPUs whose blocks would run during the other's exchanges, if memory had room for both."""
    times = {"quick": 2, "long": 10}
    models = {name: Model((Segment("all", {"v": time}, {"v": 0}, 20, 0),)) for name, time in times.items()}
    jobs = (Job("a", "quick", 2, 2, deadline_us=30), Job("b", "long", 2, 2, deadline_us=deadline_us))
    cluster = Cluster(tuple(Server(name, "v", 1, memory, 1) for name in "st"), (), (Link("l", ("s", "t"), 4_000_000),))
    return Instance("two", cluster, models, (*jobs, *more), "finite", "makespan")


def test_a_deadline_that_memory_breaks_names_it_with_the_time_and_the_jobs() -> None:
    late = Job("c", "long", 1, 1, release_us=100, deadline_us=500)
    (conflict,) = solved(exchanging(100, late)).conflicts
    assert (conflict.kind, conflict.jobs) == ("deadline", ("a", "b"))
    assert carries(conflict.message, "any fewer", "job b needs 4 us more", "to end by 44 us")
    assert carries(conflict.message, "memory is the cause", "no GPU has memory for job b beside a")
    assert solved(exchanging(100, late, deadline_us=43)).status is Status.INFEASIBLE
    assert solved(exchanging(100, late, deadline_us=44)).status is Status.OPTIMAL
    assert solved(exchanging(160, late)).status is Status.OPTIMAL


def test_a_deadline_that_work_breaks_says_nothing_of_memory() -> None:
    (conflict,) = solved(exchanging(1000, deadline_us=31)).conflicts
    assert conflict.jobs == ("a", "b") and "memory" not in conflict.message


def test_guarantees_of_task_graph_jobs_name_only_the_jobs_that_take_part() -> None:
    asked = two_on_one_gpu(deadline_us=45)
    jobs = (replace(asked.jobs[0], deadline_us=10), asked.jobs[1])
    others = tuple(Job(f"other{k}", "a", 1, 1, 1000 + k, deadline_us=9000) for k in range(3))
    (conflict,) = solved(in_task_graph(replace(asked, jobs=(*others, *jobs)))).conflicts
    assert (conflict.kind, conflict.jobs) == ("deadline", ("short", "long"))
    assert carries(conflict.message, "job long needs 5 us more", "to end by 50 us")


def test_what_was_not_tried_is_not_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jigsaw_opt.solvers.infeasibility.together._WORK", 0.0)
    (conflict,) = solved(exchanging(100)).conflicts
    assert set(conflict.jobs) == {"a", "b"}
    assert not carries(conflict.message, "fewer of these") and "more:" not in conflict.message


def test_a_bound_names_the_jobs_that_it_rests_on_and_the_latest_of_their_deadlines() -> None:
    operations = compile_instance(exchanging(100))
    proof = Proof("presences", "1 + 49 = 50", jobs=("a",))
    conflict = exceeded_guarantees(operations, 50, proof)
    assert conflict is not None and conflict.jobs == ("a",)
    assert carries(conflict.message, "50 us", "deadline of a", "30 us", "presences", "20 us later")
    assert exceeded_guarantees(operations, 40, proof) is None


def test_others_refuse_guarantees_by_name() -> None:
    class Careless:
        """A solver that says nothing of guarantees."""

        name = display_name = "careless"

        def unavailable(self) -> str | None:
            return None

        def unsupported(self, instance: Instance) -> str | None:
            return None

        def run(self, solve_state: SolveState) -> Result:
            return solve_state.conclude(lambda: None)

    why = "'careless' does not take instance 'two': job 'long' has a deadline or a cycle-time limit"
    with pytest.raises(UsageError, match=why):
        solve(two_on_one_gpu(deadline_us=60), Careless())


@pytest.mark.slow
@pytest.mark.parametrize("guarantees", [{"deadline_us": 45}, {"pace_us": 30}])
def test_solving_anew_keeps_guarantees(guarantees: dict[str, int]) -> None:
    guaranteed = two_on_one_gpu(**guarantees)
    old = solved(
        replace(guaranteed, jobs=tuple(replace(job, deadline_us=None, pace_us=None) for job in guaranteed.jobs))
    )
    assert old.plan is not None
    result = solve(guaranteed, "auto", Options(threads=1, work_limit=0.2), start=old.plan, fix=Fix())
    assert result.plan is not None and check(guaranteed, result.plan) == ()

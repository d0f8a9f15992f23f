"""Methods that look at a part of all plans claim nothing of the others (specification: moves, memory)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jigsaw_opt.problem import Cluster, Instance, Job, Model, Segment, Server, compile_instance
from jigsaw_opt.solvers.bounds import Proof
from jigsaw_opt.solvers.cpsat import CPSAT
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.result import Conflict, Result, Status, StoppedBy
from jigsaw_opt.solvers.solve import solve
from jigsaw_opt.solvers.solve_state import SolveState
from jigsaw_opt.solvers.solve_state.proofs import searched_part
from tests.refusals import carries

ONE = Model((Segment("s", {"v": 5}, {"v": 5}, 0, 30),))


def three_jobs(restart_us: int | None = 0, gpus: int = 2) -> Instance:
    """Three equal jobs on two GPUs: with moves they end after 150, without after 200 (McNaughton, 1959)."""
    jobs = tuple(Job(name, "one", 1, 10, restart_us=restart_us) for name in "abc")
    return Instance("three", Cluster((Server("x", "v", gpus, 1000, 10**6),)), {"one": ONE}, jobs)


def in_turn() -> Instance:
    """Two jobs of which the only GPU holds one at a time: 20 is least."""
    model = Model((Segment("s", {"v": 5}, {"v": 5}, 60, 0),), state_factor=1)
    jobs = (Job("a", "m", 1, 1), Job("b", "m", 1, 1))
    return Instance("turn", Cluster((Server("x", "v", 1, 100, 10**6),)), {"m": model}, jobs)


def state(instance: Instance, part: str | None = None) -> SolveState:
    return SolveState("test", compile_instance(instance), Options(), lambda event: None, part)


def test_what_a_method_says_decides_which_plans_it_looks_at() -> None:
    class All:
        moves = memory_in_time = True

    for instance, told in ((three_jobs(), "no job moves"), (in_turn(), "all jobs are present")):
        operations = compile_instance(instance)
        assert carries(searched_part(None, operations), told)
        assert searched_part(All, operations) == ""
    assert searched_part(None, compile_instance(three_jobs(None))) == ""
    once = replace(in_turn(), horizon="cyclic", objective="period")
    assert searched_part(None, compile_instance(once)) == ""


def test_a_proof_of_a_part_ends_the_solve_and_is_none_of_all_plans() -> None:
    solving = state(in_turn(), "plans in which all jobs are present all the time")
    first, events = solving.proven, len(solving.trajectory)
    solving.raise_bound(first.value + 7)
    assert (solving.bound, solving.proven, len(solving.trajectory)) == (first.value + 7, first, events)
    solving.raise_bound(first.value + 3, Proof("a relaxation"))
    assert (solving.bound, solving.proven.value) == (first.value + 7, first.value + 3)
    assert solving.reason() is None

    def never_asked() -> Conflict:
        raise AssertionError("the conflict is asked for only where it is one of all plans")

    solving.refute(never_asked)
    assert solving.reason() is StoppedBy.COMPLETED
    result = solving.result(StoppedBy.COMPLETED)
    assert (result.status, result.bound, result.conflicts) == (Status.UNKNOWN, first.value + 3, ())
    assert "present" in result.part and "present" in repr(result) and result.ruled_out == result.part


def test_a_proof_counts_where_all_plans_are_looked_at() -> None:
    solving = state(in_turn(), "")
    solving.refute(lambda: Conflict("search", ("a",), "no place"))
    assert solving.result(solving.reason() or StoppedBy.COMPLETED).status is Status.INFEASIBLE


@pytest.mark.parametrize("method", ("cpsat", "portfolio", "ilp"))
def test_listed_plans_of_jobs_that_may_move_are_not_proven_best(method: str) -> None:
    result = solve(three_jobs(), method, Options(time_limit=20))
    assert (result.status, result.objective, result.bound) == (Status.FEASIBLE, 200, 150)
    assert result.plan is not None and (result.plan.status, result.plan.bound) == ("feasible", 150)
    assert result.stopped_by is StoppedBy.COMPLETED and "moves" in result.part
    still = solve(three_jobs(None), method, Options(time_limit=20))
    assert (still.status, still.objective, still.part) == (Status.OPTIMAL, 200, "")


@pytest.mark.parametrize("more", ({}, {"gap": 0.0}, {"target": 1}), ids=str)
def test_auto_never_proves_two_values(more: dict[str, float]) -> None:
    options = Options(work_limit=1, **more)  # type: ignore[arg-type]
    result = solve(three_jobs(), "auto", options)
    assert result.bound <= 150
    assert (result.status is Status.OPTIMAL) == (result.objective == 150)


class Claims:
    """A method of others that claims to have proven whatever it found."""

    name = display_name = "claims"

    def unavailable(self) -> None:
        return None

    def unsupported(self, instance: Instance) -> None:
        return None

    def run(self, solve_state: SolveState) -> Result:
        plan = solve(replace(solve_state.operations.instance), CPSAT, solve_state.options).plan
        if plan is None:
            return Result(Status.INFEASIBLE, StoppedBy.PROOF, None, 0, None)
        return Result(Status.OPTIMAL, StoppedBy.PROOF, plan.objective, plan.objective, plan)


def test_a_method_of_others_that_says_nothing_proves_nothing_of_moves() -> None:
    result = solve(three_jobs(), Claims(), Options(time_limit=20))
    assert (result.status, result.objective, result.bound) == (Status.FEASIBLE, 200, 150)
    assert solve(three_jobs(None), Claims(), Options(time_limit=20)).status is Status.OPTIMAL

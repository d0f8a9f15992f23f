"""Barriers between many operations as milestones: the same plans and bounds as with a wait for each pair."""

from __future__ import annotations

import pytest

from jigsaw_opt.problem import Cluster, Edge, Instance, Server, Slot, TaskGraph, TaskGraphBlock, TaskGraphJob
from jigsaw_opt.problem.compiled import task_graph as compiled
from jigsaw_opt.problem.compiled.task_graph import Precedence, compile_task_graph
from jigsaw_opt.problem.instance import Horizon, Objective
from jigsaw_opt.solvers.explanation.breakdown import Explainer
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.resolve.kept_order import KeptOrder
from jigsaw_opt.solvers.result import Result, Status
from jigsaw_opt.solvers.solve import solve
from tests.random_task_graphs import random_task_graph_instance

pytest.importorskip("ortools")

KINDS: list[tuple[Horizon, Objective]] = [
    ("finite", "makespan"),
    ("finite", "weighted_completion"),
    ("cyclic", "period"),
]


def wide(blocks: int, iterations: int = 2, horizon: Horizon = "finite") -> Instance:
    """Blocks of 1 on one GPU that wait for nothing, in iterations one behind the other."""
    graph = TaskGraph(
        (Slot("s"),), tuple(TaskGraphBlock(f"b{n}", ("s",), {"v": 1}) for n in range(blocks)), (), (), "job"
    )
    job = TaskGraphJob("j", graph, iterations)
    objective: Objective = "makespan" if horizon == "finite" else "period"
    return Instance("wide", Cluster((Server("s", "v", 1, 10, 10**6),)), {}, (job,), horizon, objective)


def test_a_milestone_stands_for_the_pairs_of_a_barrier(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = tuple(TaskGraphBlock(name, ("s",), {"v": 1}) for name in "abc")
    graph = TaskGraph((Slot("s"),), blocks, (), (Edge("a", "b"),), "job")
    job = TaskGraphJob("j", graph, 2)
    assert compile_task_graph(job).milestones == 0
    monkeypatch.setattr(compiled, "_MOST_PAIRS", 3)
    assert compile_task_graph(job).milestones == 1
    own = {it for it in compile_task_graph(job).precedences("cyclic") if 3 in (it.before[1], it.after[1])}
    ends = {Precedence((i, last), (1 - i, 3), i) for i in range(2) for last in (1, 2)}
    assert own == ends | {Precedence((i, 3), (i, first), 0) for i in range(2) for first in (0, 2)}


@pytest.mark.parametrize("solver", ["greedy", "cpsat"])
@pytest.mark.parametrize(("horizon", "objective"), KINDS)
@pytest.mark.parametrize("seed", [3, 5])
def test_milestones_change_no_plan_and_no_bound(
    horizon: Horizon, objective: Objective, seed: int, solver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = random_task_graph_instance(seed, horizon, objective)

    def solved() -> Result:
        return solve(instance, solver, Options(threads=1, work_limit=2.0))

    with_pairs = solved()
    monkeypatch.setattr(compiled, "_MOST_PAIRS", 0)
    found = solved()
    assert (found.objective, found.bound) == (with_pairs.objective, with_pairs.bound)
    assert found.plan is not None
    # What reads a plan again puts the milestones where they were.
    order = KeptOrder.of(instance, found.plan)
    timing = order.timed([], [], order.operations.routes)
    assert timing is not None and all(Explainer(order).of(job).chain for job in range(len(instance.jobs)))
    if horizon == "finite":
        assert all(a <= b for a, b in zip(timing.starts, order.starts, strict=True))


@pytest.mark.parametrize("horizon", ["finite", "cyclic"])
def test_a_job_of_thousands_of_operations_side_by_side_is_solved_at_once(horizon: Horizon) -> None:
    # With a wait for each pair, there would be two million.
    result = solve(wide(1500, 2, horizon), "greedy")
    assert result.status is Status.OPTIMAL
    assert result.objective == 3000

"""What is proven of an instance is proven of all its plans, so nothing that another solve says is against it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from jigsaw_opt.checking import check
from jigsaw_opt.problem import Instance, Plan
from jigsaw_opt.problem.instance import Objective
from jigsaw_opt.solvers.resolve import Fix
from jigsaw_opt.solvers.result import Result, Status
from jigsaw_opt.solvers.session import Session
from jigsaw_opt.solvers.solve import solve
from tests.random_instances import tight_instance

pytest.importorskip("ortools")

QUICK = (1, 6, 12, 13, 17, 25, 26, 37, 39, 42, 49)
"""Seeds whose instances take the least time of those that have a plan."""
SEEDS = sorted({*range(0, 60, 4), *QUICK})
LIMITS: dict[str, Any] = {"threads": 1, "work_limit": 0.01}
WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "phased": ("phased", {"threads": 1}),
    "greedy": ("greedy", LIMITS),
    "search": ("search", LIMITS),
    "cpsat": ("cpsat", LIMITS),
    "a little work": ("auto", {"threads": 1, "work_limit": 0.001}),
    "auto": ("auto", LIMITS),
    "no gap": ("auto", {**LIMITS, "gap": 0}),
    "a target": ("auto", {**LIMITS, "target": 1}),
}


def answers(instance: Instance) -> Iterator[tuple[str, Result]]:
    """The results of all ways to solve it, from nothing and from the plans found before."""
    plans: list[Plan] = []
    for name, (method, options) in WAYS.items():
        result = solve(instance, method, **options)
        plans += [result.plan] if result.plan is not None else []
        yield name, result
    for plan in ([plan for plan in plans if plan.is_phased][:1], [plan for plan in plans if not plan.is_phased][:1]):
        for start in plan:
            for method, fix in (("auto", None), ("auto", Fix()), ("phased", None), ("phased", Fix())):
                kind = "phased" if start.is_phased else "listed"
                # What makes phased plans counts no work.
                limits = {"threads": 1} if method == "phased" or start.is_phased else LIMITS
                yield f"{method} from a {kind} plan, {fix}", solve(instance, method, start=start, fix=fix, **limits)
    if not instance.task_graph_jobs:
        yield "a session", Session(instance).solve(**LIMITS)


def require_one_answer(instance: Instance) -> None:
    """Compare each result with every other."""
    found = dict(answers(instance))
    told = {name: (result.status.value, result.bound, result.objective) for name, result in found.items()}
    objectives = [result.objective for result in found.values() if result.objective is not None]
    for name, result in found.items():
        assert result.plan is None or check(instance, result.plan) == (), (name, told)
        assert (result.plan is None) == (result.status in (Status.UNKNOWN, Status.INFEASIBLE)), (name, told)
        assert result.status is not Status.INFEASIBLE or not objectives, (name, told)
        assert all(result.bound <= objective for objective in objectives), (name, told)
        assert (result.status is Status.OPTIMAL) == (result.objective == result.bound), (name, told)


@pytest.mark.parametrize(
    "seed",
    [
        seed if seed in QUICK else pytest.param(seed, marks=pytest.mark.slow)
        for seed in sorted({*range(0, 60, 4), *QUICK})
    ],
)
def test_all_solves_agree(seed: int) -> None:
    objective: Objective = "makespan" if seed % 2 else "weighted_completion"
    require_one_answer(tight_instance(seed, objective, restarts=seed % 3 == 0))

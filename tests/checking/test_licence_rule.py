"""Licences: what the checker says of plans just within the rule, and a microsecond beyond."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from jigsaw_opt.checking import check
from jigsaw_opt.documents import instance_sha256
from jigsaw_opt.problem import (
    Block,
    Cluster,
    Instance,
    Iteration,
    Job,
    JobPlan,
    Model,
    Phase,
    PhaseGroup,
    Plan,
    Segment,
    Server,
)
from jigsaw_opt.problem.instance import Horizon
from tests.phased_referee import accepts

NAMED = (("tool",), ("tool",), ("tool", "data"))


def licensed(count: int, horizon: Horizon = "finite", named: Sequence[tuple[str, ...]] = NAMED) -> Instance:
    """Jobs of one block of 10 us on GPUs of their own, which name licences."""
    net = Model((Segment("x", {"v": 10}, {"v": 0}, 0, 0),))
    cluster = Cluster((Server("s", "v", 3, 0, 1),), licences={"tool": count, "data": 1})
    jobs = tuple(Job(f"j{k}", "net", 1, 1, licences=names) for k, names in enumerate(named))
    objective = "makespan" if horizon == "finite" else "period"
    return Instance("licensed", cluster, {"net": net}, jobs, horizon, objective)  # type: ignore[arg-type]


def one(number: int, start: int, length: int = 10) -> JobPlan:
    return JobPlan(f"j{number}", (f"s/{number}",), (Iteration((Block(1, start, start + length),), ()),))


def rules(instance: Instance, starts: Sequence[int], objective: int, period: int | None = None) -> list[str]:
    jobs = tuple(one(number, start) for number, start in enumerate(starts))
    plan = Plan.of_jobs(instance.name, instance_sha256(instance), "feasible", objective, 0, period, jobs)
    return [f"{violation.rule} {violation.path}" for violation in check(instance, plan)]


def test_as_many_jobs_are_present_as_there_are_licences() -> None:
    assert rules(licensed(3), [0, 0, 0], 10) == []
    assert rules(licensed(2), [0, 0, 0], 10) == ["licences $.jobs[2]"]
    assert rules(licensed(2), [0, 0, 10], 20) == rules(licensed(1), [10, 0, 20], 30) == []
    # A microsecond sooner, all three are present at once.
    assert rules(licensed(2), [0, 0, 9], 19) == ["licences $.jobs[2]"]
    assert rules(licensed(2), [9, 0, 0], 19) == ["licences $.jobs[2]"]
    assert rules(licensed(0, named=[(), ("data",), ()]), [0, 0, 0], 10) == []


def test_on_the_cyclic_horizon_all_jobs_hold_their_licences_all_the_time() -> None:
    assert rules(licensed(3, "cyclic"), [0, 10, 20], 30, 30) == []
    assert rules(licensed(2, "cyclic"), [0, 10, 20], 30, 30) == ["licences $.jobs[2]"]


@pytest.mark.parametrize(
    ("count", "restart_us", "phases", "broken"),
    [
        (2, None, [[(0, 1, 2)]], {"licences"}),
        (3, None, [[(0, 1, 2)]], set()),
        (1, None, [[(0,), (1,), (2,)]], set()),
        # The first job comes back, and keeps its licence meanwhile unless it may move.
        (1, None, [[(0,), (1,), (0,), (2,)]], {"licences"}),
        (1, 0, [[(0,), (1,), (0,), (2,)]], set()),
        (2, None, [[(0,), (1,), (0,), (2,)]], set()),
        (2, None, [[(0,)], [(1,), (2,)]], {"groups"}),
        (3, None, [[(0,)], [(1,), (2,)]], set()),
    ],
)
def test_licences_count_phase_by_phase(
    count: int, restart_us: int | None, phases: list[list[tuple[int, ...]]], broken: set[str]
) -> None:
    instance = licensed(count)
    visits = sum(phase.count(0) for group in phases for phase in group)
    first = replace(instance.jobs[0], iterations=visits, restart_us=restart_us)
    instance = replace(instance, jobs=(first, *instance.jobs[1:]))
    groups, end = list[PhaseGroup](), 0
    for group in phases:
        made = tuple(Phase(10 * k, 10, 1, tuple(one(job, 0) for job in phase)) for k, phase in enumerate(group))
        groups, end = [*groups, PhaseGroup(made)], max(end, 10 * len(group))
    plan = Plan(instance.name, instance_sha256(instance), "feasible", end, 0, tuple(groups))
    assert {violation.rule for violation in check(instance, plan)} == broken
    assert accepts(instance, plan) == (not broken)

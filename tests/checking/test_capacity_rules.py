"""Power caps and licences: what the checker says of plans just within the rule, at its limit, and beyond."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from jigsaw_opt.checking import check
from jigsaw_opt.documents import instance_sha256
from jigsaw_opt.problem import (
    Block,
    Cluster,
    Execution,
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
    Slot,
    TaskGraph,
    TaskGraphBlock,
    TaskGraphIteration,
    TaskGraphJob,
    TaskGraphJobPlan,
)
from jigsaw_opt.problem.instance import Horizon
from jigsaw_opt.problem.power import PowerCap
from tests.phased_referee import accepts

SERVERS = (Server("s", "v", 2, 0, 1), Server("t", "w", 1, 0, 1))


def capped(watts: int = 500, horizon: str = "finite", servers: Sequence[str] = ("s", "t")) -> Instance:
    """Two jobs of one block of 10 us, which draw 300 W on `s` and 200 W on `t`, under a cap."""
    net = Model((Segment("x", {"v": 10, "w": 10}, {"v": 0, "w": 0}, 0, 0),), power_w={"v": 300, "w": 200})
    cluster = Cluster(SERVERS, power_caps=(PowerCap("room", tuple(servers), watts),))
    jobs = (Job("a", "net", 1, 1), Job("b", "net", 1, 1))
    objective = "makespan" if horizon == "finite" else "period"
    return Instance("capped", cluster, {"net": net}, jobs, horizon, objective)  # type: ignore[arg-type]


def one_block(name: str, gpu: str, start: int, length: int = 10) -> JobPlan:
    return JobPlan(name, (gpu,), (Iteration((Block(1, start, start + length),), ()),))


def rules_of(
    instance: Instance, jobs: Sequence[JobPlan | TaskGraphJobPlan], objective: int, period: int | None = None
) -> list[str]:
    plan = Plan.of_jobs(instance.name, instance_sha256(instance), "feasible", objective, 0, period, tuple(jobs))
    return [f"{violation.rule} {violation.path}" for violation in check(instance, plan)]


def test_a_cap_is_kept_up_to_its_last_watt() -> None:
    """On both servers they draw 500 W together, on one 600 W."""
    jobs = [one_block("a", "s/0", 0), one_block("b", "t/0", 0)]
    assert rules_of(capped(500), jobs, 10) == []
    assert rules_of(capped(499), jobs, 10) == ["power $.jobs[0].iterations[0].blocks[0]"]
    assert rules_of(capped(500), [one_block("a", "s/0", 0), one_block("b", "s/1", 0)], 10)[0].startswith("power")
    assert rules_of(capped(500, servers=("t",)), [one_block("a", "s/0", 0), one_block("b", "s/1", 0)], 10) == []


@pytest.mark.parametrize("horizon", ["finite", "cyclic"])
def test_a_plan_that_exceeds_a_cap_for_one_microsecond_is_refused(horizon: str) -> None:
    """Blocks that touch do not run together; one that starts a microsecond earlier, or is stated to end later, does."""
    instance, period = capped(300, horizon), None if horizon == "finite" else 20
    assert rules_of(instance, [one_block("a", "s/0", 0), one_block("b", "s/1", 10)], 20, period) == []
    for other in (one_block("b", "s/1", 9), one_block("b", "s/1", 9, 11)):
        objective = period or other.iterations[0].blocks[0].end_us
        assert rules_of(instance, [one_block("a", "s/0", 0), other], objective, period) == [
            "power $.jobs[0].iterations[0].blocks[0]"
        ]
    late = [one_block("a", "s/0", 0, 11), one_block("b", "s/1", 10)]
    assert rules_of(instance, late, period or 20, period)[0].startswith("power")


def test_moments_count_modulo_the_period() -> None:
    """The second block reaches out of its period into the first block of the next one."""
    instance = capped(300, "cyclic")
    assert rules_of(instance, [one_block("a", "s/0", 0), one_block("b", "s/1", 10)], 19, 19)[0].startswith("power")
    assert rules_of(instance, [one_block("a", "s/0", 40), one_block("b", "s/1", 10)], 20, 20) == []


def test_a_sharded_block_draws_on_each_of_its_gpus() -> None:
    shape = TaskGraph((Slot("x"), Slot("y")), (TaskGraphBlock("B", ("x", "y"), {"v": 10}, {"v": 250}),))
    whole = replace(capped(500), models={}, jobs=(TaskGraphJob("p", shape, 1),))
    plan = TaskGraphJobPlan("p", ("s/0", "s/1"), (TaskGraphIteration((Execution(0, 10),), ()),))
    assert rules_of(whole, [plan], 10) == []
    less = replace(whole, cluster=replace(whole.cluster, power_caps=(PowerCap("room", ("s",), 499),)))
    assert rules_of(less, [plan], 10) == ["power $.jobs[0].iterations[0].blocks[0]"]


def test_groups_of_a_phased_plan_share_no_cap() -> None:
    instance = capped(300)
    phases = [Phase(10 * k, 10, 1, (one_block(name, f"s/{k}", 0),)) for k, name in enumerate("ab")]

    def stated(groups: tuple[PhaseGroup, ...]) -> list[str]:
        plan = Plan(instance.name, instance_sha256(instance), "feasible", 20, 0, groups, {})
        return [violation.rule for violation in check(instance, plan)]

    assert stated((PhaseGroup(tuple(phases)),)) == []
    assert stated(tuple(PhaseGroup((phase,)) for phase in phases)) == ["groups"]
    both = Phase(0, 20, 1, (one_block("a", "s/0", 0), one_block("b", "s/1", 0)))
    assert "power" in stated((PhaseGroup((both,)),))


def test_a_server_that_is_gone_leaves_its_caps() -> None:
    left = capped(500).cluster.without(servers=["t"])
    assert left.power_caps == (PowerCap("room", ("s",), 500),)
    assert left.without(servers=["s"]).power_caps == ()


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

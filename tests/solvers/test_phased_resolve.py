"""Phased plans of changed instances: the past stays, what is left is planned anew, never worse than the old plan."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import takewhile
from pathlib import Path

import pytest

from jigsaw_opt.checking import check
from jigsaw_opt.cli import main
from jigsaw_opt.documents import add_job, change_bandwidth, load_plan, remove_job, save_instance, save_plan
from jigsaw_opt.errors import InvalidInputError
from jigsaw_opt.problem import Cluster, FreeDepth, Instance, Job, Link, Phase, Plan, Server
from jigsaw_opt.problem.costs import ceil_div
from jigsaw_opt.problem.network.route_policy import RoutePolicy
from jigsaw_opt.problem.power import PowerCap
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.resolve import Fix, placements_of
from jigsaw_opt.solvers.result import Status
from jigsaw_opt.solvers.solve import solve
from tests.phased_referee import accepts
from tests.refusals import refuses
from tests.solvers.test_phased_solver import instance

ONE_THREAD = Options(threads=1)
JOBS = (
    Job("a", "net", 2, 50, depth=FreeDepth(balance=1)),
    Job("b", "net", 2, 30),
    Job("c", "one", 1, 20, release_us=200, weight=3),
)
MOMENT = 100


ROOMY = Cluster(tuple(Server(name, "v", 4, 200, 10**9) for name in ("x", "y")), (), (Link("xy", ("x", "y"), 10**6),))


def planned(asked: Instance) -> Plan:
    plan = solve(asked, "phased", ONE_THREAD).plan
    assert plan is not None
    return plan


def again(asked: Instance, plan: Plan, fix: Fix | None = None) -> Plan:
    result = solve(asked, "phased", ONE_THREAD, start=plan, fix=fix or Fix())
    assert result.plan is not None and check(asked, result.plan) == () and accepts(asked, result.plan)
    assert result.bound <= result.plan.objective
    return result.plan


def begun(group: tuple[Phase, ...], moment: int) -> list[Phase]:
    """The phases of a group before a moment, with the repetitions that have begun by then."""
    before = takewhile(lambda phase: phase.start_us < moment, group)
    return [
        replace(phase, repeats=min(phase.repeats, ceil_div(moment - phase.start_us, phase.period_us)))
        for phase in before
    ]


def assert_same_past(old: Plan, new: Plan, moment: int) -> None:
    pasts = [[past for group in plan.groups if (past := begun(group.phases, moment))] for plan in (old, new)]
    assert sorted(pasts[0], key=str) == sorted(pasts[1], key=str) != []


def test_the_old_plan_is_kept_where_nothing_is_better() -> None:
    asked = instance(*JOBS)
    old = planned(asked)
    for fix in (Fix(), Fix(placements_of(old))):
        assert again(asked, old, fix).objective <= old.objective


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["makespan", "weighted_completion"])
def test_what_changes_after_a_moment_leaves_the_past_as_it_was(objective: str) -> None:
    asked = instance(*JOBS, objective=objective)
    old = planned(asked)
    longer = replace(asked, jobs=(asked.jobs[0], replace(JOBS[1], iterations=45), *asked.jobs[2:]))
    later = add_job(asked, Job("late", "net", 2, 15, weight=10))
    for changed in (longer, later):
        new = again(changed, old, Fix(before_us=MOMENT))
        assert_same_past(old, new, MOMENT)
        assert all(placements_of(new)[name] == gpus for name, gpus in placements_of(old, ["a", "b"]).items())


def test_a_job_that_is_removed_leaves_its_gpus_to_the_others() -> None:
    jobs = (Job("long", "one", 8, 100), Job("urgent", "one", 8, 100, weight=9))
    asked = replace(instance(*jobs, objective="weighted_completion"), cluster=ROOMY)
    old = planned(asked)
    assert [phase.start_us for _, _, phase in old.all_phases()] == [0, 1000]
    for moment, end in ((None, 1000), (305, 1305)):
        assert again(remove_job(asked, "urgent"), old, Fix(before_us=moment)).objective == end


def test_an_urgent_job_stops_one_that_has_begun() -> None:
    """Its repetition ends first; the GPUs are free at 310."""
    asked = replace(instance(Job("long", "one", 8, 100), objective="weighted_completion"), cluster=ROOMY)
    urgent = add_job(asked, Job("urgent", "one", 8, 10, weight=9))
    new = again(urgent, planned(asked), Fix(before_us=305))
    assert new.objective == 9 * 410 + 1100
    assert [[job.name for job in phase.jobs] for _, _, phase in new.all_phases()] == [["long"], ["urgent"], ["long"]]


def test_another_bandwidth_times_what_is_left_anew() -> None:
    asked = replace(instance(Job("wide", "net", 5, 40)), cluster=ROOMY)
    old = planned(asked)
    fast = change_bandwidth(asked, "xy", 10**7)
    assert again(fast, old).objective < old.objective
    slow = change_bandwidth(asked, "xy", 10**5)
    assert again(slow, old).objective > old.objective
    with refuses(
        "broken-rule $.before_us: $.groups[0].phases[0].jobs[0].iterations[0].transfers[0]",
        "broken-rule $.before_us: $.groups[0].phases[0].jobs[0].iterations[0].transfers[1]",
    ):
        solve(slow, "phased", ONE_THREAD, start=old, fix=Fix(before_us=MOMENT))


def test_all_problems_are_listed_at_once() -> None:
    asked = instance(*JOBS)
    old = planned(asked)
    jobs = (replace(JOBS[0], iterations=1), replace(JOBS[1], release_us=50), *JOBS[2:])
    fix = Fix({"a": placements_of(old)["a"][::-1], "c": ("x/7",), "e": ("x/0",)}, MOMENT)
    with pytest.raises(InvalidInputError) as caught:
        solve(instance(*jobs), "phased", ONE_THREAD, start=old, fix=fix)
    told = "\n".join(map(str, caught.value.problems))
    for part in ('"x/7"', '$.placements["e"]', "it has 1", "another one", "release"):
        assert part in told, part
    with refuses("out-of-range $.before_us"):
        solve(asked, "phased", ONE_THREAD, start=old, fix=Fix(before_us=-1))


def test_a_damaged_old_plan_is_refused_or_mended() -> None:
    asked = instance(*JOBS[:2])
    old = planned(asked)
    phase = old.groups[0].phases[0]
    idle = replace(phase, jobs=tuple(replace(job, iterations=()) for job in phase.jobs))
    twice = replace(phase, jobs=phase.jobs * 2)
    for damaged in (idle, twice):
        groups = (replace(old.groups[0], phases=(damaged,)), *old.groups[1:])
        again(asked, replace(old, groups=groups), Fix(before_us=MOMENT))
    apart = replace(old, groups=(*old.groups, old.groups[0]))
    with refuses(
        "broken-rule $.before_us: $.groups[2].phases[0].jobs[0]",
        "broken-rule $.before_us: $.groups[2].phases[0].jobs[0]",
        "broken-rule $.before_us: $.groups[2].phases[0].jobs[0]",
    ):
        solve(asked, "phased", ONE_THREAD, start=apart, fix=Fix(before_us=MOMENT))


def test_groups_that_have_begun_side_by_side_never_become_one() -> None:
    asked = instance(Job("a", "one", 2, 100), Job("b", "one", 2, 100))
    old = planned(asked)
    assert len(old.groups) == 2
    wide = add_job(asked, Job("wide", "one", 4, 10))
    again(wide, old)
    found = solve(wide, "phased", ONE_THREAD, start=old, fix=Fix(before_us=MOMENT))
    assert (found.status, found.plan) == (Status.UNKNOWN, None)


@pytest.mark.parametrize("seed", range(2))
def test_random_changes_at_random_moments(seed: int) -> None:
    draw = random.Random(seed)
    kinds = [("net", 2), ("net", 1), ("one", 1)]
    jobs = [
        Job(f"j{k}", *draw.choice(kinds), draw.randint(2, 30), draw.choice((0, 0, 90)), draw.randint(1, 5))
        for k in range(3)
    ]
    asked = instance(*jobs, objective=draw.choice(("makespan", "weighted_completion")))
    old, moment = planned(asked), draw.randint(1, 150)
    kept = again(asked, old, Fix(before_us=moment))
    assert kept.objective <= old.objective
    assert_same_past(old, kept, moment)
    changed = add_job(asked, Job("new", *draw.choice(kinds), draw.randint(1, 20)))
    assert_same_past(old, again(changed, old, Fix(before_us=moment)), moment)


def test_the_command_takes_a_phased_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second, old, new = (str(tmp_path / name) for name in ("i.json", "j.json", "p.json", "q.json"))
    asked = instance(*JOBS)
    save_instance(asked, first)
    save_instance(add_job(asked, Job("late", "one", 1, 15)), second)
    save_plan(planned(asked), old)
    fixed = ["--fix-before", str(MOMENT), "--fix-placement", "c"]
    assert main(["solve", second, "--warm", old, *fixed, "-o", new, "--threads", "1"]) == 0
    assert main(["check", second, new]) == 0
    kept = load_plan(new)
    assert placements_of(kept)["c"] == placements_of(load_plan(old))["c"]
    assert main(["solve", first, "--warm", old, "--fix-before", "-1"]) == 3
    assert main(["solve", first, "--warm", old, "--fix-placement", "x", "y"]) == 3
    told = capsys.readouterr().err
    assert "at least 0" in told and '"x"' in told and '"y"' in told


@pytest.mark.parametrize("before_us", [None, MOMENT])
def test_jobs_that_share_links_under_their_policies_stay_in_one_group(before_us: int | None) -> None:
    """Without its policy, job `a` would go straight from x to y, and share nothing with job `b`."""
    servers = tuple(Server(name, "v", 2, 200, 10**9) for name in "xyz")
    links = (Link("xy", ("x", "y"), 10**6), *(Link(f"{name}-hub", (name, "hub"), 10**6) for name in "xyz"))
    around = Cluster(servers, ("hub",), links, {"around": RoutePolicy(via=(("hub",),))})
    jobs, fixed = (Job("a", "net", 2, 50, route_policy="around"), JOBS[1]), {"a": ("x/0", "y/0"), "b": ("x/1", "z/0")}
    asked = replace(instance(JOBS[1]), cluster=around, jobs=jobs)
    plan = again(asked, planned(asked), Fix(fixed))
    assert [len(group.phases[0].jobs) for group in plan.groups] == [2]
    longer = replace(asked, jobs=(jobs[0], replace(jobs[1], iterations=60)))
    assert len(again(longer, plan, Fix(fixed, before_us)).groups) == 1


@pytest.mark.parametrize("before_us", [None, MOMENT])
def test_phased_plans_of_changed_instances_keep_power_caps(before_us: int | None) -> None:
    """Each server has a cap of its own that lets one block run at a time, so jobs on one server share it."""
    asked = instance(*(Job(f"j{k}", "one", 1, 50 + k) for k in range(4)))
    caps = tuple(PowerCap(server.name, (server.name,), 300) for server in asked.cluster.servers)
    models = {name: replace(model, power_w={"v": 200}) for name, model in asked.models.items()}
    asked = replace(asked, cluster=replace(asked.cluster, power_caps=caps), models=models)
    old = planned(asked)
    longer = replace(asked, jobs=(*asked.jobs[:3], replace(asked.jobs[3], iterations=80), Job("late", "one", 1, 20)))
    new = again(longer, old, Fix(before_us=before_us))
    if before_us is not None:
        assert_same_past(old, new, before_us)

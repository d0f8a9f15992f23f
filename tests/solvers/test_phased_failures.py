"""What single failures do to phased plans."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from jigsaw_opt.checking import check
from jigsaw_opt.cli import main
from jigsaw_opt.documents import instance_sha256, save_instance, save_plan
from jigsaw_opt.problem import Cluster, Instance, Job, Link, Model, Plan, Segment, Server
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.phased import solve_phased
from jigsaw_opt.solvers.resolve.failed_parts import FailedPart, left_of
from jigsaw_opt.solvers.resolve.failures import PhaseLoss, each_failure
from jigsaw_opt.solvers.resolve.phase_failures import PhaseFailures

NET = Model((Segment("s", {"v": 4}, {"v": 6}, 20, 1),), state_factor=1)


def crossing(objective: str = "makespan") -> Instance:
    """Two servers with a fast and a slow way between; a wide job, and two narrow ones, in little memory."""
    servers = tuple(Server(name, "v", 1, 60, 10**6) for name in "ab")
    ways = (("fast", "a", "b", 10**6), ("as", "a", "s", 250_000), ("bs", "b", "s", 250_000))
    links = tuple(Link(name, (one, other), rate) for name, one, other, rate in ways)
    jobs = (
        Job("wide", "net", 2, 50, deadline_us=4000),
        Job("x", "net", 1, 30, release_us=5),
        Job("y", "net", 1, 20, weight=3, deadline_us=9000),
    )
    return Instance("crossing", Cluster(servers, ("s",), links), {"net": NET}, jobs, "finite", objective)  # type: ignore[arg-type]


def planned(instance: Instance) -> Plan:
    plan = solve_phased(instance, Options(threads=1)).plan
    assert plan is not None
    return plan


@pytest.mark.parametrize("objective", ["makespan", "weighted_completion"])
@pytest.mark.parametrize("kind", ["link", "switch", "server"])
def test_what_is_left_of_a_phased_plan_is_right(kind: str, objective: str) -> None:
    """The checker takes what is left, with the objective that is told, on the cluster that is left."""
    instance = crossing(objective)
    plan, checked = planned(instance), 0
    effects = PhaseFailures(instance, plan)
    for effect in each_failure(effects, (kind,)):  # type: ignore[arg-type]
        kept = tuple(job for job in instance.jobs if job.name not in effect.stopped)
        if not kept or effect.objective is None:
            continue
        # Deadlines that are kept are stated; those that are told to be broken would be violations.
        jobs = tuple(replace(job, deadline_us=None) if job.name in effect.broken else job for job in kept)
        left = replace(instance, cluster=left_of(instance.cluster, effect.failed), jobs=jobs)
        groups, sha256 = effects.left(effect.failed), instance_sha256(left)
        again = replace(
            plan, instance_sha256=sha256, groups=groups, objective=effect.objective, bound=0, status="feasible"
        )
        assert check(left, again) == ()
        whole = replace(left, jobs=kept)
        broken = check(whole, replace(again, instance_sha256=instance_sha256(whole)))
        assert len(broken) == sum(job.name in effect.broken for job in kept)
        checked += 1
    assert checked


def test_a_slower_way_lengthens_the_phases_that_take_it() -> None:
    instance = crossing()
    plan = planned(instance)
    found = PhaseFailures(instance, plan).of([FailedPart("link", "fast")])
    assert set(found.rerouted) == {"wide"} and found.stopped == ()
    assert found.objective is not None and found.objective > plan.objective
    losses = [it for it in found.phases or () if it.new_us is not None and it.new_us > it.old_us]
    grown = {(g, p) for g, p, phase in plan.all_phases() if any(job.name == "wide" for job in phase.jobs)}
    assert {(it.group, it.phase) for it in losses} == grown


def test_a_lost_server_stops_jobs_and_breaks_their_deadlines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    instance, path, document = crossing(), tmp_path / "i.json", tmp_path / "p.json"
    plan = planned(instance)
    found = PhaseFailures(instance, plan).of([FailedPart("server", "a")])
    assert "wide" in found.stopped and "wide" in found.broken
    assert all(isinstance(it, PhaseLoss) for it in found.phases or ())
    save_instance(instance, path)
    save_plan(plan, document)
    assert main(["failures", str(path), str(document), "--pairs", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["failures"]
    assert told[-1]["phases"] and {"wide"} <= {name for it in told for name in it["stopped"]}
    assert main(["failures", str(path), str(document), "-o", str(tmp_path / "page.html")]) == 0
    for more in (["--repair"], ["--at", "5"]):
        assert main(["failures", str(path), str(document), *more]) == 2
        told = capsys.readouterr().err
        assert "only plans that list all iterations are taken" in told and "jigsaw solve --solver search makes" in told


def test_a_detour_over_a_link_of_another_group_leaves_no_order() -> None:
    """Two jobs on two pairs of servers; without its link, one goes around over the link of the other."""
    servers = tuple(Server(name, "v", 1, 60, 10**6) for name in "abcd")
    ways = (("ab", "a", "b"), ("cd", "c", "d"), ("ac", "a", "c"), ("bd", "b", "d"))
    links = tuple(Link(name, (one, other), 10**6 if name in ("ab", "cd") else 10**5) for name, one, other in ways)
    jobs = tuple(Job(name, "net", 2, 40, deadline_us=10**6) for name in "xy")
    instance = Instance("square", Cluster(servers, (), links), {"net": NET}, jobs)
    plan = planned(instance)
    assert len(plan.groups) == 2
    found = PhaseFailures(instance, plan).of([FailedPart("link", "ab")])
    assert len(found.rerouted) == 1 and found.objective is None and found.broken == ("x", "y")
    assert PhaseFailures(instance, plan).of([FailedPart("link", "ac")]).phases == ()

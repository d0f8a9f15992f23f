"""What single failures do to phased plans."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from jigsaw_opt.checking import check
from jigsaw_opt.cli import main
from jigsaw_opt.documents import instance_sha256, save_instance, save_plan
from jigsaw_opt.errors import TooLargeError
from jigsaw_opt.problem import (
    Block,
    Cluster,
    Instance,
    Iteration,
    Job,
    JobPlan,
    Link,
    Model,
    Phase,
    PhaseGroup,
    Plan,
    Segment,
    Server,
)
from jigsaw_opt.solvers.failure_repair import repaired
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.resolve.failures import FailedPart, FailureEffects, PhaseLoss, left_of
from jigsaw_opt.solvers.resolve.remaining import remaining_at
from jigsaw_opt.solvers.solve import solve
from tests.refusals import carries
from tests.solvers.test_failures import chained

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


def task_graphs() -> Instance:
    """Forty iterations of two blocks with a transfer between; those of different iterations overlap."""
    instance = chained()
    return replace(instance, jobs=tuple(replace(job, iterations=40) for job in instance.jobs))


def planned(instance: Instance) -> Plan:
    plan = solve(instance, "phased", Options(threads=1)).plan
    assert plan is not None
    return plan


@pytest.mark.parametrize("objective", ["makespan", "weighted_completion"])
@pytest.mark.parametrize("kind", ["link", "switch", "server"])
def test_what_is_left_of_a_phased_plan_is_right(kind: str, objective: str) -> None:
    """The checker takes what is left, with the objective that is told, on the cluster that is left."""
    instance = crossing(objective)
    plan, checked = planned(instance), 0
    effects = FailureEffects(instance, plan)
    for effect in effects.each((kind,)):
        kept = tuple(job for job in instance.jobs if job.name not in effect.stopped)
        if not kept or effect.objective is None:
            continue
        # Deadlines that are kept are stated; those that are told to be broken would be violations.
        jobs = tuple(replace(job, deadline_us=None) if job.name in effect.broken else job for job in kept)
        left = replace(instance, cluster=left_of(instance.cluster, effect.failed), jobs=jobs)
        whole, again = effects.left(effect.failed)
        assert again.objective == effect.objective and whole == replace(left, jobs=kept)
        assert check(left, replace(again, instance_sha256=instance_sha256(left))) == ()
        releases = {job.name: job.release_us for job in kept}
        for group in again.groups:
            ends = [0, *(phase.end_us for phase in group.phases)]
            for end, phase in zip(ends, group.phases, strict=False):  # Each is as early as the order allows.
                waits = (releases[job.name] - min(b.start_us for b in job.iterations[0].blocks) for job in phase.jobs)
                assert phase.start_us == max(end, *waits)
        broken = check(whole, again)
        assert len(broken) == sum(job.name in effect.broken for job in kept)
        checked += 1
    assert checked


def test_a_slower_way_lengthens_the_phases_that_take_it() -> None:
    instance = crossing()
    plan = planned(instance)
    found = FailureEffects(instance, plan).of([FailedPart("link", "fast")])
    assert set(found.rerouted) == {"wide"} and found.stopped == ()
    assert found.objective is not None and found.objective > plan.objective
    losses = [phase for phase in found.phases or () if phase.new_us is not None and phase.new_us > phase.old_us]
    grown = {(g, p) for g, p, phase in plan.all_phases() if any(job.name == "wide" for job in phase.jobs)}
    assert {(loss.group, loss.phase) for loss in losses} == grown


def test_a_lost_server_stops_jobs_and_breaks_their_deadlines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    instance, path, document = crossing(), tmp_path / "i.json", tmp_path / "p.json"
    plan = planned(instance)
    found = FailureEffects(instance, plan).of([FailedPart("server", "a")])
    assert "wide" in found.stopped and "wide" in found.broken
    assert all(isinstance(phase, PhaseLoss) for phase in found.phases or ())
    save_instance(instance, path)
    save_plan(plan, document)
    assert main(["failures", str(path), str(document), "--pairs", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["failures"]
    assert told[-1]["phases"] and {"wide"} <= {name for each in told for name in each["stopped"]}
    assert main(["failures", str(path), str(document), "-o", str(tmp_path / "page.html")]) == 0
    call = ["failures", str(path), str(document), "--kinds", "server", "--repair", "1", "--json"]
    assert main([*call, "--at", "100"]) == 0
    for load in json.loads(capsys.readouterr().out)["failures"]:
        assert load["repair"]["unplaced"].keys() == {"wide"} and load["repair"]["bound"] <= load["repair"]["objective"]
    assert main([*call, "--at", "1000000"]) == 3
    assert carries(capsys.readouterr().err, "jobs", "ended")


def begun(plan: Plan, moment: int) -> dict[str, int]:
    """By job, the iterations that have ended by a moment, counted one by one."""
    found: dict[str, int] = {}
    for _, _, phase in plan.all_phases():
        for job in phase.jobs:
            for turn in range(phase.count):
                since = phase.start_us + turn * (phase.period_us or 0)
                ends = [max(block.end_us for block in (*own.blocks, *own.transfers)) for own in job.iterations]
                found[job.name] = found.get(job.name, 0) + sum(since + end <= moment for end in ends)
    return found


@pytest.mark.parametrize("make", [crossing, task_graphs])
def test_the_rest_of_a_phased_plan_at_a_moment(make: Callable[[], Instance]) -> None:
    """What has ended and what is left are all iterations, and the rest runs as a plan of its own from the moment on."""
    instance = make()
    plan = planned(instance)
    for moment in (0, 7, plan.objective // 3, plan.objective // 2, plan.objective - 1):
        rest = remaining_at(instance, plan, moment)
        done = begun(plan, moment)
        assert {job.name: job.iterations for job in rest.instance.jobs} == {
            job.name: job.iterations - done[job.name] for job in instance.jobs if job.iterations > done[job.name]
        }
        again, redone = FailureEffects(rest.instance, rest.plan).left([])
        assert check(again, redone) == ()
        assert plan.objective <= (rest.total(redone.objective) or 0) <= plan.objective + 2 * moment
        assert moment or redone.groups == plan.groups


def test_a_job_that_is_millions_of_iterations_behind_is_refused() -> None:
    """One that begins so many periods after the phase is in the plan, which counts them; the rest would list them."""
    jobs = (Job("x", "net", 1, 10**8), Job("y", "net", 1, 10**8))
    instance = replace(crossing(), jobs=jobs)
    late = 10**8 * 10
    starts = {"x": 0, "y": late}
    own = tuple(
        JobPlan(name, (gpu,), (Iteration((Block(1, starts[name], starts[name] + 10),), ()),))
        for name, gpu in (("x", "a/0"), ("y", "b/0"))
    )
    phase = Phase(0, 10, 10**8, own)
    value = phase.end_us
    plan = Plan(instance.name, instance_sha256(instance), "feasible", value, 0, (PhaseGroup((phase,)),))
    assert check(instance, plan) == ()
    with pytest.raises(TooLargeError, match="iterations apart"):
        remaining_at(instance, plan, late)
    assert [job.iterations for job in remaining_at(instance, plan, 25).instance.jobs] == [10**8 - 2, 10**8]


@pytest.mark.parametrize("make", [crossing, task_graphs])
def test_a_phased_plan_is_repaired_in_the_middle(make: Callable[[], Instance]) -> None:
    instance = make()
    plan = planned(instance)
    rest = remaining_at(instance, plan, plan.objective // 3)
    effects = FailureEffects(rest.instance, rest.plan)
    for effect in effects.each(("link",)):
        found = repaired(rest.instance, rest.plan, effects, effect, Options(threads=1, time_limit=2))
        assert found.plan is not None and found.plan.is_phased and not found.unplaced
        assert check(found.instance, found.plan) == ()
        assert all(job.release_us >= plan.objective // 3 for job in found.instance.jobs)
        assert found.moved == tuple(job.name for job in found.instance.jobs if job.name in found.moved)
        assert effect.objective is None or (found.objective or 0) <= effect.objective


def test_a_detour_over_a_link_of_another_group_leaves_no_order() -> None:
    """Two jobs on two pairs of servers; without its link, one goes around over the link of the other."""
    servers = tuple(Server(name, "v", 1, 60, 10**6) for name in "abcd")
    ways = (("ab", "a", "b"), ("cd", "c", "d"), ("ac", "a", "c"), ("bd", "b", "d"))
    links = tuple(Link(name, (one, other), 10**6 if name in ("ab", "cd") else 10**5) for name, one, other in ways)
    jobs = tuple(Job(name, "net", 2, 40, deadline_us=10**6) for name in "xy")
    instance = Instance("square", Cluster(servers, (), links), {"net": NET}, jobs)
    plan = planned(instance)
    assert len(plan.groups) == 2
    found = FailureEffects(instance, plan).of([FailedPart("link", "ab")])
    assert len(found.rerouted) == 1 and found.objective is None and found.broken == ("x", "y")
    assert FailureEffects(instance, plan).of([FailedPart("link", "ac")]).phases == ()

"""Plans repaired after failures, and what is left of them at a moment."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from jigsaw_opt.checking import check
from jigsaw_opt.cli import main
from jigsaw_opt.documents import encode_instance, encode_plan
from jigsaw_opt.errors import InvalidInputError
from jigsaw_opt.problem import Cluster, Instance, Job, Link, Model, Plan, Segment, Server
from jigsaw_opt.problem.network.route_policy import RoutePolicy
from jigsaw_opt.solvers.failure_repair import FailureRepair, repaired
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.resolve.failures import FailedPart, FailureEffects, left_of, parts_of
from jigsaw_opt.solvers.resolve.remaining import remaining_at
from jigsaw_opt.solvers.result import Status
from jigsaw_opt.solvers.solve import solve
from tests.random_instances import tight_instance
from tests.refusals import carries, refuses
from tests.solvers.test_failures import chained

pytest.importorskip("ortools")
QUICK = Options(threads=1, work_limit=0.2)


def paired() -> Instance:
    """Three servers of two GPUs around a switch; three jobs of two workers, one of which needs the larger memory."""
    servers = tuple(Server(name, "v", 2, memory, 10**6) for name, memory in (("a", 100), ("b", 100), ("c", 900)))
    links = tuple(Link(f"l{server.name}", (server.name, "hub"), 10**6) for server in servers)
    models = {
        name: Model((Segment("s", {"v": 4}, {"v": 6}, 10, size),), state_factor=1)
        for name, size in (("m", 0), ("n", 500))
    }
    jobs = (Job("x", "m", 2, 3), Job("y", "m", 2, 2), Job("z", "n", 2, 1))
    return Instance("paired", Cluster(servers, ("hub",), links), models, jobs)


def solved(instance: Instance) -> Plan:
    plan = solve(instance, "greedy", QUICK).plan
    assert plan is not None
    return plan


def repair(instance: Instance, plan: Plan, *failed: FailedPart) -> FailureRepair:
    effects = FailureEffects(instance, plan)
    found = repaired(instance, plan, effects, effects.of(failed), QUICK)
    if found.plan is not None:
        assert check(found.instance, found.plan) == () and found.bound <= (found.objective or 0)
    return found


def test_jobs_move_to_what_is_left() -> None:
    instance = paired()
    plan = solved(instance)
    on_a = {job.name for job in plan.jobs if job.gpus[0].startswith("a/")}
    found = repair(instance, plan, FailedPart("server", "a"))
    assert found.plan is not None and len(found.plan.jobs) == 3 and not found.unplaced
    assert on_a and on_a <= set(found.moved)
    assert not any(gpu.startswith("a/") for job in found.plan.jobs for gpu in job.gpus)


def test_who_has_no_place_is_said() -> None:
    instance = paired()
    found = repair(instance, solved(instance), FailedPart("server", "c"))
    assert list(found.unplaced) == ["z"] and carries(found.unplaced["z"], "largest", "100")
    assert found.plan is not None and [job.name for job in found.plan.jobs] == ["x", "y"]
    every = [FailedPart("server", server.name) for server in instance.cluster.servers]
    assert repair(instance, solved(instance), *every).unplaced.keys() == {"x", "y", "z"}


def test_task_graph_jobs_are_solved_anew() -> None:
    instance = chained()
    plan = solved(instance)
    rerouted = repair(instance, plan, FailedPart("link", "fast"))
    assert rerouted.objective == 16 and not rerouted.moved
    stopped = repair(instance, plan, FailedPart("server", "b"))
    assert stopped.plan is None and list(stopped.unplaced) == ["j"]


def test_policies_hold_for_repaired_plans() -> None:
    """Three workers, of which no server has room for all, and a detour that their policy forbids."""
    instance = paired()
    links = (*instance.cluster.links, Link("ab", ("a", "b"), 10**6))
    cluster = replace(instance.cluster, links=links, route_policies={"p": RoutePolicy(avoid=("hub",))})
    job = Job("w", "m", 3, 1, route_policy="p")
    policed = replace(instance, cluster=cluster, jobs=(job,))
    plan = solved(policed)
    assert repair(policed, plan, FailedPart("switch", "hub")).objective == plan.objective
    stopped = repair(policed, plan, FailedPart("link", "ab"))
    assert stopped.plan is None and stopped.status is not Status.FEASIBLE


def test_what_is_left_of_a_cluster_is_valid() -> None:
    """Policies still name nodes that failed, and no longer links that did."""
    instance = paired()
    policies = {"p": RoutePolicy(avoid=("a", "hub"), avoid_links=("la",), via=(("a",),))}
    cluster = replace(instance.cluster, route_policies=policies)
    left = left_of(cluster, [FailedPart("server", "a"), FailedPart("switch", "hub")])
    assert replace(instance, cluster=left, jobs=instance.jobs[:1]).cluster.links == ()
    assert [server.name for server in left.servers] == ["b", "c"]


def test_the_rest_at_a_moment() -> None:
    instance = replace(paired(), objective="weighted_completion")
    plan = solved(instance)
    ends = {job.name: job.end_us for job in plan.jobs}
    first = min(ends.values())
    rest = remaining_at(instance, plan, first)
    assert set(rest.ended) == {name for name, end in ends.items() if end <= first}
    assert rest.done == sum(rest.ended.values()) and rest.total(7) == rest.done + 7
    for job, planned in zip(rest.instance.jobs, rest.plan.jobs, strict=True):
        assert job.release_us == first and job.iterations == len(planned.iterations)
        assert all(block.end_us > first for block in planned.iterations[-1].blocks)
    found = repair(rest.instance, rest.plan, FailedPart("server", "a"))
    assert found.plan is not None
    assert all(block.start_us >= first for job in found.plan.data_parallel for block in job.iterations[0].blocks)


def test_moments_that_make_no_sense() -> None:
    instance = paired()
    plan = solved(instance)
    for moment, told in ((-1, "at least 0"), (plan.objective, "have ended")):
        with pytest.raises(InvalidInputError, match=told):
            remaining_at(instance, plan, moment)
    cyclic = chained(cyclic=True)
    with refuses("unsupported $.horizon", "out-of-range at_us"):
        remaining_at(cyclic, solved(cyclic), -1)


def test_repairs_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    instance = chained()
    files = [tmp_path / "i.json", tmp_path / "p.json"]
    for path, data in zip(files, (encode_instance(instance), encode_plan(solved(instance)))):
        path.write_bytes(data)
    call = ["failures", *map(str, files), "--kinds", "link"]
    assert main([*call, "--repair", "0.3", "--at", "2", "--json"]) == 0
    first, second, _ = json.loads(capsys.readouterr().out)["failures"]
    # The only iteration is under way, so it begins again at 2.
    assert first["objective"] == first["repair"]["objective"] == 18 and "repair" not in second
    assert main([*call, "--repair", "0.3"]) == 0
    assert "no place" in capsys.readouterr().out
    assert main([*call, "--at", "-3", "--kinds", "rack"]) == 2
    told = capsys.readouterr().err
    assert "--kinds" in told and "rack" in told and "--at" in told and "at least 0" in told
    assert main([*call, "--repair", "nan"]) == 2
    assert "--repair" in capsys.readouterr().err


@pytest.mark.parametrize("seed", range(12))
def test_repairs_keep_memory_in_time(seed: int) -> None:
    instance = tight_instance(seed, "makespan" if seed % 2 else "weighted_completion")
    plan = solve(instance, "greedy", threads=1).plan
    if plan is None:
        return
    effects = FailureEffects(instance, plan)
    for part in parts_of(instance.cluster):
        effect = effects.of([part])
        if effect.objective is not None:
            assert check(*effects.left([part])) == ()
        found = repaired(instance, plan, effects, effect, Options(threads=1, work_limit=0.01))
        assert found.plan is None or check(found.instance, found.plan) == ()

"""What failures do to plans, how plans are repaired, and what is left of them at a moment."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from jigsaw_opt.checking import check, violations
from jigsaw_opt.checking.proofs import check_proof
from jigsaw_opt.cli import main
from jigsaw_opt.documents import encode_instance, encode_plan
from jigsaw_opt.errors import InvalidInputError
from jigsaw_opt.problem import (
    Cluster,
    Edge,
    Instance,
    Job,
    Link,
    Model,
    Plan,
    Segment,
    Server,
    Slot,
    TaskGraph,
    TaskGraphBlock,
    TaskGraphJob,
    TaskGraphTransfer,
)
from jigsaw_opt.problem.network.route_policy import RoutePolicy
from jigsaw_opt.solvers.failure_repair import FailureRepair, repaired
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.resolve.failures import (
    FailedPart,
    FailureEffect,
    FailureEffects,
    TransferChange,
    left_of,
    parts_of,
)
from jigsaw_opt.solvers.resolve.remaining import remaining_at
from jigsaw_opt.solvers.result import Status
from jigsaw_opt.solvers.solve import solve
from jigsaw_opt.views.failures_page import rank
from tests.random_instances import GOALS, tight_instance
from tests.random_task_graphs import random_mixed_instance, random_task_graph_instance
from tests.refusals import carries, refuses

pytest.importorskip("ortools")


def chained(cyclic: bool = False) -> Instance:
    """A block on a, 4 bytes over a link of 1 byte/us or a detour of two half as fast, and a block on b."""
    blocks = (TaskGraphBlock("A", ("x",), {"v": 3}), TaskGraphBlock("B", ("y",), {"w": 5}))
    move = TaskGraphTransfer("m", 4, source="x", target="y")
    shape = TaskGraph((Slot("x"), Slot("y")), blocks, (move,), (Edge("A", "m"), Edge("m", "B")))
    servers = (Server("a", "v", 1, 1, 10**6), Server("b", "w", 1, 1, 10**6))
    ways = (("fast", "a", "b", 10**6), ("slow0", "a", "s", 500_000), ("slow1", "s", "b", 500_000))
    links = tuple(Link(name, (one, other), rate) for name, one, other, rate in ways)
    horizon, objective = ("cyclic", "period") if cyclic else ("finite", "makespan")
    jobs = (TaskGraphJob("j", shape, 1),)
    return Instance("chained", Cluster(servers, ("s",), links), {}, jobs, horizon, objective)  # type: ignore[arg-type]


def effects(instance: Instance) -> dict[str, FailureEffect]:
    plan = solve(instance, "cpsat", Options(threads=1, work_limit=5.0)).plan
    assert plan is not None
    return {effect.failed[0].name: effect for effect in FailureEffects(instance, plan).each()}


def spread(instance: Instance) -> Instance:
    """A GPU a server, and a second switch, over which transfers are slower."""
    servers = tuple(replace(server, gpus=1) for server in instance.cluster.servers)
    more = tuple(Link(f"x{k}", (server.name, "zhub"), (k + 1) * 400_000, 1) for k, server in enumerate(servers))
    cluster = instance.cluster
    cluster = replace(cluster, servers=servers, switches=(*cluster.switches, "zhub"), links=(*cluster.links, *more))
    return replace(instance, cluster=cluster, jobs=tuple(replace(job, iterations=2) for job in instance.jobs))


def test_a_transfer_takes_the_route_that_is_left() -> None:
    found = effects(chained())
    assert list(found) == ["fast", "slow0", "slow1", "s", "a", "b"]
    fast, slow, server = FailedPart("link", "fast"), FailedPart("link", "slow0"), FailedPart("server", "a")
    moves = {"j": (TransferChange("m", 4, 8),)}
    assert found["fast"] == FailureEffect((fast,), (), {"j": ("slow0", "slow1")}, moves, 3 + 8 + 5, ())
    assert found["fast"].slowest == ("j", TransferChange("m", 4, 8)) and found["slow0"].slowest is None
    assert found["slow0"] == FailureEffect((slow,), (), {}, {}, 3 + 4 + 5, ())
    assert found["a"] == FailureEffect((server,), ("j",), {}, {}, None, ())


def test_deadlines_and_policies() -> None:
    instance = chained()
    late = replace(instance, jobs=(replace(instance.jobs[0], deadline_us=15),))
    assert effects(late)["fast"].broken == ("j",) and effects(late)["s"].broken == ()
    cluster = replace(instance.cluster, route_policies={"p": RoutePolicy(avoid=("s",))})
    barred = replace(instance, cluster=cluster, jobs=(replace(instance.jobs[0], route_policy="p"),))
    assert effects(barred)["fast"].stopped == ("j",)


def test_periods_and_cycle_time_limits() -> None:
    found = effects(chained(cyclic=True))
    assert (found["s"].objective, found["fast"].objective) == (5, 8)
    limited = replace(chained(cyclic=True).jobs[0], pace_us=7)
    assert effects(replace(chained(cyclic=True), jobs=(limited,)))["fast"].broken == ("j",)


def test_what_touches_no_job_makes_no_plan_worse_and_what_is_left_is_right() -> None:
    """Data-parallel and task-graph jobs, both horizons: a plan timed anew is one of the instance that is left."""
    untouched = rerouted = 0
    for seed in range(12):
        instance = spread((random_mixed_instance if seed % 2 else random_task_graph_instance)(seed, *GOALS[seed % 3]))
        plan = solve(instance, "greedy", Options(threads=1)).plan
        if plan is None:
            continue
        effects = FailureEffects(instance, plan)
        for part in parts_of(instance.cluster):
            effect = effects.of((part,))
            assert not set(effect.stopped) & set(effect.rerouted)
            if effect.objective is None:
                continue
            if not effect.stopped and not effect.rerouted:
                assert effect.objective <= plan.objective and not effect.broken
                untouched += 1
            left, timed = effects.left((part,))
            assert not [
                violation for violation in violations(left, timed) if violation.rule not in ("deadline", "pace")
            ]
            assert timed.objective == effect.objective
            rerouted += any(each.new_us > each.old_us for own in effect.transfers.values() for each in own)
    assert untouched > 10 and rerouted > 1


def test_pairs_that_do_more_than_one_of_their_parts() -> None:
    """Without the short way and without any link of the detour, no route is left."""
    instance = chained()
    plan = solve(instance, "cpsat", Options(threads=1, work_limit=5.0)).plan
    assert plan is not None
    each = FailureEffects(instance, plan).each(("link",), pairs=True)
    found = [effect for effect in each if len(effect.failed) == 2]
    assert [[part.name for part in effect.failed] for effect in found] == [["fast", "slow0"], ["fast", "slow1"]]
    assert all(effect.stopped == ("j",) and not effect.rerouted for effect in found)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    instance = chained()
    plan = solve(instance, "cpsat", Options(threads=1, work_limit=5.0)).plan
    assert plan is not None
    files = [tmp_path / "i.json", tmp_path / "p.json"]
    for path, data in zip(files, (encode_instance(instance), encode_plan(plan))):
        path.write_bytes(data)
    assert main(["failures", *map(str, files)]) == 0
    told = capsys.readouterr().out
    assert "rerouted" in told and "fast" in told
    assert main(["failures", *map(str, files), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    # The table has the worst first, as the page has it.
    effects = FailureEffects(instance, plan).each()
    worst = [part.name for effect in sorted(effects, key=rank, reverse=True) for part in effect.failed]
    assert (
        [line.split()[1] for line in told.splitlines()[1:]]
        == worst
        != [effect["failed"][0]["name"] for effect in document["failures"]]
    )
    assert document["objective"] == 12
    assert document["failures"][0] == {
        "failed": [{"kind": "link", "name": "fast"}],
        "stopped": [],
        "rerouted": {"j": ["slow0", "slow1"]},
        "transfers": {"j": [{"transfer": "m", "old_us": 4, "new_us": 8}]},
        "objective": 16,
        "broken": [],
    }
    assert main(["failures", *map(str, files), "--pairs", "--kinds", "server,switch"]) == 0
    assert "a + b" not in capsys.readouterr().out
    assert main(["failures", *map(str, files), "--kinds", "rack,link,cable"]) == 2
    told = capsys.readouterr().err
    assert '"rack"' in told and '"cable"' in told


def test_a_stopped_job_breaks_its_guarantee_and_ranks_above_others_that_stop() -> None:
    """One server has a job with a deadline, another one two jobs without."""
    servers = tuple(Server(name, kind, 2, 10**6, 10**6) for name, kind in (("a", "v"), ("b", "w")))
    models = {kind: Model((Segment("s", {kind: 4}, {kind: 6}, 1, 1),)) for kind in "vw"}
    jobs = (Job("late", "v", 2, 1, deadline_us=100), Job("x", "w", 1, 1), Job("y", "w", 1, 1))
    found = effects(Instance("two", Cluster(servers), models, jobs))
    assert (found["a"].stopped, found["a"].broken) == (("late",), ("late",))
    assert (found["b"].stopped, found["b"].broken) == (("x", "y"), ())
    assert rank(found["a"]) > rank(found["b"])
    limited = replace(chained(cyclic=True), jobs=(replace(chained(cyclic=True).jobs[0], pace_us=100),))
    assert effects(limited)["a"].broken == ("j",)


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
        assert found.bound_proof is not None and check_proof(found.instance, found.bound_proof) is None
        assert found.certified_bound == found.bound_proof.bound
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
    assert 0 < first["repair"]["certified_bound"] <= first["repair"]["bound"] <= 18
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

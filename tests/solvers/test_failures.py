"""What single failures do to plans."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from jigsaw_opt.checking import violations
from jigsaw_opt.cli import main
from jigsaw_opt.documents import encode_instance, encode_plan
from jigsaw_opt.problem import (
    Cluster,
    Edge,
    Instance,
    Job,
    Link,
    Model,
    Segment,
    Server,
    Slot,
    TaskGraph,
    TaskGraphBlock,
    TaskGraphJob,
    TaskGraphTransfer,
)
from jigsaw_opt.problem.network.route_policy import RoutePolicy
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.resolve.failures import (
    FailedPart,
    FailureEffect,
    FailureEffects,
    TransferChange,
    parts_of,
)
from jigsaw_opt.solvers.solve import solve
from jigsaw_opt.views.failures_page import rank
from tests.random_instances import GOALS
from tests.random_task_graphs import random_mixed_instance, random_task_graph_instance

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

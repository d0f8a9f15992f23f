"""What single failures do to plans."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from jigsaw_opt.cli import main
from jigsaw_opt.documents import encode_instance, encode_plan
from jigsaw_opt.problem import (
    Cluster,
    Edge,
    Instance,
    Link,
    Server,
    Shape,
    ShapedBlock,
    ShapedJob,
    ShapedTransfer,
    Slot,
)
from jigsaw_opt.problem.route_policy import RoutePolicy
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.resolve.failures import FailureEffect, failure_effects
from jigsaw_opt.solvers.solve import solve
from tests.random_instances import GOALS
from tests.random_shapes import random_shaped_instance

pytest.importorskip("ortools")


def chained(cyclic: bool = False) -> Instance:
    """A block on a, 4 bytes over a link of 1 byte/us or a detour of two half as fast, and a block on b."""
    blocks = (ShapedBlock("A", ("x",), {"v": 3}), ShapedBlock("B", ("y",), {"w": 5}))
    move = ShapedTransfer("m", 4, source="x", target="y")
    shape = Shape((Slot("x"), Slot("y")), blocks, (move,), (Edge("A", "m"), Edge("m", "B")))
    servers = (Server("a", "v", 1, 1, 10**6), Server("b", "w", 1, 1, 10**6))
    ways = (("fast", "a", "b", 10**6), ("slow0", "a", "s", 500_000), ("slow1", "s", "b", 500_000))
    links = tuple(Link(name, (one, other), rate) for name, one, other, rate in ways)
    horizon, objective = ("cyclic", "period") if cyclic else ("finite", "makespan")
    jobs = (ShapedJob("j", shape, 1),)
    return Instance("chained", Cluster(servers, ("s",), links), {}, jobs, horizon, objective)  # type: ignore[arg-type]


def effects(instance: Instance) -> dict[str, FailureEffect]:
    plan = solve(instance, "cpsat", Options(workers=1, work_limit=5.0)).plan
    assert plan is not None
    return {effect.failed: effect for effect in failure_effects(instance, plan)}


def test_a_transfer_takes_the_route_that_is_left() -> None:
    found = effects(chained())
    assert list(found) == ["fast", "slow0", "slow1", "s", "a", "b"]
    assert found["fast"] == FailureEffect("link", "fast", (), {"j": ("slow0", "slow1")}, 3 + 8 + 5, ())
    assert found["slow0"] == FailureEffect("link", "slow0", (), {}, 3 + 4 + 5, ())
    assert found["a"] == FailureEffect("server", "a", ("j",), {}, None, ())


def test_deadlines_and_policies() -> None:
    instance = chained()
    late = replace(instance, jobs=(replace(instance.jobs[0], deadline_us=15),))
    assert effects(late)["fast"].broken == ("j",) and effects(late)["s"].broken == ()
    cluster = replace(instance.cluster, route_policies={"p": RoutePolicy(avoid=("s",))})
    barred = replace(instance, cluster=cluster, jobs=(replace(instance.jobs[0], route_policy="p"),))
    assert effects(barred)["fast"].stopped == ("j",)


def test_periods_and_paces() -> None:
    found = effects(chained(cyclic=True))
    assert (found["s"].objective, found["fast"].objective) == (5, 8)
    paced = replace(chained(cyclic=True).jobs[0], pace_us=7)
    assert effects(replace(chained(cyclic=True), jobs=(paced,)))["fast"].broken == ("j",)


def test_what_touches_no_job_makes_no_plan_worse() -> None:
    """Data-parallel and shaped jobs, both horizons: the order of a plan, as early as it goes, is no worse than it."""
    untouched = 0
    for seed in range(30):
        horizon, objective = GOALS[seed % 3]
        instance = random_shaped_instance(seed, horizon, objective)
        plan = solve(instance, "greedy", Options(workers=1)).plan
        for effect in failure_effects(instance, plan) if plan is not None else ():
            assert not set(effect.stopped) & set(effect.rerouted)
            if not effect.stopped and not effect.rerouted and effect.objective is not None:
                assert effect.objective <= plan.objective and not effect.broken
                untouched += 1
    assert untouched > 20


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    instance = chained()
    plan = solve(instance, "cpsat", Options(workers=1, work_limit=5.0)).plan
    assert plan is not None
    files = [tmp_path / "i.json", tmp_path / "p.json"]
    for path, data in zip(files, (encode_instance(instance), encode_plan(plan))):
        path.write_bytes(data)
    assert main(["failures", *map(str, files)]) == 0
    told = capsys.readouterr().out
    assert "rerouted" in told and "fast" in told
    assert main(["failures", *map(str, files), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["objective"] == 12
    assert document["failures"][0] == {
        "kind": "link",
        "failed": "fast",
        "stopped": [],
        "rerouted": {"j": ["slow0", "slow1"]},
        "objective": 16,
        "broken": [],
    }

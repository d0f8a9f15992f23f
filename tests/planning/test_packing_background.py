"""Background iterations packed modulo the period, and the foreground's plan with gaps put in."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jigsaw_opt.checking import check
from jigsaw_opt.documents import instance_sha256
from jigsaw_opt.planning.fill.loads import Loads, restricted
from jigsaw_opt.planning.fill.neighbourhoods import PackingSearch
from jigsaw_opt.planning.fill.stretching import KeptPlan
from jigsaw_opt.problem.cluster import Cluster, Link, Server
from jigsaw_opt.problem.compiled.operations import compile_instance
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.job import FreeDepth, Job, StaircaseDepth
from jigsaw_opt.problem.model import Model, Segment
from jigsaw_opt.problem.plan import Plan
from jigsaw_opt.problem.task_graph import Edge, MemoryInterval, Slot, TaskGraph, TaskGraphBlock, TaskGraphJob
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.solve import solve


def line(name: str, *blocks: tuple[str, int], held: int = 0) -> TaskGraphJob:
    """Blocks one behind the other, each on a slot, and iterations that do not overlap."""
    slots = tuple(Slot(slot) for slot in dict.fromkeys(slot for slot, _ in blocks))
    made = tuple(TaskGraphBlock(f"b{at}", (slot,), {"gpu": us}) for at, (slot, us) in enumerate(blocks))
    edges = tuple(Edge(f"b{at}", f"b{at + 1}") for at in range(len(made) - 1))
    last = max(at for at, (slot, _) in enumerate(blocks) if slot == blocks[0][0])
    holds = (MemoryInterval("b0", f"b{last}", held),) if held else ()
    return TaskGraphJob(name, TaskGraph(slots, made, (), edges, "job", holds), 1)


FRONT = line("front", ("x", 4), ("y", 6), ("x", 5))
SERVERS = tuple(Server(name, "gpu", 2, 100, 10**6) for name in ("s", "t"))
LINKS = tuple(Link(name, (name, "switch"), 10**6) for name in ("s", "t"))
CLUSTER = Cluster(SERVERS, ("switch",), LINKS)
MODEL = Model(tuple(Segment(name, {"gpu": 1}, {"gpu": 2}, 2, 1) for name in ("low", "high")), state_factor=1)


def searched(*background: Job | TaskGraphJob, allowed: int = 15, tries: int = 200) -> tuple[PackingSearch, Instance]:
    """A search beside `FRONT`, run to its end or for so many tries."""
    whole = Instance("packed", CLUSTER, {"m": MODEL}, (FRONT, *background), "cyclic", "period")
    alone = solve(restricted(whole, {"front": 1}), "auto", Options(threads=1, work_limit=1.0))
    assert alone.plan is not None
    assert alone.objective == 15
    loads = Loads(whole, ["front"], [job.name for job in background], allowed, 15)
    left = iter(range(tries))
    search = PackingSearch(loads, alone.plan, {"front": 1}, 0, lambda _: next(left, None) is None)
    search.run()
    return search, restricted(whole, {"front": 1} | dict(zip(loads.background, search.vector, strict=True)))


def broken(search: PackingSearch, instance: Instance) -> list[str]:
    """What its plan breaks."""
    plan: Plan = replace(search.plan(), instance=instance.name, instance_sha256=instance_sha256(instance))
    return [str(violation) for violation in check(instance, plan)]


def test_gaps_delay_what_starts_later_and_hold_no_more_memory() -> None:
    held = Instance("held", CLUSTER, {}, (line("front", ("x", 4), ("x", 5), held=9),), "cyclic", "period")
    alone = solve(held, "auto", Options(threads=1, work_limit=1.0))
    assert alone.plan is not None
    kept = KeptPlan(compile_instance(held), alone.plan)
    gpu = kept.starts[0][0]
    assert isinstance(gpu, tuple)
    assert kept.memory(gpu) == (9, 0)
    first, second = sorted(start % 9 for start, _ in kept.busy({})[gpu])
    shift = kept.shift({second: 7})
    assert (shift(first), shift(second), shift(first + 9), shift(second + 18)) == (
        first,
        second + 7,
        first + 16,
        second + 39,
    )


@pytest.mark.parametrize(
    "background",
    [
        [line("a", ("z", 4)), line("b", ("z", 5)), line("c", ("z", 3), ("w", 4))],
        [Job("a", "m", 2, 1, depth=StaircaseDepth()), Job("b", "m", 2, 1, depth=StaircaseDepth())],
        [Job("a", "m", 3, 1, depth=StaircaseDepth()), Job("b", "m", 2, 1, depth=FreeDepth())],
        [line("a", ("z", 3), ("w", 4), held=90), line("b", ("z", 2), held=60), Job("c", "m", 2, 1, depth=FreeDepth(2))],
    ],
)
@pytest.mark.parametrize("allowed", [15, 21])
def test_what_is_packed_keeps_every_rule(background: list[Job | TaskGraphJob], allowed: int) -> None:
    search, instance = searched(*background, allowed=allowed)
    assert not broken(search, instance)
    assert search.best.packing.period_us <= allowed
    assert search.best.packing.value == sum(search.vector) > 0


def test_two_staircases_interlock_on_the_same_gpus() -> None:
    pairs = [Job(name, "m", 2, 1, depth=StaircaseDepth()) for name in ("a", "b")]
    search, _ = searched(*pairs, allowed=21)
    assert sum(search.vector) >= 5


def test_a_gap_makes_room_for_what_does_not_fit() -> None:
    everywhere = [line(f"one{k}", ("z", 8)) for k in range(4)]
    narrow, _ = searched(*everywhere)
    wide, _ = searched(*everywhere, allowed=17)
    # GPU of `x` is free for 6 of 15 us, that of `y` for 9.
    assert sum(narrow.vector) == 3
    assert sum(wide.vector) == 6
    assert wide.best.packing.period_us == 17

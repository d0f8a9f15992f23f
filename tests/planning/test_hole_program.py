"""Holes of foreground jobs: an integer program of equal pieces, and iterations packed modulo the period."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from jigsaw_opt.checking import check
from jigsaw_opt.documents import instance_sha256
from jigsaw_opt.planning.fill import fill
from jigsaw_opt.planning.fill.exact import ExactHoles
from jigsaw_opt.planning.fill.loads import Loads, restricted
from jigsaw_opt.planning.fill.neighbourhoods import PackingSearch
from jigsaw_opt.planning.fill.stretching import KeptPlan
from jigsaw_opt.problem.cluster import Cluster, Link, Server
from jigsaw_opt.problem.compiled.operations import compile_instance
from jigsaw_opt.problem.depth import FreeDepth, StaircaseDepth
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.job import Job
from jigsaw_opt.problem.model import Model, Segment
from jigsaw_opt.problem.plan import Plan
from jigsaw_opt.problem.task_graph import Barrier, Slot, TaskGraph, TaskGraphBlock, TaskGraphJob
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.solve import solve
from tests.planning.test_fill import THERE_AND_BACK, instance, line


def program(whole: Instance, allowed_us: int) -> ExactHoles | None:
    """That of an instance whose first job is the foreground."""
    name = whole.jobs[0].name
    alone = solve(restricted(whole, {name: 1}), "auto", Options(threads=1, work_limit=1.0))
    assert alone.plan is not None
    loads = Loads(whole, [name], [job.name for job in whole.jobs[1:]], allowed_us, alone.bound)
    return ExactHoles.of(loads, {name: 1}, alone.plan)


FRONT = replace(THERE_AND_BACK, shape=replace(THERE_AND_BACK.shape, barrier="slot"))


def test_jobs_of_other_kinds_have_no_program() -> None:
    piece, two = line("a", ("z", 4)), TaskGraph((Slot("z"), Slot("w")), (TaskGraphBlock("b", ("z", "w"), {"gpu": 4}),))
    assert program(instance(FRONT, piece), 15) is not None
    for jobs in (
        (FRONT, TaskGraphJob("a", two, 1)),
        (FRONT, Job("a", "m", 2, 1, depth=FreeDepth())),
        (replace(FRONT, shape=replace(FRONT.shape, barrier="none")), piece),
    ):
        assert program(instance(*jobs), 15) is None


@pytest.mark.parametrize("barrier", ["slot", "job"])
def test_an_optimum_by_hand_where_pieces_are_on_few_gpus(barrier: Barrier) -> None:
    # In 15 us `x` has a hole of 6, `y` one of 9, and a GPU without a slot is free: 2 and 3 pieces of 4 on two GPUs.
    front = replace(FRONT, shape=replace(FRONT.shape, barrier=barrier))
    two = [line(name, ("z", 4)) for name in ("a", "b")]
    found = program(instance(front, *two, gpus=3), 15)
    found.run(0, 15, [0, 4, 10], Options(threads=1, work_limit=5.0))
    vector, plan = found.best
    assert (sum(vector), plan.objective) == (5, 15)
    assert found.bound == Fraction(5, 15)


def test_where_blocks_may_change_places_nothing_is_proven() -> None:
    free = line("front", ("x", 4), ("x", 5), ordered=False)
    found = program(instance(free, line("a", ("z", 2)), gpus=1), 14)
    before = found.bound
    found.run(0, 9, [0, 4], Options(threads=1, work_limit=5.0))
    vector, plan = found.best
    assert Fraction(vector[0], plan.objective) == Fraction(2, 13)
    assert found.bound == before


def test_workers_that_need_not_wait_for_one_another_bound_those_that_do() -> None:
    # Blocks of 2 and of 3 us, as many of each; holes of 6 and 9 take six blocks, three of each.
    model = Model(tuple(Segment(name, {"gpu": 1}, {"gpu": us}, 1, 0) for name, us in (("low", 1), ("high", 0))))
    whole = instance(FRONT, Job("a", "m", 2, 1, depth=StaircaseDepth()), gpus=2)
    found = program(replace(whole, models={"m": model}), 15)
    found.run(0, 15, [0, 4, 10], Options(threads=1, work_limit=5.0))
    assert found.best is None
    assert found.bound == Fraction(3, 15)


def test_a_pipeline_on_eight_gpus_is_filled_and_proven() -> None:
    stages = [*range(8), *reversed(range(8))]
    pipe = line("pipe", *((f"s{stage}", 6 if at < 8 else 8) for at, stage in enumerate(stages)))
    whole = instance(pipe, *(line(f"one{k}", ("z", 40)) for k in range(3)), gpus=8)
    found = fill(whole, ["pipe"], Options(work_limit=4.0, threads=1), slowdown=Fraction(11, 10))
    assert not check(found.instance, found.plan)
    assert found.details.status == "optimal"
    # The first stage is busy or waits for 8 * 14 = 112 us. Beside 14 of a GPU two pieces of 40 fit in that, and three
    # do not in the 123 that are allowed.
    assert (found.details.value, found.objective) == (6, 112)


def test_vectors_of_jobs_that_are_alike_are_listed_once() -> None:
    whole = instance(FRONT, line("a", ("z", 4)), line("b", ("z", 9)), line("c", ("z", 4)), gpus=2)
    loads = Loads(whole, ["front"], ["a", "b", "c"], 15, 15)
    assert loads.alike == ((0, 2), (1,))
    assert loads.caps == (3, 1, 3)
    assert loads.canonical((1, 7, 2)) == (2, 7, 1)
    vectors = loads.vectors(100)
    assert len(set(vectors)) == len(vectors) == 10 * 2
    assert all(loads.canonical(vector) == vector for vector in vectors)
    assert loads.vectors(19) is None


SERVERS = tuple(Server(name, "gpu", 2, 100, 10**6) for name in ("s", "t"))
LINKS = tuple(Link(name, (name, "switch"), 10**6) for name in ("s", "t"))
CLUSTER = Cluster(SERVERS, ("switch",), LINKS)
MODEL = Model(tuple(Segment(name, {"gpu": 1}, {"gpu": 2}, 2, 1) for name in ("low", "high")), state_factor=1)


def searched(*background: Job | TaskGraphJob, allowed: int = 15, tries: int = 200) -> tuple[PackingSearch, Instance]:
    """A search beside `THERE_AND_BACK`, run to its end or for so many tries."""
    whole = Instance("packed", CLUSTER, {"m": MODEL}, (THERE_AND_BACK, *background), "cyclic", "period")
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

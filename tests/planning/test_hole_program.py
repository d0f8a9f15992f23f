"""Holes of one task-graph job and equal pieces as an integer program, against every vector on small instances."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from jigsaw_opt.checking import check
from jigsaw_opt.planning.fill import fill
from jigsaw_opt.planning.fill.exact import ExactHoles
from jigsaw_opt.planning.fill.loads import Loads, restricted
from jigsaw_opt.problem.cluster import Cluster, Server
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.job import FreeDepth, Job, StaircaseDepth
from jigsaw_opt.problem.model import Model, Segment
from jigsaw_opt.problem.task_graph import Barrier, Edge, Slot, TaskGraph, TaskGraphBlock, TaskGraphJob
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.solve import solve

MODEL = Model((Segment("only", {"gpu": 1}, {"gpu": 1}, 1, 0),))


def chain(name: str, *blocks: tuple[str, int], barrier: Barrier = "slot", ordered: bool = True) -> TaskGraphJob:
    """Blocks one behind the other, or in any order."""
    slots = tuple(Slot(slot) for slot in dict.fromkeys(slot for slot, _ in blocks))
    made = tuple(TaskGraphBlock(f"b{at}", (slot,), {"gpu": us}) for at, (slot, us) in enumerate(blocks))
    edges = tuple(Edge(f"b{at}", f"b{at + 1}") for at in range(len(made) - 1)) if ordered else ()
    return TaskGraphJob(name, TaskGraph(slots, made, (), edges, barrier), 1)


def instance(*jobs: Job | TaskGraphJob, gpus: int) -> Instance:
    """Jobs on one server."""
    return Instance("holes", Cluster((Server("s", "gpu", gpus, 10**6, 10**6),)), {"m": MODEL}, jobs, "cyclic", "period")


def program(whole: Instance, allowed_us: int) -> ExactHoles | None:
    """That of an instance whose first job is the foreground."""
    name = whole.jobs[0].name
    alone = solve(restricted(whole, {name: 1}), "auto", Options(threads=1, work_limit=1.0))
    assert alone.plan is not None
    loads = Loads(whole, [name], [job.name for job in whole.jobs[1:]], allowed_us, alone.bound)
    return ExactHoles.of(loads, {name: 1}, alone.plan)


FRONT = chain("front", ("x", 4), ("y", 6), ("x", 5))


def test_jobs_of_other_kinds_have_no_program() -> None:
    piece = chain("a", ("z", 4))
    assert program(instance(FRONT, piece, gpus=2), 15) is not None
    wide = TaskGraphBlock("b", ("z", "w"), {"gpu": 4})
    assert (
        program(instance(FRONT, TaskGraphJob("a", TaskGraph((Slot("z"), Slot("w")), (wide,)), 1), gpus=2), 15) is None
    )
    assert program(instance(FRONT, Job("a", "m", 2, 1, depth=FreeDepth()), gpus=2), 15) is None
    assert program(instance(replace(FRONT, shape=replace(FRONT.shape, barrier="none")), piece, gpus=2), 15) is None


@pytest.mark.parametrize("barrier", ["slot", "job"])
def test_an_optimum_by_hand_where_pieces_are_on_few_gpus(barrier: Barrier) -> None:
    # In 15 us `x` has a hole of 6, `y` one of 9, and a GPU without a slot is free: 2 and 3 pieces of 4 on two GPUs.
    front = replace(FRONT, shape=replace(FRONT.shape, barrier=barrier))
    two = [chain(name, ("z", 4)) for name in ("a", "b")]
    found = program(instance(front, *two, gpus=3), 15)
    assert found is not None
    found.run(0, 15, [0, 4, 10], Options(threads=1, work_limit=5.0))
    assert found.best is not None
    vector, plan = found.best
    assert (sum(vector), plan.objective) == (5, 15)
    assert found.bound == Fraction(5, 15)


def test_where_blocks_may_change_places_nothing_is_proven() -> None:
    free = chain("front", ("x", 4), ("x", 5), ordered=False)
    found = program(instance(free, chain("a", ("z", 2)), gpus=1), 14)
    assert found is not None
    before = found.bound
    found.run(0, 9, [0, 4], Options(threads=1, work_limit=5.0))
    assert found.best is not None
    vector, plan = found.best
    assert Fraction(vector[0], plan.objective) == Fraction(2, 13)
    assert found.bound == before


def test_workers_that_need_not_wait_for_one_another_bound_those_that_do() -> None:
    # Blocks of 2 and of 3 us, as many of each; holes of 6 and 9 take six blocks, three of each.
    model = Model(tuple(Segment(name, {"gpu": 1}, {"gpu": us}, 1, 0) for name, us in (("low", 1), ("high", 0))))
    whole = instance(FRONT, Job("a", "m", 2, 1, depth=StaircaseDepth()), gpus=2)
    found = program(replace(whole, models={"m": model}), 15)
    assert found is not None
    found.run(0, 15, [0, 4, 10], Options(threads=1, work_limit=5.0))
    assert found.best is None
    assert found.bound == Fraction(3, 15)


def test_a_pipeline_on_eight_gpus_is_filled_and_proven() -> None:
    stages = [*range(8), *reversed(range(8))]
    pipe = chain("pipe", *((f"s{stage}", 6 if at < 8 else 8) for at, stage in enumerate(stages)))
    whole = instance(pipe, *(chain(f"one{k}", ("z", 40)) for k in range(3)), gpus=8)
    found = fill(whole, ["pipe"], Options(work_limit=4.0, threads=1), slowdown=Fraction(11, 10))
    assert not check(found.instance, found.plan)
    assert found.status == "optimal"
    # The first stage is busy or waits for 8 * 14 = 112 us. Beside 14 of a GPU two pieces of 40 fit in that, and three
    # do not in the 123 that are allowed.
    assert (found.value, found.plan.objective) == (6, 112)


def test_vectors_of_jobs_that_are_alike_are_listed_once() -> None:
    whole = instance(FRONT, chain("a", ("z", 4)), chain("b", ("z", 9)), chain("c", ("z", 4)), gpus=2)
    loads = Loads(whole, ["front"], ["a", "b", "c"], 15, 15)
    assert loads.alike == ((0, 2), (1,))
    assert loads.caps == (3, 1, 3)
    assert loads.canonical((1, 7, 2)) == (2, 7, 1)
    vectors = loads.vectors(100)
    assert vectors is not None
    assert len(set(vectors)) == len(vectors) == 10 * 2
    assert all(loads.canonical(vector) == vector for vector in vectors)
    assert loads.vectors(19) is None

"""Alike parts of a job go in their order, and the optimum stays: beside an oracle that knows no order."""

from __future__ import annotations

from random import Random

import pytest

from jigsaw_opt.formulations.cpsat.parts import alike_parts, sorted_starts
from jigsaw_opt.problem import (
    Cluster,
    Edge,
    Instance,
    MemoryInterval,
    Server,
    Slot,
    TaskGraph,
    TaskGraphBlock,
    TaskGraphJob,
)
from jigsaw_opt.problem.compiled.task_graph import compile_task_graph
from jigsaw_opt.problem.instance import Horizon
from jigsaw_opt.problem.task_graph import Barrier
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.solve import solve

pytest.importorskip("ortools")

from tests.task_graph_oracle import task_graph_optimum

BARRIERS: tuple[Barrier, ...] = ("none", "slot", "job")


def alike(seed: int, horizon: Horizon) -> Instance:
    """Two or three times the same random blocks, edges and holds on two slots."""
    random = Random(f"alike/{seed}")
    copies = random.choice((2, 2, 3))
    size = 2 if copies == 3 else random.choice((2, 3))
    slots = [random.choice("ab") for _ in range(size - 1)] + ["b"]
    times = [random.randrange(1, 4) for _ in range(size)]
    ahead = [(0, n, 0) for n in range(1, size) if random.random() < 0.7]
    edges = [*ahead, *([(size - 1, 0, 1)] if random.random() < 0.3 else [])]
    pairs = [(a, b) for a in range(size) for b in range(size) if slots[a] == slots[b] and random.random() < 0.6]
    blocks = [TaskGraphBlock(f"{k}.{n}", (slots[n],), {"v": times[n]}) for k in range(copies) for n in range(size)]
    blocks.append(TaskGraphBlock("alone", ("a",), {"v": 1}))
    shape = TaskGraph(
        (Slot("a"), Slot("b")),
        tuple(blocks),
        (),
        tuple(Edge(f"{k}.{a}", f"{k}.{b}", lag) for k in range(copies) for a, b, lag in edges),
        random.choice(BARRIERS),
        tuple(MemoryInterval(f"{k}.{a}", f"{k}.{b}", 1 + (a + b) % 2) for k in range(copies) for a, b in pairs),
    )
    cluster = Cluster((Server("s", "v", 2, random.choice((2, 3, 4)), 10**6),))
    job = TaskGraphJob("job", shape, random.choice((1, 1, 2)) if size * copies < 6 else 1)
    return Instance("alike", cluster, {}, (job,), horizon, "period" if horizon == "cyclic" else "makespan")


@pytest.mark.parametrize("horizon", ["finite", "cyclic"])
def test_the_optimum_of_alike_parts(horizon: Horizon) -> None:
    found = []
    for seed in range(16):
        instance = alike(seed, horizon)
        assert alike_parts(compile_task_graph(instance.task_graph_jobs[0]))
        result = solve(instance, "cpsat", Options(threads=1, work_limit=20.0))
        found.append(result.objective)
        assert result.objective == task_graph_optimum(instance), seed
    assert None in found
    assert len(set(found)) > 4


def test_starts_are_sorted_part_by_part() -> None:
    blocks = tuple(TaskGraphBlock(f"{kind}{k}", ("s",), {"v": 1}) for k in range(2) for kind in "FB")
    edges, holds = (
        tuple(made(f"F{k}", f"B{k}") for k in range(2)) for made in (Edge, lambda a, b: MemoryInterval(a, b, 1))
    )
    shape = TaskGraph((Slot("s"),), blocks, (), edges, "none", holds)
    graph = compile_task_graph(TaskGraphJob("job", shape, 1))
    assert sorted_starts(graph, [[4, 6, 0, 7]]) == [[0, 6, 4, 7]]

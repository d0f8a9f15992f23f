"""The bound of placements on servers: known values, never above the optimum, and better than loads of slots."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from jigsaw_opt.instances import best_known, load, names
from jigsaw_opt.problem import (
    Cluster,
    Edge,
    Instance,
    Link,
    Server,
    Slot,
    TaskGraph,
    TaskGraphBlock,
    TaskGraphJob,
    TaskGraphTransfer,
    compile_instance,
)
from jigsaw_opt.problem.instance import Horizon, Objective
from jigsaw_opt.solvers.bounds import Bound, lower_bound, stronger_bounds
from jigsaw_opt.solvers.bounds.activities import partial_placements
from jigsaw_opt.solvers.bounds.activities.head_and_tail import best_head_and_tail, merged
from tests.random_task_graphs import random_task_graph_instance

pytest.importorskip("ortools")

from tests.task_graph_oracle import task_graph_optimum

NAME = "partial_placements"
KINDS: list[tuple[Horizon, Objective]] = [
    ("finite", "makespan"),
    ("finite", "weighted_completion"),
    ("cyclic", "period"),
]


def star(servers: int, gpus: int, rate: int = 10**6) -> Cluster:
    """Servers of the same kind at one switch."""
    names = [f"s{k}" for k in range(servers)]
    own = tuple(Server(name, "v", gpus, 10**9, 10**9) for name in names)
    return Cluster(own, ("hub",), tuple(Link(f"l{name}", (name, "hub"), rate) for name in names))


def exchange(slots: int, messages: int, size: int = 10) -> TaskGraph:
    """A block of 1 on each slot, and between any two slots so many messages that leave after the first block."""
    blocks = [TaskGraphBlock(f"b{k}", (f"d{k}",), {"v": 1}) for k in range(slots)]
    sent = [
        TaskGraphTransfer(f"t{one}-{other}-{k}", size, f"d{one}", f"d{other}")
        for one in range(slots)
        for other in range(one + 1, slots)
        for k in range(messages)
    ]
    edges = tuple(Edge(f"b{each.source[1:]}", each.name) for each in sent if each.source)
    return TaskGraph(tuple(Slot(f"d{k}") for k in range(slots)), tuple(blocks), tuple(sent), edges)


def layered(operations: int, slots: int) -> TaskGraph:
    """Layers of four blocks, each of which sends to two blocks of the next layer."""
    random, blocks, sent, edges, last = Random(1), [], [], [], list[TaskGraphBlock]()
    while len(blocks) + len(sent) < operations:
        layer = [
            TaskGraphBlock(f"b{len(blocks) + k}", (f"d{random.randrange(slots)}",), {"v": random.randint(5, 40)})
            for k in range(4)
        ]
        for block in layer:
            for one in random.sample(last, 2) if last else ():
                if one.slots == block.slots:
                    edges.append(Edge(one.name, block.name))
                    continue
                sent.append(TaskGraphTransfer(f"t{len(sent)}", random.randint(1, 40), one.slots[0], block.slots[0]))
                edges += [Edge(one.name, sent[-1].name), Edge(sent[-1].name, block.name)]
        blocks += layer
        last = layer
    return TaskGraph(tuple(Slot(f"d{k}") for k in range(slots)), tuple(blocks), tuple(sent), tuple(edges))


def of(graph: TaskGraph, cluster: Cluster, horizon: Horizon = "finite", iterations: int = 1) -> Instance:
    objective: Objective = "makespan" if horizon == "finite" else "period"
    return Instance("exchange", cluster, {}, (TaskGraphJob("j", graph, iterations),), horizon, objective)


def bounds_of(instance: Instance) -> tuple[int, Bound]:
    """The bound of the other relaxations, and of all."""
    operations = compile_instance(instance)
    return lower_bound(operations, (NAME,)).value, lower_bound(operations)


@pytest.mark.parametrize(
    ("servers", "gpus", "crossing"),
    # Of four slots that all exchange the same: a server of one GPU sends to three others. Two pairs of slots have four
    # ways between them. A server of three takes all but one. One of four has all.
    [(4, 1, 3), (2, 2, 4), (2, 3, 3), (2, 4, 0)],
)
@pytest.mark.parametrize(("horizon", "iterations"), [("finite", 1), ("finite", 3), ("cyclic", 1), ("cyclic", 3)])
def test_the_busiest_link_of_the_best_placement(
    servers: int, gpus: int, crossing: int, horizon: Horizon, iterations: int
) -> None:
    without, bound = bounds_of(of(exchange(4, 2), star(servers, gpus), horizon, iterations))
    # A first block of 1 is before every message on the finite horizon.
    load = crossing and (horizon == "finite") + iterations * 2 * crossing * 10
    assert bound.value == max(without, load)
    if crossing:
        assert without < load and bound.proof.relaxation == NAME
        assert bound.proof.links and str(load) in bound.proof.arithmetic


def test_jobs_that_cross_the_same_link_add_up() -> None:
    jobs = tuple(TaskGraphJob(f"j{k}", exchange(2, 3), 1, weight=1) for k in range(4))
    instance = replace(of(exchange(2, 3), star(2, 1)), jobs=jobs)
    # A block of 1 before, and four times three messages of 10 over either link.
    assert bounds_of(instance)[1].value == 1 + 4 * 3 * 10


@pytest.mark.parametrize(("horizon", "objective"), KINDS)
def test_never_above_the_optimum_and_often_better(horizon: Horizon, objective: Objective) -> None:
    cases, better = 0, 0
    for seed in range(100, 160):
        drawn = random_task_graph_instance(seed, horizon, objective)
        instance = replace(drawn, jobs=drawn.task_graph_jobs)
        jobs = instance.task_graph_jobs
        if sum(job.iterations * (len(job.shape.blocks) + len(job.shape.transfers)) for job in jobs) > 6:
            continue
        optimum = task_graph_optimum(instance)
        if optimum is not None:
            without, bound = bounds_of(instance)
            assert without <= bound.value <= optimum, instance.name
            cases, better = cases + 1, better + (without < bound.value)
    assert cases >= 20 and better >= 5


@pytest.mark.parametrize("steps", [1, 20, 300])
def test_a_search_that_ends_early_proves_less(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    instance = of(exchange(5, 2), star(5, 1))
    full = bounds_of(instance)[1].value
    monkeypatch.setattr(partial_placements, "_MOST_STEPS", steps)
    without, bound = bounds_of(instance)
    assert without <= bound.value <= full == 1 + 4 * 2 * 10


@pytest.mark.parametrize("seed", range(12))
def test_servers_that_are_alike_may_change_places(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(seed)
    cluster = star(3, random.choice((1, 2)))
    slow = replace(cluster.links[0], bandwidth=random.choice((10**6, 10**5)))
    cluster = replace(cluster, links=(slow, *cluster.links[1:]))
    instance = of(layered(random.choice((20, 40)), 3), cluster, random.choice(("finite", "cyclic")))
    found = bounds_of(instance)[1].value
    monkeypatch.setattr(partial_placements, "alike_servers", lambda cluster: list(range(len(cluster.servers))))
    assert bounds_of(instance)[1].value == found


def test_three_servers_at_a_switch_send_one_after_the_other() -> None:
    # Each link has four of the six messages, but any two messages share a link.
    without, bound = bounds_of(of(exchange(3, 2), star(3, 1)))
    assert bound.value == 1 + 6 * 10 > without
    assert bound.proof.links == ("ls0", "ls1", "ls2")


def test_with_more_work_the_search_comes_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    operations = compile_instance(of(layered(60, 6), star(3, 2)))
    full = lower_bound(operations).value
    monkeypatch.setattr(partial_placements, "_MOST_STEPS", 100)
    first = lower_bound(operations).value
    assert first < full
    found = list(stronger_bounds(operations, first))
    values = [bound.value for bound in found]
    assert values == sorted({*values}) and first < values[0] and values[-1] == full
    assert found[-1].proof.relaxation == "more_placements"
    assert list(stronger_bounds(operations, first, work=0.0)) == []
    assert list(stronger_bounds(operations, full)) == []


def test_a_search_in_which_one_slot_takes_more_than_the_limit_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    operations = compile_instance(of(exchange(5, 2), star(5, 1)))
    full = lower_bound(operations).value
    monkeypatch.setattr(partial_placements, "_MOST_STEPS", 2)
    first = lower_bound(operations).value
    assert all(first < bound.value < full for bound in stronger_bounds(operations, first))


def test_merged_loads_prove_no_more_and_not_much_less() -> None:
    random = Random(3)
    for most in (20, 1000, 10**6):
        loads = [(random.randrange(most), random.randrange(9), random.randrange(most)) for _ in range(2000)]
        few = merged(loads)
        assert len(few) <= 256 and sum(length for _, length, _ in few) == sum(length for _, length, _ in loads)
        whole, part = best_head_and_tail(loads)[0], best_head_and_tail(few)[0]
        assert whole - 2 * (most // 16 + 1) <= part <= whole
    assert merged(loads[:256]) == loads[:256]


def test_a_large_layered_job_is_bounded_by_its_links() -> None:
    without, bound = bounds_of(of(layered(1000, 4), star(2, 2)))
    assert bound.value > 2 * without
    assert bound.proof.links and "link" in bound.reason


def test_no_best_known_value_is_below_the_bound() -> None:
    chosen = [name for name in names() if name.startswith(("pipeline/", "shop/"))]
    assert len(chosen) >= 15
    better = 0
    for name in chosen:
        known = best_known(name)
        assert known is not None
        without, bound = bounds_of(load(name))
        assert bound.value <= known.objective, name
        better += without < bound.value
    assert better >= 3

"""Causes why jobs with a task graph, or blocks under power caps, have no place; none is claimed where a plan exists."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import permutations, product
from random import Random

import pytest

from jigsaw_opt import Options, solve
from jigsaw_opt.errors import OutOfTimeError
from jigsaw_opt.problem import (
    Cluster,
    Edge,
    FreeDepth,
    Instance,
    Job,
    Link,
    MemoryInterval,
    Model,
    Operations,
    Segment,
    Server,
    Slot,
    TaskGraph,
    TaskGraphBlock,
    TaskGraphJob,
    compile_instance,
)
from jigsaw_opt.problem.network.route_policy import RoutePolicy
from jigsaw_opt.problem.power import PowerCap
from jigsaw_opt.solvers.infeasibility.certain import certain_causes
from jigsaw_opt.solvers.infeasibility.conflict import minimal_conflict, placement_feasible
from jigsaw_opt.solvers.infeasibility.together import restrict
from jigsaw_opt.solvers.result import Conflict
from tests.oracle import optimum
from tests.random_instances import GOALS, random_instance, with_power_caps
from tests.random_task_graphs import random_mixed_instance, random_task_graph_instance
from tests.refusals import carries
from tests.task_graph_oracle import task_graph_optimum

GB = 10**9


def server(name: str = "s", gpus: int = 2, memory: int = 10 * GB, gpu_type: str = "v") -> Server:
    return Server(name, gpu_type, gpus, memory, 10**6)


def job(memories: Sequence[int], gpu_types: Sequence[str] = ("v",), policy: str | None = None) -> TaskGraphJob:
    """One block on each slot."""
    slots = tuple(Slot(f"p{number}", memory) for number, memory in enumerate(memories))
    times = dict.fromkeys(gpu_types, 1)
    blocks = tuple(TaskGraphBlock(f"b{number}", (slot.name,), times) for number, slot in enumerate(slots))
    return TaskGraphJob("a", TaskGraph(slots, blocks), 1, route_policy=policy)


def causes(
    jobs: Sequence[TaskGraphJob | Job], cluster: Cluster, model: Model | None = None, cyclic: bool = False
) -> list[tuple[str, str]]:
    horizon = ("cyclic", "period") if cyclic else ("finite", "makespan")
    instance = Instance("i", cluster, {"m": model} if model else {}, tuple(jobs), *horizon)  # type: ignore[arg-type]
    return [(cause.kind, cause.message) for cause in certain_causes(compile_instance(instance))]


@pytest.mark.parametrize(
    ("asked", "servers", "kind", "told"),
    [
        (job([1], ["w"]), [server()], "gpu_type", ("times for w", "v")),
        (
            job([1] * 4),
            [server()],
            "reach",
            ("4 slots", "type v", "2", "2 more"),
        ),
        (job([1] * 3), [server(), server("t", 9, gpu_type="w")], "reach", ("type v", "2", "1 more")),
        (job([1, 12 * GB]), [server()], "memory", ("2 GB more", "server s")),
        (
            job([5, 11 * GB, 11 * GB]),
            [server(), server("t", 1, 12 * GB)],
            "memory",
            ("at least 1 GB",),
        ),
        (job([1] * 3), [server(), server("t")], "reach", ("links", "1 more")),
    ],
)
def test_what_is_missing_is_told(asked: TaskGraphJob, servers: list[Server], kind: str, told: tuple[str, ...]) -> None:
    ((found, message),) = causes([asked], Cluster(tuple(servers)))
    assert found == kind and carries(message, *told)


@pytest.mark.parametrize(
    ("asked", "servers"),
    [
        (job([1] * 4), [server(gpus=4)]),
        (job([1, 12 * GB]), [server(memory=12 * GB)]),
        (job([5, 11 * GB]), [server(gpus=1, memory=5), server("t", 1, 12 * GB)][::-1]),
    ],
)
def test_what_is_wanted_is_enough(asked: TaskGraphJob, servers: list[Server]) -> None:
    links = (Link("l", ("s", "t"), 1),) if len(servers) > 1 else ()
    assert causes([asked], Cluster(tuple(servers), (), links)) == []


def test_links_that_a_route_policy_forbids() -> None:
    links = (Link("l", ("s", "t"), 1),)
    cluster = Cluster((server(), server("t")), (), links, {"other": RoutePolicy(avoid_links=("l",))})
    ((kind, message),) = causes([job([1] * 3, policy="other")], cluster)
    assert kind == "reach" and carries(message, "'other'", "1 more")
    assert causes([job([1] * 3)], cluster) == []


@pytest.mark.parametrize(("edges", "fits"), [((Edge("f", "g"),), False), ((), True)])
def test_only_holds_that_are_sure_count(edges: tuple[Edge, ...], fits: bool) -> None:
    blocks = tuple(TaskGraphBlock(name, ("p",), {"v": 1}) for name in "fg")
    shape = TaskGraph((Slot("p", GB),), blocks, (), edges, "none", (MemoryInterval("f", "g", 11 * GB),))
    asked = TaskGraphJob("a", shape, 1)
    found = causes([asked], Cluster((server(),)))
    assert fits == (not found)
    if found:
        solved = solve(Instance("i", Cluster((server(),)), {}, (asked,)), threads=1)
        assert solved.verdict == "certified infeasible"
    assert all(carries(message, "2 GB", "wanted") for _, message in found)


def test_slots_and_workers_that_exceed_the_memory_together() -> None:
    model = Model((Segment("g", {"v": 1}, {"v": 1}, 7 * GB, GB),), state_factor=1)
    two = [Job("b", "m", 2, 1), job([4 * GB, 3 * GB])]
    assert causes(two, Cluster((server(),)), model) == []  # On the finite horizon they may follow one another.
    ((kind, message),) = causes(two, Cluster((server(),)), model, cyclic=True)
    assert kind == "memory" and carries(message, "4 workers", "slots", "21,000,000,000 bytes")
    assert carries(message, "1 GB", "wanted")


def holding(name: str, held: int) -> TaskGraphJob:
    """Two memory intervals of so many bytes, neither of which can end before the other one begins."""
    blocks = tuple(TaskGraphBlock(each, ("p",), {"v": 1}) for each in "fgxy")
    holds = MemoryInterval("f", "x", held), MemoryInterval("g", "y", held)
    edges = tuple(Edge(first, later) for first in "fg" for later in "xy")
    return TaskGraphJob(name, TaskGraph((Slot("p"),), blocks, (), edges, "none", holds), 1)


@pytest.mark.parametrize("large", [holding("large", 6 * GB), Job("large", "m", 2, 3, depth=FreeDepth(1, "1/2", 2))])
def test_on_the_finite_horizon_the_job_without_a_plan_is_named(large: TaskGraphJob | Job) -> None:
    """Only a search knows that too much is held at once, or that levels are out of balance."""
    pytest.importorskip("ortools")
    sizes = (3 * GB, 3 * GB, 2 * GB)
    model = Model(tuple(Segment(f"g{k}", {"v": 1}, {"v": 1}, 0, size) for k, size in enumerate(sizes)), (1, 3))
    cluster = Cluster((server(gpus=1), server("t", 1, 7 * GB)), (), (Link("l", ("s", "t"), 1),))
    jobs = (holding("a", 4 * GB), large, Job("b", "m", 1, 1), holding("c", 3 * GB))
    asked = Instance("i", cluster, {"m": model}, jobs)
    part = compile_instance(asked)
    assert not certain_causes(part)
    conflict = minimal_conflict(part)
    assert (conflict.kind, conflict.jobs) == ("search", ("large",)) and "even alone" in conflict.message
    without = restrict(part, (0, 2, 3))
    assert [job.name for job in without.jobs] == ["b"] and len(without.task_graphs) == 2
    result = solve(asked, "cpsat", Options(threads=1))
    assert result.verdict == "certified infeasible" and result.conflicts == (conflict,)


def test_on_the_cyclic_horizon_the_fewest_jobs_without_a_plan_are_named() -> None:
    pytest.importorskip("ortools")
    jobs = tuple(replace(job([size * GB]), name=f"j{k}") for k, size in enumerate((1, 6, 1, 6, 6)))
    part = compile_instance(Instance("i", Cluster((server(memory=11 * GB),)), {}, jobs, "cyclic", "period"))
    assert not certain_causes(part)
    conflict = minimal_conflict(part)
    assert (conflict.kind, conflict.jobs) == ("search", ("j1", "j3", "j4")) and "fewer" in conflict.message


def test_a_check_that_stays_open_keeps_the_jobs_that_may_be_to_blame() -> None:
    part = compile_instance(Instance("i", Cluster((server(),)), {}, (holding("a", 6 * GB), holding("b", 6 * GB))))
    assert minimal_conflict(part, lambda one: None if one.task_graphs[0].job.name == "a" else True).jobs == ("a",)
    assert minimal_conflict(part, lambda _: None).jobs == ("a", "b")

    def late(_: Operations) -> bool:
        raise OutOfTimeError("over")

    assert carries(minimal_conflict(part, late).message, "time was over")


def test_no_cause_is_claimed_where_a_plan_exists() -> None:
    claimed = 0
    for seed in range(150):
        for instance in (random_task_graph_instance(seed), random_mixed_instance(seed)):
            if certain_causes(compile_instance(instance)):
                claimed += 1
                assert task_graph_optimum(instance) is None, instance.name
    assert claimed > 5


SERVERS = Server("s", "v", 2, 100, 10**6), Server("t", "w", 1, 100, 10**6)


def instance(
    caps: Sequence[PowerCap], jobs: Sequence[Job | TaskGraphJob], servers: Sequence[Server] = SERVERS
) -> Instance:
    """A model of 300 W on GPUs of type v and 200 W on those of type w."""
    times = {"v": 1, "w": 1}
    models = {"m": Model((Segment("g", times, times, 60, 0),), state_factor=1, power_w={"v": 300, "w": 200})}
    return Instance("power", Cluster(tuple(servers), power_caps=tuple(caps)), models, tuple(jobs))


def sharded(*watts: int) -> TaskGraphJob:
    """A block on two slots at once, which draws so much on each, by type of GPU."""
    slots = Slot("p"), Slot("q")
    block = TaskGraphBlock("b", ("p", "q"), {"v": 1, "w": 1}, dict(zip("vw", watts, strict=True)))
    return TaskGraphJob("a", TaskGraph(slots, (block,)), 1)


def cause(asked: Instance) -> Conflict | None:
    found = certain_causes(compile_instance(asked))
    assert len(found) <= 1
    return found[0] if found else None


@pytest.mark.parametrize(("job", "watts", "need"), [(Job("a", "m", 1, 1), 150, 200), (sharded(50, 50), 99, 100)])
def test_a_cap_below_every_block_is_named_with_the_least_that_helps(
    job: Job | TaskGraphJob, watts: int, need: int
) -> None:
    found = cause(instance([PowerCap("room", ("s", "t"), watts)], [job]))
    assert found is not None and (found.kind, found.jobs) == ("power", ("a",))
    assert carries(found.message, "job a", f"at least {need} W", "'room'", f"{watts} W", "outside the cap")
    assert cause(instance([PowerCap("room", ("s", "t"), need)], [job])) is None
    solved = solve(instance([PowerCap("room", ("s", "t"), watts)], [job]), "greedy", Options(threads=1))
    assert solved.verdict == "certified infeasible" and [each.kind for each in solved.conflicts] == ["power"]


def test_where_no_cap_alone_is_to_blame_all_are() -> None:
    caps = PowerCap("first", ("s",), 100), PowerCap("all", ("s", "t"), 150)
    found = cause(instance(caps, [Job("a", "m", 1, 1)]))
    assert found is not None and carries(found.message, "at least 200 W", "'all'", "other power caps")
    both = PowerCap("one", ("t",), 100), PowerCap("two", ("t",), 150)
    found = cause(instance(both, [Job("a", "m", 1, 1)], SERVERS[1:]))
    assert found is not None and carries(found.message, "'one'", "100 W", "caps of at least 200 W")


def test_what_helps_is_tried_under_the_caps() -> None:
    """Two jobs have no room together on the only server where a block keeps its cap."""
    asked = instance([PowerCap("room", ("s",), 200)], [Job("a", "m", 1, 1), Job("b", "m", 1, 1)])
    part = compile_instance(replace(asked, horizon="cyclic", objective="period"))
    assert certain_causes(part) == () and placement_feasible(part) is False
    message = minimal_conflict(part).message
    assert carries(message, "together", "power caps")
    assert message.endswith("; one GPU more on server t, or 20 bytes more on each GPU of server t, gives them a place")


def test_whether_there_is_a_place_under_caps_agrees_with_brute_force() -> None:
    claimed = 0
    for seed in range(90):
        horizon, objective = GOALS[seed % 3]
        asked = with_power_caps(random_instance(seed, horizon, objective, 5), Random(seed))
        part, exists = compile_instance(asked), optimum(asked) is not None
        assert placement_feasible(part) is exists, seed
        causes = certain_causes(part)
        assert not (exists and causes), seed
        claimed += any(each.kind == "power" for each in causes)
    assert claimed > 3


def placements(graph: TaskGraph, cluster: Cluster) -> Iterator[tuple[Server, ...]]:
    """Servers of the slots, on GPUs of their own of a type for which all their blocks have times."""
    gpus = [server for server in cluster.servers for _ in range(server.gpus)]
    for chosen in permutations(gpus, len(graph.slots)):
        at = {slot.name: server for slot, server in zip(graph.slots, chosen, strict=True)}
        if all(at[slot].gpu_type in block.duration_us for block in graph.blocks for slot in block.slots):
            yield chosen


def draws_too_much(graph: TaskGraph, cluster: Cluster, chosen: Sequence[Server]) -> bool:
    at = {slot.name: server for slot, server in zip(graph.slots, chosen, strict=True)}
    return any(
        sum((block.power_w or {}).get(at[slot].gpu_type, 0) for slot in block.slots if at[slot].name in cap.servers)
        > cap.watts
        for cap, block in product(cluster.power_caps or (), graph.blocks)
    )


def test_a_cause_of_task_graphs_holds_on_every_placement() -> None:
    claimed = 0
    for seed in range(150):
        drawn = (random_task_graph_instance, random_mixed_instance)[seed % 2](seed)
        asked = with_power_caps(drawn, Random(seed))
        for found in certain_causes(compile_instance(asked)):
            for job in asked.task_graph_jobs:
                if found.kind == "power" and found.jobs == (job.name,):
                    claimed += 1
                    assert all(
                        draws_too_much(job.shape, asked.cluster, at) for at in placements(job.shape, asked.cluster)
                    )
    assert claimed > 3

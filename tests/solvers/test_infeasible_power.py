"""Proves that a power cap which a block alone exceeds is named with the least watts that help.

Brute force over placements says that no such cause is claimed where a plan exists, for jobs of either kind.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import permutations, product
from random import Random

import pytest

from jigsaw_opt import Options, Status, solve
from jigsaw_opt.problem import (
    Cluster,
    Instance,
    Job,
    Model,
    Segment,
    Server,
    Slot,
    TaskGraph,
    TaskGraphBlock,
    TaskGraphJob,
    compile_instance,
)
from jigsaw_opt.problem.power import PowerCap
from jigsaw_opt.solvers.infeasibility.certain import certain_causes
from jigsaw_opt.solvers.infeasibility.conflict import minimal_conflict, placement_feasible
from jigsaw_opt.solvers.result import Conflict
from tests.oracle import optimum
from tests.random_instances import GOALS, random_instance, with_power_caps
from tests.random_task_graphs import random_mixed_instance, random_task_graph_instance
from tests.refusals import carries

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
    assert solved.status is Status.INFEASIBLE and [each.kind for each in solved.conflicts] == ["power"]


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

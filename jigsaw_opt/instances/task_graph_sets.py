"""The bundled sets of task-graph jobs (specification: task-graph-jobs).

``pipeline`` has micro-batches that go through stages; ``shop`` has job shops and flow shops, a slot a machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random

from jigsaw_opt.problem.cluster import Cluster, Link, Server
from jigsaw_opt.problem.instance import Horizon, Instance, Objective
from jigsaw_opt.problem.task_graph import (
    Barrier,
    Edge,
    MemoryInterval,
    PipelineFamily,
    Slot,
    TaskGraph,
    TaskGraphBlock,
    TaskGraphJob,
    TaskGraphTransfer,
)

_GB = 10**9
_ACTIVATIONS = 64 * 10**6
"""Bytes that go from one stage to the next, and that a stage keeps of a micro-batch for its backward pass, times 32."""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The recipe of an instance of pipelines.

    `devices, batches`: GPUs of a pipeline, and micro-batches of an iteration. `chunks`: stages on each device; from the
    second one on they run back and forth, as a V. `split`: whether the gradient of the weights is a block of its own,
    which nothing waits for. `sharded`: whether the last layer is sharded over all devices. `kept`: micro-batches whose
    activations fit into the memory of a device beside its stages. `barrier, objective`: barrier of the job, and
    objective of the instance; ``period`` makes the horizon cyclic. `servers`: number of servers over which the GPUs are
    spread, joined by a switch. `jobs`: number of pipelines, with weights 1, 2, and so on.
    """

    devices: int
    batches: int
    chunks: int = 1
    split: bool = False
    sharded: bool = False
    kept: int = 100
    barrier: Barrier = "slot"
    objective: Objective = "period"
    servers: int = 1
    jobs: int = 1

    @property
    def stages(self) -> int:
        """Number of stages on all devices."""
        return self.devices * self.chunks

    @property
    def family(self) -> PipelineFamily | None:
        """Its family; None where iterations overlap without a bound, or all devices share the last layer."""
        if self.sharded or self.barrier == "none":
            return None
        return PipelineFamily(tuple(map(self.device, range(self.stages))), self.batches, self.split)

    def device(self, stage: int) -> str:
        """Return the slot of a stage."""
        turn, place = divmod(stage, self.devices)
        return f"d{self.devices - 1 - place if turn % 2 else place}"


def pipeline_instance(recipe: Pipeline, name: str) -> Instance:
    """Build the instance of a recipe; times are drawn by its name, the same every time."""
    memory = 8 * _GB + recipe.kept * recipe.chunks * 32 * _ACTIVATIONS
    gpus = -(-recipe.devices // recipe.servers)
    servers = tuple(Server(f"s{k}", "v100", gpus, memory, 150 * _GB, 5) for k in range(recipe.servers))
    switches = ("switch",) if recipe.servers > 1 else ()
    links = tuple(Link(f"l{k}", (f"s{k}", "switch"), 12 * _GB, 10) for k in range(recipe.servers) if switches)
    draw = Random(f"pipeline/{name}")
    jobs = tuple(
        TaskGraphJob(f"pipe{k}" if recipe.jobs > 1 else "pipe", pipeline_task_graph(recipe, draw), 1, weight=k + 1)
        for k in range(recipe.jobs)
    )
    horizon: Horizon = "cyclic" if recipe.objective == "period" else "finite"
    return Instance(f"pipeline-{name}", Cluster(servers, switches, links), {}, jobs, horizon, recipe.objective)


def pipeline_task_graph(recipe: Pipeline, draw: Random) -> TaskGraph:
    """Build blocks, transfers, edges and memory intervals of all micro-batches.

    Forward passes take 8 to 12 ms over all chunks.
    """
    times = [draw.randrange(8, 13) * 1000 // recipe.chunks for _ in range(recipe.stages)]
    blocks: list[TaskGraphBlock] = []
    transfers: list[TaskGraphTransfer] = []
    edges: list[Edge] = []
    for batch in range(recipe.batches):
        own = list(_blocks(recipe, batch, times))
        blocks += own
        slots = {block.name: block.slots for block in own}
        if recipe.family is not None:  # behind the last stage this is an edge of the chain
            edges += [Edge(f"F{batch}.{stage}", f"B{batch}.{stage}") for stage in range(recipe.stages - 1)]
        # The gradients of weights are off the chain: each follows its backward pass, and nothing follows it.
        chain = [block.name for block in own if not block.name.startswith("W")]
        for before, after in pairwise(chain):
            if slots[before] == slots[after] or (recipe.sharded and "H" in before[0] + after[0]):
                edges.append(Edge(before, after))
                continue
            moved = f"{before}-{after}"
            transfers.append(TaskGraphTransfer(moved, _ACTIVATIONS, slots[before][0], slots[after][0]))
            edges += [Edge(before, moved), Edge(moved, after)]
        edges += [Edge(f"B{name[1:]}", name) for name in slots if name.startswith("W")]
    last = "W" if recipe.split else "B"
    holds = tuple(
        MemoryInterval(f"F{batch}.{stage}", f"{last}{batch}.{stage}", 32 * _ACTIVATIONS)
        for batch in range(recipe.batches)
        for stage in range(recipe.stages)
    )
    devices = tuple(Slot(f"d{k}", 8 * _GB) for k in range(recipe.devices))
    return TaskGraph(devices, tuple(blocks), tuple(transfers), tuple(edges), recipe.barrier, holds, recipe.family)


def _blocks(recipe: Pipeline, batch: int, times: list[int]) -> Iterator[TaskGraphBlock]:
    """Yield the blocks of a micro-batch in the order of its way through the stages."""
    stages = range(recipe.stages)
    for stage in stages:
        yield TaskGraphBlock(f"F{batch}.{stage}", (recipe.device(stage),), {"v100": times[stage]})
    if recipe.sharded:
        yield TaskGraphBlock(f"H{batch}", tuple(f"d{k}" for k in range(recipe.devices)), {"v100": 3000})
    for stage in reversed(stages):
        backward = times[stage] * (1 if recipe.split else 2)
        yield TaskGraphBlock(f"B{batch}.{stage}", (recipe.device(stage),), {"v100": backward})
        if recipe.split:
            yield TaskGraphBlock(f"W{batch}.{stage}", (recipe.device(stage),), {"v100": times[stage]})


_PLAIN = Pipeline(devices=4, batches=6)
PIPELINES: Mapping[str, Pipeline] = {
    "plain": _PLAIN,
    "overlapped": replace(_PLAIN, barrier="none"),
    "tight-memory": replace(_PLAIN, kept=2),
    "split-backward": replace(_PLAIN, batches=4, split=True, kept=4),
    "v-shape": replace(_PLAIN, devices=3, batches=3, chunks=2, kept=3),
    "sharded": replace(_PLAIN, devices=3, batches=4, sharded=True, objective="makespan"),
    "two-servers": replace(_PLAIN, batches=4, servers=2, objective="makespan"),
    "two-servers-cyclic": replace(_PLAIN, batches=2, servers=2, barrier="none"),
    "two-jobs": replace(_PLAIN, devices=2, batches=3, jobs=2, objective="weighted_completion"),
}
"""Recipes of the set by name."""


@dataclass(frozen=True, slots=True)
class Shop:
    """The recipe of a shop.

    `orders, machines`: orders, each of which goes once to every machine. `flow`: whether they do so in the same
    sequence; otherwise each in one of its own. `barrier, objective`: barrier of the job, and objective of the instance;
    ``period`` makes the horizon cyclic. `jobs`: number of jobs with so many orders each, which share the machines;
    their weights are 1, 2, and so on.
    """

    orders: int
    machines: int
    flow: bool = False
    barrier: Barrier = "none"
    objective: Objective = "makespan"
    jobs: int = 1


def shop_instance(recipe: Shop, name: str) -> Instance:
    """Build the instance of a recipe; times and sequences are drawn by its name, the same every time."""
    draw = Random(f"shop/{name}")
    cluster = Cluster((Server("shop", "v100", recipe.machines, 10**9, 10**9),))
    jobs = tuple(TaskGraphJob(f"j{k}", _shape(recipe, draw), 1, weight=k + 1) for k in range(recipe.jobs))
    horizon: Horizon = "cyclic" if recipe.objective == "period" else "finite"
    return Instance(f"shop-{name}", cluster, {}, jobs, horizon, recipe.objective)


def _shape(recipe: Shop, draw: Random) -> TaskGraph:
    """Draw a shop; operations take 1 to 99 µs, as in the shops of the literature."""
    blocks: list[TaskGraphBlock] = []
    edges: list[Edge] = []
    for order in range(recipe.orders):
        machines = list(range(recipe.machines))
        if not recipe.flow:
            draw.shuffle(machines)
        names = [f"{order}.{machine}" for machine in machines]
        blocks += [
            TaskGraphBlock(name, (f"m{machine}",), {"v100": draw.randint(1, 99)})
            for name, machine in zip(names, machines, strict=True)
        ]
        edges += [Edge(before, after) for before, after in pairwise(names)]
    slots = tuple(Slot(f"m{machine}") for machine in range(recipe.machines))
    return TaskGraph(slots, tuple(blocks), (), tuple(edges), recipe.barrier)


SHOPS: Mapping[str, Shop] = {
    "job-6x4": Shop(6, 4),
    "job-10x5": Shop(10, 5),
    "job-10x10": Shop(10, 10),
    "flow-8x3": Shop(8, 3, flow=True),
    "cyclic-5x4": Shop(5, 4, barrier="slot", objective="period"),
    "shared-4x3": Shop(4, 3, jobs=2, objective="weighted_completion"),
}
"""Recipes of the set by name."""

"""Stages of a pipeline on their GPUs: the instance that they make, and what orders of their passes take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from jigsaw_opt.planning.pipeline.costs import PipelineCosts
from jigsaw_opt.planning.pipeline.orders import Orders, PipelineLayout
from jigsaw_opt.problem.cluster import Cluster, Server
from jigsaw_opt.problem.instance import Horizon, Instance
from jigsaw_opt.problem.task_graph import (
    Edge,
    MemoryInterval,
    PipelineFamily,
    Slot,
    TaskGraph,
    TaskGraphBlock,
    TaskGraphJob,
    TaskGraphTransfer,
)

GPU_TYPE = "gpu"
"""Type of the GPUs of a job that is planned alone."""


@dataclass(frozen=True)
class PipelineProblem:
    """A pipeline: stages, the GPU of each, and the micro-batches of an iteration.

    `layout`: GPUs of the stages and number of micro-batches. `memory`: bytes of a GPU; None for as much as all
    micro-batches take at once.
    """

    costs: PipelineCosts
    layout: PipelineLayout
    memory: int | None = None

    @property
    def kinds(self) -> str:
        """Kinds of passes of a micro-batch through a stage."""
        return "FBW" if self.layout.split else "FB"

    def duration_us(self, kind: str, stage: int) -> int:
        """Return the length of a pass in microseconds, at least 1."""
        # A block of no length would be none: documents state positive durations.
        return max(1, {"F": self.costs.forward_us, "B": self.costs.backward_us, "W": self.costs.weight_us}[kind][stage])

    @cached_property
    def work_us(self) -> tuple[int, ...]:
        """By GPU, the time of all passes of an iteration."""
        work = [0] * self.layout.gpus
        for stage, gpu in enumerate(self.layout.gpu_of):
            once = sum(self.duration_us(kind, stage) for kind in self.kinds)
            work[gpu] += self.layout.micro_batches * once
        return tuple(work)

    @cached_property
    def static(self) -> tuple[int, ...]:
        """By stage, bytes that it holds all the time."""
        return self._by_stage(self.costs.static_bytes)

    @cached_property
    def held(self) -> tuple[int, ...]:
        """By stage, bytes that a micro-batch holds from its forward pass on."""
        return self._by_stage(self.costs.activation_bytes)

    @cached_property
    def held_for_weights(self) -> tuple[int, ...]:
        """By stage, the part of these that is held up to the end of `W`."""
        return (self.costs.weight_bytes or self.held) if self.layout.split else self._by_stage(())

    @cached_property
    def again(self) -> tuple[int, ...]:
        """By stage, bytes that are computed again and held from the begin of the backward pass on."""
        return self._by_stage(self.costs.recomputed_bytes)

    @cached_property
    def sending(self) -> tuple[int, ...]:
        """By stage, how long sending to the next one takes where that is on another GPU; 0 for the last one."""
        return self._by_stage((*self.costs.transfer_us, 0) if self.costs.transfer_us else ())

    def _by_stage(self, amounts: tuple[int, ...]) -> tuple[int, ...]:
        return amounts or (0,) * self.layout.stages

    @cached_property
    def room(self) -> int:
        """Bytes of each GPU: the limit, or what suffices for any order."""
        if self.memory is not None:
            return self.memory
        columns = zip(self.static, self.held, self.again, strict=True)
        most = [always + self.layout.micro_batches * (held + again) for always, held, again in columns]
        return max(1, *by_gpu(self.layout, most))


def pipeline_instance(pipeline: PipelineProblem, name: str, horizon: Horizon) -> Instance:
    """Return the instance of a pipeline: a server with a GPU for each, and one task-graph job.

    A pass is a block called ``F3.0``: its kind, micro-batch and stage. Sending is a delay, since the server's fabric is
    nobody's alone. On the cyclic horizon the barrier is `slot`: a GPU begins the next iteration once it is done with
    this one (specification: edges-and-barrier).
    """
    shape = pipeline_task_graph(pipeline, GPU_TYPE, pipeline.costs.transfer_us)
    return alone_on_server(name, TaskGraphJob("pipeline", shape, 1), pipeline.layout.gpus, pipeline.room, horizon)


def alone_on_server(name: str, job: TaskGraphJob, gpus: int, memory: int, horizon: Horizon) -> Instance:
    """Return the instance of a job alone on a server whose fabric takes a microsecond for a byte."""
    cluster = Cluster((Server("server", GPU_TYPE, gpus, memory, 10**6, 0),))
    return Instance(name, cluster, {}, (job,), horizon, "period" if horizon == "cyclic" else "makespan")


def pipeline_task_graph(pipeline: PipelineProblem, gpu_type: str, sizes: Sequence[int]) -> TaskGraph:
    """Return what an iteration of a pipeline consists of.

    `sizes`: by stage but the last, bytes sent onward, and back; empty for nothing.
    """
    layout = pipeline.layout
    static = by_gpu(layout, pipeline.static)
    slots = tuple(Slot(f"gpu{gpu}", static[gpu]) for gpu in range(layout.gpus))
    slot_of = tuple(slots[gpu].name for gpu in layout.gpu_of)
    at = [(batch, stage) for batch in range(layout.micro_batches) for stage in range(layout.stages)]
    blocks = tuple(
        TaskGraphBlock(each.name, (slot_of[each.stage],), {gpu_type: pipeline.duration_us(each.kind, each.stage)})
        for each in layout.passes()
    )
    edges = [Edge(f"{one}{b}.{s}", f"{other}{b}.{s}") for b, s in at for one, other in pairwise(pipeline.kinds)]
    transfers, sending = sends(at, layout.stages, sizes, lambda _, stage: slot_of[stage])
    family = PipelineFamily(slot_of, layout.micro_batches, layout.split)
    holds = tuple(_holds(pipeline, at))
    return TaskGraph(slots, blocks, tuple(transfers), (*edges, *sending), "slot", holds, family)


def by_gpu(layout: PipelineLayout, by_stage: Sequence[int]) -> list[int]:
    """Sum what each stage has over the stages of a GPU.

    The sum for each GPU, in the same unit; 0 where nothing is stated.
    """
    total = [0] * layout.gpus
    for stage, amount in enumerate(by_stage):
        total[layout.gpu_of[stage]] += amount
    return total


def sends(
    at: Sequence[tuple[int, int]], stages: int, sizes: Sequence[int], slot_of: Callable[[int, int], str]
) -> tuple[list[TaskGraphTransfer], list[Edge]]:
    """Return outputs sent onward, gradients sent back, and what waits for them; nothing is sent within a slot.

    `at`: micro-batches and stages. `sizes`: by stage but the last, bytes sent onward, and back; empty for nothing.
    `slot_of`: the slot of a micro-batch in a stage.
    """
    transfers, edges = list[TaskGraphTransfer](), list[Edge]()
    for batch, stage in at:
        for kind, other in (("F", stage + 1), ("B", stage - 1)):
            if not 0 <= other < stages:
                continue
            # What is sent back is as large as what was sent there, and both count with the earlier stage.
            size = sizes[min(stage, other)] if sizes else 0
            before, after = f"{kind}{batch}.{stage}", f"{kind}{batch}.{other}"
            ends = slot_of(batch, stage), slot_of(batch, other)
            if size == 0 or ends[0] == ends[1]:
                edges.append(Edge(before, after))
                continue
            name = f"{before}-{other}"
            transfers.append(TaskGraphTransfer(name, size, *ends))
            edges += [Edge(before, name), Edge(name, after)]
    return transfers, edges


def _holds(pipeline: PipelineProblem, at: Sequence[tuple[int, int]]) -> list[MemoryInterval]:
    """Return what forward passes leave behind for backward ones."""
    holds = []
    for batch, stage in at:
        weights = pipeline.held_for_weights[stage]
        # One interval for each moment at which a part is freed.
        spans = (
            ("F", "B", pipeline.held[stage] - weights),
            ("F", "W", weights),
            ("B", pipeline.kinds[-1], pipeline.again[stage]),
        )
        holds += [
            MemoryInterval(f"{start}{batch}.{stage}", f"{end}{batch}.{stage}", amount)
            for start, end, amount in spans
            if amount
        ]
    return holds


def peak_bytes(pipeline: PipelineProblem, orders: Orders) -> tuple[int, ...]:
    """Return the most memory that orders of passes hold at once on each GPU."""
    static = by_gpu(pipeline.layout, pipeline.static)
    return tuple(max(held, default=always) for held, always in zip(held_bytes(pipeline, orders), static, strict=True))


def held_bytes(pipeline: PipelineProblem, orders: Orders) -> list[list[int]]:
    """Return the memory that is held during each pass of each GPU.

    Bytes by GPU and pass, with the static bytes of the GPU's stages.

    `orders`: by GPU, its passes in their order.
    """
    found = list[list[int]]()
    for held, order in zip(by_gpu(pipeline.layout, pipeline.static), orders, strict=True):
        found.append([])
        for pass_ in order:
            whole, again = pipeline.held[pass_.stage], pipeline.again[pass_.stage]
            weights = pipeline.held_for_weights[pass_.stage]
            # A pass has what it takes from its begin, and what it frees until its end: both count while it runs.
            held += {"F": whole, "B": again, "W": 0}[pass_.kind]
            found[-1].append(held)
            held -= {"F": 0, "B": whole - weights, "W": weights}[pass_.kind]
            held -= again if pass_.kind == pipeline.kinds[-1] else 0
    return found

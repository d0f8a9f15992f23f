"""Stages of a pipeline with their costs, and the instance that they make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import pairwise

from jigsaw_opt.arguments import require_fields
from jigsaw_opt.errors import Problem, UsageError
from jigsaw_opt.planning.pipeline.orders import PipelineLayout
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


@dataclass(frozen=True, slots=True)
class PipelineCosts:
    """Costs of the stages, first to last; times in microseconds.

    `forward_us, backward_us`: times of the passes of each stage. `weight_us`: by stage, the part of the backward pass
    for the gradient of the weights, which `backward_us` does not have then; empty where the backward pass is not split.
    `transfer_us`: by stage but the last, how long sending its output onward takes, and the gradient of it back.
    `transfer_bytes`: by stage but the last, the size of that output; empty where only the times are known.
    `static_bytes`: for each stage, what it holds all the time; empty for nothing. `activation_bytes`: by stage, what a
    micro-batch holds from its forward pass to the end of its last backward one; empty for nothing. `weight_bytes`: by
    stage, the part of these that is held for the gradient of the weights alone: up to its end, where the rest is held
    up to that of the input's; empty for all. `recomputed_bytes`: for each stage, what is computed again when its
    backward pass begins, and held besides up to the end of its last backward pass, at least a byte, and 0 where nothing
    is; the time for it is part of `backward_us`. Empty for nothing.
    """

    forward_us: tuple[int, ...]
    backward_us: tuple[int, ...]
    weight_us: tuple[int, ...] = ()
    transfer_us: tuple[int, ...] = ()
    transfer_bytes: tuple[int, ...] = ()
    static_bytes: tuple[int, ...] = ()
    activation_bytes: tuple[int, ...] = ()
    weight_bytes: tuple[int, ...] = ()
    recomputed_bytes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Refuse lists that do not fit together."""
        require_fields(self)
        count, wrong = len(self.forward_us), list[Problem]()
        for name in (each.name for each in fields(self)):
            wanted, there = count - name.startswith("transfer_"), len(getattr(self, name))
            if there not in (0, wanted):
                told = f"{name} has {there} values; {count} stages have {wanted}"
                wrong.append(Problem(name, told, code="wrong-count"))
        if not self.backward_us:
            wrong.append(Problem("backward_us", "there is no backward pass", code="empty"))
        if self.weight_bytes and (not self.weight_us or not self.activation_bytes):
            told = "weight_bytes are a part of activation_bytes, where the backward pass is split"
            wrong.append(Problem("weight_bytes", told, code="missing-option"))
        elif any(part > whole for part, whole in zip(self.weight_bytes, self.activation_bytes, strict=False)):
            wrong.append(Problem("weight_bytes", "weight_bytes are more than activation_bytes", code="contradiction"))
        if wrong:
            raise UsageError.of(wrong)

    def first_whole(self) -> PipelineCosts:
        """Return the costs where the first stage has its whole backward pass in `W`, as PyTorch carries it out.

        Nobody waits for the gradient of that stage's input. What a profile measured of the first layer is without it.
        """
        if not self.weight_us:
            return self
        whole = self.backward_us[0] + self.weight_us[0]
        # A micro-batch is held up to the end of that pass.
        held = (*self.activation_bytes[:1], *self.weight_bytes[1:]) if self.weight_bytes else ()
        return replace(
            self, backward_us=(0, *self.backward_us[1:]), weight_us=(whole, *self.weight_us[1:]), weight_bytes=held
        )

    def combined(self) -> PipelineCosts:
        """Return the costs of backward passes that are not split: both gradients are there at their end."""
        whole = tuple(map(sum, zip(self.backward_us, self.weight_us, strict=True))) if self.weight_us else ()
        return replace(self, backward_us=whole or self.backward_us, weight_us=(), weight_bytes=())


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
    transfers, sending = _transfers(layout, at, sizes)
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


def _transfers(
    layout: PipelineLayout, at: Sequence[tuple[int, int]], sizes: Sequence[int]
) -> tuple[list[TaskGraphTransfer], list[Edge]]:
    """Return outputs sent onward, gradients sent back, and what waits for them."""
    transfers, edges = [], []
    last = layout.stages - 1
    for batch, stage in at:
        for kind, other in (("F", stage + 1), ("B", stage - 1)):
            if not 0 <= other <= last:
                continue
            # What is sent back is as large as what was sent there, and both count with the earlier stage.
            size = sizes[min(stage, other)] if sizes else 0
            slots = f"gpu{layout.gpu_of[stage]}", f"gpu{layout.gpu_of[other]}"
            added = sent(kind, batch, stage, other, size, slots)
            transfers += added[0]
            edges += added[1]
    return transfers, edges


def sent(
    kind: str, batch: int, stage: int, other: int, size: int, slots: tuple[str, str]
) -> tuple[list[TaskGraphTransfer], list[Edge]]:
    """Return what goes from one stage to another, and what waits for it; nothing is sent within a slot."""
    before, after = f"{kind}{batch}.{stage}", f"{kind}{batch}.{other}"
    if size == 0 or slots[0] == slots[1]:
        return [], [Edge(before, after)]
    name = f"{before}-{other}"
    return [TaskGraphTransfer(name, size, *slots)], [Edge(before, name), Edge(name, after)]


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

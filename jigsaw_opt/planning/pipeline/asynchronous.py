"""PipeDream's steady state: minibatches follow one another without a flush, copies of a stage take them in turn.

Every minibatch repeats the same building block, an initiation interval later than the one before (Narayanan et al.,
SOSP'19, sections 3.2 and 3.3). A copy of a stage with `r` of them sees each `r`-th minibatch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import lcm

from jigsaw_opt.errors import InfeasibleError
from jigsaw_opt.planning.pipeline.costs import AsyncStage
from jigsaw_opt.planning.pipeline.schedule import plan_of_starts
from jigsaw_opt.planning.pipeline.stages import GPU_TYPE, alone_on_server, sends
from jigsaw_opt.planning.planned import Planned
from jigsaw_opt.problem.costs import ceil_div
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.task_graph import (
    AsynchronousFamily,
    Edge,
    MemoryInterval,
    Slot,
    TaskGraph,
    TaskGraphBlock,
    TaskGraphJob,
)


@dataclass(frozen=True, slots=True)
class AsyncSchedule:
    """The steady state; a period has as many minibatches as it takes for all copies to have had equally many.

    `stages`: what was scheduled. `initiation_interval_us`: microseconds from one minibatch to the next. `latency_us`:
    microseconds from the begin of a minibatch to its end. `noam`: minibatches under way in the paper: workers over
    copies of the first stage, rounded up, for each of these. `in_flight`: minibatches that are under way at once, at
    most. `weight_versions`: for each stage, versions of the weights that each copy keeps. `peak_bytes`: for each stage,
    what a copy holds at most.
    """

    stages: tuple[AsyncStage, ...]
    minibatches: int
    initiation_interval_us: int
    latency_us: int
    noam: int
    in_flight: int
    weight_versions: tuple[int, ...]
    peak_bytes: tuple[int, ...]

    @property
    def bubble(self) -> float:
        """Share of the time that GPUs are idle, on average."""
        work = sum(stage.forward_us + stage.backward_us for stage in self.stages)
        return 1 - work / (sum(stage.replicas for stage in self.stages) * self.initiation_interval_us)


def asynchronous(stages: Sequence[AsyncStage], name: str, memory: int | None = None) -> Planned[AsyncSchedule]:
    """Return the steady state of PipeDream for some stages: the schedule with the interval of the slowest stage.

    As many minibatches are under way as it takes, and at least the paper's NOAM for each copy of the first stage.

    `memory`: bytes of a GPU; None for as much as it takes.
    """
    workers, first = sum(stage.replicas for stage in stages), stages[0].replicas
    noam = ceil_div(workers, first) * first
    # No interval is below this: each copy takes both passes of every minibatch that is its turn.
    interval = max(ceil_div(stage.forward_us + stage.backward_us, stage.replicas) for stage in stages)
    starts = _building_block(stages, interval)
    latency = starts[-1][0] + stages[0].backward_us
    allowed = max(noam, ceil_div(latency, interval))
    # A copy takes a minibatch every `replicas` intervals, and keeps its weights and activations from the begin of the
    # forward pass to the end of the backward pass: so many minibatches at once.
    versions = tuple(
        ceil_div(back + stage.backward_us - there, stage.replicas * interval)
        for stage, (there, back) in zip(stages, _by_stage(starts, len(stages)), strict=True)
    )
    peak = tuple(
        count * (stage.parameter_bytes + stage.activation_bytes) + stage.state_bytes
        for count, stage in zip(versions, stages, strict=True)
    )
    room = max(1, *peak) if memory is None else memory
    if max(peak) > room:
        raise InfeasibleError(f"stage {peak.index(max(peak))} holds {max(peak)} bytes on a GPU, which has {room}")
    # After so many minibatches each stage is at its first copy again: the least number that repeats as a whole.
    count = lcm(*(stage.replicas for stage in stages))
    instance = _instance(stages, name, count, allowed, versions, room)
    details = AsyncSchedule(tuple(stages), count, interval, latency, noam, allowed, versions, peak)
    return plan_of_starts(instance, _by_name(details, starts), count * interval, "async", details)


Starts = list[tuple[int, int]]
"""Start and stage of each pass of a minibatch: forward through all stages, then back."""


def _building_block(stages: Sequence[AsyncStage], interval: int) -> Starts:
    """Return the earliest starts of one minibatch's passes that do not collide with others, each an interval later."""
    forward: Starts = []
    ready = 0
    for number, stage in enumerate(stages):
        forward.append((ready, number))
        ready += stage.forward_us + stage.transfer_us
    backward: Starts = []
    ready -= stages[-1].transfer_us
    for number in reversed(range(len(stages))):
        stage, begin = stages[number], forward[number][0]
        turn = stage.replicas * interval
        # On its copy, the backward pass lies between the end of a forward pass and the next forward pass.
        # The copy begins a forward pass each turn. This counts the turns from the minibatch's own to the one that the
        # last microsecond of its backward pass would fall into.
        turns = (ready - begin + stage.backward_us - 1) // turn
        ready = max(ready, begin + turns * turn + stage.forward_us)
        backward.append((ready, number))
        ready += stage.backward_us + (stages[number - 1].transfer_us if number else 0)
    return [*forward, *backward]


def _by_stage(starts: Starts, count: int) -> list[tuple[int, int]]:
    """Return for each stage the starts of its forward and its backward pass."""
    return [(there, back) for (there, _), (back, _) in zip(starts[:count], reversed(starts[count:]), strict=True)]


def _instance(
    stages: Sequence[AsyncStage], name: str, count: int, allowed: int, versions: Sequence[int], memory: int
) -> Instance:
    """Return the instance; one iteration has as many minibatches as copies take turns, a new one after an old one."""
    slots = [
        Slot(f"stage{number}.{copy}", versions[number] * stage.parameter_bytes + stage.state_bytes)
        for number, stage in enumerate(stages)
        for copy in range(stage.replicas)
    ]
    at, last = [*product(range(count), range(len(stages)))], len(stages) - 1
    blocks = tuple(
        TaskGraphBlock(f"{kind}{batch}.{number}", (_slot(stages, number, batch),), {GPU_TYPE: length})
        for batch, number in at
        for kind, length in (("F", stages[number].forward_us), ("B", stages[number].backward_us))
    )
    holds = tuple(
        MemoryInterval(f"F{batch}.{number}", f"B{batch}.{number}", stages[number].activation_bytes)
        for batch, number in at
        if stages[number].activation_bytes
    )
    sizes = [stage.transfer_us for stage in stages]
    transfers, edges = sends(at, len(stages), sizes, lambda batch, number: _slot(stages, number, batch))
    for batch in range(count):
        edges.append(Edge(f"F{batch}.{last}", f"B{batch}.{last}"))
        # Minibatch `batch + allowed` begins when this one has ended; it is in iteration `lag` from this one.
        lag, later = divmod(batch + allowed, count)
        edges.append(Edge(f"B{batch}.0", f"F{later}.0", lag))
    copies = tuple(
        tuple(_slot(stages, number, copy) for copy in range(stage.replicas)) for number, stage in enumerate(stages)
    )
    family = AsynchronousFamily(copies, allowed)
    shape = TaskGraph(tuple(slots), blocks, tuple(transfers), tuple(edges), "none", holds, family)
    return alone_on_server(name, TaskGraphJob("pipeline", shape, 1), len(slots), memory, "cyclic")


def _slot(stages: Sequence[AsyncStage], number: int, batch: int) -> str:
    return f"stage{number}.{batch % stages[number].replicas}"


def _by_name(details: AsyncSchedule, starts: Starts) -> dict[str, int]:
    """Return the start of each operation: the building block of each minibatch, an interval after the one before."""
    at, stages = dict[str, int](), details.stages
    for batch in range(details.minibatches):
        later = batch * details.initiation_interval_us
        for place, (start, number) in enumerate(starts):
            kind = "F" if place < len(stages) else "B"
            length = stages[number].forward_us if kind == "F" else stages[number].backward_us
            at[f"{kind}{batch}.{number}"] = start + later
            # Both neighbours get a message; the names of operations select those that there are.
            for other in (number - 1, number + 1):
                at[f"{kind}{batch}.{number}-{other}"] = start + length + later
    return at

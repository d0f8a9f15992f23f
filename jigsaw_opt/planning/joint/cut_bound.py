"""What no schedule of one cut beats: loads of devices with the ways there and back, and what memory holds at once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from jigsaw_opt.planning.joint.stage_table import StageTable
from jigsaw_opt.planning.pipeline.stages import PipelineProblem

NEVER = 2**60
"""More than any time, and small enough to be added to itself."""


def work_bound_us(table: StageTable) -> int:
    """Return what no cut of a configuration is below, at once: the work of a step in equal parts on all devices."""
    layout, whole = table.configuration.layout, (0, -1)
    passes = table.backward_us + table.weight_us + table.forward_us * (1 + min(table.configuration.modes))
    return -(-layout.micro_batches * int(passes[whole]) // layout.gpus)


def cut_bound_us(pipeline: PipelineProblem) -> int:
    """Return a lower bound of the makespan of a pipeline in microseconds; `NEVER` where its memory does not suffice.

    The stages of a device from some stage on take their work, one pass after the other. Before it comes the way of a
    micro-batch to the first of them, and behind it the way back (Carlier, *The one-machine sequencing problem*,
    European Journal of Operational Research 11, 1982). Before its first backward pass a device does no more forward
    passes than its memory holds, and what it holds over time is no more than its memory has in that time.
    """
    ways = _Ways(pipeline)
    bounds = [ways.there[-1] + ways.back[-1]]
    for gpu in range(pipeline.layout.gpus):
        stages = [stage for stage, at in enumerate(pipeline.layout.gpu_of) if at == gpu]
        bounds += [ways.load_us(stages[at:]) for at in range(len(stages))]
        bounds.append(_memory_us(pipeline, ways, stages))
    return max(bounds)


class _Ways:
    """Ways of a micro-batch through the stages of a pipeline.

    `there, back`: by stage and behind the last one, the forward passes before it and sending up to it; and the backward
    passes before it and sending from it on. `tail`: by stage, what comes at least behind its last backward pass
    elsewhere: the way back, and passes for weights.
    """

    def __init__(self, pipeline: PipelineProblem) -> None:
        layout = pipeline.layout
        self.count, self.stages = layout.micro_batches, range(layout.stages)
        sending = [
            pipeline.sending[stage] if layout.gpu_of[stage] != layout.gpu_of[stage + 1] else 0
            for stage in self.stages[:-1]
        ]
        self.forward, self.backward = ([pipeline.duration_us(kind, s) for s in self.stages] for kind in ("F", "B"))
        self.weights = [pipeline.duration_us("W", s) if layout.split else 0 for s in self.stages]
        self.there = self._ways(self.forward, sending)
        self.back = self._ways(self.backward, sending)
        self.tail = [0]
        # Behind the last backward pass of the next stage, this one still has its own backward pass. Then comes the
        # longer of its weights and what is left of the way.
        for backward, weights, sent in zip(self.backward, self.weights, sending, strict=False):
            self.tail.append(sent + backward + max(self.tail[-1], weights))

    def load_us(self, stages: Sequence[int]) -> int:
        """Work of some stages of a device, with the ways to the first of them and back."""
        first = stages[0]
        passes = self.count * sum(self.forward[stage] + self.backward[stage] for stage in stages)
        weights = self.count * sum(self.weights[stage] for stage in stages)
        return self.there[first] + passes + max(self.tail[first], weights)

    def trip_us(self, stage: int) -> int:
        """Return the time from the forward pass of a stage to the end of its backward pass."""
        return self.there[-1] - self.there[stage] + self.back[-1] - self.back[stage]

    def _ways(self, passes: Sequence[int], sending: Sequence[int]) -> list[int]:
        steps = [time + sent for time, sent in zip(passes, (*sending, 0), strict=True)]
        return [0, *accumulate(steps)]


def _memory_us(pipeline: PipelineProblem, ways: _Ways, stages: Sequence[int]) -> int:
    """Return what the memory of a device asks for."""
    count, held, again = pipeline.layout.micro_batches, pipeline.held, pipeline.again
    room = pipeline.room - sum(pipeline.static[stage] for stage in stages)
    # When a micro-batch turns, it is held in all stages of the device up to the one that it is in.
    needed = [sum(held[other] for other in stages if other <= stage) + again[stage] for stage in stages]
    if max(needed) > room:
        return NEVER
    first, last = stages[0], stages[-1]
    around = ways.there[first] + ways.tail[first]
    # When the first backward pass of the device may start: that of its last stage.
    begin = ways.there[-1] + ways.back[-1] - ways.back[last] - ways.backward[last]
    done = _most_us([(held[stage], ways.forward[stage]) for stage in stages], room - again[last], count)
    left = count * sum(ways.forward[stage] + ways.backward[stage] for stage in stages) - done
    # All passes for weights come behind it as well.
    bound = begin + left + max(ways.tail[first], count * sum(ways.weights[stage] for stage in stages))
    # Bytes times time: each micro-batch holds its bytes in a stage for one round trip from there.
    taken = sum(held[stage] * ways.trip_us(stage) for stage in stages)
    bound = max(bound, around + (-(-count * taken // room) if taken else 0))
    if len(stages) == 1 and held[first]:
        # Places in memory are whole, so one of them is taken at least so often.
        turns = -(-count // ((room - again[first]) // held[first]))
        # A place is held up to the end of the pass for weights where all of it is.
        longer = 0 if pipeline.costs.weight_bytes else (turns - 1) * ways.weights[first]
        taken = ways.there[first] + turns * ways.trip_us(first) + longer
        return max(bound, taken + max(ways.tail[first], ways.weights[first]))
    return bound


def _most_us(passes: Sequence[tuple[int, int]], room: int, count: int) -> int:
    """Return the most time of passes, `count` of each kind, whose bytes fit; parts of a pass are rounded up."""
    time = 0
    # The fractional knapsack: least bytes for its time first. This is at least what whole passes reach.
    for size, length in sorted(passes, key=lambda run: run[0] / run[1]):
        if size == 0 or room >= count * size:
            time, room = time + count * length, room - count * size
        else:
            whole = len(passes) == 1  # Alone, no part of a pass is taken.
            return time + (room // size * length if whole else -(-room * length // size))
    return time

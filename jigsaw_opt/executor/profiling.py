"""Measured profiles: time and memory of a model's segments and levels, and the model of an instance that they make.

What a plan needs is how long a block at each level lasts, so blocks are timed as a worker runs them, with the
optimiser's step and the drawing of the batch, and the model's times add up to them (specification: block):
``backward_us`` of a segment is what a block takes longer when its level takes the segment in, and ``forward_us`` is
the rest. Segments are also timed one by one, with a pause at every boundary: that shares out the shallowest
block, and shows where time goes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor

from jigsaw_opt.executor.fitting import isotonic
from jigsaw_opt.executor.memory import saved_bytes
from jigsaw_opt.executor.segments import frozen
from jigsaw_opt.executor.timing import Spread, spread, work_us
from jigsaw_opt.executor.worker import Worker
from jigsaw_opt.problem.costs import ceil_div
from jigsaw_opt.problem.model import Model, Segment

__all__ = ["LevelProfile", "ModelProfile", "SegmentProfile", "profile"]

_Times = list[list[float]]
"""A row a round."""


@dataclass(frozen=True, slots=True)
class SegmentProfile:
    """What one segment costs.

    Parameters
    ----------
    name
        As in an instance.
    forward
        Without a graph.
    backward
        Backward pass, and what the graph adds to the forward pass.
    step_us
        Its share of the optimiser's step, by parameters.
    parameter_bytes, activation_bytes
        As in an instance.
    """

    name: str
    forward: Spread
    backward: Spread
    step_us: float
    parameter_bytes: int
    activation_bytes: int


@dataclass(frozen=True, slots=True)
class LevelProfile:
    """What a block at one level costs.

    Parameters
    ----------
    level
        From 1.
    block
        Its time.
    memory_bytes
        On CUDA the most that was allocated at once beyond what the worker holds between blocks; on a CPU the bytes
        saved for the backward pass.
    """

    level: int
    block: Spread
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class ModelProfile:
    """A measured model.

    Parameters
    ----------
    segments
        From the input to the output.
    levels
        Level ``d`` takes in the last ``d`` segments.
    state_bytes
        Weights, gradients and optimiser state, which a worker holds between blocks.
    """

    segments: tuple[SegmentProfile, ...]
    levels: tuple[LevelProfile, ...]
    state_bytes: int

    @property
    def parts_us(self) -> tuple[float, ...]:
        """By level, what the segments take one by one: steps, forward passes, and backward passes of the suffix."""
        ahead = sum(s.step_us + s.forward.median for s in self.segments)
        return tuple(ahead + back for back in accumulate(s.backward.median for s in reversed(self.segments)))

    def model(self, gpu_type: str, executor: Mapping[str, Any]) -> Model:
        """The model for an instance, whose blocks last as measured.

        Parameters
        ----------
        gpu_type
            What to call the device.
        executor
            How the model was built.
        """
        segments = tuple(
            Segment(s.name, {gpu_type: forward}, {gpu_type: backward}, s.parameter_bytes, s.activation_bytes)
            for s, forward, backward in zip(self.segments, *self._times(), strict=True)
        )
        parameters = max(1, sum(s.parameter_bytes for s in self.segments))
        return Model(segments, state_factor=max(1, ceil_div(self.state_bytes, parameters)), executor=executor)

    def _times(self) -> tuple[list[int], list[int]]:
        """Integer times ``forward_us`` and ``backward_us`` of the segments."""
        # A deeper block is never faster; where noise says so, both count as equal.
        blocks = [max(1, round(us)) for us in isotonic([level.block.median for level in self.levels])]
        last = min(round(self.segments[-1].backward.median), blocks[0] - 1)
        backward = [last, *(deep - shallow for shallow, deep in pairwise(blocks))]
        return _shared_out(blocks[0] - last, [s.step_us + s.forward.median for s in self.segments]), backward[::-1]


def _shared_out(total: int, shares: Sequence[float]) -> list[int]:
    """`total` in integers, in the proportion of `shares`."""
    done = [round(total * part / sum(shares)) for part in accumulate(shares, initial=0.0)]
    return [high - low for low, high in pairwise(done)]


def profile(worker: Worker, warm_up: int, repeats: int) -> ModelProfile:
    """Measure the model of `worker` on its device.

    Parameters
    ----------
    worker
        It trains on meanwhile; all segments must be levels.
    warm_up, repeats
        Rounds before measuring, at least 1, and rounds measured, at least 1. A round is two passes over the
        segments one by one and one block at each level, so that a slow moment falls on all of them.
    """
    segments: _Times = []
    levels: _Times = []
    steps: list[float] = []
    for turn in range(warm_up + repeats):
        segment_times = _segment_pass(worker)
        block_times = [_step_and_block(worker, level) for level in range(1, worker.model.depth + 1)]
        if turn >= warm_up:
            segments.append(segment_times)
            levels.append([step + rest for step, rest in block_times])
            steps.extend(step for step, _ in block_times)
    return ModelProfile(
        _segment_profiles(worker, segments, spread(steps).median),
        tuple(
            LevelProfile(level, spread(times), _block_memory(worker, level))
            for level, times in enumerate(zip(*levels, strict=True), 1)
        ),
        _state_bytes(worker),
    )


def _segment_profiles(worker: Worker, rounds: _Times, step_us: float) -> tuple[SegmentProfile, ...]:
    columns = [spread(column) for column in zip(*rounds, strict=True)]
    count = len(columns) // 2
    sizes = [sum(p.nbytes for p in own) for own in worker.model.own_parameters()]
    saved = saved_bytes(worker.model, _batch(worker), worker.model.depth)
    steps = [step_us * size / max(1, sum(sizes)) for size in sizes]
    rows = zip(worker.model.names, columns[:count], columns[count:], steps, sizes, saved, strict=True)
    return tuple(SegmentProfile(*row) for row in rows)


def _segment_pass(worker: Worker) -> list[float]:
    """Times with a pause at every boundary: forward pass of each segment, then what its backward pass adds."""
    plain, _ = _forward_times(worker, graph=False)
    forward, ends = _forward_times(worker, graph=True)
    backward = _backward_times(ends, worker.device)
    return plain + [max(0.0, f + b - p) for p, f, b in zip(plain, forward, backward, strict=True)]


_Ends = list[tuple[Tensor, Tensor]]
"""Input and output of each segment."""


def _forward_times(worker: Worker, graph: bool) -> tuple[list[float], _Ends]:
    """Time of each segment; one that borrows a parameter leaves it out, as at any level but the owner's."""
    model, (values, targets) = worker.model, _batch(worker)
    ends: _Ends = []
    times = [work_us(worker.device)]
    for index, segment in enumerate(model.segments):
        with torch.set_grad_enabled(graph), frozen(model.borrowed[index]):
            start = values.detach().requires_grad_(graph and index > 0)
            values = segment(start)
            if index == len(model.segments) - 1:
                values = model.loss(values, targets)
        if graph:
            ends.append((start, values))
        times.append(work_us(worker.device))
    return [high - low for low, high in pairwise(times)], ends


def _backward_times(ends: _Ends, device: torch.device) -> list[float]:
    gradient: Tensor | None = None
    times = [work_us(device)]
    for start, end in reversed(ends):
        if end.requires_grad:
            torch.autograd.backward(end, gradient)
        gradient = start.grad
        times.append(work_us(device))
    return [high - low for low, high in pairwise(times)][::-1]


def _step_and_block(worker: Worker, level: int) -> tuple[float, float]:
    """Time of the step with the gradients of the block before, and of the rest of the next block."""
    start = work_us(worker.device)
    worker.step()
    middle = work_us(worker.device)
    worker.block(level, _nobody)
    return middle - start, work_us(worker.device) - middle


def _block_memory(worker: Worker, level: int) -> int:
    if worker.device.type != "cuda":
        return sum(saved_bytes(worker.model, _batch(worker), level))
    torch.cuda.synchronize(worker.device)
    torch.cuda.reset_peak_memory_stats(worker.device)
    before = torch.cuda.memory_allocated(worker.device)
    worker.block(level, _nobody)
    return torch.cuda.max_memory_allocated(worker.device) - before


def _state_bytes(worker: Worker) -> int:
    """Weights, gradients and state of the optimiser, without its counters of steps."""
    held = [p for own in worker.model.own_parameters() for p in own]
    state = [t for p in held for t in worker.optimiser.state[p].values() if isinstance(t, Tensor) and t.dim()]
    return sum(t.nbytes for t in (*held, *worker.buckets.buffers, *state))


def _batch(worker: Worker) -> tuple[Tensor, Tensor]:
    inputs, targets = worker.replica.batch(worker.recipe.seed, worker.number, worker.iteration)
    return inputs.to(worker.device), targets.to(worker.device)


def _nobody(_: int) -> None:
    """Take an announcement; nothing is exchanged while measuring."""

"""Measured profiles: time and memory of a model's segments and levels, and the model of an instance that they make.

What a plan needs is how long a block at each level lasts, so blocks are timed as a worker runs them, with the
optimiser's step and the drawing of the batch, and the model's times add up to them (specification: block):
``backward_us`` of a segment is what a block takes longer when its level takes the segment in, and ``forward_us`` is
the rest. Segments are also timed one by one, with a pause at every boundary: that shares out the shallowest
block, and shows where time goes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from jigsaw_opt.executor.fitting import isotonic
from jigsaw_opt.executor.memory import saved_bytes
from jigsaw_opt.executor.segments import frozen
from jigsaw_opt.executor.timing import Spread, spread, work_us
from jigsaw_opt.executor.worker import Worker
from jigsaw_opt.executor.zoo.network import tensors
from jigsaw_opt.problem.costs import ceil_div
from jigsaw_opt.problem.model import Model, Segment

__all__ = ["LevelProfile", "ModelProfile", "SegmentProfile", "profile"]

_RATES = (1e-2, 1e-3, 1e-4)
_STEPS = 5
_DENORMAL = 1e-40
"""In single precision."""
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
        Weights and buffers, gradients and optimiser state, which a worker holds between blocks.
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
        trained = max(1, sum(s.parameter_bytes for s in self.segments))
        # A hundredth is left aside: buffers of normalisation are no reason to count all parameters once more.
        factor = ceil_div(100 * self.state_bytes, 101 * trained)
        return Model(segments, state_factor=max(1, factor), executor=executor)

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
        It trains on meanwhile; all segments must be levels. Denormal numbers are flushed meanwhile: what is computed
        with them takes many times as long, and real training meets few.
    warm_up, repeats
        Rounds before measuring, at least 1, and rounds measured, at least 1. A round is two passes over the
        segments one by one and one block at each level, so that a slow moment falls on all of them.
    """
    with _flushed_denormals():
        return _profiled(worker, warm_up, repeats)


@contextmanager
def _flushed_denormals() -> Iterator[None]:
    """Flush denormal numbers in the block alone: other code of the process may need them."""
    kept = (torch.tensor(_DENORMAL) * 1).item() > 0
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(not kept)


def _profiled(worker: Worker, warm_up: int, repeats: int) -> ModelProfile:
    _leave_initial_point(worker)
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
        worker.held_bytes(),
    )


def _leave_initial_point(worker: Worker) -> None:
    """Train a few steps, as the initial point is often special: layers of zeros, and an optimiser without a past.

    Rates at which the loss is soon no number are passed over. What follows trains at the worker's own rate.
    """
    initial, own = worker.state(), [group["lr"] for group in worker.optimiser.param_groups]
    for rate in _RATES:
        for group in worker.optimiser.param_groups:
            group["lr"] = rate
        losses = [float(worker.block(worker.model.depth, _nobody)) for _ in range(_STEPS)]
        worker.step()
        if all(map(isfinite, losses)):
            break
        worker.load(initial)
    for group, rate in zip(worker.optimiser.param_groups, own, strict=True):
        group["lr"] = rate


def _segment_profiles(worker: Worker, rounds: _Times, step_us: float) -> tuple[SegmentProfile, ...]:
    columns = [spread(column) for column in zip(*rounds, strict=True)]
    count = len(columns) // 2
    sizes = [sum(p.nbytes for p in own) for own in worker.model.own_parameters()]
    saved = saved_bytes(worker.model, worker.batch(), worker.model.depth)
    steps = [step_us * size / max(1, sum(sizes)) for size in sizes]
    rows = zip(worker.model.names, columns[:count], columns[count:], steps, sizes, saved, strict=True)
    return tuple(SegmentProfile(*row) for row in rows)


def _segment_pass(worker: Worker) -> list[float]:
    """Times with a pause at every boundary: forward pass of each segment, then what its backward pass adds."""
    plain, _, _ = _forward_times(worker, graph=False)
    forward, ends, loss = _forward_times(worker, graph=True)
    backward = _backward_times(ends, loss, worker.device)
    return plain + [max(0.0, f + b - p) for p, f, b in zip(plain, forward, backward, strict=True)]


_Ends = list[list[float]]
"""At each boundary between segments, when a gradient of what passes there was complete, as the backward pass goes."""


def _forward_times(worker: Worker, graph: bool) -> tuple[list[float], _Ends, Tensor]:
    """Time of each segment; one that borrows a parameter leaves it out, as at any level but the owner's."""
    model, device, (values, targets) = worker.model, worker.device, worker.batch()
    ends: _Ends = []
    last = len(model.segments) - 1
    times = [work_us(device)]
    for index, segment in enumerate(model.segments):
        with torch.set_grad_enabled(graph), frozen(model.borrowed[index]):
            values = segment(values)
            if index == last:
                values = model.scalar_loss(values, targets)
        times.append(work_us(device))
        if graph and index < last:
            ends.append([])
            _note_gradients(values, ends[-1], device)
    return [high - low for low, high in pairwise(times)], ends, values


def _note_gradients(tree: Any, moments: list[float], device: torch.device) -> None:
    """Have `moments` receive the time when the gradient of each tensor in `tree` is complete.

    The graph stays in one piece, so a segment may change its input in place, as it may in training.
    """

    def note(_: Tensor) -> None:
        moments.append(work_us(device))

    for tensor in tensors(tree):
        if tensor.requires_grad:
            tensor.register_hook(note)  # type: ignore[no-untyped-call]


def _backward_times(ends: _Ends, loss: Tensor, device: torch.device) -> list[float]:
    """Time of each segment; 0 where the backward pass does not come."""
    moments = [work_us(device)]
    if loss.requires_grad:
        loss.backward()  # type: ignore[no-untyped-call]
    end = work_us(device)
    for moment in reversed(ends):
        moments.append(max(moment, default=end))
    return [max(0.0, high - low) for low, high in pairwise([*moments, end])][::-1]


def _step_and_block(worker: Worker, level: int) -> tuple[float, float]:
    """Time of the step with the gradients of the block before, and of the rest of the next block."""
    start = work_us(worker.device)
    worker.step()
    middle = work_us(worker.device)
    worker.block(level, _nobody)
    return middle - start, work_us(worker.device) - middle


def _block_memory(worker: Worker, level: int) -> int:
    if worker.device.type != "cuda":
        return sum(saved_bytes(worker.model, worker.batch(), level))
    torch.cuda.synchronize(worker.device)
    torch.cuda.reset_peak_memory_stats(worker.device)
    before = torch.cuda.memory_allocated(worker.device)
    worker.block(level, _nobody)
    return torch.cuda.max_memory_allocated(worker.device) - before


def _nobody(_: int) -> None:
    """Take an announcement; nothing is exchanged while measuring."""

"""Rounds of measuring, in which every level and every segment has its turn, so that a slow moment falls on all."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import isfinite

import torch

from jigsaw_opt.executor.device_times import spread
from jigsaw_opt.executor.leveled_model import frozen
from jigsaw_opt.executor.partial.outputs import tensors
from jigsaw_opt.executor.profiling.boundaries import boundaries
from jigsaw_opt.executor.profiling.results import LevelProfile, ModelProfile, SegmentProfile, is_wide
from jigsaw_opt.executor.profiling.segment_times import segment_times
from jigsaw_opt.executor.profiling.trainee import Trainee, Training
from jigsaw_opt.executor.saved_tensors import saved_by_segment

__all__ = ["LONGEST", "flushed_denormals", "measure", "warm"]

_LOGGER = logging.getLogger(__name__)
LONGEST = 3
"""How many times as many rounds as asked for are measured, at most, where the times differ much."""
_RATES = (1e-2, 1e-3, 1e-4)
_STEPS = 5
_RISE = 10
_DENORMAL = 1e-40
"""A denormal number in single precision."""


@contextmanager
def flushed_denormals() -> Iterator[None]:
    """Flush denormal numbers in the block alone: other code of the process may need them.

    What is computed with them takes many times as long, and real training meets few.
    """
    kept = (torch.tensor(_DENORMAL) * 1).item() > 0
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(not kept)


def warm(trainee: Trainee, reset: Callable[[], None]) -> None:
    """Train a few steps, as the initial point is often special: layers of zeros, and an optimiser without a past.

    Rates at which the loss soon is no number, or rises a lot, are passed over. What follows trains at the optimiser's
    own rate.
    """
    groups = trainee.optimiser.param_groups
    own = [group["lr"] for group in groups]
    for rate in _RATES:
        training = Training(trainee)
        for group in groups:
            group["lr"] = rate
        for _ in range(_STEPS):
            training.block(trainee.depth)
        training.step()
        losses = training.losses()
        if all(map(isfinite, losses)) and max(losses) <= _RISE * abs(losses[0]):
            break
        reset()
    for group, before in zip(groups, own, strict=True):
        group["lr"] = before


def measure(trainee: Trainee, warm_up: int, repeats: int, most: int, gpu_type: str) -> ModelProfile:
    """Measure a model where it is; it trains on meanwhile.

    Times in microseconds and bytes of each segment and each level.

    `warm_up, repeats`: rounds before measuring, at least 1, and rounds measured, at least 1. A round is the passes over
    the segments one by one and one block at each level. `most`: rounds measured at most, where the times of blocks
    differ much; at least `repeats`.
    """
    training, depth = Training(trainee), trainee.depth
    segments: list[list[float]] = []
    levels: list[list[float]] = []
    steps: list[float] = []
    training.block(depth)
    for turn in range(warm_up + most):
        if len(levels) >= repeats and not any(is_wide(spread(times)) for times in zip(*levels, strict=True)):
            break
        training.round = turn
        _LOGGER.info("round %d of %d", turn + 1, warm_up + (repeats if turn < warm_up + repeats else most))
        segment_row = segment_times(trainee, turn)
        blocks = [training.block(level) for level in range(1, depth + 1)]
        training.require_numbers()
        if turn >= warm_up:
            segments.append(segment_row)
            levels.append([step + rest for step, rest in blocks])
            steps.extend(step for step, _ in blocks)
    training.step()
    return ModelProfile(
        _segment_profiles(trainee, segments, spread(steps).median),
        tuple(
            LevelProfile(level, spread(times), _block_memory(training, level))
            for level, times in enumerate(zip(*levels, strict=True), 1)
        ),
        trainee.state_bytes(),
        gpu_type,
        input_bytes=sum(value.nbytes for value in tensors(trainee.draw(0)[0])),
    )


def _segment_profiles(trainee: Trainee, rounds: list[list[float]], step_us: float) -> tuple[SegmentProfile, ...]:
    columns = [spread(column) for column in zip(*rounds, strict=True)]
    depth = trainee.depth
    sizes = [sum(p.nbytes for p in own) for own in trainee.own_parameters()]
    steps = [step_us * size / max(1, sum(sizes)) for size in sizes]
    times = (columns[at * depth : (at + 1) * depth] for at in range(4))
    found = boundaries(trainee)
    sent = (*found.sent_bytes, None)
    rows = zip(trainee.names, *times, steps, sizes, _saved(trainee, depth), sent, found.modules, strict=True)
    return tuple(SegmentProfile(*row) for row in rows)


def _saved(trainee: Trainee, level: int) -> tuple[int, ...]:
    """Return bytes that a block at `level` saves for its backward pass, by segment."""
    batch = trainee.draw(0)

    def forward(enter: Callable[[int], None]) -> torch.Tensor:
        with trainee.entering(lambda index, _: enter(index)), frozen(trainee.parts.beyond(level)):
            return trainee.loss(batch)

    with torch.compiler.set_stance("force_eager"):
        return saved_by_segment(forward, trainee.held.parameters(), trainee.depth)


def _block_memory(training: Training, level: int) -> int:
    device = training.trainee.device
    if device.type != "cuda":
        return sum(_saved(training.trainee, level))
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    training.pass_to(level, keep=True)
    return torch.cuda.max_memory_allocated(device) - before

"""Durations, readiness, order, barrier and release (SPEC 4.3, section 3), and the wrap of section 5."""

from __future__ import annotations

from collections.abc import Sequence

from jigsaw_opt.checking.definitions import ModelTable, Path, exchange_us
from jigsaw_opt.checking.violation import Findings
from jigsaw_opt.problem.job import Job
from jigsaw_opt.problem.plan import Block, Iteration, JobPlan

__all__ = ["check_timing", "iteration_end"]


def iteration_end(iteration: Iteration) -> int:
    """Largest stated end in an iteration."""
    return max([block.end_us for block in iteration.blocks] + [t.end_us for t in iteration.transfers])


def check_timing(
    job: Job,
    table: ModelTable,
    durations: Sequence[tuple[int, ...]],
    network_path: Path | None,
    plan: JobPlan,
    period: int | None,
    path: str,
    found: Findings,
) -> None:
    """Check one job whose shape, levels and GPUs exist; `durations` are those of each worker by level."""
    barrier = job.release_us
    for number, iteration in enumerate(plan.iterations):
        where = f"{path}.iterations[{number}]"
        what = "the release" if number == 0 else "the end of the iteration before"
        _check_blocks(iteration.blocks, durations, barrier, what, where, found)
        if network_path is not None:
            _check_transfers(job, table, durations, network_path, iteration, where, found)
        barrier = iteration_end(iteration)
    if period is not None:
        first = min(block.start_us for block in plan.iterations[0].blocks)
        if first + period < barrier:
            found.add("5", path, f"it starts at {first} and ends at {barrier}, a span longer than the period {period}")


def _check_blocks(
    blocks: Sequence[Block], durations: Sequence[tuple[int, ...]], barrier: int, what: str, where: str, found: Findings
) -> None:
    for worker, block in enumerate(blocks):
        needed = durations[worker][block.level - 1]
        if block.end_us - block.start_us < needed:
            lasts = block.end_us - block.start_us
            found.add("4.3", f"{where}.blocks[{worker}]", f"lasts {lasts} us, at least {needed} needed")
        if block.start_us < barrier:
            found.add("4.3", f"{where}.blocks[{worker}]", f"starts at {block.start_us}, before {what} at {barrier}")


def _check_transfers(
    job: Job,
    table: ModelTable,
    durations: Sequence[tuple[int, ...]],
    network_path: Path,
    iteration: Iteration,
    where: str,
    found: Findings,
) -> None:
    before: int | None = None
    for transfer in iteration.transfers:
        b = transfer.bucket
        here = f"{where}.transfers[{b - 1}]"
        ready = [x.start_us + durations[worker][b - 1] for worker, x in enumerate(iteration.blocks) if x.level >= b]
        if ready:
            needed = exchange_us(table.buckets[b - 1], len(ready), job.workers, network_path)
            if transfer.end_us - transfer.start_us < needed:
                found.add("4.3", here, f"lasts {transfer.end_us - transfer.start_us} us, at least {needed} needed")
            if transfer.start_us < max(ready):
                found.add("4.3", here, f"starts at {transfer.start_us}, before bucket {b} is ready at {max(ready)}")
        if before is not None and transfer.start_us < before:
            found.add("4.3", here, f"starts at {transfer.start_us}, before transfer {b - 1} ends at {before}")
        before = transfer.end_us

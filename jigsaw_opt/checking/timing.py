"""Rules for the times of blocks and transfers (specification: duration, readiness, order, release, barrier, period)."""

from __future__ import annotations

from collections.abc import Iterator

from jigsaw_opt.checking.jobs import CheckedJob, iteration_end
from jigsaw_opt.checking.terms import transfer_duration
from jigsaw_opt.checking.violation import Rule, Violation
from jigsaw_opt.problem.plan import Iteration

__all__ = ["timing", "wrap"]


def timing(job: CheckedJob) -> Iterator[Violation]:
    """Check what one iteration asks of its own blocks and transfers, and of the next one's blocks."""
    rule: Rule = "release"
    earliest = job.job.release_us
    exchange_us: dict[tuple[int, int], int] = {}
    for path, iteration in job.iterations():
        yield from _starts(iteration, path, rule, earliest)
        yield from _lengths(job, iteration, path)
        if job.has_all_transfers(iteration):
            yield from _order(iteration, path)
            yield from _readiness(job, iteration, path)
            yield from _exchanges(job, iteration, path, exchange_us)
        rule, earliest = "barrier", iteration_end(iteration)


def wrap(job: CheckedJob, period_us: int) -> Iterator[Violation]:
    """Check the barrier between the last iteration and the first of the next period (specification: period)."""
    for path, iteration in job.iterations():
        lengths = [(f"{path}.blocks[{i}]", b.end_us - b.start_us) for i, b in enumerate(iteration.blocks)]
        lengths += [(f"{path}.transfers[{i}]", t.end_us - t.start_us) for i, t in enumerate(iteration.transfers)]
        for where, length in lengths:
            if length > period_us:
                yield Violation("period", where, f"lasts {length} us, longer than the period of {period_us} us")
    if job.plan.iterations and job.plan.iterations[0].blocks:
        start = min(block.start_us for block in job.plan.iterations[0].blocks)
        end = iteration_end(job.plan.iterations[-1])
        # All iterations of a period lie before the first of the next period.
        if start + period_us < end:
            message = f"ends at {end}, after its next period begins at {start + period_us}"
            yield Violation("period", job.path, message)


def _starts(iteration: Iteration, path: str, rule: Rule, earliest: int) -> Iterator[Violation]:
    moment = "the release of the job" if rule == "release" else "the end of the previous iteration"
    for worker, block in enumerate(iteration.blocks):
        if block.start_us < earliest:
            message = f"starts at {block.start_us}, before {moment} at {earliest}"
            yield Violation(rule, f"{path}.blocks[{worker}]", message)


def _lengths(job: CheckedJob, iteration: Iteration, path: str) -> Iterator[Violation]:
    for worker, block in enumerate(iteration.blocks):
        durations = job.durations[worker] if worker < len(job.durations) else None
        known = durations is not None and 1 <= block.level <= len(durations)
        least = durations[block.level - 1] if durations is not None and known else 0
        if block.end_us - block.start_us < least:
            message = f"lasts {block.end_us - block.start_us} us, but level {block.level} takes {least} us"
            yield Violation("duration", f"{path}.blocks[{worker}]", message)


def _order(iteration: Iteration, path: str) -> Iterator[Violation]:
    for before, transfer in zip(iteration.transfers, iteration.transfers[1:], strict=False):
        if transfer.start_us < before.end_us:
            where = f"{path}.transfers[{transfer.bucket - 1}]"
            message = (
                f"starts at {transfer.start_us}, before bucket {before.bucket} has been exchanged at {before.end_us}"
            )
            yield Violation("order", where, message)


def _readiness(job: CheckedJob, iteration: Iteration, path: str) -> Iterator[Violation]:
    workers = [
        (block.level, block.start_us, durations)
        for block, durations in zip(iteration.blocks, job.durations, strict=False)
        if durations is not None and 1 <= block.level <= len(durations)
    ]
    for index, transfer in enumerate(iteration.transfers):
        ready = max((start + durations[index] for level, start, durations in workers if level > index), default=0)
        if transfer.start_us < ready:
            message = f"starts at {transfer.start_us}, before bucket {transfer.bucket} is ready at {ready}"
            yield Violation("readiness", f"{path}.transfers[{index}]", message)


def _exchanges(
    job: CheckedJob, iteration: Iteration, path: str, exchange_us: dict[tuple[int, int], int]
) -> Iterator[Violation]:
    """Check durations of transfers; one without a contributor has none, and is the depth rule's matter."""
    levels, exchange = job.levels(iteration), job.exchange
    if levels is None or exchange is None:
        return
    for index, transfer in enumerate(iteration.transfers):
        contributors = sum(level > index for level in levels)
        # The duration depends on nothing else, and most iterations repeat the same few pairs.
        key = index, contributors
        if contributors and key not in exchange_us:
            payload = job.terms.bucket_bytes[index]
            exchange_us[key] = transfer_duration(
                payload, contributors, job.job.workers, exchange.rate, exchange.latency_us
            )
        least = exchange_us[key] if contributors else 0
        if transfer.end_us - transfer.start_us < least:
            length = transfer.end_us - transfer.start_us
            message = f"lasts {length} us, but bucket {transfer.bucket} from {contributors} workers takes {least} us"
            yield Violation("duration", f"{path}.transfers[{index}]", message)

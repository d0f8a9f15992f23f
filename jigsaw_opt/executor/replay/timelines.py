"""One timeline of what all processes did. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jigsaw_opt.executor.pipeline.step_times import StepTimes
from jigsaw_opt.executor.replay.records import BlockRecord, Part, TransferRecord
from jigsaw_opt.executor.replay.stopping_clock import StoppingClock
from jigsaw_opt.problem.measured_times import MeasuredBlock, MeasuredIteration, MeasuredJob, MeasuredStep, Timeline
from jigsaw_opt.problem.plan import JobPlan, Plan, Transfer

__all__ = ["timeline"]


def timeline(
    plan: Plan,
    parts: Sequence[Part],
    done: Sequence[int] | None,
    parameters: Mapping[tuple[int, int], str],
    stages: StepTimes | None = None,
) -> Timeline:
    """Merge the parts of all processes into one timeline.

    Passes with their origins, and for each job what was measured of its iterations.

    `done`: iterations of each job before; None for none. `parameters`: digests by job and worker; empty where the run
    was interrupted. Then iterations count that all workers ended. `stages`: what the job in stages did; None where
    there is none.
    """
    clock = StoppingClock(part.saves for part in parts)
    blocks = {b[:3]: clock.block(b) for part in parts for b in part.blocks}
    transfers: dict[tuple[int, int, int], list[TransferRecord]] = {}
    for part in parts:
        for record in part.transfers:
            start, end = clock.moment(record.start_us), clock.moment(record.end_us)
            transfers.setdefault(record.key, []).append(record._replace(start_us=start, end_us=end))
    jobs, passes, begun = [], 1, []
    for number, job in enumerate(plan.jobs):
        workers, first = range(len(job.gpus)), done[number] if done else 0
        iterations: tuple[MeasuredIteration | MeasuredStep, ...]
        if isinstance(job, JobPlan):
            last = _whole(number, first, job, blocks, transfers)
            iterations = tuple(_iteration(number, k, len(job.gpus), blocks, transfers) for k in range(first, last))
        else:
            assert stages is not None, "it is said what stages did"
            iterations = stages.measured()
        passes = max(passes, -(-(first + len(iterations)) // len(job.iterations)))
        begun.append(first // len(job.iterations))
        digests = tuple(parameters[number, slot] for slot in workers) if parameters else ()
        jobs.append(MeasuredJob(job.name, job.gpus, first, iterations, digests))
    origins = parts[0].origins_us[: passes - min(begun)]
    return Timeline(passes, tuple(map(clock.moment, origins)), tuple(jobs))


def _whole(
    number: int,
    first: int,
    job: JobPlan,
    blocks: Mapping[tuple[int, int, int], BlockRecord],
    transfers: Mapping[tuple[int, int, int], Sequence[TransferRecord]],
) -> int:
    """Return the number of the first iteration of a job that not all workers have ended."""
    workers = range(len(job.gpus))
    last = first
    while all((number, last, slot) in blocks for slot in workers) and all(
        len(transfers.get((number, last, planned.bucket), ())) == len(workers)
        for planned in job.iterations[last % len(job.iterations)].transfers
    ):
        last += 1
    return last


def _iteration(
    job: int,
    iteration: int,
    workers: int,
    blocks: Mapping[tuple[int, int, int], BlockRecord],
    transfers: Mapping[tuple[int, int, int], Sequence[TransferRecord]],
) -> MeasuredIteration:
    own = [blocks[job, iteration, slot] for slot in range(workers)]
    moved: list[Transfer] = []
    while records := transfers.get((job, iteration, len(moved) + 1)):
        start, end = max(r.start_us for r in records), max(r.end_us for r in records)
        moved.append(Transfer(len(moved) + 1, start, end))
    return MeasuredIteration(tuple(MeasuredBlock(b.level, b.start_us, b.end_us, b.loss) for b in own), tuple(moved))

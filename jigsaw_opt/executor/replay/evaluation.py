"""From what the processes found to a replay, and predicted against measured. Needs no torch."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, chain
from statistics import median, quantiles
from typing import Literal

from jigsaw_opt.documents import instance_sha256
from jigsaw_opt.documents.replay import plan_sha256
from jigsaw_opt.executor.replay.order import used_gpus
from jigsaw_opt.executor.replay.phases import PhasePart, jobs_in_phases, phase_parts
from jigsaw_opt.executor.replay.records import BlockRecord, Part, RankReport, TransferRecord
from jigsaw_opt.executor.replay.request import ReplayRequest
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.memory import needed_bytes
from jigsaw_opt.problem.plan import JobPlan, Plan, Transfer
from jigsaw_opt.problem.replay import (
    Baseline,
    MeasuredBlock,
    MeasuredGpu,
    MeasuredIteration,
    MeasuredJob,
    MeasuredPhase,
    Replay,
    ReplaySummary,
    Timeline,
)
from jigsaw_opt.problem.timetable import job_end

__all__ = ["StoppingClock", "compared", "mean_distance", "replay_of", "summary", "timeline"]

_DIGITS = 4


def replay_of(
    request: ReplayRequest, usual: Plan | None, found: Sequence[RankReport], machine: Mapping[str, str | int]
) -> Replay:
    """The replay.

    Parameters
    ----------
    request, usual
        What was carried out: the plan, and that of the baseline if there is one.
    found
        By process.
    machine
        What may explain the times.
    """
    instance, plan = request.instance, request.plan
    gpus = used_gpus(instance, chain.from_iterable(jobs_in_phases(instance, plan)))
    parameters = {key: digest for process in found for key, digest in process.parameters.items()}
    baseline: Baseline | None = None
    # After an interrupt there may be no baseline, and never a whole one.
    if usual is not None and request.baseline is not None and parameters:
        taken = timeline(usual, [process.parts[1] for process in found], None, parameters)
        baseline = Baseline(request.baseline, summary(usual, taken), taken)
    return Replay(
        instance=instance.name,
        instance_sha256=instance_sha256(instance),
        plan_sha256=plan_sha256(plan),
        machine=machine,
        gpus=tuple(
            MeasuredGpu(gpu, process.memory_bytes, _most_planned(request, gpu))
            for gpu, process in zip(gpus, found, strict=True)
        ),
        phases=tuple(_phases(request, gpus, found, parameters)),
        parameters_sha256={
            job.name: tuple(parameters[number, slot] for slot in range(job.workers))
            for number, job in enumerate(instance.data_parallel)
            if parameters
        },
        baseline=baseline,
    )


def _phases(
    request: ReplayRequest,
    gpus: Sequence[str],
    found: Sequence[RankReport],
    parameters: Mapping[tuple[int, int], str],
) -> Iterator[MeasuredPhase]:
    """What was measured of every phase, group by group."""
    whole = phase_parts(request.instance, request.plan)
    for group, parts in enumerate(phase_parts(request.instance, request.cut().plan)):
        used = {gpu for part in parts for job in part.phase.jobs for gpu in job.gpus}
        hosts = [process for gpu, process in zip(gpus, found, strict=True) if gpu in used]
        end: int | None = 0
        finish: int | None = None
        for number, part in enumerate(parts):
            own = {
                (k, slot): parameters[job, slot]
                for k, job in enumerate(part.numbers)
                for slot in range(len(part.phase.jobs[k].gpus))
                if parameters
            }
            measured = timeline(part.plan, [p.parts[number] for p in hosts], part.done(found[0].done), own)
            asked = whole[group][number].phase
            if not asked.is_counted:
                yield MeasuredPhase.only(summary(part.plan, measured), measured)
                continue
            repeated = part.phase.count if parameters else _repetitions(part.plan, measured)
            left_out = asked.count - repeated
            length, begin = _length_us(measured), hosts[0].parts[number].begin_us
            compared = summary(part.plan, measured) if length else None
            whole_span = _span_us(request, part, measured, compared, left_out, end) if parameters else None
            start, end = whole_span or (None, None)
            seam = None if finish is None else max(0, begin - finish)
            finish = begin + length if length else None
            ends = (asked.end_us, start, end, seam)
            yield MeasuredPhase(group, number, asked.count, repeated, compared, *ends, measured)


def _length_us(measured: Timeline) -> int:
    """From the begin of a phase to its last operation; 0 where none was left."""
    last = [job.iterations[-1] for job in measured.jobs if job.iterations]
    ends = ([*(b.end_us for b in it.blocks), *(t.end_us for t in it.transfers)] for it in last)
    return max(chain.from_iterable(ends), default=0)


def _span_us(
    request: ReplayRequest,
    part: PhasePart,
    measured: Timeline,
    compared: ReplaySummary | None,
    left_out: int,
    before: int | None,
) -> tuple[int, int] | None:
    """When a phase begins, once the one before it has ended and all of its jobs are released, and when it ends."""
    resumed = any(job.first_iteration for job in measured.jobs)
    if before is None or resumed or compared is None or (left_out and compared.measured_us is None):
        return None
    begin = max(before, part.phase.start_us if request.pace else 0)
    for number, job in zip(part.numbers, measured.jobs, strict=True):
        first = min(block.start_us for block in job.iterations[0].blocks)
        begin = max(begin, request.instance.jobs[number].release_us - first)
    return begin, begin + _length_us(measured) + left_out * (compared.measured_us or 0)


def _most_planned(request: ReplayRequest, gpu: str) -> int:
    """The most memory that a GPU's workers need in a phase, those of jobs that pause in it included."""
    most, whole = 0, [_joined(parts) for parts in jobs_in_phases(request.instance, request.plan)]
    for parts in phase_parts(request.instance, request.plan):
        for number, part in enumerate(parts):
            later = {job for other in parts[number + 1 :] for job in other.numbers}
            earlier = {job for other in parts[:number] for job in other.numbers}
            paused = (later & earlier).difference(part.numbers)
            present = [*part.plan.data_parallel, *(whole[job] for job in paused)]
            most = max(most, _planned_memory(request.instance, present, gpu))
    return most


def _joined(parts: Sequence[JobPlan]) -> JobPlan:
    """What a job does in one repetition of each of its phases."""
    return replace(parts[0], iterations=tuple(iteration for part in parts for iteration in part.iterations))


def timeline(
    plan: Plan, parts: Sequence[Part], done: Sequence[int] | None, parameters: Mapping[tuple[int, int], str]
) -> Timeline:
    """One timeline from the parts of all processes.

    Parameters
    ----------
    plan
        What was carried out.
    parts
        By process.
    done
        Iterations of each job before; None for none.
    parameters
        Digests by job and worker; empty where the run was interrupted. Then iterations count that all workers ended.
    """
    clock = StoppingClock(part.saves for part in parts)
    blocks = {b[:3]: clock.block(b) for part in parts for b in part.blocks}
    transfers: dict[tuple[int, int, int], list[TransferRecord]] = {}
    for part in parts:
        for record in part.transfers:
            start, end = clock.moment(record.start_us), clock.moment(record.end_us)
            transfers.setdefault(record.key, []).append(record._replace(start_us=start, end_us=end))
    jobs, passes, begun = [], 1, []
    for number, job in enumerate(plan.data_parallel):
        workers, first = range(len(job.gpus)), done[number] if done else 0
        last = _whole(number, first, job, blocks, transfers)
        passes = max(passes, -(-last // len(job.iterations)))
        begun.append(first // len(job.iterations))
        iterations = tuple(_iteration(number, k, len(job.gpus), blocks, transfers) for k in range(first, last))
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


class StoppingClock:
    """A clock that stands still while workers are saved, for as long as the process that has saved longest so far."""

    def __init__(self, saves: Iterable[Sequence[tuple[int, int]]]) -> None:
        # By process: starts and ends, and the time spent on the first k of them.
        self._saves = [
            ([s for s, _ in own], [e for _, e in own], list(accumulate((e - s for s, e in own), initial=0)))
            for own in saves
            if own
        ]

    def moment(self, at_us: int) -> int:
        """Return a moment without what was spent on saving before it."""
        spent = 0
        for starts, ends, before in self._saves:
            begun = bisect_left(starts, at_us)
            under_way = max(0, ends[begun - 1] - at_us) if begun else 0
            spent = max(spent, before[begun] - under_way)
        return at_us - spent

    def block(self, record: BlockRecord) -> BlockRecord:
        """Return a block that lasts as long as before: its own process saved nothing meanwhile."""
        start = self.moment(record.start_us)
        return record._replace(start_us=start, end_us=start + record.end_us - record.start_us)


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


def summary(plan: Plan, found: Timeline) -> ReplaySummary:
    """Predicted against measured.

    Parameters
    ----------
    plan
        What was carried out.
    found
        What it took; at least one block.
    """
    cyclic = plan.period_us is not None
    planned_us = sum(b.end_us - b.start_us for job in plan.data_parallel for i in job.iterations for b in i.blocks)
    return compared(
        plan,
        _period(plan, found) if cyclic else _makespan(plan, found),
        ((planned, b.end_us - b.start_us) for planned, b in _pairs(plan, found)),
        ((p.end_us - p.start_us, m.end_us - m.start_us) for p, m in _transfer_pairs(plan, found)),
        (planned_us, median(_busy_by_pass(plan, found).values() or [0])),
    )


def compared(
    plan: Plan,
    measured: int | None,
    blocks: Iterable[tuple[int, int]],
    transfers: Iterable[tuple[int, int]],
    busy_us: tuple[int, float],
) -> ReplaySummary:
    """Compare a plan with what was measured.

    Parameters
    ----------
    plan
        What was carried out.
    measured
        Its makespan or period in microseconds; None where the run was too short to tell.
    blocks, transfers
        Planned and measured duration of each, at least one block.
    busy_us
        Time of all blocks of a pass, planned and measured.
    """
    cyclic = plan.period_us is not None
    predicted = plan.period_us or max(map(job_end, plan.jobs))
    errors = [found / planned - 1 for planned, found in blocks]
    sizes = sorted(map(abs, errors))
    moved = [abs(found - planned) for planned, found in transfers]
    gpus = {gpu for job in plan.jobs for gpu in job.gpus}
    objective: Literal["makespan", "period"] = "period" if cyclic else "makespan"
    return ReplaySummary(
        objective=objective,
        predicted_us=predicted,
        measured_us=measured,
        block_error=round(median(sizes), _DIGITS),
        block_error_p90=round(quantiles(sizes, n=10, method="inclusive")[-1] if len(sizes) > 1 else sizes[0], _DIGITS),
        block_bias=round(median(errors), _DIGITS),
        transfer_error_us=round(median(moved)) if moved else None,
        busy_predicted=round(busy_us[0] / (len(gpus) * predicted), _DIGITS),
        busy_measured=None if measured is None else round(busy_us[1] / (len(gpus) * measured), _DIGITS),
    )


def _pairs(plan: Plan, found: Timeline) -> Iterator[tuple[int, MeasuredBlock]]:
    """Planned duration of each measured block, and the block."""
    for job, measured in zip(plan.data_parallel, found.jobs, strict=True):
        for number, iteration in measured.numbered():
            planned = job.iterations[number % len(job.iterations)]
            for expected, block in zip(planned.blocks, iteration.blocks, strict=True):
                yield expected.end_us - expected.start_us, block


def _transfer_pairs(plan: Plan, found: Timeline) -> Iterator[tuple[Transfer, Transfer]]:
    for job, measured in zip(plan.data_parallel, found.jobs, strict=True):
        for number, iteration in measured.numbered():
            yield from zip(job.iterations[number % len(job.iterations)].transfers, iteration.transfers, strict=True)


def _whole_passes(plan: Plan, found: Timeline) -> range:
    """Passes that were carried out wholly in this run."""
    pairs = list(zip(plan.data_parallel, found.jobs, strict=True))
    first = max(-(-m.first_iteration // len(j.iterations)) for j, m in pairs)
    return range(first, _repetitions(plan, found))


def _repetitions(plan: Plan, found: Timeline) -> int:
    """Return how often all jobs have done their iterations of a plan, earlier runs included."""
    pairs = zip(plan.data_parallel, found.jobs, strict=True)
    return min((m.first_iteration + len(m.iterations)) // len(j.iterations) for j, m in pairs)


def _by_pass(plan: Plan, found: Timeline) -> dict[int, list[MeasuredIteration]]:
    """Iterations of all jobs in each pass that was carried out wholly."""
    passes: dict[int, list[MeasuredIteration]] = {turn: [] for turn in _whole_passes(plan, found)}
    for job, measured in zip(plan.data_parallel, found.jobs, strict=True):
        for number, iteration in measured.numbered():
            if number // len(job.iterations) in passes:
                passes[number // len(job.iterations)].append(iteration)
    return passes


def _ends_by_pass(plan: Plan, found: Timeline) -> dict[int, int]:
    """Latest end of each of these passes."""
    return {
        turn: max(end for it in own for end in (*(b.end_us for b in it.blocks), *(t.end_us for t in it.transfers)))
        for turn, own in _by_pass(plan, found).items()
    }


def _busy_by_pass(plan: Plan, found: Timeline) -> dict[int, int]:
    """Time of all blocks in each of these passes."""
    return {
        turn: sum(block.end_us - block.start_us for iteration in own for block in iteration.blocks)
        for turn, own in _by_pass(plan, found).items()
    }


def _makespan(plan: Plan, found: Timeline) -> int | None:
    ends = _ends_by_pass(plan, found)
    begins = dict(zip(range(found.passes - len(found.origins_us), found.passes), found.origins_us, strict=True))
    return round(median(end - begins[turn] for turn, end in ends.items())) if ends else None


def _period(plan: Plan, found: Timeline) -> int | None:
    """Mean distance of the ends of passes, without the first ones, where the pipeline fills."""
    last = max(b.start_us for j in plan.data_parallel for i in j.iterations for b in i.blocks)
    return mean_distance(list(_ends_by_pass(plan, found).values()), 1 + last // (plan.period_us or 1))


def mean_distance(ends: Sequence[int], left_out: int) -> int | None:
    """Mean distance of moments without the first ones, at most half of them; None where less than two are left."""
    first = min(len(ends) // 2, left_out)
    if len(ends) - first < 2:
        return None
    return max(1, round((ends[-1] - ends[first]) / (len(ends) - 1 - first)))


def _planned_memory(instance: Instance, jobs: Iterable[JobPlan], gpu: str) -> int:
    """Memory that a GPU's workers of some jobs need (specification: memory)."""
    workers, models = [], {job.name: instance.models[job.model] for job in instance.data_parallel}
    for placed in jobs:
        if gpu in placed.gpus:
            model, slot = models[placed.name], placed.gpus.index(gpu)
            deepest = max(iteration.blocks[slot].level for iteration in placed.iterations)
            workers.append((model.state_bytes, model.activation_bytes()[deepest - 1]))
    return needed_bytes(workers)

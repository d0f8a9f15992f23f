"""From what the processes found to a replay of a phased plan. Needs no torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from jigsaw_opt.documents import instance_sha256
from jigsaw_opt.documents.replay import plan_sha256
from jigsaw_opt.executor.replay.evaluation import planned_memory, repetitions, summary, timeline
from jigsaw_opt.executor.replay.order import used_gpus
from jigsaw_opt.executor.replay.phases import PhasePart, jobs_in_phases, phase_parts
from jigsaw_opt.executor.replay.records import RankReport
from jigsaw_opt.executor.replay.request import PhasedReplayRequest
from jigsaw_opt.problem.phased_replay import MeasuredPhase, PhasedReplay
from jigsaw_opt.problem.plan import JobPlan
from jigsaw_opt.problem.replay import MeasuredGpu, ReplaySummary, Timeline

__all__ = ["phased_replay_of"]


def phased_replay_of(
    request: PhasedReplayRequest, found: Sequence[RankReport], machine: Mapping[str, str | int]
) -> PhasedReplay:
    """The replay.

    Parameters
    ----------
    request
        What was asked for.
    found
        By process.
    machine
        What may explain the times.
    """
    instance, plan = request.instance, request.plan
    placed = jobs_in_phases(instance, plan)
    gpus = used_gpus(instance, (job for parts in placed for job in parts))
    parameters = {key: digest for process in found for key, digest in process.parameters.items()}
    return PhasedReplay(
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
    )


def _phases(
    request: PhasedReplayRequest,
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
            repeated = part.phase.count if parameters else repetitions(part.plan, measured)
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
    request: PhasedReplayRequest,
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


def _most_planned(request: PhasedReplayRequest, gpu: str) -> int:
    """The most memory that a GPU's workers need in a phase, those of jobs that pause in it included."""
    most, whole = 0, [_joined(parts) for parts in jobs_in_phases(request.instance, request.plan)]
    for parts in phase_parts(request.instance, request.plan):
        for number, part in enumerate(parts):
            later = {job for other in parts[number + 1 :] for job in other.numbers}
            earlier = {job for other in parts[:number] for job in other.numbers}
            paused = (later & earlier).difference(part.numbers)
            present = [*part.plan.data_parallel, *(whole[job] for job in paused)]
            most = max(most, planned_memory(request.instance, present, gpu))
    return most


def _joined(parts: Sequence[JobPlan]) -> JobPlan:
    """What a job does in one repetition of each of its phases."""
    return replace(parts[0], iterations=tuple(iteration for part in parts for iteration in part.iterations))

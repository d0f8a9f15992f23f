"""From what the processes found to a replay, and predicted against measured. Needs no torch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count

from jigsaw_opt.documents import instance_sha256
from jigsaw_opt.documents.replay import plan_sha256
from jigsaw_opt.executor.replay.summaries import StepTimes, cycle_us, repetitions, summary
from jigsaw_opt.executor.schedules.presence import PhasePart, PlannedPhases, phases_of, planned_bytes, restarts
from jigsaw_opt.executor.schedules.records import Kind, Part, RankReport, RunRecord, StoppingClock
from jigsaw_opt.executor.schedules.request import ReplayRequest, StagedRun
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.measured.replay import (
    Baseline,
    JobCycle,
    MeasuredGpu,
    MeasuredPhase,
    MeasuredRestart,
    Replay,
    ReplaySummary,
)
from jigsaw_opt.problem.measured.times import MeasuredBlock, MeasuredIteration, MeasuredJob, MeasuredStep, Timeline
from jigsaw_opt.problem.plan import JobPlan, Plan, TaskGraphJobPlan, Transfer


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
    found = defaultdict[tuple[Kind, int, int, int | str], list[RunRecord]](list)
    for part in parts:
        for record in part.records:
            found[record[:4]].append(clock.record(record))
    jobs, passes, begun = [], 1, []
    for number, job in enumerate(plan.jobs):
        workers, first = range(len(job.gpus)), done[number] if done else 0
        iterations: tuple[MeasuredIteration | MeasuredStep, ...]
        if isinstance(job, JobPlan):
            iterations = tuple(_iterations(number, first, job, found))
        else:
            assert stages is not None, "it is said what stages did"
            iterations = stages.measured()
        passes = max(passes, -(-(first + len(iterations)) // len(job.iterations)))
        begun.append(first // len(job.iterations))
        digests = tuple(parameters[number, slot] for slot in workers) if parameters else ()
        jobs.append(MeasuredJob(job.name, job.gpus, first, iterations, digests))
    origins = parts[0].origins_us[: passes - min(begun)]
    return Timeline(passes, tuple(map(clock.moment, origins)), tuple(jobs))


def _iterations(
    number: int, first: int, job: JobPlan, found: Mapping[tuple[Kind, int, int, int | str], Sequence[RunRecord]]
) -> Iterator[MeasuredIteration]:
    """Yield what was measured of a job, from its first iteration to the last one that all workers have ended."""
    workers = len(job.gpus)
    for at in count(first):
        own = [block for slot in range(workers) for block in found.get(("block", number, at, slot), ())]
        planned = job.iterations[at % len(job.iterations)].transfers
        sent = [found.get(("transfer", number, at, transfer.bucket), ()) for transfer in planned]
        if any(len(records) != workers for records in (own, *sent)):
            return
        moved = (
            Transfer(bucket, max(r.start_us for r in records), max(r.end_us for r in records))
            for bucket, records in enumerate(sent, 1)
        )
        yield MeasuredIteration(tuple(MeasuredBlock(b.level, b.start_us, b.end_us, b.loss) for b in own), tuple(moved))


def replay_of(
    request: ReplayRequest,
    usual: PhasePart | None,
    stages: StagedRun | None,
    found: Sequence[RankReport],
    machine: Mapping[str, str | int],
) -> Replay | None:
    """Return the replay; None where no job has ended an iteration of a plan of one phase.

    `request, usual, stages`: what was carried out: the plan, that of the baseline if there is one, and what is in
    stages.
    """
    instance, plan = request.instance, request.plan
    planned = phases_of(instance, request.cut().plan)
    parameters = {key: digest for process in found for key, digest in process.parameters.items()}
    evaluated = list(_phases(request, planned, found, parameters, stages))
    phases = tuple(phase for phase, _ in evaluated)
    if not (phases and (phases[0].repeats is not None or any(job.iterations for job in phases[0].timeline.jobs))):
        return None
    baseline: Baseline | None = None
    # After an interrupt there may be no baseline, and never a whole one.
    if usual is not None and request.baseline is not None and parameters:
        places = {number: k for k, number in enumerate(usual.numbers)}
        own = {(places[job], slot): parameter for (job, slot), parameter in parameters.items() if job in places}
        taken, steps = _timed(stages, usual, [process.parts[1] for process in found], None, own)
        together = _cycle(plan, phases[0].timeline, usual.numbers) if request.baseline == "alone" else None
        baseline = Baseline(request.baseline, summary(usual.plan, taken, steps), taken, together)
    beside, steps = stages is not None and len(instance.jobs) > 1, evaluated[0][1]
    return Replay(
        instance=instance.name,
        instance_sha256=instance_sha256(instance),
        plan_sha256=plan_sha256(plan),
        machine=machine,
        gpus=tuple(
            MeasuredGpu(gpu, process.memory_bytes, most)
            for gpu, process, most in zip(planned.gpus, found, _most_planned(instance, plan, planned), strict=True)
        ),
        phases=phases,
        parameters_sha256={
            job.name: tuple(parameters[key] for key in sorted(key for key in parameters if key[0] == number))
            for number, job in enumerate(instance.jobs)
            if parameters
        },
        baseline=baseline,
        kinds={} if steps is None else steps.kinds(),
        cycles={
            job.name: _cycle(plan, phases[0].timeline, [number])
            for number, job in enumerate(plan.jobs if beside or request.baseline == "alone" else ())
        },
        building_us=0 if plan.is_phased else found[0].parts[0].stopped_us,
    )


def _timed(
    stages: StagedRun | None,
    part: PhasePart,
    runs: Sequence[Part],
    done: Sequence[int] | None,
    parameters: Mapping[tuple[int, int], str],
) -> tuple[Timeline, StepTimes | None]:
    """Return the timeline of a phase, or the baseline, and the step times of its job in stages, if there is one.

    `done`: by job, how many of its iterations were done before; None where it began anew.
    """
    steps = None
    for number, shape in part.instance.task_graph_of.items():
        assert stages is not None, "it is said what stages did"
        steps = StepTimes(shape, part.plan.jobs[number], stages.schedule, runs, done[number] if done else 0)
    return timeline(part.plan, runs, done, parameters, steps), steps


def _cycle(plan: Plan, found: Timeline, numbers: Sequence[int]) -> JobCycle:
    """Return what a pass takes some jobs, planned and measured."""
    jobs = tuple(plan.jobs[number] for number in numbers)
    measured = replace(found, jobs=tuple(found.jobs[number] for number in numbers))
    planned = plan.period_us or max(job.end_us for job in jobs)
    return JobCycle(sum(len(job.iterations) for job in jobs), planned, cycle_us(plan.with_jobs(jobs), measured))


def _phases(
    request: ReplayRequest,
    planned: PlannedPhases,
    found: Sequence[RankReport],
    parameters: Mapping[tuple[int, int], str],
    stages: StagedRun | None,
) -> Iterator[tuple[MeasuredPhase, StepTimes | None]]:
    """Yield what was measured of every phase, and the step times of its job in stages, group by group."""
    for group, parts in enumerate(planned.groups):
        used = {gpu for part in parts for job in part.phase.jobs for gpu in job.gpus}
        hosts = [process for gpu, process in zip(planned.gpus, found, strict=True) if gpu in used]
        end: int | None = 0
        finish: int | None = None
        left: dict[int, int] = {}
        for number, part in enumerate(parts):
            own = {
                (k, slot): parameters[job, slot]
                for k, job in enumerate(part.numbers)
                for slot in range(len(part.phase.jobs[k].gpus))
                if parameters
            }
            runs, done = [p.parts[number] for p in hosts], part.done(found[0].done)
            measured, steps = _timed(stages, part, runs, done, own)
            asked = request.plan.groups[group].phases[number]
            if not asked.is_counted:
                whole_iterations = any(job.iterations for job in measured.jobs)
                compared = summary(part.plan, measured, steps) if whole_iterations else None
                yield MeasuredPhase.only(compared, measured), steps
                continue
            repeated = part.phase.count if parameters else repetitions(part.plan, measured)
            left_out = asked.count - repeated
            length, begin = _length_us(measured.jobs), hosts[0].parts[number].begin_us
            compared = summary(part.plan, measured) if length else None
            back = restarts(request.instance, parts, number)
            before = None if end is None else max(end, part.phase.start_us if request.time_triggered else 0)
            # A job may run from its release on, or from the end of its restart.
            asked_jobs = {job: request.instance.jobs[job] for job in part.numbers}
            ready = [
                max(job.release_us, left.get(k, 0) + (job.restart_us or 0) if k in back else 0)
                for k, job in asked_jobs.items()
            ]
            whole_span = _span_us(before, ready, measured, compared, left_out) if parameters else None
            start, end = whole_span or (None, None)
            if end is not None:
                lengths = (_length_us([job]) for job in measured.jobs)
                left |= {job: end - length + own_us for job, own_us in zip(part.numbers, lengths, strict=True)}
            seam = None if finish is None else max(0, begin - finish)
            finish = begin + length if length else None
            ends = (asked.end_us, start, end, seam)
            restarted = tuple(_restarts(request.instance, parts, number, hosts))
            yield MeasuredPhase(group, number, asked.count, repeated, compared, *ends, measured, restarted), steps


def _length_us(jobs: Iterable[MeasuredJob]) -> int:
    """Return the time from the begin of a phase to the last operation of some of its jobs; 0 where none was left."""
    return max((job.iterations[-1].end_us for job in jobs if job.iterations), default=0)


def _restarts(
    instance: Instance, parts: Sequence[PhasePart], number: int, hosts: Sequence[RankReport]
) -> Iterator[MeasuredRestart]:
    """Yield how long the jobs that restart in a phase were away; none of a job of which an earlier run did some."""
    for job, earlier in restarts(instance, parts, number).items():
        ends = [end for _, end in _moments(parts[earlier], job, [host.parts[earlier] for host in hosts])]
        starts = [start for start, _ in _moments(parts[number], job, [host.parts[number] for host in hosts])]
        if ends and starts:
            asked = instance.jobs[job]
            yield MeasuredRestart(asked.name, asked.restart_us or 0, max(0, min(starts) - max(ends)))


def _moments(part: PhasePart, job: int, runs: Sequence[Part]) -> Iterator[tuple[int, int]]:
    """Yield start and end of all operations of a job in a phase, on the clock of the first process."""
    place = part.numbers.index(job)
    for run in runs:
        for record in run.records:
            if record.job == place and record.kind in ("block", "transfer"):
                yield run.begin_us + record.start_us, run.begin_us + record.end_us


def _span_us(
    before: int | None, ready: Sequence[int], measured: Timeline, compared: ReplaySummary | None, left_out: int
) -> tuple[int, int] | None:
    """Return when a phase begins and ends; it begins once the one before it has ended and all its jobs may run."""
    resumed = any(job.first_iteration for job in measured.jobs)
    if before is None or resumed or compared is None or (left_out and compared.measured_us is None):
        return None
    begin = before
    for moment, job in zip(ready, measured.jobs, strict=True):
        begin = max(begin, moment - min(block.start_us for block in job.iterations[0].blocks))
    return begin, begin + _length_us(measured.jobs) + left_out * (compared.measured_us or 0)


def _most_planned(instance: Instance, plan: Plan, planned: PlannedPhases) -> list[int]:
    """Return the most bytes that each GPU's workers need at one moment, with paused jobs that keep theirs."""
    if not plan.is_phased:
        return [planned_bytes(instance, plan, gpu) for gpu in planned.gpus]
    present, whole = list[Plan](), [_joined(parts) for parts in planned.jobs]
    for parts in planned.groups:
        for number, part in enumerate(parts):
            later = {job for other in parts[number + 1 :] for job in other.numbers}
            earlier = {job for other in parts[:number] for job in other.numbers}
            absent = (later & earlier).difference(part.numbers)
            paused = [job for job in absent if instance.jobs[job].restart_us is None]
            placed = {k: job.gpus for k, job in zip(part.numbers, part.plan.jobs, strict=True)}
            jobs = [replace(whole[job], gpus=placed.get(job, whole[job].gpus)) for job in (*placed, *paused)]
            present.append(part.plan.with_jobs(tuple(jobs)))
    return [max(planned_bytes(instance, each, gpu) for each in present) for gpu in planned.gpus]


def _joined(parts: Sequence[JobPlan | TaskGraphJobPlan]) -> JobPlan | TaskGraphJobPlan:
    """Return what a job does in one repetition of each of its phases."""
    every = tuple(iteration for part in parts for iteration in part.iterations)
    return replace(parts[0], iterations=every)  # type: ignore[arg-type]

"""A replay beside its plan: under each lane of the plan one with what was measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path

from jigsaw_opt.documents import load_replay
from jigsaw_opt.documents.replay import require_replay_of
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.measured.replay import Replay
from jigsaw_opt.problem.measured.times import Timeline
from jigsaw_opt.problem.plan import JobPlan, Plan, TaskGraphJobPlan
from jigsaw_opt.text import duration
from jigsaw_opt.views.lanes import ClusterLanes, Interval, Lane, Picture, picture


def picture_of(instance: Instance, plan: Plan, replay: Replay | Path | None) -> Picture:
    """Return the lanes of a correct plan, with those of a replay of it, which may be its file, or without any."""
    if replay is None:
        return picture(instance, plan)
    source = "the replay"
    if isinstance(replay, Path):
        source, replay = str(replay), load_replay(replay)
    require_replay_of(plan, replay, source)
    return replay_picture(instance, plan, replay)


def replay_picture(instance: Instance, plan: Plan, replay: Replay) -> Picture:
    """Return lanes of a plan, as often as it was carried out, each with one below it for what was measured.

    A pass over a finite plan is shown from the moment when it began.
    """
    if plan.is_phased:
        return _phases_picture(picture(instance, plan), replay)
    planned, measured = ClusterLanes(instance), ClusterLanes(instance, "measured")
    jobs = zip(instance.jobs, plan.jobs, replay.timeline.jobs, strict=True)
    for index, (asked, job, found) in enumerate(jobs):
        for lane, interval in planned.intervals(index, asked, job):
            lane.intervals.extend(_passes(interval, job, found.first_iteration, plan, replay.timeline))
        for lane, interval in measured.intervals(index, asked, found, found.first_iteration):
            lane.intervals.append(interval)
    begin = _begin(plan, replay.timeline)
    for lane in planned.lanes:
        lane.intervals[:] = [i._replace(start_us=i.start_us - begin, end_us=i.end_us - begin) for i in lane.intervals]
    for lane in measured.lanes:
        lane.intervals[:] = _apart(lane.intervals)
    idle = planned.gpus.keys() - chain.from_iterable(job.gpus for job in plan.jobs)
    pairs = zip(planned.lanes, measured.lanes, strict=True)
    lanes = tuple(lane for pair in pairs for lane in (pair[:1] if pair[0].name in idle else pair))
    end = max((interval.end_us for lane in lanes for interval in lane.intervals), default=0)
    return Picture(instance, plan, lanes, end, tuple(_facts(replay)))


def _phases_picture(drawn: Picture, replay: Replay) -> Picture:
    """Return phases, and below them as they were measured, as far as that is known."""
    numbers = {(phase.group, phase.number): phase for phase in replay.phases}
    measured = tuple(numbers[g, p] for g, p, _ in drawn.plan.all_phases())
    lanes = []
    for lane in drawn.lanes:
        lanes.append(lane)
        begun = [
            (interval, measured[interval.number].measured_begin_us, measured[interval.number].measured_end_us)
            for interval in lane.intervals
        ]
        known = [interval._replace(start_us=a, end_us=b) for interval, a, b in begun if a is not None and b is not None]
        if known:
            lanes.append(Lane(f"{lane.name} measured", "measured job", known, lane.group))
    end = max(interval.end_us for lane in lanes for interval in lane.intervals)
    facts = [("carried out", ("in part" if replay.is_cut else "wholly") + _dry(replay))]
    if replay.measured_us is not None:
        error = replay.measured_us / replay.predicted_us - 1
        facts.append(("measured end", f"{duration(replay.measured_us)} ({100 * error:+.1f} %)"))
    return replace(drawn, lanes=tuple(lanes), end_us=end, facts=tuple(facts), measured=measured)


def _passes(
    interval: Interval, job: JobPlan | TaskGraphJobPlan, first: int, plan: Plan, found: Timeline
) -> Iterator[Interval]:
    """Yield a planned interval in every pass in which its iteration was carried out."""
    for turn, origin in _origins(plan, found):
        iteration = turn * len(job.iterations) + interval.iteration
        if iteration >= first:
            start, end = interval.start_us + origin, interval.end_us + origin
            yield interval._replace(start_us=start, end_us=end, iteration=iteration)


def _origins(plan: Plan, found: Timeline) -> list[tuple[int, int]]:
    """Return passes that were carried out, and what their planned times count from."""
    if plan.period_us is not None:
        begun = min(m.first_iteration // len(job.iterations) for job, m in zip(plan.jobs, found.jobs, strict=True))
        return [(turn, turn * plan.period_us) for turn in range(begun, found.passes)]
    return list(enumerate(found.origins_us, found.passes - len(found.origins_us)))


def _begin(plan: Plan, found: Timeline) -> int:
    """Return the planned start of the first block that was left to do, where a cyclic plan was resumed; otherwise 0."""
    if plan.period_us is None or not any(job.first_iteration for job in found.jobs):
        return 0
    return min(
        block.start_us + measured.first_iteration // len(job.iterations) * plan.period_us
        for job, measured in zip(plan.jobs, found.jobs, strict=True)
        for block in job.iterations[measured.first_iteration % len(job.iterations)].blocks
    )


def _apart(intervals: Iterable[Interval]) -> Iterator[Interval]:
    """Yield intervals without overlaps of several hosts' clocks, as viewers take none on a track."""
    free = 0
    for interval in intervals:
        start = max(interval.start_us, free)
        free = max(interval.end_us, start)
        yield interval._replace(start_us=start, end_us=free)


def _facts(replay: Replay) -> Iterator[tuple[str, str]]:
    summary = replay.summary
    yield "carried out", f"{replay.timeline.passes} x{_dry(replay)}"
    if summary.measured_us is not None and summary.error is not None:
        yield f"measured {summary.objective}", f"{summary.measured_us / 1000:.3f} ms ({100 * summary.error:+.1f} %)"
    if summary.busy_measured is not None:
        yield "GPUs busy", f"{100 * summary.busy_measured:.1f} % ({100 * summary.busy_predicted:.1f} % planned)"
    slow_down = replay.slow_down()
    if slow_down is not None and slow_down[1] is not None:
        yield "slow-down", f"{slow_down[1]:.3f} ({slow_down[0]:.3f} planned)"
    yield "blocks off by", f"{100 * summary.block_error:.1f} %"
    for kind, error in replay.kinds.items():
        yield f"{kind} off by", f"{100 * error.error:.1f} %"
    speed_up = replay.speed_up()
    if speed_up is not None and speed_up[1] is not None and replay.baseline is not None:
        yield f"speed-up over {replay.baseline.policy}", f"{speed_up[1]:.3f} ({speed_up[0]:.3f} predicted)"


def _dry(replay: Replay) -> str:
    """Return that jobs slept where they did, which no other measure of a replay shows."""
    return ", dry: jobs slept, and nothing was trained" if replay.machine.get("dry") else ""

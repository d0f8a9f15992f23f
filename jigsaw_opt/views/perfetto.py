"""A plan as a trace for Perfetto and chrome://tracing."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.plan import Plan
from jigsaw_opt.problem.replay import Replay
from jigsaw_opt.views.lanes import Interval, Lane, Picture
from jigsaw_opt.views.needs import last_needs

__all__ = ["perfetto_trace", "phases_trace"]

_MEMORY = 1
"""Number of the process of the counters; those of servers and links follow."""


def perfetto_trace(picture: Picture) -> bytes:
    """Trace events as JSON: a process for each server and one for the links, with a track for each GPU and link.

    A flow leads to each operation from the last of those that it waits for. Counters tell the memory held, and how
    many GPUs of a server and how many links are taken. Times are microseconds.
    A link that is shared by several lanes' names stays one track, so no two events of a track overlap.
    """
    import msgspec

    processes = _processes(picture)
    events = list(_metadata(picture, processes))
    names = [(job.name, own) for job, own in zip(picture.plan.jobs, picture.operations, strict=True)]
    for track, lane in enumerate(picture.lanes):
        where = {"pid": processes[_process(lane)], "tid": track}
        events.extend({**where, **_event(*names[interval.job], interval)} for interval in lane.intervals)
    events.extend(_flows(picture, processes))
    events.extend(_taken(picture, processes))
    events.extend(_memory(picture))
    return msgspec.json.encode({"traceEvents": events, "displayTimeUnit": "ms"})


def phases_trace(instance: Instance, plan: Plan, replay: Replay | None = None) -> bytes:
    """Trace events as JSON: a process for each group with a track for each of its jobs, and one event for each phase.

    Each event says what its period is, how often it takes place and how many iterations the job does in it. With a
    replay each job has a second track, with what was measured.
    """
    import msgspec

    events: list[dict[str, Any]] = []
    tracks = {job.name: number for number, job in enumerate(instance.jobs)}
    for g, group in enumerate(plan.groups):
        events.append({"ph": "M", "name": "process_name", "pid": g, "tid": 0, "args": {"name": f"group {g}"}})
        for name in dict.fromkeys(job.name for phase in group.phases for job in phase.jobs):
            where = {"ph": "M", "pid": g, "tid": tracks[name]}
            events.append({**where, "name": "thread_name", "args": {"name": name}})
    for g, p, phase in plan.all_phases():
        for job in phase.jobs:
            args = {"phase": p, "period_us": phase.period_us, "repeats": phase.repeats}
            time = {"ts": phase.start_us, "dur": phase.end_us - phase.start_us}
            args |= {"iterations": len(job.iterations)}
            events.append({"ph": "X", "name": job.name, "pid": g, "tid": tracks[job.name], **time, "args": args})
    events.extend(_measured(tracks, replay) if replay else ())
    return msgspec.json.encode({"traceEvents": events, "displayTimeUnit": "ms"})


def _measured(tracks: Mapping[str, int], replay: Replay) -> Iterator[dict[str, Any]]:
    """Phases as they were measured, where that is known, on tracks behind those of the plan."""
    known = [phase for phase in replay.phases if phase.measured_end_us is not None]
    for group, name in dict.fromkeys((phase.group, job.name) for phase in known for job in phase.timeline.jobs):
        where = {"ph": "M", "pid": group, "tid": len(tracks) + tracks[name]}
        yield {**where, "name": "thread_name", "args": {"name": f"{name} measured"}}
    for phase in known:
        begin, end = phase.measured_begin_us or 0, phase.measured_end_us or 0
        period = phase.summary and phase.summary.measured_us
        args = {"phase": phase.number, "period_us": period, "repeated": phase.repeated, "repeats": phase.repeats}
        for job in phase.timeline.jobs:
            where = {"ph": "X", "pid": phase.group, "tid": len(tracks) + tracks[job.name]}
            yield {**where, "name": job.name, "ts": begin, "dur": end - begin, "args": args}


def _process(lane: Lane) -> str:
    """Name of the process that a lane is in: its server, or the links."""
    if lane.kind.endswith("link"):
        return f"{lane.kind}s"
    return f"{lane.kind.removesuffix('gpu')}server {lane.name.rpartition('/')[0]}"


def _processes(picture: Picture) -> dict[str, int]:
    """Number of each process by its name, in the order of the lanes."""
    return {name: number for number, name in enumerate(dict.fromkeys(map(_process, picture.lanes)), _MEMORY + 1)}


def _metadata(picture: Picture, processes: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    for name, process in processes.items():
        yield {"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": {"name": name}}
        yield {"ph": "M", "name": "process_sort_index", "pid": process, "tid": 0, "args": {"sort_index": process}}
    for track, lane in enumerate(picture.lanes):
        where = {"ph": "M", "pid": processes[_process(lane)], "tid": track}
        yield {**where, "name": "thread_name", "args": {"name": lane.name}}
        yield {**where, "name": "thread_sort_index", "args": {"sort_index": track}}


def _event(job: str, operations: tuple[str, ...], interval: Interval) -> dict[str, Any]:
    """An interval under the name of its job, or that of its operation where the job has a shape."""
    part = {"worker": interval.number, "level": interval.level} if interval.level else {"bucket": interval.number}
    return {
        "ph": "X",
        "name": operations[interval.number] if operations else job,
        "cat": "block" if interval.level else "transfer",
        "ts": interval.start_us,
        "dur": interval.end_us - interval.start_us,
        "args": {"iteration": interval.iteration, **({"job": job} if operations else part)},
    }


def _flows(picture: Picture, processes: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    """An arrow for each operation that waits for another one, which begins and ends within both."""
    for number, (before, after) in enumerate(last_needs(picture)):
        start_us = after.interval.start_us
        for phase, one, moment in (("s", before, min(before.interval.end_us, start_us)), ("f", after, start_us)):
            where = {"pid": processes[_process(picture.lanes[one.lane])], "tid": one.lane, "ts": moment}
            event = {"ph": phase, "id": number, "name": "waits for", "cat": "need", **where}
            yield event | ({"bp": "e"} if phase == "f" else {})


def _taken(picture: Picture, processes: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    """A counter for each process: how many of its lanes are taken."""
    changes = defaultdict[str, Counter[int]](Counter)
    for lane in picture.lanes:
        for interval in lane.intervals:
            changes[_process(lane)][interval.start_us] += 1
            changes[_process(lane)][interval.end_us] -= 1
    for process, steps in changes.items():
        name = "links taken" if process.endswith("links") else "GPUs taken"
        taken = 0
        for moment, change in sorted(steps.items()):
            taken += change
            if change:
                where = {"pid": processes[process], "tid": 0, "ts": moment}
                yield {"ph": "C", "name": name, **where, "args": {"taken": taken}}


def _memory(picture: Picture) -> Iterator[dict[str, Any]]:
    """A counter for each GPU that holds memory over time; its last value is 0, at the end."""
    if picture.memory:
        yield {"ph": "M", "name": "process_name", "pid": _MEMORY, "tid": 0, "args": {"name": "memory"}}
    for gpu, use in picture.memory.items():
        values = [*((step.start_us, step.bytes) for step in use.steps), (picture.end_us, 0)]
        for moment, size in values:
            yield {"ph": "C", "name": gpu, "pid": _MEMORY, "tid": 0, "ts": moment, "args": {"bytes": size}}

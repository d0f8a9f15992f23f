"""A plan as a trace for Perfetto and chrome://tracing."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from jigsaw_opt.problem.measured.replay import MeasuredPhase
from jigsaw_opt.problem.plan import Phase
from jigsaw_opt.views.lanes import Lane, Picture

_MEMORY = 1
"""Number of the process of the counters; those of servers and links follow."""


def perfetto_trace(picture: Picture) -> bytes:
    """Return trace events as JSON.

    There is a process for each server and one for the links, with a track for each GPU and link.

    Counters tell the memory held, and how many GPUs of a server and how many links are taken. Times are microseconds.
    A link that is shared by several lanes' names stays one track, so no two events of a track overlap.
    Of a phased plan there is a process for each group with a track for each of its jobs, and an event for each phase,
    with its period, its repetitions and the iterations of the job in each.
    """
    processes = _processes(picture)
    events = list(_metadata(picture, processes))
    for track, lane in enumerate(picture.lanes):
        where = {"pid": processes[_process(lane)], "tid": track}
        events.extend({**where, **event} for event in _events(picture, lane))
    if not picture.plan.is_phased:
        events.extend(_taken(picture, processes))
        events.extend(_memory(picture))
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}, separators=(",", ":")).encode()


def _process(lane: Lane) -> str:
    """Return the name of the process that a lane is in: its server, the links, or its group."""
    if lane.has_phases:
        return f"group {lane.group}"
    if lane.kind.endswith("link"):
        return f"{lane.kind}s"
    return f"{lane.kind.removesuffix('gpu')}server {lane.name.rpartition('/')[0]}"


def _processes(picture: Picture) -> dict[str, int]:
    """Return the number of each process by its name, in the order of the lanes."""
    return {name: number for number, name in enumerate(dict.fromkeys(map(_process, picture.lanes)), _MEMORY + 1)}


def _metadata(picture: Picture, processes: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    for name, process in processes.items():
        yield {"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": {"name": name}}
        yield {"ph": "M", "name": "process_sort_index", "pid": process, "tid": 0, "args": {"sort_index": process}}
    for track, lane in enumerate(picture.lanes):
        where = {"ph": "M", "pid": processes[_process(lane)], "tid": track}
        yield {**where, "name": "thread_name", "args": {"name": lane.name}}
        yield {**where, "name": "thread_sort_index", "args": {"sort_index": track}}


def _events(picture: Picture, lane: Lane) -> Iterator[dict[str, Any]]:
    """Yield intervals under the names of their jobs, or of their operations where the job has a task graph."""
    phases, operations = list(picture.plan.all_phases()), picture.operations
    for interval in lane.intervals:
        job, names = picture.instance.jobs[interval.job].name, operations[interval.job]
        if lane.has_phases:
            measured = picture.measured[interval.number] if lane.is_measured else None
            category, name, args = "phase", job, _phase_args(phases[interval.number], job, measured)
        else:
            part = (
                {"worker": interval.number, "level": interval.level} if interval.level else {"bucket": interval.number}
            )
            category, name = "block" if interval.level else "transfer", names[interval.number] if names else job
            args = {"iteration": interval.iteration, **({"job": job} if names else part)}
        times = {"ts": interval.start_us, "dur": interval.end_us - interval.start_us}
        yield {"ph": "X", "name": name, "cat": category, **times, "args": args}


def _phase_args(placed: tuple[int, int, Phase], job: str, measured: MeasuredPhase | None) -> dict[str, Any]:
    _, p, phase = placed
    if measured is not None:
        period = measured.summary and measured.summary.measured_us
        return {"phase": p, "period_us": period, "repeated": measured.repeated, "repeats": measured.repeats}
    (iterations,) = (len(own.iterations) for own in phase.jobs if own.name == job)
    return {"phase": p, "period_us": phase.period_us, "repeats": phase.repeats, "iterations": iterations}


def _taken(picture: Picture, processes: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    """Yield a counter for each process: how many of its lanes are taken."""
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
    """Yield a counter for each GPU that holds memory over time; its last value is 0, at the end."""
    if picture.memory:
        yield {"ph": "M", "name": "process_name", "pid": _MEMORY, "tid": 0, "args": {"name": "memory"}}
    for gpu, use in picture.memory.items():
        values = [*((step.start_us, step.bytes) for step in use.steps), (picture.end_us, 0)]
        for moment, size in values:
            yield {"ph": "C", "name": gpu, "pid": _MEMORY, "tid": 0, "ts": moment, "args": {"bytes": size}}

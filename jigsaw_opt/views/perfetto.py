"""A plan as a trace for Perfetto and chrome://tracing."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from jigsaw_opt.problem.measured.replay import MeasuredPhase
from jigsaw_opt.problem.plan import Phase
from jigsaw_opt.views.lanes import Interval, Lane, Picture

_Edges = list[tuple[int, int, int]]


class Drawn(NamedTuple):
    """An interval on a lane, by the number of the lane."""

    lane: int
    interval: Interval


def last_needs(picture: Picture) -> Iterator[tuple[Drawn, Drawn]]:
    """Yield for each operation, of those that it waits for, the one that ends last, and the operation itself.

    `picture`: lanes of a plan or of a replay. An operation on several lanes stands on the first of them; one that a
    cyclic plan carries over the end of its period, and a need in the period before, are left out.
    """
    operations, edges = picture.operations, picture.edges
    for (job, _), drawn in _by_job(picture).items():
        needs = _needs(edges[job] if operations[job] else None)
        rounds = defaultdict[int, list[Drawn]](list)
        for one in drawn:
            rounds[one.interval.iteration].append(one)
        for one in drawn:
            found = list(needs(one.interval, rounds))
            if found:
                yield max(found, key=partial(_rank, one.interval.start_us)), one


def _rank(start_us: int, need: Drawn) -> tuple[int, bool]:
    """Return when a need was met at the latest, a transfer before a block that runs on."""
    return min(need.interval.end_us, start_us), not need.interval.level


def _by_job(picture: Picture) -> dict[tuple[int, bool], list[Drawn]]:
    """Return whole operations by number of the job and whether they are measured, each on its first lane."""
    first: dict[tuple[object, ...], Drawn] = {}
    parts = defaultdict[tuple[object, ...], set[tuple[int, int]]](set)
    for number, lane in enumerate(picture.lanes):
        measured = lane.kind.startswith("measured")
        for interval in lane.intervals:
            key = (interval.job, measured, interval.iteration, interval.number, interval.level > 0)
            first.setdefault(key, Drawn(number, interval))
            parts[key].add((interval.start_us, interval.end_us))
    found = defaultdict[tuple[int, bool], list[Drawn]](list)
    for name, drawn in first.items():
        if len(parts[name]) == 1:
            found[drawn.interval.job, bool(name[1])].append(drawn)
    return found


def _needs(edges: _Edges | None) -> Callable[[Interval, dict[int, list[Drawn]]], Iterable[Drawn]]:
    """Return what an operation waits for, among those of its job by iteration; `edges` are those of a task graph."""

    def of_task_graph(interval: Interval, rounds: dict[int, list[Drawn]]) -> Iterable[Drawn]:
        wanted = {(before, interval.iteration - lag) for before, after, lag in edges or () if after == interval.number}
        for iteration in {iteration for _, iteration in wanted}:
            for one in rounds.get(iteration, ()):
                if (one.interval.number, iteration) in wanted and one.interval.end_us <= interval.start_us:
                    yield one

    def of_training(interval: Interval, rounds: dict[int, list[Drawn]]) -> Iterable[Drawn]:
        """Return the barrier before a block; before a transfer, those before it and the blocks that reach its bucket.

        Such a block may still run.
        """
        if interval.level:
            return (one for one in rounds.get(interval.iteration - 1, ()) if one.interval.end_us <= interval.start_us)
        own = [one for one in rounds.get(interval.iteration, ()) if one.interval.start_us <= interval.start_us]
        return (
            one
            for one in own
            if (one.interval.level >= interval.number if one.interval.level else one.interval.number < interval.number)
        )

    return of_training if edges is None else of_task_graph


_MEMORY = 1
"""Number of the process of the counters; those of servers and links follow."""


def perfetto_trace(picture: Picture) -> bytes:
    """Return trace events as JSON.

    There is a process for each server and one for the links, with a track for each GPU and link.

    A flow leads to each operation from the last of those that it waits for. Counters tell the memory held, and how
    many GPUs of a server and how many links are taken. Times are microseconds.
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
        events.extend(_flows(picture, processes))
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


def _flows(picture: Picture, processes: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    """Yield an arrow for each operation that waits for another one, which begins and ends within both."""
    for number, (before, after) in enumerate(last_needs(picture)):
        start_us = after.interval.start_us
        for phase, one, moment in (("s", before, min(before.interval.end_us, start_us)), ("f", after, start_us)):
            where = {"pid": processes[_process(picture.lanes[one.lane])], "tid": one.lane, "ts": moment}
            event = {"ph": phase, "id": number, "name": "waits for", "cat": "need", **where}
            yield event | ({"bp": "e"} if phase == "f" else {})


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

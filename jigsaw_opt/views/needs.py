"""What each operation of a plan waits for last, between the places where both are drawn."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple

from jigsaw_opt.views.lanes import Interval, Picture

__all__ = ["Drawn", "last_needs"]

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

"""The plan of the foreground as GPUs, links and memory see it, also at a longer period."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from jigsaw_opt.problem.compiled.operations import Operations
from jigsaw_opt.problem.compiled.timetable import Gpu, Timetable
from jigsaw_opt.problem.plan import JobPlan, Plan, TaskGraphJobPlan
from jigsaw_opt.solvers.activities.timetables import planned_network, starts_of

Resource = Gpu | int
"""A GPU, or the index of a link."""
Gaps = Mapping[int, int]
"""By moment of the period, so many microseconds are put in before what starts then or later."""


def gpu_numbers(operations: Operations) -> Mapping[str, Gpu]:
    """Return the place of each GPU by its name."""
    return operations.cluster.gpus.place_of


@dataclass(frozen=True, slots=True)
class _PeriodShift:
    """Moments after gaps have been put in; the order of moments stays, and no two come closer (Stretching)."""

    period_us: int
    moments: tuple[int, ...]
    sums: tuple[int, ...]

    def __call__(self, moment: int) -> int:
        turns, offset = divmod(moment, self.period_us)
        return moment + turns * self.sums[-1] + self.sums[bisect_right(self.moments, offset)]


class KeptPlan:
    """The foreground's plan.

    `operations`: the compiled instance of the foreground alone. `period_us`: the period of that plan, in microseconds.
    `moments`: all moments of the period at which something starts, ascending. `starts`: GPUs, and moments at which
    something starts there.
    """

    def __init__(self, operations: Operations, plan: Plan) -> None:
        self.plan, self.period_us = plan, plan.objective
        self._busy: dict[Resource, list[tuple[int, int]]] = defaultdict(list)
        timetable = Timetable.of(plan.jobs, plan.period_us)
        self._network = planned_network(operations, timetable)
        starts = self._network.with_milestones(starts_of(timetable), plan.period_us)
        done = [(at, at + own.duration_us) for at, own in zip(starts, self._network.activities, strict=True)]
        for activity, (start, end) in zip(self._network.activities, done, strict=True):
            used: tuple[Resource, ...] = (*activity.gpus, *activity.links) if activity.duration_us else ()
            for resource in used:
                self._busy[resource].append((start, end))
        self.moments = sorted({start % self.period_us for start in starts_of(timetable)})
        self.starts = [
            (resource, start % self.period_us)
            for resource, times in self._busy.items()
            if isinstance(resource, tuple)
            for start, _ in times
        ]
        self._held = self._most_held(done)

    def busy(self, gaps: Gaps) -> dict[Resource, list[tuple[int, int]]]:
        """Return for each GPU and link the starts and ends of what occupies it, with gaps put in."""
        shift = self.shift(gaps)
        return {
            resource: [(moved := shift(start), moved + end - start) for start, end in times]
            for resource, times in self._busy.items()
        }

    def jobs(self, gaps: Gaps) -> Iterator[JobPlan | TaskGraphJobPlan]:
        """Yield the plans of its jobs, after gaps have been put in."""
        shift = self.shift(gaps)
        yield from (job.moved(shift) for job in self.plan.jobs)

    def memory(self, gpu: Gpu) -> tuple[int, int]:
        """Return bytes that it takes of a GPU at most beside activations of workers, and these."""
        return self._network.memory_bytes[gpu] + self._held[gpu], self._network.activation_bytes[gpu]

    def shift(self, gaps: Gaps) -> Callable[[int], int]:
        """Return where moments are after gaps have been put in."""
        moments = tuple(sorted(gaps))
        return _PeriodShift(self.period_us, moments, tuple(accumulate((gaps[moment] for moment in moments), initial=0)))

    def _most_held(self, done: Sequence[tuple[int, int]]) -> Counter[Gpu]:
        """Return for each GPU the most bytes held at once; gaps add none, for they hold what was held just before."""
        changes: dict[Gpu, list[tuple[int, int]]] = defaultdict(list)
        now, most = Counter[Gpu](), Counter[Gpu]()
        for hold in self._network.holds:
            start, end = done[hold.start][0], done[hold.end][1]
            if end <= start:
                continue
            copies = end // self.period_us - start // self.period_us
            now[hold.gpu] += copies * hold.bytes
            changes[hold.gpu] += [(start % self.period_us, hold.bytes), (end % self.period_us, -hold.bytes)]
        for gpu, events in changes.items():
            # At one moment, what ends comes first.
            most[gpu] = max(accumulate((change for _, change in sorted(events)), initial=now[gpu]))
        return most

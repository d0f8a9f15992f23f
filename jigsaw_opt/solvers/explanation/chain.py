"""Back from a moment over what a job waited for: each operation ran as soon as the one before it in the chain let it.

The chain stays within the job. Where an operation starts later than the operations of its own job allow, the time
between is a wait, and who was in the way says for what.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Literal, NamedTuple, get_args

from jigsaw_opt.problem.clock import checking_deadline
from jigsaw_opt.solvers.activities.presence import spans
from jigsaw_opt.solvers.resolve.kept_order import KeptOrder


class Occupation(NamedTuple):
    """An activity on a GPU or link.

    `shift_us`: how much later than in the first period; 0 on the finite horizon.
    """

    start_us: int
    end_us: int
    activity: int
    shift_us: int


class BusyTimes:
    """The activities on one GPU or link, which never overlap.

    `activities`: as (number, start, duration), in microseconds; durations are above 0. `period`: in microseconds; None
    on the finite horizon.
    """

    def __init__(self, activities: Iterable[tuple[int, int, int]], period: int | None) -> None:
        self._period = period
        first = sorted(
            (start if period is None else start % period, start, number, length) for number, start, length in activities
        )
        self._starts = [begin for begin, *_ in first]
        self._of_first = [Occupation(b, b + length, number, b - start) for b, start, number, length in first]

    def before(self, moment: int) -> Iterator[Occupation]:
        """Yield what starts before a moment, the latest first; on the cyclic horizon without end."""
        period = self._period
        if period is None:
            for at in range(bisect_left(self._starts, moment) - 1, -1, -1):
                yield self._of_first[at]
            return
        turn, rest = divmod(moment, period)
        at, count = bisect_left(self._starts, rest) - 1, len(self._starts)
        while True:
            shift = (turn + at // count) * period
            start, end, activity, own = self._of_first[at % count]
            yield Occupation(start + shift, end + shift, activity, own + shift)
            at -= 1


class UseOverTime:
    """Bytes held on one GPU, or watts drawn under one power cap, over time.

    `holds`: as (start, end, bytes or watts). `room`: how much may be taken in all. `period`: in microseconds; None on
    the finite horizon. `activations`: as (start, end, bytes); of those that overlap, only the largest counts. None on
    the cyclic horizon.
    """

    def __init__(
        self,
        holds: Sequence[tuple[int, int, int]],
        room: int,
        period: int | None,
        activations: Sequence[tuple[int, int, int]] = (),
    ) -> None:
        self._room, self._period = room, period
        changes, always = defaultdict[int, int](int), 0
        changes[0] = 0
        for start, end, size in holds:
            begin, length = start, end - start
            if period is not None:
                begin, (whole, length) = start % period, divmod(length, period)
                always += whole * size
                if begin + length > period:  # what reaches over the end is there at the beginning
                    always, length = always + size, length - period
            changes[begin] += size
            changes[begin + length] -= size
        for start, end, _ in activations:
            changes[start] += 0
            changes[end] += 0
        self._times = sorted(time for time in changes if period is None or time < period)
        self._levels = []
        for time in self._times:
            always += changes[time]
            self._levels.append(always)
        self._most = [
            max((size for start, end, size in activations if start <= time < end), default=0) for time in self._times
        ]

    def full(self, more: int, since: int, until: int, activations: int = 0) -> Iterator[tuple[int, int]]:
        """Yield intervals between two moments in which there is no room for some more, the latest first."""
        turn, rest = (0, until) if self._period is None else divmod(until, self._period)
        at, count, upper = bisect_left(self._times, rest) - 1, len(self._times), until
        while upper > since and (self._period is not None or at >= 0):
            lower = self._times[at % count] + (turn + at // count) * (self._period or 0)
            if self._levels[at % count] + max(self._most[at % count], activations) + more > self._room:
                yield max(lower, since), upper
            at, upper = at - 1, lower


_REMEMBERED = 256
"""Activities whose waits are kept: those of a job, mostly."""

StepKind = Literal["compute", "exchange", "partner", "gpu", "link", "memory", "held", "power", "release", "slack"]
KINDS: tuple[StepKind, ...] = get_args(StepKind)
"""Where time goes, in the order of tables. `partner` is another worker's block, for a worker that waits for it."""


@dataclass(frozen=True, slots=True)
class ChainStep:
    """A stretch of a job's time.

    `kind`: what the job does, or what it waits for. `start_us, end_us`: from when to when, in microseconds. `activity`:
    the operation that runs, or that waits. `on`: where it waits: number of a GPU or link among the resources, or of a
    power cap; None for any other kind. `by`: an activity of the job that is in the way there; None where there is none.
    """

    kind: StepKind
    start_us: int
    end_us: int
    activity: int
    on: int | None = None
    by: int | None = None


class _Obstacle(NamedTuple):
    """Obstacle that kept an activity from its start for a time; `by` is None where nobody says when there is room."""

    start_us: int
    end_us: int
    kind: StepKind
    on: int
    by: int | None


class _Cause(NamedTuple):
    """Cause of the start of an operation.

    `since` is the moment from which its own job lets it start, `before` what it waits for until then: another
    activity of the job and its shift, or None for the release. `obstacles` are other jobs on its GPUs and links then.
    """

    since: int
    before: tuple[int, int] | None
    obstacles: list[_Obstacle]


class Chains:
    """Chains of the jobs of a plan."""

    def __init__(self, order: KeptOrder) -> None:
        self._flat, self._starts, self._period = order.flat, order.starts, order.period_us
        self._gpus = order.operations.cluster.gpu_count
        self._busy = self._busy_times()
        # The chain of a job and those of its workers go through the same activities.
        self._before = lru_cache(_REMEMBERED)(self._led_to)

    def _busy_times(self) -> dict[int, BusyTimes]:
        found: dict[int, list[tuple[int, int, int]]] = {}
        for activity, used in enumerate(self._flat.resources):
            for resource in used:
                own = (activity, self._starts[activity], self._flat.duration_us[activity])
                found.setdefault(resource, []).append(own)
        return {resource: BusyTimes(own, self._period) for resource, own in found.items()}

    @cached_property
    def _waits(self) -> list[list[tuple[int, int, int]]]:
        """Return, by activity, what it waits for, how long after the start of that, and how many periods later."""
        found: list[list[tuple[int, int, int]]] = [[] for _ in self._starts]
        for before, after, length, periods in self._flat.arcs:
            found[after].append((before, length, periods))
        return found

    @cached_property
    def _memory(self) -> dict[int, UseOverTime]:
        holds: dict[int, list[tuple[int, int, int]]] = {}
        for activity, opened in enumerate(self._flat.opens):
            for gpu, size, last in opened:
                end = self._starts[last] + self._flat.duration_us[last]
                holds.setdefault(gpu, []).append((self._starts[activity], end, size))
        activations: dict[int, list[tuple[int, int, int]]] = {}
        for (begin, end), residents in zip(self._spans, self._flat.residents, strict=True):
            for gpu, size, most in residents:
                holds.setdefault(gpu, []).append((begin, end, size))
                activations.setdefault(gpu, []).append((begin, end, most))
        room, period = self._flat.room, self._period
        return {gpu: UseOverTime(own, room[gpu], period, activations.get(gpu, ())) for gpu, own in holds.items()}

    @cached_property
    def _power(self) -> list[UseOverTime]:
        """Return the watts that are drawn under each power cap."""
        drawn: list[list[tuple[int, int, int]]] = [[] for _ in self._flat.limits]
        for activity, own in enumerate(self._flat.uses):
            start = self._starts[activity]
            for cap, watts in own:
                drawn[cap].append((start, start + self._flat.duration_us[activity], watts))
        return [UseOverTime(own, watts, self._period) for own, watts in zip(drawn, self._flat.limits, strict=True)]

    @cached_property
    def _spans(self) -> list[tuple[int, int]]:
        """Return begin and end of each job where jobs take memory in time; nothing where all are always present."""
        return spans(self._flat, self._starts) if self._flat.residents else []

    def back(self, activity: int, upper: int, floor: int, shift: int = 0) -> Iterator[ChainStep]:
        """Return the chain that leads to a moment, the latest step first; the steps fill the time without a gap."""
        for step in checking_deadline(self._steps(activity, upper, floor, shift)):
            start, end = max(step.start_us, floor), min(step.end_us, upper)
            if start < end:
                yield ChainStep(step.kind, start, end, step.activity, step.on, step.by)
            if step.start_us <= floor:
                return

    def waits(self, activity: int) -> list[ChainStep]:
        """Return the steps between the time when its own job lets an activity start and its start, in order of time."""
        return self._before(activity, 0)[1]

    def _steps(self, activity: int, upper: int, floor: int, shift: int) -> Iterator[ChainStep]:
        while True:
            start = self._starts[activity] + shift
            yield ChainStep(self._kind(activity), start, upper, activity)
            cause, wait = self._before(activity, shift)
            yield from reversed(wait)
            if cause.before is None:
                yield ChainStep("release", min(floor, cause.since), cause.since, activity)
                return
            (activity, shift), upper = cause.before, cause.since

    def _led_to(self, activity: int, shift: int) -> tuple[_Cause, list[ChainStep]]:
        cause = self._cause(activity, shift)
        return cause, self._wait(activity, self._starts[activity] + shift, cause)

    def _kind(self, activity: int) -> StepKind:
        # A block that takes no time uses no GPU, and counts as none.
        on_gpu = any(resource < self._gpus for resource in self._flat.resources[activity])
        return "compute" if on_gpu else "exchange"

    def _cause(self, activity: int, shift: int) -> _Cause:
        start = self._starts[activity] + shift
        since: int = self._flat.release_us[activity]
        before: tuple[int, int] | None = None
        if self._period is not None:
            since = start - self._period
        for other, length, periods in self._waits[activity]:
            own = shift - periods * (self._period or 0)
            moment = self._starts[other] + own + length
            if moment > since or (before is None and moment == since):
                since, before = moment, (other, own)
        others = list[_Obstacle]()
        for resource in self._flat.resources[activity]:
            for interval in self._busy[resource].before(start):
                if interval.end_us <= since:
                    break
                if self._flat.job[interval.activity] == self._flat.job[activity]:
                    since, before = interval.end_us, (interval.activity, interval.shift_us)
                    break
                kind: StepKind = "gpu" if resource < self._gpus else "link"
                others.append(_Obstacle(interval.start_us, interval.end_us, kind, resource, interval.activity))
        return _Cause(since, before, [each for each in others if each.end_us > since])

    def _wait(self, activity: int, start: int, cause: _Cause) -> list[ChainStep]:
        """Return the steps between the moment when its job lets an activity start, and its start."""
        obstacles = sorted(
            [*cause.obstacles, *self._full(activity, cause.since, start)], key=lambda obstacle: obstacle[:2]
        )
        free = cause.since  # when it could have started with all others as they are
        for obstacle in obstacles:
            if obstacle.start_us < free + self._flat.duration_us[activity] and obstacle.end_us > free:
                free = obstacle.end_us
        steps = []
        cuts = {cause.since, free} | {
            moment for obstacle in obstacles for moment in obstacle[:2] if cause.since < moment < free
        }
        parts = list(pairwise(sorted(cuts)))
        for (low, high), obstacle in zip(parts, _in_the_way(obstacles, [low for low, _ in parts]), strict=True):
            steps.append(ChainStep(obstacle.kind, low, high, activity, obstacle.on, obstacle.by))
        if free < start:
            steps.append(ChainStep("slack", free, start, activity))
        return self._joined(steps)

    def _joined(self, steps: Sequence[ChainStep]) -> list[ChainStep]:
        """Return steps in order of time; merge neighbours in which the same job is in the way at one place."""
        found: list[ChainStep] = []
        for step in steps:
            if found and self._alike(found[-1], step):
                found[-1] = replace(found[-1], end_us=step.end_us)
            else:
                found.append(step)
        return found

    def _alike(self, one: ChainStep, other: ChainStep) -> bool:
        jobs = [None if occupant.by is None else self._flat.job[occupant.by] for occupant in (one, other)]
        return (one.kind, one.on, jobs[0]) == (other.kind, other.on, jobs[1])

    def _full(self, activity: int, since: int, start: int) -> Iterator[_Obstacle]:
        """Return when there is no room for what an activity draws or begins to hold, and for its job if it is first."""
        for cap, watts in self._flat.uses[activity] if self._flat.uses else ():
            for low, high in self._power[cap].full(watts, since, start):
                yield _Obstacle(low, high, "power", cap, None)
        job = self._flat.job[activity]
        for gpu, size, most in self._flat.residents[job] if self._spans and self._spans[job][0] == start else ():
            for low, high in self._memory[gpu].full(size, since, start, most):
                yield _Obstacle(low, high, "memory" if gpu < self._gpus else "held", gpu, self._leaver(gpu, high))
        for gpu, size, last in self._flat.opens[activity]:
            for low, high in self._memory[gpu].full(size, since, start):
                # What another activity ends is held from the start until then, so it begins after the last such time.
                yield _Obstacle(low if last == activity else since, high, "memory", gpu, None)
                if last != activity:
                    break

    def _leaver(self, gpu: int, moment: int) -> int | None:
        """Return the last activity of a job that gives back memory of a GPU at a moment; None where there is none."""
        for job, residents in enumerate(self._flat.residents):
            if self._spans[job][1] == moment and any(gpu == own for own, _, _ in residents):
                own = (a for a, each in enumerate(self._flat.job) if each == job)
                return max(own, key=lambda a: self._starts[a] + self._flat.duration_us[a])
        return None


def _in_the_way(obstacles: Sequence[_Obstacle], moments: Sequence[int]) -> Iterator[_Obstacle]:
    """Yield another job, else full memory or power, at each moment, or what comes next: the hole is too short then.

    Both are in order of time.
    """
    there, following = list[_Obstacle](), 0
    for moment in moments:
        while following < len(obstacles) and obstacles[following].start_us <= moment:
            there.append(obstacles[following])
            following += 1
        there = [interval for interval in there if interval.end_us > moment]
        if there:
            yield next((interval for interval in there if interval.kind in ("gpu", "link")), there[0])
        else:
            yield obstacles[following]

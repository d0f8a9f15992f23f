"""Jobs at rates: each does iterations at a rate, as far as those before it in an order leave GPUs, links and memory.

An order and a placement of all jobs say when each ends, in about a millisecond, without any timetable. The counts of a
phase are rates in whole numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import inf

from jigsaw_opt.errors import OutOfTimeError
from jigsaw_opt.solvers.engines.compiled import Numbers, arrays, compiled
from jigsaw_opt.solvers.kernels.processor_sharing import (
    SharingState,
    SharingTable,
    find_tight,
    set_rates,
    share_processors,
)
from jigsaw_opt.solvers.phased.phases import GroupProgress, Jobs, RunningJobs, Timing
from jigsaw_opt.solvers.phased.shelves import iteration_counts
from jigsaw_opt.solvers.phased.timer import UntimedError

_PERIODS, _MOST = 8, 16
"""Iterations of a job that a period is as long as, and iterations of one job in it, at most."""
_MEASURED = 4
"""Counts of several jobs that are tried with cyclic plans, which take long to make."""
OF_ONE = (1, 2, 4, 8)
"""Iterations that a period of one job may have: where the mean of its levels counts, more round up less."""
_WORTH_AN_ITERATION = 0.001
"""Share of the speed for which a period may have one iteration more."""


@dataclass(frozen=True, slots=True, eq=False)
class RateJob:
    """A job on its GPUs.

    `gpus`: names of the GPUs of its workers. `iteration_us`: time of an iteration when no one is in the way.
    `loads_us`: busy time of each GPU and link in an iteration, by number. `state_bytes, activation_bytes`: memory on
    each of its GPUs, with the deepest level. `options`: of a job that may move: the same on other GPUs, the fastest in
    front. It is itself as fast as that one. `anywhere`: whether it is meant to be on any GPUs of one server that is
    like its own.
    """

    name: str
    iterations: int
    weight: int
    release_us: int
    deadline_us: int | None
    gpus: tuple[str, ...]
    iteration_us: int
    loads_us: tuple[tuple[int, float], ...]
    state_bytes: int
    activation_bytes: int
    restart_us: int | None = None
    options: tuple[RateJob, ...] = ()
    anywhere: bool = False

    @property
    def alone_us(self) -> int:
        """Return the time of all its iterations without contention, in microseconds."""
        return self.iteration_us * self.iterations


class RateJobs:
    """Jobs that are told apart by number, and when they end in any order.

    `memory`: bytes by name of a GPU, server by server. `kinds`: by name of a server, what alike servers have in common;
    None where jobs do not move.
    """

    def __init__(self, memory: Mapping[str, int], kinds: Mapping[str, object] | None = None) -> None:
        self._names = list(memory)
        self._gpu = {name: number for number, name in enumerate(memory)}
        self._number: dict[RateJob, int] = {}
        self._placed: dict[tuple[str, tuple[str, ...]], int] = {}
        self._resources = {number: number for number in self._gpu.values()}
        self._server = [name.rsplit("/", 1)[0] for name in memory]
        first = {server: self._server.index(server) for server in dict.fromkeys(self._server)}
        different = [*dict.fromkeys((kinds or {}).values())]
        self._kind = {server: 1 + different.index(kind) for server, kind in (kinds or {}).items()}
        # Kinds are counted from 1: in the table, 0 marks servers and jobs that have none.
        kind = [self._kind.get(server, 0) for server in first]
        servers = [*first.values(), len(memory)]
        self._lists = SharingTable(
            [], [], [], [], [0], [], [], [0], [], [], [], [0], [], [*memory.values()], servers, kind
        )
        self._arrays: SharingTable | None = None

    def ends_us(self, order: Sequence[RateJob]) -> list[float]:
        """Return when each job of an order ends, in microseconds; those that come first have priority."""
        numbers: Numbers = [self.number(job) for job in order]
        table, state = self._lists, self._state(order, [float(job.iterations) for job in order])
        # Until the compiled function is ready, the same source runs in Python, with the same result.
        native = compiled(share_processors)
        if native is not None:
            self._arrays = self._arrays or arrays(self._lists)
            table, state, numbers = self._arrays, arrays(state), arrays(numbers)
        (native or share_processors)(table, state, numbers)
        return list(state.end_us)

    def rates(self, order: Sequence[RateJob], progress: GroupProgress) -> dict[RateJob, float]:
        """Return the rates of the jobs that run from now on, in iterations per microsecond, on their GPUs then."""
        numbers = [self.number(job) for job in order]
        state = self._state(order, [float(progress.remaining.get(job.name, 0)) for job in order])
        # A single decision is too short to be worth the conversion to arrays.
        find_tight(self._lists, state, numbers)
        for p, job in enumerate(order):
            # A job that has begun keeps its memory and goes on. One that may move is put where it was, and is free to
            # go elsewhere.
            if job.name in progress.last and job.restart_us is None:
                state.begun[p] = 1
            elif job.name in progress.last:
                self._put(state, p, job, progress)
        set_rates(self._lists, state, numbers, progress.now_us)
        running = [(self._now(state, p, job), state.rate[p]) for p, job in enumerate(order) if state.rate[p]]
        return dict(running)

    def _put(self, state: SharingState, p: int, job: RateJob, progress: GroupProgress) -> None:
        """Put a job that may move where its last phase had it, if that phase has just ended."""
        gpus, end_us, _ = progress.last[job.name]
        state.ready_us[p] = float(end_us + (job.restart_us or 0))
        if progress.goes_on(job.name):
            state.on[p] = self._placed[job.name, gpus]
            state.place[state.place_at[p] : state.place_at[p + 1]] = [self._gpu[gpu] for gpu in gpus]

    def _now(self, state: SharingState, p: int, job: RateJob) -> RateJob:
        """Return a job on the GPUs that it has in a state."""
        if job.restart_us is None:
            return job
        there = state.place[state.place_at[p] : state.place_at[p + 1]]
        gpus = tuple(self._names[gpu] for gpu in there)
        option = next(one for one in job.options or (job,) if self._number[one] == state.on[p])
        self._placed[job.name, gpus] = state.on[p]
        if option.anywhere:
            loads = tuple((gpu, load_us) for gpu, (_, load_us) in zip(there, option.loads_us, strict=True))
            option = replace(option, gpus=gpus, loads_us=loads)
        return option

    def number(self, job: RateJob) -> int:
        """Return the number of a job; a new job gets a new one."""
        if job in self._number:
            return self._number[job]
        # Options get their numbers first: a row of the table is appended in one piece, and nothing may come between.
        options = [self.number(option) for option in job.options]
        # A new row outdates the arrays; `ends_us` makes them again when they are needed.
        table, self._arrays = self._lists, None
        table.iteration_us.append(float(job.iteration_us))
        table.release_us.append(float(job.release_us))
        table.state.append(job.state_bytes)
        table.activation.append(job.activation_bytes)
        for resource, load_us in job.loads_us:
            table.resource.append(self._resources.setdefault(resource, len(self._resources)))
            table.load_us.append(load_us)
        table.load_at.append(len(table.resource))
        table.gpu.extend(self._gpu[gpu] for gpu in job.gpus)
        table.gpu_at.append(len(table.gpu))
        # 0 is a restart that costs no time, so that a job that never moves is told by a negative number.
        table.restart_us.append(-1.0 if job.restart_us is None else float(job.restart_us))
        table.anywhere.append(self._kind[job.gpus[0].rsplit("/", 1)[0]] if job.anywhere else 0)
        number = self._number.setdefault(job, len(self._number))
        table.option.extend(options or [number])
        table.option_at.append(len(table.option))
        return number

    def _state(self, order: Sequence[RateJob], remaining: list[float]) -> SharingState:
        jobs, gpus = len(remaining), len(self._gpu)
        free, none = [1.0] * len(self._resources), [0] * gpus
        place_at = [0, *accumulate(len(job.gpus) for job in order)]
        return SharingState(
            remaining,
            [0.0] * jobs,
            [0.0] * jobs,
            [0] * jobs,
            free,
            none,
            none.copy(),
            none.copy(),
            [0] * (gpus + 1),
            [float(job.release_us) for job in order],
            [-1] * jobs,
            place_at,
            [0] * place_at[-1],
            [0] * max((len(job.gpus) for job in order), default=0),
        )


class RatePolicy:
    """Phases at the rates of an order.

    `order`: jobs of a group, those that come first in front. `jobs`: says at which rates they go. `timing`: makes
    cyclic plans, so that of the counts that waste least by their loads those are taken that waste least by the period
    that there is. A job that has not begun waits where there is no such plan with it. `most`: number of counts that are
    tried so.
    """

    def __init__(self, order: Sequence[RateJob], jobs: RateJobs, timing: Timing, most: int = _MEASURED) -> None:
        self._order, self._jobs, self._timing, self._most = order, jobs, timing, most

    def running(self, jobs: Jobs, progress: GroupProgress) -> RunningJobs:
        """Return the iterations in a period of each job that runs, its GPUs, and their cyclic plan.

        `jobs`: the jobs of the group by name.
        """
        order = list(self._order)
        while True:
            now = self._jobs.rates(order, progress)
            if not now:
                return RunningJobs({}, {})
            try:
                return self._measured(now, progress)
            except UntimedError:
                # Memory at rates is an estimate: intervals of task graphs may need more of it together.
                late = next((job for job in reversed([*now]) if job.name not in progress.last), None)
                if late is None or len(now) == 1:
                    raise
                order = [job for job in order if job.name != late.name]

    def _measured(self, rates: Mapping[RateJob, float], progress: GroupProgress) -> RunningJobs:
        """Return those counts that waste least by the periods of their cyclic plans, as far as time goes."""
        jobs, speeds = [*rates], {job.name: rate for job, rate in rates.items()}
        gpus = {job.name: job.gpus for job in jobs}
        found = whole_counts(jobs, speeds) if len(jobs) > 1 else [dict.fromkeys(speeds, count) for count in OF_ONE]
        best: RunningJobs | None = None
        most = -inf
        for wanted in found[: self._most]:
            counts = {name: min(count, progress.remaining[name]) for name, count in wanted.items()}
            try:
                plan = self._timing(counts, gpus)
            except OutOfTimeError:
                if best is None:
                    raise
                break
            gained = _gained(jobs, speeds, counts, plan.period_us or plan.objective)
            if gained > most:
                best, most = RunningJobs(counts, gpus, plan), gained
        assert best is not None
        return best


def whole_counts(jobs: Sequence[RateJob], rates: Mapping[str, float]) -> list[dict[str, int]]:
    """Return whole iterations in about the ratio of the rates, for periods that waste little, the best first.

    Periods are tried that are as long as some iterations of one of the jobs.

    Each by name of a job.

    `rates`: by name of a job, iterations per microsecond.
    """
    # In such a period at least one job has its exact rate, with whole iterations.
    periods = {k / rates[job.name] for job in jobs for k in range(1, _PERIODS + 1)}
    shortest = min(1 / rate for rate in rates.values())
    tried = [
        # k / rate * rate may come out just below k, and `int` would then lose an iteration.
        {job.name: max(1, int(period_us * rates[job.name] * (1 + 1e-9))) for job in jobs}
        for period_us in sorted(periods)
        # The fastest job then has at most `_MOST` iterations.
        if period_us <= _MOST * shortest
    ]
    different = {tuple(counts.values()): counts for counts in [*tried, iteration_counts(rates, _MOST)]}.values()
    ranked = sorted(
        different, key=lambda periods: _gained(jobs, rates, periods, _period_us(jobs, periods)), reverse=True
    )
    return ranked[:_MEASURED]


def _gained(jobs: Sequence[RateJob], rates: Mapping[str, float], counts: Mapping[str, int], period_us: float) -> float:
    """Return the share of the rates that a period comes to, by weight and length of jobs.

    More iterations cost a little.
    """
    worth = {job.name: job.weight * job.alone_us for job in jobs}
    speeds = (worth[job.name] * min(1.0, counts[job.name] / (period_us * rates[job.name])) for job in jobs)
    return sum(speeds) / sum(worth.values()) - _WORTH_AN_ITERATION * sum(counts.values()) / len(jobs)


def _period_us(jobs: Sequence[RateJob], counts: Mapping[str, int]) -> float:
    """Return the time of the longest job, or of the fullest GPU or link, in microseconds."""
    loads: dict[int, float] = {}
    for job in jobs:
        for resource, load_us in job.loads_us:
            loads[resource] = loads.get(resource, 0.0) + load_us * counts[job.name]
    return max(*(job.iteration_us * counts[job.name] for job in jobs), *loads.values())

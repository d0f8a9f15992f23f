"""A search over plans that keep the foreground's: its period stretched here and there, background jobs packed into it.

Two neighbourhoods take turns, each the more often the more often it gave something for its work (adaptive large
neighbourhood search; Ropke and Pisinger, Transportation Science 40, 2006). One puts a gap into the foreground's period,
as long as one more operation takes beside those that fit already, or takes gaps out; all jobs are packed anew where
they are. The other takes out some jobs and puts them back elsewhere, others in their place (*ruin and recreate*;
Schrimpf et al., Journal of Computational Physics 159, 2000).
"""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import groupby
from random import Random

from jigsaw_opt.planning.fill.loads import Loads, Vector, restricted
from jigsaw_opt.planning.fill.packing import BackgroundJob, FilledPeriod
from jigsaw_opt.planning.fill.stretching import Gaps, KeptPlan, gpu_numbers
from jigsaw_opt.problem.compiled.operations import compile_instance
from jigsaw_opt.problem.compiled.timetable import Gpu
from jigsaw_opt.problem.plan import Plan

_OPENINGS = 3
"""Moments at which the whole of what is allowed is put in at first."""
_REMOVALS, _GREEDY = 0.2, 0.5
"""How often a gap goes, and how often jobs come back to the GPUs that have most time left."""
_SPREAD = 0.5
"""How often jobs that are put back go to other GPUs than the one before; on the same ones, wide jobs interlock."""
_MOST_OUT = 8
"""Jobs that are taken out at once."""
_FEWEST_TRIES = 40
"""Without a better plan for so many tries for each job and moment, the search ends."""
_GRACE_SECONDS = 0.4
"""Iterations of a first packing are worth a little more than a limit."""


@dataclass(slots=True)
class _RatedPeriod:
    """A packing with its rate, and how many iterations are lacking for the least rates of jobs."""

    packing: FilledPeriod
    rate: Fraction
    lacking: int

    @property
    def merit(self) -> tuple[int, Fraction]:
        """What is compared: least rates first."""
        return -self.lacking, self.rate


class PackingSearch:
    """Better and better plans that keep the foreground's.

    `loads`: the instance, and the period that is allowed. `stop`: asked after each try with the operations for which a
    time was looked for so far; once it holds, the search ends. `late`: whether the limits have been over for so many
    seconds: no more jobs are placed once they are, and those that are placed get iterations for a little longer.
    """

    def __init__(
        self,
        loads: Loads,
        plan: Plan,
        kept: dict[str, int],
        seed: int,
        stop: Callable[[int], bool],
        late: Callable[[float], bool] = lambda _: False,
    ) -> None:
        self._loads, self._stop, self._random = loads, stop, Random(f"packing/{seed}")
        self._late = late
        once = kept | {name: int(cap > 0) for name, cap in zip(loads.background, loads.caps, strict=True)}
        self._operations = compile_instance(restricted(loads.instance, once))
        self._foreground = KeptPlan(compile_instance(restricted(loads.instance, kept)), plan)
        self._graphs = {job.name: job for job in self._operations.jobs}
        self._shapes = {graph.job.name: graph for graph in self._operations.task_graphs}
        self._names = [name for name in loads.background if once[name]]
        self.steps = 0
        self._bound = loads.rate_bound()
        self._spare = loads.allowed_us - self._foreground.period_us
        weights = dict(zip(loads.background, loads.weights, strict=True))
        works = dict(zip(loads.background, (loads.resources[0].each_us), strict=True))
        self._weights = [weights[name] for name in self._names]
        self._works = [max(1, works[name]) for name in self._names]
        order = sorted(range(len(self._names)), key=lambda j: (-self._density(j), j))
        self._groups = [[*own] for _, own in groupby(order, self._density)]
        self._index = [loads.background.index(name) for name in self._names]
        self._guaranteed = [j for j in order if loads.paces_us[self._index[j]] is not None]
        empty = FilledPeriod(self._operations, self._foreground, {}, self._jobs())
        self.best = _RatedPeriod(empty, Fraction(0), self._lacking(empty))

    @property
    def vector(self) -> Vector:
        """Iterations of the best plan by background job."""
        counts = {name: len(job.done) for name, job in zip(self._names, self.best.packing.jobs, strict=True)}
        return tuple(counts.get(name, 0) for name in self._loads.background)

    def plan(self) -> Plan:
        """Return the best plan, of the jobs that have iterations."""
        packing = self.best.packing
        plans = {job.name: job for job in self._foreground.jobs(packing.gaps)}
        for name, job in zip(self._names, packing.jobs, strict=True):
            if job.done:
                plans[name] = job.plan(self._operations, packing.period_us)
        jobs = tuple(plans[job.name] for job in self._loads.instance.jobs if job.name in plans)
        period = packing.period_us
        return replace(self._foreground.plan.with_jobs(jobs).with_period(period), status="feasible", objective=period)

    def run(self) -> None:
        """Search until it is time to stop, or nothing better has come for long."""
        if not self._names:
            return
        for gaps in self._openings():
            state = self._placed(gaps)
            if state.merit > self.best.merit:
                self.best = state
            if self._is_over():
                return
        moves, gained, work = (self._stretched, self._recreated), [1, 1], [1, 1]
        most = _FEWEST_TRIES * (len(self._names) + len(self._foreground.moments))
        stale = 0
        while stale < most and not self._is_over():
            rates = [won / steps for won, steps in zip(gained, work, strict=True)]
            which = self._random.choices((0, 1), rates)[0] if self._spare else 1
            before, steps = self.best.merit, self.steps
            moves[which]()
            work[which] += self.steps - steps
            stale += 1
            if self.best.merit > before:
                gained[which] += 1
                stale = 0

    def _is_over(self) -> bool:
        return (self.best.rate >= self._bound and not self.best.lacking) or self._stop(self.steps)

    def _needed(self, packing: FilledPeriod) -> list[int]:
        """Return by job how many iterations its least rate asks for."""
        needed = self._loads.needed(packing.period_us)
        return [needed[index] for index in self._index]

    def _lacking(self, packing: FilledPeriod) -> int:
        needed = self._needed(packing)
        return sum(max(0, least - len(job.done)) for least, job in zip(needed, packing.jobs, strict=True))

    def _density(self, index: int) -> Fraction:
        return Fraction(self._weights[index], self._works[index])

    def _jobs(self) -> list[BackgroundJob]:
        graphs = [self._graphs.get(name) or self._shapes[name] for name in self._names]
        return [BackgroundJob(graph, weight) for graph, weight in zip(graphs, self._weights, strict=True)]

    def _openings(self) -> Iterator[Gaps]:
        """Yield no gap first, then one gap as large as is allowed."""
        yield {}
        for moment in self._random.sample(self._foreground.moments, min(_OPENINGS, len(self._foreground.moments))):
            if self._spare:
                yield {moment: self._spare}

    def _placed(self, gaps: Gaps) -> _RatedPeriod:
        """Return all jobs placed anew, those of the best weight for their work first."""
        packing = FilledPeriod(self._operations, self._foreground, gaps, self._jobs())
        ranked = [(0, packing.calendar(gpu).busy_us, gpu) for gpu in gpu_numbers(self._operations).values()]
        ranked.sort()
        for index in dict.fromkeys((*self._guaranteed, *(j for group in self._groups for j in group))):
            if self._late(0.0):
                break
            gpus = self._chosen(packing, index, [gpu for _, _, gpu in ranked])
            if gpus is not None and packing.place(index, gpus):
                for at in [at for at, (_, _, gpu) in enumerate(ranked) if gpu in gpus]:
                    jobs, free, gpu = ranked.pop(at)
                    insort(ranked, (jobs + 1, free, gpu))
        return self._inserted(packing, range(len(self._names)))

    def _chosen(self, packing: FilledPeriod, index: int, ranked: Iterable[Gpu]) -> tuple[Gpu, ...] | None:
        """Return GPUs for the slots of a job: those of a server that come first, or else the first of all."""
        need, servers, anywhere = packing.jobs[index].slots, defaultdict[int, list[Gpu]](list), list[Gpu]()
        for gpu in ranked:
            own = servers[gpu[0]]
            if packing.admits(index, len(own), gpu):
                own.append(gpu)
                if len(own) == need:
                    return tuple(own)
            if len(anywhere) < need and packing.admits(index, len(anywhere), gpu):
                anywhere.append(gpu)
        return tuple(anywhere) if len(anywhere) == need else None

    def _inserted(self, packing: FilledPeriod, indices: Iterable[int]) -> _RatedPeriod:
        """Return the period with iterations of placed jobs put in: what least rates ask for, then the others.

        Those of the best weight for their work come first.
        """
        chosen, moment = set(indices), self._random.choice(self._foreground.moments)
        if self._guaranteed:
            packing.insert([j for j in self._guaranteed if j in chosen], moment, self._needed(packing))
        for group in self._groups:
            if self._late(_GRACE_SECONDS):
                break
            packing.insert([j for j in group if j in chosen], moment)
        self.steps += packing.steps
        packing.steps = 0
        return _RatedPeriod(packing, Fraction(packing.value, packing.period_us), self._lacking(packing))

    def _stretched(self) -> None:
        """Add, drop or shorten a gap, and pack all jobs anew where they are."""
        packing, gaps = self.best.packing, dict(self.best.packing.gaps)
        if gaps and self._random.random() < _REMOVALS:
            moment = self._random.choice(sorted(gaps))
            gaps[moment] = self._random.choice((0, self._random.randrange(gaps[moment])))
        else:
            moment, more = self._gap(packing)
            gaps[moment] = gaps.get(moment, 0) + more
            excess = sum(gaps.values()) - self._spare
            for other in self._random.sample(sorted(gaps), len(gaps)):
                if excess > 0 and other != moment:
                    excess -= gaps[other]
                    gaps[other] = max(0, -excess)
            gaps[moment] -= max(0, excess)
        again = packing.again({moment: us for moment, us in gaps.items() if us})
        self._take(self._inserted(again, range(len(self._names))))

    def _gap(self, packing: FilledPeriod) -> tuple[int, int]:
        """Return a moment, and what is missing there for one more operation on some GPU."""
        gpu, moment = self._random.choice(self._foreground.starts)
        start, end = packing.calendar(gpu).hole((now := packing.shift(moment)) - 1)
        left = end - start if start < now == end else 0
        there = sorted(packing.at[gpu]) or [j for j, job in enumerate(packing.jobs) if job.done]
        if not there:
            return moment, self._spare
        lengths = self._random.choice(packing.jobs[self._random.choice(there)].patterns).lengths
        return moment, max(1, self._random.choice(lengths) - left)

    def _recreated(self) -> None:
        """Take out some jobs that share GPUs or links, and put them back elsewhere with unplaced jobs."""
        packing, pick = self.best.packing, self._random
        first = pick.randrange(len(self._names))
        beside = {j for resource in packing.resources(first) for j in packing.at[resource]} - {first}
        nowhere = [j for j, job in enumerate(packing.jobs) if not job.gpus and j != first]
        others = [*pick.sample(sorted(beside), min(_MOST_OUT, len(beside))), *nowhere]
        out = {first, *pick.sample(others, min(_MOST_OUT, len(others)))}
        before = packing.removed(out)
        gpus = [*gpu_numbers(self._operations).values()]
        pick.shuffle(gpus)
        if pick.random() < _GREEDY:
            gpus.sort(key=lambda gpu: packing.calendar(gpu).busy_us)
        spread = pick.random() < _SPREAD
        for index in sorted(out, key=lambda j: (-self._density(j), pick.random())):
            chosen = self._chosen(packing, index, gpus)
            if chosen is not None and packing.place(index, chosen) and (spread or pick.random() < _SPREAD):
                gpus.sort(key=lambda gpu: gpu in chosen)
        if not self._take(self._inserted(packing, out)):
            packing.restore(before)

    def _take(self, state: _RatedPeriod) -> bool:
        """Take what is no worse; a plateau is walked over."""
        if state.merit < self.best.merit:
            return False
        self.best = state
        return True

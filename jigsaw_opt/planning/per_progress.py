"""Least objective for progress: levels and exchanges are chosen by what iterations are worth (``docs/models.md``)."""

from __future__ import annotations

import math
import time
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain, combinations_with_replacement, product
from typing import Unpack

from jigsaw_opt.arguments import typed
from jigsaw_opt.errors import argument, not_together, unsupported
from jigsaw_opt.planning.limits import Limits
from jigsaw_opt.problem.costs import ceil_fraction
from jigsaw_opt.problem.depth import Depth, DepthPlugin, FreeDepth, FullDepth
from jigsaw_opt.problem.efficiency import Efficiency, least_progress
from jigsaw_opt.problem.exchange import JobExchange
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.job import Job
from jigsaw_opt.problem.rules.keyed import altered
from jigsaw_opt.solvers.options import GivenOptions, Options, options_of
from jigsaw_opt.solvers.result import Event, Report, Result, Status, StoppedBy
from jigsaw_opt.solvers.solve import solve
from jigsaw_opt.solvers.solve_state.request import Solver
from jigsaw_opt.system.interrupts import on_interrupt

_SHARE = 1 / 8
"""Share of the limits that is for one solve."""
_MOST_SOLVES = 32
"""Most solves where these end before their share of the time, or nothing limits them."""
_MOST_VARIANTS = 8
"""More ways to give exchanges to jobs than this are not all tried."""
_MOST_VALUES = 4_000
"""More shares of progress than this are not told apart."""
Number = Fraction | float
"""An exact number, or infinity."""


@dataclass(frozen=True, slots=True)
class PerProgress:
    """The outcome of `solve_per_progress`.

    `status, stopped_by`: what is known of the ratio, and why the search ended. `ratio, bound`: least objective over
    progress that was found, None without a plan; and a proven lower bound of it. `progress`: the least of any job in
    the plan, beside steps with whole gradients at full depth. `instance, result`: the instance with the chosen
    exchanges and limits of progress, None without a plan; and its solve, with the checked plan, or the last solve.
    `full, full_ratio, full_bound`: the solve at full depth with the exchange that each job comes with, or with whole
    gradients if others are offered; its objective over progress, and a proven lower bound of that at full depth.
    `failure`: what an engine died of; empty where none did. `solves, seconds`: number of solves, and wall-clock time.
    """

    status: Status
    stopped_by: StoppedBy
    ratio: Fraction | None
    bound: Fraction
    progress: Fraction | None
    instance: Instance | None
    result: Result
    full: Result
    full_ratio: Fraction | None
    full_bound: Fraction
    failure: str
    solves: int
    seconds: float

    @property
    def gap(self) -> float | None:
        """Relative gap of the ratio, or None without a plan."""
        return None if self.ratio is None else float((self.ratio - self.bound) / self.ratio)


def solve_per_progress(
    instance: Instance,
    method: str | Solver = "auto",
    options: Options | None = None,
    *,
    exchanges: Sequence[JobExchange] = (),
    on_event: Report | None = None,
    **option: Unpack[GivenOptions],
) -> PerProgress:
    """Minimise objective over progress: choose levels, and exchanges if some are offered.

    Every data-parallel job whose model has an efficiency takes the levels of the rule ``free``, with the keys that it
    has itself. It keeps at least a share of the progress of full depth with whole gradients, the same for all jobs.
    The objective is divided by this share. For a period it is the time of a unit of progress; for other objectives,
    that of the iterations that make as much progress as those at full depth, if all of it grows with the iterations;
    elsewhere it is at least that. Full depth is tried first, and kept
    unless a ratio is less.

    Parameters
    ----------
    instance
        What is to be scheduled.
    method, on_event
        As in `solve`; the objective of an event is the ratio, rounded up, and its bound is that of the ratio.
    options
        Limits of all solves together, seed, threads. The gap is that of the ratio.
    exchanges
        What each data-parallel job may take in the place of whole gradients. Several steps between two exchanges are
        for jobs at full depth.
    **option
        Options one by one, as in ``time_limit=10``.

    Returns
    -------
    PerProgress
        The plan is correct for its `instance`, which is not the one that was given.

    Raises
    ------
    UsageError
        There is nothing to choose, some job is released later or has a deadline, a target is given, or `solve` refuses
        the method or an option.
    JigsawError
        As `solve` does.
    """
    chosen = options_of(options, option)
    _require_types(instance, exchanges, on_event)
    jobs = instance.data_parallel_jobs
    if not any(instance.models[job.model].efficiency for job in jobs) and not (jobs and exchanges):
        told = f"no job of instance {instance.name!r} has an efficiency, and no exchange is offered"
        hint = f"offer some by {argument('exchanges')}, such as bytes=1/4,progress_ppm=950000"
        raise unsupported("instance", f"{told}: there is nothing to choose; {hint}")
    _require_growth(instance)
    if chosen.target is not None:
        raise not_together(
            "target", f"{argument('target')} is a value of the objective, not of objective over progress"
        )
    with on_interrupt(chosen.cancel.set):
        search = _ProgressSearch(instance, method, chosen, on_event)
        return search.run([_variants(job, instance, exchanges) for job in jobs])


@typed
def _require_types(instance: Instance, exchanges: Sequence[JobExchange], on_event: Report | None) -> None:
    """Refuse arguments of other types; `solve` does so for the others."""


def _require_growth(instance: Instance) -> None:
    """Refuse what stays as it is where jobs have more iterations: its quotient by progress is no time."""
    for number, job in enumerate(instance.jobs):
        for key in ("release_us", "deadline_us"):
            if getattr(job, key):
                told = f"job {job.name!r} has {key}, which does not grow with its iterations as the objective does"
                hint = "leave it out, or solve with min_progress of the rule free, and as many more iterations"
                raise unsupported(f"$.jobs[{number}].{key}", f"{told}; {hint}")


def _efficiency(job: Job, instance: Instance) -> Efficiency | None:
    """Return the efficiency by which levels are chosen; None where a rule stays that does not allow full depth."""
    own = job.depth
    asked = (own.mean_depth, own.min_progress) if isinstance(own, FreeDepth) else ()
    stays = isinstance(own, DepthPlugin) or any(Fraction(share or 0) > 1 for share in asked)
    return None if stays else instance.models[job.model].efficiency


def _variants(job: Job, instance: Instance, exchanges: Sequence[JobExchange]) -> tuple[Job, ...]:
    """Return a job with each exchange that it may take, whole gradients first if any exchange is offered."""
    offered = dict.fromkeys((None, job.exchange, *exchanges) if exchanges else (job.exchange,))
    goes_full = isinstance(job.depth, FullDepth) or _efficiency(job, instance) is not None
    return tuple(altered(job, exchange=one) for one in offered if goes_full or one is None or (one.every or 1) == 1)


def _with_exchange(variants: Sequence[Job], exchange: JobExchange | None) -> Job:
    return next((job for job in variants if job.exchange == exchange), variants[0])


def _taken(limits: Limits, parts: int) -> Limits:
    """Take one of so many equal parts of what is left."""
    options = limits.part_of_left(1 / parts)
    limits.spend(options.work_limit or 0.0)
    return Limits(options)


def _is_one_step(job: Job) -> bool:
    return job.exchange is None or (job.exchange.every or 1) == 1


def _at(variants: Sequence[Job], share: Fraction, efficiency: Efficiency | None) -> Job:
    """Return a job that is no harder to plan than any of the variants with at least a share of progress.

    Of a single variant it is that one. Of several it sends the fewest bytes of any, after the fewest steps, and its
    levels lose as much as with the exchange that loses least.
    """
    able = [job for job in variants if job.step_progress >= share]
    free = [job.step_progress for job in able if _is_one_step(job)]
    job = able[0]
    if len(able) > 1:
        known = [each.exchange or JobExchange() for each in able]
        sent = min(Fraction(1 if each.bytes is None else each.bytes) for each in known)
        every = min(each.every or 1 for each in known)
        job = altered(job, exchange=JobExchange(every, f"{sent.numerator}/{sent.denominator}"))
    if efficiency is None:
        return job
    return altered(job, depth=_depth(job, share / max(free), efficiency) if free else FullDepth())


def _depth(job: Job, share: Fraction, efficiency: Efficiency) -> Depth:
    own = job.depth if isinstance(job.depth, FreeDepth) else FreeDepth()
    least, depth = max(share, Fraction(own.min_progress or 0)), len(efficiency.weight)
    if least == 1 and efficiency.progress([depth - 1, *[depth] * (job.workers - 1)]) < efficiency.most:
        return FullDepth()
    return altered(own, min_progress=f"{least.numerator}/{least.denominator}")


def _shares(job: Job, efficiency: Efficiency | None) -> set[Fraction] | None:
    """Return each share of progress that a plan of a job can have; None if they are many."""
    if efficiency is None or not _is_one_step(job):
        return {job.step_progress}
    depth, found = len(efficiency.weight), {0}
    if math.comb(job.workers + depth - 1, depth) > _MOST_VALUES:
        return None
    levels = combinations_with_replacement(range(1, depth + 1), job.workers)
    each = {efficiency.progress(own) for own in levels if own[-1] == depth}
    for _ in range(job.iterations):
        if len(found) * len(each) > 10 * _MOST_VALUES:
            return None
        found = {before + made for before in found for made in each}
    return {job.step_progress * made / (job.iterations * efficiency.most) for made in found}


@dataclass(frozen=True, slots=True)
class _ShareInterval:
    """Shares of progress from that of number `low` to that of number `high`.

    `bound`: lower bound of the objective of plans with such a share. `solved`: whether it is of a solve at `low`.
    """

    low: int
    high: int
    bound: Number = Fraction(0)
    solved: bool = False


class _ProgressSearch:
    """The solves for one answer.

    `best`: least ratio, and the instance, result and progress that it is of. `bound`: proven lower bound of all ratios.
    """

    def __init__(self, instance: Instance, method: str | Solver, options: Options, report: Report | None) -> None:
        self.instance, self.method, self.options, self._report = instance, method, options, report
        self.best: tuple[Number, Instance | None, Result | None, Fraction | None] = (math.inf, None, None, None)
        self.bound: Number = Fraction(0)
        self._efficiencies = [_efficiency(job, instance) for job in instance.data_parallel_jobs]
        self._solved: dict[Instance, Result] = {}
        self._started = time.monotonic()

    def run(self, kinds: Sequence[Sequence[Job]]) -> PerProgress:
        """Return the best plan with any variant of each job; the first ones are at full depth before all others."""
        # Proofs of solves and the shares between them both widen the gap.
        limits = Limits(replace(self.options, gap=None if self.options.gap is None else self.options.gap / 2))
        self._count, jobs = math.prod(map(len, kinds)), zip(kinds, self._efficiencies, strict=True)
        whole = [own[0] if known is None else altered(own[0], depth=FullDepth()) for own, known in jobs]
        full = self._solve(whole, limits, counts=True, share=2 * _SHARE if self._count == 1 else _SHARE)
        if full.status is Status.UNKNOWN and not full.failure:
            # All else is told against full depth, so that it gets half of the limits before anything else is tried.
            full = self._solve(whole, limits, counts=True, share=1 / 2)
        full_ratio = self.best[0]
        self._tell(self._chosen(kinds, limits))
        (ratio, instance, result, progress), options = self.best, self.options
        proven, seconds = self.bound >= ratio, time.monotonic() - self._started
        status = (Status.UNKNOWN, Status.INFEASIBLE) if result is None else (Status.FEASIBLE, Status.OPTIMAL)
        reasons = {
            StoppedBy.PROOF: proven,
            StoppedBy.FAILURE: bool(self._last.failure),
            StoppedBy.INTERRUPT: options.cancel.is_set(),
            StoppedBy.GAP: self._is_close(self.bound),
            StoppedBy.TIME: limits.over,
            StoppedBy.COMPLETED: True,
        }
        return PerProgress(
            status=status[proven],
            stopped_by=next(reason for reason, holds in reasons.items() if holds),
            ratio=None if result is None else Fraction(ratio),
            bound=Fraction(0) if self.bound == math.inf else Fraction(min(ratio, self.bound)),
            progress=progress,
            instance=instance,
            result=result or self._last,
            full=full,
            full_ratio=None if full.plan is None else Fraction(full_ratio),
            full_bound=full.bound / min(own[0].step_progress for own in kinds),
            failure=self._last.failure,
            solves=len(self._solved),
            seconds=seconds,
        )

    def _is_close(self, bound: Number) -> bool:
        """Return whether a bound of the ratio is within the gap that is asked for."""
        gap, ratio = self.options.gap, self.best[0]
        return gap is not None and ratio < math.inf and ratio - bound <= Fraction(gap) * Fraction(ratio)

    def _chosen(self, kinds: Sequence[Sequence[Job]], limits: Limits) -> Number:
        """Return a lower bound of all ratios.

        All variants are explored if they are few. Otherwise all jobs take the same exchange, each in turn; then jobs
        change theirs one by one, in order of bytes.
        """
        if self._count == 1:
            return self._explored(kinds, limits)
        is_few, exchanges = self._count <= _MOST_VARIANTS, dict.fromkeys(job.exchange for job in chain(*kinds))
        alike = ([_with_exchange(own, one) for own in kinds] for one in exchanges)
        tried = [*(product(*kinds) if is_few else alike)]
        parts = len(tried) + 1 if is_few else len(tried) + 2
        bounds = [self._explored([[job] for job in jobs], _taken(limits, parts - k)) for k, jobs in enumerate(tried)]
        if is_few and min(bounds) >= self.best[0]:
            return self.best[0]
        if not is_few:
            self._change_one_by_one(kinds, _taken(limits, 2))
        return max(self._explored(kinds, _taken(limits, 1)), min(bounds) if is_few else Fraction(0))

    def _change_one_by_one(self, kinds: Sequence[Sequence[Job]], limits: Limits) -> None:
        """Try each exchange of each job, the others as in the best plan, with the share of progress of that plan."""
        models, left = self.instance.models, sum(map(len, kinds))
        sent = [sum(own[0].sent_bytes(models[own[0].model].bucket_bytes())) for own in kinds]
        for number in sorted(range(len(kinds)), key=lambda k: -sent[k]):
            for job in kinds[number]:
                _, instance, _, progress = self.best
                part, left = _taken(limits, left), left - 1
                if instance is not None and progress is not None and not part.over:
                    pairs = zip(kinds, instance.data_parallel_jobs, strict=True)
                    jobs = [_with_exchange(own, best.exchange) for own, best in pairs]
                    jobs[number] = job
                    least = min(progress, *(each.step_progress for each in jobs))
                    self._solve(self._limited([[each] for each in jobs], least), part, counts=True, share=1.0)

    def _explored(self, kinds: Sequence[Sequence[Job]], limits: Limits) -> Number:
        """Return a lower bound of the ratios of these variants: branch and bound over the share of progress.

        Plans count if each job has one variant; of several, the solves are relaxations.
        """
        values, ends = self._values(kinds)
        spans = [_ShareInterval(0, len(values) - 1)]
        place, is_all = spans[0].high, math.prod(map(len, kinds)) == self._count
        for _ in range(_MOST_SOLVES):
            if limits.over or self._last.failure:
                break
            chosen = spans[0]
            bound = max(chosen.bound, self._bound_at(kinds, values[place], limits))
            spans[0] = _ShareInterval(place, chosen.high, bound, solved=True)
            if place > chosen.low:
                spans.append(replace(chosen, high=place - 1))
            spans = sorted(self._open(spans, ends), key=lambda span: span.bound / ends[span.high])
            if not spans:
                return self.best[0]
            chosen = spans[0]
            self._tell(chosen.bound / ends[chosen.high] if is_all else self.bound)
            is_new = not (chosen.solved or chosen.bound)
            place = chosen.low if is_new else (chosen.low + chosen.high + 1) // 2
            if (chosen.solved and chosen.low == chosen.high) or self._is_close(chosen.bound / ends[chosen.high]):
                break
        return min(self.best[0], spans[0].bound / ends[spans[0].high])

    def _open(self, spans: Sequence[_ShareInterval], ends: Sequence[Fraction]) -> Iterator[_ShareInterval]:
        """Yield the parts of spans in which a ratio may be below the best one."""
        ratio = self.best[0]
        for span in spans:
            if span.bound == math.inf:
                continue
            # A plan with such an objective has a lower ratio only with more progress than this.
            needed = Fraction(0) if ratio == math.inf else Fraction(span.bound) / Fraction(ratio)
            low = max(span.low, bisect_right(ends, needed))
            if low <= span.high:
                yield replace(span, low=low, solved=span.solved and low == span.low)

    def _values(self, kinds: Sequence[Sequence[Job]]) -> tuple[list[Fraction], list[Fraction]]:
        """Return shares of progress, ascending, and for each the largest share that a plan can have before the next."""
        top = min(max(job.step_progress for job in own) for own in kinds)
        found: set[Fraction] = set()
        for job in chain(*kinds):
            # A phased plan keeps a share in every phase, and these may have any number of iterations.
            is_listed = self.instance.horizon == "cyclic" or job.iterations == 1
            known = _shares(job, self.instance.models[job.model].efficiency) if is_listed else None
            if known is None or len(found) > _MOST_VALUES:
                values = [top * k / _MOST_VALUES for k in range(_MOST_VALUES + 1)]
                return values, [*values[1:], top]
            found |= known
        values = sorted(share for share in found if share <= top)
        return values, values

    def _bound_at(self, kinds: Sequence[Sequence[Job]], share: Fraction, limits: Limits) -> Number:
        """Return a lower bound of the objectives of plans with at least a share of progress; infinity for no plan."""
        result = self._solve(self._limited(kinds, share), limits, counts=all(len(own) == 1 for own in kinds))
        return math.inf if result.status is Status.INFEASIBLE else Fraction(result.bound)

    def _limited(self, kinds: Sequence[Sequence[Job]], share: Fraction) -> list[Job]:
        """Return jobs that are no harder to plan than these variants with at least a share of progress."""
        return [_at(own, share, known) for own, known in zip(kinds, self._efficiencies, strict=True)]

    def _solve(self, jobs: Iterable[Job], limits: Limits, counts: bool, share: float = _SHARE) -> Result:
        named = {job.name: job for job in jobs}
        instance = altered(self.instance, jobs=tuple(named.get(job.name, job) for job in self.instance.jobs))
        if instance not in self._solved or self._solved[instance].status is Status.UNKNOWN:
            self._solved[instance] = solve(instance, self.method, limits.part(share))
            limits.charge(share)
        result = self._last = self._solved[instance]
        if counts and result.plan is not None:
            progress = least_progress(instance, result.plan)
            ratio = result.plan.objective / progress
            if ratio < self.best[0]:
                self.best = (ratio, instance, result, progress)
                self._tell(self.bound)
        return result

    def _tell(self, bound: Number) -> None:
        """Keep a bound of all ratios if it is higher, and report what is known."""
        self.bound = max(self.bound, bound)
        if self._report is not None:
            shown = None if self.best[0] == math.inf else ceil_fraction(Fraction(self.best[0]))
            seconds = time.monotonic() - self._started
            self._report(Event(seconds, shown, 0 if self.bound == math.inf else math.floor(self.bound)))

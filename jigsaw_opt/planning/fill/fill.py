"""Fill what foreground jobs leave of a period with iterations of background jobs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal, NoReturn

from jigsaw_opt.arguments import typed
from jigsaw_opt.documents import instance_sha256
from jigsaw_opt.errors import (
    InfeasibleError,
    OutOfTimeError,
    Problem,
    UsageError,
    argument,
    out_of_range,
    unsupported,
)
from jigsaw_opt.planning.fill.alone import Alone, alone
from jigsaw_opt.planning.fill.loads import Loads, restricted
from jigsaw_opt.planning.fill.search import VectorSearch
from jigsaw_opt.planning.limits import Limits
from jigsaw_opt.planning.planned import Planned
from jigsaw_opt.problem.costs import ceil_div
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.plan import Plan
from jigsaw_opt.problem.rules.keyed import altered
from jigsaw_opt.solvers.bounds import Proof
from jigsaw_opt.solvers.correct import require_correct
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.stop import interruptible
from jigsaw_opt.text import suggestion


@dataclass(frozen=True, slots=True)
class FilledHoles:
    """Background iterations in a period, and how much of the time is filled.

    `iterations`: for each background job, iterations in a period; 0 where it is left out. `value`: weighted background
    iterations in a period. `rate, rate_bound`: weighted background iterations a second, and what no plan within the
    allowed period beats. `foreground_us, foreground_bound_us`: period of the foreground alone as it was found, and what
    is proven of it. `filled`: share of the GPU time that the foreground's blocks leave in a period of the plan, and
    background blocks take.
    """

    iterations: Mapping[str, int]
    value: int
    rate: float
    rate_bound: float
    foreground_us: int
    foreground_bound_us: int
    allowed_us: int
    filled: float

    @property
    def status(self) -> Literal["optimal", "feasible"]:
        """``optimal`` where no numbers of iterations have a better rate within the allowed period."""
        return "optimal" if self.rate_bound == self.rate else "feasible"


def _busy_us(instance: Instance, plan: Plan, names: Collection[str]) -> int:
    """Return the time of the blocks of some jobs in a period, in microseconds, each on as many GPUs as it takes."""
    busy = 0
    for job, done in zip(instance.jobs, plan.jobs, strict=True):
        for iteration in done.iterations if job.name in names else ():
            for number, slots in enumerate(job.block_slots()):
                block = iteration.blocks[number]
                busy += len(slots) * (block.end_us - block.start_us)
    return busy


_MICROSECONDS = 10**6
"""Microseconds in a second."""
_MOST_SLOWDOWN = 100
"""Largest slowdown: a step of the search takes time by the operations of a period."""
_FOREGROUND_SHARE = 0.2
"""Share of the limits for the plan of the foreground alone."""
_CAPS_SHARE = 0.2
"""Share of the time for caps: the most iterations that each background job may have."""


@typed
def fill(
    instance: Instance,
    foreground: Sequence[str],
    options: Options | None = None,
    *,
    slowdown: float | Fraction = 1.1,
    least: Mapping[str, float | Fraction] | None = None,
) -> Planned[FilledHoles]:
    """Give background jobs as many iterations as fit beside foreground jobs, by weight and a second.

    Parameters
    ----------
    instance
        A cyclic instance. Foreground jobs have their iterations in a period; those of the others are chosen.
    foreground
        Names of the jobs whose throughput is guaranteed; the others are background.
    options
        Time limit, work limit, seed, threads, params and cancel. Without a limit, a limit of work.
    slowdown
        The period may be so many times the least one of the foreground alone, as far as `auto` finds it within a fifth
        of the limits; from 1 to 100. A cycle-time limit of a foreground job is kept as well.
    least
        Iterations a second that background jobs get at least, by name. A cycle-time limit of a background job asks for
        the same.

    Returns
    -------
    Planned
        Foreground jobs with their cycle-time limits and background jobs that have iterations, and a plan never worse
        than the foreground alone. Its bound is of the period: in a shorter one, no plan has as many iterations.

    Raises
    ------
    InvalidInputError
        There is no such job.
    UsageError
        The horizon is finite, the cluster has power caps, no job is left as background, an option is another, or a
        least rate is that of no background job, or no number above 0.
    InfeasibleError
        The foreground alone has no plan, or none keeps the least rates.
    OutOfTimeError
        None was found.
    """
    options = options or Options()
    instance.cluster.require_no_capacities("filling keeps none")
    background = _background(instance, foreground)
    instance = _with_rates(instance, background, least or {})
    if not 1 <= slowdown <= _MOST_SLOWDOWN:
        raise out_of_range("slowdown", f"slowdown is at least 1 and at most {_MOST_SLOWDOWN}, not {slowdown}")
    limits = Limits.of(options, "filling")
    kept = {job.name: job.iterations for job in instance.jobs if job.name not in background}
    with interruptible(options):
        first = alone(restricted(instance, kept), lambda share: limits.part(share * _FOREGROUND_SHARE))
        allowed = max(first.plan.objective, _allowed(instance, foreground, first.plan.objective, slowdown))
        over = limits.stop(_CAPS_SHARE)
        loads = Loads(instance, tuple(kept), background, allowed, first.bound, lambda: over(0))
        search = VectorSearch(loads, first.plan, kept, limits)
        search.run()
    if not search.keeps_rates:
        _refuse_rates(search, options)
    return _result(search, first)


def _background(instance: Instance, foreground: Sequence[str]) -> tuple[str, ...]:
    """Return names of the background jobs, in the order of the instance."""
    names = [job.name for job in instance.jobs]
    unknown = [name for name in foreground if name not in names]
    if unknown:
        hints = [(f'no job is called "{name}"', suggestion(name, names)) for name in unknown]
        raise UsageError(*(Problem(argument("foreground"), told, hint, code="unknown-name") for told, hint in hints))
    if instance.horizon != "cyclic":
        raise unsupported(
            "instance", f"instance {instance.name!r} has a finite horizon; holes of a period need a cyclic one"
        )
    left = [job for job in instance.jobs if job.name not in foreground]
    if not foreground or not left:
        raise UsageError(
            "at least one job is foreground, and at least one other is background", code="empty", path="foreground"
        )
    return tuple(job.name for job in left)


def _with_rates(instance: Instance, background: Sequence[str], least: Mapping[str, float | Fraction]) -> Instance:
    """Return the instance in which the least rates of background jobs are cycle-time limits, the tighter one of two."""
    paces, wrong = dict[str, int](), list[Problem]()
    for name, rate in least.items():
        if name not in background:
            told = f"{name!r} is no background job, so it has no least rate"
            wrong.append(Problem("least", told, suggestion(name, background), code="unknown-name"))
        elif not 0 < rate <= _MICROSECONDS:
            told = f"the least rate of {name!r} is above 0 and at most {_MICROSECONDS} iterations a second, not {rate}"
            wrong.append(Problem("least", told, code="out-of-range"))
        else:
            paces[name] = int(_MICROSECONDS / (rate if isinstance(rate, Fraction) else Fraction(str(rate))))
    if wrong:
        raise UsageError.of(wrong)
    jobs = (
        altered(job, pace_us=min(filter(None, (job.pace_us, paces[job.name])))) if job.name in paces else job
        for job in instance.jobs
    )
    return altered(instance, jobs=tuple(jobs))


def _refuse_rates(search: VectorSearch, options: Options) -> NoReturn:
    """Raise what says which least rates cannot be kept, or were not within the limits."""
    loads = search.loads
    needed, period_us = loads.least_needed()
    rows = zip(loads.background, loads.paces_us, needed, loads.caps, strict=True)
    asked = [(name, _MICROSECONDS / pace, count, cap) for name, pace, count, cap in rows if pace is not None]
    told = ", ".join(f"{rate:.4g} a second of job {name!r}" for name, rate, _, _ in asked)
    within = f"within the allowed period of {loads.allowed_us} us"
    if not search.is_refuted:
        why = "before it was interrupted" if options.cancel.is_set() else "within the limits: give it more time"
        raise OutOfTimeError(f"no plan that keeps the least rates was found {why}; asked are {told}")
    short = [
        f"job {name!r} needs {count} iterations a period for {rate:.4g} a second, and at most {cap} fit {within}"
        for name, rate, count, cap in asked
        if cap < count
    ]
    if not short and period_us > loads.allowed_us:
        short = [
            f"the least rates take a period of at least {period_us} us together, above the allowed {loads.allowed_us}"
        ]
    raise InfeasibleError("; ".join(short or [f"no plan keeps the least rates {within}"]) + f"; asked are {told}")


def _allowed(instance: Instance, foreground: Sequence[str], least_us: int, slowdown: float | Fraction) -> int:
    """Return the period that slow-down and guarantees allow, in microseconds."""
    exact = slowdown if isinstance(slowdown, Fraction) else Fraction(str(slowdown))
    own = [job for job in instance.jobs if job.name in foreground]
    guaranteed = [job.pace_us * job.iterations for job in own if job.pace_us is not None]
    return min([int(exact * least_us), *guaranteed])


def _result(search: VectorSearch, first: Alone) -> Planned[FilledHoles]:
    loads, best = search.loads, search.best
    chosen = dict(zip(loads.background, best.vector, strict=True))
    instance = _with_guarantees(restricted(loads.instance, search.kept | chosen), loads, search.kept, best.plan)
    plan = replace(best.plan, instance_sha256=instance_sha256(instance))
    require_correct(instance, plan, "filling")
    bound = max(best.rate, search.bound())
    holes = instance.cluster.gpu_count * plan.objective - _busy_us(instance, plan, search.kept)
    details = FilledHoles(
        iterations=chosen,
        value=best.value,
        rate=float(best.rate * _MICROSECONDS),
        rate_bound=float(bound * _MICROSECONDS),
        foreground_us=first.plan.objective,
        foreground_bound_us=first.bound,
        allowed_us=loads.allowed_us,
        filled=_busy_us(instance, plan, chosen) / holes if holes else 0.0,
    )
    return Planned(instance, plan, *_period_bound(best.value, bound, first.bound), details)


def _period_bound(value: int, rate: Fraction, foreground_us: int) -> tuple[int, Proof]:
    """Return what no period with so many weighted iterations is below, and why.

    `rate`: weighted iterations a microsecond that no plan beats. `foreground_us`: no period of the foreground is below.
    """
    # Rounded down, it equals the period of a plan only if the rate of that is the best.
    least = int(value / rate) if rate else 0
    if least < foreground_us:
        return foreground_us, Proof("the foreground alone takes so long", relaxation="fill")
    sentence = f"no period has more than {float(rate * _MICROSECONDS):.6g} weighted background iterations a second"
    return least, Proof(sentence, f"floor({value} / ({rate})) = {least}", relaxation="fill")


def _with_guarantees(instance: Instance, loads: Loads, kept: dict[str, int], plan: Plan) -> Instance:
    """Return the instance with guarantees for the foreground: the allowed period, or the plan's if that is longer.

    Background jobs have their own cycle-time limits again.
    """
    paces = dict(zip(loads.background, loads.paces_us, strict=True))
    jobs = tuple(
        altered(job, pace_us=max(loads.allowed_us // job.iterations, ceil_div(plan.objective, job.iterations)))
        if job.name in kept
        else altered(job, pace_us=paces[job.name])
        for job in instance.jobs
    )
    return altered(instance, jobs=jobs)

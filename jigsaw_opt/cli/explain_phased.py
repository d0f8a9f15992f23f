"""Printing where the time of the jobs of a phased plan goes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from jigsaw_opt.cli.output import print_table
from jigsaw_opt.problem.plan import Plan
from jigsaw_opt.solvers.explanation.phased import PhasedExplanation, PhaseTime, Stretch
from jigsaw_opt.text import called, printable
from jigsaw_opt.views.explained import TITLES

__all__ = ["phased_as_json", "print_phased_job", "print_phased_overview"]

_WAITS = {"release": "not yet released", "before": "waits for its first phase", "seam": "waits between phases"}


def phased_as_json(plan: Plan, jobs: Sequence[PhasedExplanation]) -> dict[str, Any]:
    """All figures."""
    return {"value": plan.objective, "bound": plan.bound, "jobs": [_job_as_json(job) for job in jobs]}


def _job_as_json(job: PhasedExplanation) -> dict[str, Any]:
    stretches = [_stretch_as_json(it) for it in job.stretches]
    return asdict(job) | {"time_us": job.time_us, "stretches": stretches}


def _stretch_as_json(it: Stretch) -> dict[str, Any]:
    within = None if it.within is None else asdict(it.within) | {"total_us": it.within.total_us}
    return asdict(it) | {"within": within}


def print_phased_overview(jobs: Sequence[PhasedExplanation]) -> None:
    """A line a job: the shares of its time since its release, and its longest wait."""
    headers = ("job", "end us", "phases", "in them", _WAITS["before"], _WAITS["seam"], "longest wait")
    print_table(headers, map(_overview, jobs), headers[1:-1])


def _overview(job: PhasedExplanation) -> list[str]:
    whole, time_us = job.end_us - job.release_us, job.time_us
    shares = [f"{100 * time_us[kind] / whole:.1f} %" if whole else "-" for kind in ("phase", "before", "seam")]
    waits = [it for it in job.stretches if it.kind in ("before", "seam")]
    longest = max(waits, key=lambda it: it.end_us - it.start_us, default=None)
    wait = "-" if longest is None else f"{longest.end_us - longest.start_us:,} us: {_words(longest)}"
    return [job.job, f"{job.end_us:,}", f"{sum(it.kind == 'phase' for it in job.stretches):,}", *shares, wait]


def print_phased_job(job: PhasedExplanation) -> None:
    """The stretches of a job in order of time, and what it does in each phase."""
    print(f"{called('job', printable(job.job))} ends at {job.end_us:,} us; it may begin at {job.release_us:,} us")
    rows = [(f"{it.start_us:,}", f"{it.end_us - it.start_us:,}", _words(it)) for it in job.stretches]
    print_table(("from us", "for us", "where it is"), rows, ("from us", "for us"))


def _words(it: Stretch) -> str:
    if it.within is not None:
        return _phase_words(it.within)
    gpus = defaultdict[tuple[str, ...], list[str]](list)
    for gpu, names in it.held_by.items():
        gpus[names].append(gpu)
    held = [f"{', '.join(own)} held by {', '.join(names)}" for names, own in gpus.items()]
    return "; ".join([_WAITS[it.kind], *held])


def _phase_words(it: PhaseTime) -> str:
    beside = f"with {', '.join(it.others)}" if it.others else "alone"
    what = f"{it.repeats:,} x a period of {it.period_us:,} us with {it.iterations} iteration{'s' * (it.iterations > 1)}"
    spent = ", ".join(f"{TITLES[kind]} {us:,}" for kind, us in it.total_us.items() if us)
    return f"phase {it.phase} of group {it.group}, {beside}: {what}; in all {spent}"

"""Printing where the time of the jobs of a phased plan goes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from jigsaw_opt.cli.output import print_table
from jigsaw_opt.problem.phased_plan import PhasedPlan
from jigsaw_opt.solvers.explanation.phased import PhasedExplanation, PhaseTime, Stretch
from jigsaw_opt.text import called, printable
from jigsaw_opt.views.explained import TITLES

__all__ = ["phased_as_json", "print_phased"]

_WAITS = {"release": "not yet released", "before": "waits for its first phase", "seam": "waits between phases"}


def phased_as_json(plan: PhasedPlan, jobs: Sequence[PhasedExplanation]) -> dict[str, Any]:
    """All figures."""
    return {"value": plan.objective, "bound": plan.bound, "jobs": [_job_as_json(job) for job in jobs]}


def _job_as_json(job: PhasedExplanation) -> dict[str, Any]:
    stretches = [_stretch_as_json(it) for it in job.stretches]
    return asdict(job) | {"time_us": job.time_us, "stretches": stretches}


def _stretch_as_json(it: Stretch) -> dict[str, Any]:
    within = None if it.within is None else asdict(it.within) | {"total_us": it.within.total_us}
    return asdict(it) | {"within": within}


def print_phased(jobs: Sequence[PhasedExplanation]) -> None:
    """Every job: its stretches in order of time, and below each phase what a period of it has."""
    for number, job in enumerate(jobs):
        if number:
            print()
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

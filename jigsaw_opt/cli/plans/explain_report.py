"""Printing why a job is slow."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import groupby

from jigsaw_opt.cli.common.output import print_table
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.simulation.results.result import JobTime
from jigsaw_opt.solvers.explanation import Explanation, JobExplanation
from jigsaw_opt.solvers.explanation.breakdown import NamedStep
from jigsaw_opt.solvers.explanation.chain import KINDS
from jigsaw_opt.solvers.explanation.changes import JobChange
from jigsaw_opt.solvers.explanation.in_words import folded
from jigsaw_opt.solvers.explanation.stretches import JobStretches, PhaseTime, Stretch
from jigsaw_opt.text import called, counted, printable
from jigsaw_opt.views.explained import TITLES, bound_text, calculation, claim_text, trust_text, wait_text

_LINES = 40
_MOST_WAITS = 10
_WAITS = {"release": "not yet released", "before": "waits for its first phase", "seam": "waits between phases"}


def print_explanation(explanation: Explanation) -> None:
    """Print a line for each job, or everything about the only one."""
    overview = explanation.job is None
    if explanation.plan.is_phased:
        jobs = [job for job in explanation.jobs if isinstance(job, JobStretches)]
        (_print_phases_overview if overview else _print_phases_of_job)(*jobs)
        if explanation.proof is not None:
            print()
            _print_bound(explanation)
    elif overview:
        _print_overview(explanation)
    else:
        print_job(explanation)
    for name, progress in explanation.progress().items():
        told = f"{100 * progress:.1f} % of a step with whole gradients at full depth"
        print(f"Progress of {called('job', printable(name))}: {told}.")


def _print_overview(explanation: Explanation) -> None:
    """Print a line for each job: the shares of its critical chain."""
    jobs = _listed(explanation)
    shown = [kind for kind in KINDS if any(job.time_us[kind] for job in jobs)]
    ends = "end us" if explanation.instance.horizon == "finite" else "period us"
    headers = ["job", ends, *(TITLES[kind] for kind in shown), "longest wait"]
    rows = []
    for job in jobs:
        longest = job.waits[0] if job.waits else None
        wait = "-" if longest is None else f"{longest.on}{_holder(longest.by)}: {longest.us:,} us"
        shares = [_share(job.time_us[kind], job.explained_us) for kind in shown]
        rows.append([job.job, f"{job.explained_us:,}", *shares, wait])
    print_table(headers, rows, headers[1:-1])
    print()
    _print_bound(explanation)


def _listed(explanation: Explanation) -> list[JobExplanation]:
    return [job for job in explanation.jobs if isinstance(job, JobExplanation)]


def print_job(explanation: Explanation) -> None:
    """Print everything about the only job of a plan that is not phased."""
    instance, (job,) = explanation.instance, _listed(explanation)
    if instance.horizon == "finite":
        _print_end(job)
    else:
        print(f"{called('job', printable(job.job))} has its iterations in a period of {job.explained_us:,} us")
    print()
    spent = [(TITLES[kind], f"{us:,}", _share(us, job.explained_us)) for kind, us in job.time_us.items() if us]
    print_table(("critical chain", "us", "share"), spent, ("us", "share"))
    for wait in job.waits[:_MOST_WAITS]:
        print(f"  {TITLES[wait.kind]}: {printable(wait.on + _holder(wait.by))}: {wait.us:,} us")
    print()
    _print_chain(job)
    print()
    _print_workers(job)
    print()
    _print_gains(instance, explanation.changes())
    print()
    _print_bound(explanation)


def _print_end(job: JobExplanation | JobStretches) -> None:
    print(f"{called('job', printable(job.job))} ends at {job.end_us:,} us; it may begin at {job.release_us:,} us")


def _print_gains(instance: Instance, gains: Sequence[JobChange]) -> None:
    """Print what each change alone gains; one sentence where none makes any difference."""
    if not any(gain.gain_us for gain in gains):
        print(f"None of these alone changes anything, the order kept: {', '.join(gain.change for gain in gains)}.")
        return
    value = "end us" if instance.horizon == "finite" else "period us"
    estimates = [(gain.change, f"{gain.end_us:,}", f"{gain.gain_us:,}") for gain in gains]
    print_table(("alone changed, the order kept", value, "gain us"), estimates, (value, "gain us"))


def _print_workers(job: JobExplanation) -> None:
    """Print where the time of its GPUs goes; neighbours with the same times are one line."""
    kinds = [kind for kind in KINDS if any(worker.time_us[kind] for worker in job.workers)]
    titles, rows = [TITLES[kind] for kind in kinds], []
    for times, group in groupby(job.workers, key=lambda worker: tuple(worker.time_us[kind] for kind in kinds)):
        gpus = [worker.gpu for worker in group]
        name = gpus[0] if len(gpus) == 1 else f"{gpus[0]} ... {gpus[-1]}, each of {len(gpus)}"
        rows.append([name, *(f"{us:,}" for us in times)])
    print_table(("time of its GPUs, us", *titles), rows[:_LINES], titles)
    if len(rows) > _LINES:
        print(f"and {counted(len(rows) - _LINES, 'more line')} (all with --json)")


def print_times(times: Sequence[JobTime]) -> None:
    """Print a line for each job of a simulation, the slowest first."""
    headers = ["job", "completion s", "queued", "running", "paused", "alone s", "runs longer by s", "restarts"]
    rows = []
    for time in sorted(times, key=lambda time: -time.completion_us):
        shares = [_share(us, time.completion_us) for us in (time.queued_us, time.running_us, time.paused_us)]
        seconds = [f"{us / 1e6:,.1f}" for us in (time.completion_us, time.alone_us, time.slower_us)]
        rows.append([time.job, seconds[0], *shares, *seconds[1:], f"{time.restarts:,}"])
    print_table(headers, rows, headers[1:])


def _print_chain(job: JobExplanation) -> None:
    lines = list(_chain_lines(job))
    print_table(("from us", "for us", "", "what it does or waits for"), lines[:_LINES], ("from us", "for us"))
    if len(lines) > _LINES:
        print(f"and {counted(len(lines) - _LINES, 'more line')} (all steps with --json)")


def _chain_lines(job: JobExplanation) -> Iterator[tuple[str, str, str, str]]:
    for fold in folded(job.chain):
        for at, (step, last, spent) in enumerate(zip(fold.steps, fold.last, fold.time_us, strict=True)):
            repeats = f"x {fold.times:,}" if fold.times > 1 and at == 0 else "  |" if fold.times > 1 else ""
            yield f"{step.start_us:,}", f"{spent:,}", repeats, _sentence(step, last)


def _sentence(step: NamedStep, last: NamedStep) -> str:
    """Return what a step is, or the first and the last of its repeats are."""
    first, end = (f"{each.operation}, iteration {each.iteration}" for each in (step, last))
    what = first if first == end else f"{first} ... {end}"
    if step.kind in ("compute", "exchange"):
        return what
    return f"{wait_text(step)} (before {what})"


def _holder(job: str) -> str:
    return f", held by {job}" if job else ""


def _share(us: int, explained_us: int) -> str:
    return f"{100 * us / max(1, explained_us):.1f} %" if us else "-"


def _print_bound(explanation: Explanation) -> None:
    """Print what is proven of the plan and why, in a few sentences."""
    instance, plan, reason = explanation.instance, explanation.plan, explanation.bound()
    exact = calculation(instance.objective, reason.proof)
    told = bound_text(instance.objective, reason)
    print(told + (f" Exactly: {exact}." if exact else "") + f" {trust_text(reason)}")
    optimal = plan.objective == reason.value
    verdict = ": it is optimal." if optimal else f"; the bound proven here is {reason.value:,}."
    print(f"The plan has {plan.objective:,}{verdict} {claim_text(plan.bound, reason.value)}".rstrip())


def _print_phases_overview(*jobs: JobStretches) -> None:
    """Print a line for each job: the shares of its time since its release, and its longest wait."""
    headers = ("job", "end us", "phases", "in them", _WAITS["before"], _WAITS["seam"], "longest wait")
    print_table(headers, map(_overview_row, jobs), headers[1:-1])


def _overview_row(job: JobStretches) -> list[str]:
    whole, time_us = job.end_us - job.release_us, job.time_us
    shares = [f"{100 * time_us[kind] / whole:.1f} %" if whole else "-" for kind in ("phase", "before", "seam")]
    waits = [stretch for stretch in job.stretches if stretch.kind in ("before", "seam")]
    longest = max(waits, key=lambda stretch: stretch.end_us - stretch.start_us, default=None)
    wait = "-" if longest is None else f"{longest.end_us - longest.start_us:,} us: {_words(longest)}"
    return [job.job, f"{job.end_us:,}", f"{sum(stretch.kind == 'phase' for stretch in job.stretches):,}", *shares, wait]


def _print_phases_of_job(job: JobStretches) -> None:
    """Print the stretches of a job in order of time, and what it does in each phase."""
    _print_end(job)
    rows = [
        (f"{stretch.start_us:,}", f"{stretch.end_us - stretch.start_us:,}", _words(stretch))
        for stretch in job.stretches
    ]
    print_table(("from us", "for us", "where it is"), rows, ("from us", "for us"))


def _words(stretch: Stretch) -> str:
    if stretch.within is not None:
        return _phase_words(stretch.within)
    gpus = defaultdict[tuple[str, ...], list[str]](list)
    for gpu, names in stretch.held_by.items():
        gpus[names].append(gpu)
    held = [f"{', '.join(own)} held by {', '.join(names)}" for names, own in gpus.items()]
    return "; ".join([_WAITS[stretch.kind], *held])


def _phase_words(time: PhaseTime) -> str:
    beside = f"with {', '.join(time.others)}" if time.others else "alone"
    iterations = counted(time.iterations, "iteration")
    what = f"{time.repeats:,} x a period of {time.period_us:,} us with {iterations}"
    spent = ", ".join(f"{TITLES[kind]} {us:,}" for kind, us in time.total_us.items() if us)
    return f"phase {time.phase} of group {time.group}, {beside}: {what}; in all {spent}"

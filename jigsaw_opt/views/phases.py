"""A phased plan as pictures: its phases on one long axis, and one period of each as a picture of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.job import Job
from jigsaw_opt.problem.plan import Phase, Plan
from jigsaw_opt.problem.shape import ShapedJob
from jigsaw_opt.solvers.explanation import explain
from jigsaw_opt.solvers.explanation.reason import bound_reason
from jigsaw_opt.solvers.phased.limits import bounded_instance
from jigsaw_opt.text import counted, duration, printable
from jigsaw_opt.views.colour import job_colour
from jigsaw_opt.views.explained import explained_picture, told_proof
from jigsaw_opt.views.html import timeline_data
from jigsaw_opt.views.lanes import Picture, picture
from jigsaw_opt.views.page import filled, template
from jigsaw_opt.views.text import LETTERS

__all__ = ["PhaseRow", "period_picture", "phase_rows", "phases_html", "phases_text"]


def period_picture(instance: Instance, plan: Plan, phase: Phase) -> Picture:
    """One period of a phase of a correct plan, as that of a cyclic plan, on the lanes that it uses."""
    drawn = picture(*plan.alone(instance, phase))
    used = tuple(lane for lane in drawn.lanes if lane.intervals)
    return replace(drawn, lanes=used, numbers=phase.numbers_in(instance))


def phases_text(instance: Instance, plan: Plan, columns: int = 72) -> str:
    """Rows of `columns` cells, one for each job by group; a cell is lettered if the job is in a phase there.

    Below them stands every phase with its start and end, its period, its repetitions, and what each job does in one.
    """
    end = max(1, max(phase.end_us for _, _, phase in plan.all_phases()))
    width = max(len(printable(job.name)) for job in instance.jobs)
    lines = []
    for g, group in enumerate(plan.groups):
        names = {job.name for phase in group.phases for job in phase.jobs}
        lines.append(f"group {g}")
        for number, job in enumerate(instance.jobs):
            if job.name in names:
                cells = "".join(_cells(job.name, LETTERS[number % len(LETTERS)], group.phases, end, columns))
                lines.append(f"{printable(job.name):<{width}} |{cells}|")
    scale = f"{'':<{width}} 0{end:>{columns}} us"
    return "\n".join([*lines, scale, *map(_described, plan.all_phases())])


def _cells(name: str, letter: str, phases: tuple[Phase, ...], end: int, columns: int) -> list[str]:
    cells = ["·"] * columns
    for phase in phases:
        if any(job.name == name for job in phase.jobs):
            first = phase.start_us * columns // end
            last = max(first, (phase.end_us * columns - 1) // end)
            cells[first : last + 1] = letter * (min(last, columns - 1) + 1 - first)
    return cells


def _described(placed: tuple[int, int, Phase]) -> str:
    g, p, phase = placed
    done = ", ".join(f"{printable(job.name)} {len(job.iterations)}" for job in phase.jobs)
    times = f"{duration(phase.start_us)} to {duration(phase.end_us)}"
    periods = f"{counted(phase.count, 'period')} of {duration(phase.cycle_us)}"
    return f"group {g} phase {p}: {times}, {periods}, iterations in each: {done}"


def phases_html(instance: Instance, plan: Plan, job: str | None = None) -> str:
    """A page that needs no network: the phases of every job on one axis; a click shows a period as a timeline.

    In the phases of `job`, if one is named, its critical chain is shown as a period opens.
    Names from the instance are data to the page and never markup.
    """
    phases = list(plan.all_phases())
    explained = len(phases) <= _MOST_EXPLAINED
    data = {
        "name": printable(instance.name),
        "status": plan.status,
        "objective": plan.objective,
        "objectiveName": instance.objective,
        "bound": plan.bound,
        "proof": told_proof(instance.objective, bound_reason(bounded_instance(instance), plan.bound), plan.bound),
        "solver": printable(str(plan.solver.get("name", ""))),
        "end": max(phase.end_us for _, _, phase in phases),
        "jobs": [_job(number, job) for number, job in enumerate(instance.jobs)],
        "rows": [row._asdict() for row in phase_rows(instance, plan)],
        "phases": [_told(instance, plan, placed, explained, job) for placed in phases],
        "template": template("timeline.html"),
    }
    return filled("phases.html", instance.name, data)


_MOST_EXPLAINED = 20
"""Periods of so many phases are explained; of more, that would take longer than to draw them."""


def _job(number: int, job: Job | ShapedJob) -> dict[str, object]:
    times = {"release": job.release_us, "deadline": job.deadline_us}
    return {"name": printable(job.name), "colour": job_colour(number), "iterations": job.iterations, **times}


def _told(
    instance: Instance, plan: Plan, placed: tuple[int, int, Phase], explained: bool, job: str | None
) -> dict[str, object]:
    """A phase as the page takes it: what it is, what each of its jobs does in a period, and the period as a page."""
    g, p, phase = placed
    drawn = period_picture(instance, plan, phase)
    gpus = [lane for lane in drawn.lanes if lane.kind == "gpu"]
    if any(it.name == job for it in phase.jobs):
        drawn = explained_picture(drawn, explain(drawn.instance, drawn.plan, job))
    elif explained:
        drawn = explained_picture(drawn)
    return {
        "title": _described(placed),
        "period": phase.period_us,
        "repeats": phase.repeats,
        "iterations": {printable(job.name): len(job.iterations) for job in phase.jobs},
        "gpus": len(gpus),
        "busy": sum(lane.busy_us for lane in gpus) / (len(gpus) * phase.cycle_us),
        "page": timeline_data(drawn) | {"name": f"a period of group {g} phase {p}"},
    }


class PhaseRow(NamedTuple):
    """The phases of a job in a group.

    Parameters
    ----------
    group
        Number of the group.
    job, name, colour
        Number, name and colour of the job.
    parts
        Of each of its phases: start and end in microseconds, and its number among all phases.
    """

    group: int
    job: int
    name: str
    colour: str
    parts: list[tuple[int, int, int]]


def phase_rows(instance: Instance, plan: Plan) -> Iterator[PhaseRow]:
    """A row for each job, group by group."""
    numbered = [(g, phase, number) for number, (g, _, phase) in enumerate(plan.all_phases())]
    for g in range(len(plan.groups)):
        for number, job in enumerate(instance.jobs):
            parts = [
                (phase.start_us, phase.end_us, k)
                for group, phase, k in numbered
                if group == g and any(it.name == job.name for it in phase.jobs)
            ]
            if parts:
                yield PhaseRow(g, number, printable(job.name), job_colour(number), parts)

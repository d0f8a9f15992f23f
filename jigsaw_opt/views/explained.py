"""The timeline of a plan with the critical chain of one job."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.plan import Plan
from jigsaw_opt.solvers.explanation.chain import StepKind
from jigsaw_opt.solvers.explanation.explain import JobExplanation, NamedStep
from jigsaw_opt.text import printable
from jigsaw_opt.views.lanes import Picture, picture

__all__ = ["TITLES", "explained_picture", "wait_text"]

TITLES: dict[StepKind, str] = {
    "compute": "compute",
    "exchange": "exchange",
    "partner": "waits for a partner",
    "gpu": "waits for a GPU",
    "link": "waits for a link",
    "memory": "waits for memory",
    "release": "waits for its release",
    "slack": "nothing in the way",
}
"""What the kinds of steps are called."""


def wait_text(step: NamedStep) -> str:
    """What a step that is a wait waits for, and who has it."""
    holder = f", held by {step.by}" if step.by else ""
    return TITLES[step.kind] + (f": {step.on}{holder}" if step.on else "")


def explained_picture(instance: Instance, plan: Plan, job: JobExplanation) -> Picture:
    """Lanes of a plan, with a mark on each operation of the chain that says what is before it."""
    number = [it.name for it in instance.jobs].index(job.job)
    spent = job.time_us.items()
    facts = [(TITLES[kind], f"{100 * us / max(1, job.explained_us):.1f} %") for kind, us in spent if us]
    marks = {(number, iteration, name): "\n".join(lines) for iteration, name, lines in _marks(job)}
    return replace(picture(instance, plan), facts=(("critical chain of", printable(job.job)), *facts), marks=marks)


def _marks(job: JobExplanation) -> Iterator[tuple[int, str, list[str]]]:
    """Each operation of the chain by iteration and name, with what is said of it."""
    before: list[str] = []
    for step in job.chain:
        if step.kind in ("compute", "exchange"):
            yield step.iteration, step.operation, ["on the critical chain", *before]
            before = []
        else:
            before.append(f"before it for {step.end_us - step.start_us:,} µs: {wait_text(step)}")

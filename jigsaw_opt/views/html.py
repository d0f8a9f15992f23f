"""A plan as one interactive HTML page that needs no network."""

from __future__ import annotations

from collections.abc import Iterator

from jigsaw_opt.problem.job import Job
from jigsaw_opt.text import printable
from jigsaw_opt.views.lanes import Picture
from jigsaw_opt.views.page import filled

__all__ = ["timeline_data", "timeline_html"]


def timeline_html(picture: Picture) -> str:
    """The page: a lane a GPU, a link and the memory that a GPU holds over time, with hover, zoom and highlighted jobs.

    Names from the instance are data to the page and never markup.
    """
    return filled("timeline.html", picture.instance.name, timeline_data(picture))


def timeline_data(picture: Picture) -> dict[str, object]:
    """What the page is made of."""
    plan, filled_share = picture.plan, picture.filled
    return {
        "name": printable(picture.instance.name),
        "status": plan.status,
        "objective": plan.objective,
        "objectiveName": picture.instance.objective,
        "bound": plan.bound,
        "period": plan.period_us,
        "end": picture.end_us,
        "solver": printable(str(plan.solver.get("name", ""))),
        "facts": picture.facts if filled_share is None else (("holes filled", f"{100 * filled_share:.1f} %"),),
        "jobs": [
            {
                "name": printable(job.name),
                "colour": colour,
                "depth": depth,
                "release": job.release_us,
                "deadline": job.deadline_us,
                "model": printable(job.model) if isinstance(job, Job) else f"{len(job.shape.slots)} slots",
                "operations": list(map(printable, names)),
            }
            for job, colour, depth, names in zip(
                picture.instance.jobs, picture.colours, picture.depths, picture.operations, strict=True
            )
        ],
        "marks": {
            f"{job}/{iteration}/{printable(name)}": "\n".join(map(printable, text.split("\n")))
            for (job, iteration, name), text in picture.marks.items()
        },
        "lanes": [*_lanes(picture)],
    }


def _lanes(picture: Picture) -> Iterator[dict[str, object]]:
    """Every lane, and behind a GPU what is taken of its memory."""
    for lane in picture.lanes:
        yield {"name": printable(lane.name), "kind": lane.kind, "intervals": lane.intervals}
        use = picture.memory.get(lane.name) if lane.kind == "gpu" else None
        if use:
            name = f"{printable(lane.name)} memory"
            yield {"name": name, "kind": "memory", "intervals": use.steps, "bytes": use.bytes}

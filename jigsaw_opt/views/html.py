"""A plan as one interactive HTML page that needs no network."""

from __future__ import annotations

from jigsaw_opt.text import printable
from jigsaw_opt.views.colour import job_colour
from jigsaw_opt.views.lanes import Picture
from jigsaw_opt.views.page import filled

__all__ = ["timeline_html"]


def timeline_html(picture: Picture) -> str:
    """The page: a lane a GPU and a link, with hover, zoom and highlighted jobs.

    Names from the instance are data to the page and never markup.
    """
    return filled("timeline.html", picture.instance.name, _data(picture))


def _data(picture: Picture) -> dict[str, object]:
    plan = picture.plan
    return {
        "name": printable(picture.instance.name),
        "status": plan.status,
        "objective": plan.objective,
        "objectiveName": picture.instance.objective,
        "bound": plan.bound,
        "period": plan.period_us,
        "end": picture.end_us,
        "solver": printable(str(plan.solver.get("name", ""))),
        "facts": picture.facts,
        "jobs": [
            {"name": printable(job.name), "colour": job_colour(k), "depth": depth, "model": printable(spec.model)}
            for k, (job, depth, spec) in enumerate(
                zip(plan.jobs, picture.depths, picture.instance.data_parallel, strict=True)
            )
        ],
        "lanes": [
            {"name": printable(lane.name), "kind": lane.kind, "intervals": lane.intervals} for lane in picture.lanes
        ],
    }

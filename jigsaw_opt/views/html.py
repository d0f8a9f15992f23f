"""A plan as one interactive HTML page that needs no network."""

from __future__ import annotations

import html
from importlib.resources import files

from jigsaw_opt.views.colour import job_colour
from jigsaw_opt.views.lanes import Picture

__all__ = ["timeline_html"]


def timeline_html(picture: Picture) -> str:
    """The page: a lane a GPU and a link, with hover, zoom and highlighted jobs.

    Names from the instance are data to the page and never markup.
    """
    import msgspec

    data = msgspec.json.encode(_data(picture)).decode()
    # Inside a script element only "</script" and "<!--" could end the data early.
    data = data.replace("<", "\\u003c")
    page = files(__package__).joinpath("timeline.html").read_text(encoding="utf-8")
    return page.replace("{{title}}", html.escape(picture.instance.name)).replace("{{data}}", data)


def _data(picture: Picture) -> dict[str, object]:
    plan = picture.plan
    return {
        "name": picture.instance.name,
        "status": plan.status,
        "objective": plan.objective,
        "objectiveName": picture.instance.objective,
        "bound": plan.bound,
        "period": plan.period_us,
        "end": picture.end_us,
        "solver": str(plan.solver.get("name", "")),
        "facts": picture.facts,
        "jobs": [
            {"name": job.name, "colour": job_colour(k), "depth": depth, "model": spec.model}
            for k, (job, depth, spec) in enumerate(zip(plan.jobs, picture.depths, picture.instance.jobs, strict=True))
        ],
        "lanes": [{"name": lane.name, "kind": lane.kind, "intervals": lane.intervals} for lane in picture.lanes],
    }

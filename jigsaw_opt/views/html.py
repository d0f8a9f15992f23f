"""A plan as one interactive HTML page that needs no network."""

from __future__ import annotations

from collections.abc import Iterator

from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.problem.job import Job
from jigsaw_opt.text import counted, printable
from jigsaw_opt.views.explained import told_proof, told_story
from jigsaw_opt.views.lanes import Picture
from jigsaw_opt.views.page import filled

__all__ = ["timeline_data", "timeline_html"]


def timeline_html(picture: Picture) -> str:
    """The page: a lane a GPU, a link and the memory that a GPU holds over time, with hover, zoom and highlighted jobs.

    Names from the instance are data to the page and never markup.
    """
    return filled("timeline.html", picture.instance.name, timeline_data(picture))


def timeline_data(picture: Picture) -> dict[str, object]:
    """What the page is made of; a bound of 0 says nothing, and is none."""
    plan, filled_share, proven = picture.plan, picture.filled, picture.proven
    return {
        "name": printable(picture.instance.name),
        "status": "optimal" if proven and proven.value >= plan.objective else plan.status,
        "objective": plan.objective,
        "objectiveName": picture.instance.objective,
        "bound": max(plan.bound, proven.value if proven else 0) or None,
        "proof": None if proven is None else told_proof(picture.instance.objective, proven, plan.bound),
        "period": plan.period_us,
        "end": picture.end_us,
        "solver": printable(str(plan.solver.get("name", ""))),
        "facts": picture.facts if filled_share is None else (("holes filled", f"{100 * filled_share:.1f} %"),),
        "jobs": list(_jobs(picture)),
        "chosen": picture.chosen,
        "racks": _racks(picture.instance.cluster),
        "lanes": [*_lanes(picture)],
    }


def _jobs(picture: Picture) -> Iterator[dict[str, object]]:
    of_jobs = zip(
        picture.instance.jobs, picture.colours, picture.depths, picture.operations, picture.edges, strict=True
    )
    for number, (job, colour, depth, names, edges) in enumerate(of_jobs):
        story = picture.stories.get(number)
        yield {
            "name": printable(job.name),
            "colour": colour,
            "depth": depth,
            "release": job.release_us,
            "deadline": job.deadline_us,
            "model": printable(job.model) if isinstance(job, Job) else counted(len(job.shape.slots), "slot"),
            "operations": list(map(printable, names)),
            "edges": edges,
            "story": None if story is None else told_story(story),
        }


def _racks(cluster: Cluster) -> dict[str, str]:
    """By server the switch that stands for its rack; empty where servers are on one switch or on several each."""
    switches, servers = set(cluster.switches), {server.name for server in cluster.servers}
    racks: dict[str, str] = {}
    for link in cluster.links:
        for server, switch in (link.ends, link.ends[::-1]):
            if server in servers and switch in switches and racks.setdefault(server, switch) != switch:
                return {}
    racks = {printable(server): printable(switch) for server, switch in racks.items()}
    return racks if len(set(racks.values())) > 1 else {}


def _lanes(picture: Picture) -> Iterator[dict[str, object]]:
    """Every lane, and behind a GPU what is taken of its memory."""
    for lane in picture.lanes:
        yield {"name": printable(lane.name), "kind": lane.kind, "intervals": lane.intervals}
        use = picture.memory.get(lane.name) if lane.kind == "gpu" else None
        if use:
            name = f"{printable(lane.name)} memory"
            yield {"name": name, "kind": "memory", "intervals": use.steps, "bytes": use.bytes}

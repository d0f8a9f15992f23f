"""A plan as one interactive HTML page that needs no network."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from html import escape

from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.plan import Phase, Plan
from jigsaw_opt.solvers.explanation.breakdown import explain_jobs
from jigsaw_opt.text import counted, printable
from jigsaw_opt.views import lanes
from jigsaw_opt.views.explained import explained_picture, told_proof, told_story
from jigsaw_opt.views.lanes import MemoryLane, Picture, period_picture
from jigsaw_opt.views.page import filled, template
from jigsaw_opt.views.text import phase_text

_MOST_EXPLAINED = 20
"""Periods of so many phases are explained; of more, that would take longer than to draw them."""


def timeline_html(picture: Picture) -> str:
    """Return the page: a lane for each GPU, link and GPU memory over time, with hover, zoom and highlights.

    Of a phased plan the phases of every job and the memory of GPUs are on one axis, and a click shows a period as such
    a page. Names from the instance are data to the page and never markup.
    """
    name = picture.instance.name
    if picture.plan.is_phased:
        return filled("phases.html", name, _phases_data(picture))
    return filled("timeline.html", name, timeline_data(picture))


def timeline_data(picture: Picture) -> dict[str, object]:
    """Return what the page is made of; a bound of 0 says nothing, and is none."""
    return _head(picture) | {
        "period": picture.plan.period_us,
        "jobs": list(_jobs(picture)),
        "chosen": picture.chosen,
        "racks": _racks(picture.instance.cluster),
        "lanes": [*_lanes(picture)],
    }


def _head(picture: Picture) -> dict[str, object]:
    """Return what both pages tell of a plan as a whole: proven is what was proven here, whatever its file claims."""
    plan, instance, proven = picture.plan, picture.instance, picture.proven
    best = 0 if proven is None else proven.value
    reached = "certified optimal" if proven and proven.certified else "optimal"
    claimed = f"{plan.status} by the plan file, not checked" if plan.status == "optimal" else plan.status
    return {
        "name": printable(instance.name),
        "status": reached if proven and best >= plan.objective else claimed,
        "objective": plan.objective,
        "objectiveName": instance.objective,
        "bound": best or None,
        "proof": None if proven is None else told_proof(instance.objective, proven, plan.bound),
        "solver": printable(str(plan.solver.get("name", ""))),
        "facts": _facts(picture),
        "end": picture.end_us,
    }


def _facts(picture: Picture) -> tuple[tuple[str, str], ...]:
    share = picture.filled
    return picture.facts if share is None else (("holes filled", f"{100 * share:.1f} %"),)


def _phases_data(picture: Picture) -> dict[str, object]:
    """Return what the page of a phased plan is made of."""
    phases = list(picture.plan.all_phases())
    return _head(picture) | {
        "jobs": [
            {"name": printable(job.name), "release": job.release_us, "deadline": job.deadline_us}
            for job in picture.instance.jobs
        ],
        "rows": [*_rows(picture)],
        "memory": [_memory_lane(row) for row in picture.rows if isinstance(row, MemoryLane)],
        "phases": [_phase(picture, placed, len(phases) <= _MOST_EXPLAINED) for placed in phases],
        "template": template("timeline.html"),
    }


def _rows(picture: Picture) -> Iterator[dict[str, object]]:
    """Yield a row for each lane, with the start and end of each phase and its number among all."""
    for lane in picture.lanes:
        job, parts = lane.intervals[0].job, [(each.start_us, each.end_us, each.number) for each in lane.intervals]
        row = {"group": lane.group, "job": job, "name": printable(lane.name), "colour": picture.colours[job]}
        yield row | {"parts": parts, "measured": lane.is_measured}


def _phase(picture: Picture, placed: tuple[int, int, Phase], explained: bool) -> dict[str, object]:
    """Return a phase as the page takes it: what it is, what each job does in a period, and the period's page."""
    g, p, phase = placed
    drawn = period_picture(picture, phase)
    gpus = [lane for lane in drawn.lanes if lane.kind == "gpu"]
    chosen = None if picture.chosen is None else picture.instance.jobs[picture.chosen].name
    if picture.proven is not None and any(job.name == chosen for job in phase.jobs):
        drawn = explained_picture(drawn, explain_jobs(drawn.instance, drawn.plan, chosen))
    elif picture.proven is not None and explained:
        drawn = explained_picture(drawn)
    return {
        "title": phase_text(placed),
        "period": phase.period_us,
        "repeats": phase.repeats,
        "iterations": {printable(job.name): len(job.iterations) for job in phase.jobs},
        "gpus": len(gpus),
        "busy": sum(lane.busy_us for lane in gpus) / (len(gpus) * phase.cycle_us),
        "page": timeline_data(drawn) | {"name": f"a period of group {g} phase {p}"},
    }


def _jobs(picture: Picture) -> Iterator[dict[str, object]]:
    colours, depths, operations, edges = picture.colours, picture.depths, picture.operations, picture.edges
    for number, job in enumerate(picture.instance.jobs):
        story = picture.stories.get(number)
        yield {
            "name": printable(job.name),
            "colour": colours[number],
            "depth": depths[number],
            "release": job.release_us,
            "deadline": job.deadline_us,
            "model": counted(job.workers, "slot") if job.model is None else printable(job.model),
            "operations": list(map(printable, operations[number])),
            "edges": edges[number],
            "story": None if story is None else told_story(story),
        }


def _racks(cluster: Cluster) -> dict[str, str]:
    """Return for each server the switch of its rack; empty where servers are on one switch, or on several each."""
    switches, servers = set(cluster.switches), {server.name for server in cluster.servers}
    racks: dict[str, str] = {}
    for link in cluster.links:
        for server, switch in (link.ends, link.ends[::-1]):
            if server in servers and switch in switches and racks.setdefault(server, switch) != switch:
                return {}
    racks = {printable(server): printable(switch) for server, switch in racks.items()}
    return racks if len(set(racks.values())) > 1 else {}


def _lanes(picture: Picture) -> Iterator[dict[str, object]]:
    """Yield every row; a step of memory has the number of the names of the jobs that take it."""
    for lane in picture.rows:
        if isinstance(lane, MemoryLane):
            yield _memory_lane(lane)
        else:
            yield {"name": printable(lane.name), "kind": lane.kind, "intervals": lane.intervals}


def _memory_lane(lane: MemoryLane) -> dict[str, object]:
    """Return what is taken of the memory of a GPU, and the names of those who take it, each list of them once."""
    holders = list(dict.fromkeys(step.jobs for step in lane.use.steps))
    number = {jobs: k for k, jobs in enumerate(holders)}
    return {
        "name": printable(lane.name),
        "kind": "memory",
        "intervals": [(*step[:3], number[step.jobs]) for step in lane.use.steps],
        "bytes": lane.use.bytes,
        "holders": [", ".join(map(printable, jobs)) for jobs in holders],
    }


class NotebookPicture(lanes.Picture):
    """A picture that a notebook shows as its timeline page."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        """Return the timeline page in a frame; scripts in it reach nothing of the notebook."""
        page = escape(timeline_html(explained_picture(self)))
        return f'<iframe title="timeline" sandbox="allow-scripts" width="100%" height="480" srcdoc="{page}"></iframe>'


def picture(instance: Instance, plan: Plan) -> NotebookPicture:
    """Return the lanes of a correct plan, as `jigsaw_opt.views.lanes.picture` does, for a notebook to show.

    Parameters
    ----------
    instance
        The instance.
    plan
        A plan that is correct for it.
    """
    drawn = lanes.picture(instance, plan)
    return NotebookPicture(**{each.name: getattr(drawn, each.name) for each in fields(drawn)})

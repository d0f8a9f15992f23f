"""Instances that differ from a given one in one thing, validated as a document is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from jigsaw_opt.arguments import typed
from jigsaw_opt.errors import InvalidInputError, Problem
from jigsaw_opt.problem.cluster import Link
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.job import Job
from jigsaw_opt.problem.model import Model
from jigsaw_opt.problem.task_graph import TaskGraphJob
from jigsaw_opt.text import suggestion


@typed
def add_job(instance: Instance, job: Job | TaskGraphJob, models: Mapping[str, Model] | None = None) -> Instance:
    """Return the instance with one more job, the last one.

    Parameters
    ----------
    instance
        Stays as it is.
    job
        The new job.
    models
        Models by name that it needs and the instance lacks; one that the instance has is replaced.

    Raises
    ------
    InvalidInputError
        The result is no valid instance (specification: validity); with all problems.
    """
    return replace(instance, jobs=(*instance.jobs, job), models={**instance.models, **(models or {})})


@typed
def remove_job(instance: Instance, name: str) -> Instance:
    """Return the instance without the job of a name; its models stay.

    Parameters
    ----------
    instance
        The instance; it stays as it is.
    name
        Name of the job.

    Raises
    ------
    InvalidInputError
        There is no such job, or it is the only one.
    """
    left = tuple(job for job in instance.jobs if job.name != name)
    if len(left) == len(instance.jobs):
        raise InvalidInputError(
            [Problem("$.jobs", f'no job is called "{name}"', _near(name, instance.jobs), code="unknown-name")]
        )
    return replace(instance, jobs=left)


@typed
def change_bandwidth(instance: Instance, link: str, bandwidth: int) -> Instance:
    """Return the instance with another bandwidth of a link.

    Parameters
    ----------
    instance
        The instance; it stays as it is.
    link
        Name of the link.
    bandwidth
        Bytes a second, at least 1.

    Raises
    ------
    InvalidInputError
        There is no such link, or the bandwidth is none.
    """
    links = instance.cluster.links
    changed = tuple(replace(known, bandwidth=bandwidth) if known.name == link else known for known in links)
    if all(known.name != link for known in links):
        raise InvalidInputError(
            [Problem("$.cluster.links", f'no link is called "{link}"', _near(link, links), code="unknown-name")]
        )
    return replace(instance, cluster=replace(instance.cluster, links=changed))


def _near(name: str, known: Iterable[Job | TaskGraphJob | Link]) -> str:
    """Return which of them may have been meant."""
    return suggestion(str(name), [one.name for one in known])

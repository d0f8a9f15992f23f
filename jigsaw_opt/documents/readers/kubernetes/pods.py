"""Read a job from pods of Kubernetes, or from the jobs of a gang."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any, NamedTuple

from jigsaw_opt.documents.readers.kubernetes.kinds import CLAIMS, condition_of, job_of_item, tell_shares, time_us
from jigsaw_opt.documents.readers.kubernetes.requests import PodNeeds, requests_of
from jigsaw_opt.documents.readers.tally import NEVER_STARTED, NO_GPU, STILL_RUNNING, Tally, Unfinished
from jigsaw_opt.documents.readers.tree import Tree
from jigsaw_opt.problem.workload import TraceJob

_NO_END = "ended without a time of end"


class _GpuInterval(NamedTuple):
    """GPUs that a pod held, and from when to when in microseconds."""

    start_us: int
    end_us: int
    gpus: int


def job_of_pods(name: str, pods: Sequence[Tree], tally: Tally) -> TraceJob | Unfinished | str:
    """Return the job that pods of one owner make up, or why they make up none.

    It has as many GPUs as its pods held at a time, since a pod that takes the place of another does not add to it,
    and lasts from the first start to the last end of a pod with GPUs.
    """
    needs = [PodNeeds(pod.at("spec")) for pod in pods]
    asking = [(pod, need) for pod, need in zip(pods, needs, strict=True) if need.gpus]
    if not asking:
        return CLAIMS if any(need.claims for need in needs) else NO_GPU
    failed = [_is_over(pod) and pod.at("status", "phase").value != "Succeeded" for pod, _ in asking]
    started = [bool(pod.at("status", "startTime")) for pod, _ in asking]
    created_us = min(time_us(pod.at("metadata", "creationTimestamp")) for pod in pods)
    if not any(started):
        return _unfinished(name, created_us, asking, NEVER_STARTED)
    if not all(has or over for has, over in zip(started, failed, strict=True)):
        return _unfinished(name, created_us, asking, STILL_RUNNING)
    held, ends = [], []
    for pod, need in (one for one, has in zip(asking, started, strict=True) if has):
        start_us, end_us = time_us(pod.at("status", "startTime")), _end_of_pod(pod)
        if end_us is None and not _is_over(pod):
            return _unfinished(name, created_us, asking, STILL_RUNNING)
        if end_us is None:
            tally.remark("pods that were evicted or lost at a time that nothing tells, of which only the start counts")
        elif end_us < start_us:
            pod.at("status").add("it ends before it starts", code="wrong-order")
        ends += [] if end_us is None else [end_us]
        held.append(_GpuInterval(start_us, start_us if end_us is None else end_us, need.gpus))
    if not ends:
        return _NO_END
    tell_shares(tally, needs)
    asked = requests_of(asking[0][0], [need.spec for _, need in asking], tally)
    return _job_of_intervals(name, created_us, held, asked)


def job_of_gang(name: str, items: Sequence[Tree], tally: Tally) -> TraceJob | Unfinished | str:
    """Return the job that several jobs of one gang make up, or why they make up none."""
    found = [job_of_item(item, tally) for item in items]
    jobs = [one for one in found if isinstance(one, TraceJob)]
    left = [one for one in found if isinstance(one, Unfinished)]
    if not jobs and not left:
        return str(found[0])
    created_us = min(job.submit_us for job in (*jobs, *(one.job for one in left)))
    first = jobs[0] if jobs else left[0].job
    types = [job.gpu_types for job in (*jobs, *(one.job for one in left))]
    stated = {field: getattr(first, field) for field in ("queue", "priority", "preemptible")}
    stated["gpu_types"] = None if None in types else tuple(dict.fromkeys(kind for own in types for kind in own or ()))
    if left:
        starts = [one.job.start_us for one in left]
        reason = STILL_RUNNING if jobs or any(start is not None for start in starts) else left[0].reason
        stated["start_us"] = None if None in starts else max(start for start in starts if start is not None)
        return Unfinished.of(name, created_us, sum(one.job.gpus for one in left), reason, **stated)
    held = [_GpuInterval(job.start_us or 0, job.end_us or 0, job.gpus) for job in jobs]
    return _job_of_intervals(name, created_us, held, stated)


def _job_of_intervals(name: str, created_us: int, held: Sequence[_GpuInterval], stated: Mapping[str, Any]) -> TraceJob:
    """Return a job from the first start to the last end, with as many GPUs as were held at a time."""
    start_us, end_us = min(one.start_us for one in held), max(one.end_us for one in held)
    job = TraceJob.lasting(name, created_us, _most_at_a_time(held), max(0, end_us - start_us))
    return replace(job, start_us=start_us, end_us=end_us, **stated)


def _unfinished(name: str, created_us: int, asking: Sequence[tuple[Tree, PodNeeds]], reason: str) -> Unfinished | str:
    """Return a job of pods that wait or run, by those that are not over; or the reason alone where all are over."""
    left = [(pod, need) for pod, need in asking if not _is_over(pod)]
    if not left:
        return reason
    starts = [pod.at("status", "startTime") for pod, _ in left]
    start_us = max(map(time_us, starts)) if all(starts) else None
    return Unfinished.of(name, created_us, sum(need.gpus for _, need in left), reason, start_us=start_us)


def _is_over(pod: Tree) -> bool:
    """Return whether a pod has ended, well or not, or is lost with its node."""
    status = pod.at("status")
    lost = status.at("phase").value == "Unknown" and condition_of(status, "type", ("DisruptionTarget",))
    return status.at("phase").value in ("Succeeded", "Failed") or bool(lost)


def _end_of_pod(pod: Tree) -> int | None:
    """Return when the last container of a pod ended, or else when the pod did; None where nothing says when."""
    status = pod.at("status")
    states = [container.at("state") for container in status.at("containerStatuses").items()]
    ends = [end for state in states if (end := state.at("terminated", "finishedAt"))]
    if not ends or len(ends) < len(states):
        if not _is_over(pod):
            return None
        told = condition_of(status, "type", ("DisruptionTarget",)) or condition_of(status, "type", ("Ready",), "False")
        ends += filter(None, [told.at("lastTransitionTime")])
    return max(map(time_us, ends), default=None)


def _most_at_a_time(held: Iterable[_GpuInterval]) -> int:
    """Return the most GPUs that are held at a time; at equal times GPUs are given back before others are taken."""
    changes = [(one.start_us, 1, one.gpus) for one in held]
    changes += [(max(one.end_us, one.start_us + 1), 0, -one.gpus) for one in held]
    return max(accumulate(change for _, _, change in sorted(changes)))

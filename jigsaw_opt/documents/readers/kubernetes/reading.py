"""Jobs of Kubernetes: ``kubectl get jobs -A -o json``, or another kind of them, or pods, or several kinds together.

A job of ``batch/v1`` has ``parallelism`` pods at a time, no more than ``completions``; one of Kubeflow or Volcano the
``replicas`` of each of its replica specs or tasks, a ``Workload`` of Kueue the pods that were admitted. The jobs of a
JobSet are one job. Pods of one owner are a job of their own where the owner is not in the list. `PodNeeds` says which
GPUs count. A job lasts from its start to its end, well or not, to the second. Jobs without a GPU, those that have not
ended, and those with an item that is wrong are left out. Of an item that stands there several times, as in lists that
were put together, the last counts. The first creation is time 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any, NamedTuple

from jigsaw_opt.documents.parsing import parsed
from jigsaw_opt.documents.readers.kubernetes.jobs import (
    CLAIMS,
    PodNeeds,
    condition_of,
    is_read,
    job_of_item,
    kind_of_item,
    name_of,
    requests_of,
    tell_shares,
    time_us,
)
from jigsaw_opt.documents.readers.table import Accept, anything, from_first
from jigsaw_opt.documents.readers.tally import NEVER_STARTED, NO_GPU, STILL_RUNNING, Found, Tally, Unfinished
from jigsaw_opt.documents.readers.tree import Tree, accepted_jobs
from jigsaw_opt.problem.rules.report import Report
from jigsaw_opt.problem.workload import TraceJob, Workload

_JOBSET = "jobset.sigs.k8s.io/jobset-name"
_GANGS = ("JobSet", "TrainJob")
"""Kinds that make jobs which run together; a JobSet has the name of the TrainJob that it belongs to."""
_LABELS = (_JOBSET, "training.kubeflow.org/job-name", "volcano.sh/job-name", "batch.kubernetes.io/job-name", "job-name")
"""Labels by which a pod names its job, the widest first."""


class _ListedItem(NamedTuple):
    """An item of the list, with names in its namespace."""

    tree: Tree
    kind: tuple[str, str]
    name: str
    owners: tuple[tuple[str, str], ...]
    """Kind and name of what it belongs to."""
    gang: str
    """The JobSet of a job; empty where there is none."""


def resembles(head: str) -> int:
    """Return how many of its keys the beginning of a text has; 0 where it is of another format."""
    if head.lstrip().startswith("{"):
        return 2 * ('"apiVersion"' in head and any(key in head for key in ('"items"', '"spec"')))
    first = next((line for line in head.splitlines() if line.strip() and line[0] not in "#-"), "")
    return int(first.startswith("apiVersion:"))


def read_kubernetes(data: bytes | str, source: str = "jobs.json", accept: Accept = anything) -> Workload:
    """Read a list of jobs of Kubernetes.

    `data`: the content of the file; text, or bytes in UTF-8. `accept`: returns what is wrong with a job that has a
    model, one text a problem.
    """
    jobs: dict[str, TraceJob] = {}
    tally = Tally()

    def read(tree: Any, report: Report) -> None:
        top = Tree(tree, "$", report)
        items = top.at("items")
        single = not items and bool(top.at("kind")) and bool(top.at("metadata", "name"))
        if not single and not isinstance(items.value, list):
            items.add("the list of jobs is expected, as 'kubectl get jobs -A -o json' prints it", code="wrong-type")
            return
        trees = [top] if single else _each_once(list(items.items()), tally)
        jobs.update(accepted_jobs(_told_apart(_jobs(trees, tally), tally), accept, tally))
        if not jobs and not report.problems:
            items.add("no job has GPUs and has ended", tally.told(), code="empty")

    parsed(data, source, read)
    return from_first(tally.workload(source, jobs.values()), zoned=True)


def _each_once(items: list[Tree], tally: Tally) -> list[Tree]:
    """Return the items, of those that stand there several times the last."""
    last: dict[object, Tree] = {}
    for item in items:
        meta = item.value.get("metadata") if isinstance(item.value, dict) else None
        named = meta if isinstance(meta, dict) and meta.get("name") else {}
        stated = [named.get(key) for key in ("uid", "namespace", "name", "creationTimestamp")] if named else []
        key = (str(item.at("kind").value), str(stated)) if stated else id(item)
        if last.pop(key, None) is not None:
            tally.remark("items that stand there several times, of which the last counts")
        last[key] = item
    return list(last.values())


def _told_apart(found: Iterable[tuple[Tree, Found]], tally: Tally) -> Iterator[tuple[Tree, Found]]:
    """Yield jobs with numbers behind names that others have, be they of another kind or of an earlier time."""
    times = Counter[str]()
    for item, job in found:
        if isinstance(job, TraceJob):
            times[job.name] += 1
            if times[job.name] > 1:
                tally.remark("jobs with the name of another one, told apart by numbers")
                job = replace(job, name=f"{job.name} ({times[job.name]})")
        yield item, job


def _jobs(trees: list[Tree], tally: Tally) -> Iterator[tuple[Tree, Found]]:
    """Yield the jobs of a list, or why there is none, with the items that they stand in."""
    items: list[_ListedItem] = []
    for tree in trees:
        known = len(tree.report.problems)
        item = _item(tree)
        if len(tree.report.problems) > known:
            yield tree, ""
        else:
            items.append(item)
    gangs: dict[str, list[Tree]] = {}
    for item in items:
        if item.gang:
            gangs.setdefault(item.gang, []).append(item.tree)
    jobs = {(item.kind[0], item.name) for item in items if item.kind[0] and is_read(item.tree)}
    jobs |= {(kind, name) for kind in _GANGS for name in gangs}
    pods: dict[str, list[Tree]] = {}
    for item in items:
        own = [(item.kind[0], item.name)] if item.kind[0] in _GANGS else []
        if item.gang:
            continue
        if any(one in jobs for one in (*item.owners, *own)):
            tally.remark("items that belong to a job of the list, counted with it")
        elif item.kind == ("Pod", ""):
            pods.setdefault(_job_name(item.tree), []).append(item.tree)
        else:
            yield item.tree, job_of_item(item.tree, tally)
    for name, group in gangs.items():
        yield group[0], job_of_gang(name, group, tally)
    for name, group in pods.items():
        yield group[0], job_of_pods(name, group, tally)


def _item(tree: Tree) -> _ListedItem:
    """Return an item with its names; what is wrong with them is noted."""
    kind = kind_of_item(tree)
    owners = list(tree.at("metadata", "ownerReferences").items())
    made_by = tuple((str(owner.at("kind").value), _beside(tree, owner.at("name").value)) for owner in owners)
    gang = _gang_of(tree) if kind[0] == "Job" and is_read(tree) else tree.nothing()
    name = _beside(tree, tree.at("metadata", "name").value)
    if kind == ("Pod", ""):
        _job_name(tree)
    return _ListedItem(tree, kind, name, made_by, _beside(tree, gang.text()) if gang else "")


def _gang_of(job: Tree) -> Tree:
    """Return the name of the JobSet that a job belongs to, by its label or its owner; nothing where there is none."""
    owners = job.at("metadata", "ownerReferences").items()
    owned = (owner.at("name") for owner in owners if owner.at("kind").value == "JobSet")
    return job.at("metadata", "labels", _JOBSET) or next(owned, job.nothing())


def _beside(item: Tree, name: object) -> str:
    """Return the name of something in the namespace of an item; what is wrong with either is told elsewhere."""
    space = item.at("metadata", "namespace").value
    return f"{space if isinstance(space, str) else 'default'}/{name}"


def _job_name(pod: Tree) -> str:
    """Return the job that a pod belongs to, by its labels or its owner; it may be one by itself."""
    labels, owners = pod.at("metadata", "labels"), list(pod.at("metadata", "ownerReferences").items())
    stated = [labels.at(label) for label in _LABELS if labels.at(label)]
    owned = [owner.at("name") for owner in owners if owner.at("name")]
    for name in (*stated[:1], *owned[:1]):
        return _beside(pod, name.text())
    return name_of(pod)


_NO_END = "ended without a time of end"


class _GpuInterval(NamedTuple):
    """GPUs that a pod held, and from when to when in microseconds."""

    start_us: int
    end_us: int
    gpus: int


def job_of_pods(name: str, pods: Sequence[Tree], tally: Tally) -> Found:
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


def job_of_gang(name: str, items: Sequence[Tree], tally: Tally) -> Found:
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
    # At equal times GPUs are given back before others are taken.
    changes = [(one.start_us, 1, one.gpus) for one in held]
    changes += [(max(one.end_us, one.start_us + 1), 0, -one.gpus) for one in held]
    most = max(accumulate(change for _, _, change in sorted(changes)))
    job = TraceJob.lasting(name, created_us, most, max(0, end_us - start_us))
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

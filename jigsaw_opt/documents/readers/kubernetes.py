"""Jobs of Kubernetes: ``kubectl get jobs -A -o json``, or another kind of them, or pods, or several kinds together.

A job of ``batch/v1`` has ``parallelism`` pods at a time, no more than ``completions``; one of Kubeflow or Volcano the
``replicas`` of each of its replica specs or tasks, a ``Workload`` of Kueue the pods that were admitted. The jobs of a
JobSet are one job. Pods of one owner are a job of their own where the owner is not in the list. `PodNeeds` says which
GPUs count. A job lasts from its start to its end, well or not, to the second. Jobs without a GPU, and those that have
not ended, are left out. The first creation is time 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jigsaw_opt.documents.parsing import parsed
from jigsaw_opt.documents.readers.kubernetes_kinds import is_read, job_of_item, kind_of_item, name_of
from jigsaw_opt.documents.readers.kubernetes_pods import job_of_gang, job_of_pods
from jigsaw_opt.documents.readers.table import Accept, anything, from_first
from jigsaw_opt.documents.readers.tally import Tally, Unfinished
from jigsaw_opt.documents.readers.tree import Tree, accepted_jobs
from jigsaw_opt.problem.rules.report import Report
from jigsaw_opt.problem.workload import TraceJob, Workload

__all__ = ["read_kubernetes", "resembles"]

_JOBSET = "jobset.sigs.k8s.io/jobset-name"
_GANGS = ("JobSet", "TrainJob")
"""Kinds that make jobs which run together; a JobSet has the name of the TrainJob that it belongs to."""
_LABELS = (
    _JOBSET,
    "training.kubeflow.org/job-name",
    "volcano.sh/job-name",
    "batch.kubernetes.io/job-name",
    "job-name",
)
"""Labels by which a pod names its job, the widest first."""


def resembles(head: str) -> int:
    """Return how many of its keys the beginning of a text has; 0 where it is of another format."""
    return 2 * (head.lstrip().startswith("{") and '"apiVersion"' in head and '"items"' in head)


def read_kubernetes(data: bytes | str, source: str = "jobs.json", accept: Accept = anything) -> Workload:
    """Read a list of jobs of Kubernetes.

    Parameters
    ----------
    data
        The content of the file; text, or bytes in UTF-8.
    source
        What problems call it: usually the name of the file.
    accept
        Returns what is wrong with a job that has a model, one text a problem.

    Raises
    ------
    InvalidInputError
        With every problem and its path.
    """
    jobs: dict[str, TraceJob] = {}
    tally = Tally()

    def read(tree: Any, report: Report) -> None:
        items = Tree(tree, "$", report).at("items")
        if not isinstance(items.value, list):
            items.add("the list of jobs is expected, as 'kubectl get jobs -A -o json' prints it", code="wrong-type")
            return
        jobs.update(accepted_jobs(_jobs(list(items.items()), tally), accept, tally))
        if not jobs and not report.problems:
            items.add("no job has GPUs and has ended", tally.told(), code="empty")

    parsed(data, source, read)
    return from_first(tally.workload(source, jobs.values()), zoned=True)


def _jobs(items: list[Tree], tally: Tally) -> Iterator[tuple[Tree, TraceJob | Unfinished | str]]:
    """Yield the jobs of a list, or why there is none, with the items that they stand in."""
    jobs = [item for item in items if _is_job(item)]
    known = {(kind_of_item(item)[0], _beside(item, item.at("metadata", "name").value)) for item in jobs}
    gangs: dict[str, list[Tree]] = {}
    for item in jobs:
        if kind_of_item(item)[0] == "Job" and (gang := _gang_of(item)):
            gangs.setdefault(_beside(item, gang.text()), []).append(item)
    known |= {(kind, name) for kind in _GANGS for name in gangs}
    members = {id(item) for group in gangs.values() for item in group}
    pods: dict[str, list[Tree]] = {}
    for item in items:
        owners = item.at("metadata", "ownerReferences").items()
        made_by = [(str(owner.at("kind").value), _beside(item, owner.at("name").value)) for owner in owners]
        if id(item) in members:
            continue
        if kind_of_item(item)[0] in _GANGS:
            made_by.append((kind_of_item(item)[0], _beside(item, item.at("metadata", "name").value)))
        if any(one in known for one in made_by):
            tally.remark("items that belong to a job of the list, counted with it")
        elif kind_of_item(item) == ("Pod", ""):
            pods.setdefault(_job_name(item), []).append(item)
        else:
            yield item, job_of_item(item, tally)
    for name, group in gangs.items():
        yield group[0], job_of_gang(name, group, tally)
    for name, group in pods.items():
        yield group[0], job_of_pods(name, group, tally)


def _gang_of(job: Tree) -> Tree:
    """Return the name of the JobSet that a job belongs to, by its label or its owner; nothing where there is none."""
    owners = job.at("metadata", "ownerReferences").items()
    owned = (owner.at("name") for owner in owners if owner.at("kind").value == "JobSet")
    return job.at("metadata", "labels", _JOBSET) or next(owned, job.nothing())


def _is_job(item: Tree) -> bool:
    return bool(kind_of_item(item)[0]) and is_read(item)


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

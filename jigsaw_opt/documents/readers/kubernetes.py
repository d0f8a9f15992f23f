"""Jobs of Kubernetes: ``kubectl get jobs -A -o json``, or of Kubeflow, as ``kubectl get pytorchjobs -A -o json``.

A job of ``batch/v1`` has ``parallelism`` pods at a time, one of Kubeflow the ``replicas`` of each of its replica specs.
The limits of their containers on ``nvidia.com/gpu``, ``amd.com/gpu`` and the like are its GPUs. It lasts from
``startTime`` to ``completionTime``, or to the moment at which it failed. Jobs without a GPU, and those that have not
ended, are left out. The first creation is time 0. An iteration becomes a second of the performance model ``seconds``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from jigsaw_opt.documents.parsing import parsed
from jigsaw_opt.documents.readers.table import Accept, anything, from_first
from jigsaw_opt.documents.report import Place, Report, describe
from jigsaw_opt.problem.workload import TraceJob, Workload

__all__ = ["read_kubernetes", "resembles"]

_MODEL = "seconds"
_MOST_GPUS = 10**6
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ENDS = ("Failed", "Complete", "Succeeded")


def resembles(head: str) -> int:
    """How many of its keys the beginning of a text has; 0 where it is of another format."""
    return 2 * (head.lstrip().startswith("{") and '"apiVersion"' in head and '"items"' in head)


def read_kubernetes(data: bytes | str, source: str = "jobs.json", accept: Accept = anything) -> Workload:
    """Read a list of jobs of Kubernetes.

    Raises
    ------
    InvalidInputError
        With every problem and its path.
    """
    jobs: dict[str, TraceJob] = {}

    def read(tree: Any, report: Report) -> None:
        jobs.update(_jobs(_Tree(tree, "$", report), accept))

    parsed(data, source, read)
    ordered = sorted(jobs.values(), key=lambda job: job.submit_us)
    return from_first(Workload(source, tuple(ordered)))


class _Tree:
    """A value of a document that may be anything; what is not as expected is noted and read as empty."""

    def __init__(self, value: Any, place: Place, report: Report) -> None:
        self.value, self.place, self.report = value, place, report

    def add(self, message: str) -> None:
        self.report.add(self.place, message)

    def at(self, *keys: str) -> _Tree:
        """What stands under a path of keys; None where there is nothing."""
        tree = self
        for key in keys:
            if tree.value is not None and not isinstance(tree.value, Mapping):
                tree.add(f"an object is expected, not {describe(tree.value)}")
                tree.value = None
            tree = _Tree((tree.value or {}).get(key), (tree.place, key), self.report)
        return tree

    def items(self) -> Iterator[_Tree]:
        """The values of a list, or of an object; None is empty."""
        value = self.value
        if isinstance(value, list):
            yield from (_Tree(one, (self.place, k), self.report) for k, one in enumerate(value))
        elif isinstance(value, Mapping):
            yield from map(self.at, value)
        elif value is not None:
            self.add(f"a list or an object is expected, not {describe(value)}")

    def text(self) -> str:
        if isinstance(self.value, str) and self.value:
            return self.value
        self.add(f"a text is expected, not {describe(self.value)}")
        return ""

    def count(self, default: int) -> int:
        """A whole number, also one that is written as a text, as quantities are."""
        value = default if self.value is None else self.value
        if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 8:
            value = int(value)
        if type(value) is int and 0 <= value <= _MOST_GPUS:
            return value
        self.add(f"a whole number from 0 to {_MOST_GPUS} is expected, not {describe(self.value)}")
        return 0

    def time_us(self) -> int:
        """A moment as in ``2026-01-31T08:30:00Z``, in microseconds since 1970."""
        text = self.text()
        try:
            return round((datetime.fromisoformat(text) - _EPOCH).total_seconds()) * 1_000_000
        except (ValueError, TypeError):  # TypeError: a time without a zone
            if text:
                self.add(f"a moment as 2026-01-31T08:30:00Z is expected, not {describe(text)}")
            return 0


def _jobs(top: _Tree, accept: Accept) -> Iterator[tuple[str, TraceJob]]:
    items = top.at("items")
    if not isinstance(items.value, list):
        items.add("the list of jobs is expected, as 'kubectl get jobs -A -o json' prints it")
        return
    known: set[str] = set()
    for item in items.items():
        job = _job(item)
        if job is None:
            continue
        for problem in accept(job):
            item.add(problem)
        if job.name in known:
            item.add(f"there is a job {job.name!r} already")
        known.add(job.name)
        yield job.name, job
    if not known and not top.report.problems:
        items.add("no job has GPUs and has ended")


def _job(item: _Tree) -> TraceJob | None:
    spec, status, meta = item.at("spec"), item.at("status"), item.at("metadata")
    gpus, end = _gpus(spec), _end(status)
    if not gpus or end is None or status.at("startTime").value is None:
        return None
    seconds = (end.time_us() - status.at("startTime").time_us()) // 1_000_000
    if seconds < 0:
        status.add("it ends before it starts")
    space = "default" if meta.at("namespace").value is None else meta.at("namespace").text()
    name, created = meta.at("name").text(), meta.at("creationTimestamp").time_us()
    return TraceJob(f"{space}/{name}", created, _MODEL, gpus, max(1, seconds))


def _gpus(spec: _Tree) -> int:
    """GPUs of all pods that run at a time."""
    replicas = [tree for key in spec.value or () if str(key).endswith("ReplicaSpecs") for tree in spec.at(key).items()]
    if replicas:
        return sum(one.at("replicas").count(1) * _gpus_of_pod(one) for one in replicas)
    return spec.at("parallelism").count(1) * _gpus_of_pod(spec)


def _gpus_of_pod(spec: _Tree) -> int:
    containers = spec.at("template", "spec", "containers").items()
    limits = (container.at("resources", "limits") for container in containers)
    return sum(one.at(key).count(0) for one in limits for key in _keys(one) if key.endswith("/gpu") or "/gpu-" in key)


def _keys(tree: _Tree) -> tuple[str, ...]:
    return tuple(tree.value) if isinstance(tree.value, Mapping) else ()


def _end(status: _Tree) -> _Tree | None:
    """When the job ended, well or not; None where it has not."""
    if status.at("completionTime").value is not None:
        return status.at("completionTime")
    for condition in status.at("conditions").items():
        if condition.at("type").value in _ENDS and condition.at("status").value == "True":
            return condition.at("lastTransitionTime")
    return None

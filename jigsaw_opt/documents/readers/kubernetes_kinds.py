"""Read a job from any kind of Kubernetes job: its GPUs, when it was created, when it ran."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from jigsaw_opt.documents.readers.kubernetes_gpus import PodNeeds
from jigsaw_opt.documents.readers.kubernetes_requests import requests_of
from jigsaw_opt.documents.readers.tally import NEVER_STARTED, NO_GPU, STILL_RUNNING, Tally, Unfinished
from jigsaw_opt.documents.readers.tree import Tree
from jigsaw_opt.problem.workload import TraceJob

__all__ = ["is_read", "job_of_item", "job_of_pods", "kind_of_item", "name_of"]

_ENDS = ("Failed", "Complete", "Succeeded")
_VOLCANO_ENDS = ("Completed", "Failed", "Aborted", "Terminated")
_CLAIMS = "with claims of devices (resourceClaims), which are not read"
_NO_START = "ended without a time of start"
_LONGEST_NAME = 60


class _Ask(NamedTuple):
    """A number of pods that run at a time, each with these needs."""

    pods: int
    needs: PodNeeds


def kind_of_item(item: Tree) -> tuple[str, str]:
    """Return kind and API group of an item; both are empty where it does not say them."""
    kind, version = item.at("kind").value, item.at("apiVersion").value
    group, slash, _ = version.partition("/") if isinstance(version, str) else ("", "", "")
    return kind if isinstance(kind, str) else "", group if slash else ""


def is_read(item: Tree) -> bool:
    """Return whether the item is of a kind that is read as a job of its own."""
    return _kind(item) is not None


def _kind(item: Tree) -> str | None:
    kind, group = kind_of_item(item)
    spec = item.at("spec").names()
    if kind == "Workload" and group == "kueue.x-k8s.io":
        return "kueue"
    if any(key.endswith("ReplicaSpecs") for key in spec):
        return "kubeflow"
    if kind in ("", "Job") and (group == "batch.volcano.sh" or (not group and "tasks" in spec)):
        return "volcano"
    return "batch" if kind in ("", "Job") and group in ("", "batch") else None


def name_of(item: Tree) -> str:
    """Return the namespace and name of an item."""
    meta = item.at("metadata")
    return f"{meta.at('namespace').text() if meta.at('namespace') else 'default'}/{meta.at('name').text()}"


def job_of_item(item: Tree, tally: Tally) -> TraceJob | Unfinished | str:
    """Return the job that an item states, or why it is none.

    Parameters
    ----------
    item
        An item of the list.
    tally
        Counts what is left out, and why.
    """
    kind = _kind(item)
    if kind is None:
        name, group = kind_of_item(item)
        return f"of a kind that is not read ({name[:_LONGEST_NAME]} of {group[:_LONGEST_NAME] or 'core'})"
    asks, start, end = {"kueue": _kueue, "kubeflow": _kubeflow, "volcano": _volcano, "batch": _batch}[kind](item)
    asks = [ask for ask in asks if ask.pods]
    gpus = sum(ask.pods * ask.needs.gpus for ask in asks)
    if gpus == 0:
        return _CLAIMS if any(ask.needs.claims for ask in asks) else NO_GPU
    if not start and end:
        return _NO_START
    name, created_us = name_of(item), _time_us(item.at("metadata", "creationTimestamp"))
    asked = requests_of(item, [ask.needs.spec for ask in asks if ask.needs.gpus], tally)
    if not end:
        reason, start_us = (STILL_RUNNING, _time_us(start)) if start else (NEVER_STARTED, None)
        return Unfinished.of(name, created_us, gpus, reason, start_us=start_us, **asked)
    lasted_us = _time_us(end) - _time_us(start)
    if lasted_us < 0:
        item.at("status").add("it ends before it starts", code="wrong-order")
    _remark(tally, [ask.needs for ask in asks])
    job = TraceJob.lasting(name, created_us, gpus, max(0, lasted_us))
    return replace(job, start_us=_time_us(start), end_us=_time_us(end), **asked)


def _batch(item: Tree) -> tuple[list[_Ask], Tree, Tree]:
    spec, status = item.at("spec"), item.at("status")
    pods = spec.at("parallelism").count(1)
    if spec.at("completions"):
        pods = min(pods, spec.at("completions").count(1))
    return [_Ask(pods, PodNeeds(spec.at("template", "spec")))], status.at("startTime"), _end(status)


def _kubeflow(item: Tree) -> tuple[list[_Ask], Tree, Tree]:
    spec, status = item.at("spec"), item.at("status")
    replicas = [tree for key in spec.names() if key.endswith("ReplicaSpecs") for tree in spec.at(key).items()]
    return _asks(replicas, "replicas"), status.at("startTime"), _end(status)


def _volcano(item: Tree) -> tuple[list[_Ask], Tree, Tree]:
    status = item.at("status")
    began = _condition(status, "status", ("Running",)).at("lastTransitionTime")
    state = status.at("state")
    ended = state if state.at("phase").value in _VOLCANO_ENDS else state.nothing()
    return _asks(item.at("spec", "tasks").items(), "replicas"), began, ended.at("lastTransitionTime")


def _kueue(item: Tree) -> tuple[list[_Ask], Tree, Tree]:
    status = item.at("status")
    assigned = {
        str(pod_set.at("name").value): pod_set.at("count")
        for pod_set in status.at("admission", "podSetAssignments").items()
    }
    asks = [
        ask._replace(pods=assigned[name].count(ask.pods)) if (name := str(pods.at("name").value)) in assigned else ask
        for pods in item.at("spec", "podSets").items()
        for ask in _asks([pods], "count")
    ]
    began = _condition(status, "type", ("Admitted",)) or _condition(status, "type", ("QuotaReserved",))
    ended = _condition(status, "type", ("Finished",))
    return asks, began.at("lastTransitionTime"), ended.at("lastTransitionTime")


def _asks(groups: Iterable[Tree], count: str) -> list[_Ask]:
    return [_Ask(one.at(count).count(1), PodNeeds(one.at("template", "spec"))) for one in groups]


def _end(status: Tree) -> Tree:
    """Return when the job ended, well or not; nothing where it has not."""
    if status.at("completionTime"):
        return status.at("completionTime")
    return _condition(status, "type", _ENDS).at("lastTransitionTime")


def _condition(status: Tree, key: str, values: Sequence[str]) -> Tree:
    """Return the first condition whose `key` is one of some values and that holds; nothing where there is none."""
    for condition in status.at("conditions").items():
        if condition.at(key).value in values and (key == "status" or condition.at("status").value == "True"):
            return condition
    return status.nothing()


class _GpuInterval(NamedTuple):
    """GPUs that a pod held, and from when to when in microseconds."""

    start_us: int
    end_us: int
    gpus: int


def job_of_pods(name: str, pods: Sequence[Tree], tally: Tally) -> TraceJob | Unfinished | str:
    """Return the job that pods of one owner make up, or why they make up none.

    It has as many GPUs as its pods held at a time, since a pod that takes the place of another does not add to it,
    and lasts from the first start to the last end of a pod with GPUs.

    Parameters
    ----------
    name
        Name of the job.
    pods
        Its pods, at least one.
    tally
        Counts what is left out, and why.
    """
    needs = [PodNeeds(pod.at("spec")) for pod in pods]
    asking = [(pod, need) for pod, need in zip(pods, needs, strict=True) if need.gpus]
    if not asking:
        return _CLAIMS if any(need.claims for need in needs) else NO_GPU
    failed = [pod.at("status", "phase").value == "Failed" for pod, _ in asking]
    started = [bool(pod.at("status", "startTime")) for pod, _ in asking]
    created_us = min(_time_us(pod.at("metadata", "creationTimestamp")) for pod in pods)
    if not any(started):
        return _unfinished(name, created_us, asking, NEVER_STARTED)
    if not all(has or over for has, over in zip(started, failed, strict=True)):
        return _unfinished(name, created_us, asking, STILL_RUNNING)
    held = []
    for (pod, need), has in zip(asking, started, strict=True):
        end_us = _end_of_pod(pod) if has else 0
        if end_us is None:
            return _unfinished(name, created_us, asking, STILL_RUNNING)
        if has:
            held.append(_GpuInterval(_time_us(pod.at("status", "startTime")), end_us, need.gpus))
            if end_us < held[-1].start_us:
                pod.at("status").add("it ends before it starts", code="wrong-order")
    _remark(tally, needs)
    start_us, end_us = min(one.start_us for one in held), max(one.end_us for one in held)
    job = TraceJob.lasting(name, created_us, _most_at_a_time(held), max(0, end_us - start_us))
    asked = requests_of(asking[0][0], [need.spec for _, need in asking], tally)
    return replace(job, start_us=start_us, end_us=end_us, **asked)


def _unfinished(name: str, created_us: int, asking: Sequence[tuple[Tree, PodNeeds]], reason: str) -> Unfinished | str:
    """Return a job of pods that wait or run, by those that are not over; or the reason alone where all are over."""
    left = [(pod, need) for pod, need in asking if pod.at("status", "phase").value not in ("Succeeded", "Failed")]
    if not left:
        return reason
    starts = [pod.at("status", "startTime") for pod, _ in left]
    start_us = max(map(_time_us, starts)) if all(starts) else None
    return Unfinished.of(name, created_us, sum(need.gpus for _, need in left), reason, start_us=start_us)


def _end_of_pod(pod: Tree) -> int | None:
    """Return when the last container of a pod ended; None where one has not, or none says when."""
    status = pod.at("status")
    states = [container.at("state") for container in status.at("containerStatuses").items()]
    ends = [end for state in states if (end := state.at("terminated", "finishedAt"))]
    over = status.at("phase").value in ("Succeeded", "Failed")
    if not ends or (not over and len(ends) < len(states)):
        return None
    return max(map(_time_us, ends))


def _most_at_a_time(held: Iterable[_GpuInterval]) -> int:
    now = most = 0
    for _, _, change in sorted(_changes(held)):
        now += change
        most = max(most, now)
    return most


def _changes(held: Iterable[_GpuInterval]) -> Iterator[tuple[int, int, int]]:
    """Yield the moments at which GPUs are taken and given back; at equal times they are given back first."""
    for one in held:
        yield one.start_us, 1, one.gpus
        yield max(one.end_us, one.start_us + 1), 0, -one.gpus


def _remark(tally: Tally, needs: Iterable[PodNeeds]) -> None:
    """Tell each kind of share that a job asks for, once a job."""
    needs = tuple(needs)
    for share in sorted({share for need in needs for share in need.shares}):
        tally.remark(
            f"jobs with {share[:_LONGEST_NAME]}, a share of a GPU: a container with shares alone counts as one GPU"
        )
    for share in sorted({share for need in needs for share in need.beside}):
        tally.remark(f"jobs with {share[:_LONGEST_NAME]}, a share of a GPU, beside a number of GPUs, which counts")


def _time_us(tree: Tree) -> int:
    """Return a moment with a zone, to the second, as Kubernetes counts."""
    found = tree.moment()
    if found is not None and not found.zoned:
        tree.add("a zone is expected, as in 2026-01-31T08:30:00Z", code="malformed")
    return 0 if found is None else (found.time_us + 500_000) // 1_000_000 * 1_000_000

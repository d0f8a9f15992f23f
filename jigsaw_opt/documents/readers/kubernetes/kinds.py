"""Read a job from any kind of Kubernetes job: its GPUs, when it was created, when it ran."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from jigsaw_opt.documents.readers.kubernetes.requests import PodNeeds, requests_of
from jigsaw_opt.documents.readers.tally import NEVER_STARTED, NO_GPU, STILL_RUNNING, Tally, Unfinished
from jigsaw_opt.documents.readers.tree import Tree
from jigsaw_opt.problem.workload import TraceJob

_ENDS = ("Failed", "Complete", "Succeeded")
_VOLCANO_ENDS = ("Completed", "Failed", "Aborted", "Terminated")
CLAIMS = "with claims of devices (resourceClaims), which are not read"
_NO_START = "ended without a time of start"
_PAST = ("accumulatedPastExecutionTimeSeconds", "accumulatedPastExexcutionTimeSeconds")
"""How version ``v1beta2`` of Kueue and those before it spell the time of earlier admissions."""
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
    """Return the job that an item states, or why it is none."""
    kind = _kind(item)
    if kind is None:
        name, group = kind_of_item(item)
        return f"of a kind that is not read ({name[:_LONGEST_NAME]} of {group[:_LONGEST_NAME] or 'core'})"
    asks, start, end = {"kueue": _kueue, "kubeflow": _kubeflow, "volcano": _volcano, "batch": _batch}[kind](item)
    before = _admitted_before(item, tally) if kind == "kueue" else 0
    asks = [ask for ask in asks if ask.pods]
    gpus = sum(ask.pods * ask.needs.gpus for ask in asks)
    if gpus == 0:
        return CLAIMS if any(ask.needs.claims for ask in asks) else NO_GPU
    if not start and end and not before:
        return _NO_START
    name, created_us = name_of(item), time_us(item.at("metadata", "creationTimestamp"))
    asked = requests_of(item, [ask.needs.spec for ask in asks if ask.needs.gpus], tally)
    if not end:
        reason, start_us = (STILL_RUNNING, time_us(start)) if start else (NEVER_STARTED, None)
        return Unfinished.of(name, created_us, gpus, reason, start_us=start_us, **asked)
    end_us = time_us(end)
    start_us = time_us(start) if start else end_us - before
    lasted_us = end_us - start_us + (before if start else 0)
    if lasted_us < 0:
        item.at("status").add("it ends before it starts", code="wrong-order")
    tell_shares(tally, [ask.needs for ask in asks])
    job = TraceJob.lasting(name, created_us, gpus, max(0, lasted_us))
    return replace(job, start_us=start_us, end_us=end_us, **asked)


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
    began = condition_of(status, "status", ("Running",)).at("lastTransitionTime")
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
    began = condition_of(status, "type", ("Admitted",)) or condition_of(status, "type", ("QuotaReserved",))
    ended = condition_of(status, "type", ("Finished",))
    return asks, began.at("lastTransitionTime"), ended.at("lastTransitionTime")


def _admitted_before(item: Tree, tally: Tally) -> int:
    """Return for how many microseconds a Workload was admitted that is not now; tell what its record leaves out."""
    status = item.at("status")
    stated = next(filter(None, map(status.at, _PAST)), status.nothing())
    evicted = any(one.at("type").value in ("Evicted", "Preempted") for one in status.at("conditions").items())
    if evicted and condition_of(status, "type", ("Finished",)):
        counted = "which last as long as all admissions together" if stated else "of which only the last counts"
        tally.remark(f"Workloads of Kueue that were admitted several times, {counted}")
    return stated.count(0) * 1_000_000


def _asks(groups: Iterable[Tree], count: str) -> list[_Ask]:
    return [_Ask(one.at(count).count(1), PodNeeds(one.at("template", "spec"))) for one in groups]


def _end(status: Tree) -> Tree:
    """Return when the job ended, well or not; nothing where it has not."""
    if status.at("completionTime"):
        return status.at("completionTime")
    return condition_of(status, "type", _ENDS).at("lastTransitionTime")


def condition_of(status: Tree, key: str, values: Sequence[str], holds: str = "True") -> Tree:
    """Return the first condition whose `key` is one of some values and whose status is `holds`; or nothing."""
    for condition in status.at("conditions").items():
        if condition.at(key).value in values and (key == "status" or condition.at("status").value == holds):
            return condition
    return status.nothing()


def tell_shares(tally: Tally, needs: Iterable[PodNeeds]) -> None:
    """Tell each kind of share that a job asks for, once a job."""
    needs = tuple(needs)
    for share in sorted({share for need in needs for share in need.shares}):
        tally.remark(
            f"jobs with {share[:_LONGEST_NAME]}, a share of a GPU: a container with shares alone counts as one GPU"
        )
    for share in sorted({share for need in needs for share in need.beside}):
        tally.remark(f"jobs with {share[:_LONGEST_NAME]}, a share of a GPU, beside a number of GPUs, which counts")


def time_us(tree: Tree) -> int:
    """Return a moment with a zone, to the second, as Kubernetes counts."""
    found = tree.moment()
    if found is not None and not found.zoned:
        tree.add("a zone is expected, as in 2026-01-31T08:30:00Z", code="malformed")
    return 0 if found is None else (found.time_us + 500_000) // 1_000_000 * 1_000_000

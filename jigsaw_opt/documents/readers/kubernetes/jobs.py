"""Read a job from any kind of Kubernetes job: its GPUs, when it was created, when it ran."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from jigsaw_opt.documents.readers.tally import NEVER_STARTED, NO_GPU, STILL_RUNNING, Found, Tally, Unfinished
from jigsaw_opt.documents.readers.tree import Tree
from jigsaw_opt.problem.workload import LARGEST, TraceJob, is_name

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


def job_of_item(item: Tree, tally: Tally) -> Found:
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
        told = f"jobs with {share[:_LONGEST_NAME]}, a share of a GPU: a container with shares alone counts as one GPU"
        tally.remark(told)
    for share in sorted({share for need in needs for share in need.beside}):
        tally.remark(f"jobs with {share[:_LONGEST_NAME]}, a share of a GPU, beside a number of GPUs, which counts")


def time_us(tree: Tree) -> int:
    """Return a moment with a zone, to the second, as Kubernetes counts."""
    found = tree.moment()
    if found is not None and not found.zoned:
        tree.add("a zone is expected, as in 2026-01-31T08:30:00Z", code="malformed")
    return 0 if found is None else (found.time_us + 500_000) // 1_000_000 * 1_000_000


_TYPE_LABEL = re.compile(
    r"(?:.*/)?(?:gpu[._-]?(?:product(?:-name)?|type|model|name)|gke-accelerator|instance-gpu-name|accelerator(?:-type)?)"
    r"|gpu\.nvidia\.com/(?:class|model)|gpu\.intel\.com/product"
)
"""Labels of nodes that say of which type their GPUs are, as ``nvidia.com/gpu.product``."""
_NO_TYPE = re.compile(r"(?:(?:nvidia|amd|intel|gpu|true|yes|any)(?:[_-](?!$)|$))+", re.IGNORECASE)
"""Values of such labels that any GPU has, or any of a maker, as ``nvidia`` on Azure."""
_QUEUE_LABELS = ("kueue.x-k8s.io/queue-name", "runai/queue", "kai.scheduler/queue", "volcano.sh/queue-name")
_PREEMPTIBLE = ("volcano.sh/preemptable", "volcano.sh/preemptible")
_TRUTHS = {"true": True, "false": False}
_WHOLE = re.compile(r"[^/]+/gpu|gpu\.intel\.com/(?:i915|xe)|volcano\.sh/gpu-number")
_PART = re.compile(r"[^/]+/(?:mig-|vcuda|(?=.*gpu)).*|gpu\.intel\.com/.*", re.DOTALL)
_NO_GPU = re.compile(r"monitoring$")


def requests_of(item: Tree, pods: Sequence[Tree], tally: Tally) -> dict[str, Any]:
    """Return what a job asks for, as fields of a job."""
    types = [_types(pod, tally) for pod in pods]
    stated = [own for own in types if own is not None]
    if len(set(stated)) > 1:
        tally.remark("jobs whose pods ask for different types of GPU, which here run on one of these types")
    found = tuple(dict.fromkeys(name for own in stated for name in own))
    spec, labels = item.at("spec"), item.at("metadata", "labels")
    beside = [tree.at(name) for tree in (labels, item.at("metadata", "annotations")) for name in _PREEMPTIBLE]
    truths = (_TRUTHS.get(str(tree.value).lower()) for tree in beside)
    return {
        "gpu_types": found if found and len(stated) == len(types) else None,
        "queue": _first([*(labels.at(name) for name in _QUEUE_LABELS), spec.at("queueName"), spec.at("queue")]),
        "priority": _priority([spec.at("priority"), *(pod.at("priority") for pod in pods)], tally),
        "preemptible": next((truth for truth in truths if truth is not None), None),
    }


def _types(pod: Tree, tally: Tally) -> tuple[str, ...] | None:
    """Return the types of GPU of the nodes that a pod may run on; None where it does not say."""
    selector = pod.at("nodeSelector")
    chosen = [selector.at(key) for key in selector.names() if _TYPE_LABEL.fullmatch(key)]
    if chosen:
        return tuple(dict.fromkeys(name for name in map(Tree.text, chosen) if not _NO_TYPE.fullmatch(name))) or None
    required = pod.at("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    terms = [tuple(_of_term(term, tally)) for term in required.at("nodeSelectorTerms").items()]
    if not terms or not all(terms):  # one term is enough, so each must name types
        return None
    return tuple(dict.fromkeys(name for own in terms for name in own))


def _of_term(term: Tree, tally: Tally) -> Iterator[str]:
    for rule in term.at("matchExpressions").items():
        key = rule.at("key").value
        if not isinstance(key, str) or not _TYPE_LABEL.fullmatch(key):
            continue
        if rule.at("operator").value == "In":
            names = [value.text() for value in rule.at("values").items()]
            yield from () if any(map(_NO_TYPE.fullmatch, names)) else names
        else:
            tally.remark("pods whose affinity to types of GPU is no list of types (In), which is not read")


def _first(trees: Iterable[Tree]) -> str | None:
    return next((str(tree.value) for tree in trees if is_name(tree.value)), None)


def _priority(trees: Iterable[Tree], tally: Tally) -> int | None:
    """Return the first priority that is stated; one below 0 is as low as any."""
    for tree in trees:
        if type(tree.value) is int and abs(tree.value) <= LARGEST:
            if tree.value < 0:
                tally.remark("jobs with a priority below 0, which counts as 0")
            return max(0, tree.value)
    return None


def counts_whole_gpus(resource: str) -> bool:
    """Return whether amounts of a resource are numbers of GPUs."""
    return _WHOLE.fullmatch(resource) is not None


class PodNeeds:
    """The GPUs of a pod, and how they were counted.

    Limits count, and requests where there is no limit. A pod needs what its containers need together with sidecars,
    which are init containers that stay, or what an earlier init container needs, if that is more. A container that asks
    for shares of GPUs alone counts with one GPU, however many: their amounts are no numbers of GPUs.

    `shares`: names of the resources that are shares of GPUs, of containers that ask for no number of GPUs. `beside`:
    names of those of containers that ask for a number of GPUs too. `claims`: whether devices are also claimed by
    `resourceClaims`, which say nothing of how many.
    """

    def __init__(self, spec: Tree) -> None:
        self.shares: set[str] = set()
        self.beside: set[str] = set()
        self.spec = spec
        self.claims = bool(spec.at("resourceClaims"))
        sidecars = most = 0
        for container in spec.at("initContainers").items():
            need = self._of_container(container)
            most = max(most, sidecars + need)
            if container.at("restartPolicy").value == "Always":
                sidecars += need
        together = sum(self._of_container(container) for container in spec.at("containers").items())
        self.gpus = max(most, sidecars + together)

    def _of_container(self, container: Tree) -> int:
        limits, requests = container.at("resources", "limits"), container.at("resources", "requests")
        asked = {key: requests.at(key) for key in requests.names()} | {key: limits.at(key) for key in limits.names()}
        whole = sum(amount.count(0) for key, amount in asked.items() if counts_whole_gpus(key))
        parts = {key: amount for key, amount in asked.items() if _PART.fullmatch(key) and not counts_whole_gpus(key)}
        parts = {key: part for key, part in parts.items() if str(part.value) != "0" and not _NO_GPU.search(key)}
        (self.beside if whole else self.shares).update(parts)
        return whole or int(bool(parts))

"""Requests of a Kubernetes job: its GPUs and their types, a queue, a priority, and whether it may be stopped."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from jigsaw_opt.documents.readers.tally import Tally
from jigsaw_opt.documents.readers.tree import Tree
from jigsaw_opt.problem.workload import LARGEST, is_name

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
    return {
        "gpu_types": found if found and len(stated) == len(types) else None,
        "queue": _first([*(labels.at(name) for name in _QUEUE_LABELS), spec.at("queueName"), spec.at("queue")]),
        "priority": _priority([spec.at("priority"), *(pod.at("priority") for pod in pods)], tally),
        "preemptible": _preemptible([labels, item.at("metadata", "annotations")]),
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


def _preemptible(trees: Iterable[Tree]) -> bool | None:
    found = (_TRUTHS.get(str(tree.at(name).value).lower()) for tree in trees for name in _PREEMPTIBLE)
    return next((truth for truth in found if truth is not None), None)


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

"""Requests of a Kubernetes job beyond GPUs: their types, a queue, a priority, and whether it may be stopped."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from jigsaw_opt.documents.readers.tally import Tally
from jigsaw_opt.documents.readers.tree import Tree
from jigsaw_opt.problem.workload import LARGEST, is_name

__all__ = ["requests_of"]

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

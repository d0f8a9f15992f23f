"""Quotas of Kueue: ``kubectl get clusterqueues,cohorts,localqueues,resourceflavors -A -o json``.

Only GPUs count: quotas of other resources are passed over, and it is told. Versions ``v1beta1`` and ``v1beta2`` are
read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from jigsaw_opt.documents.file_bytes import unpacked
from jigsaw_opt.documents.parsing import parsed
from jigsaw_opt.documents.readers.kubernetes.jobs import counts_whole_gpus
from jigsaw_opt.documents.readers.lines import within_themselves
from jigsaw_opt.documents.readers.tree import Tree
from jigsaw_opt.problem.rules.report import Report
from jigsaw_opt.text import nearest

_GROUP = "kueue.x-k8s.io/"
_STRATEGIES = ("BestEffortFIFO", "StrictFIFO")
_WITHIN = ("Never", "LowerPriority", "LowerOrNewerEqualPriority")
_RECLAIM = ("Never", "LowerPriority", "Any")
_BORROW = ("Never", "LowerPriority")
_STOP = {"MayStopSearch": True, "Borrow": True, "Preempt": True, "TryNextFlavor": False}


@dataclass(frozen=True, slots=True)
class GpuQuota:
    """GPUs of one flavor: the nominal quota, and what may be borrowed and lent; None for any number."""

    nominal: int
    borrowing: int | None = None
    lending: int | None = None


@dataclass(frozen=True, slots=True)
class QuotaNode:
    """A ClusterQueue or a Cohort.

    `name, parent`: its name, and that of the cohort that it is in; empty for none. `quotas`: quotas by flavor, in the
    order in which flavors are tried. `stops_at_borrowing, stops_at_preemption`: whether no further flavor is tried
    where one fits by borrowing or by preemption.
    """

    name: str
    parent: str = ""
    quotas: Mapping[str, GpuQuota] = field(default_factory=dict)
    strategy: str = _STRATEGIES[0]
    within: str = "Never"
    reclaim: str = "Never"
    borrow: str = "Never"
    threshold: int | None = None
    stops_at_borrowing: bool = True
    stops_at_preemption: bool = False


@dataclass(frozen=True, slots=True)
class KueueQueues:
    """The queues and cohorts that were read.

    `queues, cohorts`: clusterQueues and Cohorts by name; a cohort that only ClusterQueues name has no quota of its own.
    `labels`: labels of the nodes of each ResourceFlavor. `local`: the ClusterQueue of each LocalQueue, by its name and
    by its namespace and name. `remarks`: what was not read, with how often.
    """

    queues: Mapping[str, QuotaNode]
    cohorts: Mapping[str, QuotaNode]
    labels: Mapping[str, Mapping[str, str]]
    local: Mapping[str, str]
    remarks: Mapping[str, int]


def read_kueue(data: bytes | str, source: str = "kueue.json") -> KueueQueues:
    """Read ClusterQueues and what belongs to them.

    `data`: the content of the file; text, or bytes in UTF-8.
    """
    queues: dict[str, QuotaNode] = {}
    cohorts: dict[str, QuotaNode] = {}
    labels: dict[str, dict[str, str]] = {}
    local: dict[str, str] = {}
    remarks = Counter[str]()

    def read(tree: Any, report: Report) -> None:
        top = Tree(tree, "$", report)
        items = list(top.at("items").items()) if top.at("items") else [top]
        for item in items:
            kind, name = str(item.at("kind").value), item.at("metadata", "name").text()
            spec = item.at("spec")
            if not str(item.at("apiVersion").value).startswith(_GROUP):
                remarks[f"items that are none of Kueue ({kind})"] += 1
            elif kind == "ClusterQueue":
                queues[name] = _queue(name, spec, remarks)
            elif kind == "Cohort":
                cohorts[name] = QuotaNode(name, _parent(spec, "parent"), _quotas(spec, remarks))
            elif kind == "ResourceFlavor":
                stated = spec.at("nodeLabels")
                labels[name] = {key: stated.at(key).text() for key in stated.names()}
            elif kind == "LocalQueue":
                owner = spec.at("clusterQueue").text()
                space = item.at("metadata", "namespace").value or "default"
                local[f"{space}/{name}"] = owner
                if local.setdefault(name, owner) != owner:
                    remarks["names of LocalQueues that several namespaces have, of which the first counts"] += 1
            else:
                remarks[f"items of kind {kind} passed over"] += 1
        _check(top, queues, cohorts)

    parsed(unpacked(data, source) if isinstance(data, bytes) else data, source, read)
    for node in (*queues.values(), *cohorts.values()):
        if node.parent:
            cohorts.setdefault(node.parent, QuotaNode(node.parent))
    return KueueQueues(queues, cohorts, labels, local, remarks)


def _check(top: Tree, queues: Mapping[str, QuotaNode], cohorts: Mapping[str, QuotaNode]) -> None:
    """Note what is wrong with all of them together."""
    if not queues and not top.report.problems:
        told = "kubectl get clusterqueues,cohorts,localqueues,resourceflavors -A -o json"
        top.add("has no ClusterQueue", told, code="empty")
    for name in within_themselves({name: node.parent for name, node in cohorts.items()}):
        top.add(f"cohort {name!r} is part of itself", code="cycle")
    for name, node in queues.items():
        if not node.quotas and not top.report.problems:
            top.add(f"ClusterQueue {name!r} has no quota of GPUs", code="empty")


def _queue(name: str, spec: Tree, remarks: Counter[str]) -> QuotaNode:
    preemption, borrowing = spec.at("preemption"), spec.at("preemption", "borrowWithinCohort")
    fungibility = spec.at("flavorFungibility")
    for what in ("admissionChecks", "admissionChecksStrategy", "admissionScope", "fairSharing"):
        remarks[f"ClusterQueues whose {what} is not simulated"] += bool(spec.at(what).value)
    if spec.at("stopPolicy").value not in (None, "None"):
        remarks["ClusterQueues that are on hold, which is not simulated"] += 1
    remarks["preferences between borrowing and preemption (flavorFungibility) passed over"] += bool(
        fungibility.at("preference").value
    )
    threshold = borrowing.at("maxPriorityThreshold")
    if threshold.value is not None and type(threshold.value) is not int:
        threshold.add("a whole number is expected", code="wrong-type")
    return QuotaNode(
        name,
        _parent(spec, "cohort"),
        _quotas(spec, remarks),
        _word(spec.at("queueingStrategy"), _STRATEGIES),
        _word(preemption.at("withinClusterQueue"), _WITHIN),
        _word(preemption.at("reclaimWithinCohort"), _RECLAIM),
        _word(borrowing.at("policy"), _BORROW),
        threshold.value if type(threshold.value) is int else None,
        _STOP[_word(fungibility.at("whenCanBorrow"), tuple(_STOP))],
        _STOP[_word(fungibility.at("whenCanPreempt"), ("TryNextFlavor", *_STOP))],
    )


def _parent(spec: Tree, name: str) -> str:
    """Return the cohort that something is in, under the name of either version."""
    stated = [spec.at(key) for key in (f"{name}Name", name) if spec.at(key).value]
    return stated[0].text() if stated else ""


def _word(tree: Tree, known: tuple[str, ...]) -> str:
    """Return one of some words, the first where nothing is stated."""
    if tree.value is None:
        return known[0]
    if tree.value not in known:
        tree.add(nearest(str(tree.value), known), code="unknown-value")
        return known[0]
    return str(tree.value)


def _quotas(spec: Tree, remarks: Counter[str]) -> dict[str, GpuQuota]:
    """Return the quotas of GPUs by flavor."""
    found: dict[str, GpuQuota] = {}
    for group in spec.at("resourceGroups").items():
        for flavor in group.at("flavors").items():
            for resource in flavor.at("resources").items():
                if not counts_whole_gpus(resource.at("name").text()):
                    remarks[f"quotas of {resource.at('name').value} passed over"] += 1
                    continue
                name = flavor.at("name").text()
                if name in found:
                    flavor.add(f"flavor {name!r} has a second quota of GPUs", code="duplicate-name")
                limits = (resource.at(key) for key in ("borrowingLimit", "lendingLimit"))
                borrowing, lending = (None if limit.value is None else limit.count(0) for limit in limits)
                found[name] = GpuQuota(resource.at("nominalQuota").count(0), borrowing, lending)
    return found

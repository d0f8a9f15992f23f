"""What jobs of Kubernetes and pods of Alibaba ask for beyond a number of GPUs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jigsaw_opt.documents.readers.traces.registry import read_trace

_TIMES = {"startTime": "2026-01-31T08:00:00Z", "completionTime": "2026-01-31T09:00:00Z"}


def kubernetes_job(name: str, labels: dict[str, str] | None = None, **pod: Any) -> dict[str, Any]:
    container = {"resources": {"limits": {"nvidia.com/gpu": "2"}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "creationTimestamp": "2026-01-31T08:00:00Z", "labels": labels or {}},
        "spec": {"parallelism": 1, "template": {"spec": {"containers": [container], **pod}}},
        "status": _TIMES,
    }


def affinity(*rules: dict[str, Any]) -> dict[str, Any]:
    terms = {"nodeSelectorTerms": [{"matchExpressions": [rule]} for rule in rules]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def test_jobs_of_kubernetes_ask_for_types_queues_and_priorities() -> None:
    product, accelerator = "nvidia.com/gpu.product", "cloud.google.com/gke-accelerator"
    of = {"key": product, "operator": "In", "values": ["Tesla-V100-SXM2-32GB", "NVIDIA-A100-SXM4-80GB"]}
    zone = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["z"]}
    excluded = {"key": product, "operator": "NotIn", "values": ["Tesla-T4"]}
    items = [
        kubernetes_job("a", {"kueue.x-k8s.io/queue-name": "team"}, nodeSelector={accelerator: "nvidia-tesla-a100"}),
        kubernetes_job("b", affinity=affinity(of), priority=7),
        kubernetes_job("c", {"volcano.sh/preemptable": "true"}, affinity=affinity(of, zone), priority=-3),
        kubernetes_job("d", {"volcano.sh/preemptable": "false"}, affinity=affinity(excluded)),
    ]
    workload = read_trace("kubernetes", json.dumps({"apiVersion": "v1", "items": items}), "t")
    found = {job.name: (job.gpu_types, job.queue, job.priority, job.preemptible) for job in workload.jobs}
    assert found == {
        "default/a": (("nvidia-tesla-a100",), "team", None, None),
        "default/b": (("Tesla-V100-SXM2-32GB", "NVIDIA-A100-SXM4-80GB"), None, 7, None),
        "default/c": (None, None, 0, True),
        "default/d": (None, None, None, False),
    }
    assert workload.remarks == {
        "jobs with a priority below 0, which counts as 0": 1,
        "pods whose affinity to types of GPU is no list of types (In), which is not read": 1,
    }


def test_pods_of_alibaba_ask_for_types() -> None:
    head = "name,num_gpu,gpu_spec,qos,creation_time,deletion_time,scheduled_time\n"
    workload = read_trace("alibaba", f"{head}a,1,V100M16|V100M32,BE,0,9,1\nb,1,,LS,0,9,1\nc,1,T4,LS,0,,\n", "t")
    assert [job.gpu_types for job in workload.jobs] == [("v100-16gb", "v100-32gb"), None]
    assert [job.gpu_types for job in workload.unfinished] == [("t4",)]


@pytest.mark.parametrize(
    ("label", "value", "types"),
    [
        ("accelerator", "nvidia", None),
        ("kubernetes.azure.com/accelerator", "nvidia", None),
        ("accelerator", "nvidia-gpu", None),
        ("gpu-type", "true", None),
        ("nvidia.com/gpu.present", "true", None),
        ("gpu.nvidia.com/class", "A100_PCIE_80GB", ("A100_PCIE_80GB",)),
        ("gpu.nvidia.com/model", "H100_NVLINK_80GB", ("H100_NVLINK_80GB",)),
        ("amd.com/gpu.product-name", "AMD_Instinct_MI300X_OAM", ("AMD_Instinct_MI300X_OAM",)),
        ("gpu.intel.com/product", "Max_1550", ("Max_1550",)),
        ("gpu_type", "a100", ("a100",)),
        ("karpenter.k8s.aws/instance-gpu-name", "a10g", ("a10g",)),
        ("cloud.google.com/gke-accelerator", "nvidia-tesla-a100", ("nvidia-tesla-a100",)),
    ],
)
def test_labels_of_nodes_that_name_a_type(label: str, value: str, types: tuple[str, ...] | None) -> None:
    rule = {"matchExpressions": [{"key": label, "operator": "In", "values": [value]}]}
    required = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [rule]}}}
    items = [kubernetes_job("a", nodeSelector={label: value}), kubernetes_job("b", affinity=required)]
    workload = read_trace("kubernetes", json.dumps({"apiVersion": "v1", "items": items}), "t")
    assert [job.gpu_types for job in workload.jobs] == [types, types]

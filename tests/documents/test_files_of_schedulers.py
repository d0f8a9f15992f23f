"""Files of Slurm and Kueue and lists of failures: what contradicts itself is refused at its place."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jigsaw_opt.documents.readers.kubernetes.kueue import KueueQueues, read_kueue
from jigsaw_opt.documents.readers.outages import OutageLine, read_outages
from jigsaw_opt.documents.readers.slurm.priorities import read_qos, read_shares, read_slurm_conf
from jigsaw_opt.documents.readers.traces.registry import read_trace
from tests.refusals import refuses

SHARES = "Cluster|Account|User|ParentName|Share\n"
KNOWN = {"server": ("s0", "s1"), "link": ("l0",)}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (SHARES, ["empty assoc.txt"]),
        ("Account|User|Share\na||1\n", ["missing-field assoc.txt:1"]),
        (SHARES + "c|a||root|1\nc|a||root|2\n", ["duplicate-name assoc.txt:3"]),
        (SHARES + "c|a||root|1\nd|b||root|2\n", ["ambiguous assoc.txt"]),
        (
            SHARES + "c|||root|1\nc|b||root|-2\nc|d\n",
            ["wrong-count assoc.txt:4", "empty assoc.txt:2", "out-of-range assoc.txt:3"],
        ),
    ],
)
def test_shares_that_contradict_each_other_are_refused(text: str, found: list[str]) -> None:
    with refuses(*found):
        read_shares(text)


def test_shares_of_several_partitions_are_no_contradiction() -> None:
    header = SHARES.replace("Share", "Share|Partition")
    found = read_shares(header + "c|a|u|a|1|\nc|a|u|a|4|long\n")
    assert [(one.account, one.user, one.shares) for one in found] == [("a", "u", 4)]


def test_a_qos_that_is_stated_twice_is_refused() -> None:
    assert read_qos("Name|Priority\nhigh|7\nlow|0\n") == {"high": 7, "low": 0}
    with refuses("duplicate-name qos.txt:4"):
        read_qos("Name|Priority\nhigh|7\nlow|0\nhigh|8\n")


def test_files_that_slurm_would_include_are_counted() -> None:
    conf = read_slurm_conf("PriorityType=priority/multifactor\nInclude /etc/slurm/more.conf\ninclude other.conf\n")
    assert conf.includes == 2
    assert conf.parameters["prioritytype"] == "priority/multifactor"


def item(kind: str, name: str, version: str = "kueue.x-k8s.io/v1beta1", space: str | None = None, **spec: Any) -> Any:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": space}, "spec": spec}


def quota(flavor: str, gpus: int) -> Any:
    return {"name": flavor, "resources": [{"name": "nvidia.com/gpu", "nominalQuota": gpus}]}


def queue(*flavors: Any, **spec: Any) -> Any:
    return item("ClusterQueue", "all", resourceGroups=[{"flavors": list(flavors)}], **spec)


def read(*items: Any) -> KueueQueues:
    return read_kueue(json.dumps({"items": items}), "k.json")


def test_what_is_passed_over_is_told() -> None:
    found = read(
        queue(quota("v100", 4), stopPolicy="Hold", admissionChecks=["one"]),
        item("LocalQueue", "mine", space="a", clusterQueue="all"),
        item("LocalQueue", "mine", space="b", clusterQueue="other"),
        item("Workload", "w"),
        item("Pod", "p", version="v1"),
    )
    assert (found.local["mine"], found.local["b/mine"]) == ("all", "other")
    assert {remark: count for remark, count in found.remarks.items() if count} == {
        "ClusterQueues whose admissionChecks is not simulated": 1,
        "ClusterQueues that are on hold, which is not simulated": 1,
        "names of LocalQueues that several namespaces have, of which the first counts": 1,
        "items of kind Workload passed over": 1,
        "items that are none of Kueue (Pod)": 1,
    }


def test_queues_that_contradict_themselves_are_refused() -> None:
    with refuses("duplicate-name $.items[0].spec.resourceGroups[0].flavors[1]"):
        read(queue(quota("v100", 4), quota("v100", 2)))
    with refuses("empty $"):
        read(queue())
    preemption = {"borrowWithinCohort": {"policy": "LowerPriority", "maxPriorityThreshold": "100"}}
    with refuses("wrong-type $.items[0].spec.preemption.borrowWithinCohort.maxPriorityThreshold"):
        read(queue(quota("v100", 4), preemption=preemption))


def test_failures_are_read_in_order_of_time() -> None:
    text = "time_s,kind,name,state\n9,server,s1,up\n2.5,server,s1,down\n3,link,l0,down\n"
    assert read_outages(text, "o.csv", KNOWN) == [
        OutageLine(2_500_000, "server", "s1", True),
        OutageLine(3_000_000, "link", "l0", True),
        OutageLine(9_000_000, "server", "s1", False),
    ]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("kind,name,state\nserver,s0,down\n", ["missing-field o.csv:1"]),
        ("time_s,time_h,kind,name,state\n1,1,server,s0,down\n", ["ambiguous o.csv:1"]),
        ("time_s,kind,name,state,reason\n1,server,s0,down,x\n", ["unknown-field o.csv:1"]),
        (
            "time_s,kind,name,state\n1,rack,s0,down\n2,link,l1,down\n3,link,l0,off\n",
            ["unknown-value o.csv:2", "unknown-name o.csv:3", "unknown-value o.csv:4"],
        ),
        ("time_s,kind,name,state\n1,link,l0,up\n", ["contradiction o.csv:2"]),
        ("time_s,kind,name,state\n1,link,l0,down\n1,link,l0,up\n", ["contradiction o.csv:3"]),
    ],
)
def test_failures_that_cannot_be_are_refused(text: str, found: list[str]) -> None:
    with refuses(*found):
        read_outages(text, "o.csv", KNOWN)


@pytest.mark.parametrize(
    ("form", "header", "rows", "kept"),
    [
        ("elasticflow", "job_id,submit_time,num_gpu,duration", ("a,0,2,9", "b,1,0,9", "c,2,1,"), ["a"]),
        (
            "philly",
            "cluster,timestamp,num_gpus,duration",
            ("v,2026-01-31 08:30,2,9", "v,2026-01-31 08:31,0,9", "v,2026-01-31 08:32,1,"),
            ["line-2"],
        ),
    ],
)
def test_rows_without_gpus_or_duration_are_counted(
    form: str, header: str, rows: tuple[str, ...], kept: list[str]
) -> None:
    found = read_trace(form, "\n".join((header, *rows, "")), "t.csv")
    assert [job.name for job in found.jobs] == kept
    assert sorted(found.left_out.values()) == [1, 1]


def test_adaptive_jobs_run_on_1_to_64_gpus() -> None:
    text = "name,time,application,num_replicas,batch_size\nj,3,bert,2,48\n"
    pollux, sia = (read_trace(form, text, "t.csv").jobs[0] for form in ("pollux", "sia"))
    assert (pollux.fewest, pollux.gpus, pollux.most) == (2, 2, 2)
    assert (sia.fewest, sia.gpus, sia.most, sia.batch_size) == (1, 2, 64, 48)

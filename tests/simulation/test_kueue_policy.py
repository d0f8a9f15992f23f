"""Kueue's quotas, borrowing and preemption: examples of its documentation, and what clusters met on the way."""

from __future__ import annotations

import json
import logging
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jigsaw_opt.documents.readers.kubernetes.kueue import GpuQuota, KueueQueues, read_kueue
from jigsaw_opt.errors import InvalidInputError, UsageError
from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling.allocation import Decision
from jigsaw_opt.scheduling.policies.kueue.kueue import KUEUE
from jigsaw_opt.scheduling.policies.kueue.quotas import QuotaTree
from jigsaw_opt.scheduling.policy import Observation
from jigsaw_opt.simulation.engine.records import SimulationOutcome
from jigsaw_opt.simulation.engine.simulation import Simulation
from tests.refusals import carries, misuse, refuses
from tests.simulation.cases import SECOND, Watched, cluster, job, restarts, run, setting, starts_s, types

Quotas = Mapping[str, tuple[int | None, ...]]


def item(kind: str, name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name}, "spec": spec}


def groups(quotas: Quotas) -> list[dict[str, Any]]:
    """Quotas as nominal, borrowing limit and lending limit, by flavor."""
    keys = ("nominalQuota", "borrowingLimit", "lendingLimit")
    flavors = []
    for name, numbers in quotas.items():
        stated = {key: str(number) for key, number in zip(keys, numbers, strict=False) if number is not None}
        flavors.append({"name": name, "resources": [{"name": "nvidia.com/gpu", **stated}]})
    return [{"coveredResources": ["nvidia.com/gpu"], "flavors": flavors}]


def queue(name: str, quotas: Quotas, cohort: str = "", **spec: Any) -> dict[str, Any]:
    return item(
        "ClusterQueue", name, resourceGroups=groups(quotas), **({"cohortName": cohort} if cohort else {}), **spec
    )


def read(*items: Any) -> KueueQueues:
    return read_kueue(json.dumps({"items": items}))


def of(
    name: str, queue: str, submit_s: float, gpus: int, seconds: int = 100, priority: int = 0, **more: Any
) -> TraceJob:
    return job(name, submit_s, gpus, seconds, queue=queue, priority=priority, **more)


class Kueue:
    """Simulations with the queues of a test."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "kueue.json"

    def outcome(self, items: list[Any], *jobs: TraceJob, gpus: int = 32, **more: Any) -> SimulationOutcome:
        self.path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
        where = more.pop("cluster", cluster(1, gpus))
        return run(setting(*jobs, cluster=where, round_us=0), KUEUE, config=str(self.path), **more)

    def starts_s(self, items: list[Any], *jobs: TraceJob, **more: Any) -> list[float | None]:
        return starts_s(self.outcome(items, *jobs, **more))

    def restarts(self, items: list[Any], *jobs: TraceJob, **more: Any) -> list[int]:
        return restarts(self.outcome(items, *jobs, **more))


@pytest.fixture
def kueue(tmp_path: Path) -> Kueue:
    return Kueue(tmp_path)


TEAM_B = queue("b", {"gpu": (12,)}, "ab")


@pytest.mark.parametrize(
    ("quotas_a", "quotas_b", "most"),
    # The three examples of kueue.sigs.k8s.io/docs/concepts/cluster_queue, with GPUs for CPUs.
    [((9,), (12,), (21, 21)), ((9, 1), (12,), (10, 21)), ((9,), (12, None, 1), (10, 21))],
)
def test_borrowing_and_lending_are_those_of_the_documentation(
    quotas_a: tuple[int | None, ...], quotas_b: tuple[int | None, ...], most: tuple[int, int]
) -> None:
    tree = QuotaTree(read(queue("a", {"gpu": quotas_a}, "ab"), queue("b", {"gpu": quotas_b}, "ab"))).queues
    a, b = tree["a"], tree["b"]
    assert (a.most("gpu"), b.most("gpu")) == (a.available("gpu"), b.available("gpu")) == most
    a.add("gpu", most[0])
    assert (a.available("gpu"), b.available("gpu")) == (0, 21 - most[0])
    a.remove("gpu", most[0])
    assert (a.available("gpu"), b.available("gpu")) == most


def test_quotas_of_cohorts_in_cohorts() -> None:
    root = item("Cohort", "root", resourceGroups=groups({"gpu": (4,)}))
    left = item("Cohort", "left", parentName="root", resourceGroups=groups({"gpu": (2, 1, 3)}))
    tree = QuotaTree(
        read(root, left, queue("a", {"gpu": (3,)}, "left"), queue("b", {"gpu": (5, None, 2)}, "root"))
    ).queues
    # left has 2 + 3, keeps 2 of it and may borrow 1; root has 4, 3 of left and 2 of b.
    assert (tree["a"].most("gpu"), tree["b"].most("gpu")) == (6, 3 + 4 + 3 + 2)
    tree["a"].add("gpu", 4)
    assert (tree["a"].available("gpu"), tree["b"].available("gpu")) == (2, 12 - 2)
    tree["b"].add("gpu", 10)
    assert (tree["a"].available("gpu"), tree["b"].available("gpu")) == (0, 0)


def test_who_fits_into_its_own_quota_goes_before_who_borrows(kueue: Kueue) -> None:
    """The note of that page: within a cohort, jobs that fit under the nominal quota come before any that borrow."""
    items = [queue("a", {"gpu": (9,)}, "ab"), TEAM_B]
    jobs = (of("all", "b", 0, 21), of("a", "a", 1, 12, priority=5), of("b", "b", 2, 12))
    assert kueue.starts_s(items, *jobs) == [0, 200, 100]


@pytest.mark.parametrize(("strategy", "starts"), [("BestEffortFIFO", [0, 102, 2]), ("StrictFIFO", [0, 100, 200])])
def test_strict_queues_hold_those_behind(kueue: Kueue, strategy: str, starts: list[float]) -> None:
    jobs = (of("first", "a", 0, 5), of("wide", "a", 1, 8), of("small", "a", 2, 2))
    assert kueue.starts_s([queue("a", {"gpu": (8,)}, queueingStrategy=strategy)], *jobs) == starts
    assert kueue.starts_s([queue("a", {"gpu": (8,)})], *jobs, queueing_strategy=strategy) == starts


def test_the_head_of_a_strict_queue_keeps_others_from_borrowing(kueue: Kueue) -> None:
    """As met in Kueue: quota that waits for the head of a StrictFIFO queue is not lent, unless it can be reclaimed."""

    def starts(**spec: Any) -> list[float]:
        strict = queue("strict", {"gpu": (2,)}, "all", queueingStrategy="StrictFIFO", **spec)
        items = [strict, queue("other", {"gpu": (0,)}, "all")]
        jobs = (of("one", "strict", 0, 1), of("two", "strict", 1, 2), of("borrows", "other", 2, 1, 10))
        return kueue.starts_s(items, *jobs)

    assert starts() == [0, 100, 200]
    assert starts(preemption={"reclaimWithinCohort": "Any"}) == [0, 100, 2]


def test_quota_is_reclaimed_from_those_who_borrow_it(kueue: Kueue) -> None:
    def stopped(policy: str, priority: int) -> list[int]:
        owner = queue("owner", {"gpu": (8,)}, "all", preemption={"reclaimWithinCohort": policy})
        items = [owner, queue("guest", {"gpu": (4,)}, "all")]
        guests = [of(name, "guest", second, 4) for second, name in enumerate(("own", "old", "young"))]
        return kueue.restarts(items, *guests, of("back", "owner", 3, 4, priority=priority))

    assert stopped("Never", 9) == [0, 0, 0, 0]
    assert stopped("LowerPriority", 0) == [0, 0, 0, 0]
    assert stopped("LowerPriority", 1) == [0, 0, 1, 0]  # the youngest of the lowest priority
    assert stopped("Any", 0) == [0, 0, 1, 0]


@pytest.mark.parametrize(
    ("policy", "stopped"),
    [
        ("Never", [0, 0, 0, 0]),
        ("LowerPriority", [1, 0, 1, 0]),
        # The wide job waits for the running one, and then stops the newer one that had passed it.
        ("LowerOrNewerEqualPriority", [1, 0, 2, 0]),
    ],
)
def test_within_a_queue_by_priority_or_also_by_age(kueue: Kueue, policy: str, stopped: list[int]) -> None:
    items = [queue("a", {"gpu": (8,)}, preemption={"withinClusterQueue": policy})]
    jobs = (of("running", "a", 0, 6), of("wide", "a", 1, 8, 10), of("newer", "a", 2, 2, 500))
    assert kueue.restarts(items, *jobs, of("urgent", "a", 3, 8, 10, priority=4)) == stopped


@pytest.mark.parametrize(
    ("threshold", "stopped"),
    [({}, [1, 1, 0]), ({"maxPriorityThreshold": 1}, [0, 0, 0])],  # only one of the two could be stopped, so none is
)
def test_borrowing_by_preemption_stops_at_the_threshold(
    kueue: Kueue, threshold: dict[str, int], stopped: list[int]
) -> None:
    """The setup of Kueue's proposal 1337: all quota is in a shared queue, and the others borrow it."""
    borrow = {"policy": "LowerPriority", **threshold}
    preemption = {"reclaimWithinCohort": "LowerPriority", "borrowWithinCohort": borrow}
    standard = queue("standard", {"gpu": (0,)}, "all", preemption=preemption)
    items = [queue("shared", {"gpu": (8, 0)}, "all"), standard, queue("best-effort", {"gpu": (0,)}, "all")]
    low, middle = (of(name, "best-effort", 0, 4, priority=k) for name, k in (("low", 1), ("middle", 5)))
    assert kueue.restarts(items, low, middle, of("high", "standard", 1, 8, priority=9)) == stopped


def test_victims_come_back_only_after_the_job_that_they_made_way_for(kueue: Kueue) -> None:
    """As met in Kueue: jobs within their own quota that were stopped must not take it again before the other starts."""
    items = [
        queue("cq1", {"gpu": (8,)}, "all", preemption={"reclaimWithinCohort": "Any"}),
        queue("cq2", {"gpu": (4,)}, "all"),
    ]
    jobs = (of("a", "cq2", 0, 6), of("b", "cq2", 1, 6), of("back", "cq1", 2, 8, 10))
    found = kueue.outcome(items, *jobs, gpus=12)
    assert (restarts(found), starts_s(found)) == ([1, 1, 0], [0, 1, 2])


def test_flavors_are_gpu_types_and_are_tried_in_order(kueue: Kueue) -> None:
    made = types("1x4:a100+1x8:v100")
    flavors = [item("ResourceFlavor", name, nodeLabels={"type": f"NVIDIA-{kind}"}) for name, kind in FLAVORS.items()]
    spec = {"preemption": {"withinClusterQueue": "LowerPriority"}}
    jobs = [of("first", "a", 0, 4), of("second", "a", 1, 4, priority=1)]
    two = queue("a", {"fast": (4,), "slow": (4,)}, **spec)
    assert kueue.restarts([*flavors, two], *jobs, cluster=made) == [0, 0]  # it goes on to the next flavor
    stopping = queue("a", {"fast": (4,), "slow": (4,)}, **spec, flavorFungibility={"whenCanPreempt": "MayStopSearch"})
    assert kueue.restarts([*flavors, stopping], *jobs, cluster=made) == [1, 0]
    # A job that may have the second flavor alone stops the second job, which then stops the first one.
    jobs.append(of("picky", "a", 2, 4, priority=9, gpu_types=("v100",)))
    assert kueue.restarts([*flavors, two], *jobs, cluster=made) == [1, 1, 0]
    with misuse("mismatch policy", naming=["'none'"]):
        other = item("ResourceFlavor", "none", nodeLabels={"type": "h100"})
        kueue.outcome([other, queue("a", {"none": (4,)})], jobs[0], cluster=made)


FLAVORS = {"fast": "A100", "slow": "V100"}


def no_quota_is_exceeded(watched: Watched, observation: Observation, decision: Decision) -> None:
    own = watched.scheduler
    tree = QuotaTree(own.queues).queues
    used: Counter[tuple[str, str]] = Counter()
    for share in decision.shares:
        job, (flavor, _) = observation.jobs[share.jobs[0]].job, own.admitted[share.jobs[0]]
        tree[job.queue or ""].add(flavor, job.gpus)
        used[job.queue or "", flavor] += job.gpus
    for (name, flavor), gpus in used.items():
        assert gpus <= tree[name].most(flavor)
        assert all(each.usage[flavor] <= each.most(flavor) for each in tree[name].above())


@pytest.mark.parametrize("seed", range(12))
def test_no_quota_is_exceeded_and_every_job_ends(seed: int, tmp_path: Path) -> None:
    draw, path = random.Random(seed), tmp_path / "kueue.json"

    def quotas(cohort: bool = False) -> Quotas:
        limits = [None, None, 1, 3]
        return {f: (draw.randrange(cohort, 5), draw.choice(limits), draw.choice(limits)) for f in ("fast", "slow")}

    items = [item("Cohort", "left", parentName="root", resourceGroups=groups(quotas()))]
    items.append(item("Cohort", "root", resourceGroups=groups(quotas(True))))
    for name in "abcd":
        preemption = {
            "borrowWithinCohort": {"policy": draw.choice(["Never", "LowerPriority"])},
            "withinClusterQueue": draw.choice(["Never", "LowerPriority", "LowerOrNewerEqualPriority"]),
            "reclaimWithinCohort": draw.choice(["Never", "LowerPriority", "Any"]),
        }
        how = {"preemption": preemption, "queueingStrategy": draw.choice(["StrictFIFO", "BestEffortFIFO"])}
        items.append(queue(name, quotas(), draw.choice(["left", "root"]), **how))
    path.write_text(json.dumps({"items": items}))
    tree, jobs = QuotaTree(read(*items)).queues, []
    for k in range(60):
        name = draw.choice("abcd")
        most = max(tree[name].most(flavor) for flavor in ("fast", "slow"))
        if most:
            gpus, seconds = draw.randrange(1, min(8, most) + 1), draw.randrange(1, 90)
            jobs.append(of(f"j{k}", name, draw.randrange(300), gpus, seconds, priority=draw.randrange(3)))
    made = setting(*jobs, cluster=types("2x4:fast+2x4:slow"), round_us=0)
    outcome = run(made, Watched(KUEUE, no_quota_is_exceeded), config=str(path))
    assert outcome.jobs and all(record.finish_us is not None for record in outcome.jobs)


def test_quota_is_no_gpu(kueue: Kueue) -> None:
    """Quotas may add up to more than the cluster has: a job waits for GPUs, all at once."""
    items = [queue("a", {"gpu": (8,)}), queue("b", {"gpu": (8,)})]
    assert kueue.starts_s(items, of("a", "a", 0, 8), of("b", "b", 1, 8), gpus=12) == [0, 100]


def test_local_queues_lead_to_cluster_queues(kueue: Kueue) -> None:
    local = item("LocalQueue", "users", clusterQueue="a")
    local["metadata"]["namespace"] = "ml"
    items = [queue("a", {"gpu": (8,)}), local, queue("b", {"gpu": (4,)})]
    jobs = (of("1", "users", 0, 8), of("2", "ml/users", 1, 8), of("3", "a", 2, 8))
    assert kueue.starts_s(items, *jobs) == [0, 100, 200]
    with misuse("unsupported", naming=["'4'", "'c'", "a, b"]):
        kueue.outcome(items, of("4", "c", 0, 1))
    with misuse("unsupported", naming=["9 GPUs", "'a'", "8"]):
        kueue.outcome(items, of("5", "a", 0, 9))
    assert kueue.starts_s([items[0]], replace(of("6", "a", 0, 1), queue=None)) == [0]


def test_files_are_checked_and_what_is_not_read_is_told(
    kueue: Kueue, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old = queue("a", {"gpu": (8, 4)}, cohort="", fairSharing={"weight": 2})
    old["spec"]["cohort"] = "all"
    old["spec"]["resourceGroups"][0]["flavors"][0]["resources"].append({"name": "cpu", "nominalQuota": "9"})
    found = read(old)
    assert found.queues["a"].quotas == {"gpu": GpuQuota(8, 4)}
    assert (found.queues["a"].parent, list(found.cohorts)) == ("all", ["all"])
    told = {remark: count for remark, count in found.remarks.items() if count}
    assert told == {"quotas of cpu passed over": 1, "ClusterQueues whose fairSharing is not simulated": 1}
    with caplog.at_level(logging.WARNING):
        kueue.outcome([old], of("1", "a", 0, 1))
    assert carries(caplog.text, "quotas", "1")
    wrong = queue("a", {"gpu": (8,)}, queueingStrategy="FIFO", preemption={"withinClusterQueue": 3})
    wrong["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = "many"
    with pytest.raises(InvalidInputError) as problems:
        read(wrong)
    assert len(problems.value.problems) == 3
    cohorts = (item("Cohort", "x", parentName="y"), item("Cohort", "y", parentName="x"))
    with refuses("cycle $", "cycle $"):
        read(*cohorts, queue("a", {"gpu": (1,)}, "x"))
    with refuses("empty $"):
        read(item("Cohort", "x"))
    with pytest.raises(UsageError, match="kueue:config=FILE"):
        Simulation(setting(of("1", "a", 0, 1)).under(KUEUE))


def test_a_simulation_goes_on_from_its_state_only_with_the_same_quotas(kueue: Kueue) -> None:
    jobs = [of(f"j{k}", "ab"[k % 2], 7 * k, 1 + k % 5, 30 + 11 * k % 90, priority=k % 3) for k in range(30)]
    preemption = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}
    items = [queue(name, {"gpu": (4,)}, "all", preemption=preemption) for name in "ab"]
    whole = kueue.outcome(items, *jobs, gpus=8)
    made = setting(*jobs, cluster=cluster(1, 8), round_us=0).under(KUEUE, config=str(kueue.path))
    first, second = Simulation(made), Simulation(made)
    first.run(until_us=90 * SECOND)
    second.restore(json.loads(json.dumps(first.state())))
    second.run()
    assert second.close().jobs == whole.jobs
    assert sum(restarts(whole)) > 3
    kueue.path.write_text(kueue.path.read_text().replace('"4"', '"5"'))
    with refuses("failed $.scheduler", naming=["quotas"]):
        Simulation(made).restore(first.state())

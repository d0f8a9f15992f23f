"""The argument of work of jobs of both kinds that all GPUs, or a power cap, share (docs/proofs.md)."""

from __future__ import annotations

from collections.abc import Mapping, Set

from jigsaw_opt.checking.proofs.facts.cluster_facts import GpuKind
from jigsaw_opt.checking.proofs.facts.instance_facts import Facts
from jigsaw_opt.checking.proofs.facts.job_facts import JobFacts
from jigsaw_opt.checking.proofs.facts.task_graphs import task_graphs
from jigsaw_opt.checking.proofs.step import ProofStep
from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.problem.task_graph import TaskGraphJob


def shared_work(step: ProofStep, facts: Facts) -> int:
    """Return the least time in which all GPUs, or what a power cap lets run, do the work of some jobs."""
    step.require(facts.objective != "weighted_completion", "is of makespan and period, not of weighted completion")
    inner, graphs, work = step.step("jobs"), task_graphs(facts.instance), 0
    capacity, capped = sum(facts.cluster.gpus), frozenset[str]()
    if step.has("cap"):
        caps = {cap.name: cap for cap in facts.instance.cluster.power_caps or ()}
        name = step.text("cap")
        step.require(name in caps, f"there is no power cap {name!r}", "cap")
        capacity, capped = caps[name].watts, frozenset(caps[name].servers)
    releases = []
    for name in step.value("jobs"):
        if name in graphs:
            own = _of_task_graph(graphs[name], facts.instance.cluster, capped)
            releases.append(graphs[name].release_us)
        else:
            job = facts.job(inner, name, name)
            own = _of_data_parallel(job, facts, capped)
            releases.append(job.release)
        work += inner.equal(name, own, f"the work of job {name!r}")
    step.require(bool(releases), "is empty", "jobs")
    return step.equal("head", min(releases), "the least release") - (-work // capacity)


def _of_task_graph(job: TaskGraphJob, cluster: Cluster, capped: Set[str]) -> int:
    """Return the least time of all blocks on all their GPUs, or under a cap watts times time."""
    once, shape = 0, job.shape
    tables = {slot.name: [b.duration_us for b in shape.blocks if slot.name in b.slots] for slot in shape.slots}
    for block in shape.blocks:
        for slot in block.slots if capped else ():
            servers = [s for s in cluster.servers if all(s.gpu_type in table for table in tables[slot])]
            once += min(
                (
                    _watts(block.power_w, s.gpu_type) * block.duration_us[s.gpu_type] if s.name in capped else 0
                    for s in servers
                ),
                default=0,
            )
        once += 0 if capped else len(block.slots) * min(block.duration_us.values())
    return job.iterations * once


def _watts(power_w: Mapping[str, int] | None, gpu_type: str) -> int:
    return (power_w or {}).get(gpu_type, 0)


def _of_data_parallel(job: JobFacts, facts: Facts, capped: Set[str]) -> int:
    """Return the same of a data-parallel job; 0 under a cap that it may do without, or where no GPU may hold it."""
    shared, servers = job.shared, facts.instance.cluster.servers
    if not shared.blocks or (capped and any(servers[s].name not in capped for s in shared.gpus)):
        return 0
    prices: dict[GpuKind, int] = {k: _watts(shared.terms.power_w, k[0]) if capped else 1 for k in shared.blocks}
    return job.least_work(shared.cheapest(prices))

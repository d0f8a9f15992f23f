"""The argument of work of jobs of both kinds that all GPUs, or a power cap, share (docs/proofs.md)."""

from __future__ import annotations

from jigsaw_opt.checking.proofs.facts.instance_facts import Facts
from jigsaw_opt.checking.proofs.facts.resource_facts import capped_work
from jigsaw_opt.checking.proofs.facts.task_graphs import TaskGraphFacts
from jigsaw_opt.checking.proofs.step import ProofStep
from jigsaw_opt.problem.power import PowerCap


def shared_work(step: ProofStep, facts: Facts) -> int:
    """Return the least time in which all GPUs, or what a power cap lets run, do the work of some jobs."""
    cap = step.named("cap", facts.cluster.power_caps, "power cap") if step.has("cap") else None
    capacity = sum(facts.cluster.gpus) if cap is None else cap.watts
    inner, work, releases = step.step("jobs"), 0, list[int]()
    for name in step.value("jobs"):
        if name in facts.task_graphs:
            graph = facts.task_graphs[name]
            own = _work(graph) if cap is None else _capped_work(graph, cap)
            releases.append(graph.release_us)
        else:
            job = facts.job(inner, name, name)
            own = job.work if cap is None else capped_work(job, cap) or 0
            releases.append(job.release)
        work += inner.equal(name, own, f"the work of job {name!r}")
    step.require(bool(releases), "is empty", "jobs")
    return step.equal("head", min(releases), "the least release") - (-work // capacity)


def _work(facts: TaskGraphFacts) -> int:
    """Return the least time of all blocks of a task-graph job on all their GPUs."""
    blocks = facts.job.shape.blocks
    return facts.iterations * sum(len(block.slots) * min(block.duration_us.values()) for block in blocks)


def _capped_work(facts: TaskGraphFacts, cap: PowerCap) -> int:
    """Return the least watts times time of the blocks of a task-graph job; outside the cap none is drawn."""
    once = 0
    for slot in facts.memory:
        servers = [server for server in facts.cluster.servers if facts.knows(slot, server)]
        capped = {server.gpu_type for server in servers if server.name in cap.servers}
        for block in facts.blocks_of(slot) if all(server.name in cap.servers for server in servers) else ():
            own = facts.job.shape.blocks[block]
            once += min(((own.power_w or {}).get(kind, 0) * own.duration_us[kind] for kind in capped), default=0)
    return facts.iterations * once

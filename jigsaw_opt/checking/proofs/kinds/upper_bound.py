"""An objective that some correct plan does not exceed where there is any (docs/proofs.md: no plan)."""

from __future__ import annotations

from jigsaw_opt.checking.proofs.facts.instance_facts import Facts
from jigsaw_opt.checking.proofs.facts.task_graphs import passage_us
from jigsaw_opt.checking.terms import exchanged, transfer_duration
from jigsaw_opt.problem.job import Job
from jigsaw_opt.problem.task_graph import TaskGraphJob


def upper_bound(facts: Facts) -> int | None:
    """Return a makespan or period that some correct plan does not exceed, if there is any plan.

    The result is None where a job may move and not all have a deadline.
    """
    jobs = facts.instance.jobs
    deadlines = [job.deadline_us for job in jobs if job.deadline_us is not None]
    bounds = [max(deadlines)] if len(deadlines) == len(jobs) else []
    bounds += [job.pace_us * job.iterations for job in jobs if job.pace_us is not None]
    if all(job.restart_us is None for job in jobs):
        work = sum(job.iterations * _all_operations_us(facts, job) for job in jobs)
        bounds.append(max(1, max(job.release_us for job in jobs) + work))
    return min(bounds, default=None)


def _all_operations_us(facts: Facts, job: Job | TaskGraphJob) -> int:
    """Return the time of all operations of an iteration one after the other, each where it takes longest."""
    servers, links = facts.instance.cluster.servers, facts.instance.cluster.links
    rate = min([*(server.fabric_bandwidth for server in servers), *(link.bandwidth for link in links)])
    latency = max([*(server.fabric_latency_us for server in servers), *(link.latency_us for link in links)])
    if isinstance(job, TaskGraphJob):
        blocks = sum(max(block.duration_us.values()) for block in job.shape.blocks)
        return blocks + sum(passage_us(transfer, rate, latency) for transfer in job.shape.transfers)
    terms, workers = exchanged(facts.terms[job.model], job.exchange), job.workers
    types = terms.durations.keys() & {server.gpu_type for server in servers}
    longest = max((terms.durations[gpu_type][-1] for gpu_type in types), default=0)
    payloads = terms.bucket_bytes if workers > 1 else ()
    return workers * longest + sum(transfer_duration(size, workers, workers, rate, latency) for size in payloads)

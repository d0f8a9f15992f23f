"""Arguments about lengths of plans: a critical path, the load of a resource, and workers that share GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from jigsaw_opt.checking.proofs.facts.instance_facts import Facts
from jigsaw_opt.checking.proofs.facts.job_facts import JobFacts
from jigsaw_opt.checking.proofs.facts.resource_facts import DemandFacts, ResourceFacts, resource_facts
from jigsaw_opt.checking.proofs.step import ProofStep


def critical_path(step: ProofStep, facts: Facts) -> int:
    """Return the least completion time of a job; of a period, the least time of its iterations."""
    job = facts.job(step, step.text("job"), "job")
    head = step.equal("head", job.release, "the release of the job") if facts.finite else 0
    return max(head + step.equal("span", job.span, "the least span of the job"), 0 if facts.finite else 1)


def load(step: ProofStep, facts: Facts) -> int:
    """Return the time that a resource takes for the work of some jobs, with the least head and tail of them."""
    resource = resource_facts(step.step("resource"), facts)
    work, ends = 0, list[tuple[int, int]]()
    for inner, job, demand in demands(step, facts, resource):
        work += inner.equal("work", demand.work, f"the work of job {job.name!r}")
        ends.append(_ends(inner, facts, demand))
    step.require(bool(ends), "is empty", "jobs")
    return min(head for head, _ in ends) - (-work // resource.capacity) + min(tail for _, tail in ends)


def workers(step: ProofStep, facts: Facts) -> int:
    """Return the time that the fullest GPU takes for workers of which some GPUs have many."""
    resource = resource_facts(step.step("resource"), facts)
    found, ends = list[int](), list[tuple[int, int]]()
    for inner, job, demand in demands(step, facts, resource):
        loads, count = resource.loads(job), 0
        for one in inner.steps("workers"):
            several = one.integer("count", 1)
            own = loads[count : count + several]
            one.require(len(own) == several, f"job {job.name!r} has fewer workers that count", "count")
            for each in {own[0], own[-1]}:
                one.equal("load", each, f"the load of a worker of job {job.name!r}")
            count += several
            one.done()
        inner.require(count > 0, "is empty", "workers")
        found += loads[:count]
        ends.append(_ends(inner, facts, demand))
    bins, gpus = step.integer("bins", 1), resource.capacity
    step.require(bins <= min(gpus, len(found)), "is more than there are GPUs or workers", "bins")
    # Of k m + g workers on m GPUs, some g GPUs have at least g (k + 1).
    least = sum(sorted(found)[: bins * ((len(found) - bins) // gpus + 1)])
    return min(head for head, _ in ends) - (-least // bins) + min(tail for _, tail in ends)


def demands(
    step: ProofStep, facts: Facts, resource: ResourceFacts
) -> Iterator[tuple[ProofStep, JobFacts, DemandFacts]]:
    """Yield all jobs of a step, each with the step that states its facts, and what it asks of a resource."""
    jobs = list[JobFacts]()
    for inner, job in facts.jobs(step, "jobs"):
        jobs.append(job)
        yield inner, job, inner.required(resource.demand(job), f"job {job.name!r} may do without it", "names")
    step.require(resource.exclusive(jobs), "has two jobs that have room on one GPU", "jobs")


def _ends(step: ProofStep, facts: Facts, demand: DemandFacts) -> tuple[int, int]:
    """Return the head and tail of a job; 0 on the cyclic horizon, where work repeats."""
    if not facts.finite:
        return 0, 0
    return step.equal("head", demand.head, "the head"), step.equal("tail", demand.tail, "the tail")

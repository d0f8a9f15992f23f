"""Jobs of which no GPU has room for two at once, on the finite horizon: each keeps its GPUs while it is present.

So their workers are items of the length of a presence, and GPUs bins that hold one at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import itemgetter

from jigsaw_opt.problem.compiled import critical
from jigsaw_opt.solvers.bounds.combinatorial.resource_load import resource_bounds
from jigsaw_opt.solvers.bounds.job_data import JobData
from jigsaw_opt.solvers.bounds.packing.worker_packing import fullest
from jigsaw_opt.solvers.bounds.proof import Proof, Term, added
from jigsaw_opt.solvers.bounds.relaxation import Bound, BoundBudget, BoundContext, Relaxation
from jigsaw_opt.solvers.bounds.resource_demands import Resource, ResourceDemand

__all__ = ["PRESENCE_PACKING"]


def _bounds(context: BoundContext, known: int, budget: BoundBudget) -> Iterator[Bound]:
    servers, every = context.operations.cluster.servers, context.job_data
    for usable in dict.fromkeys(frozenset(data.job_class.gpus) for data in every if data.job_class.gpus):
        inside = (data for data in every if data.job_class.gpus and data.job_class.gpus.keys() <= usable)
        apart = _apart(inside, max(servers[s].gpu_memory for s in usable))
        count, names = sum(servers[s].gpus for s in usable), tuple(servers[s].name for s in sorted(usable))
        works = {data.job.name: data.job.slots * _present_us(data) for data in apart}
        demands = [
            ResourceDemand(data.job.release_us, work, 0, 0) if (work := works.get(data.job.name)) else None
            for data in every
        ]
        resource = Resource(count, demands, "presences of jobs of which a GPU has room for one at a time", names)
        for bound in resource_bounds(context, [resource] if any(demands) else [], known):
            known = bound.value
            yield bound
        bound = _packed(apart, count, names)
        if bound.value > known:
            known = bound.value
            yield bound


def _apart(jobs: Iterable[JobData], memory: int) -> list[JobData]:
    """Return jobs of which a GPU of so much memory has room for no two, those of the largest states first."""
    chosen: list[JobData] = []
    least = 0
    for data in sorted(jobs, key=lambda data: -data.job.state_bytes):
        activations = data.job.activation_bytes[critical.candidate_levels(data.job)[0] - 1]
        if not chosen:
            chosen, least = [data], activations
        elif data.job.state_bytes + chosen[-1].job.state_bytes + max(activations, least) > memory:
            chosen.append(data)
            least = min(least, activations)
    return chosen


def _present_us(data: JobData) -> int:
    return data.completion - data.job.release_us


def _packed(jobs: Iterable[JobData], gpus: int, servers: tuple[str, ...]) -> Bound:
    """Return the bound of the largest workers, of which some GPUs hold several one after the other."""
    workers = sorted(
        ((_present_us(data), data.job.name, data.job.release_us) for data in jobs for _ in range(data.job.slots)),
        reverse=True,
    )
    load, bins, first, last = max(fullest([each[0] for each in workers], gpus), key=itemgetter(0), default=(0, 1, 0, 0))
    head = min((release for _, _, release in workers[:last]), default=0)
    value, smallest = head + load, workers[first:last]
    terms = (Term("head", head), *(Term("presence of a worker", length, jobs=(name,)) for length, name, _ in smallest))
    arithmetic = f"{head} + ceil(({added(length for length, _, _ in smallest)}) / {bins}) = {value}"
    names = tuple(dict.fromkeys(name for _, name, _ in workers[:last]))
    told = "the longest presences of jobs of which a GPU has room for one at a time; some GPU has several"
    return Bound(value, Proof(told, arithmetic, terms, names, servers))


PRESENCE_PACKING = Relaxation(
    "presence_packing",
    _bounds,
    frozenset({"makespan"}),
    instant=True,
    fits=lambda operations: operations.has_scarce_memory,
)
"""The relaxation registered as ``presence_packing``."""

"""Pairs of jobs that must share a GPU, or links that they use alone: no two of them end as early as each could."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, product

from jigsaw_opt.problem.clock import checking_deadline
from jigsaw_opt.solvers.bounds.completion.chains import Chain, must_share_gpu, pair_inequalities
from jigsaw_opt.solvers.bounds.completion.disjunctive import disjunctive_sets
from jigsaw_opt.solvers.bounds.completion.program import Inequality
from jigsaw_opt.solvers.bounds.completion.shared_program import SharedProgram
from jigsaw_opt.solvers.bounds.job_data import JobData
from jigsaw_opt.solvers.bounds.relaxation import Bound, BoundBudget, BoundContext, Relaxation

__all__ = ["JOB_PAIRS", "forced_sharing"]


def _bounds(context: BoundContext, known: int, budget: BoundBudget) -> Iterator[Bound]:
    """Yield bounds from jobs that must share a GPU, and from jobs that all exclude each other on links."""
    shared = context.shared(SharedProgram)
    for row in forced_sharing(context.job_data, budget):
        shared.program.add(row)
    for jobs in context.shared(disjunctive_sets):
        if jobs.single:
            for row in jobs.all_pairs(budget):
                shared.program.add(row)
            shared.cuts.append(jobs.cuts(jobs.jobs))
    yield from shared.solved(known, budget)


def forced_sharing(job_data: Sequence[JobData], budget: BoundBudget) -> Iterator[Inequality]:
    """Yield inequalities between the completion times of jobs that are too wide not to share a GPU."""
    classes = {id(data.job_class): data for data in job_data}
    pairs = checking_deadline(product(classes.items(), repeat=2))
    # Whether two jobs must share depends on their classes alone, and there are far fewer classes than jobs.
    forced = {(k, m) for (k, one), (m, other) in pairs if must_share_gpu(one, other)}
    for pair in checking_deadline(combinations(range(len(job_data)), 2)) if forced else ():
        one, other = (job_data[k] for k in pair)
        if (id(one.job_class), id(other.job_class)) in forced:
            reason = f"blocks of {one.job.name} and {other.job.name} on a GPU that they share"
            chains = Chain.of(one, True, None), Chain.of(other, True, None)
            yield from pair_inequalities(pair, *chains, reason, budget)


JOB_PAIRS = Relaxation("job_pairs", _bounds, frozenset({"weighted_completion"}))
"""The relaxation registered as ``job_pairs``."""

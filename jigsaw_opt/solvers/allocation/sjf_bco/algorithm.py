"""SJF-BCO (Algorithm 1) and the baselines that its paper compares it with."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import partial

from jigsaw_opt.formulations.sjf_bco import Batch
from jigsaw_opt.solvers.allocation.sjf_bco.machine import BatchOutcome, Estimates, best_limit, list_schedule
from jigsaw_opt.solvers.allocation.sjf_bco.rules import Variant, first_gpus, least_loaded, random_gpus, rule_of


def sjf_bco(
    batch: Batch, variant: Variant = "intent", thresholds: Sequence[int] | None = None, spread: Fraction = Fraction(1)
) -> BatchOutcome | None:
    """Schedule the smallest jobs first, with balanced contention and overhead (SJF-BCO, Algorithm 1).

    For every limit on the load of a GPU, tried by bisection, and every threshold, jobs of at most that many GPUs are
    placed by FA-FFP and larger ones by LBSGF. The best schedule of all is kept. A choice of limit and threshold that
    leaves a job without GPUs counts as infeasible, and every one begins with empty GPUs; the printed algorithm
    would compare the first and forget the second.

    Parameters
    ----------
    batch
        Jobs and servers.
    variant
        The two rules as printed or as their names and the text say.
    thresholds
        The values of ``kappa``; by default the sizes of the jobs, between which it changes nothing.
    spread
        LBSGF looks at servers with at least so many times the GPUs of a job, ``lambda`` at least 1.

    Returns
    -------
    Outcome or None
        None where no schedule shorter than the horizon was found.
    """
    known, order = Estimates(batch), smallest_first(batch)
    kappas = sorted({job.workers for job in batch.jobs}) if thresholds is None else thresholds
    rules = [rule_of(variant, kappa, spread) for kappa in kappas]

    def attempt(limit: int, before: int) -> BatchOutcome | None:
        best = None
        for rule in rules:
            found = list_schedule(known, order, rule, limit, before)
            if found is not None:
                best, before = found, found.makespan
        return best

    return best_limit(batch.horizon, attempt)


def first_fit(batch: Batch, order: Sequence[int]) -> BatchOutcome | None:
    """Schedule by baseline FF: jobs take the first GPUs under the best limit on their load."""
    return best_limit(batch.horizon, partial(list_schedule, Estimates(batch), order, first_gpus))


def least_load(batch: Batch, order: Sequence[int]) -> BatchOutcome | None:
    """Schedule by baseline LS: jobs take the least loaded GPUs under the best limit on their load."""
    return best_limit(batch.horizon, partial(list_schedule, Estimates(batch), order, least_loaded))


def random_fit(batch: Batch, order: Sequence[int], seed: int = 0) -> BatchOutcome | None:
    """Schedule by baseline RAND: jobs take any free GPUs, limited by the horizon alone."""
    return list_schedule(Estimates(batch), order, random_gpus(seed), batch.horizon, batch.horizon)


def smallest_first(batch: Batch) -> list[int]:
    """Return the jobs by the number of their GPUs; of equal ones the first."""
    return sorted(range(len(batch.jobs)), key=lambda job: batch.jobs[job].workers)

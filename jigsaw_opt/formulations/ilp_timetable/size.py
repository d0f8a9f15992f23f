"""How large an instance's program is at least, known before it is built."""

from __future__ import annotations

from collections import Counter

from jigsaw_opt.formulations.timetable.eligibility import GpuEligibility
from jigsaw_opt.problem.clock import checking_deadline
from jigsaw_opt.problem.compiled.operations import Operations


def fewest_coefficients(operations: Operations) -> int:
    """Return how many coefficients the program that `build` makes has at least, so that a huge one is not begun.

    Two blocks of different jobs have two rows of at least two variables on each GPU that both jobs may use.
    """
    eligibility = GpuEligibility(operations)
    blocks: Counter[int] = Counter()
    of_one_job: Counter[int] = Counter()
    for job in checking_deadline(operations.jobs):
        for gpu in eligibility.allowed(job):
            blocks[gpu] += job.iterations
            of_one_job[gpu] += job.iterations**2
    return sum(2 * (count**2 - of_one_job[gpu]) for gpu, count in blocks.items())

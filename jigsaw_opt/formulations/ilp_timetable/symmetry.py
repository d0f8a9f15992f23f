"""The order of what is alike, as one row for each two neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from jigsaw_opt.formulations.algebra import AlgebraicModel
from jigsaw_opt.formulations.ilp_timetable.variables import JobVariables
from jigsaw_opt.formulations.timetable.eligibility import GpuEligibility
from jigsaw_opt.formulations.timetable.symmetry import add_order_of_jobs, alike_gpus, alike_servers

_LARGEST_CODE = 2**12
"""A list of workers by job is read as one number up to this, from as many of the first jobs as fit into it."""


def add_order(model: AlgebraicModel, eligibility: GpuEligibility, jobs: Sequence[JobVariables]) -> None:
    """Order identical jobs by their ends, and identical servers and the GPUs of a server by their workers.

    `model`: the program, which receives columns and rows.

    Notes
    -----
    That one list is lexicographically no smaller than another one is stated of numbers whose digits are the entries.
    """
    add_order_of_jobs(model, eligibility, jobs)
    holders = [job_vars.assigned for job_vars in jobs]
    for name, pairs in chain(alike_servers(eligibility, jobs), alike_gpus(eligibility, holders)):
        weight, digits = _LARGEST_CODE, []
        for first, second, most in pairs:
            weight //= most + 1
            if weight > 0:
                digits.append(weight * (model.total(first) - model.total(second)))
        model.add(model.total(digits) >= 0, name)

"""Symmetry breaking: what is alike stands in one order. The CP-SAT model says why every plan has such a twin."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from jigsaw_opt.formulations.algebra import AlgebraicModel, Expression
from jigsaw_opt.formulations.ilp_timetable.variables import JobVariables
from jigsaw_opt.formulations.timetable.network import RoutedNetwork, identical_jobs, identical_servers

_LARGEST_CODE = 2**12
"""A list of workers by job is read as one number up to this, from as many of the first jobs as fit into it."""


def add_order(model: AlgebraicModel, network: RoutedNetwork, jobs: Sequence[JobVariables]) -> None:
    """Order identical jobs by their ends, and identical servers and the GPUs of a server by their workers.

    `model`: the program, which receives columns and rows.
    """
    eligibility = network.eligibility
    for group in identical_jobs(eligibility.operations):
        for j, k in pairwise(group):
            model.add(jobs[j].ends[-1] <= jobs[k].ends[-1], f"alike_jobs_{j}_{k}")
    for servers in identical_servers(network):
        for s, r in pairwise(servers):
            users = [job_vars for job_vars in jobs if s in job_vars.used]
            counts = (
                (model.total(job_vars.on_server(eligibility, s)), model.total(job_vars.on_server(eligibility, r)))
                for job_vars in users
            )
            _falling(
                model,
                f"alike_servers_{s}_{r}",
                counts,
                [min(job_vars.job.slots, len(eligibility.by_server[s])) for job_vars in users],
            )
    for gpus in eligibility.by_server:
        for g, h in pairwise(gpus):
            users = [job_vars for job_vars in jobs if g in job_vars.assigned]
            _falling(
                model,
                f"alike_gpus_{g}_{h}",
                ((job_vars.assigned[g], job_vars.assigned[h]) for job_vars in users),
                [1] * len(users),
            )


def _falling(
    model: AlgebraicModel, name: str, pairs: Iterable[tuple[Expression, Expression]], most: Sequence[int]
) -> None:
    """Require that the list of the first entries is lexicographically no smaller than that of the second ones.

    Both are read as numbers whose digits are the entries; `most` holds the largest value of each.
    """
    digits = [(w, one, two) for w, (one, two) in zip(_weights(most), pairs, strict=True) if w > 0]
    model.add(model.total(w * (one - two) for w, one, two in digits) >= 0, name)


def leading_digits(most: Iterable[int]) -> int:
    """Return how many of the first entries of lists are compared; `most` holds the largest value of each."""
    return sum(weight > 0 for weight in _weights(most))


def _weights(most: Iterable[int]) -> Iterator[int]:
    """Yield the weight of each entry in the number that a list is read as; 0 for all that it has no room for."""
    weight = _LARGEST_CODE
    for largest in most:
        weight //= largest + 1
        yield weight

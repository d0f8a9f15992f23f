"""The row `pair` of the kind of argument `completions` (docs/proofs.md)."""

from __future__ import annotations

from fractions import Fraction

from .common import Document, fields, need
from .data_parallel import ROWS, facts_of
from .facts import JobFacts


def _pair(instance: Document, row: Document, _: object) -> tuple[dict[str, int], Fraction]:
    fields(row, {"kind": str, "jobs": list, "rows": list}, "row")
    names = row["jobs"]
    need(len(names) == 2 and names[0] != names[1], "a pair is no two jobs")
    one, other = (facts_of(instance, name) for name in names)
    for job in (one, other):
        need("restart_us" not in job.job and bool(job.kinds), f"{job.job['name']} may move or has no usable kinds")
    need(one.w + other.w > sum({**one.usable, **other.usable}.values()), "the jobs need share no GPU")
    need(bool(row["rows"]), "a pair has no rows")
    need(one.n * other.n <= 2500, "the jobs have too many iterations")
    coefficients, right, ends = dict.fromkeys(names, 0), Fraction(0), _ends_of_orders(one, other)
    for stated in row["rows"]:
        need(type(stated) is list and [type(value) for value in stated] == [int] * 4, "a row is no four integers")
        need(min(stated) >= 0, "a number of a row is below 0")
        alpha, beta, least, times = stated
        need(all(alpha * a + beta * b >= least for a, b in ends), "an order of the blocks has a smaller sum")
        coefficients[names[0]] += times * alpha
        coefficients[names[1]] += times * beta
        right += times * least
    return coefficients, right


State = tuple[int, int, int]
"""When the GPU is free, and when the next iteration of each job may begin."""


def _ends_of_orders(*jobs: JobFacts) -> set[tuple[int, int]]:
    """Return the ends of both jobs after each order of their blocks on one GPU, without what is no better."""
    states: dict[tuple[int, int], set[State]] = {(0, 0): {(0, jobs[0].release, jobs[1].release)}}
    for i in range(jobs[0].n + 1):
        for k in range(jobs[1].n + 1):
            before = [(a, b, j) for a, b, j in ((i - 1, k, 0), (i, k - 1, 1)) if min(a, b) >= 0]
            if before:
                after = {_next(jobs[j], j, state) for a, b, j in before for state in states[a, b]}
                states[i, k] = _best(after)
    return {(state[1], state[2]) for state in states[jobs[0].n, jobs[1].n]}


def _next(job: JobFacts, j: int, state: State) -> State:
    d, begin = min(job.least_levels), state[1 + j]
    end = max(begin, state[0]) + job.shortest(d)
    done = max(end + job.tail_of(d), begin + job.iteration)
    return (end, done, state[2]) if j == 0 else (end, state[1], done)


def _best(states: set[State]) -> set[State]:
    kept: list[State] = []
    for state in sorted(states):
        if not any(all(x <= y for x, y in zip(other, state)) for other in kept):
            kept.append(state)
    return set(kept)


ROWS["pair"] = _pair

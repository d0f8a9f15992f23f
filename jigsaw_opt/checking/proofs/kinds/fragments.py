"""Mean busy times of parts of jobs on a resource (docs/proofs.md: rows of fragments)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

from jigsaw_opt.checking.proofs.facts.demands import SpanDemand, WorkSpan, spanned_resource, whole_demand
from jigsaw_opt.checking.proofs.facts.instance_facts import Facts
from jigsaw_opt.checking.proofs.facts.job_facts import JobFacts
from jigsaw_opt.checking.proofs.kinds.row_sum import RowSum
from jigsaw_opt.checking.proofs.step import ProofStep

_MOST_FRAGMENTS = 2000
_SLICES = 12


class _Fragment(NamedTuple):
    """Part of the work of a job: none of it is before `head`; `offset` as of the whole job."""

    head: int
    work: int
    offset: int


def fragments(step: ProofStep, facts: Facts) -> RowSum:
    """Return the sum of rows of sets of fragments: their mean busy times are no earlier than a resource allows."""
    resource = spanned_resource(step.step("resource"), facts)
    capacity = resource.capacity
    most, known = max(1, _MOST_FRAGMENTS // max(1, len(facts.data_parallel))), dict[str, list[_Fragment]]()
    factors, total = Counter[str](), 0
    for one in step.steps("sets"):
        head, multiplier, chosen = one.integer("head"), one.integer("multiplier", 1), list[_Fragment]()
        for name, count in one.named_integers("jobs", 1).items():
            if name not in known:
                job = facts.job(one, name, "jobs")
                found = one.required(whole_demand(job, resource), f"job {name!r} may do without the resource", "jobs")
                parts = [part for part in _fragments(job, found, most) if part.work]
                known[name] = sorted(parts, key=lambda part: Fraction(-part.offset, part.work))
            own = [part for part in known[name] if part.head >= head][:count]
            one.require(len(own) == count, f"job {name!r} has fewer fragments from then on", "jobs")
            factors[name] += 2 * capacity * multiplier * sum(part.work for part in own)
            chosen += own
        one.require(bool(chosen), "is empty", "jobs")
        one.done()
        work, first = sum(part.work for part in chosen), min(part.head for part in chosen)
        offset = sum(part.offset for part in chosen)
        total += multiplier * (2 * capacity * first * work + work**2 + capacity * offset)
    return RowSum(factors, Fraction(total))


def _fragments(job: JobFacts, demand: SpanDemand, most: int) -> Iterator[_Fragment]:
    n, length, room = job.iterations, job.shared.iteration, demand.room.work
    free, parts = demand.free(n), min(n, most)
    for first, last in pairwise(n * k // parts for k in range(parts + 1)):
        count, later = last - first, length * (2 * n - first - last - 1)
        for span in demand.spans:
            for work, before, twice_after in _slices(span, _SLICES if count == 1 else 1):
                head = job.release + first * length + before
                yield _Fragment(head, count * work, count * work * (twice_after + later))
        amount = min(free, last * room) - first * room
        if amount > 0:
            # Counted from the end, so many iterations are full, and the next one has the rest.
            full, rest = divmod(amount, room)
            offset = length * (room * full * (2 * first + full - 1) + 2 * rest * (first + full))
            before = demand.room.before + (free - first * room - amount) // room * length
            yield _Fragment(job.release + before, amount, offset + 2 * demand.room.after * amount)


def _slices(span: WorkSpan, most: int) -> Iterator[tuple[int, int, int]]:
    """Yield parts of a span: work, least start, and twice the distance of its middle from the end."""
    count = min(most, span.length)
    for start, end in pairwise(span.length * k // count for k in range(count + 1)) if count else ():
        yield span.rate * (end - start), span.before + start, 2 * (span.after + span.length) - start - end

"""The rows of a plan as a pseudo-Boolean decision problem in OPB, the format of the solvers' competitions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from jigsaw_opt.checking.proofs.facts import Facts
from jigsaw_opt.checking.proofs.job_rows import PlanRows, Term, TooManyRowsError
from jigsaw_opt.checking.proofs.plan_rows import plan_rows
from jigsaw_opt.checking.proofs.step import ProofStep
from jigsaw_opt.documents import instance_sha256
from jigsaw_opt.errors import UsageError, argument
from jigsaw_opt.problem.instance import Instance

_Row = tuple[tuple[Term, ...], int, bool]
"""Terms, the number that they add up to at most, and whether it is exactly that."""


def decision_problem(instance: Instance, limit: int, together: bool) -> bytes:
    """Return as an OPB file whether the rows leave room for a plan with an objective of at most a limit.

    `together`: whether one iteration stands for all of its job (docs/proofs.md: rows of a plan).
    """
    try:
        rows = plan_rows(ProofStep({}, "$"), Facts(instance), limit, together)
    except TooManyRowsError:
        fewer = "" if together else f"; those with {argument('iterations', 'together')} are fewer"
        told = f"instance {instance.name!r} has too many rows of a plan to be written{fewer}"
        raise UsageError(told, code="too-large", path="iterations") from None
    goal = instance.objective.replace("_", " ")
    told = "one iteration for all of a job" if together else "each iteration for itself"
    remarks = (
        f"the rows of a plan (jigsaw-opt, docs/proofs.md), {told}",
        f"instance {json.dumps(instance.name)}, sha256 {instance_sha256(instance)}",
        f"unsatisfiable: no correct plan has a {goal} of at most {limit}, so {limit + 1} is a lower bound",
        "satisfiable: nothing is known of plans, for the rows leave out some of their rules",
    )
    return opb_document(rows, remarks)


def opb_document(rows: PlanRows, remarks: Sequence[str]) -> bytes:
    """Return rows as an OPB file, which has a solution if and only if the rows have one.

    Each integer is its least value and a sum of powers of two, each times a 0-1 variable; comments say which ones.
    `remarks`: lines for whoever reads the file.
    """
    digits, count = list[tuple[Term, ...]](), 0
    for low, high in zip(rows.low, rows.high, strict=True):
        bits = max(0, high - low).bit_length()
        digits.append(tuple((1 << k, count + k + 1) for k in range(bits)))
        count += bits
    written = [*_bounds(rows, digits), *_in_digits(rows, digits)]
    if any(not terms for terms, _, _ in written):
        # A row without variables that does not hold is one over a variable that cannot be 2.
        count += 1
        written = [row if row[0] else (((-1, count),), -2, False) for row in written]
    size = max((sum(abs(a) for a, _ in terms) for terms, _, _ in written), default=0).bit_length()
    equal = sum(exact for _, _, exact in written)
    lines = [f"* #variable= {count} #constraint= {len(written)} #equal= {equal} intsize= {size}"]
    lines += [f"* {remark}" for remark in remarks]
    for name, low, own in zip(rows.names, rows.low, digits, strict=True):
        lines.append(" ".join([f"* {json.dumps(name)} = {low}", *(f"{a:+} x{x}" for a, x in own)]))
    for terms, most, exact in written:
        # The format has no rows of at most a number.
        lines.append(f"{' '.join(f'{-a:+} x{x}' for a, x in terms)} {'=' if exact else '>='} {-most} ;")
    return "\n".join([*lines, ""]).encode("ascii")


def _bounds(rows: PlanRows, digits: Sequence[tuple[Term, ...]]) -> Iterator[_Row]:
    """Yield what keeps sums of powers of two within their largest values, where they could exceed them."""
    for low, high, own in zip(rows.low, rows.high, digits, strict=True):
        if (1 << len(own)) - 1 != high - low:
            yield own, high - low, False


def _in_digits(rows: PlanRows, digits: Sequence[tuple[Term, ...]]) -> Iterator[_Row]:
    """Yield rows over 0-1 variables, those left out that hold without any."""
    for terms, side, exact in _with_equations(rows):
        most = side - sum(a * rows.low[v] for a, v in terms)
        own = tuple((a * power, x) for a, v in terms for power, x in digits[v])
        if own or most < 0 or (exact and most):
            yield own, most, exact


def _with_equations(rows: PlanRows) -> Iterator[_Row]:
    """Yield rows, two in turn that make a sum equal to a number as one."""
    before: tuple[tuple[Term, ...], int] | None = None
    for terms, side in rows.rows:
        if before == (tuple((-a, v) for a, v in terms), -side):
            yield *before, True
            before = None
            continue
        if before is not None:
            yield *before, False
        before = terms, side
    if before is not None:
        yield *before, False

"""The rows of a plan as a pseudo-Boolean decision problem in OPB, the format of the solvers' competitions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from jigsaw_opt.checking.proofs.facts.instance_facts import Facts
from jigsaw_opt.checking.proofs.rows.job_rows import PlanRows, Term, TooManyRowsError
from jigsaw_opt.checking.proofs.rows.plan_rows import plan_rows
from jigsaw_opt.documents import instance_sha256
from jigsaw_opt.errors import UsageError, argument
from jigsaw_opt.problem.instance import Instance


def decision_problem(instance: Instance, limit: int, together: bool) -> OpbProblem:
    """Return whether the rows leave room for a plan with an objective of at most a limit.

    `together`: whether one iteration stands for all of its job (docs/proofs.md: rows of a plan).
    """
    try:
        rows = plan_rows(Facts(instance), limit, together)
    except TooManyRowsError:
        fewer = "" if together else f"; those with {argument('iterations', 'together')} are fewer"
        told = f"instance {instance.name!r} has too many rows of a plan to be written{fewer}"
        raise UsageError(told, code="too-large", path="iterations") from None
    goal = {"weighted_completion": "sum of weighted completion times"}.get(instance.objective, instance.objective)
    told = "one iteration for all of a job" if together else "each iteration for itself"
    remarks = (
        f"the rows of a plan (jigsaw-opt, docs/proofs.md), {told}",
        f"instance {json.dumps(instance.name)}, sha256 {instance_sha256(instance)}",
        f"unsatisfiable: no correct plan has a {goal} of at most {limit:,}, so {limit + 1:,} is a lower bound",
        "satisfiable: nothing is known of plans, for the rows leave out some of their rules",
    )
    return OpbProblem(rows, remarks)


@dataclass
class OpbProblem:
    """Rows over 0-1 variables, which have a solution if and only if the rows over integers have one.

    Each integer is its least value and a sum of powers of two, each times a 0-1 variable. `remarks`: lines for whoever
    reads the file. `digits`: of each integer, the powers with their 0-1 variables, numbered from 1 to `count`.
    `constraints`: terms and the number that they add up to at most. `bound_of`, `constraint_of`: by integer and by
    row, the constraint that says it, numbered from 1; where one holds of all digits, there is none.
    """

    rows: PlanRows
    remarks: Sequence[str]
    digits: list[tuple[Term, ...]] = field(default_factory=list)
    count: int = 0
    constraints: list[tuple[tuple[Term, ...], int]] = field(default_factory=list)
    bound_of: dict[int, int] = field(default_factory=dict)
    constraint_of: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for low, high in zip(self.rows.low, self.rows.high, strict=True):
            bits = max(0, high - low).bit_length()
            self.digits.append(tuple((1 << k, self.count + k + 1) for k in range(bits)))
            self.count += bits
        for variable, own in enumerate(self.digits):
            span = self.rows.high[variable] - self.rows.low[variable]
            if (1 << len(own)) - 1 != span:
                self.bound_of[variable] = self._add(own, span)
        for number, (terms, side) in enumerate(self.rows.rows):
            most = side - sum(a * self.rows.low[v] for a, v in terms)
            own = tuple((a * power, x) for a, v in terms for power, x in self.digits[v])
            if own or most < 0:
                self.constraint_of[number] = self._add(own, most)

    def _add(self, terms: tuple[Term, ...], most: int) -> int:
        if not terms:
            # A row without variables that does not hold is one over a variable that cannot be 2.
            self.count += 1
            terms, most = ((-1, self.count),), -2
        self.constraints.append((terms, most))
        return len(self.constraints)

    def document(self) -> bytes:
        """Return the problem as an OPB file; comments say which integer has which digits."""
        size = max((sum(abs(a) for a, _ in terms) for terms, _ in self.constraints), default=0).bit_length()
        lines = [f"* #variable= {self.count} #constraint= {len(self.constraints)} #equal= 0 intsize= {size}"]
        lines += [f"* {remark}" for remark in self.remarks]
        for name, low, own in zip(self.rows.names, self.rows.low, self.digits, strict=True):
            lines.append(" ".join([f"* {json.dumps(name)} = {low}", *(f"{a:+} x{x}" for a, x in own)]))
        # The format has no rows of at most a number.
        lines += [f"{' '.join(f'{-a:+} x{x}' for a, x in terms)} >= {-most} ;" for terms, most in self.constraints]
        return "\n".join([*lines, ""]).encode("ascii")

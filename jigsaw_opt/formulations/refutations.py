"""A proof by cases as a refutation of its rows in cutting planes, which VeriPB checks (Gocht and Nordström, 2021)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import NamedTuple

from jigsaw_opt.checking.proofs.kinds.cases import Domains, TooManyChangesError
from jigsaw_opt.errors import InvalidInputError, wrong_input
from jigsaw_opt.formulations.dual_programs import right_argument
from jigsaw_opt.formulations.pseudo_boolean import OpbProblem, decision_problem
from jigsaw_opt.problem.bound_proof import BoundProof
from jigsaw_opt.problem.instance import Instance

MOST_STEPS = 200_000
"""Steps of a refutation above which none is written."""


class _BoundLiteral(NamedTuple):
    """That a variable is at most a value (`largest`), or at least."""

    variable: int
    largest: bool
    value: int


def refutation(instance: Instance, proof: BoundProof) -> tuple[bytes, bytes]:
    """Return the rows of a right proof of the kind `cases` as an OPB file, and its refutation as a file of VeriPB."""
    argument = right_argument(instance, proof, "cases", "refutations of the rows of a plan")
    problem = decision_problem(instance, argument["limit"], argument["iterations"] == "together")
    numbers = {json.dumps(name): number for number, name in enumerate(problem.rows.names)}
    branches = [(numbers[json.dumps(each["variable"])], each["most"]) for each in argument["branches"]]
    return problem.document(), refutation_steps(problem, branches, argument["tree"])


def refutation_steps(problem: OpbProblem, branches: Sequence[tuple[int, int]], tree: Iterable[int]) -> bytes:
    """Return a file of VeriPB that refutes a problem by a right tree in preorder.

    `branches`: variables, each with the most that it is in the first case of the branch.
    """
    made = _CuttingPlanesProof(problem, branches)
    try:
        made.domains.propagate()
        made.refute(iter(tree))
    except (TooManyChangesError, RecursionError):
        raise _too_large() from None
    return made.document()


def _too_large() -> InvalidInputError:
    told = f"has a refutation of more than {MOST_STEPS:,} steps, or one that is too deep"
    return wrong_input("$.argument.tree", told, code="too-large")


@dataclass
class _CuttingPlanesProof:
    """Steps that derive a contradiction from the constraints of a problem, case by case.

    Each bound that a branch or row sets has a 0-1 variable, which two constraints define. A row and the definitions of
    bounds that contradict it add up to a clause. Unit propagation on these clauses refutes the cases.

    `defined`: by variable and least value, the place of the 0-1 variable among these. `path`: branches above the case.
    """

    problem: OpbProblem
    branches: Sequence[tuple[int, int]]
    domains: Domains = field(init=False)
    defined: dict[tuple[int, int], int] = field(default_factory=dict)
    steps: dict[str, None] = field(default_factory=dict)
    path: list[_BoundLiteral] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.domains = Domains(self.problem.rows)
        self.numbers = {name: number for number, name in enumerate(self.problem.rows.names)}

    def refute(self, tree: Iterator[int], orders: Sequence[int] = ()) -> None:
        """Refute the case that a tree in preorder is about; one without entries is a leaf.

        `orders`: variables of the orders of overloaded operations.
        """
        domains, case = self.domains, next(tree, -1)
        if case >= 0:
            self._split(*self.branches[case], tree)
        elif any(domains.low[variable] > domains.high[variable] for variable, _ in domains.conflict):
            self._explain(None)
        elif (row := self._violated_row()) is not None:
            self._explain(row)
        else:
            # Operations are overloaded, so rows refute each of their orders.
            open_ = [v for v in orders or self._orders() if domains.low[v] < domains.high[v]]
            if not open_:
                raise wrong_input("$.argument.tree", "has overloaded operations in a fixed order", code="unsupported")
            self._split(open_[0], (domains.low[open_[0]] + domains.high[open_[0]]) // 2, iter(()), open_)

    def _split(self, variable: int, most: int, tree: Iterator[int], orders: Sequence[int] = ()) -> None:
        """Refute both cases of a branch, and by them the case that has it."""
        for above, _ in enumerate(self.domains.cases(variable, most)):
            self.path.append(_BoundLiteral(variable, not above, most + above))
            self.refute(tree, orders)
            self.path.pop()
        self._add_clause()

    def _violated_row(self) -> int | None:
        """Return a row that no values within the bounds satisfy."""
        low, high = self.domains.low, self.domains.high
        for number, (terms, side) in enumerate(self.problem.rows.rows):
            if sum(a * (low[v] if a > 0 else high[v]) for a, v in terms) > side:
                return number
        return None

    def _orders(self) -> list[int]:
        """Return the variables of the orders of the operations that are overloaded."""
        starts = {variable for variable, largest in self.domains.conflict if not largest}
        users = [use for each in self.problem.rows.resources for use in each if use.start in starts]
        names = (("order", *one.order, *other.order) for one, other in combinations(users, 2))
        return [self.numbers[name] for name in names if name in self.numbers]

    def _explain(self, row: int | None) -> None:
        """Refute a leaf: derive clauses for all changes that its contradiction rests on, the last one first.

        `row`: the violated row; None if a variable has no value left.
        """
        bounds = [*self.domains.low], [*self.domains.high]
        if row is None:
            needed = {*self.domains.conflict}
            self._add_sum([], [(1, _BoundLiteral(v, largest, bounds[largest][v])) for v, largest in needed])
        else:
            needed = self._add_row(row, bounds)
        for variable, largest, before, why in reversed(self.domains.changes):
            after, bounds[largest][variable] = bounds[largest][variable], before
            if (variable, largest) in needed and after != before:
                needed.discard((variable, largest))
                if why >= 0:
                    beyond = after + 1 if largest else after - 1
                    needed |= self._add_row(why, bounds, _BoundLiteral(variable, not largest, beyond))
        self._add_clause()

    def _add_row(
        self, row: int, bounds: Sequence[Sequence[int]], beyond: _BoundLiteral | None = None
    ) -> set[tuple[int, bool]]:
        """Derive that bounds of its variables contradict a row, and return which; `beyond` takes the place of one."""
        used, needed = list[tuple[int, _BoundLiteral]](), set[tuple[int, bool]]()
        for factor, variable in self.problem.rows.rows[row][0]:
            largest = factor < 0
            if beyond is not None and variable == beyond.variable:
                used.append((abs(factor), beyond))
            else:
                used.append((abs(factor), _BoundLiteral(variable, largest, bounds[largest][variable])))
                needed.add((variable, largest))
        self._add_sum([f"{self.problem.constraint_of[row]}"], used)
        return needed

    def _add_sum(self, summands: list[str], bounds: Iterable[tuple[int, _BoundLiteral]]) -> None:
        """Derive that not all bounds hold, by the sum of constraints and of bounds with a factor each."""
        divisor = 1
        for factor, bound in bounds:
            digits = self.problem.digits[bound.variable]
            divisor += factor << len(digits)
            first = (self.problem.rows.high if bound.largest else self.problem.rows.low)[bound.variable]
            if bound.value != first:
                summands.append(f"{self._definition(bound)} {factor} *")
            elif bound.largest and bound.variable in self.problem.bound_of:
                summands.append(f"{self.problem.bound_of[bound.variable]} {factor} *")
            else:
                sign = "~" if bound.largest else ""
                summands += [f"{sign}x{x} {factor * power} *" for power, x in digits]
        # Only literals are left, each with a factor below the divisor, which makes all of them 1.
        self._add(f"p {' '.join([*summands[:1], *(f'{each} +' for each in summands[1:])])} {divisor} d 0")

    def _add_clause(self) -> None:
        """Derive by unit propagation that one of the branches on the path does not hold."""
        self._add(" ".join(["u", *(f"1 {self._literal(each, negated=True)}" for each in self.path), ">= 1 ;"]))

    def _add(self, step: str) -> None:
        if len(self.steps) >= MOST_STEPS:
            raise _too_large()
        self.steps[step] = None

    def _place(self, bound: _BoundLiteral) -> int:
        return self.defined.setdefault((bound.variable, bound.value + bound.largest), len(self.defined) + 1)

    def _literal(self, bound: _BoundLiteral, negated: bool) -> str:
        return f"{'~' if bound.largest != negated else ''}x{self.problem.count + self._place(bound)}"

    def _definition(self, bound: _BoundLiteral) -> int:
        """Return the number of the constraint that the literal of a bound implies the bound."""
        return len(self.problem.constraints) + 2 * self._place(bound) - (not bound.largest)

    def document(self) -> bytes:
        """Return the definitions, the steps, and the contradiction as a file."""
        lines = ["pseudo-Boolean proof version 1.1", f"f {len(self.problem.constraints)}"]
        for (variable, least), place in self.defined.items():
            x, digits = f"x{self.problem.count + place}", self.problem.digits[variable]
            above = least - self.problem.rows.low[variable]
            below = (1 << len(digits)) - above
            up, down = (" ".join(f"{sign}{power} x{digit}" for power, digit in digits) for sign in "+-")
            lines.append(f"* {x}: {json.dumps(self.problem.rows.names[variable])} >= {least}")
            # A branch may be outside the values of its variable.
            lines.append(f"red {up} {max(1, above)} ~{x} >= {above} ; {x} 0")
            lines.append(f"red {down} {max(1, below)} {x} >= {1 - above} ; {x} 1")
        return "\n".join([*lines, *self.steps, "c -1", ""]).encode("ascii")

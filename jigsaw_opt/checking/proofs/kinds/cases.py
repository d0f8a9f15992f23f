"""Proof by cases: a tree of branches on the rows of a plan, each leaf of which has no value left for some variable."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from jigsaw_opt.checking.proofs.facts.instance_facts import Facts
from jigsaw_opt.checking.proofs.rows.job_rows import Name, PlanRows, Term, TooManyRowsError
from jigsaw_opt.checking.proofs.rows.plan_rows import plan_rows
from jigsaw_opt.checking.proofs.step import ProofStep, ProofStepError, integer
from jigsaw_opt.problem import clock

MOST_CHANGES = 2_000_000
"""Changes of values by rows in all cases together after which a proof is refused."""
_MOST_CHANGES_BY_ROW = 20
"""Changes of values in a single case, for each row: values that creep past each other end no case sooner."""


class TooManyChangesError(Exception):
    """Rows narrow values too often."""


class Domains:
    """Least and largest values of the variables of some rows, as they are narrowed by branches and rows.

    `changes`: variable, whether its largest value changed, the value before, and why: the number of a row, or -1 for a
    branch. `conflict`: bounds that contradict each other, each a variable and whether it is the largest value.
    `most_changes`: how many rows may make before the narrowing is given up. `left`: how many of them are left.
    """

    def __init__(self, plan: PlanRows, most_changes: int = MOST_CHANGES) -> None:
        self.left = most_changes
        self.plan, self.low, self.high = plan, [*plan.low], [*plan.high]
        self.changes: list[tuple[int, bool, int, int]] = []
        self.conflict: list[tuple[int, bool]] = []
        # How much each row may still grow: it narrows what can add more. What can add most is first in its terms.
        self._slack = [side for _, side in plan.rows]
        self._terms: list[list[tuple[int, int, int]]] = []
        self._rows: tuple[list[list[Term]], list[list[Term]]] = ([[] for _ in plan.names], [[] for _ in plan.names])
        for number, (terms, _) in enumerate(plan.rows):
            for factor, variable in terms:
                self._slack[number] -= factor * (self.low if factor > 0 else self.high)[variable]
                self._rows[factor < 0][variable].append((abs(factor), number))
        self._resources: list[list[int]] = [[] for _ in plan.names]
        for number, users in enumerate(plan.resources):
            for variable in {v for each in users for v in (each.present, each.start, each.end, each.length)}:
                self._resources[variable].append(number)
        self._waiting, self._queued = deque[int](), bytearray()

    def propagate(self) -> bool:
        """Narrow the variables by all rows, as all cases begin; return whether a contradiction is reached."""
        rows = range(len(self._slack))
        self._waiting, self._queued = deque(rows), bytearray(b"\1" * len(rows))
        self._set_reaches()
        refuted = self._narrow() or self._overloaded(range(len(self.plan.resources)))
        self.left -= len(self.changes)
        self._set_reaches()
        return refuted

    def _set_reaches(self) -> None:
        """Work out how much each variable of a row can add to it at most, here and in all cases below."""
        widths = [high - low for low, high in zip(self.low, self.high, strict=True)]
        self._terms = [
            sorted(((abs(factor) * widths[v], factor, v) for factor, v in terms), reverse=True)
            for terms, _ in self.plan.rows
        ]
        self._reach = [terms[0][0] if terms else 0 for terms in self._terms]

    def _narrow(self) -> bool:
        """Narrow the variables by the rows that wait; return whether one of them cannot hold."""
        clock.check_deadline()
        most = len(self.changes) + min(self.left, _MOST_CHANGES_BY_ROW * len(self._slack))
        low, high, slacks, rows = self.low, self.high, self._slack, self._terms
        waiting, queued = self._waiting, self._queued
        while waiting:
            number = waiting.popleft()
            queued[number] = 0
            slack = slacks[number]
            if slack < 0:
                self.conflict = [(variable, factor < 0) for factor, variable in self.plan.rows[number][0]]
                return True
            for reach, factor, variable in rows[number]:
                if reach <= slack:
                    break
                if factor > 0:
                    if factor * (high[variable] - low[variable]) > slack:
                        self._change(variable, True, low[variable] + slack // factor, number)
                elif factor * (low[variable] - high[variable]) > slack:
                    self._change(variable, False, high[variable] - slack // -factor, number)
            if len(self.changes) > most:
                raise TooManyChangesError
        return False

    def _change(self, variable: int, largest: bool, value: int, row: int) -> None:
        """Change a bound of a variable, and let the rows wait that may narrow others for that."""
        bounds, slacks, reaches, queued = self.high if largest else self.low, self._slack, self._reach, self._queued
        before, bounds[variable] = bounds[variable], value
        self.changes.append((variable, largest, before, row))
        step = abs(value - before)
        for factor, other in self._rows[largest][variable]:
            slacks[other] -= factor * step
            if slacks[other] < reaches[other] and not queued[other]:
                queued[other] = 1
                self._waiting.append(other)

    def _overloaded(self, resources: Iterable[int]) -> bool:
        """Return whether operations that surely use one of these need more time than lies between start and end."""
        low, high = self.low, self.high
        for number in resources:
            users = self.plan.resources[number]
            here = [(low[o.start], high[o.end], low[o.length], o) for o in users if low[o.present] and low[o.length]]
            here.sort(key=lambda each: each[1])
            self.left -= len(here) ** 2 // 100
            if self.left < 0:
                raise TooManyChangesError
            for head in {each[0] for each in here}:
                work = 0
                for start, end, length, _ in here:
                    if start >= head:
                        work += length
                        if work > end - head:
                            inside = [o for s, e, _, o in here if s >= head and e <= end]
                            self.conflict = [
                                bound
                                for o in inside
                                for bound in ((o.start, False), (o.end, True), (o.length, False), (o.present, False))
                            ]
                            return True
        return False

    def branch(self, variable: int, most: int, above: bool) -> bool:
        """Keep values of at most `most`, or those above it; return whether a contradiction is reached."""
        first = len(self.changes)
        self._waiting.clear()
        self._queued = bytearray(len(self._slack))
        value = max(self.low[variable], most + 1) if above else min(self.high[variable], most)
        self._change(variable, not above, value, -1)
        if self.low[variable] > self.high[variable]:
            self.conflict = [(variable, False), (variable, True)]
            return True
        refuted = self._narrow()
        self.left -= len(self.changes) - first - 1
        # The operations on other resources have not changed since the case above this one.
        touched = {number for change in self.changes[first:] for number in self._resources[change[0]]}
        return refuted or self._overloaded(sorted(touched))

    def cases(self, variable: int, most: int) -> Iterator[bool]:
        """Enter both cases of a branch, one after the other; yield whether a contradiction is reached there."""
        here = len(self.changes)
        for above in (False, True):
            yield self.branch(variable, most, above)
            self.undo(here)

    def undo(self, length: int) -> None:
        """Take back all changes but the first ones."""
        slacks = self._slack
        while len(self.changes) > length:
            variable, largest, before, _ = self.changes.pop()
            bounds = self.high if largest else self.low
            step, bounds[variable] = abs(before - bounds[variable]), before
            for factor, row in self._rows[largest][variable]:
                slacks[row] += factor * step


def cases(step: ProofStep, facts: Facts) -> int:
    """Return one more than the limit that a tree of cases refutes (docs/proofs.md: cases)."""
    limit, iterations = step.integer("limit"), step.text("iterations")
    step.require(iterations in ("each", "together"), "is neither 'each' nor 'together'", "iterations")
    try:
        plan = plan_rows(facts, limit, iterations == "together")
    except TooManyRowsError:
        raise step.fail("has too many rows for this kind of argument", "limit") from None
    facts.spend(step, "rows", len(plan.rows))
    facts.spend(step, "variables in rows", plan.terms)
    numbers = {name: number for number, name in enumerate(plan.names)}
    branches = []
    for each in step.steps("branches"):
        name = _name(each.value("variable"), f"{each.path}.variable")
        each.require(name in numbers, "is no variable", "variable")
        branches.append((numbers[name], each.integer("most", None)))
        each.done()
    try:
        domains = Domains(plan, MOST_CHANGES)
        _check_tree(step, domains, branches)
        facts.spend(step, "changes of values", MOST_CHANGES - domains.left)
    except TooManyChangesError:
        raise step.fail("narrows values too often for this kind of argument", "tree") from None
    return limit + 1


def _check_tree(step: ProofStep, domains: Domains, branches: Sequence[tuple[int, int]]) -> None:
    """Fail unless each leaf of the tree is contradictory, and no case with a branch is."""
    # The cases that are still to come: first the one without a branch, then those of each branch on the way.
    way: list[Iterator[bool]] = [iter([domains.propagate()])]
    for value, where in step.items("tree"):
        refuted = step.required(_next_case(way), "has more entries than cases", "tree")
        case = integer(value, where, -1)
        step.require(case < len(branches), f"{case} is no branch", "tree")
        if case >= 0:
            step.require(not refuted, "branches where there is already a contradiction", "tree")
            variable, most = branches[case]
            narrows = domains.low[variable] <= most < domains.high[variable]
            step.require(narrows, f"branch {case} leaves one of its cases as it is", "tree")
            way.append(domains.cases(variable, most))
        else:
            step.require(refuted, f"the case that {where} closes is not contradictory", "tree")
    step.require(_next_case(way) is None, "leaves cases open", "tree")


def _next_case(way: list[Iterator[bool]]) -> bool | None:
    """Return whether the next case is contradictory; None where there is none."""
    while way:
        for refuted in way[-1]:
            return refuted
        way.pop()
    return None


def _name(value: object, path: str) -> Name:
    """Return the name of a variable as a tuple, with those inside it."""
    if not isinstance(value, list | tuple):
        raise ProofStepError(path, "is not a list")
    for part in value:
        if not isinstance(part, str | int | list | tuple) or isinstance(part, bool):
            raise ProofStepError(path, "has what is no part of a name")
    return tuple(_name(part, path) if isinstance(part, list | tuple) else part for part in value)

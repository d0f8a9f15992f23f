"""Proof by cases: a tree of branches on the rows of a plan, each leaf of which has no value left for some variable."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from jigsaw_opt.checking.proofs.facts import Facts
from jigsaw_opt.checking.proofs.job_rows import Name, PlanRows, TooManyRowsError
from jigsaw_opt.checking.proofs.plan_rows import plan_rows
from jigsaw_opt.checking.proofs.step import ProofStep, ProofStepError, integer
from jigsaw_opt.problem import clock

MOST_CHANGES = 10_000_000
"""Changes of values by rows after which a proof is refused."""


class TooManyChangesError(Exception):
    """Rows narrow values too often."""


class Domains:
    """Least and largest values of the variables of some rows, as they are narrowed by branches and rows.

    `changes`: variable, whether its largest value changed, the value before, and why: the number of a row, or -1 for a
    branch. `conflict`: bounds that contradict each other, each a variable and whether it is the largest value.
    `most_changes`: how many rows may make before the narrowing is given up.
    """

    def __init__(self, plan: PlanRows, most_changes: int = MOST_CHANGES) -> None:
        self._left = most_changes
        self.plan, self.low, self.high = plan, [*plan.low], [*plan.high]
        self.changes: list[tuple[int, bool, int, int]] = []
        self.conflict: list[tuple[int, bool]] = []
        self._rows = [(terms, side) for terms, side in plan.rows]
        self._of: tuple[list[list[int]], list[list[int]]] = ([[] for _ in plan.names], [[] for _ in plan.names])
        for number, (terms, _) in enumerate(plan.rows):
            for factor, variable in terms:
                self._of[factor < 0][variable].append(number)

    def propagate(self, rows: Iterable[int]) -> bool:
        """Narrow the variables by all rows, from some of them on; return whether a contradiction is reached."""
        clock.check_deadline()
        waiting = deque(rows)
        queued = bytearray(len(self._rows))
        for number in waiting:
            queued[number] = 1
        while waiting:
            number = waiting.popleft()
            queued[number] = 0
            first = len(self.changes)
            if self._narrow(number):
                return True
            self._left -= len(self.changes) - first
            if self._left < 0:
                raise TooManyChangesError
            for variable, largest, _, _ in self.changes[first:]:
                for other in self._of[largest][variable]:
                    if not queued[other] and other != number:
                        queued[other] = 1
                        waiting.append(other)
        return self._overloaded()

    def _narrow(self, number: int) -> bool:
        """Narrow the variables of one row; return whether the row cannot hold."""
        low, high = self.low, self.high
        terms, left = self._rows[number]
        for factor, variable in terms:
            left -= factor * (low[variable] if factor > 0 else high[variable])
        if left < 0:
            self.conflict = [(variable, factor < 0) for factor, variable in terms]
            return True
        for factor, variable in terms:
            if factor > 0:
                if factor * (high[variable] - low[variable]) > left:
                    self.changes.append((variable, True, high[variable], number))
                    high[variable] = low[variable] + left // factor
            elif -factor * (high[variable] - low[variable]) > left:
                self.changes.append((variable, False, low[variable], number))
                low[variable] = high[variable] - left // -factor
        return False

    def _overloaded(self) -> bool:
        """Return whether operations that surely use a resource need more time than lies between start and end."""
        low, high = self.low, self.high
        for users in self.plan.resources:
            here = [(low[o.start], high[o.end], low[o.length], o) for o in users if low[o.present] and low[o.length]]
            here.sort(key=lambda each: each[1])
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
        if above:
            self.changes.append((variable, False, self.low[variable], -1))
            self.low[variable] = max(self.low[variable], most + 1)
        else:
            self.changes.append((variable, True, self.high[variable], -1))
            self.high[variable] = min(self.high[variable], most)
        if self.low[variable] > self.high[variable]:
            self.conflict = [(variable, False), (variable, True)]
            return True
        return self.propagate(self._of[not above][variable])

    def undo(self, length: int) -> None:
        """Take back all changes but the first ones."""
        while len(self.changes) > length:
            variable, largest, before, _ = self.changes.pop()
            (self.high if largest else self.low)[variable] = before


def cases(step: ProofStep, facts: Facts) -> int:
    """Return one more than the limit that a tree of cases refutes (docs/proofs.md: cases)."""
    limit, iterations = step.integer("limit"), step.text("iterations")
    step.require(iterations in ("each", "together"), "is neither 'each' nor 'together'", "iterations")
    try:
        plan = plan_rows(step, facts, limit, iterations == "together")
    except TooManyRowsError:
        raise step.fail("has too many rows for this kind of argument", "limit") from None
    numbers = {name: number for number, name in enumerate(plan.names)}
    branches = []
    for each in step.steps("branches"):
        name = _name(each.value("variable"), f"{each.path}.variable")
        each.require(name in numbers, "is no variable", "variable")
        branches.append((numbers[name], each.integer("most", None)))
        each.done()
    try:
        _check_tree(step, Domains(plan, MOST_CHANGES), branches)
    except TooManyChangesError:
        raise step.fail("narrows values too often for this kind of argument", "tree") from None
    return limit + 1


def _check_tree(step: ProofStep, domains: Domains, branches: Sequence[tuple[int, int]]) -> None:
    """Fail unless each leaf of the tree is contradictory, and no case with a branch is."""
    # For each branch on the way: where the changes began, and its number while the second case is still to come.
    way: list[tuple[int, int | None]] = []
    refuted = domains.propagate(range(len(domains.plan.rows)))
    closed = False
    for value, where in step.items("tree"):
        step.require(not closed, "has more entries than cases", "tree")
        case = integer(value, where, -1)
        step.require(case < len(branches), f"{case} is no branch", "tree")
        if case >= 0:
            step.require(not refuted, "branches where there is already a contradiction", "tree")
            way.append((len(domains.changes), case))
            refuted = domains.branch(*branches[case], False)
            continue
        step.require(refuted, f"the case that {where} closes is not contradictory", "tree")
        while way:
            length, second = way.pop()
            domains.undo(length)
            if second is not None:
                way.append((length, None))
                refuted = domains.branch(*branches[second], True)
                break
        else:
            closed = True
    step.require(closed, "leaves cases open", "tree")


def _name(value: object, path: str) -> Name:
    """Return the name of a variable as a tuple, with those inside it."""
    if not isinstance(value, list | tuple):
        raise ProofStepError(path, "is not a list")
    for part in value:
        if not isinstance(part, str | int | list | tuple) or isinstance(part, bool):
            raise ProofStepError(path, "has what is no part of a name")
    return tuple(_name(part, path) if isinstance(part, list | tuple) else part for part in value)

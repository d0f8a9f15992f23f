"""Search for proofs that a checker can follow where only an engine's search has proven a bound."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from jigsaw_opt.checking.proofs.facts.instance_facts import Facts
from jigsaw_opt.checking.proofs.kinds.cases import MOST_CHANGES, Domains, TooManyChangesError
from jigsaw_opt.checking.proofs.rows.job_rows import PlanRows, TooManyRowsError
from jigsaw_opt.checking.proofs.rows.plan_rows import plan_rows
from jigsaw_opt.problem.bound_proof import Argument
from jigsaw_opt.problem.instance import Instance

_BRANCHED = frozenset({"spread", "on", "level", "order", "contributors"})
_GROWTH = 1.05
"""How much more each contradiction counts than the one before."""
_Branch = tuple[int, int]
"""A variable, and the most that it is in the first case."""
_Tree = tuple[_Branch, "_Tree | None", "_Tree | None"]
"""A branch and both cases; None stands for a contradiction."""


class _GivenUpError(Exception):
    """The rows do not refute the limit, or a limit of the search is reached."""


def prove_by_cases(
    instance: Instance, value: int, most_changes: int = MOST_CHANGES, stop: Callable[[], bool] = lambda: False
) -> Argument | None:
    """Return an argument that no correct plan is better than a value, or None where none is found.

    `most_changes`: how many bounds of variables may change. `stop`: asked at each case.
    """
    if value <= 0:
        return {"kind": "none"}
    # Rows without times are fewer, and a quarter of the work shows whether they are enough.
    for iterations, share in (("together", 4), ("each", 1)):
        with suppress(_GivenUpError, TooManyRowsError, TooManyChangesError, RecursionError):
            rows = plan_rows(Facts(instance), value - 1, iterations == "together")
            search = _CaseSearch(rows, most_changes // share, stop)
            return {"kind": "cases", "limit": value - 1, "iterations": iterations, **_document(search)}
    return None


def _document(search: _CaseSearch) -> dict[str, object]:
    """Return the tree that a search finds, with its branches numbered, those that it has most often first."""
    cases = search.refutation()
    uses = Counter(case for case in cases if case is not None)
    numbers = {case: number for number, (case, _) in enumerate(uses.most_common())}
    return {
        "branches": [{"variable": _plain(search.plan.names[v]), "most": most} for v, most in numbers],
        "tree": [-1 if case is None else numbers[case] for case in cases],
    }


@dataclass
class _CaseSearch:
    """Depth-first search for a tree of cases, by the variables that contradictions rest on most (Chaff, 2001).

    A case that does not rest on the branch above it takes its place (conflict-directed backjumping; Prosser, 1993).

    `first`: how many changes come before all branches. `reasons`: what least sums of rows rest on.
    """

    plan: PlanRows
    most_changes: int
    stop: Callable[[], bool]
    gain: float = 1.0
    domains: Domains = field(init=False)
    activity: list[float] = field(init=False)
    first: int = 0
    reasons: dict[int, frozenset[tuple[int, bool]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.domains = Domains(self.plan, self.most_changes)
        self.activity = [0.0] * len(self.plan.names)
        self.open = [v for v, name in enumerate(self.plan.names) if name[0] in _BRANCHED]

    def refutation(self) -> list[_Branch | None]:
        """Return a tree without a branch that is not needed, in preorder."""
        refuted = self.domains.propagate()
        self.first = len(self.domains.changes)
        tree, _ = self._cases(refuted)
        self.domains = Domains(self.plan)
        return self._trimmed(tree, self.domains.propagate())

    def _cases(self, refuted: bool) -> tuple[_Tree | None, set[int]]:
        """Return a tree, and the branches above it that it rests on, by their places among the changes."""
        domains = self.domains
        if refuted:
            return None, self._causes()
        here = len(domains.changes)
        if self.stop():
            raise _GivenUpError
        branch = self._next()
        first, causes = self._cases(domains.branch(*branch, False))
        domains.undo(here)
        if here not in causes:
            return first, causes
        second, others = self._cases(domains.branch(*branch, True))
        domains.undo(here)
        if here not in others:
            return second, others
        return (branch, first, second), (causes | others) - {here}

    def _next(self) -> _Branch:
        """Return the open variable of most activity, and the middle of its values."""
        low, high = self.domains.low, self.domains.high
        free = [v for v in self.open if low[v] < high[v]]
        if not free:
            raise _GivenUpError
        best = max(free, key=self.activity.__getitem__)
        return best, (low[best] + high[best]) // 2

    def _causes(self) -> set[int]:
        """Return the branches that the last contradiction rests on, and let all bounds that it rests on gain."""
        needed, causes = set(self.domains.conflict), set[int]()
        for variable, _ in needed:
            self.activity[variable] += self.gain
        for place in reversed(range(self.first, len(self.domains.changes))):
            variable, largest, _, row = self.domains.changes[place]
            if (variable, largest) in needed:
                needed.discard((variable, largest))
                self.activity[variable] += self.gain
                if row < 0:
                    causes.add(place)
                else:
                    # A row narrows a bound of its variable whatever the opposite one is.
                    opposite = (variable, not largest)
                    apart = opposite not in needed
                    needed.update(self._bounds(row))
                    if apart:
                        needed.discard(opposite)
        self.gain *= _GROWTH
        if self.gain > 1e100:  # Floats are finite.
            self.activity, self.gain = [each / self.gain for each in self.activity], 1.0
        return causes

    def _bounds(self, row: int) -> frozenset[tuple[int, bool]]:
        """Return the bounds in the least sum of a row: variables, each with whether it is the largest value."""
        if row not in self.reasons:
            self.reasons[row] = frozenset((variable, factor < 0) for factor, variable in self.plan.rows[row][0])
        return self.reasons[row]

    def _trimmed(self, tree: _Tree | None, refuted: bool) -> list[_Branch | None]:
        """Return the tree without the cases behind a contradiction, in preorder."""
        if refuted:
            return [None]
        if tree is None:
            raise _GivenUpError  # What a contradiction rests on is found right, so this does not happen.
        branch, *below = tree
        found: list[_Branch | None] = [branch]
        for contradictory, case in zip(self.domains.cases(*branch), below, strict=True):
            found += self._trimmed(case, contradictory)
        return found


def _plain(name: object) -> object:
    return [_plain(part) for part in name] if isinstance(name, tuple) else name

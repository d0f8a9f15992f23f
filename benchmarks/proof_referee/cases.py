"""The kind `cases`: a tree of cases whose leaves the rows of a plan contradict."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable

from .common import Document, fields, kind, need, spend
from .rows import Name, Rows


@kind("cases", limit=int, iterations=str, branches=list, tree=list)
def _cases(instance: Document, argument: Document) -> int:
    need(argument["limit"] >= 0, "limit is below 0")
    need(argument["iterations"] in ("each", "together"), "iterations are neither each nor together")
    rows = Rows(instance, argument["limit"], argument["iterations"] == "each")
    spend(instance, "rows", len(rows.rows), 60000)
    spend(instance, "variables in rows", rows.terms, 600_000)
    propagation = Propagation(rows)
    branches: list[tuple[int, int]] = []
    for branch in argument["branches"]:
        fields(branch, {"variable": list, "most": int}, "branch")
        name = variable_name(branch["variable"])
        need(name in propagation.number, f"there is no variable {name}")
        branches.append((propagation.number[name], branch["most"]))
    need(all(type(entry) is int and -1 <= entry < len(branches) for entry in argument["tree"]), "tree names no branch")
    least, largest = list(propagation.least), list(propagation.largest)
    todo = [(least, largest, propagation.narrow(least, largest, range(len(propagation.rows))))]
    for entry in argument["tree"]:
        need(bool(todo), "the tree goes on behind its last case")
        least, largest, possible = todo.pop()
        need(possible != (entry == -1), "a leaf is not contradictory" if entry == -1 else "a case is split in vain")
        if entry >= 0:
            variable, most = branches[entry]
            need(least[variable] <= most < largest[variable], "a branch narrows one case alone")
            for above in (True, False):  # the second case is taken last
                low, high = list(least), list(largest)
                if above:
                    low[variable] = max(low[variable], most + 1)
                else:
                    high[variable] = min(high[variable], most)
                changed = propagation.rows_of[variable]
                fits = low[variable] <= high[variable] and propagation.narrow(low, high, changed)
                todo.append((low, high, fits))
    need(not todo, "the tree ends before its last case")
    spend(instance, "changes of values", int(propagation.changes), MOST_CHANGES)
    return int(argument["limit"]) + 1


def variable_name(value: object) -> Name:
    """Return the name of a variable with tuples in place of lists."""
    need(type(value) in (list, int, str), "a variable has another name")
    return tuple(variable_name(entry) for entry in value) if isinstance(value, list) else value  # type: ignore[return-value]


MOST_CHANGES, MOST_OF_A_ROW = 2 * 10**6, 20


class Propagation:
    """Narrowing of the values of variables, which are numbered, by rows."""

    def __init__(self, rows: Rows) -> None:
        self.changes: float = 0
        self.number = {name: k for k, name in enumerate(rows.values)}
        self.least = [low for low, _ in rows.values.values()]
        self.largest = [high for _, high in rows.values.values()]
        self.rows = [([(self.number[name], f) for name, f in terms.items()], most) for terms, most in rows.rows]
        self.rows_of: defaultdict[int, list[int]] = defaultdict(list)
        for row, (terms, _) in enumerate(self.rows):
            for variable, _ in terms:
                self.rows_of[variable].append(row)
        self.resources = [
            [[self.number[n] for n in (one.present, one.length, one.start, one.done)] for one in operations]
            for operations in rows.resources.values()
        ]

    def narrow(self, least: list[int], largest: list[int], changed: Iterable[int]) -> bool:
        """Narrow all values as far as rows do, from changed rows on; return whether the case is possible."""
        if any(low > high for low, high in zip(least, largest)):
            return False
        waiting = deque(changed)
        queued, begun = set(waiting), self.changes
        while waiting:
            row = waiting.popleft()
            queued.remove(row)
            terms, most = self.rows[row]
            spare = most - sum(f * (least[v] if f > 0 else largest[v]) for v, f in terms)
            if spare < 0:
                return False
            for v, f in terms:
                if f > 0 and least[v] + spare // f < largest[v]:
                    largest[v] = least[v] + spare // f
                elif f < 0 and largest[v] - spare // -f > least[v]:
                    least[v] = largest[v] - spare // -f
                else:
                    continue
                self.changes += 1
                need(self.changes - begun <= MOST_OF_A_ROW * len(self.rows), "values of a case are narrowed too often")
                need(self.changes <= MOST_CHANGES, "values are narrowed too often")
                waiting.extend(other for other in self.rows_of[v] if other not in queued)
                queued.update(self.rows_of[v])
        return not any(self._overloaded(operations, least, largest) for operations in self.resources)

    def _overloaded(self, operations: list[list[int]], least: list[int], largest: list[int]) -> bool:
        sure = [
            (largest[done], least[start], least[length])
            for present, length, start, done in operations
            if least[present] >= 1 and least[length] >= 1
        ]
        self.changes += len(operations) ** 2 / 100
        sure.sort()
        for head in {start for _, start, _ in sure}:
            work = 0
            for done, start, length in sure:
                if start >= head:
                    work += length
                    if work > done - head:
                        return True
        return False

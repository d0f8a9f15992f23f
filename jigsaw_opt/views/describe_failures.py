"""What failures do to a plan, in words: broken guarantees first, then jobs that stop, as others gain by their
absence.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.solvers.failure_repair import FailureRepair
from jigsaw_opt.solvers.resolve.failures import FailureEffect
from jigsaw_opt.text import agreeing, counted, named, printable

__all__ = ["OBJECTIVES", "FailureDescription", "rank", "severity", "worst_first"]

OBJECTIVES = {
    "makespan": ("µs", "when the last job ends"),
    "weighted_completion": ("weight × µs", "the ends of all jobs, each times the weight of its job, added up"),
    "period": ("µs", "the time in which each job does one iteration, over and over"),
}
"""Unit and meaning of each objective; less is better."""


def severity(effect: FailureEffect) -> int:
    """Return the index of the worst that a failure does, among those that the page has colours for."""
    return 3 if effect.broken else 2 if effect.stopped else 1 if effect.rerouted else 0


def rank(effect: FailureEffect) -> tuple[int, ...]:
    """Return the rank of a failure, greater is worse: broken guarantees, then stopped jobs, then cost."""
    cost = 0 if effect.stopped or effect.objective is None else effect.objective
    return severity(effect), len(effect.broken), len(effect.stopped), cost, len(effect.rerouted)


def worst_first(
    found: Iterable[tuple[FailureEffect, FailureRepair | None]],
) -> list[tuple[FailureEffect, FailureRepair | None]]:
    """Return the effects with their repairs, in the order of `rank`; those alike stay in theirs."""
    return sorted(found, key=lambda effect: rank(effect[0]), reverse=True)


class FailureDescription:
    """Words for failures of one plan."""

    def __init__(self, instance: Instance, objective: int) -> None:
        self._objective, self._jobs = objective, len(instance.jobs)
        self._name = instance.objective.replace("_", " ")
        self._unit, self._meaning = OBJECTIVES[instance.objective]

    def plan(self) -> str:
        """Return the objective of the plan, and what that is."""
        return f"{self._name} of the plan: {self._amount(self._objective)} ({self._meaning}; less is better)"

    def worst(self, effects: Sequence[FailureEffect]) -> str:
        """Return the worst failure of a single part, in a sentence, and those that are as bad."""
        single = sorted((effect for effect in effects if len(effect.failed) == 1), key=rank, reverse=True)
        if not single or not severity(single[0]):
            return "No single failure touches a job."
        change = "" if single[0].stopped else f"{self._name} {self.outcome(single[0])}; "
        same = [self.failed(effect) for effect in single[1:] if rank(effect) == rank(single[0])]
        others = f" As bad: {named(same)}." if same else ""
        return f"The worst single failure is {self.failed(single[0])}: {change}{self.happens(single[0])}.{others}"

    def failed(self, effect: FailureEffect) -> str:
        """Return what failed."""
        return " + ".join(f"{part.kind} {printable(part.name)}" for part in effect.failed)

    def happens(self, effect: FailureEffect) -> str:
        """Return what becomes of the jobs."""
        return "; ".join(self._parts(effect)) or "no job is touched"

    def _parts(self, effect: FailureEffect) -> Iterator[str]:
        for names, one, several in (
            (effect.stopped, "stops", "stop"),
            (effect.broken, "misses its deadline or cycle-time limit", "miss their deadline or cycle-time limit"),
            (list(effect.rerouted), "is rerouted", "are rerouted"),
        ):
            if names:
                verb = agreeing(len(names), one, several)
                yield f"{len(names):,} of {counted(self._jobs, 'job')} {verb}: {named(names)}"

    def outcome(self, effect: FailureEffect) -> str:
        """Return the objective with the order kept; without a change where jobs are missing from it."""
        left = self._jobs - len(effect.stopped)
        if effect.objective is None:
            return "the order does not repeat" if left else "no job is left"
        if effect.stopped:
            return f"{self._amount(effect.objective)} for the {counted(left, 'job')} left"
        return self._changed(effect.objective)

    def repair(self, repair: FailureRepair) -> str:
        """Return the objective of a repaired plan; without a change where jobs are missing from it."""
        if repair.objective is None:
            return f"no plan: {repair.status}"
        if not repair.unplaced:
            return self._changed(repair.objective)
        missing, left = list(repair.unplaced), self._jobs - len(repair.unplaced)
        return f"no place for {named(missing)}; {self._amount(repair.objective)} for the {counted(left, 'job')} left"

    def _amount(self, objective: int) -> str:
        return f"{objective:,} {self._unit}"

    def _changed(self, objective: int) -> str:
        if objective == self._objective:
            return f"{self._amount(objective)} (unchanged)"
        change = f"{100 * (objective / max(1, self._objective) - 1):+.1f} %"
        return f"{self._amount(objective)} ({change.replace('-', '−')})"

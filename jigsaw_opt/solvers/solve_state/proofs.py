"""What is proven in a solve: the bound before a method begins, and which plans the method's own proofs hold for."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from jigsaw_opt.errors import OutOfTimeError
from jigsaw_opt.problem import clock
from jigsaw_opt.problem.compiled.operations import Operations
from jigsaw_opt.solvers.bounds import Bound, Deadlines, Proof, instant_bounds
from jigsaw_opt.solvers.infeasibility.guarantees import exceeded_guarantees
from jigsaw_opt.solvers.infeasibility.together import broken_together
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.result import Conflict, StoppedBy

NO_BOUND = Bound(0, Proof("no time is less than 0; the limit left no time for a bound", argument={"kind": "none"}))
"""Bound, and what proves it, where the time was over before there was any."""
_FIRST_SHARE = 0.2
"""Share of a time limit for the first bound."""


def first_bound(operations: Operations, options: Options) -> Bound:
    """Return the bound that every solve begins with: the best one so far once the time is over, or `NO_BOUND`."""
    return _first_bounds(operations, options)[-1]


def _first_bounds(operations: Operations, options: Options) -> list[Bound]:
    """Return `NO_BOUND` and the rising bounds of the instant relaxations, as many as there is time for."""
    found = [NO_BOUND]
    seconds = None if options.time_limit is None else _FIRST_SHARE * options.time_limit
    with suppress(OutOfTimeError), clock.limited(clock.Clock(seconds, options.cancel, options.grace)):
        for bound in instant_bounds(operations, options.without_bounds):
            found.append(bound)
        return found
    return found if found[-1].value else [NO_BOUND]


def searched_part(method: object, operations: Operations) -> str:
    """Return which plans of an instance a method looks at, as a clause; empty for all.

    A method says by ``moves`` and ``memory_in_time`` that what it proves holds for plans in which jobs move, and in
    which jobs that cannot all be present together follow one another. Without them it is taken to look at other plans
    alone, and its own proofs count for these.

    `method`: the solver; None for one that says nothing.
    """
    told = []
    # `search` has moves of another kind under that name.
    if operations.instance.moving_jobs and getattr(method, "moves", False) is not True:
        told.append("no job moves")
    if not getattr(method, "memory_in_time", False) and operations.has_scarce_holdings:
        told.append("all jobs are present all the time")
    return f"plans in which {' and '.join(told)}" if told else ""


class Proofs:
    """What is proven in a solve under way, of all plans and of those that the solver looks at. Not locked.

    `part`: which plans the solver looks at, as `searched_part` says. `whole`: what is proven already in the solve that
    this one is a part of; None for none. `known`: a bound that is known already; None to find one.
    `proven`: bound of all plans, with its proof. `argued`: the best bound of all plans whose proof has an argument.
    `bound`: no plan of those that the solver looks at is better. `deadlines`: what the last proof with any says of
    single jobs. `conflict`: why there is no plan, once that is proven. `part_is_empty`: whether it is proven that there
    is no plan in that part.
    """

    def __init__(
        self,
        operations: Operations,
        options: Options,
        part: str,
        whole: Proofs | None = None,
        known: Bound | None = None,
    ) -> None:
        self.part, self._operations = part, operations
        if whole is not None:
            bounds = [whole.argued, whole.proven]
        else:
            bounds = _first_bounds(operations, options) if known is None else [known]
        self.proven: Bound = bounds[-1]
        self.argued: Bound = NO_BOUND
        for bound in bounds:
            self._note_argument(bound)
        self.bound = self.proven.value
        self.deadlines: Deadlines | None = None if whole is None else whole.deadlines
        self.conflict: Conflict | None
        self.conflict = exceeded_guarantees(operations, *self.proven[:2]) if whole is None else whole.conflict
        self._by_bound = self.conflict is not None
        self.part_is_empty = False

    def raise_bound(self, bound: int, proof: Proof | None, deadlines: Deadlines | None, name: str, engine: str) -> bool:
        """Take a bound; return whether that of all plans has risen.

        `name, engine`: names of the solver, whose own search has proven what comes without a proof, and of its engine.
        """
        of_all = proof is not None or not self.part
        found = Bound(bound, proof or Proof(f"search by {name}", relaxation=name, engine=engine))
        self._note_argument(found)
        rises = of_all and bound > self.proven.value
        if rises:
            self.proven = found
            self.deadlines = deadlines or self.deadlines
        self.bound = max(self.bound, bound)
        exceeded = exceeded_guarantees(self._operations, bound, proof)
        self._by_bound = self._by_bound or (exceeded is not None and of_all and self.conflict is None)
        self._take(exceeded, of_all)
        return rises

    def refute(self, conflict: Callable[[], Conflict]) -> None:
        """Take the solver's proof that there is no plan among those that it looks at; ask why only if they are all."""
        if self.part:
            self.part_is_empty = True
        else:
            self._take(conflict(), True)

    def explained_conflict(self) -> Conflict | None:
        """Return why there is no plan; where a bound alone has proven that, with the jobs to blame as far as is known.

        That takes a limited amount of work.
        """
        if self.conflict is None or not self._by_bound or self._operations.horizon == "cyclic":
            return self.conflict
        return broken_together(self._operations, self.conflict) or self.conflict

    def ends(self, objective: int | None) -> StoppedBy | None:
        """Return why what is proven ends the solve; None where it does not.

        `objective`: that of the best plan; None without one.
        """
        if self.conflict is not None or (objective is not None and objective <= self.proven.value):
            return StoppedBy.PROOF
        if self.part_is_empty or (objective is not None and objective <= self.bound):
            return StoppedBy.COMPLETED  # What is left are plans that the solver does not look at.
        return None

    def _note_argument(self, bound: Bound) -> None:
        if bound.proof.argument is not None and bound.value > self.argued.value:
            self.argued = bound

    def _take(self, conflict: Conflict | None, of_all: bool) -> None:
        if of_all:
            self.conflict = self.conflict or conflict
        else:
            self.part_is_empty = self.part_is_empty or conflict is not None

"""The adaptive large neighbourhood search driver: choose a move, make it, keep what is better, reward the move.

A move is rewarded for what it proposed itself, not for what another thread found while it ran.

Every move has a number of steps or a limit of deterministic work, and chance comes from the seed; only the engine's
parts are ended by a clock where the solve has a time limit and no limit of work.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from threading import Event

from jigsaw_opt.problem.compiled.timetable import Timetable
from jigsaw_opt.solvers.params import DriverParams
from jigsaw_opt.solvers.placement.layout import demands
from jigsaw_opt.solvers.result import Accepted, MoveRecord, StoppedBy
from jigsaw_opt.solvers.search.budget import Budget
from jigsaw_opt.solvers.search.context import Candidate, Context
from jigsaw_opt.solvers.search.moves import Move, move_types
from jigsaw_opt.solvers.search.opening import open_search
from jigsaw_opt.solvers.solve_state import SolveState
from jigsaw_opt.system.plugins import blamed

_FADING, _LEAST = 0.8, 0.1
"""What a call in vain leaves of a move's floor, and the least that any number of them leaves.

Without fading, moves that never gain take a steady share of the work. If nothing were left, they would never come again
when the plan has changed.
"""
_IDLE_WORK = 10.0
"""Work that a move counts as which found nothing to do: more than any move takes, so that it seldom comes again."""


_REST_SECONDS = 0.02
"""Seconds between two looks at whether a search still rests."""


class AdaptiveSelection:
    """Draws moves by what they gain per unit of work.

    A gain is a share of the gap that was open before the move. Both gains and work are averaged with forgetting
    (probability matching; Fialho, Da Costa, Schoenauer and Sebag, 2010). A move that gains nothing keeps a floor, so
    that it is asked again, and the floor fades with each call in vain.

    `names`: names of the moves; each is tried once, in this order, before any is preferred.
    """

    def __init__(self, names: Sequence[str], rng: random.Random, params: DriverParams) -> None:
        self._names, self._rng, self._params = list(names), rng, params
        self._untried = list(names)
        self._gain = dict.fromkeys(names, 0.0)
        self._work = dict.fromkeys(names, 0.0)
        self._in_vain = dict.fromkeys(names, 0)
        self._made: set[str] = set()
        self._again: str | None = None

    def next(self) -> str:
        """Return the move to be made now.

        A move that gained is made once again before those that were not tried yet: on a large instance a round of all
        of them takes as long as many a limit.
        """
        if self._again is not None:
            again, self._again = self._again, None
            return again
        if self._untried:
            return self._untried.pop(0)
        total_gain = sum(self._gain.values()) or 1.0
        total_work = max(1e-9, sum(self._work.values()))
        weights = [
            (self._floor(name) + self._gain[name] / total_gain) / max(1e-3, self._work[name] / total_work)
            for name in self._names
        ]
        return self._rng.choices(self._names, weights)[0]

    def drop(self, name: str) -> None:
        """Stop drawing a move."""
        self._names.remove(name)
        if self._again == name:
            self._again = None

    def _floor(self, name: str) -> float:
        return self._params.floor * max(_LEAST, _FADING ** self._in_vain[name])

    def reward(self, name: str, gain: float, work: float) -> None:
        """Record what a move gained and how much work it took.

        A move that found nothing to do counts as a long one, so that it does not come again at once.

        `gain`: its gain, as a share of the gap that was open before. `work`: its work, in deterministic seconds or in
        seconds of the clock; 0 where it found nothing to do.
        """
        decay = self._params.decay
        self._gain[name] = decay * self._gain[name] + (1 - decay) * gain
        self._work[name] = decay * self._work[name] + (1 - decay) * (work or _IDLE_WORK)
        first = name not in self._made
        self._made.add(name)
        self._again = name if first and gain > 0 and self._untried else None
        self._in_vain[name] = 0 if gain > 0 else self._in_vain[name] + 1


class Driver:
    """One search under way.

    `solve_state`: receives the plans and says when to stop. `stream`: number of this search among several on one
    incumbent; each has chance of its own. `moves`: classes of moves beside the registered ones, tried before them.
    `only`: the one class of moves to make, without an opening, where it applies; None for all. `begun`: set once the
    first plans are there: a search beside this one would only find the same before. `held`: GPUs of the jobs that stay
    there, as `Layout` has them.
    """

    def __init__(
        self,
        solve_state: SolveState,
        stream: int = 0,
        moves: Sequence[type[Move]] = (),
        only: type[Move] | None = None,
        held: Mapping[int, Sequence[int]] | None = None,
    ) -> None:
        self.solve_state, self.stream, self.kinds, self.only = solve_state, stream, (*moves,), only
        self.held, self.rng = held, random.Random(solve_state.options.seed + (stream << 64))
        self.begun = Event()
        self._improvements: list[int] = []

    def run(self, share: float = 1.0, rests: Callable[[], bool] = lambda: False) -> StoppedBy:
        """Search until there is a reason to stop.

        `share`: share that the search may use of the limit of work, and of the time that is left. `rests`: whether to
        leave the core to others for now; asked before each move.
        """
        budget, idle = Budget(self.solve_state, share), 0
        if not self.open(budget):
            return budget.reason() or StoppedBy.COMPLETED
        while (reason := budget.reason()) is None:
            if idle >= self.context.params.driver.patience and not self.solve_state.options.limited:
                return StoppedBy.COMPLETED
            if rests():
                time.sleep(_REST_SECONDS)
                continue
            idle = 0 if self.step() else idle + 1
            if not self._moves:
                return budget.reason() or StoppedBy.COMPLETED
        return reason

    def open(self, budget: Budget) -> bool:
        """Make the first plans within a budget; return whether there are moves to go on with."""
        asked = demands(self.solve_state.operations)
        if asked is None:
            return False
        self.context = context = Context(
            self.solve_state, asked, self.rng, budget, self._propose, self.stream, self._offer, self.held
        )
        # With the moves come the compiled functions that they need, and the opening waits for these.
        kinds = self._kinds_left(context)
        if self.only in kinds and self.only.applies(context):
            kinds = [self.only]
            self.begun.set()
        else:
            self._credited("opening", partial(open_search, context, self.begun))
        if context.operations.has_scarce_holdings and self.solve_state.best is not None and context.incumbent is None:
            # Without a plan in which all jobs fit at once, the others have nothing to begin with.
            kinds = [kind for kind in kinds if getattr(kind, "in_time", False)]
        # Only now: whether a move applies may depend on all candidate server sets, and a plan should not wait.
        self._moves = {kind.name: kind(context) for kind in kinds if kind.applies(context)}
        self._selection = AdaptiveSelection(tuple(self._moves), self.rng, context.params.driver)
        return bool(self._moves)

    def step(self) -> bool:
        """Choose a move, make it and reward it; return whether it found a better plan."""
        name = self._selection.next()
        gain, spent = self._make(name, self._moves[name], self.context)
        self._selection.reward(name, gain, spent)
        if getattr(self._moves[name], "exhausted", False):
            self._selection.drop(name)
            del self._moves[name]
        return gain > 0

    def _make(self, name: str, move: Move, context: Context) -> tuple[float, float]:
        """Make a move; return its gain as a share of the gap that was open, and what it took, 0 for nothing.

        That is work, or seconds where only a clock limits the solve.
        """
        budget, work = context.budget, context.budget.work
        with blamed("move", name, type(move)):
            record = self._credited(name, partial(move.run, context.incumbent, budget))
        spent = budget.work - work
        return self._gain(record.improvement), record.seconds if spent and self.solve_state.options.clocked else spent

    def _gain(self, improvement: int) -> float:
        """Return an improvement as a share of the gap that was open before; a first plan closes all of it."""
        objective = self.solve_state.objective
        if not improvement or objective is None:
            return float(improvement > 0)
        return improvement / (objective + improvement - min(objective, self.solve_state.bound))

    def _credited(self, name: str, call: Callable[[], Candidate | None]) -> MoveRecord:
        """Call what proposes plans, and credit it with those that were accepted, even if the time ends meanwhile."""
        began = time.monotonic()
        self._improvements.clear()
        try:
            candidate = call()
            if candidate is not None:
                self._propose(candidate)
        finally:
            accepted, seconds = self._improvements, time.monotonic() - began
            record = MoveRecord(name, 1, min(1, len(accepted)), seconds, sum(accepted))
            self.solve_state.credit(record)
        return record

    def _propose(self, candidate: Candidate) -> None:
        """Accept a plan as the incumbent if it is better: the only place where the search compares the two."""
        objective = self.solve_state.objective
        if objective is None or candidate.value < objective:
            self._offer(candidate.timetable)

    def _offer(self, timetable: Timetable) -> Accepted | None:
        accepted = self.solve_state.offer(timetable)
        if accepted is not None:
            self._improvements.append(accepted.improvement)
        return accepted

    def _kinds_left(self, context: Context) -> list[type[Move]]:
        """Return all classes of moves for jobs of these kinds that are not left out."""
        kinds, network = (*self.kinds, *move_types()), context.operations.needs_network
        scarce = context.operations.has_scarce_holdings
        own = (
            kind
            for kind in kinds
            if getattr(kind, "task_graphs", False) == network or (scarce and getattr(kind, "in_time", False))
        )
        return [kind for kind in own if kind.name not in context.params.without]

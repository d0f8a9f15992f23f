"""The rounds of the search: what is tried next, from where, and what is kept.

Every part has a number of steps or a limit of deterministic work, and chance comes from the seed; only the engine's
parts are ended by a clock where the solve has a time limit and no limit of work.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from threading import Event

from jigsaw_opt.formulations import cpsat_loads
from jigsaw_opt.problem.pieces import Pieces
from jigsaw_opt.problem.timetable import Timetable
from jigsaw_opt.solvers.control import Control
from jigsaw_opt.solvers.engines.compiled import prepare
from jigsaw_opt.solvers.greedy.evaluation import Evaluator, Outcome
from jigsaw_opt.solvers.greedy.heuristic import PLAIN_TRIALS, trials
from jigsaw_opt.solvers.greedy.layout import Demand, Layout, demands
from jigsaw_opt.solvers.greedy.placed import PlacedJob
from jigsaw_opt.solvers.result import StoppedBy
from jigsaw_opt.solvers.search.annealing import Annealing, Draft
from jigsaw_opt.solvers.search.balance import Balance, drawn_order
from jigsaw_opt.solvers.search.choice import Choice
from jigsaw_opt.solvers.search.engine import Engine
from jigsaw_opt.solvers.search.levelling import Levelling
from jigsaw_opt.solvers.search.loads import Ground
from jigsaw_opt.solvers.search.orders import Orders
from jigsaw_opt.solvers.search.parts import Parts
from jigsaw_opt.solvers.search.periods import Periods
from jigsaw_opt.solvers.search.seating import Seating

__all__ = ["Rounds"]

_HURRY = 5.0
"""Seconds; under a shorter limit all trials of the heuristic come first."""
_PATIENCE = 12
"""Rounds without a better plan after which a search without any limit ends."""
_STEP_PIECES = 1_200_000
_LEAST_STEPS, _MOST_STEPS = 5, 5_000
_LEAST_BALANCE, _MOST_BALANCED_SLOTS = 50, 100_000
_BALANCE_STEPS_OF_JOB, _LEAST_BALANCE_OF_JOB = 40, 10
_STEPS_A_LOOK = 50
_BRIEF, _BRIEFLY = 0.65, 0.5
"""How often a new placement is annealed briefly, and for how long."""
_LONGER, _LONGEST = 1.5, {"finite": 4.0, "cyclic": 30.0}
"""By what factor annealing takes longer otherwise after each time that it found no better plan, and at most."""
_LEVELLING_STEPS = 2000
_WORK_OF_PIECE = 4e-7
_WORK_OF_BALANCING = 6e-5
"""Deterministic seconds that a piece in an evaluation, and a step of balancing, count as."""
_SECONDS_OF_ENGINE = 3.0
"""What a deterministic second of the engine takes, in ours."""
_LISTED, _LISTED_IN_VAIN, _LISTED_STEPS = 0.1, 25, 60
"""Deterministic seconds for placements scheduled before anything else, how many bring nothing before that ends, and
steps of annealing that follow."""
_FROM_BEST = 0.5
"""How often jobs are put elsewhere in the best plan, and not at a placement made anew."""
_RELOCATED = 0.4
"""Deterministic seconds for placements tried in a row."""
_ORDERED_PIECES = {"finite": 1000, "cyclic": 400}
"""Up to so many blocks and transfers the order of pieces does better than the best list schedule annealed once more, or
on a circle jobs laid one by one and all of them timed anew."""
_HEATS = (0.01, 0.003, 0.02)
_TARGETS = (1.0, 1.03, 1.08)
_BALANCE_HEATS = (0.1, 1.0)
_LINK_WEIGHTS = (1.0, 10.0, 50.0)
_READING = 2.0
"""Seconds to wait for compiled functions at most, and never more than half of those left."""
_BUILDS = 5
"""Orders in which it is tried to place all jobs, for memory may leave the last ones no room."""


class Rounds:
    """One search under way.

    Parameters
    ----------
    control
        Receives the plans and says when to stop.
    pieces
        The instance, cut.
    stream
        Number of this search among several on one incumbent; each has chance of its own.

    Attributes
    ----------
    begun
        Set once the first plans are there: a search beside this one would only find the same before.
    """

    def __init__(self, control: Control, pieces: Pieces, stream: int = 0) -> None:
        self.control, self.pieces = control, pieces
        self.draw = random.Random(control.options.seed + (stream << 64))
        self.best: Draft | None = None
        self._first = stream == 0
        self.begun = Event()
        self._settled: Sequence[PlacedJob] | None = None
        self._work, self._share = 0.0, 1.0
        self._longer = 1.0

    def run(self, share: float = 1.0) -> StoppedBy:
        """Search until there is a reason to stop.

        Parameters
        ----------
        share
            Of the limits of time and work, how much the search may use.
        """
        self._share = share
        asked = demands(self.pieces)
        if asked is None:
            return StoppedBy.COMPLETED
        self._prepare(asked)
        # All that the heuristic finds, so that no search ends behind it; the first search does so for others.
        found = trials(self.evaluator, asked, self.control.options.seed)
        self._take(islice(found, PLAIN_TRIALS))
        self.begun.set()
        if self._first and self._hurried and self._reason() is None:
            self._take(found)
        self._list()
        if self._reason() is None:
            # Until functions are read the search hardly moves, and keeps the thread beside it from running.
            left = self.control.remaining
            prepare(_READING if left is None else min(_READING, left / 2))
        if self._first and self._reason() is None:
            self._take(found)
        # Only now: which move comes first takes a look at all berths, and a plan should not wait for that.
        self.choice = Choice(tuple(self._moves), self.draw)
        idle = 0
        while (reason := self._reason()) is None:
            if idle >= _PATIENCE and not self._limited:
                return StoppedBy.COMPLETED
            before = self.control.objective
            name = self.choice.next()
            spent = self._timed(self._moves[name])
            better = self.control.objective != before
            self.choice.reward(name, better, spent)
            idle = 0 if better else idle + 1
        return reason

    @property
    def work(self) -> float:
        """Deterministic seconds so far."""
        return self._work + self.orders.work + self.periods.work + _SECONDS_OF_ENGINE * self.engine.work

    def _timed(self, move: Callable[[], None]) -> float:
        """Make a move; returns what it took, 0 for nothing: work, or seconds where only a clock limits the solve.

        On a circle it is always work: by the time that they take in vain, groups would come too rarely.
        """
        work, seconds = self.work, self.control.seconds
        move()
        spent = self.work - work
        clocked = self.control.options.clocked and self.pieces.horizon == "finite"
        return self.control.seconds - seconds if spent and clocked else spent

    @property
    def _limited(self) -> bool:
        options = self.control.options
        return not (options.time_limit is None and options.work_limit is None)

    def _prepare(self, asked: list[Demand]) -> None:
        self.ground = Ground(self.pieces, Layout(self.pieces), asked)
        self.evaluator = Evaluator(self.pieces, self.ground.layout)
        self.engine = Engine(self.control)

        def stop() -> bool:
            return self._reason() is not None

        self.orders = Orders(self.control, self.ground, self.draw, stop)
        self.periods = Periods(self.control, self.ground, self.engine, self.draw, stop)
        self.seating = Seating(self.ground, self.engine, self.draw)
        self.parts = Parts(self.control, self.ground, self.engine, self.draw, stop)

    @cached_property
    def _moves(self) -> dict[str, Callable[[], None]]:
        moves: dict[str, Callable[[], None]] = {}
        cyclic, most = self.pieces.horizon == "cyclic", _ORDERED_PIECES[self.pieces.horizon]
        ordered = self.orders.fits and self.pieces.blocks + self.pieces.transfers <= most
        if cyclic and not ordered:
            laying = {"wherever": self.periods.wherever, "grouped": self.periods.in_groups}
            first = "grouped" if self.periods.short_of_links() else "wherever"
            moves |= {first: laying[first]} | laying | {"circle": self._around}
        moves["fresh"] = self._fresh
        if not ordered:
            moves["again"] = self._again
        if not (cyclic and ordered):
            moves["parts"] = self._improve_parts
        if self.orders.fits and not cyclic:
            moves["other"] = self._improve_other
        if self.orders.fits:
            moves["relocate"] = self._relocate
        if self.orders.fits and cpsat_loads.fits(self.pieces) and self._tight:
            moves["seat"] = self._seat
        return moves

    def _reason(self) -> StoppedBy | None:
        options = self.control.options
        used = [(self.work, options.work_limit), (self.control.seconds, self.control.limit)]
        if any(limit is not None and spent >= self._share * limit for spent, limit in used):
            return StoppedBy.TIME
        return self.control.reason()

    @property
    def _hurried(self) -> bool:
        """Whether the time would be over soon after compiled functions are read; with these, trials take none."""
        limit = self.control.options.time_limit
        return limit is not None and limit < _HURRY

    def _take(self, found: Iterator[Outcome | None]) -> None:
        """Keep what trials of the heuristic find, at least one of them, until there is a reason to stop."""
        for outcome in found:
            self._work += self.evaluator.pieces_a_look * _WORK_OF_PIECE
            if outcome is not None:
                self._keep(Draft(outcome.jobs, outcome.urgency, outcome.hold_us, outcome))
            if self._reason() is not None:
                return

    def _list(self) -> None:
        """Jobs placed in drawn orders and scheduled, and the best of that annealed, as far as it takes a moment."""
        look = len(self.pieces.jobs) * _WORK_OF_BALANCING + self.evaluator.pieces_a_look * _WORK_OF_PIECE
        most, idle = int(_LISTED / look), 0
        for _ in range(most):
            if idle >= _LISTED_IN_VAIN or self._reason() is not None:
                break
            balance, before = self._balance(self.draw.choice(_TARGETS)), self.control.objective
            draft = self._draft(balance) if self._built(balance) else None
            self._work += self.evaluator.pieces_a_look * _WORK_OF_PIECE
            if draft is not None:
                self._keep(draft)
            idle = 0 if self.control.objective != before else idle + 1
        if most and self.best is not None and self._reason() is None:
            annealing = Annealing(self._balance(1.0), self.evaluator, self.draw)
            annealing.run(self.best, min(most, _LISTED_STEPS), _HEATS[1], self._watch)

    def _fresh(self) -> None:
        """A placement made anew, balanced and annealed."""
        balance = self._balanced()
        draft = self._draft(balance)
        if balance is None:
            self._again()
        elif draft is not None:
            self._anneal(balance, draft, brief=self.draw.random() < _BRIEF)

    def _balanced(self) -> Balance | None:
        """A placement made anew and balanced; None where no order leaves room for all jobs."""
        balance = self._balance(self.draw.choice(_TARGETS))
        if not any(self._built(balance) for _ in range(_BUILDS)):
            return None
        steps = self._balance_steps()
        heat = self.draw.choice(_BALANCE_HEATS)
        for done in range(0, steps, _STEPS_A_LOOK):
            balance.anneal(_STEPS_A_LOOK, heat * (1 - done / steps) ** 2)
            self._work += _STEPS_A_LOOK * _WORK_OF_BALANCING
            if self._reason() is not None:
                break
        self._settled = balance.loads.settled()
        return balance

    def _draft(self, balance: Balance | None) -> Draft | None:
        """The placement at hand, scheduled; None where there is none, or memory admits no levels."""
        return None if balance is None else Annealing(balance, self.evaluator, self.draw).draft()

    def _built(self, balance: Balance) -> bool:
        """Place all jobs in some order; says whether all found room."""
        self._work += len(self.pieces.jobs) * _WORK_OF_BALANCING
        return balance.build(drawn_order(self.ground.demands, self.draw))

    def _balance_steps(self) -> int:
        """Steps of balancing: by the number of jobs, fewer where jobs are wide and a step takes long."""
        jobs = len(self.pieces.jobs)
        slots = sum(job.slots for job in self.pieces.jobs) / jobs
        most = max(round(_MOST_BALANCED_SLOTS / slots), _LEAST_BALANCE_OF_JOB * jobs)
        return min(max(_LEAST_BALANCE, _BALANCE_STEPS_OF_JOB * jobs), most)

    def _again(self) -> None:
        """The best draft, annealed once more."""
        if self.best is not None:
            self._anneal(self._balance(1.0), self.best)

    def _improve_parts(self) -> None:
        """The best plan, improved part by part."""
        if self.control.best is not None:
            self.parts.improve(self.control.best)

    def _improve_other(self) -> None:
        """The best of the other placements found, improved part by part: its schedule may have more to give."""
        other = self.orders.other()
        if other is not None:
            self.parts.improve(other)

    def _relocate(self) -> None:
        """Jobs put elsewhere with the order of all pieces, in the best plan or at a placement made anew."""
        enough = self.orders.work + _RELOCATED
        while self.orders.work < enough:
            best = self.control.best
            start = self._scheduled() if best is None or self.draw.random() >= _FROM_BEST else None
            if start is None and best is not None:
                start = self._balance(self.draw.choice(_TARGETS)), best
            if start is None or self._reason() is not None:
                return
            self.orders.relocate(*start)

    @property
    def _tight(self) -> bool:
        """Whether a makespan or period is at stake, and memory keeps workers of the best draft from some levels."""
        if self.pieces.objective == "weighted_completion" or self.best is None:
            return False
        caps = self.ground.caps([spot.gpus for spot in self.best.spots])
        return any(min(own) < job.levels for own, job in zip(caps, self.pieces.jobs, strict=True))

    def _seat(self) -> None:
        """All jobs placed at once, with a target between bound and objective, and then some of them elsewhere."""
        least, objective = max(self.control.bound, self.seating.failed), self.control.objective
        most = 2 * least if objective is None else objective
        spots = self.seating.within(round(self.draw.uniform(least, most)))
        if spots is None or self._reason() is not None:
            return
        balance = self._balance(self.draw.choice(_TARGETS))
        balance.adopt(spots)
        draft = self._draft(balance)
        if draft is not None:
            self._keep(draft)
            self.orders.relocate(balance, self.evaluator.timetable(draft.outcome))

    def _scheduled(self) -> tuple[Balance, Timetable] | None:
        """A placement made anew, and its list schedule."""
        balance = self._balanced()
        draft = self._draft(balance)
        if balance is None or draft is None:
            return None
        return balance, self.evaluator.timetable(draft.outcome)

    def _around(self) -> None:
        """Jobs laid one by one at a shorter period, at the placement last balanced or at that of the best draft."""
        spots = self._settled if self.draw.random() < 0.5 else self._settled_best()
        if spots is not None:
            self.periods.around(spots)

    def _settled_best(self) -> Sequence[PlacedJob] | None:
        if self.best is None:
            return None
        balance = self._balance(1.0)
        balance.adopt(self.best.spots)
        return balance.loads.settled()

    def _anneal(self, balance: Balance, start: Draft, brief: bool = False) -> None:
        """Anneal a draft: briefly, or the longer the more often that was in vain."""
        self._keep(start)
        steps = max(_LEAST_STEPS, min(_MOST_STEPS, _STEP_PIECES // self.evaluator.pieces_a_look))
        annealing, before = Annealing(balance, self.evaluator, self.draw), self.control.objective
        longer = _BRIEFLY if brief else self._longer
        best = annealing.run(start, round(longer * steps), self.draw.choice(_HEATS), self._watch)
        if self._reason() is None:
            best = self._level(best)
        if self.orders.fits and self._reason() is None:
            self.orders.mend(self.evaluator.timetable(best.outcome))
        if not brief:
            fruitless = self.control.objective == before
            self._longer = (
                min(_LONGEST[self.pieces.horizon], _LONGER * self._longer)
                if fruitless
                else max(1.0, self._longer / _LONGER)
            )

    def _level(self, draft: Draft) -> Draft:
        """The loads of a draft's GPUs made even, where that makes it better."""
        levelling = Levelling(self.ground, draft.outcome.jobs, self.evaluator.levels(draft.outcome))
        if levelling.run(_LEVELLING_STEPS):
            spots = levelling.placed()
            outcome = self.evaluator.evaluate(spots, draft.urgency, draft.hold_us)
            level = Draft(spots, draft.urgency, draft.hold_us, outcome)
            self._keep(level)
            if outcome.value < draft.outcome.value:
                return level
        return draft

    def _watch(self, best: Draft) -> bool:
        """Keep the best draft of the annealing as it goes; says whether to stop."""
        self._work += self.evaluator.pieces_a_look * _WORK_OF_PIECE
        self._keep(best)
        return self._reason() is not None

    def _keep(self, draft: Draft) -> None:
        if self.best is None or draft.outcome.value < self.best.outcome.value:
            self.best = draft
            if self.control.objective is None or draft.outcome.value < self.control.objective:
                self.control.offer(self.evaluator.timetable(draft.outcome))

    def _balance(self, target: float) -> Balance:
        """What loads should keep to: the bound, or for weighted ends the mean load of a GPU; times a factor."""
        least = self.control.bound
        if self.pieces.objective == "weighted_completion":
            load = sum(max(demand.slot_us.values()) * demand.job.slots for demand in self.ground.demands)
            least = load // len(self.ground.layout.gpus)
        return Balance(self.ground, self.draw, max(1, round(target * least)), self.draw.choice(_LINK_WEIGHTS))

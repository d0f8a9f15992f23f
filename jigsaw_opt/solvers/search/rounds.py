"""The rounds of the search: what is tried next, from where, and what is kept.

Every part has a number of steps or a limit of deterministic work, and chance comes from the seed; only the engine's
parts are ended by a clock where the solve has a time limit and no limit of work.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import cached_property

from jigsaw_opt.problem.pieces import Pieces
from jigsaw_opt.problem.timetable import Timetable
from jigsaw_opt.solvers.control import Control
from jigsaw_opt.solvers.greedy.evaluation import Evaluator
from jigsaw_opt.solvers.greedy.heuristic import placements
from jigsaw_opt.solvers.greedy.layout import Demand, Layout, demands
from jigsaw_opt.solvers.greedy.placed import PlacedJob
from jigsaw_opt.solvers.result import StoppedBy
from jigsaw_opt.solvers.search.annealing import Annealing, Draft
from jigsaw_opt.solvers.search.balance import Balance
from jigsaw_opt.solvers.search.berths import Berths, Catalogue, Fits, Given
from jigsaw_opt.solvers.search.choice import Choice
from jigsaw_opt.solvers.search.circle import Circle
from jigsaw_opt.solvers.search.engine import Engine
from jigsaw_opt.solvers.search.grouped import Company, Grouped
from jigsaw_opt.solvers.search.levelling import Levelling
from jigsaw_opt.solvers.search.loads import Ground, fullest_us
from jigsaw_opt.solvers.search.nesting import Nesting
from jigsaw_opt.solvers.search.nestings import Nestings
from jigsaw_opt.solvers.search.orders import Orders
from jigsaw_opt.solvers.search.parts import Parts

__all__ = ["Rounds"]

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
_FROM_BEST = 0.5
"""How often jobs are put elsewhere in the best plan, and not at a placement made anew."""
_RELOCATED = 0.4
"""Deterministic seconds for placements tried in a row."""
_HEATS = (0.01, 0.003, 0.02)
_TARGETS = (1.0, 1.03, 1.08)
_BALANCE_HEATS = (0.1, 1.0)
_LINK_WEIGHTS = (1.0, 10.0, 50.0)
_ATTEMPTS = 4
"""Periods tried, by bisection between what the placement allows and the best one."""
_SHORT = 0.7
"""Share of the time of all links from which on the transfers are what is short."""
_SHORTER = {"grouped": 0.65, "wherever": 0.2}
_LEAST_SHORTER, _MOST_SHORTER = 0.01, 0.5
"""Share of the room between bound and objective by which a period tried is shorter: the first, least and largest."""
_MOST_FAILURES, _MOST_AFTER_SUCCESS = 2, {"grouped": 5, "wherever": 2}
"""After how many periods in vain something else is tried: before any has been reached this way, and after."""
_TRIES_A_JOB = 4
_WARM = 0.75
"""How often jobs are first offered the spots at which all had room at a longer period."""
_EXCHANGES_A_GROUP, _LEAST_EXCHANGES = 4, 40
_WORK_OF_NESTING = 4e-7
_WEIGHTS = ("exchange", "length", "links")
_WORK_OF_LAYING = 1e-5
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
    """

    def __init__(self, control: Control, pieces: Pieces, stream: int = 0) -> None:
        self.control, self.pieces = control, pieces
        self.draw = random.Random(control.options.seed + (stream << 64))
        self.best: Draft | None = None
        self._settled: Sequence[PlacedJob] | None = None
        self._lain: Sequence[PlacedJob] | None = None
        self._untimed: dict[Company, int] = {}
        self._fruitful: set[str] = set()
        self._work, self._share, self._shorter = 0.0, 1.0, dict(_SHORTER)
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
        self._begin()
        # Only now: which move comes first takes a look at all berths, and a plan should not wait for that.
        self.choice = Choice(tuple(self._moves), self.draw)
        idle = 0
        while (reason := self._reason()) is None:
            if idle >= _PATIENCE and not self._limited:
                return StoppedBy.COMPLETED
            before, spent = self.control.objective, self.work
            name = self.choice.next()
            self._moves[name]()
            better = self.control.objective != before
            self.choice.reward(name, better, self.work - spent)
            idle = 0 if better else idle + 1
        return reason

    @property
    def work(self) -> float:
        """Deterministic seconds so far."""
        return self._work + self.orders.work + _SECONDS_OF_ENGINE * self.engine.work

    @property
    def _limited(self) -> bool:
        options = self.control.options
        return not (options.time_limit is None and options.work_limit is None)

    def _prepare(self, asked: list[Demand]) -> None:
        self.ground = Ground(self.pieces, Layout(self.pieces), asked)
        self.catalogue = Catalogue(self.ground)
        self.evaluator = Evaluator(self.pieces, self.ground.layout)
        self.engine = Engine(self.control)

        def stop() -> bool:
            return self._reason() is not None

        self._nestings = Nestings(self._nested, stop)
        self.orders = Orders(self.control, self.ground, self.draw, stop)
        self.parts = Parts(self.control, self.ground, self.engine, self.draw, stop)

    @cached_property
    def _moves(self) -> dict[str, Callable[[], None]]:
        moves: dict[str, Callable[[], None]] = {}
        if self.pieces.horizon == "cyclic":
            laying = {"wherever": self._wherever, "grouped": self._in_groups}
            first = "grouped" if self._short_of_links() else "wherever"
            moves |= {first: laying[first]} | laying | {"circle": self._around}
        moves |= {"fresh": self._fresh, "again": self._again, "parts": self._improve_parts}
        if self.orders.fits:
            moves |= {"other": self._improve_other, "relocate": self._relocate}
        return moves

    def _short_of_links(self) -> bool:
        """Whether the transfers of all jobs, each on as few links as may be, take most of the time of all links."""
        berths = (self.catalogue.of(index) for index in range(len(self.pieces.jobs)))
        least = sum(min(berth.exchange * len(berth.alone.links) for berth in own) for own in berths if own)
        return least > _SHORT * self.ground.layout.links * self.control.bound

    def _reason(self) -> StoppedBy | None:
        options = self.control.options
        used = [(self.work, options.work_limit), (self.control.seconds, options.time_limit)]
        if any(limit is not None and spent >= self._share * limit for spent, limit in used):
            return StoppedBy.TIME
        return self.control.reason()

    def _begin(self) -> None:
        """The heuristic's placements, scheduled."""
        count = len(self.pieces.jobs)
        for spots in placements(self.pieces, self.ground.demands):
            outcome = self.evaluator.evaluate(spots, [1.0] * count, [0] * count)
            self._work += self.evaluator.pieces_a_look * _WORK_OF_PIECE
            self._keep(Draft(spots, [1.0] * count, [0] * count, outcome))
            if self._reason() is not None:
                return

    def _fresh(self) -> None:
        """A placement made anew, balanced and annealed."""
        balance = self._balanced()
        draft = None if balance is None else Annealing(balance, self.evaluator, self.draw).draft()
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

    def _built(self, balance: Balance) -> bool:
        """Place all jobs in some order; says whether all found room."""
        self._work += len(self.pieces.jobs) * _WORK_OF_BALANCING
        return balance.build(self._order())

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

    def _scheduled(self) -> tuple[Balance, Timetable] | None:
        """A placement made anew, and its list schedule."""
        balance = self._balanced()
        draft = None if balance is None else Annealing(balance, self.evaluator, self.draw).draft()
        if balance is None or draft is None:
            return None
        return balance, self.evaluator.timetable(draft.outcome)

    def _around(self) -> None:
        """Jobs laid one by one at a shorter period, at the placement last balanced or at that of the best draft."""
        spots = self._settled if self.draw.random() < 0.5 else self._settled_best()
        objective = self.control.objective
        if spots is None or objective is None:
            return
        low = max(self.control.bound, fullest_us(spots))
        for _ in range(_ATTEMPTS):
            period = (low + objective) // 2
            if period >= objective or self._reason() is not None:
                return
            if self._laid(Given(spots), self._weights(spots, self.draw.choice(_WEIGHTS)), period):
                objective = period
            else:
                low = period + 1

    def _in_groups(self) -> None:
        """Jobs laid group by group at a shorter period, with exchanges between groups."""
        self._shorten("grouped", self._laid_in_groups)

    def _nested(self, target: int, longest: int) -> Nesting:
        """Jobs assigned to groups of servers and blocks in these."""
        threads = self.control.options.workers
        return Nesting(self.catalogue, target, longest, self.draw, threads, self._count_nesting)

    def _count_nesting(self, steps: int) -> None:
        self._work += steps * _WORK_OF_NESTING

    def _laid_in_groups(self, period: int) -> bool:
        """Lay all jobs where the nesting has them, which may exchange some; says whether all found room."""
        nesting = self._nestings.fitting(period, max(1, self.control.bound))
        if nesting is None:
            return False
        spots = [nesting.berth(index).alone for index in range(len(self.pieces.jobs))]
        weights = self._weights(spots, "links")
        grouped = Grouped(
            self.catalogue, nesting, period, self.draw, self.engine, weights, self._laid_one, self._untimed
        )
        patience = max(_LEAST_EXCHANGES, _EXCHANGES_A_GROUP * len(nesting.groups))
        return self._laid_as(grouped.lay(patience), grouped.circle)

    def _wherever(self) -> None:
        """Jobs laid one by one at a shorter period, each where it fits best."""
        self._shorten("wherever", self._laid_wherever)

    def _laid_wherever(self, period: int) -> bool:
        before = self._lain if self.draw.random() < _WARM else None
        berths = Fits(self.catalogue, period, self.draw, before)
        return self._laid(berths, self._weights(berths.quickest(), "links"), period)

    def _shorten(self, name: str, lay: Callable[[int], bool]) -> None:
        """Try shorter periods: where all jobs found room shorter still, else not as short."""
        failures = 0
        while failures < (_MOST_AFTER_SUCCESS[name] if name in self._fruitful else _MOST_FAILURES):
            if self._reason() is not None:
                return
            objective, bound = self.control.objective, self.control.bound
            if objective is None:
                return
            shorter = self._shorter[name]
            if lay(objective - max(1, round(shorter * (objective - bound)))):
                self._shorter[name] = min(_MOST_SHORTER, shorter * 2)
                self._fruitful.add(name)
            else:
                failures += 1
                self._shorter[name] = shorter / 3 if shorter > _LEAST_SHORTER else _SHORTER[name]

    def _laid(self, berths: Berths, weights: Sequence[float], period: int) -> bool:
        """Lay all jobs onto a circle, the heaviest first; says whether all found room."""
        circle = Circle(self.ground, berths, period, self.draw)
        return self._laid_as(
            circle.lay(range(len(weights)), weights, _TRIES_A_JOB * len(weights), self._laid_one), circle
        )

    def _laid_as(self, plan: Timetable | None, circle: Circle) -> bool:
        """Offer a plan, if it is one, and remember where the jobs are."""
        if plan is not None:
            self.control.offer(plan)
            self._lain = [laid.spot for laid in circle.board.laid if laid is not None]
        return plan is not None

    def _laid_one(self) -> bool:
        """Count a job that was laid; says whether to stop."""
        size = (self.pieces.blocks + self.pieces.transfers) // len(self.pieces.jobs)
        self._work += size * _WORK_OF_LAYING
        return self._reason() is not None

    def _settled_best(self) -> Sequence[PlacedJob] | None:
        if self.best is None:
            return None
        balance = self._balance(1.0)
        balance.adopt(self.best.spots)
        return balance.loads.settled()

    def _weights(self, spots: Sequence[PlacedJob], kind: str) -> list[float]:
        """Length of exchanges, or of jobs, or that times the links; blurred by chance."""
        weights = []
        for spot in spots:
            length, links = spot.iteration_us * spot.job.iterations, 1 + len(spot.links)
            weight = {"exchange": sum(map(sum, spot.exchange)), "length": length, "links": length * links}[kind]
            weights.append(weight * self.draw.uniform(0.9, 1.1))
        return weights

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

    def _order(self) -> list[int]:
        """Jobs of most work first, or the longest, the widest, or those of most memory; blurred by chance."""
        jobs, draw = self.ground.demands, self.draw
        load = [max(d.slot_us.values()) * draw.uniform(0.8, 1.25) for d in jobs]
        weight = draw.choice(("work", "length", "width", "memory"))
        if weight == "width":
            return sorted(range(len(jobs)), key=lambda index: (-jobs[index].job.slots, -load[index]))
        factor = {
            "work": [demand.job.slots for demand in jobs],
            "length": [1] * len(jobs),
            "memory": [demand.job.state_bytes for demand in jobs],
        }[weight]
        return sorted(range(len(jobs)), key=lambda index: -load[index] * factor[index])

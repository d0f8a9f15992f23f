"""The rounds of the search: where each begins, how long its parts take, and what is kept.

Every part has a number of steps or a limit of deterministic work, so a time limit cuts the sequence of plans
short and never changes it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from jigsaw_opt.problem.pieces import Pieces
from jigsaw_opt.problem.timetable import Timetable, job_end
from jigsaw_opt.solvers.control import Control
from jigsaw_opt.solvers.greedy.evaluation import Evaluator
from jigsaw_opt.solvers.greedy.heuristic import placements
from jigsaw_opt.solvers.greedy.layout import Layout, demands
from jigsaw_opt.solvers.result import StoppedBy
from jigsaw_opt.solvers.search.annealing import Annealing, Draft
from jigsaw_opt.solvers.search.balance import Balance
from jigsaw_opt.solvers.search.loads import Ground
from jigsaw_opt.solvers.search.retiming import Retiming

__all__ = ["Rounds"]

_PATIENCE = 6
"""Rounds without a better plan after which a search without any limit ends."""
_STEP_PIECES = 600_000
_LEAST_STEPS, _MOST_STEPS = 100, 2500
_BALANCE_STEPS = 2000
_WORK_OF_PIECE = 2e-6
"""Deterministic seconds that a piece in an evaluation counts as."""
_HEATS = (0.01, 0.004, 0.02)
_TARGETS = (1.0, 1.04, 1.1)
_BALANCE_HEAT = 0.1
_CLOSE = 1.04
"""Drafts within this ratio of the best plan are worth the engine's time."""
_RETIMED_PIECES = 700
_RETIMING_WORK = 2.0


class Rounds:
    """One search under way.

    Parameters
    ----------
    control
        Receives the plans and says when to stop.
    pieces
        The instance, cut.
    """

    def __init__(self, control: Control, pieces: Pieces) -> None:
        self.control, self.pieces = control, pieces
        self.draw = random.Random(control.options.seed)
        self.steps = 0
        self.best: Draft | None = None

    def run(self) -> StoppedBy:
        """Search until there is a reason to stop."""
        asked = demands(self.pieces)
        if asked is None:
            return StoppedBy.COMPLETED
        self.ground = Ground(self.pieces, Layout(self.pieces), asked)
        self.evaluator = Evaluator(self.pieces, self.ground.layout)
        self.retiming = Retiming(self.control, self.ground)
        self._begin()
        idle = 0
        for number, start in enumerate(self._starts()):
            before = self.control.objective
            self._round(number, start)
            idle = 0 if self.control.objective != before else idle + 1
            reason = self._reason()
            if reason is not None:
                return reason
            if idle >= _PATIENCE and self.control.options.time_limit is None:
                break
        return StoppedBy.COMPLETED

    def _reason(self) -> StoppedBy | None:
        limit = self.control.options.work_limit
        if limit is not None and self.work >= limit:
            return StoppedBy.TIME
        return self.control.reason()

    @property
    def work(self) -> float:
        """Deterministic seconds so far."""
        size = self.pieces.blocks + self.pieces.transfers
        return self.steps * size * _WORK_OF_PIECE + self.retiming.work

    def _begin(self) -> None:
        """The heuristic's placements, scheduled."""
        count = len(self.pieces.jobs)
        for spots in placements(self.pieces, self.ground.demands):
            outcome = self.evaluator.evaluate(spots, [1.0] * count, [0] * count)
            self._keep(Draft(spots, [1.0] * count, [0] * count, outcome))
            if self._reason() is not None:
                return

    def _starts(self) -> Iterator[Draft | None]:
        """Drafts to begin a round with, in turn a new placement and the best draft."""
        number = 0
        while self._reason() is None:
            fresh = self._balanced(_TARGETS[number % len(_TARGETS)])
            if fresh is not None:
                self._keep(fresh)
                yield fresh
            if self._reason() is None:
                yield self.best
            number += 1

    def _balanced(self, target: float) -> Draft | None:
        """A placement made anew and balanced."""
        self.balance = Balance(self.ground, self.draw, max(1, round(target * self._target())))
        if not self.balance.build(self._order()):
            return None
        steps = _BALANCE_STEPS
        for step in range(steps):
            self.balance.step(_BALANCE_HEAT * (1 - step / steps) ** 2)
            if step % 50 == 0 and self._reason() is not None:
                break
        return self._annealing().draft()

    def _annealing(self) -> Annealing:
        return Annealing(self.balance, self.evaluator, self.draw)

    def _target(self) -> int:
        """What loads should keep to: the bound; for weighted ends, the mean load of a GPU."""
        if self.pieces.objective != "weighted_completion":
            return self.control.bound
        demand = (max(d.slot_us.values()) * d.job.slots for d in self.ground.demands)
        return max(1, sum(demand) // len(self.ground.layout.gpus))

    def _order(self) -> list[int]:
        """Wide jobs first, long ones first among these, blurred by chance."""
        load = [max(d.slot_us.values()) * self.draw.uniform(0.8, 1.25) for d in self.ground.demands]
        jobs = self.pieces.jobs
        return sorted(range(len(jobs)), key=lambda index: (-jobs[index].slots, -load[index]))

    def _round(self, number: int, start: Draft | None) -> None:
        if start is None:
            return
        if not hasattr(self, "balance"):
            self.balance = Balance(self.ground, self.draw, self._target())
        size = self.pieces.blocks + self.pieces.transfers
        steps = max(_LEAST_STEPS, min(_MOST_STEPS, _STEP_PIECES // size))
        best = self._annealing().run(start, steps, _HEATS[number % len(_HEATS)], self._watch)
        self._keep(best)
        objective = self.control.objective
        if objective is not None and best.outcome.value <= _CLOSE * objective and self._reason() is None:
            self._retime(self.evaluator.timetable(best.outcome))

    def _watch(self, best: Draft) -> bool:
        """Keep the best draft of the annealing as it goes; says whether to stop."""
        self.steps += 1
        self._keep(best)
        return self._reason() is not None

    def _keep(self, draft: Draft) -> None:
        if self.best is None or draft.outcome.value < self.best.outcome.value:
            self.best = draft
        if self.control.objective is None or draft.outcome.value < self.control.objective:
            self.control.offer(self.evaluator.timetable(draft.outcome))

    def _retime(self, plan: Timetable) -> None:
        """Let the engine improve a plan, part by part, as long as it does."""
        if plan.period_us is not None:
            self._retime_cycle(plan)
            return
        failures = 0
        while failures < 2 and self._reason() is None:
            better = self.retiming.improve(plan, self._part(plan), _RETIMING_WORK)
            if better is None:
                failures += 1
                if self.pieces.blocks + self.pieces.transfers <= _RETIMED_PIECES:
                    return
                continue
            plan = better
            self.control.offer(plan)

    def _retime_cycle(self, plan: Timetable) -> None:
        """Close in on the least period of the placement, as long as each question is answered."""
        low, jobs = self.control.bound, list(range(len(self.pieces.jobs)))
        if self.pieces.blocks + self.pieces.transfers > _RETIMED_PIECES:
            return
        while plan.period_us is not None and low < plan.period_us and self._reason() is None:
            period = (low + plan.period_us) // 2
            better = self.retiming.at_period(plan, jobs, period, _RETIMING_WORK)
            if better is None:
                low = period + max(1, (plan.period_us - low) // 4)
                if low >= plan.period_us:
                    return
            else:
                plan = better
                self.control.offer(plan)

    def _part(self, plan: Timetable) -> list[int]:
        """Jobs to be timed anew: all of a small instance; else those that end late and what shares their GPUs."""
        sizes = [job.iterations * (len(job.blocks) + len(job.transfers)) for job in self.pieces.jobs]
        if sum(sizes) <= _RETIMED_PIECES:
            return list(range(len(sizes)))
        ends = [job_end(job) for job in plan.jobs]
        late = max(range(len(ends)), key=ends.__getitem__)
        if self.pieces.objective == "weighted_completion":
            late = self.draw.randrange(len(ends))
        chosen, room = [late], _RETIMED_PIECES - sizes[late]
        near = sorted(range(len(ends)), key=lambda index: self._distance(plan, late, index))
        for index in near:
            if index != late and sizes[index] <= room:
                chosen.append(index)
                room -= sizes[index]
        return sorted(chosen)

    def _distance(self, plan: Timetable, first: int, second: int) -> tuple[int, float]:
        """How little two jobs have to do with each other: GPUs in common, then chance."""
        common = set(plan.jobs[first].gpus).intersection(plan.jobs[second].gpus)
        return -len(common), self.draw.random()

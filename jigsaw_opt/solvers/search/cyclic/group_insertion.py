"""Jobs inserted group by group modulo a period; groups in which some find no room exchange jobs."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from jigsaw_opt.formulations import cpsat_retiming
from jigsaw_opt.problem.calendar import union
from jigsaw_opt.problem.compiled.timetable import Timetable
from jigsaw_opt.solvers.placement.assignment import Assignment, ProblemData
from jigsaw_opt.solvers.placement.state import PartialPlacement
from jigsaw_opt.solvers.search.cyclic.candidate_table import CandidateTable
from jigsaw_opt.solvers.search.cyclic.hierarchy import HierarchicalAssignment
from jigsaw_opt.solvers.search.engine import Engine
from jigsaw_opt.solvers.search.state.insertion import ScheduledJob
from jigsaw_opt.solvers.search.state.job_insertion import JobInsertion
from jigsaw_opt.solvers.search.state.partial_schedule import PartialSchedule


def jointly_timed(
    schedule: PartialSchedule, groups: Sequence[Sequence[Assignment]], engine: Engine, work: float
) -> list[list[ScheduledJob] | None]:
    """Return the jobs of each group, timed modulo the period; None for a group for which no timing was found.

    Groups do not see one another, only the partial schedule, which does not change.

    Deep levels are at the fastest GPUs, and where GPUs are alike at the first servers of one job and the last of the
    next; all blocks of a job on a server begin together.

    `work`: limit in the engine's deterministic seconds for each group.
    """
    data = schedule.data
    models: dict[int, cpsat_retiming.CpSatRetiming] = {}
    levels: dict[int, list[list[list[int]]]] = {}
    for g, assignments in enumerate(groups):
        rows = [_levels(data, assignment, turned=k % 2 == 1) for k, assignment in enumerate(assignments)]
        levels[g] = [row for row in rows if row is not None]
        if len(levels[g]) == len(assignments):
            models[g] = _model(schedule, assignments, levels[g])
    found: list[list[ScheduledJob] | None] = [None] * len(groups)
    values = engine.solve_all([model.proto for model in models.values()], work)
    for (g, model), value in zip(models.items(), values, strict=True):
        if value is not None:
            found[g] = [_inserted(data, *each) for each in zip(groups[g], levels[g], model.plan(value), strict=True)]
    return found


def _model(
    schedule: PartialSchedule, assignments: Sequence[Assignment], levels: Sequence[Sequence[Sequence[int]]]
) -> cpsat_retiming.CpSatRetiming:
    data, period = schedule.data, schedule.period
    assert period is not None, "the horizon is cyclic"
    tasks = [_task(data, *own) for own in zip(assignments, levels, strict=True)]
    links = {link for task in tasks for link in task.links}
    servers = {
        s: union([schedule.gpus[gpu] for gpu in data.layout.on_server[s]], period)
        for s in {machine for task in tasks for machine in task.machines}
    }
    return cpsat_retiming.build(
        tasks,
        period,
        {s: list(zip(calendar.starts, calendar.ends, strict=True)) for s, calendar in servers.items()},
        {k: list(zip(schedule.links[k].starts, schedule.links[k].ends, strict=True)) for k in links},
    )


def _levels(data: ProblemData, assignment: Assignment, turned: bool) -> list[list[int]] | None:
    """Return levels by iteration and slot; None where memory does not admit them so."""
    if assignment.plan.fixed:
        return [list(row) for row in assignment.plan.rows]
    sign, server_of = -1 if turned else 1, data.layout.server_of
    order = sorted(
        range(len(assignment.gpus)),
        key=lambda slot: (assignment.tables[slot][-1], sign * server_of[assignment.gpus[slot]], slot),
    )
    rows = []
    for row in assignment.plan.rows:
        levels = [0] * len(row)
        for slot, level in zip(order, row, strict=True):
            levels[slot] = level
        if assignment.caps is not None and any(level > cap for level, cap in zip(levels, assignment.caps, strict=True)):
            return None
        rows.append(levels)
    return rows


def _task(data: ProblemData, assignment: Assignment, rows: Sequence[Sequence[int]]) -> cpsat_retiming.RetimingTask:
    slots_of = _slots_of(data, assignment)
    # The GPUs of a server are alike, so the deepest level there says when all of them are done.
    levels = [[max(row[slot] for slot in slots) for slots in slots_of.values()] for row in rows]
    tables = [assignment.tables[slots[0]] for slots in slots_of.values()]
    return cpsat_retiming.RetimingTask([*slots_of], tables, levels, assignment.links, assignment.exchange)


def _inserted(
    data: ProblemData, assignment: Assignment, rows: list[list[int]], timing: cpsat_retiming.RetimedTiming
) -> ScheduledJob:
    place = {server: k for k, server in enumerate(_slots_of(data, assignment))}
    places = [place[data.layout.server_of[gpu]] for gpu in assignment.gpus]
    blocks = [[starts[k] for k in places] for starts in timing.blocks]
    last = zip(blocks[-1], assignment.tables, rows[-1], strict=True)
    ends = [start + table[level - 1] for start, table, level in last]
    end = max(*ends, timing.transfers[-1][-1] + assignment.exchange[-1][-1])
    return ScheduledJob(assignment.job, assignment, [*rows], blocks, timing.transfers, min(blocks[0]), end)


def _slots_of(data: ProblemData, assignment: Assignment) -> dict[int, list[int]]:
    """Return the slots of a job by server."""
    found: dict[int, list[int]] = {}
    for slot, gpu in enumerate(assignment.gpus):
        found.setdefault(data.layout.server_of[gpu], []).append(slot)
    return found


_TRIES = 30
"""Fruitless tries of ruin and recreate in a group, which has few jobs."""
_JOINT_WORK = 0.015
"""Deterministic seconds of CP-SAT for the wide jobs of a group: so small a model is solved soon, or seldom."""
_MOST_FAILED = 0.75
"""With more groups than this in which some jobs find no room, the period is given up: exchanges mend a few groups."""
_SHARINGS = 40
"""How often a pair of groups reassigns its jobs to come within the period: annealing them takes moments, timing them
much longer, so that only good assignments are timed."""

NoGood = tuple[tuple[int, int], ...]
"""Jobs of one group, by what they ask and how long they take there, in order."""


class DecomposedInsertion:
    """One attempt at a period.

    `hierarchy`: where jobs go; it changes as groups exchange jobs. `engine`: times the wide jobs of a group together
    where inserting them one by one leaves some without room. `weights`: of all jobs; the heaviest of a group are
    inserted first. `stop`: asked after every job and every try; once it holds, the attempt is given up. `no_goods`:
    wide jobs that were not timed together, with the longest period of which that is known; it grows. Groups are not
    given such jobs by an exchange. `count`: told, job by job, for how many blocks and transfers room was looked for.
    """

    def __init__(
        self,
        candidate_table: CandidateTable,
        hierarchy: HierarchicalAssignment,
        period: int,
        rng: random.Random,
        engine: Engine,
        weights: Sequence[float],
        stop: Callable[[], bool],
        no_goods: dict[NoGood, int],
        count: Callable[[int], object] = lambda operations: None,
    ) -> None:
        self.candidate_table, self.hierarchy, self.period, self.rng = candidate_table, hierarchy, period, rng
        self.engine, self.weights, self.stop, self.no_goods = engine, weights, stop, no_goods
        self.insertion = JobInsertion(PartialSchedule(candidate_table.data, period), self, rng, count)
        self._across: frozenset[int] = frozenset()

    def assignments(self, placement: PartialPlacement, index: int) -> Iterator[Assignment]:
        """Yield the job on the least loaded GPUs of its candidate set."""
        assignment = self.candidate_table.assignment(placement, index, self.hierarchy.candidate_set(index), self.period)
        if assignment is not None:
            yield assignment

    def target(self, index: int) -> Assignment:
        """Return the job at its candidate set as if it were alone."""
        return self.hierarchy.candidate_set(index).alone

    def insert_all(self, patience: int) -> Timetable | None:
        """Return the plan with all jobs inserted, or None where some found no room.

        `patience`: number of exchanges in a row, without fewer groups failing than ever before, after which it is given
        up.
        """
        inside: dict[int | None, list[int]] = {}
        for index in range(len(self.weights)):
            inside.setdefault(self.hierarchy.group(index), []).append(index)
        self._across = frozenset(inside.pop(None, ()))
        if self.insertion.insert(sorted(self._across), self.weights, _TRIES, self.stop):
            return None
        unscheduled = self._insert_groups({group: jobs for group, jobs in inside.items() if group is not None})
        fewest, left = len(unscheduled), patience
        most = _MOST_FAILED * len(inside)
        while 0 < len(unscheduled) <= most and left and not self.stop():
            unscheduled = self._exchange(unscheduled)
            fewest, left = (len(unscheduled), patience) if len(unscheduled) < fewest else (fewest, left - 1)
        return None if unscheduled else self.insertion.schedule.timetable()

    def _insert_groups(self, groups: Mapping[int, Sequence[int]]) -> set[int]:
        """Insert the jobs of each group, the wide ones one by one or else jointly; return the groups that failed."""
        insert, schedule = self.insertion.insert, self.insertion.schedule
        wide = {g: [index for index in jobs if self.target(index).links] for g, jobs in groups.items()}
        placed: dict[int, list[Assignment]] = {}
        failed: set[int] = set()
        for g, jobs in wide.items():
            if insert(jobs, self.weights, 0, self.stop):
                self._taken(jobs)
                assignments = self._placed(jobs)
                if assignments is None:
                    failed.add(g)
                else:
                    placed[g] = assignments
        timed = jointly_timed(schedule, [*placed.values()], self.engine, _JOINT_WORK)
        for g, scheduled in zip(placed, timed, strict=True):
            # Groups that were timed at once may meet on a link between racks.
            if scheduled is None or not all(map(schedule.admits, scheduled)):
                failed.add(g)
                if scheduled is None and not self.stop():
                    self._remember(wide[g])
            else:
                for index, own in zip(wide[g], scheduled, strict=True):
                    schedule.add(index, own)
        for g, inside in groups.items():
            narrow = [index for index in inside if index not in wide[g]]
            if g not in failed and insert(narrow, self.weights, _TRIES, self.stop, self._across):
                self._taken(inside)
                failed.add(g)
        return failed

    def _no_good(self, jobs: Iterable[int]) -> NoGood:
        return tuple(
            sorted((self.hierarchy.job_class(index), self.hierarchy.candidate_set(index).length) for index in jobs)
        )

    def _remember(self, wide: Sequence[int]) -> None:
        """Record that the wide jobs of a group were not timed together."""
        no_good = self._no_good(wide)
        self.no_goods[no_good] = max(self.period, self.no_goods.get(no_good, 0))

    def _known(self, group: int) -> bool:
        """Return whether the wide jobs of a group are known as not to be timed together."""
        wide = [index for index in self.hierarchy.within((group,)) if self.target(index).links]
        return self.no_goods.get(self._no_good(wide), 0) >= self.period

    def _placed(self, jobs: Sequence[int]) -> list[Assignment] | None:
        """Return the jobs at their candidate sets, all at once; None where memory does not admit them."""
        placement, found = self.insertion.schedule.placement, []
        for index in jobs:
            assignment = next(self.assignments(placement, index), None)
            if assignment is None:
                break
            found.append(assignment)
            # Who is at which level is decided later.
            placement.place(index, assignment, [max(map(max, assignment.plan.rows))] * len(assignment.gpus))
        for index, _ in zip(jobs, found, strict=False):
            placement.unplace(index)
        return found if len(found) == len(jobs) else None

    def _exchange(self, unscheduled: set[int]) -> set[int]:
        """Reassign the jobs of some failed groups, each with another group; return the groups that fail then.

        What two groups had stays where more of them would fail.
        """
        hierarchy, schedule = self.hierarchy, self.insertion.schedule
        weights = {group: float(group in unscheduled) for group in range(len(hierarchy.groups))}
        pairs = self._shared(hierarchy.pairs(weights))
        before = {pair: self._taken(jobs) for pair, (jobs, _) in pairs.items()}
        inside = {group: hierarchy.within((group,)) for pair in pairs for group in pair}
        failed = self._insert_groups(inside)
        for pair, (jobs, numbers) in pairs.items():
            if len(failed & pair) > len(unscheduled & pair):
                self._taken(jobs)
                hierarchy.restore(jobs, numbers)
                failed = failed - pair | unscheduled & pair
                if all(schedule.admits(scheduled) for _, scheduled in before[pair]):
                    for index, scheduled in before[pair]:
                        schedule.add(index, scheduled)
                else:
                    # Another pair may have taken what both have between racks.
                    failed |= pair
        return unscheduled - set().union(*pairs) | failed

    def _shared(self, pairs: Sequence[frozenset[int]]) -> dict[frozenset[int], tuple[list[int], list[int]]]:
        """Reassign the jobs of pairs of groups; return those whose loads permit it, with where their jobs were."""
        hierarchy = self.hierarchy
        jobs = {pair: hierarchy.within(pair) for pair in pairs}
        before = {pair: hierarchy.numbers(jobs[pair]) for pair in pairs}
        best, least = dict(before), dict.fromkeys(pairs, float("inf"))
        for _ in range(_SHARINGS):
            seeking = [pair for pair in pairs if least[pair] > (hierarchy.target + self.period) / 2]
            hierarchy.reassign({pair: jobs[pair] for pair in seeking})
            for pair in seeking:
                fullest = hierarchy.fullest(pair) * hierarchy.target
                if fullest < least[pair] and not any(map(self._known, pair)):
                    best[pair], least[pair] = hierarchy.numbers(jobs[pair]), fullest
        fitting = [pair for pair in pairs if least[pair] <= self.period]
        for pair in pairs:
            hierarchy.restore(jobs[pair], (best if pair in fitting else before)[pair])
        return {pair: (jobs[pair], before[pair]) for pair in fitting}

    def _taken(self, jobs: Sequence[int]) -> list[tuple[int, ScheduledJob]]:
        """Take jobs out of the partial schedule, as far as they are there, and return them."""
        schedule = self.insertion.schedule
        return [(index, schedule.remove(index)) for index in jobs if schedule.scheduled[index] is not None]

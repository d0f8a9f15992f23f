"""Schedules as the order of all their pieces, which keeps most of its worth when some of the jobs go elsewhere."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from math import inf
from operator import le

from jigsaw_opt.problem.pieces import PieceGraph
from jigsaw_opt.problem.timetable import JobDecision, Timetable, assemble, objective_of
from jigsaw_opt.solvers.engines.compiled import Numbers, Reals, arrays, compiled, prepare, reals
from jigsaw_opt.solvers.greedy.placed import PlacedJob
from jigsaw_opt.solvers.kernels.assignment_annealing import EXPONENTIALS, LARGEST_SEED
from jigsaw_opt.solvers.kernels.cyclic_annealing import CyclicState, anneal_cyclic_sequence
from jigsaw_opt.solvers.kernels.sequence import ACROSS, KEPT, WITHIN, Graph, State
from jigsaw_opt.solvers.kernels.sequence_annealing import anneal_sequence
from jigsaw_opt.solvers.magnitude import beyond, orders_fit
from jigsaw_opt.solvers.search.problem_data import ProblemData

__all__ = ["SequenceSearch", "SequencedSchedule"]

_VISITS, _FEW_VISITS = 2_000_000, 50_000
"""Pieces swept between two looks at the clock, by compiled functions and by Python."""
_STRIDE = 32
"""Pieces from one mark in a trace to the next, but no fewer than GPUs and links, of which each mark knows all."""


@dataclass(frozen=True, slots=True, eq=False)
class SequencedSchedule:
    """A schedule.

    Parameters
    ----------
    spots
        Where every job is.
    trace
        All pieces in the order of their starts; on a circle cut anywhere, so that pieces that stand before what they
        wait for wait for it in the period before.
    level, start
        By piece; on a circle in one period of all jobs, and a piece before what it waits for is a period too early.
    value
        Its objective.
    late
        Jobs that its objective hangs on, as far as that is known: the one that ends last, or on a circle those on its
        critical circuit.
    """

    spots: Sequence[PlacedJob]
    trace: Numbers
    level: Numbers
    start: Numbers
    value: int
    late: Sequence[int]


class SequenceSearch:
    """Anneals the order of pieces and who takes which level, while GPUs stay.

    Its kernels are `sequence_annealing` on the finite horizon and `cyclic_annealing` on the cyclic one.

    Parameters
    ----------
    ground
        The instance.
    draw
        Source of chance.

    Attributes
    ----------
    size
        Number of pieces: by job and iteration the blocks by slot, the transfers and the barrier.
    """

    def __init__(self, ground: ProblemData, draw: random.Random) -> None:
        self.ground, self._draw = ground, draw
        self.cyclic = ground.pieces.horizon == "cyclic"
        jobs = ground.pieces.jobs
        self._base, self._groups, self._table_at = [0], [0], [0]
        for job in jobs:
            self._base.append(self._base[-1] + job.iterations * (job.slots + len(job.transfers) + 1))
            self._groups.append(self._groups[-1] + job.slots + 1)
            self._table_at.append(self._table_at[-1] + job.slots * job.levels)
        self.size = self._base[-1]
        self._placed: list[PlacedJob | None] = [None] * len(jobs)
        self._room = [0] * len(jobs)
        self._exchanges: dict[tuple[int, int, int], list[int]] = {}
        self._graph = self._frame()
        self._state = self._blank()
        self._exponentials: Reals = EXPONENTIALS
        self._asked = self._fast = False
        self._large = not orders_fit(ground.pieces)

    def given(self, plan: Timetable) -> SequencedSchedule:
        """The schedule of a plan, for `anneal` to begin with."""
        ground, number = self.ground, self.ground.number
        places = [[number[name] for name in job.gpus] for job in plan.jobs]
        caps = ground.caps(places)
        spots: list[PlacedJob] = []
        level: list[int] = []
        start: list[int] = []
        for index, (gpus, timed) in enumerate(zip(places, plan.jobs, strict=True)):
            rows = [[block.level for block in iteration.blocks] for iteration in timed.iterations]
            spot = ground.planned(index, gpus, rows, caps[index], ground.demands[index])
            spots.append(spot)
            level += _levels(spot, rows)
            for iteration in timed.iterations:
                blocks, transfers = iteration.blocks, iteration.transfers
                start += [*(block.start_us for block in blocks), *(transfer.start_us for transfer in transfers)]
                start.append(max([block.end_us for block in blocks] + [transfer.end_us for transfer in transfers]))
        # Pieces of a job are numbered in the order of their precedences, so those that start together keep it.
        trace = sorted(range(self.size), key=start.__getitem__)
        if plan.period_us is not None:
            # What starts together with a piece of its job a period later waits for it there.
            period = plan.period_us
            trace.sort(key=lambda piece: (start[piece] % period, -(start[piece] // period)))
            start = [moment % period for moment in start]
        value = objective_of(ground.pieces, plan.jobs, plan.period_us)
        return SequencedSchedule(spots, trace, level, start, value, [] if self.cyclic else [self._last(start)])

    def anneal(
        self,
        before: SequencedSchedule,
        spots: Sequence[PlacedJob],
        steps: int,
        heat: float,
        stop: Callable[[int], bool],
        worth: float = inf,
    ) -> SequencedSchedule:
        """The best schedule that some steps lead to from the order of another one.

        Parameters
        ----------
        before
            Another schedule.
        spots
            Where the jobs are now.
        steps
            How many orders are tried; at least 1.
        heat
            Share of the objective that the first steps may lose; it falls to 0.
        stop
            Called now and then with the number of pieces swept since; true ends the run.
        worth
            Objective above which a schedule is of no use; the run ends as soon as it is not likely to get there.
        """
        function = self._function()
        self._state.trace[:], self._state.level[:] = before.trace, before.level
        for index, (spot, old) in enumerate(zip(spots, before.spots, strict=True)):
            if spot is not self._placed[index]:
                self._place(index, spot)
            if spot is not old:
                own = slice(self._base[index], self._base[index + 1])
                kept = spot.demand is old.demand
                self._state.level[own] = _levels(spot, _rows(spot, list(before.level[own]) if kept else []))
        if isinstance(self._state, CyclicState):
            self._state.start[:] = before.start
        self._state.numbers[2] = self._draw.randint(1, LARGEST_SEED)
        done = value = 0
        while done < steps:
            visits = _VISITS if self._fast else _FEW_VISITS
            count = min(max(1, visits // self.size), steps - done)
            value = int(function(self._graph, self._state, done, count, steps, heat, worth, self._exponentials))
            done += count
            swept, taken = map(int, self._state.numbers[4:])
            if stop(swept) or taken < count:
                break
            function = self._function()
        state = self._state
        best = [state.best_trace, state.best_level, state.best_start]
        trace, level, start = arrays(best) if self._fast else map(list, best)
        if isinstance(state, CyclicState):
            late = [index for index, critical in enumerate(state.critical) if critical]
        else:
            late = [self._last(start)]
        return SequencedSchedule(spots, trace, level, start, value, late)

    def timetable(self, schedule: SequencedSchedule) -> Timetable:
        """The plan of a schedule."""
        gpus, level, start = self.ground.layout.gpus, list(map(int, schedule.level)), list(map(int, schedule.start))
        if self.cyclic:
            start = self._unrolled(schedule, level, start)
        decisions = []
        for spot, base in zip(schedule.spots, self._base, strict=False):
            slots, width = spot.job.slots, spot.job.slots + len(spot.job.transfers) + 1
            begins = range(base, base + width * spot.job.iterations, width)
            decisions.append(
                JobDecision(
                    [gpus[gpu] for gpu in spot.gpus],
                    [level[at : at + slots] for at in begins],
                    [start[at : at + slots] for at in begins],
                    [start[at + slots : at + width - 1] for at in begins],
                )
            )
        return Timetable(assemble(self.ground.pieces, decisions), schedule.value if self.cyclic else None)

    def _unrolled(self, schedule: SequencedSchedule, level: list[int], start: list[int]) -> list[int]:
        """Starts of the pieces in one period of each job, whose first one is not before 0."""
        place = [0] * self.size
        for number, piece in enumerate(map(int, schedule.trace)):
            place[piece] = number
        graph, period = self._graph, schedule.value
        # How many times the cut has been passed, since the cut that the first pieces of the job lie behind.
        passed = [0] * self.size
        for index, job in enumerate(self.ground.pieces.jobs):
            begin, end = self._base[index], self._base[index + 1]
            own = range(begin, end)
            for piece in own:
                for at in range(int(graph.before_at[piece]), int(graph.before_at[piece + 1])):
                    before = int(graph.before[at])
                    if piece < begin + job.slots:
                        passed[piece] = int(place[piece] < place[before])
                    elif level[before] >= graph.need[at]:
                        passed[piece] = passed[before] + (place[piece] < place[before])
            moments = [start[piece] + passed[piece] * period for piece in own]
            first = min(moments[: job.slots])
            start[begin:end] = [moment - first // period * period for moment in moments]
        return start

    def _last(self, start: Numbers) -> int:
        """The job that ends last."""
        ends = [start[base - 1] for base in self._base[1:]]
        return max(range(len(ends)), key=ends.__getitem__)

    def _function(self) -> Callable[..., int]:
        """The annealing, compiled as soon as it is."""
        function = anneal_cyclic_sequence if self.cyclic else anneal_sequence
        if self._large:
            return function
        if not self._asked:
            self._asked = True
            prepare(0)
        fast = compiled(function)
        if fast is not None and not self._fast:
            self._fast = True
            self._graph, self._state = Graph(*arrays(self._graph)), type(self._state)(*arrays(self._state))
            self._exponentials = reals(EXPONENTIALS)
        return fast or function

    def _place(self, index: int, spot: PlacedJob) -> None:
        """Write down where a job is."""
        self._placed[index] = spot
        group, job = self._groups[index], spot.job
        if len(spot.links) > self._room[index]:
            self._make_room(index, len(spot.links))
        graph, table_at = self._graph, self._table_at[index]
        workers = slice(group, group + job.slots)
        graph.cap[workers] = spot.caps or [job.levels] * job.slots
        use_at = int(graph.use_at[group])
        graph.use[use_at : use_at + job.slots] = spot.gpus
        graph.table[table_at : table_at + job.slots * job.levels] = list(chain.from_iterable(spot.tables))
        links_at, links = int(graph.use_at[group + job.slots]), len(spot.links)
        graph.uses[group + job.slots] = links
        graph.use[links_at : links_at + links] = [len(self.ground.layout.gpus) + link for link in spot.links]
        exchange_at = int(graph.exchange_at[index])
        exchange = self._exchange(job, spot.gpus)
        graph.exchange[exchange_at : exchange_at + len(exchange)] = exchange

    def _exchange(self, job: PieceGraph, gpus: Sequence[int]) -> list[int]:
        """Durations of the transfers of a job by bucket and number of contributors."""
        channel = self.ground.ring(gpus)
        key = (id(job), channel.rate, channel.latency_us)
        if key not in self._exchanges:
            buckets, counts = [transfer.bucket for transfer in job.transfers], range(1, job.slots + 1)
            self._exchanges[key] = [job.transfer_us(bucket, count, channel) for bucket in buckets for count in counts]
        return self._exchanges[key]

    def _make_room(self, index: int, links: int) -> None:
        """Give a job room for more links, at the end of all."""
        group = self._groups[index + 1] - 1
        self._room[index], self._graph.use_at[group] = links, len(self._graph.use)
        use: Numbers = [*map(int, self._graph.use), *[0] * links]
        if self._fast:
            (use,) = arrays([use])
        self._graph = self._graph._replace(use=use)

    def _blank(self) -> State | CyclicState:
        """A state that nothing is written in yet."""
        resources, stride, _ = self._graph.resources
        kind = CyclicState if self.cyclic else State
        lengths = dict.fromkeys(kind._fields, self.size) | {"numbers": 6, "free": resources, "user": resources}
        lengths |= dict.fromkeys(("mark_free", "mark_user"), (self.size // stride + 1) * resources)
        lengths["critical"] = len(self._placed)
        return kind(*([0] * lengths[name] for name in kind._fields))

    def _frame(self) -> Graph:
        """The pieces of jobs that are nowhere yet."""
        ground, jobs = self.ground, self.ground.pieces.jobs
        job_of: list[int] = []
        group_of: list[int] = []
        first: list[int] = []
        before_at, before, need = [0], [], []
        use_at: list[int] = []
        table_at: list[int] = []
        used = 0
        for index, job in enumerate(jobs):
            group, slots, buckets = self._groups[index], job.slots, len(job.transfers)
            use_at += range(used, used + slots + 1)
            used += slots
            table_at += [*range(self._table_at[index], self._table_at[index + 1], job.levels), 0]
            for iteration in range(job.iterations):
                at = len(job_of)
                barrier = [(at - 1, 0)] if iteration else [(self._base[index + 1] - 1, 0)] if self.cyclic else []
                waits = [barrier] * slots
                for bucket in range(buckets):
                    ready = [(at + slot, bucket + 1) for slot in range(slots)]
                    waits.append(ready + ([(at + slots + bucket - 1, 0)] if bucket else []))
                waits.append([(at + n, 0) for n in range(slots)] + ([(at + slots + buckets - 1, 0)] if buckets else []))
                width = len(waits)
                job_of += [index] * width
                group_of += [*range(group, group + slots), *[group + slots] * (buckets + 1)]
                first += [at] * width
                for arcs in waits:
                    before += [piece for piece, _ in arcs]
                    need += [level for _, level in arcs]
                    before_at.append(len(before))
        groups, resources = len(use_at), len(ground.layout.gpus) + ground.layout.links
        *exchange_at, exchanges = accumulate((len(job.transfers) * job.slots for job in jobs), initial=0)
        return Graph(
            job_of,
            group_of,
            before_at,
            before,
            need,
            first,
            use_at,
            [1] * groups,
            [0] * used,
            [0] * groups,
            table_at,
            [0] * self._table_at[-1],
            [job.slots for job in jobs],
            [len(job.transfers) for job in jobs],
            [job.levels for job in jobs],
            [job.rule.min_contributors for job in jobs],
            [_freedom(job) for job in jobs],
            exchange_at,
            [0] * exchanges,
            [job.release_us for job in jobs],
            self._base[:-1],
            [base - 1 for base in self._base[1:]],
            [job.weight for job in jobs] if ground.pieces.objective == "weighted_completion" else [],
            [resources, max(_STRIDE, resources), beyond(ground.pieces)],
        )


def _levels(spot: PlacedJob, rows: Sequence[Sequence[int]]) -> list[int]:
    """Levels of all pieces of a job, by those of its blocks."""
    rest = [0] * (len(spot.job.transfers) + 1)
    return list(chain.from_iterable([*row, *rest] for row in rows))


def _freedom(job: PieceGraph) -> int:
    """Which trades of levels keep the rule of a job (specification: depth-rules)."""
    if job.rule.balance is not None:
        return KEPT
    return WITHIN if job.rule.multiset is not None else ACROSS


def _rows(spot: PlacedJob, before: Sequence[int]) -> Sequence[Sequence[int]]:
    """Levels of a job by iteration and slot: as they were, where memory admits that; before may be empty."""
    rows, slots, width = spot.plan.rows, spot.job.slots, spot.job.slots + len(spot.job.transfers) + 1
    caps = spot.caps or [spot.job.levels] * slots
    old = [[int(level) for level in before[at : at + slots]] for at in range(0, len(before), width)]
    if old and _freedom(spot.job) != KEPT and all(all(map(le, row, caps)) for row in old):
        return old
    if spot.plan.fixed:
        return rows
    deepest_first = sorted(range(slots), key=lambda slot: -caps[slot])
    return [[level for _, level in sorted(zip(deepest_first, row, strict=True))] for row in rows]

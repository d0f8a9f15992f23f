"""Placements with levels, evened out by CP-SAT a few servers and jobs at a time; a schedule says what each is worth."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

from jigsaw_opt.formulations.cpsat_loads import Neighbourhood, Placed, build
from jigsaw_opt.solvers.bounds.server_partition import server_partitions
from jigsaw_opt.solvers.placement.assignment import Assignment
from jigsaw_opt.solvers.placement.levels import counts, dealt
from jigsaw_opt.solvers.search.budget import Budget
from jigsaw_opt.solvers.search.context import Candidate, Context, Effort
from jigsaw_opt.solvers.search.moves.list_annealing import draft
from jigsaw_opt.solvers.search.moves.load_balancing import Placing
from jigsaw_opt.solvers.search.moves.sequence_annealing import SequenceAnnealing
from jigsaw_opt.solvers.search.sequence_search import SequencedSchedule

_WORK = 0.03
"""Deterministic seconds of the engine for one neighbourhood: most are solved in a third of it."""
_ENGINE = {"linearization_level": 1}
_JOBS = 3, 7
"""Fewest and most jobs that move in a neighbourhood: with ten the engine seldom finds anything in that work."""
_FULLEST = 0.8
"""How often a neighbourhood is that of the fullest GPU."""
_PATIENCE, _CALL, _LONGEST = 12, 0.6, 4.0
"""Neighbourhoods in vain and deterministic seconds after which a call ends, and how much longer it becomes in vain, at
most."""
_VARIABLE = 1e-4
"""Deterministic seconds that a variable of the model counts as, to be built."""


class EvenLoads:
    """Makes the loads of the best plan even, and anneals the order of operations after every change."""

    name: ClassVar[str] = "even_loads"

    def __init__(self, context: Context) -> None:
        self.context, self.rng = context, context.rng
        self._places = [places for places in server_partitions(context.operations.cluster) if not places.shared]
        self._effort = Effort(_LONGEST)

    @classmethod
    def applies(cls, context: Context) -> bool:
        """Return whether loads bound the objective, and sequences are annealed at all."""
        return context.operations.objective != "weighted_completion" and context.shared(SequenceAnnealing).fits

    def run(self, incumbent: Candidate | None, budget: Budget) -> Candidate | None:
        """Change the placement of the best plan until no neighbourhood becomes more even.

        The best plan found, or None where there is none to begin with.

        `incumbent`: the best plan so far; None before there is any.
        """
        if incumbent is None:
            return None
        sequences, idle = self.context.shared(SequenceAnnealing), 0
        best = sequences.sequencing.given(incumbent.timetable)
        rows = partial(sequences.sequencing.rows, best)
        placed: list[Placed] = [counts(own.gpus, rows(index)) for index, own in enumerate(best.assignments)]
        loads = self._loads(placed)
        most, enough = _PATIENCE * self._effort.length, budget.work + _CALL * self._effort.length
        while idle < most and budget.work < enough and not budget.over():
            changed = self._changed(self._neighbourhood(placed, loads), max(*loads, incumbent.value))
            idle += 1
            if not changed:
                continue
            after = [changed.get(index, at) for index, at in enumerate(placed)]
            evener = sorted(self._loads(after), reverse=True), sorted(loads, reverse=True)
            if evener[0] > evener[1]:
                continue
            placed, loads = after, self._loads(after)
            found = self._scheduled(best, placed)
            if found.value < best.value or evener[0] < evener[1]:
                idle = 0
            best = found if found.value < best.value else best
        self._effort.spent(best.value < incumbent.value)
        return sequences.proposed(best)

    def _loads(self, placed: Sequence[Placed]) -> list[int]:
        """Return the work of every GPU, in microseconds."""
        type_of, loads = self.context.data.layout.type_of, [0] * len(self.context.data.layout.gpus)
        for job, at in zip(self.context.operations.jobs, placed, strict=True):
            for gpu, levels in at.items():
                times = job.blocks[0].duration_us[type_of[gpu]]
                loads[gpu] += sum(times[level - 1] * count for level, count in levels.items())
        return loads

    def _neighbourhood(self, placed: Sequence[Placed], loads: Sequence[int]) -> Neighbourhood:
        """Return the server of a GPU, mostly the fullest, others that share a job, and some of the jobs inside."""
        rng, layout = self.rng, self.context.data.layout
        gpu = max(range(len(loads)), key=loads.__getitem__)
        if rng.random() >= _FULLEST:
            gpu = rng.randrange(len(loads))
        on = [{layout.server_of[g] for g in at} for at in placed]
        servers = {layout.server_of[gpu]} | rng.choice(
            [on[index] for index, at in enumerate(placed) if gpu in at] or on
        )
        while len(servers) < min(2, len(layout.servers)):
            servers.add(rng.randrange(len(layout.servers)))
        inside = [index for index, own in enumerate(on) if own <= servers]
        rng.shuffle(inside)
        inside.sort(key=lambda index: gpu not in placed[index])
        return Neighbourhood(frozenset(servers), frozenset(inside[: rng.randint(*_JOBS)]), placed, layout.held)

    def _changed(self, part: Neighbourhood, most: int) -> dict[int, Placed]:
        """Return the jobs that a neighbourhood puts elsewhere or on other levels; none where nothing is found."""
        context = self.context
        model = build(context.operations, 0, most, self._places, all_present=True, part=part)
        model.hint(part.placed)
        context.budget.spend(_VARIABLE * len(model.model.proto.variables))
        value = context.engine.solve_all([model.model], _WORK, _ENGINE)[0]
        placed = {} if value is None else model.placed(value)
        return {index: at for index, at in placed.items() if at != part.placed[index]}

    def _scheduled(self, before: SequencedSchedule, placed: Sequence[Placed]) -> SequencedSchedule:
        """Return the better of the order of a schedule at a placement, and of its list schedule, both annealed."""
        context, sequences = self.context, self.context.shared(SequenceAnnealing)
        search = sequences.sequencing
        changed = self._assignments(before, placed)
        best = sequences.annealed(search.moved(before, changed))
        balancer = context.shared(Placing).balancer(1.0)
        balancer.adopt([changed.get(index, old) for index, old in enumerate(before.assignments)])
        schedule = None if context.budget.over() else draft(context, balancer)
        if schedule is not None:
            other = sequences.annealed(search.given(context.candidate(schedule).timetable))
            best = other if other.value < best.value else best
        return best

    def _assignments(self, before: SequencedSchedule, placed: Sequence[Placed]) -> dict[int, Assignment]:
        """Return the jobs that are elsewhere than in a schedule, or at other levels, or have other caps.

        Each GPU is in the slot that it has had, if the job was there.
        """
        data, search = self.context.data, self.context.shared(SequenceAnnealing).sequencing
        places = []
        for at, own in zip(placed, before.assignments, strict=True):
            new = iter([gpu for gpu in at if gpu not in own.gpus])
            places.append([gpu if gpu in at else next(new) for gpu in own.gpus])
        found = {}
        for index, (own, caps) in enumerate(zip(before.assignments, data.caps(places), strict=True)):
            gpus, at, rows = places[index], placed[index], search.rows(before, index)
            if at != counts(own.gpus, rows):
                rows = [[*row] for row in dealt(own.job, [at[gpu] for gpu in gpus]).rows]
            elif (own.caps or [own.job.levels] * len(caps)) == caps:
                continue
            found[index] = data.planned(index, gpus, rows, caps, data.demands[index])
        return found

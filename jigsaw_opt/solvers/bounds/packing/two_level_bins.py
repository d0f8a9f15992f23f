"""Racks as bins with servers in them: the links of both must carry the jobs at once.

A job too wide for a server is either whole in a rack, and then uses links of the servers there, or reaches into it from
others, and then uses a link that leaves the rack besides. Packed one by one, the links of servers and those of racks
may each hold all jobs where together they do not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

from jigsaw_opt.formulations.cpsat_model import new_model
from jigsaw_opt.problem.pieces import Pieces
from jigsaw_opt.solvers.bounds.budget import Budget
from jigsaw_opt.solvers.bounds.job_data import GpuClass, JobData
from jigsaw_opt.solvers.bounds.packing.column_generation import Packing, PackingTest
from jigsaw_opt.solvers.bounds.packing.knapsack import Pattern
from jigsaw_opt.solvers.bounds.packing.multi_server import (
    EquivalentJobs,
    ServerGroup,
    TwoLevelBin,
    allowed_classes,
    equivalent_jobs,
    fewest_groups,
    least_transfers,
    two_level_bins,
)
from jigsaw_opt.solvers.bounds.server_partition import server_partitions
from jigsaw_opt.solvers.engines.cpsat import new_solver

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

__all__ = ["TwoLevelPacking", "two_level_tests"]

_WORK = 0.4
"""Deterministic seconds of the engine for the best pattern of one bin."""
_SECONDS_OF_ENGINE = 2.0
"""What a deterministic second of the engine takes, in ours."""
_LONGEST = 4.0
"""Seconds that one objective is worth."""
_GAP = 5e-4
"""How near to the best pattern its value is known; it is never less."""
_BITS = 40
"""Times have no more."""
_FINEST = 2**20
"""PriceVector that the engine sees are rounded up to so many steps."""


def two_level_tests(
    pieces: Pieces, job_data: Sequence[JobData], classes: Sequence[GpuClass]
) -> Iterator[TwoLevelPacking]:
    """One test for servers in racks, one for racks in what holds several, as far as no link leaves two of them."""
    for inner, outer in pairwise(server_partitions(pieces.cluster)):
        if not inner.shared and not outer.shared:
            yield TwoLevelPacking(pieces, job_data, two_level_bins(pieces, classes, outer, inner), len(outer.leaving))


class TwoLevelPacking:
    """Whether the links that leave groups of servers, and groups in these, can carry all jobs that need several groups.

    Parameters
    ----------
    pieces, job_data
        The instance, cut, and what is known of its jobs.
    bins
        The groups, with smaller ones in them; no two share a link.
    places
        How many groups there are.
    """

    def __init__(self, pieces: Pieces, job_data: Sequence[JobData], bins: Sequence[TwoLevelBin], places: int) -> None:
        self._finite = pieces.horizon == "finite"
        self._bins, self._jobs = bins, equivalent_jobs(job_data)
        self._places = [bin.outer for bin in bins]
        self._smaller = [one._replace(number=one.number * bin.outer.number) for bin in bins for one in bin.inside]
        self._test = PackingTest()
        self.reason = (
            f"jobs too wide for one server packed onto the links of {places} places and of the servers in them"
        )

    def refutes(self, limit: int, budget: Budget) -> bool:
        """Whether no plan has an objective of at most `limit`."""
        packing = self.packing(limit)
        if packing is None:
            return False
        most = min(_LONGEST, budget.left)
        own = Budget(most, lambda: budget.stopped)
        destructive_bound = self._test.refutes(packing, own)
        budget.charge(most - own.left)
        return destructive_bound

    def packing(self, limit: int) -> Packing | None:
        """What the links hold within an objective of `limit`, in workers.

        None where each job has room in one place: then its links say no more than those of the servers.
        """
        asked, reaching = [], False
        for each in self._jobs:
            allowed = allowed_classes(each.data, limit)
            if (fewest_groups(self._smaller, each.data, allowed) or 0) > 1:
                asked.append((each, allowed))
                reaching = reaching or fewest_groups(self._places, each.data, allowed) != 1
        if not reaching:
            return None
        head = min(each.data.job.release_us for each, _ in asked) if self._finite else 0
        kinds = tuple(TwoLevelBinType(bin, asked, limit - head) for bin in self._bins)
        return Packing(kinds, tuple(each.number * each.data.job.slots for each, _ in asked))


class TwoLevelBinType:
    """Like groups with smaller ones in them, as bins that hold workers of wide jobs.

    Parameters
    ----------
    bin
        The groups.
    asked
        Classes of jobs that no smaller group has room for, each with the classes of GPUs that are fast enough.
    capacity
        Time of every link, in microseconds.
    """

    def __init__(self, bin: TwoLevelBin, asked: Sequence[tuple[EquivalentJobs, frozenset[int]]], capacity: int) -> None:
        self.count = bin.outer.number
        # Rounded so that the engine's integers hold all sums, and that what fits still does.
        self._unit = 1 + (capacity >> _BITS)
        self._bin, self._asked, self._capacity = bin, asked, -(-capacity // self._unit)
        self._seconds = 0.0

    @property
    def seconds(self) -> float:
        """About the time of finding a best pattern: what the last one took."""
        return self._seconds

    @cached_property
    def sizes(self) -> dict[int, int]:
        """Share of a smaller group's link time that a worker takes, in millionths, by class."""
        found: dict[int, int] = {}
        for c, (each, allowed) in enumerate(self._asked):
            shares = [
                self._spent_on(one, each.data) * 10**6 // (room * self._capacity)
                for one in self._bin.inside
                if one.links and (room := one.room(each.data.job_class, allowed))
            ]
            if shares:
                found[c] = 1 + min(shares)
        return found

    def best(self, prices: Sequence[int]) -> Pattern | None:
        """Most valuable pattern at some prices, with workers by class; None where it was not found in time."""
        from ortools.sat.python import cp_model

        model, workers = self._model
        unit = max(1, max(prices) // _FINEST)
        rough = {c: -(-prices[c] // unit) for c in workers}
        model.maximize(sum(rough[c] * amount for c, amount in workers.items()))
        solver = new_solver()
        solver.parameters.max_deterministic_time = _WORK
        solver.parameters.linearization_level = 2
        solver.parameters.relative_gap_limit = _GAP
        status = solver.solve(model)
        self._seconds = _SECONDS_OF_ENGINE * solver.response_proto.deterministic_time
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return None
        copies = {c: solver.value(amount) for c, amount in workers.items()}
        # Values are far below 2^53, so the float is the integer that the engine has proven.
        return Pattern(math.ceil(solver.best_objective_bound) * unit, {c: n for c, n in copies.items() if n})

    def _spent_on(self, group: ServerGroup, data: JobData) -> int:
        """Time that a link that leaves a group is busy with a job; 0 where there is none."""
        return least_transfers(data, group.links) // self._unit if group.links else 0

    @cached_property
    def _model(self) -> tuple[cp_model.CpModel, dict[int, cp_model.LinearExpr]]:
        """What one group may hold, and the workers of each class in it."""

        model = new_model()
        outer, inside, capacity = self._bin.outer, self._bin.inside, self._capacity
        workers: dict[int, cp_model.LinearExpr] = {}
        leaving: list[cp_model.LinearExpr] = []
        uses: list[list[cp_model.LinearExpr]] = [[] for _ in inside]
        large: list[list[cp_model.LinearExpr]] = [[] for _ in inside]
        for c, (each, allowed) in enumerate(self._asked):
            data, slots = each.data, each.data.job.slots
            rooms = [one.room(data.job_class, allowed) for one in inside]
            room = sum(one.number * r for one, r in zip(inside, rooms, strict=True))
            if not room:
                continue
            whole = model.new_int_var(0, each.number if room >= slots else 0, "")
            partly = model.new_int_var(0, each.number if outer.links else 0, "")
            reaching = model.new_int_var(0, each.number * min(room, slots - 1), "")
            model.add(whole + partly <= each.number)
            model.add(reaching <= min(room, slots - 1) * partly)
            leaving.append(self._spent_on(outer, data) * partly)
            for jobs, amount in ((whole, slots * whole), (partly, reaching)):
                held = []
                for k, (one, each_room) in enumerate(zip(inside, rooms, strict=True)):
                    if each_room:
                        groups = model.new_int_var(0, each.number * one.number, "")
                        model.add(groups <= one.number * jobs)
                        held.append(each_room * groups)
                        spent = self._spent_on(one, data)
                        uses[k].append(spent * groups)
                        if 2 * spent > len(one.links) * capacity:
                            large[k].append(groups)
                model.add(sum(held) >= amount)
            workers[c] = slots * whole + reaching
        model.add(sum(leaving) <= len(outer.links) * capacity)
        for one, used, alone in zip(inside, uses, large, strict=True):
            model.add(sum(used) <= one.number * len(one.links) * capacity)
            model.add(sum(alone) <= one.number)
        return model, workers

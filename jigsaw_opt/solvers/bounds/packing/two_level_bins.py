"""Racks as bins with servers in them: the links of both must carry the jobs at once.

A multi-server job is either whole in a rack, and then uses links of the servers there, or reaches into it from
others, and then uses a link that leaves the rack besides. Packed one by one, the links of servers and those of racks
may each hold all jobs where together they do not.

Of servers or racks alone as bins: a job that no single group of servers has room for uses a link that leaves each group
it touches, for all its transfers. Within the objective that is tried a GPU may be too slow for the job: then only the
others count as room.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

from jigsaw_opt.formulations.cpsat_model import new_model
from jigsaw_opt.solvers.bounds.job_data import JobData
from jigsaw_opt.solvers.bounds.packing.column_generation import Item, KnapsackBins, Packing, PackingTest, Pattern
from jigsaw_opt.solvers.bounds.packing.destructive import destructive
from jigsaw_opt.solvers.bounds.packing.multi_server import (
    EquivalentJobs,
    ServerGroup,
    TwoLevelBin,
    allowed_classes,
    equivalent_groups,
    equivalent_jobs,
    fewest_groups,
    least_transfers,
    two_level_bins,
)
from jigsaw_opt.solvers.bounds.proof import Proof, Term
from jigsaw_opt.solvers.bounds.relaxation import BoundBudget, BoundContext, Relaxation
from jigsaw_opt.solvers.bounds.server_partition import ServerPartition, server_partitions
from jigsaw_opt.solvers.engines.cpsat import new_solver
from jigsaw_opt.solvers.engines.stoppable import run_stoppable

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

_WORK = 0.4
"""Deterministic seconds of the engine for the best pattern of one bin."""
_SECONDS_OF_ENGINE = 2.0
"""Seconds of a usual core for one deterministic second of the engine."""
_LONGEST = 4.0
"""Largest work spent on one objective, in seconds."""
_GAP = 5e-4
"""Relative gap at which the search for the best pattern ends; the bound on its value is still valid."""
_BITS = 40
"""Largest number of bits of a time in the model: the engine counts with 63, and adds up the times of many workers."""
_FINEST = 2**20
"""Number of steps to which prices in the model are rounded up, so that values of patterns stay far below 2^53."""


class TwoLevelPacking:
    """Test whether links of groups of servers, and of groups in these, can carry all jobs that need several groups.

    `context`: the instance, and what is known of its jobs and GPUs. `outer, inner`: groups of servers, and smaller ones
    in them; no two share a link.
    """

    def __init__(self, context: BoundContext, outer: ServerPartition, inner: ServerPartition) -> None:
        cluster = context.operations.cluster
        self._finite = context.operations.horizon == "finite"
        self._bins = two_level_bins(context.operations, context.gpu_classes, outer, inner)
        self._jobs = equivalent_jobs(context.job_data)
        self._outer = [each.outer for each in self._bins]
        self._inner = [
            one._replace(number=one.number * each.outer.number) for each in self._bins for one in each.inside
        ]
        self._test = PackingTest()
        links = frozenset().union(*outer.leaving.values(), *inner.leaving.values())
        self._links = tuple(cluster.links[k].name for k in sorted(links))
        places = f"{len(outer.leaving)} places and of the servers in them"
        self._sentence = f"jobs too wide for one server packed onto the links of {places}"

    def refutes(self, limit: int, budget: BoundBudget) -> Proof | None:
        """Return why no plan has an objective of at most `limit`; None where that stays open."""
        packing = self.packing(limit)
        if packing is None:
            return None
        most = min(_LONGEST, budget.left)
        # What pricing costs is known only afterwards, so that one objective must not take all of the common budget.
        own = BoundBudget(most, lambda: budget.stopped)
        found = self._test.refutes(packing, own)
        budget.charge(most - own.left)
        return None if found is None else packing.proof(found, self._sentence, self._links)

    def packing(self, limit: int) -> Packing | None:
        """Return the packing of workers onto links within an objective of `limit`, in microseconds.

        The result is None where each job has room in one place: then its links say no more than those of the servers.
        """
        asked, reaching = [], False
        for jobs in self._jobs:
            allowed = allowed_classes(jobs.data, limit)
            if (fewest_groups(self._inner, jobs.data, allowed) or 0) > 1:
                asked.append((jobs, allowed))
                reaching = reaching or fewest_groups(self._outer, jobs.data, allowed) != 1
        if not reaching:
            return None
        # Before the first release no link is busy.
        head = min(jobs.data.job.release_us for jobs, _ in asked) if self._finite else 0
        bins = tuple(TwoLevelBinType(each, asked, limit - head) for each in self._bins)
        demands, names = (jobs.number * jobs.data.job.slots for jobs, _ in asked), (jobs.names for jobs, _ in asked)
        return Packing(bins, tuple(demands), tuple(names))


class TwoLevelBinType:
    """Equivalent groups with smaller ones in them, as bins that hold workers of multi-server jobs.

    `asked`: classes of jobs that no smaller group has room for, each with the classes of GPUs that are fast enough.
    `capacity`: time of every link, in microseconds.
    """

    def __init__(
        self, bins: TwoLevelBin, asked: Sequence[tuple[EquivalentJobs, frozenset[int]]], capacity: int
    ) -> None:
        self.count = bins.outer.number
        # Rounded so that the engine's integers hold all sums, and that what fits still does.
        self._unit = 1 + (capacity >> _BITS)
        self._bins, self._asked, self._capacity = bins, asked, -(-capacity // self._unit)
        self._seconds = 0.0

    @property
    def seconds(self) -> float:
        """Return about the time of finding a best pattern, in seconds: what the last one took."""
        return self._seconds

    @cached_property
    def sizes(self) -> dict[int, int]:
        """Return the share of a smaller group's link time that a worker takes, in millionths, by class."""
        found: dict[int, int] = {}
        for c, (each, allowed) in enumerate(self._asked):
            shares = [
                self._spent_on(one, each.data) * 10**6 // (room * self._capacity)
                for one in self._bins.inside
                if one.links and (room := one.room(each.data.job_class, allowed))
            ]
            if shares:
                # As first prices: a class whose price is 0 would not count at all, hence the 1.
                found[c] = 1 + min(shares)
        return found

    def best(self, prices: Sequence[int]) -> Pattern | None:
        """Return the most valuable pattern at some prices, with workers by class; None where time did not suffice."""
        from ortools.sat.python import cp_model

        model, workers = self._model
        # Prices are rounded up, so that the model's optimum is no less than the true one.
        unit = max(1, max(prices) // _FINEST)
        rough = {c: -(-prices[c] // unit) for c in workers}
        model.maximize(sum(rough[c] * amount for c, amount in workers.items()))
        solver = new_solver()
        solver.parameters.max_deterministic_time = _WORK
        solver.parameters.linearization_level = 2
        solver.parameters.relative_gap_limit = _GAP
        status = run_stoppable(lambda: solver.solve(model), solver.stop_search, "bound")
        self._seconds = _SECONDS_OF_ENGINE * solver.response_proto.deterministic_time
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return None
        copies = {c: solver.value(amount) for c, amount in workers.items()}
        # Values are far below 2^53, so the float is the integer that the engine has proven.
        return Pattern(math.ceil(solver.best_objective_bound) * unit, {c: n for c, n in copies.items() if n})

    def _spent_on(self, group: ServerGroup, data: JobData) -> int:
        """Return the time that a link that leaves a group is busy with a job; 0 where there is no link."""
        return least_transfers(data, group.links) // self._unit if group.links else 0

    @cached_property
    def _model(self) -> tuple[cp_model.CpModel, dict[int, cp_model.LinearExpr]]:
        """Return the model of what one group may hold, and the workers of each class in it."""

        model = new_model()
        outer, inside, capacity = self._bins.outer, self._bins.inside, self._capacity
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
            # `whole` jobs have all workers in this group, `partly` jobs only some; `reaching` counts the workers of the
            # latter.
            whole = model.new_int_var(0, each.number if room >= slots else 0, "")
            partly = model.new_int_var(0, each.number if outer.links else 0, "")
            reaching = model.new_int_var(0, each.number * min(room, slots - 1), "")
            model.add(whole + partly <= each.number)
            # At least one worker of such a job is elsewhere, or the job would be whole.
            model.add(reaching <= min(room, slots - 1) * partly)
            leaving.append(self._spent_on(outer, data) * partly)
            for jobs, amount in ((whole, slots * whole), (partly, reaching)):
                held = []
                for k, (one, each_room) in enumerate(zip(inside, rooms, strict=True)):
                    if each_room:
                        groups = model.new_int_var(0, each.number * one.number, "")
                        # `groups` counts pairs of a job and a smaller group in which it has workers.
                        model.add(groups <= one.number * jobs)
                        held.append(each_room * groups)
                        spent = self._spent_on(one, data)
                        uses[k].append(spent * groups)
                        # No group can hold two jobs that each take more than half of the time of its links.
                        if 2 * spent > len(one.links) * capacity:
                            large[k].append(groups)
                model.add(sum(held) >= amount)
            workers[c] = slots * whole + reaching
        model.add(sum(leaving) <= len(outer.links) * capacity)
        for one, used, alone in zip(inside, uses, large, strict=True):
            model.add(sum(used) <= one.number * len(one.links) * capacity)
            model.add(sum(alone) <= one.number)
        return model, workers


def two_level_packings(context: BoundContext) -> Iterator[TwoLevelPacking]:
    """Yield one test for servers in racks, one for racks in larger groups, as far as no link leaves two of them."""
    for inner, outer in pairwise(server_partitions(context.operations.cluster)):
        if not inner.shared and not outer.shared:
            yield TwoLevelPacking(context, outer, inner)


TWO_LEVEL_BINS = Relaxation("two_level_bins", destructive(two_level_packings), frozenset({"makespan", "period"}))
"""The relaxation registered as ``two_level_bins``."""


class LinkPacking:
    """Test whether the links that leave groups of servers can carry all jobs that need several groups.

    `context`: the instance, and what is known of its jobs and GPUs. `partition`: groups of servers of which no two
    share a link.
    """

    def __init__(self, context: BoundContext, partition: ServerPartition) -> None:
        cluster = context.operations.cluster
        self._finite = context.operations.horizon == "finite"
        self._test = PackingTest()
        self._groups = equivalent_groups(context.operations, context.gpu_classes, partition)
        self._jobs = equivalent_jobs(context.job_data)
        self._links = tuple(cluster.links[k].name for k in sorted(frozenset().union(*partition.leaving.values())))
        self._sentence = f"jobs too wide for one place packed onto the links of {len(partition.leaving)} places"

    def refutes(self, limit: int, budget: BoundBudget) -> Proof | None:
        """Return why no plan has an objective of at most `limit`; None where that stays open."""
        packing = self._packing(limit)
        if isinstance(packing, Proof):
            return packing
        found = self._test.refutes(packing, budget)
        return None if found is None else packing.proof(found, self._sentence, self._links)

    def _packing(self, limit: int) -> Packing | Proof:
        """Return the packing of jobs onto links within an objective, or a proof that some job finds too few GPUs."""
        asked = []
        for jobs in self._jobs:
            allowed = allowed_classes(jobs.data, limit)
            fewest = fewest_groups(self._groups, jobs.data, allowed)
            if fewest is None:
                return self._too_few_gpus(jobs, allowed)
            if fewest > 1:
                # One copy of an item is one job in one group; each job is in so many groups at least.
                asked.append((jobs, allowed, fewest * jobs.number))
        bins = (self._bins(group, [(jobs, allowed) for jobs, allowed, _ in asked], limit) for group in self._groups)
        demands, names = (demand for *_, demand in asked), (jobs.names for jobs, *_ in asked)
        return Packing(tuple(each for each in bins if each.items), tuple(demands), tuple(names))

    def _too_few_gpus(self, jobs: EquivalentJobs, allowed: frozenset[int]) -> Proof:
        room = sum(group.number * group.room(jobs.data.job_class, allowed) for group in self._groups)
        workers, names = jobs.data.job.slots, jobs.names[:1]
        terms = (Term("workers", workers, "", names), Term("GPUs that are fast enough", room, ""))
        return Proof(self._sentence, f"{workers} <= {room}", terms, names, links=self._links)

    def _bins(
        self, group: ServerGroup, asked: Sequence[tuple[EquivalentJobs, frozenset[int]]], limit: int
    ) -> KnapsackBins:
        """Return the links of each of some equivalent groups as one bin."""
        # All links of a group are one bin. Before the least head of its jobs none of them is in use, so that the bin
        # loses that time once for each link.
        width = len(group.links)
        items = {
            c: Item(least_transfers(jobs.data, group.links), jobs.number, width * self._head(group, jobs.data, allowed))
            for c, (jobs, allowed) in enumerate(asked)
            if width and group.room(jobs.data.job_class, allowed)
        }
        return KnapsackBins(group.number, width * limit, items)

    def _head(self, group: ServerGroup, data: JobData, allowed: frozenset[int]) -> int:
        """Return the least time at which bucket 1 is ready if a worker is in this group.

        All workers contribute to bucket 1, so the slowest of them decides.
        """
        if not self._finite:
            return 0
        usable = {k for s, k in group.servers if k in allowed and s in data.job_class.gpus}
        anywhere = min(site.ready[0] for site in data.job_class.sites)
        return data.job.release_us + max(anywhere, min(data.job_class.blocks[k][0] for k in usable))


def link_packings(context: BoundContext) -> Iterator[LinkPacking]:
    """Yield one test for servers, one for racks and so on, as far as no link leaves two of them."""
    for partition in server_partitions(context.operations.cluster):
        if not partition.shared:
            yield LinkPacking(context, partition)


LINK_BINS = Relaxation("link_bins", destructive(link_packings), frozenset({"makespan", "period"}))
"""The relaxation registered as ``link_bins``."""

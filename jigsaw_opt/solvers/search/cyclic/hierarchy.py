"""Which block of servers each job goes to, by loads alone, without a timetable.

Servers come in groups: whole racks where these have room for the widest job. So jobs of different groups meet on no
link. Blocks within a group lie inside one another or apart. Such a group can be timed by itself, almost as if it were
one machine. What is left is to fill all links alike, which is bin packing with few large items. Annealing over moves
and exchanges of jobs does it, for a step looks at a few servers and links only. Then pairs of groups reassign their
jobs. A group with many wide jobs is hard to time, so these are spread as well.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from itertools import accumulate, chain
from typing import Any

from jigsaw_opt.problem.clock import check_deadline, checking_deadline, halting
from jigsaw_opt.solvers.engines.compiled import Reals, arrays, compiled, concatenated
from jigsaw_opt.solvers.kernels.assignment_annealing import (
    Buffers,
    CandidateSets,
    GroupAssignment,
    anneal_assignment,
    insert,
    reassign_pairs,
    remove,
)
from jigsaw_opt.solvers.kernels.randomness import EXPONENTIALS, LARGEST_SEED
from jigsaw_opt.solvers.search.cyclic.candidate_table import CandidateSet, CandidateTable
from jigsaw_opt.solvers.search.cyclic.server_groups import fast_enough, groups_of, repartitioned

HOT, COLD = 0.1, 1e-5
"""Temperatures at which any job may go anywhere, and at which nothing changes any more, as squared shares of the target
load."""
_STAGES, _STAGE_STEPS = 10, 500
"""Stages of the annealing of all jobs, and steps of a stage for each job. After each stage it is asked whether to stop.
"""
_STEPS = 40
"""Steps for each job when two groups reassign theirs: a pair is small, and comes again with other jobs."""
_REASSIGNMENTS = 40
"""Calls of `reassign_pairs` for each group, at most; loads that are not within the period by then hardly ever are."""
_PAIRS_AT_ONCE = 10
"""Pairs of groups that reassign their jobs between two looks at all loads."""
_CROWD_WEIGHT = 0.01
"""What a wide job too many in a group counts as, in loads: it only decides between nearly equal loads."""
_SAMPLE = 64
"""Server sets that are looked at when a job is first assigned: annealing follows, so this need not be the best one."""


class HierarchicalAssignment:
    """An assignment of jobs to candidate server sets.

    `candidate_table`: all candidate server sets. Every job has one. `target`: load in microseconds above which a link
    or a server counts as too full. `longest`: candidate sets at which a job takes longer are left out, in microseconds,
    but not its fastest ones. `threads`: number of pairs of groups that `pairs` draws at once. `count`: told the
    number of steps of every annealing.
    """

    def __init__(
        self,
        candidate_table: CandidateTable,
        target: int,
        longest: int,
        rng: random.Random,
        threads: int = 1,
        count: Callable[[int], object] = lambda steps: None,
    ) -> None:
        self.data, self.target, self.rng, self.threads, self.count = candidate_table.data, target, rng, threads, count
        layout, jobs = self.data.layout, self.data.operations.jobs
        self.groups = repartitioned(groups_of(self.data), candidate_table, longest)
        self._place = {server: (g, k) for g, group in enumerate(self.groups) for k, server in enumerate(group)}
        # Activations come and go with the blocks; states stay.
        activations = sum(job.activation_bytes[-1] * job.slots for job in jobs) // sum(job.slots for job in jobs)
        self._room = [sum(max(1, layout.memory[gpu] - activations) for gpu in gpus) for gpus in layout.on_server]
        self._crowd = layout.links + 2 * len(layout.servers)
        self._load: Reals = [0.0] * self._crowd + [1.0] * len(self.groups)
        shared = {id(sets): sets for sets in map(candidate_table.of, range(len(jobs)))}
        place = {key: number for number, key in enumerate(shared)}
        own = [self._apart(fast_enough(sets, longest)) for sets in shared.values()]
        self._sets = [*chain(*own)]
        self._group_of = [self.common_group(candidate_set.servers) for candidate_set in self._sets]
        takes = [[*self.takes(candidate_set)] for candidate_set in checking_deadline(self._sets)]
        self._amount: Reals = [amount for taken in takes for _, amount in taken]
        numbers = [range(end - len(sets), end) for sets, end in zip(own, accumulate(map(len, own)), strict=True)]
        job_class = [place[id(candidate_table.of(index))] for index in range(len(jobs))]
        self._options = self._candidate_sets(job_class, numbers, [[resource for resource, _ in own] for own in takes])
        self._exponentials: Reals = list(EXPONENTIALS)
        self._buffers = Buffers(
            rng=[1],
            moved=[0, 0],
            target=[0, 0],
            touched=[0] * (4 * max(map(len, takes)) + 1),
            change=[0.0] * len(self._load),
            over=[0.0] * len(self.groups),
            pair=[0, 0],
            inside=[0] * len(jobs),
            before=[0] * len(jobs),
            halt=[0],
        )
        self._fast = False
        self._state = self._begin([numbers[k] for k in job_class], takes)
        wide = sum(bool(self.candidate_set(index).alone.links) for index in range(len(jobs)))
        for group in range(len(self.groups)):
            self._load[self._crowd + group] -= _CROWD_WEIGHT * (wide / len(self.groups) + 1.0)
        at = self._options.inside_at
        resources = [list(self._options.inside[at[g] : at[g + 1]]) for g in range(len(self.groups))]
        # Of a server, memory has the odd number; and a crowd is no load.
        self._timed = [
            [r for r in inside if r < layout.links or (r < self._crowd and (r - layout.links) % 2 == 0)]
            for inside in resources
        ]

    def common_group(self, servers: Iterable[int]) -> int | None:
        """Return the group of some servers; None where it is not the same for all."""
        groups = {self._place[server][0] for server in servers}
        return groups.pop() if len(groups) == 1 else None

    def buddy_allocated(self, servers: Sequence[int]) -> bool:
        """Return whether servers of a group stand in a row that begins at a multiple of their number, rounded up."""
        places = sorted(self._place[server][1] for server in servers)
        size = 1 << (len(places) - 1).bit_length()
        return places[0] % size == 0 and places[-1] - places[0] == len(places) - 1

    def takes(self, candidate_set: CandidateSet) -> Iterator[tuple[int, float]]:
        """Yield what a job takes at a candidate set: shares of links' time, and of servers' time and memory.

        Number of the resource, and the share of it. The numbers are as in `CandidateSets`.
        """
        layout, alone = self.data.layout, candidate_set.alone
        for link in alone.links:
            yield link, candidate_set.exchange / self.target
        times: dict[int, list[int]] = {}
        for gpu, slot_us in zip(alone.gpus, alone.slot_us, strict=True):
            times.setdefault(layout.server_of[gpu], []).append(slot_us * alone.job.iterations)
        for server, spent in times.items():
            number = layout.links + 2 * server
            yield number, sum(spent) / len(layout.on_server[server]) / self.target
            yield number + 1, len(spent) * alone.job.state_bytes / self._room[server]
        common_group = self.common_group(candidate_set.servers)
        if common_group is not None and alone.links:
            yield self._crowd + common_group, _CROWD_WEIGHT

    def _apart(self, candidate_sets: Sequence[CandidateSet]) -> Sequence[CandidateSet]:
        """Return the candidate sets that are buddy-allocated within one group, or else all within one, or else all."""
        inside = [each for each in candidate_sets if self.common_group(each.servers) is not None]
        return [each for each in inside if self.buddy_allocated(each.servers)] or inside or candidate_sets

    def _candidate_sets(
        self, job_class: list[int], numbers: Sequence[range], resources: Sequence[list[int]]
    ) -> CandidateSets:
        """Return the candidate sets in flat lists; `numbers` are those of each class."""
        within, at = list[list[int]](), list[list[int]]()
        inside: list[set[int]] = [set() for _ in self.groups]
        for of_class in numbers:
            of_group, at_server = defaultdict[int | None, list[int]](list), defaultdict[int, list[int]](list)
            for number in of_class:
                group = self._group_of[number]
                of_group[group].append(number)
                for taken in self._sets[number].servers:
                    at_server[taken].append(number)
                if group is not None:
                    inside[group].update(resources[number])
            # What lies within no group is left where nothing lies within one.
            within += [of_group.get(group) or of_group[None] for group in range(len(self.groups))]
            at += [at_server[own] for own in range(len(self.data.layout.servers))]
        (within_at, within_all), (at_at, at_all) = concatenated(within), concatenated(at)
        take_at, resource = concatenated(resources)
        server_at, server = concatenated([candidate_set.servers for candidate_set in self._sets])
        group_at, member = concatenated(self.groups)
        inside_at, inside_all = concatenated([sorted(own) for own in inside])
        return CandidateSets(
            job_class=job_class,
            group_of=[-1 if group is None else group for group in self._group_of],
            take_at=take_at,
            resource=resource,
            server_at=server_at,
            server=server,
            within_from=within_at[:-1],
            within_to=within_at[1:],
            within=within_all,
            at_from=at_at[:-1],
            at_to=at_at[1:],
            at=at_all,
            group_at=group_at,
            member=member,
            inside_at=inside_at,
            inside=inside_all,
        )

    def candidate_set(self, index: int) -> CandidateSet:
        """Return the candidate set at which a job is."""
        return self._sets[int(self._state.chosen[index])]

    def job_class(self, index: int) -> int:
        """Return the number shared by all jobs that ask the same."""
        return int(self._options.job_class[index])

    def group(self, index: int) -> int | None:
        """Return the group in which a job is; None where it reaches over several."""
        return self._group_of[int(self._state.chosen[index])]

    @property
    def longest(self) -> int:
        """Return how long the slowest job takes where it is, in microseconds."""
        return max(self.candidate_set(index).length for index in range(len(self._state.chosen)))

    def within(self, groups: Collection[int]) -> list[int]:
        """Return the jobs in some groups."""
        return [index for index in range(len(self._state.chosen)) if self.group(index) in groups]

    def fullest(self, groups: Iterable[int]) -> float:
        """Return the largest load of a link or server in some groups, as a share of the target."""
        return float(max(self._load[resource] for group in groups for resource in self._timed[group]))

    def numbers(self, jobs: Iterable[int]) -> list[int]:
        """Return the candidates of some jobs, for `restore`."""
        return [int(self._state.chosen[index]) for index in jobs]

    def restore(self, jobs: Iterable[int], numbers: Iterable[int]) -> None:
        """Put some jobs back on former candidates."""
        own = list(jobs)
        for index in own:
            remove(self._options, self._amount, self._load, self._state, index)
        for index, number in zip(own, numbers, strict=True):
            insert(self._options, self._amount, self._load, self._state, index, number)

    def anneal_all(self, stop: Callable[[], bool]) -> None:
        """Anneal all jobs, from hot to cold; `stop` is asked now and then, and ends it."""
        jobs, hot = range(len(self._state.chosen)), HOT
        for _ in range(_STAGES):
            cooler = hot * (COLD / HOT) ** (1 / _STAGES)
            self.anneal(jobs, range(len(self.groups)), _STAGE_STEPS * len(jobs), hot, cooler)
            hot = cooler
            if stop():
                break

    def fit(self, period: int, stop: Callable[[], bool]) -> bool:
        """Let pairs of groups reassign jobs until loads are well within a period; return whether they are within it."""
        groups, ample = range(len(self.groups)), (self.target + period) // 2
        for number in range(_REASSIGNMENTS * len(groups)):
            enough = ample if number < _REASSIGNMENTS * len(groups) // 10 else period
            if self.fullest(groups) * self.target <= enough or stop() or not self.reassign_pairs(ample / self.target):
                break
        return self.fullest(groups) * self.target <= period

    def reassign_pairs(self, most: float) -> bool:
        """Let pairs of groups reassign their jobs, most often those with an excess over `most`; return whether any did.

        A pair keeps its new assignment where the excess of both is no larger than before.
        """
        groups = [*range(len(self.groups))]
        taken = self._run(reassign_pairs, groups, _PAIRS_AT_ONCE, _STEPS, HOT, COLD, most)
        self.count(taken)
        return taken > 0

    def pairs(self, weights: Mapping[int, float]) -> list[frozenset[int]]:
        """Draw disjoint pairs of groups, the first of each by weight; return no more pairs than threads."""
        left = dict(weights)
        found: list[frozenset[int]] = []
        while any(left.values()) and len(left) > 1 and len(found) < self.threads:
            first = self.rng.choices(list(left), list(left.values()))[0]
            found.append(frozenset({first, self.rng.choice([group for group in left if group != first])}))
            for group in found[-1]:
                del left[group]
        return found

    def reassign(self, jobs: Mapping[frozenset[int], Sequence[int]]) -> None:
        """Reassign jobs among their groups, each with those of the same groups."""
        for groups, inside in jobs.items():
            self.anneal(inside, sorted(groups), _STEPS * len(inside), HOT, COLD)

    def anneal(self, jobs: Sequence[int], groups: Sequence[int], steps: int, hot: float, cold: float) -> None:
        """Move jobs within some groups, so that the sum of squared excesses falls."""
        self._run(anneal_assignment, [*jobs], [*groups], steps, hot, cold)
        self.count(steps)

    def _run(self, function: Callable[..., int], *given: Any) -> int:
        """Return the result of a kernel, compiled where it can be."""
        if not self._fast and compiled(anneal_assignment) is not None and compiled(reassign_pairs) is not None:
            self._fast = True
            self._options, self._state = arrays(self._options), arrays(self._state)
            self._amount, self._load = arrays(self._amount), arrays(self._load)
            self._exponentials, self._buffers = arrays(self._exponentials), arrays(self._buffers)
        run = (compiled(function) or function) if self._fast else function
        own = [arrays(each) if self._fast and isinstance(each, list) else each for each in given]
        self._buffers.rng[0] = self.rng.randint(1, LARGEST_SEED)
        # Python takes seconds for what compiled code takes moments for.
        with nullcontext() if self._fast else halting(self._buffers.halt):
            kept = run(self._options, self._amount, *own, self._exponentials, self._load, self._state, self._buffers)
        if not self._fast:
            check_deadline()
        return kept

    def _begin(self, numbers: Sequence[range], takes: Sequence[Sequence[tuple[int, float]]]) -> GroupAssignment:
        """Put every job at the emptiest of some of its candidate sets, those that take most first."""
        load = self._load
        most = [sum(amount for _, amount in takes[own.start]) for own in numbers]
        chosen = [0] * len(most)
        on: list[list[int]] = [[] for _ in self.data.layout.servers]
        for index in checking_deadline(sorted(range(len(most)), key=lambda index: -most[index])):
            own = numbers[index]
            some = own if len(own) <= _SAMPLE else self.rng.sample(own, _SAMPLE)
            best = min(some, key=lambda number: max(load[resource] + amount for resource, amount in takes[number]))
            chosen[index] = best
            for resource, amount in takes[best]:
                load[resource] += amount
            for server in self._sets[best].servers:
                on[server].append(index)
        width = 2 * max(map(len, on)) + 32
        rows = [index for colocated in on for index in colocated + [0] * (width - len(colocated))]
        return GroupAssignment(chosen, [len(colocated) for colocated in on], rows)

"""Jobs that exclude each other: on links of which they need several, or in pairs on GPUs that they must share.

Among ``m`` links every job takes the same ``u`` of them for all its transfers. By the theorem of Lovasz (1978) on the
graphs of Kneser, sets of ``u`` out of ``m`` fall into ``m - 2u + 2`` classes of sets that meet pairwise, so the jobs
fall into as many groups in which all transfers exclude each other. Which group a job belongs to is branched on;
the least bound of all open branches holds.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import combinations, product
from typing import NamedTuple

from jigsaw_opt.problem.clock import checking_deadline
from jigsaw_opt.solvers.bounds.combinatorial.link_transfers import link_resources
from jigsaw_opt.solvers.bounds.completion.chains import Chain, must_share_gpu, pair_inequalities
from jigsaw_opt.solvers.bounds.completion.load_cuts import LoadCuts, cut_rounds
from jigsaw_opt.solvers.bounds.completion.program import CompletionProgram, Inequality
from jigsaw_opt.solvers.bounds.completion.shared_program import SharedProgram
from jigsaw_opt.solvers.bounds.job_data import JobData
from jigsaw_opt.solvers.bounds.proof import Proof, Term
from jigsaw_opt.solvers.bounds.relaxation import Bound, BoundBudget, BoundContext, Relaxation
from jigsaw_opt.solvers.bounds.resource_demands import Resource, ResourceDemand

_MOST_GROUPS = 4
"""Largest number of groups. With more of them, hardly any jobs have to share one."""
_MOST_NODES = 2_000
"""Largest number of branches: the bound of those that are open holds at any time, and each solves a program."""

Groups = tuple[tuple[int, ...], ...]


class _Node(NamedTuple):
    """A branch: the least sum that is left to it, how it came, its groups and program."""

    bound: int
    number: int
    groups: Groups
    program: CompletionProgram


def disjunctive_sets(context: BoundContext) -> list[DisjunctiveSet]:
    """Return sets of jobs of which some exclude each other, by set of links and number of links that a job needs."""
    found: dict[object, DisjunctiveSet] = {}
    for resource in context.shared(link_resources):
        for jobs in _disjunctive_sets(resource, context.job_data):
            found.setdefault(jobs.key, jobs)
    return list(found.values())


def _disjunctive_sets(resource: Resource, job_data: Sequence[JobData]) -> Iterator[DisjunctiveSet]:
    """Yield the jobs that need at least so many links, for each number."""
    rates = {k: demand.intervals[0].rate for k, demand in enumerate(resource.demands) if demand and demand.intervals}
    for rate in checking_deadline(sorted(set(rates.values()), reverse=True)):
        # With m < 2 u, any two sets of u out of m links meet, and all jobs are one group.
        groups = max(1, resource.capacity - 2 * rate + 2)
        jobs = [k for k, uses in rates.items() if uses >= rate]
        # With a group for each job, none would have to share one.
        if groups <= min(_MOST_GROUPS, len(jobs) - 1):
            yield DisjunctiveSet(resource, job_data, jobs, groups)


class DisjunctiveSet:
    """Some jobs, of which those of a group exclude each other.

    `resource`: the links. A job uses the same ones for all its transfers, in their order and alone. `groups`: number of
    groups that they fall into, at most.
    """

    def __init__(self, resource: Resource, job_data: Sequence[JobData], jobs: Sequence[int], groups: int) -> None:
        self.reason, self.links = f"order of the {resource.reason}", resource.links
        self._groups, self._job_data = groups, job_data
        alone = {k: _alone(demand) for k in jobs if (demand := resource.demands[k]) is not None}
        self._demands = [alone.get(k) for k in range(len(job_data))]
        # Branching begins with the jobs of most work, which raise the bound most.
        self.jobs = sorted(jobs, key=lambda k: -alone[k].work)
        self._pairs: dict[tuple[int, int], list[Inequality]] = {}

    @property
    def key(self) -> object:
        """Return a key that is equal for sets that say the same."""
        return self._groups, tuple(self._demands)

    @property
    def single(self) -> bool:
        """Return whether all its jobs exclude each other: they are one group, and only their order is open."""
        return self._groups == 1

    def cuts(self, jobs: Sequence[int]) -> LoadCuts:
        """Return the cutting planes of the jobs of a group, as the work of one link."""
        demands = [demand if k in jobs else None for k, demand in enumerate(self._demands)]
        return LoadCuts(Resource(1, demands, self.reason), self._job_data)

    def all_pairs(self, budget: BoundBudget) -> Iterator[Inequality]:
        """Yield inequalities between any two of its jobs."""
        for count in range(2, len(self.jobs) + 1):
            yield from self.pairs(self.jobs[:count], budget)

    def pairs(self, jobs: Sequence[int], budget: BoundBudget) -> Iterator[Inequality]:
        """Yield inequalities between the last of the jobs of a group and each of the others.

        `jobs`: indices of the jobs of the group.
        """
        for k in jobs[:-1]:
            pair = k, jobs[-1]
            if pair not in self._pairs:
                forced = must_share_gpu(self._job_data[k], self._job_data[jobs[-1]])
                one, other = (Chain.of(self._job_data[j], forced, self._demands[j]) for j in pair)
                self._pairs[pair] = list(pair_inequalities(pair, one, other, self.reason, budget))
            yield from self._pairs[pair]

    def branch(self, program: CompletionProgram, cuts: Sequence[LoadCuts], budget: BoundBudget) -> Iterator[Bound]:
        """Yield rising bounds that hold however the jobs fall into groups, by best-first branch and bound."""
        heap = [_Node(program.dual().value, 0, (), program)]
        number = 0
        while heap and number < _MOST_NODES and not budget.spent:
            node = heapq.heappop(heap)
            # Every plan is in one of the open branches, so the least of their bounds holds for all plans.
            yield Bound(node.bound, self._proof((node, *heap)), partial(_deadlines, (node, *heap)))
            done = sum(map(len, node.groups))
            if done == len(self.jobs):
                return
            for groups in _extended(node.groups, self.jobs[done], self._groups):
                number += 1
                child = self._solved(node.program, groups, cuts, budget)
                heapq.heappush(heap, _Node(max(node.bound, child.dual().value), number, groups, child))

    def _solved(
        self, parent: CompletionProgram, groups: Groups, cuts: Sequence[LoadCuts], budget: BoundBudget
    ) -> CompletionProgram:
        program = parent.copy()
        grown = [group for group in groups if len(group) > 1]
        for group in checking_deadline(grown):
            for row in self.pairs(group, budget):
                program.add(row)
        program.solve()
        # A deque of no length runs the rounds to their end and keeps nothing.
        deque(cut_rounds(program, [*cuts, *map(self.cuts, grown)], budget), maxlen=0)
        return program

    def _proof(self, nodes: Sequence[_Node]) -> Proof:
        """Return the proof by the open branches, one of which holds; the first of them has the least bound."""
        names = [data.job.name for data in self._job_data]
        terms = [
            Term("group of the least branch", len(group), "", tuple(names[k] for k in group))
            for group in nodes[0].groups
        ]
        terms += [Term("open branches", len(nodes), "")]
        # The least few of the bounds say as much as all of them.
        bounds = ", ".join(str(bound) for bound in sorted({node.bound for node in nodes})[:8])
        arithmetic = f"min({bounds}) = {nodes[0].bound}"
        return Proof(self.reason, arithmetic, tuple(terms), tuple(names[k] for k in self.jobs), links=self.links)


def _deadlines(nodes: Sequence[_Node], limit: int) -> dict[int, int]:
    """Return the deadlines of jobs that all branches with a plan within a limit have one for."""
    # A plan within the limit is in one of these branches, and nobody knows in which. So the latest deadline of all
    # counts.
    told = [node.program.dual().deadlines(limit) for node in nodes if node.bound <= limit]
    common = set[int].intersection(*map(set, told)) if told else ()
    return {job: max(deadlines[job] for deadlines in told) for job in common}


def _extended(groups: Groups, job: int, most: int) -> Iterator[Groups]:
    """Yield the groups with one more job: in any of them, or in one of its own while there are not enough."""
    for g, group in enumerate(groups):
        yield (*groups[:g], (*group, job), *groups[g + 1 :])
    # Empty groups are alike, so that one of them is enough.
    if len(groups) < most:
        yield (*groups, (job,))


def _alone(demand: ResourceDemand) -> ResourceDemand:
    """Return what a job that uses several links at once asks of one of them."""
    rate = demand.intervals[0].rate
    intervals = tuple(interval._replace(rate=1) for interval in demand.intervals)
    free_interval = demand.free_interval and demand.free_interval._replace(rate=1)
    return ResourceDemand(
        demand.head, demand.work // rate, demand.tail, demand.offset // rate, intervals, free_interval
    )


def _bounds(context: BoundContext, known: int, budget: BoundBudget) -> Iterator[Bound]:
    """Branch on each set of jobs that do not all exclude each other."""
    shared = context.shared(SharedProgram)
    for jobs in context.shared(disjunctive_sets):
        if not jobs.single:
            yield from jobs.branch(shared.program, shared.cuts, budget)


DISJUNCTIVE_SETS = Relaxation("disjunctive_sets", _bounds, frozenset({"weighted_completion"}))
"""The relaxation registered as ``disjunctive_sets``."""


def _pair_bounds(context: BoundContext, known: int, budget: BoundBudget) -> Iterator[Bound]:
    """Yield bounds from jobs that must share a GPU, and from jobs that all exclude each other on links."""
    shared = context.shared(SharedProgram)
    for row in forced_sharing(context.job_data, budget):
        shared.program.add(row)
    for jobs in context.shared(disjunctive_sets):
        if jobs.single:
            for row in jobs.all_pairs(budget):
                shared.program.add(row)
            shared.cuts.append(jobs.cuts(jobs.jobs))
    yield from shared.solved(known, budget)


def forced_sharing(job_data: Sequence[JobData], budget: BoundBudget) -> Iterator[Inequality]:
    """Yield inequalities between the completion times of jobs that are too wide not to share a GPU."""
    classes = {id(data.job_class): data for data in job_data}
    pairs = checking_deadline(product(classes.items(), repeat=2))
    # Whether two jobs must share depends on their classes alone, and there are far fewer classes than jobs.
    forced = {(k, m) for (k, one), (m, other) in pairs if must_share_gpu(one, other)}
    for pair in checking_deadline(combinations(range(len(job_data)), 2)) if forced else ():
        one, other = (job_data[k] for k in pair)
        if (id(one.job_class), id(other.job_class)) in forced:
            reason = f"blocks of {one.job.name} and {other.job.name} on a GPU that they share"
            chains = Chain.of(one, True, None), Chain.of(other, True, None)
            names = {k: job_data[k].job.name for k in pair}
            yield from pair_inequalities(pair, *chains, reason, budget, names)


JOB_PAIRS = Relaxation("job_pairs", _pair_bounds, frozenset({"weighted_completion"}))
"""The relaxation registered as ``job_pairs``."""

"""Jobs that need several of the same links: some of them exclude each other, whichever links they take.

Among ``m`` links every job takes the same ``u`` of them for all its transfers. By the theorem of Lovasz (1978) on the
graphs of Kneser, sets of ``u`` out of ``m`` fall into ``m - 2u + 2`` classes of sets that meet pairwise, so the jobs
fall into as many groups in which all transfers exclude each other. Which group a job belongs to is branched on;
the least bound of all open branches holds.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from jigsaw_opt.problem.clock import looking
from jigsaw_opt.solvers.bounds import CompletionBound
from jigsaw_opt.solvers.bounds.completion_loads import Load, rounds
from jigsaw_opt.solvers.bounds.completion_pairs import Chain, pair_inequalities, share_a_gpu
from jigsaw_opt.solvers.bounds.completion_program import CompletionProgram, Inequality
from jigsaw_opt.solvers.bounds.demand import Demand, Resource
from jigsaw_opt.solvers.bounds.facts import Facts
from jigsaw_opt.solvers.bounds.strong.budget import Budget

__all__ = ["Contest", "contests"]

_MOST_GROUPS = 4
"""With more groups than this, hardly any jobs have to share one."""
_MOST_NODES = 2_000
"""Branches that are looked at."""

Groups = tuple[tuple[int, ...], ...]


class _Node(NamedTuple):
    """A branch: the least sum that is left to it, how it came, its groups and program."""

    bound: int
    number: int
    groups: Groups
    program: CompletionProgram


def contests(resources: Iterable[Resource], facts: Sequence[Facts]) -> list[Contest]:
    """Jobs of which some exclude each other, for each set of links and number of them that jobs need."""
    found: dict[object, Contest] = {}
    for resource in resources:
        if resource.exclusive:
            for contest in _contests(resource, facts):
                found.setdefault(contest.key, contest)
    return list(found.values())


def _contests(resource: Resource, facts: Sequence[Facts]) -> Iterator[Contest]:
    """Jobs that need so many links or more, for each number."""
    rates = {k: demand.runs[0].rate for k, demand in enumerate(resource.demands) if demand and demand.runs}
    for rate in looking(sorted(set(rates.values()), reverse=True)):
        groups = max(1, resource.capacity - 2 * rate + 2)
        jobs = [k for k, uses in rates.items() if uses >= rate]
        if groups <= min(_MOST_GROUPS, len(jobs) - 1):
            yield Contest(resource, facts, jobs, groups)


class Contest:
    """Some jobs, of which those of a group exclude each other.

    Parameters
    ----------
    resource
        The links.
    facts
        All jobs.
    jobs
        Those at issue.
    groups
        Number of groups that they fall into, at most.
    """

    def __init__(self, resource: Resource, facts: Sequence[Facts], jobs: Sequence[int], groups: int) -> None:
        self.reason, self._groups, self._facts = f"order of the {resource.reason}", groups, facts
        alone = {k: _alone(demand) for k in jobs if (demand := resource.demands[k]) is not None}
        self._demands = [alone.get(k) for k in range(len(facts))]
        self._jobs = sorted(jobs, key=lambda k: -alone[k].work)
        self._pairs: dict[tuple[int, int], list[Inequality]] = {}

    @property
    def key(self) -> object:
        """Contests with the same key say the same."""
        return self._groups, tuple(self._demands)

    @property
    def settled(self) -> bool:
        """Whether all its jobs exclude each other."""
        return self._groups == 1

    def load(self, jobs: Sequence[int]) -> Load:
        """The jobs of a group as the work of one link."""
        demands = [demand if k in jobs else None for k, demand in enumerate(self._demands)]
        return Load(Resource(1, demands, self.reason), self._facts)

    def pairs(self, jobs: Sequence[int], budget: Budget) -> Iterator[Inequality]:
        """Inequalities between the last of the jobs of a group and each of the others."""
        for k in jobs[:-1]:
            pair = k, jobs[-1]
            if pair not in self._pairs:
                crowded = share_a_gpu(self._facts[k], self._facts[jobs[-1]])
                one, other = (Chain.of(self._facts[j], crowded, self._demands[j]) for j in pair)
                self._pairs[pair] = list(pair_inequalities(pair, one, other, self.reason, budget))
            yield from self._pairs[pair]

    def settle(self, program: CompletionProgram, budget: Budget) -> Load:
        """Tell a program what holds for jobs that all exclude each other; returns their load."""
        for count in range(2, len(self._jobs) + 1):
            for row in self.pairs(self._jobs[:count], budget):
                program.add(row)
        return self.load(self._jobs)

    def branch(self, program: CompletionProgram, loads: Sequence[Load], budget: Budget) -> Iterator[CompletionBound]:
        """Rising bounds that hold however the jobs fall into groups: best-first branch and bound."""
        heap = [_Node(program.bound(), 0, (), program)]
        number = 0
        while heap and number < _MOST_NODES and not budget.spent:
            node = heapq.heappop(heap)
            yield CompletionBound(node.bound, self.reason, partial(_latest_ends, (node, *heap)))
            done = sum(map(len, node.groups))
            if done == len(self._jobs):
                return
            for groups in _extended(node.groups, self._jobs[done], self._groups):
                number += 1
                child = self._solved(node.program, groups, loads, budget)
                heapq.heappush(heap, _Node(max(node.bound, child.bound()), number, groups, child))

    def _solved(
        self, parent: CompletionProgram, groups: Groups, loads: Sequence[Load], budget: Budget
    ) -> CompletionProgram:
        program = parent.copy()
        grown = [group for group in groups if len(group) > 1]
        for group in looking(grown):
            for row in self.pairs(group, budget):
                program.add(row)
        program.solve()
        deque(rounds(program, [*loads, *map(self.load, grown)], budget), maxlen=0)
        return program


def _latest_ends(nodes: Sequence[_Node], limit: int) -> dict[int, int]:
    """Latest ends of jobs that all branches with a plan within a limit have one for."""
    told = [node.program.proof().latest_ends(limit) for node in nodes if node.bound <= limit]
    common = set[int].intersection(*map(set, told)) if told else ()
    return {job: max(ends[job] for ends in told) for job in common}


def _extended(groups: Groups, job: int, most: int) -> Iterator[Groups]:
    """The groups with one more job: in any of them, or in one of its own while there are not enough."""
    for g, group in enumerate(groups):
        yield (*groups[:g], (*group, job), *groups[g + 1 :])
    if len(groups) < most:
        yield (*groups, (job,))


def _alone(demand: Demand) -> Demand:
    """What a job that uses several links at once asks of one of them."""
    rate = demand.runs[0].rate
    runs = tuple(run._replace(rate=1) for run in demand.runs)
    spare = demand.spare and demand.spare._replace(rate=1)
    return Demand(demand.head, demand.work // rate, demand.tail, demand.lag // rate, runs, spare)

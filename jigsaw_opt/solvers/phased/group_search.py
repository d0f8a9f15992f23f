"""Search for the best phases of each group of jobs that share anything, by one policy after another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from jigsaw_opt.checking import violations
from jigsaw_opt.documents import instance_sha256
from jigsaw_opt.problem.depth import FullDepth
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.plan import Phase, PhaseGroup, Plan
from jigsaw_opt.problem.rules.keyed import altered
from jigsaw_opt.solvers.phased.phases import Jobs, RunningRule, Timing, phases_of
from jigsaw_opt.solvers.phased.timer import UntimedError
from jigsaw_opt.solvers.resolve.values import value_of

_NOT_YET = (2**62, 0)
"""Lateness and objective before there are phases."""
_NOT_OF_PHASES = ("deadline", "objective", "bound")
"""Rules that say nothing of whether phases fit together."""


class GroupSearch:
    """The best phases of a group so far, how late and how good they are, and the policies that are left to try.

    The first is among them again, as there may be better cyclic plans of its phases by then.
    """

    def __init__(self, instance: Instance, jobs: Jobs, ways: Iterator[RunningRule], timing: Timing) -> None:
        self._instance, self._jobs, self._timing = instance, jobs, timing
        # Each cyclic plan keeps all rules by itself. A worker whose level is deeper in one phase takes the memory for
        # it in all of them, which only different levels of a job can bring about. A job that pauses between two phases
        # keeps what it holds.
        levels = any(not isinstance(job.depth, FullDepth) for job in jobs.values())
        self._may_clash = levels or bool(instance.scarce_capacities)
        self.phases, self.value = list[Phase](), _NOT_YET
        first = next((policy for policy in ways if self._takes(policy)), None)
        if first is None:
            raise UntimedError("no policy has phases that fit together")
        self._ways = chain([first], ways)

    def may_help(self, bound: int) -> bool:
        """Return whether a better group may make a better plan."""
        # A group that ends by the bound cannot lower the last end of all. In a sum, every group counts.
        return self._instance.objective != "makespan" or self.value > (0, bound)

    def step(self) -> bool:
        """Try a policy; return whether there was one left."""
        policy = next(self._ways, None)
        if policy is None:
            return False
        self._takes(policy)
        return True

    def _takes(self, policy: RunningRule) -> bool:
        """Take the phases by a policy where they are better and fit together; return whether they are taken."""
        phases = phases_of(self._jobs, policy, self._timing)
        value = value_of(self._instance, self._jobs, phases)
        if value >= self.value or (self._may_clash and not self._fit(phases)):
            return False
        self.value, self.phases = value, phases
        return True

    def _fit(self, phases: Sequence[Phase]) -> bool:
        """Return whether phases keep all rules together, deadlines aside."""
        own = altered(self._instance, jobs=tuple(self._jobs.values()))
        plan = Plan(own.name, instance_sha256(own), "feasible", 0, 0, (PhaseGroup(tuple(phases)),))
        return all(violation.rule in _NOT_OF_PHASES for violation in violations(own, plan))


def refine(groups: Sequence[GroupSearch]) -> None:
    """Let the groups, those that count most first, try a policy each."""
    for group in sorted(groups, key=lambda group: group.value, reverse=True):
        group.step()


def improve(groups: Sequence[GroupSearch], bound: int) -> None:
    """Let the groups try policies in turn."""
    left = list(groups)
    while left:
        left = [group for group in left if group.may_help(bound) and group.step()]


@dataclass(frozen=True, slots=True)
class PlacedGroups:
    """Groups of one placement, what made it, whether the last end counts or the sum, and whether jobs move."""

    name: str
    gpus: Mapping[str, Sequence[str]]
    groups: Sequence[GroupSearch]
    last: bool
    moves: bool

    @property
    def rank(self) -> tuple[int, int]:
        """Return how late jobs are in all, then the objective."""
        # Lateness comes first: the least objective is of no use where a deadline is missed.
        values = [group.value for group in self.groups]
        parts = [part for _, part in values]
        return sum(late for late, _ in values), max(parts) if self.last else sum(parts)

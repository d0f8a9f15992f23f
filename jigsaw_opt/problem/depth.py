"""Depth rules: which levels the workers of a job may take (specification: depth-rules).

Above this room a rule is known by its `LevelRule` alone, so a rule of one's own is a class here or, as a plug-in, in a
package of its own: an entry point of the group ``jigsaw_opt.depth_rules`` whose name is the rule's name in documents.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Self

from jigsaw_opt.errors import UsageError
from jigsaw_opt.problem.costs import ceil_fraction, staircase
from jigsaw_opt.problem.rules.keyed import Keyed
from jigsaw_opt.system.plugins import blamed, load, registered

if TYPE_CHECKING:
    from jigsaw_opt.problem.efficiency import ProgressLimit

GROUP = "jigsaw_opt.depth_rules"


@dataclass(frozen=True, slots=True)
class LevelRule:
    """A depth rule in numbers (specification: depth-rules).

    `multiset`: levels of the slots in every iteration, ascending, in an order to be chosen; None where they may differ.
    `min_contributors`: least number of slots that reach each bucket in every iteration. `min_total`: least sum of all
    levels over all slots and iterations. `balance`: largest difference between the level totals of two slots, or None.
    `progress`: least progress of all iterations, or None; what follows from it for the other limits is in them.
    """

    multiset: tuple[int, ...] | None
    min_contributors: int
    min_total: int
    balance: int | None
    progress: ProgressLimit | None = None

    @classmethod
    def fixed(cls, levels: tuple[int, ...], iterations: int) -> Self:
        """Return the rule with the same levels in every iteration, ascending, the deepest of them full."""
        return cls(levels, levels.count(levels[-1]), sum(levels) * iterations, None)

    def fits(self, workers: int, deepest: int) -> bool:
        """Return whether every worker gets a level that the model has, and every bucket a contributor."""
        levels = self.multiset
        if levels is None:
            return 1 <= self.min_contributors <= workers
        ascending = all(low <= high for low, high in pairwise(levels))
        return ascending and len(levels) == workers and levels[0] >= 1 and levels[-1] == deepest


class Depth(Keyed, ABC):
    """A depth rule: a frozen dataclass, whose fields are the keys beside ``rule`` in documents; None is left out.

    The job that has it checks it.
    """

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Any]]
    rule: ClassVar[str]

    @abstractmethod
    def limits(self, workers: int, deepest: int, iterations: int) -> LevelRule:
        """Return the rule in numbers.

        Parameters
        ----------
        workers
            Number of workers of the job.
        deepest
            Number of levels of its model, ``D``.
        iterations
            Number of its iterations.
        """

    def keyed(self) -> dict[str, Any]:
        """Return it as it stands under ``depth`` in an instance."""
        return {"rule": self.rule, **Keyed.keyed(self)}


@dataclass(frozen=True, slots=True)
class FullDepth(Depth):
    """Every worker at level D in every iteration."""

    rule: ClassVar[str] = "full"

    def limits(self, workers: int, deepest: int, iterations: int) -> LevelRule:
        """Return one level for all.

        Parameters
        ----------
        workers
            Number of workers of the job.
        deepest
            Number of levels of its model, ``D``.
        iterations
            Number of its iterations.
        """
        return LevelRule.fixed((deepest,) * workers, iterations)


@dataclass(frozen=True, slots=True)
class StaircaseDepth(Depth):
    """In every iteration the levels are ``ceil(D*k/w)`` for ``k = 1..w``; who takes which is free.

    Parameters
    ----------
    levels
        Other levels, one for each worker, which never fall, the last one D; None for those above.
    """

    rule: ClassVar[str] = "staircase"
    levels: tuple[int, ...] | None = None

    def limits(self, workers: int, deepest: int, iterations: int) -> LevelRule:
        """Return the steps of the staircase.

        Parameters
        ----------
        workers
            Number of workers of the job.
        deepest
            Number of levels of its model, ``D``.
        iterations
            Number of its iterations.
        """
        return LevelRule.fixed(self.levels or staircase(deepest, workers), iterations)


@dataclass(frozen=True, slots=True)
class FreeDepth(Depth):
    """Any levels that keep gradient coverage, mean depth, balance and progress.

    Parameters
    ----------
    min_contributors
        Least number of workers that reach each bucket in each iteration.
    mean_depth
        The least mean level as a share of D, as given: an integer, ``"3/5"``, or None for ``(w+1)/(2w)``, with
        `min_progress` for 0.
    balance
        Largest difference between the level totals of two workers; None for no limit.
    min_progress
        The least progress of all iterations as a share of that at full depth, as given like `mean_depth`; None for no
        limit (specification: progress).
    """

    rule: ClassVar[str] = "free"
    min_contributors: int = 1
    mean_depth: int | str | None = None
    balance: int | None = None
    min_progress: int | str | None = None

    def mean(self, workers: int) -> Fraction:
        """Return the least mean depth of a job of `workers` workers as an exact fraction."""
        if self.mean_depth is None:
            return Fraction(workers + 1, 2 * workers) if self.min_progress is None else Fraction(0)
        return Fraction(self.mean_depth)

    def limits(self, workers: int, deepest: int, iterations: int) -> LevelRule:
        """Return coverage, mean depth and balance, in levels.

        Parameters
        ----------
        workers
            Number of workers of the job.
        deepest
            Number of levels of its model, ``D``.
        iterations
            Number of its iterations.
        """
        total = ceil_fraction(self.mean(workers) * deepest * workers * iterations)
        return LevelRule(None, min(self.min_contributors, workers), total, self.balance)


class DepthPlugin(Depth):
    """A depth rule of one's own; it is checked by itself, since the specification does not know it.

    Class attributes: `rule`, its name in documents, and `keys`, the JSON Schema of each of its fields.
    """

    __slots__ = ()
    keys: ClassVar[Mapping[str, Any]] = {}

    @abstractmethod
    def broken(self, levels: Sequence[Sequence[int]], deepest: int) -> str | None:
        """Return what a plan breaks, or None.

        It must not be worked out from `limits`, so that an error in one shows.

        Parameters
        ----------
        levels
            Level of each worker (second index) in each iteration (first index), from 1 to `deepest`.
        deepest
            Number of levels of the model.
        """


def naming(rule: Depth) -> AbstractContextManager[None]:
    """Let an exception of the block, which asks a depth rule of one's own, name the rule."""
    return blamed("depth rule", rule.rule, type(rule))


CHOICES = ("full", "staircase", "rotation", "free")
"""Names of `chosen_depth`: what a command offers that chooses a depth rule."""


def chosen_depth(name: str, workers: int, deepest: int, iterations: int) -> Depth:
    """Return the depth rule that a name in `CHOICES` stands for.

    ``rotation`` is the free rule with a balance: the least mean level is that of the staircase, and the level totals of
    two workers differ at most as much as where every step of the staircase moves on to the next worker in each
    iteration.
    """
    if name != "rotation":
        return depth_class(name)()
    steps = staircase(deepest, workers)
    totals = [
        sum(steps[(worker + turn) % workers] for turn in range(iterations % workers)) for worker in range(workers)
    ]
    return FreeDepth(balance=max(totals) - min(totals))


_BUILT_IN: Mapping[str, type[Depth]] = {each.rule: each for each in (FullDepth, StaircaseDepth, FreeDepth)}


@cache
def plugins() -> tuple[str, ...]:
    """Return the names of the plug-ins that are installed, sorted; none of them is loaded."""
    return registered(GROUP)


@cache
def depth_class(rule: str) -> type[Depth]:
    """Return the class of a depth rule by its name in documents."""
    if rule in _BUILT_IN:
        return _BUILT_IN[rule]
    found = load(GROUP, "depth rule", rule)
    if not (isinstance(found, type) and issubclass(found, DepthPlugin) and found.rule == rule):
        told = f"the entry point {rule!r} of {GROUP} names no depth rule {rule!r}"
        raise UsageError(told, code="mismatch", path="depth")
    return found

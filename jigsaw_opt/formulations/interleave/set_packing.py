"""The program: how many groups of each make, so that every job is in one and the GPUs suffice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations_with_replacement
from typing import TYPE_CHECKING

from jigsaw_opt.formulations.interleave.rotation import MOST_JOBS, Group, Timing
from jigsaw_opt.formulations.interleave.rounds import throughputs

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_CHUNK = 20_000
"""Columns whose values are found at once; the arrays of more would not stay in the cache, and of all not in memory."""


@dataclass(frozen=True, slots=True)
class GroupPacking:
    """Maximise ``values @ x``: each part as often as it is there, the GPUs within their number, ``x`` integer.

    `parts, counts`: what groups are made of, and how often it is there. `columns`: makes of groups: indices of the
    parts of each, filled up with -1. `values`: normalised throughput of a group of each make. `gpus`: GPUs of a group
    of each make.
    """

    parts: tuple[Group, ...]
    counts: tuple[int, ...]
    columns: NDArray[np.int64]
    values: NDArray[np.float64]
    gpus: NDArray[np.int64]
    capacity: int

    def groups(self, solution: Mapping[int, int]) -> Counter[Group]:
        """Return the groups of a solution, which says how often each column is taken, by its index."""
        found: Counter[Group] = Counter()
        for column, number in solution.items():
            found[_joined(self.parts, (int(part) for part in self.columns[column] if part >= 0))] += number
        return found


def build(parts: Mapping[Group, int], most_parts: int, capacity: int, timing: Timing) -> GroupPacking:
    """Build the program over all groups that some parts make up.

    `parts`: single jobs, or groups to be merged, with their numbers. `most_parts`: parts of a group at most:
    `MOST_JOBS` for groups of single jobs, 2 for a matching. `capacity`: GPUs that there are. `timing`: how the jobs of
    a group take turns.
    """
    import numpy as np

    makes: dict[int, list[tuple[int, ...]]] = {}
    items = list(parts)
    for column in _columns(parts, most_parts):
        # Groups of as many jobs are timed together, in one array.
        makes.setdefault(sum(len(items[part]) for part in column), []).append(column)
    values = [_values([_joined(items, column) for column in columns], timing) for columns in makes.values()]
    columns = list(chain.from_iterable(makes.values()))
    filled = [column + (-1,) * (most_parts - len(column)) for column in columns]
    gpus = [items[column[0]][0].gpus for column in columns]
    return GroupPacking(
        tuple(items), tuple(parts.values()), np.array(filled), np.concatenate(values), np.array(gpus), capacity
    )


def _columns(parts: Mapping[Group, int], most_parts: int) -> Iterator[tuple[int, ...]]:
    """Yield multisets of parts of equal GPUs, no part more often than it is there, no group too large."""
    sizes, counts = [len(group) for group in parts], list(parts.values())
    alike: dict[int, list[int]] = {}
    for index, group in enumerate(parts):
        alike.setdefault(group[0].gpus, []).append(index)
    for same in alike.values():
        # Only these can stand in a column more often than they are there.
        scarce = {index for index in same if counts[index] < most_parts}
        for number in range(1, most_parts + 1):
            for column in combinations_with_replacement(same, number):
                if sum(sizes[part] for part in column) > MOST_JOBS:
                    continue
                if scarce.isdisjoint(column) or all(column.count(part) <= counts[part] for part in set(column)):
                    yield column


def _values(groups: list[Group], timing: Timing) -> NDArray[np.float64]:
    """Return the normalised throughput of groups of one size."""
    import numpy as np

    chunks = [groups[start : start + _CHUNK] for start in range(0, len(groups), _CHUNK)]
    return np.concatenate([throughputs(chunk, timing) for chunk in chunks])


def _joined(items: Sequence[Group], column: Iterable[int]) -> Group:
    """Return the jobs of some parts, in an order that is the same for the same jobs."""
    return tuple(sorted(job for part in column for job in items[part]))

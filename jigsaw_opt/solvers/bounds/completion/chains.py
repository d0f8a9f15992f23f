"""Two jobs that get in each other's way on a GPU, on links or on both: all pairs of completion times worth having.

Each job is a chain of steps with the least times between them, and the order in which the two chains merge is all that
is left to decide. The states of that are pairs of numbers of steps done. A state keeps the *labels* that none other
dominates, as in a shortest path with several costs (Desrochers and Soumis, 1988).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple

from jigsaw_opt.problem.compiled import critical
from jigsaw_opt.problem.costs import EXACT_IN_64_BITS, lower_hull
from jigsaw_opt.solvers.bounds.completion.program import Inequality
from jigsaw_opt.solvers.bounds.job_data import JobData
from jigsaw_opt.solvers.bounds.relaxation import BoundBudget
from jigsaw_opt.solvers.bounds.resource_demands import ResourceDemand

_MOST_STATES = 2_500
"""Chains with more pairs of transfers are not merged: each pair is a state with its labels."""
_MOST_LABELS = 400
"""Largest number of labels of a state. Beyond it neighbours are merged into one label that is no worse than either.
With 150 labels one bound of seven was worse by 1.5 %."""
_STATE_WORK = 5e-5
"""Seconds for a state with a few labels."""
_COMPARISON_WORK = 1.5e-8
"""Seconds for the comparison of two labels of a state."""
_SHORTEST = 100
"""Transfers shorter than one over this of an iteration are left out, unless all are that short: they add states, and
hardly anything to the bound."""

Label = tuple[int, ...]
"""Four numbers of each job (see `Chain.proceed`), and when GPU and link are free."""


class Step(NamedTuple):
    """A step of a job on the GPU or the link that it shares.

    `length, hold`: how long it takes until the next step may start, and until the other job may have the GPU or the
    link. A step of no length is in nothing's way. `before, after`: least time from the iteration's start to its start,
    and, of the last step, from its end to the iteration's end.
    """

    on_link: bool
    length: int
    hold: int
    before: int
    after: int


class Chain(NamedTuple):
    """A job as its steps one after the other.

    `release, iterations, length`: moment before which nothing starts, number of iterations, and least length of one, in
    microseconds. `free_work, room`: time on the link beyond that of all steps, and most of it in an iteration.
    """

    release: int
    iterations: int
    length: int
    steps: tuple[Step, ...]
    free_work: int = 0
    room: int = 0

    @classmethod
    def of(cls, data: JobData, on_gpu: bool, alone: ResourceDemand | None) -> Chain:
        """Build the chain of a job that shares a GPU, a link, or both with another job.

        The worker on the GPU has the least level that the rule allows, and bucket 1 is not ready before that worker has
        it.

        `alone`: what it asks of the link that is shared; None where no link is.
        """
        level = critical.least_levels(data.job)[0]
        blocks = [times for times in data.job_class.blocks.values() if len(times) >= level]
        block = min((times[level - 1] for times in blocks), default=0)
        ready = min((times[0] for times in blocks), default=0) if alone else block
        steps = [Step(False, ready, block, 0, data.job_class.tails[level - 1])] if on_gpu else []
        n, length, release = data.job.iterations, data.job_class.iteration, data.job.release_us
        if alone is None:
            return cls(release, n, length, tuple(steps))
        lasting = [interval for interval in alone.intervals if interval.length * _SHORTEST > length] or alone.intervals
        steps += [Step(True, each.length, each.length, each.before, each.after) for each in lasting]
        room = alone.free_interval.work if alone.free_interval else 0
        return cls(release, n, length, tuple(steps), alone.free_work(n), room)

    @property
    def size(self) -> int:
        """Return the number of steps of all iterations."""
        return self.iterations * len(self.steps)

    def exchanging(self, done: int) -> bool:
        """Return whether the first transfer of an iteration is over and the last is not."""
        at = done % len(self.steps)
        return at > 0 and self.steps[at - 1].on_link

    def proceed(self, done: int, state: Label, free: Label) -> tuple[Label, Label]:
        """Do the next step as early as possible, and return the new `state` and `free`.

        `state`: start of the iteration, end of the last step, time that the iteration has lost to the other job and
        that free work cannot fill, and minus the free work that has cost no time so far. `free`: moments from which no
        step of the other job is in the way on the GPU, and on the link.
        """
        began, ended, lost, saved = state
        at, full = done % len(self.steps), done // len(self.steps)
        step = self.steps[at]
        # A boolean is the index here: 0 is the GPU, 1 the link.
        start = max(ended, began + step.before, free[step.on_link] if step.length else 0)
        end = start + step.length
        if step.length:
            released = start + step.hold
            free = (free[0], released) if step.on_link else (released, free[1])
        if step.on_link and not self.exchanging(done):
            lost = start - began - step.before
            saved = self._saved(saved, lost, full)
        if at + 1 < len(self.steps):
            return (began, end, lost, saved), free
        # An iteration takes its least length even where its steps would allow less.
        barrier = max(end + step.after, began + self.length)
        return (barrier, barrier, 0, self._saved(saved, barrier - began - lost - self.busy, full + 1)), free

    def _saved(self, saved: int, wait: int, iterations: int) -> int:
        """Return minus the free work of so many iterations that may have filled this wait or those before."""
        return max(saved - wait, -min(self.free_work, iterations * self.room))

    @property
    def busy(self) -> int:
        """Return the least time from an iteration's start to its first transfer, plus the length of its transfers."""
        transfers = [step for step in self.steps if step.on_link]
        return sum(step.length for step in transfers) + (transfers[0].before if transfers else 0)

    def completion(self, state: Label) -> int:
        """Return the completion time of the job: free work that was not saved is added to its last end."""
        return state[1] + self.free_work + state[3]


def must_share_gpu(first: JobData, second: JobData) -> bool:
    """Return whether two jobs have more workers than there are GPUs for both of them."""
    gpus = {**first.job_class.gpus, **second.job_class.gpus}
    both = all(data.job_class.blocks for data in (first, second))
    return both and first.job.slots + second.job.slots > sum(gpus.values())


def pair_inequalities(
    jobs: tuple[int, int],
    one: Chain,
    other: Chain,
    reason: str,
    budget: BoundBudget,
    pair: Mapping[int, str] | None = None,
) -> Iterator[Inequality]:
    """Yield inequalities between the completion times of two jobs, from the lower convex hull of their pairs.

    `pair`: names of the jobs by index, where all that they share is a GPU.
    """
    states = one.size * other.size
    if budget.spent or not 0 < states <= _MOST_STATES:
        return
    first, second = jobs
    # A sum of both ends with positive factors is least at a corner of the hull, so that the sides of the hull hold for
    # all pairs.
    hull = lower_hull(_completions(one, other, budget))
    yield Inequality({first: 1}, hull[0][0], reason, pair)
    yield Inequality({second: 1}, hull[-1][1], reason, pair)
    for (x, y), (later, earlier) in pairwise(hull):
        rise, width = y - earlier, later - x
        yield Inequality({first: rise, second: width}, rise * x + width * y, reason, pair)


def _completions(one: Chain, other: Chain, budget: BoundBudget) -> list[tuple[int, int]]:
    """Return the completion times of both jobs in all schedules that no other dominates, by ascending first one."""
    row: list[list[Label]] = []
    # Row i has the states in which the first job has done i steps; entry k of it, those with k steps of the other job.
    # A label has four numbers of each job (see `Chain.proceed`), and when GPU and link are free.
    for i in range(one.size + 1):
        before, row = row, []
        for k in range(other.size + 1):
            labels: set[Label] = set()
            if i == k == 0:
                labels.add((one.release, one.release, 0, 0, other.release, other.release, 0, 0, 0, 0))
            if i:
                labels.update(_after(one, i - 1, other, k, label) for label in before[k])
            if k:
                labels.update(_swapped(_after(other, k - 1, one, i, _swapped(label))) for label in row[k - 1])
            budget.charge(_STATE_WORK + _COMPARISON_WORK * len(labels) ** 2)
            row.append(_undominated(labels))
    found: list[tuple[int, int]] = []
    for x, y in sorted((one.completion(label[:4]), other.completion(label[4:8])) for label in row[-1]):
        # Sorted by the first end, a pair is dominated unless its second end is the earliest so far.
        if not found or y < found[-1][1]:
            found.append((x, y))
    return found


def _after(chain: Chain, done: int, other: Chain, other_done: int, label: Label) -> Label:
    """Return the label after one more step of the first job."""
    state, free = chain.proceed(done, label[:4], label[8:])
    began, ended, lost, saved = label[4:8]
    step = chain.steps[done % len(chain.steps)]
    if other.free_work and step.on_link and other.exchanging(other_done):
        lost += step.length
    return *state, began, ended, lost, saved, *free


def _swapped(label: Label) -> Label:
    return *label[4:8], *label[:4], *label[8:]


def _undominated(labels: set[Label]) -> list[Label]:
    """Return the labels that no other dominates in every component; merge them in pairs where they are too many."""
    if len(labels) == 1:
        return list(labels)
    import numpy as np

    largest = max(*map(max, labels), *(-min(label) for label in labels))
    table = np.array(sorted(labels), dtype=np.int64 if largest <= EXACT_IN_64_BITS else object)
    # Labels come from a set, so that no two are equal and drop out by each other.
    dominates = ~np.eye(len(table), dtype=bool)
    for column in table.T:
        dominates &= (column[:, None] <= column[None, :]).astype(bool)
    kept: list[Label] = [tuple(row) for row in table[~dominates.any(axis=0)].tolist()]
    # The minimum of two labels in every number dominates both, so the completion times remain lower bounds.
    while len(kept) > _MOST_LABELS:
        kept = [tuple(map(min, *kept[k : k + 2])) if k + 1 < len(kept) else kept[k] for k in range(0, len(kept), 2)]
    return kept

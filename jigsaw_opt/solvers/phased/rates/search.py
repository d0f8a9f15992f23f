"""Local search over the order of jobs and their GPUs, each judged by when jobs at rates end."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import islice, takewhile
from math import exp

from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.solvers.phased.rates.jobs import RateJob
from jigsaw_opt.solvers.phased.rates.model import RateModel
from jigsaw_opt.solvers.phased.timer import PhaseTimer

_PATIENCE = 30
"""Number of steps per job without a better value after which a search ends."""
_TEMPERATURE, _COOLING = 0.02, 0.05
"""Initial temperature, as a share of the mean loss of a job by the others; and the share by which it falls in as many
steps as there are jobs."""
_SHARE = 0.25
"""Share of the time that is left for one search."""
_RELOCATED, _AGAIN = 0.4, 0.9
"""Share of steps that give a job other GPUs, and share of these with GPUs that were offered to it before."""
_TRIED = 6
"""Sets of GPUs that are tried for a job when all are placed one after another."""
_WORK_OF_PAIR = 1e-6
"""Deterministic units for the ends of an order, by the square of the number of jobs."""
_LATE = 1e6
"""Price of a microsecond behind a deadline, beside one of the objective."""


class RateSearch:
    """Orders of jobs on their GPUs.

    `instance, model`: the instance, and its jobs at rates. `timer`: says when a search has had its share of the time
    that is left.
    """

    def __init__(self, instance: Instance, model: RateModel, rng: random.Random, timer: PhaseTimer) -> None:
        self._last = instance.objective == "makespan"
        self._model, self._rng, self._timer = model, rng, timer
        self._index = {job.name: k for k, job in enumerate(model.jobs)}
        self._offered: list[dict[tuple[str, ...], RateJob]] = [{} for _ in self._index]

    def value(self, order: Sequence[RateJob]) -> float:
        """Return the objective plus a high price of lateness."""
        self._timer.spend(_WORK_OF_PAIR * len(order) ** 2)
        ends = self._model.rate_jobs.ends_us(order)
        # A deadline is never 0, so that only jobs without any are left out.
        late = sum(max(0.0, end - job.deadline_us) for job, end in zip(order, ends, strict=True) if job.deadline_us)
        weighted = (job.weight * end for job, end in zip(order, ends, strict=True))
        return _LATE * late + (max(ends) if self._last else sum(weighted))

    def last_end_us(self, order: Sequence[RateJob]) -> float | None:
        """Return the makespan in microseconds where that is the objective, else None."""
        return max(self._model.rate_jobs.ends_us(order)) if self._last else None

    def first_order(self, jobs: Sequence[RateJob]) -> list[RateJob]:
        """Return the jobs by Smith's rule, with the time that a job takes of all its GPUs.

        For a makespan, the longest job comes first.
        """
        if self._last:
            return sorted(jobs, key=lambda job: -job.alone_us)
        return sorted(jobs, key=lambda job: job.alone_us * len(job.gpus) / job.weight)

    def _soonest_first(self, order: Sequence[RateJob]) -> list[RateJob]:
        """Return the same jobs in the order of their ends, if that is better.

        A job that ends late in any case may as well wait.
        """
        ends = self._model.rate_jobs.ends_us(order)
        sooner = [order[k] for k in sorted(range(len(order)), key=ends.__getitem__)]
        return min([*order], sooner, key=self.value)

    def placed_in_turn(self, jobs: Sequence[RateJob]) -> list[RateJob]:
        """Return the same jobs, each in turn where the value of those so far is least."""
        order: list[RateJob] = []
        stop = self._timer.deadline(_SHARE)
        for job in self.first_order(jobs):
            tried = [job] if job.options or stop() else [job, *islice(self._elsewhere(job, order), _TRIED)]
            order.append(min(tried, key=lambda one: self.value([*order, one])) if len(tried) > 1 else job)
        return self._soonest_first(order) if any(job.options for job in order) else order

    def improved(self, order: Sequence[RateJob]) -> list[RateJob]:
        """Return the best order and placement that simulated annealing finds from one."""
        stop = self._timer.deadline(_SHARE)
        now = best = list(order)
        value = least = self.value(now)
        # Where jobs do not lose anything by one another the loss is 0, by which the test below would divide.
        temperature, fruitless = max(1e-9, _TEMPERATURE * self._mean_loss(order, value)), 0
        while fruitless < _PATIENCE * len(order) and not stop():
            fruitless += 1
            temperature *= 1 - _COOLING / len(order)
            after = self._step(now)
            found = self.value(after) if after is not None else value
            # The Metropolis test. The minimum keeps `exp` from overflow where the step is a gain.
            if after is None or self._rng.random() >= exp(min(0.0, (value - found) / temperature)):
                continue
            now, value = after, found
            # Sums of floats in another order differ in the last digits, which is no better value.
            if value < least * (1 - 1e-9):
                best, least, fruitless = now, value, 0
        return best

    def _step(self, order: Sequence[RateJob]) -> list[RateJob] | None:
        """Return a changed order, None for no change.

        Two jobs change places, or one job goes elsewhere in the order or to other GPUs.
        """
        rng, after = self._rng, list(order)
        at, kind = rng.randrange(len(after)), rng.random()
        if kind < _RELOCATED and not after[at].options:
            found = self._others(after[at], after)
            if not found:
                return None
            after[at] = rng.choice(found)
            return after
        to = rng.randrange(len(after))
        if kind < (1 + _RELOCATED) / 2:
            after[at], after[to] = after[to], after[at]
        else:
            after.insert(to, after.pop(at))
        return after if at != to else None

    def _mean_loss(self, order: Sequence[RateJob], value: float) -> float:
        """Return the mean rise of a job's value by the other jobs; of a makespan, the rise of the last end."""
        # No job ends sooner than alone, so all that is above these ends is due to others.
        alone = [job.release_us + job.alone_us for job in order]
        if self._last:
            return value - max(alone)
        return (value - sum(job.weight * end for job, end in zip(order, alone, strict=True))) / len(order)

    def _others(self, job: RateJob, order: Sequence[RateJob]) -> list[RateJob]:
        """Return a job on other GPUs: mostly on some that it was offered before, as new ones take longer to find."""
        offered = self._offered[self._index[job.name]]
        if not offered or self._rng.random() >= _AGAIN:
            found = list(takewhile(lambda _: not self._timer.is_over, self._elsewhere(job, order)))
            offered.update((one.gpus, one) for one in found)
            return found
        return [one for one in offered.values() if one is not job]

    def _elsewhere(self, job: RateJob, others: Sequence[RateJob]) -> Iterator[RateJob]:
        placed: list[RateJob | None] = [None] * len(self._index)
        for other in others:
            placed[self._index[other.name]] = other
        found = self._model.elsewhere(self._index[job.name], placed)
        return (one for one in found if set(one.gpus) != set(job.gpus))

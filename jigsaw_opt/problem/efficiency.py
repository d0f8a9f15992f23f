"""What an iteration at lower levels is worth: its progress, beside one at full depth (specification: efficiency)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from jigsaw_opt.problem.costs import contributors, lower_hull, staircase
from jigsaw_opt.problem.rules.part import CheckedPart

if TYPE_CHECKING:
    from jigsaw_opt.problem.instance import Instance
    from jigsaw_opt.problem.plan import Plan

MILLION = 1_000_000
"""Progress of a bucket to which all workers contribute."""
_NOISE_UNIT = 1000


@dataclass(frozen=True, slots=True)
class Efficiency(CheckedPart, definition="efficiency"):
    """How noisy the gradients of a model are, and how much each bucket matters.

    An average of noisy gradients is worth what McCandlish et al. (2018, equation 2.10) say of a batch: with noise scale
    ``f``, in batches of a worker, ``c`` workers make ``c / (c + f)`` of the progress without noise.

    Parameters
    ----------
    noise_scale
        By bucket, the variance of a worker's gradient, summed over its numbers, over the squared length of its mean,
        in thousandths.
    weight
        By bucket, its part in the decrease of the loss: the squared length of the mean gradient, in any unit.
    """

    noise_scale: tuple[int, ...]
    weight: tuple[int, ...]

    def of_bucket(self, bucket: int, count: int | Fraction, workers: int) -> int:
        """Return the progress of a bucket, beside that with all workers as contributors, in millionths, rounded down.

        Parameters
        ----------
        bucket
            Its number, from 1.
        count, workers
            Number of contributors, from 0, and of workers. Half of a contributor has half of a worker's batch.
        """
        noise = self.noise_scale[bucket - 1]
        if not count:
            return 0
        return MILLION * count * (_NOISE_UNIT * workers + noise) // (workers * (_NOISE_UNIT * count + noise))

    def progress(self, levels: Sequence[int], batch: int | Fraction = 1) -> int:
        """Return the progress of an iteration with these levels of the workers, in millionths of `most`'s unit.

        It is the sum over the buckets of progress times weight; at full depth it is `most`.

        Parameters
        ----------
        levels
            Level of each worker.
        batch
            Share of its batch that each worker takes.
        """
        return sum(
            weight * self.of_bucket(bucket, contributors(levels, bucket) * batch, len(levels))
            for bucket, weight in enumerate(self.weight, 1)
        )

    @property
    def most(self) -> int:
        """Progress of an iteration at full depth."""
        return MILLION * sum(self.weight)


@dataclass(frozen=True, slots=True)
class Payoff:
    """What levels of the workers cost and gain in each iteration, beside full depth.

    `levels`: level of each worker; if `frozen`, of all workers in turn, as parts are frozen one after the other from
    the input on, in equal times. `time, progress`: shares of the GPU-time and of the progress of full depth.
    `smaller_batch`: progress at full depth with a batch so small that it takes this GPU-time; 0 where none does.
    `is_sure`: whether the levels pay, or do not, with every noise scale that is to be reckoned with.
    """

    levels: tuple[int, ...]
    time: Fraction
    progress: Fraction
    smaller_batch: Fraction
    frozen: bool = False
    is_sure: bool = True

    @property
    def pays(self) -> bool:
        """Whether the levels make more progress than full depth in the same GPU-time, with these noise scales."""
        return self.progress > max(self.time, self.smaller_batch)

    @property
    def verdict(self) -> str:
        """Whether the levels pay, or what pays more."""
        if self.progress == self.time == 1:
            return "full depth"
        if not self.is_sure:
            return "undecided: the noise is not known well enough"
        if self.progress <= self.time:
            return "does not pay: fewer iterations at full depth make more progress"
        if self.progress <= self.smaller_batch:
            return "does not pay: a smaller batch at full depth makes more progress"
        return "pays"

    @property
    def cells(self) -> tuple[str, ...]:
        """Cells of a table with the heads `PAYOFF_HEADS`."""
        shares = (self.time, self.progress, self.smaller_batch)
        levels = " ".join(f"{times}x{level}" for level, times in sorted(Counter(self.levels).items(), reverse=True))
        return (
            f"frozen in turn from level {self.levels[0]}" if self.frozen else levels,
            *(f"{float(share):.1%}" for share in shares),
            f"{float(self.time / self.progress):.2f}" if self.progress else "inf",
            self.verdict,
        )


PAYOFF_HEADS = ("levels", "GPU-time", "progress", "by a smaller batch", "GPU-time for progress", "verdict")


def payoffs(
    efficiency: Efficiency,
    times: Sequence[int],
    workers: int,
    fixed_share: Fraction | None = None,
    ends: Sequence[Efficiency] = (),
) -> tuple[Payoff, ...]:
    """Return what ways of choosing levels come to: full depth, a staircase, two levels, the best one, and freezing.

    The best one takes least GPU-time for its progress, of all in which somebody goes to full depth. Freezing is what
    ``LevelSchedule(rule="full", freeze_from=...)`` does from now on, if weights stay as they are. `times`: time of a
    block by level, in any unit, at least 1. `fixed_share`: share of a block's time at full depth that does not fall
    with the batch, from 0 to 1; where it is not known, time is assumed to be in proportion to samples. `ends`: others
    that the efficiency may be; what does not pay with all of them or with none is not sure.
    """
    depth = len(times)
    ways = [(depth,) * workers, staircase(depth, workers)]
    ways += [(1,) * (workers - full) + (depth,) * full for full in range(workers - 1, 0, -1)]
    ways.append(goodput_levels(efficiency, times, workers))
    fixed = fixed_share or Fraction(0)
    found = [_payoff((efficiency, *ends), times, [levels], fixed) for levels in dict.fromkeys(map(tuple, ways))]
    if depth > 1:
        in_turn = tuple(range(depth - 1, 0, -1))
        payoff = _payoff((efficiency, *ends), times, [(level,) * workers for level in in_turn], fixed)
        found.append(replace(payoff, levels=in_turn, frozen=True))
    return tuple(found)


def _payoff(
    known: Sequence[Efficiency], times: Sequence[int], rows: Sequence[tuple[int, ...]], fixed: Fraction
) -> Payoff:
    """Return what the first efficiency makes of levels, sure where all others agree whether these pay."""
    (efficiency, *others), workers = known, len(rows[0])
    most = efficiency.most
    time = Fraction(sum(times[level - 1] for row in rows for level in row), len(rows) * workers * times[-1])
    # A block with the share b of its batch takes the share fixed + (1 - fixed) * b of its time.
    batch = (time - fixed) / (1 - fixed) if fixed < time < 1 else Fraction(int(time))
    smaller = efficiency.progress([len(times)] * workers, batch)
    made = Fraction(sum(map(efficiency.progress, rows)), len(rows) * most)
    found = Payoff(rows[0], time, made, Fraction(smaller, most))
    return replace(found, is_sure=all(_payoff([one], times, rows, fixed).pays == found.pays for one in others))


def goodput_levels(efficiency: Efficiency, times: Sequence[int], workers: int) -> tuple[int, ...]:
    """Return the levels that take least GPU-time for their progress, ascending, exactly.

    The method of Dinkelbach (1967): with the best ratio so far as the price of time, the numbers of contributors by
    bucket, which never rise, are a path of most progress less price; done when no path is better. A round takes
    workers times buckets steps. Somebody goes to full depth, and all do where nothing is better. `times`: time of a
    block by level, in any unit, at least 1. `workers`: number of workers, from 1.
    """
    found = (len(times),) * workers
    while True:
        made, taken = efficiency.progress(found), sum(times[level - 1] for level in found)
        # By number of contributors to the last bucket, falling: most progress less price, and contributors by bucket.
        paths: list[tuple[int, tuple[int, ...]]] = [(0, ())] * workers
        for bucket, (low, high) in enumerate(pairwise(times), 2):
            weight, price = efficiency.weight[bucket - 1] * taken, made * (high - low)
            paths = [
                (value + weight * efficiency.of_bucket(bucket, count, workers) - price * count, (*counts, count))
                for count, (value, counts) in zip(range(workers, 0, -1), accumulate(paths, max), strict=True)
            ]
        counts = max(paths)[1]
        better = tuple(1 + sum(count >= place for count in counts) for place in range(workers, 0, -1))
        if efficiency.progress(better) * taken <= made * sum(times[level - 1] for level in better):
            return found
        found = better


@dataclass(frozen=True, slots=True)
class ProgressLimit:
    """A lower limit of the progress of all iterations of a job together (specification: progress).

    `efficiency, workers`: what iterations of the job are worth, and its number of workers. `least`: least sum over all
    iterations, in millionths of the unit of `Efficiency.most`.
    """

    efficiency: Efficiency
    workers: int
    least: int

    def is_kept(self, rows: Iterable[Sequence[int]]) -> bool:
        """Return whether levels, by iteration and worker, make the least progress."""
        kinds = Counter(map(tuple, rows)).items()
        return sum(times * self.efficiency.progress(levels) for levels, times in kinds) >= self.least

    def slack(self, iterations: int) -> int:
        """Return how much progress iterations may lose beside full depth; negative where they cannot keep the limit."""
        return iterations * self.efficiency.most - self.least

    def losses(self, bucket: int) -> tuple[int, ...]:
        """Return what an iteration loses in a bucket beside full depth, by number of contributors from 0."""
        return _losses(self.efficiency, bucket, self.workers)

    def fewest(self, iterations: int) -> int:
        """Return a number of contributors to the last bucket below which no iteration goes."""
        slack = self.slack(iterations)
        lost = self.losses(len(self.efficiency.weight))
        return next((c for c, loss in enumerate(lost) if c and loss <= slack), self.workers)

    def least_levels(self, iterations: int, fewest: int) -> Fraction:
        """Return a lower bound of the mean sum of the levels of an iteration.

        The loss of each bucket is replaced by its convex envelope over the numbers of contributors, and the order of
        buckets is left out: a knapsack problem in fractions, of which equal iterations are a best solution.

        `iterations`: number of iterations. `fewest`: number of contributors that each bucket has in any case.
        """
        workers, depth = self.workers, len(self.efficiency.weight)
        if self.slack(iterations) < 0:
            return workers * depth + Fraction(1, iterations)
        lost, levels, sides = Fraction(0), Fraction(workers + fewest * (depth - 1)), []
        for bucket in range(2, depth + 1):
            losses = self.losses(bucket)
            lost += losses[fewest]
            corners = lower_hull([*enumerate(losses)][fewest:])
            sides += [(Fraction(low - high, b - a), b - a) for (a, low), (b, high) in pairwise(corners)]
        missing = lost - Fraction(self.slack(iterations), iterations)
        for gain, room in sorted(sides, reverse=True):
            if missing <= 0 or not gain:
                break
            taken = min(Fraction(room), missing / gain)
            levels, missing = levels + taken, missing - taken * gain
        return levels


def progress_of(instance: Instance, plan: Plan) -> dict[str, float]:
    """Return the mean progress of the iterations of a plan, by name of the jobs whose models have an efficiency.

    It is beside a step with whole gradients at full depth. The plan is correct; of a cyclic one the period counts.
    """
    made: dict[str, Fraction] = defaultdict(Fraction)
    iterations = Counter[str]()
    for name, progress, count in _progress_by_phase(instance, plan):
        made[name] += progress
        iterations[name] += count
    return {name: float(made[name] / count) for name, count in iterations.items()}


def least_progress(instance: Instance, plan: Plan) -> Fraction:
    """Return the least mean progress of an iteration of a data-parallel job in any phase, as an exact share.

    It is beside a step with whole gradients at full depth; all levels count as full depth where no efficiency is known.
    """
    jobs = instance.data_parallel_jobs
    whole = (job.step_progress for job in jobs if instance.models[job.model].efficiency is None)
    return min([*whole, *(progress / count for _, progress, count in _progress_by_phase(instance, plan))])


def _progress_by_phase(instance: Instance, plan: Plan) -> Iterator[tuple[str, Fraction, int]]:
    """Yield name, progress and number of iterations of each job with an efficiency, phase by phase."""
    jobs = {job.name: job for job in instance.data_parallel_jobs}
    for _, _, phase in plan.all_phases():
        for planned in phase.data_parallel_jobs:
            job, levels, repeats = jobs[planned.name], planned.levels, phase.repeats or 1
            efficiency = instance.models[job.model].efficiency
            if efficiency is not None and levels:
                made = repeats * sum(times * efficiency.progress(own) for own, times in Counter(levels).items())
                yield job.name, made * job.step_progress / efficiency.most, repeats * len(levels)


@lru_cache(maxsize=4096)
def _losses(efficiency: Efficiency, bucket: int, workers: int) -> tuple[int, ...]:
    weight = efficiency.weight[bucket - 1]
    return tuple(weight * (MILLION - efficiency.of_bucket(bucket, count, workers)) for count in range(workers + 1))

"""Which runs are made: rates are tuned first, then every method is compared with full depth in the same setting."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from jigsaw_opt.problem.costs import staircase
from jigsaw_opt.sweeps.task import SweepTask
from spb.subjects import Optimiser, Subject
from spb.training import Method, Run, Setting, measure_blocks, train

FULL, STAIRCASE = Method("full"), Method("staircase")
TUNING_SEED = 1000
TUNING_WORKERS = 4


@dataclass(frozen=True, slots=True)
class Comparison:
    """A way of SPB that is compared with full depth in the same setting.

    `main` is the subject's main optimiser, or the other one; `own_rate` a learning rate tuned for SPB, or that of full
    depth; `equal_time` as many iterations as take the GPU-time of full depth, or the same number.
    """

    method: Method = STAIRCASE
    main: bool = True
    decay: bool = True
    sharded: bool = False
    own_rate: bool = False
    equal_time: bool = False

    def setting(self, subject: Subject) -> Setting | None:
        """What it has in common with full depth; None where the subject has no other optimiser."""
        optimisers = tuple(subject.rates)
        if self.main:
            return Setting(optimisers[0], self.decay, self.sharded)
        return Setting(optimisers[1], self.decay, self.sharded) if len(optimisers) > 1 else None


COMPARISONS: Mapping[str, Comparison] = {
    "rotation": Comparison(),
    "permutation": Comparison(Method(assignment="permutation")),
    "free": Comparison(Method("free")),
    "fixed": Comparison(Method(assignment="fixed")),
    "average over workers": Comparison(Method(averaging="avg")),
    "warm-up": Comparison(Method(warm_up=20)),
    "half of the workers full": Comparison(Method("free", always_full=50)),
    "own rate": Comparison(own_rate=True),
    "equal time": Comparison(equal_time=True),
    "warm-up, own rate, equal time": Comparison(Method(warm_up=20), own_rate=True, equal_time=True),
    "constant rate": Comparison(decay=False),
    "sharded": Comparison(sharded=True),
    "sharded, fixed": Comparison(Method(assignment="fixed"), sharded=True),
    "other optimiser": Comparison(main=False),
    "other optimiser, constant rate": Comparison(main=False, decay=False),
    "other optimiser, average over workers": Comparison(Method(averaging="avg"), main=False),
}

Rates = Mapping[tuple[Optimiser, bool, bool], float]
"""Learning rate by optimiser, decay, and whether it was tuned for SPB."""


@dataclass(frozen=True)
class Design:
    """The tasks of one subject; blocks are timed in `repeats` rounds."""

    subject: Subject
    workers: Sequence[int] = (2, 4, 8)
    tuning_seeds: int = 2
    repeats: int = 40

    @property
    def comparisons(self) -> dict[str, Comparison]:
        """Those of the subject, by name, that it has the optimisers for."""
        names = self.subject.comparisons or tuple(COMPARISONS)
        return {name: COMPARISONS[name] for name in names if COMPARISONS[name].setting(self.subject)}

    def first(self) -> list[SweepTask]:
        """What the others depend on: times of blocks, and runs that tune the rates."""
        blocks = [self._blocks_task(workers) for workers in self.workers]
        return blocks + self._tasks(self._tuning_runs())

    def _blocks_task(self, workers: int) -> SweepTask:
        return SweepTask(
            f"{self.subject.definition} blocks workers={workers}", measure_blocks, (self.subject, workers, self.repeats)
        )

    def block_row(self, rows: Mapping[str, Mapping[str, Any]], workers: int) -> Mapping[str, Any]:
        """The row of the times of blocks with so many workers."""
        return rows[self._blocks_task(workers).key]

    def _tuning_runs(self) -> Iterator[Run]:
        decays = sorted({comparison.decay for comparison in self.comparisons.values()})
        for optimiser, decay, own in product(self.subject.rates, decays, (False, True)):
            for rate in self.subject.rates[optimiser]:
                yield from self._tries(optimiser, decay, own, rate)

    def _tries(self, optimiser: Optimiser, decay: bool, own: bool, rate: float) -> list[Run]:
        """Runs whose mean loss tells how good a rate is."""
        method, setting = STAIRCASE if own else FULL, Setting(optimiser, decay)
        seeds = range(TUNING_SEED, TUNING_SEED + self.tuning_seeds)
        return [Run(TUNING_WORKERS, seed, setting, method, rate, self.subject.iterations) for seed in seeds]

    def rates(self, rows: Mapping[str, Mapping[str, Any]]) -> Rates:
        """For each optimiser, with and without decay, for full depth and for SPB, the rate of least held-out loss."""

        def mean_loss(optimiser: Optimiser, decay: bool, own: bool, rate: float) -> float:
            tries = self._tasks(self._tries(optimiser, decay, own, rate))
            return sum(_final_loss(rows[task.key]) for task in tries)

        tried = {(run.setting.optimiser, run.setting.decay, run.method != FULL) for run in self._tuning_runs()}
        return {key: min(self.subject.rates[key[0]], key=lambda rate: mean_loss(*key, rate)) for key in tried}

    def pairs(self, rows: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, Run, Run]]:
        """Name of a comparison, and the runs with full depth and with SPB of one seed and number of workers."""
        rates = self.rates(rows)
        for (name, comparison), workers in product(self.comparisons.items(), self.workers):
            setting = comparison.setting(self.subject)
            assert setting is not None  # `comparisons` leaves these out
            count = self.subject.iterations
            longer = round(count / self._share(rows, workers, comparison.method)) if comparison.equal_time else count
            full = rates[setting.optimiser, setting.decay, False]
            rate = rates[setting.optimiser, setting.decay, comparison.own_rate]
            for seed in range(self.subject.seeds):
                yield (
                    name,
                    Run(workers, seed, setting, FULL, full, count),
                    Run(workers, seed, setting, comparison.method, rate, longer),
                )

    def _share(self, rows: Mapping[str, Mapping[str, Any]], workers: int, method: Method) -> float:
        """What a staircase takes of the GPU-time of full depth, on the average over a run."""
        times = self.block_row(rows, workers)["block_us"]
        partial = sum(times[level - 1] for level in staircase(len(times), workers)) / (workers * times[-1])
        return float((method.warm_up + (100 - method.warm_up) * partial) / 100)

    def second(self, rows: Mapping[str, Mapping[str, Any]]) -> list[SweepTask]:
        """All runs that are compared, seed by seed, so that an early end leaves whole seeds."""
        runs = [run for _, *pair in self.pairs(rows) for run in pair]
        return self._tasks(sorted(runs, key=lambda run: run.seed))

    def key(self, run: Run) -> str:
        """Of the row of a run."""
        return f"{self.subject.definition} {run}"

    def _tasks(self, runs: Iterable[Run]) -> list[SweepTask]:
        return [SweepTask(self.key(run), train, (self.subject, run)) for run in dict.fromkeys(runs)]


def _final_loss(row: Mapping[str, Any]) -> float:
    """Held-out loss at the end of a run; infinite where it diverged."""
    loss = float(row["points"][-1][2])
    return loss if loss == loss else float("inf")

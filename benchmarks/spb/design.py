"""Which runs are made: rates are tuned first, then every way to train is compared with full depth in its setting."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from jigsaw_opt.sweeps.task import SweepTask
from spb.subjects import Subject
from spb.training import Method, Run, Setting, levels_of, measure_blocks, train

FULL, STAIRCASE = Method("full"), Method("staircase")
TUNING_SEED = 1000
TUNING_WORKERS = 4
FEWER_ITERATIONS = (60, 70, 80, 90)
"""Of full depth, in per cent, beside all of them: what the GPU-time that SPB saves is measured against."""

Rows = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Comparison:
    """A way to train that is compared with full depth in the same setting.

    `iterations` is in per cent of those of full depth; with `equal_time` there are as many as take the GPU-time of full
    depth. With `small_batch` the batch is as small as lets an iteration take the GPU-time of rotation.
    """

    method: Method = STAIRCASE
    rise_and_fall: bool = True
    sharded: bool = False
    iterations: int = 100
    equal_time: bool = False
    small_batch: bool = False

    @property
    def setting(self) -> Setting:
        """What it has in common with full depth."""
        return Setting(self.rise_and_fall, self.sharded)

    @property
    def tuned_as(self) -> Comparison:
        """The way whose runs tune its learning rate: with whole data and full depth's number of iterations."""
        return replace(self, sharded=False, iterations=100, equal_time=False)


COMPARISONS: Mapping[str, Comparison] = {
    "smaller batch": Comparison(FULL, small_batch=True),
    "rotation": Comparison(),
    "rotation, equal time": Comparison(equal_time=True),
    "permutation": Comparison(Method(assignment="permutation")),
    "free": Comparison(Method("free")),
    "fixed": Comparison(Method(assignment="fixed")),
    "average over workers": Comparison(Method(averaging="avg")),
    "warm-up": Comparison(Method(warm_up=20)),
    "warm-up, equal time": Comparison(Method(warm_up=20), equal_time=True),
    "half of the workers full": Comparison(Method("free", always_full=50)),
    "two levels": Comparison(Method("two_level")),
    "all at one level": Comparison(Method("uniform")),
    "full every other time": Comparison(Method(full_every=2)),
    "frozen from a quarter": Comparison(Method("full", freeze_from=25)),
    "frozen from the middle": Comparison(Method("full", freeze_from=50)),
    "rates by contributors": Comparison(Method(rate_power=0.5)),
    "8 bits": Comparison(Method("full", hook="8 bits")),
    "largest hundredth": Comparison(Method("full", hook="largest 1/100")),
    "largest hundredth, rotation": Comparison(Method(hook="largest 1/100")),
    "averaged every 4": Comparison(Method("full", average_every=4)),
    "constant rate": Comparison(rise_and_fall=False),
    "sharded": Comparison(sharded=True),
    "sharded, fixed": Comparison(Method(assignment="fixed"), sharded=True),
}


def controls(setting: Setting) -> dict[str, Comparison]:
    """Full depth in a setting, with all iterations first, then with fewer."""
    suffix = (", sharded" if setting.sharded else "") + ("" if setting.rise_and_fall else ", constant rate")
    full = Comparison(FULL, setting.rise_and_fall, setting.sharded)
    fewer = {f"full, {share} % of the iterations": replace(full, iterations=share) for share in FEWER_ITERATIONS}
    return {name + suffix: way for name, way in {"full": full, **fewer}.items()}


@dataclass(frozen=True)
class Design:
    """The tasks of one subject; blocks are timed in `repeats` rounds."""

    subject: Subject
    workers: Sequence[int] = (2, 4, 8)
    tuning_seeds: int = 2
    repeats: int = 40

    @property
    def ways(self) -> dict[str, Comparison]:
        """Those of the subject by name, after the controls of their settings."""
        chosen = {name: COMPARISONS[name] for name in self.subject.comparisons or COMPARISONS}
        settings = dict.fromkeys(way.setting for way in chosen.values())
        return {name: way for setting in settings for name, way in controls(setting).items()} | chosen

    @property
    def stages(self) -> tuple[Callable[[Rows], list[SweepTask]], ...]:
        """Tasks that each depend on the rows of those before."""
        return (self.first, self.second, self.third)

    def first(self, _: Rows) -> list[SweepTask]:
        """Times of blocks with the whole batch and with half of it."""
        sizes = {(workers, size) for workers in (*self.workers, TUNING_WORKERS) for size in self._sizes(workers)}
        return [self._blocks_task(*size) for size in sorted(sizes)]

    def second(self, rows: Rows) -> list[SweepTask]:
        """Times of blocks with the smaller batch, and runs that tune the rates, as many for every way."""
        small = [way for way in self.ways.values() if way.small_batch]
        sizes = {(workers, self.batch(rows, way, workers)) for way in small for workers in self.workers}
        tuned = dict.fromkeys(way.tuned_as for way in self.ways.values())
        tries = [run for way in tuned for rate in self.subject.rates for run in self._tries(rows, way, rate)]
        return [self._blocks_task(*size) for size in sorted(sizes)] + self._tasks(tries)

    def third(self, rows: Rows) -> list[SweepTask]:
        """All runs that are compared, seed by seed, so that an early end leaves whole seeds."""
        each = product(range(self.subject.seeds), self.workers, self.ways.values())
        return self._tasks(self.run(rows, way, workers, seed) for seed, workers, way in each)

    def run(self, rows: Rows, way: Comparison, workers: int, seed: int) -> Run:
        """The run of a seed in a way, at the rate of least held-out loss among those tried."""
        count = self.subject.iterations * way.iterations // 100
        if way.equal_time:
            count = round(count / self._share(rows, workers, way.method))
        rate = min(self.subject.rates, key=lambda rate: self._tried_loss(rows, way.tuned_as, rate))
        return Run(workers, seed, way.setting, way.method, rate, count, self.batch(rows, way, workers))

    def _tries(self, rows: Rows, way: Comparison, rate: float) -> list[Run]:
        """Runs whose mean loss tells how good a rate is."""
        seeds = range(TUNING_SEED, TUNING_SEED + self.tuning_seeds)
        count, batch = self.subject.iterations, self.batch(rows, way, TUNING_WORKERS)
        return [Run(TUNING_WORKERS, seed, way.setting, way.method, rate, count, batch) for seed in seeds]

    def _tried_loss(self, rows: Rows, way: Comparison, rate: float) -> float:
        return sum(_final_loss(rows[task.key]) for task in self._tasks(self._tries(rows, way, rate)))

    def batch(self, rows: Rows, way: Comparison, workers: int) -> int:
        """Samples an iteration: a multiple of the workers, where smaller by a line through the times of two sizes."""
        if not way.small_batch:
            return self.subject.batch
        half, whole = self._sizes(workers)
        half_us, whole_us = (self.block_row(rows, workers, size)["block_us"][-1] for size in (half, whole))
        saved = (1 - self._share(rows, workers, STAIRCASE)) * whole_us
        share = min(1.0, saved / (whole_us - half_us)) if whole_us > half_us else 1.0
        return workers * round((whole - share * (whole - half)) / workers)

    def _sizes(self, workers: int) -> tuple[int, int]:
        """Half of the batch, at least one sample a worker, and the batch."""
        return max(1, self.subject.batch // 2 // workers) * workers, self.subject.batch

    def _share(self, rows: Rows, workers: int, method: Method) -> float:
        """What a method takes of the GPU-time of full depth, over full depth's number of iterations."""
        times, count = self.block_row(rows, workers, self.subject.batch)["block_us"], self.subject.iterations
        schedule = levels_of(Run(workers, 0, Setting(), method, 0.0, count, self.subject.batch), len(times))
        taken = sum(times[level - 1] for iteration in range(count) for level in schedule.levels(iteration))
        return float(taken / (count * workers * times[-1]))

    def _blocks_task(self, workers: int, batch: int) -> SweepTask:
        subject = replace(self.subject, batch=batch)
        key = f"{subject.definition} blocks workers={workers} batch={batch}"
        return SweepTask(key, measure_blocks, (subject, workers, self.repeats))

    def block_row(self, rows: Rows, workers: int, batch: int) -> Mapping[str, Any]:
        """The row of the times of blocks with so many workers and samples an iteration."""
        return rows[self._blocks_task(workers, batch).key]

    def key(self, run: Run) -> str:
        """Of the row of a run."""
        return f"{self.subject.definition} {run}"

    def _tasks(self, runs: Iterable[Run]) -> list[SweepTask]:
        return [SweepTask(self.key(run), train, (self.subject, run)) for run in dict.fromkeys(runs)]


def _final_loss(row: Mapping[str, Any]) -> float:
    """Held-out loss at the end of a run; infinite where it diverged."""
    loss = float(row["points"][-1][2])
    return loss if loss == loss else float("inf")

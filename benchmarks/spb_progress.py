"""Is the progress that gradient noise predicts of partial levels the one that is made?

Run it as ``python benchmarks/spb_progress.py digits-mlp``. At full depth the noise of each bucket is measured in
windows of the training, which predict the progress of an iteration at the levels of each rule. What is measured is how
many iterations at full depth reach the held-out loss that the rule reaches: interpolated over runs of full depth of
other lengths, each with a rate that falls to 0. The prediction is for the best rate of each, so all have the best of
the rates given. Steps are as they are, or the rate of a bucket is multiplied by the predicted progress, as the same
theory advises, or by a power of the share of contributors. With one rate that is far too low, progress is as good as
the rate, and a prediction by which steps are multiplied comes true by itself.

With ``--learning FOLDER`` nothing else is trained: the noise at full depth, with the iterations of the subject, tells
which ways of ``spb_learning.py`` pay, and that is held against the rows in its folder.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch
from spb.design import Design
from spb.subjects import SUBJECTS, Subject, replicas, samples
from spb.summary import Curve, findings
from spb.training import Method, Setting, held_out, levels_of, rate_factor

from jigsaw_opt.executor.level_schedule import LevelSchedule
from jigsaw_opt.executor.models.building import SegmentedModel
from jigsaw_opt.executor.partial.noise import GradientNoise, NoiseEstimate
from jigsaw_opt.executor.profiling.efficiency import average_gradients
from jigsaw_opt.executor.worker import OPTIMISERS
from jigsaw_opt.problem.costs import contributors
from jigsaw_opt.problem.efficiency import MILLION, Efficiency
from jigsaw_opt.sweeps.intervals import MeanInterval
from jigsaw_opt.sweeps.record import read_rows
from jigsaw_opt.text import say_nothing

WINDOWS = 10
LEVELS_ALONE = {"rule", "assignment", "warm_up", "always_full", "full_every", "freeze_from", "mean_depth"}
"""Fields of a method that change levels and nothing else."""
LENGTHS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.15, 1.3)
"""Lengths of runs at full depth, by that of the rules."""
Levels = Callable[[int], Sequence[int]]
Factor = Callable[[float, int, int], float]
"""Factor of the rate of a bucket: from the noise scale, the number of contributors, and of workers."""


def in_theory(noise: float) -> Efficiency:
    """The efficiency of a bucket alone; one whose noise is not known has the greatest."""
    return Efficiency((round(1000 * min(MILLION, noise)),), (1,))


STEPS: Mapping[str, Factor] = {
    "as they are": lambda noise, count, workers: 1.0,
    "share^0.5": lambda noise, count, workers: (count / workers) ** 0.5,
    "share": lambda noise, count, workers: count / workers,
    "best": lambda noise, count, workers: in_theory(noise).of_bucket(1, count, workers) / MILLION,
}


def rules(depth: int, workers: int, seed: int) -> dict[str, Levels]:
    """Rules for levels by name."""

    def some_full(count: int, level: int) -> Levels:
        return lambda turn: [depth if (worker + turn) % workers < count else level for worker in range(workers)]

    def free(count: int) -> Levels:
        return LevelSchedule(depth, workers, "free", seed=seed, min_contributors=count).levels

    found = {"rotation": LevelSchedule(depth, workers, "staircase", "rotation", seed=seed).levels, "free": free(1)}
    found |= {f"free, {count} full": free(count) for count in range(2, workers, 2)}
    found |= {f"{count} full, others at 1": some_full(count, 1) for count in range(1, workers)}
    found |= {f"1 full, others at {level}": some_full(1, level) for level in range(2, depth)}
    found["every other at 1"] = lambda turn: [1 if turn % 2 else depth] * workers
    return found


@dataclass(frozen=True)
class Task:
    """What all runs have in common; the rate falls to 0 over a run, and with `rises` as in `spb_learning` before."""

    subject: Subject
    workers: int
    iterations: int
    optimiser: str
    rises: bool = False

    def train(
        self,
        seed: int,
        iterations: int,
        rate: float,
        levels: Levels,
        factor: Factor = STEPS["as they are"],
        noise: Sequence[NoiseEstimate] = (),
    ) -> float:
        """Held-out loss after a run.

        `noise`: noise in the windows of a run at full depth, for the factors.
        """
        data, model, optimiser, draw = self._learner(seed)
        for turn in range(iterations):
            reached = [level or model.depth for level in levels(turn)]
            counts = [contributors(reached, bucket + 1) for bucket in range(model.depth)]
            _average(model, draw(turn), reached, counts)
            known = noise[turn * WINDOWS // iterations].buckets if noise else ()
            for bucket, (group, count) in enumerate(zip(optimiser.param_groups, counts, strict=True)):
                scale = known[bucket].noise_scale if known else float("inf")
                group["lr"] = rate * (1 - turn / iterations) * (factor(scale, count, self.workers) if count else 0)
            optimiser.step()
        return held_out(model, data.held_out)[1]

    def noise(self, seed: int, rate: float) -> list[NoiseEstimate]:
        """The noise in each window of a run at full depth."""
        _, model, optimiser, draw = self._learner(seed)
        windows = [GradientNoise(model.depth, keep=1) for _ in range(WINDOWS)]
        for turn in range(self.iterations):
            average_gradients(model, draw(turn), windows[turn * WINDOWS // self.iterations])
            share = rate_factor(self.iterations, turn) if self.rises else 1 - turn / self.iterations
            for group in optimiser.param_groups:
                group["lr"] = rate * share
            optimiser.step()
        return [window.estimate() for window in windows]

    def _learner(self, seed: int) -> tuple[Any, SegmentedModel, torch.optim.Optimizer, Callable[[int], list[Any]]]:
        data = samples(self.subject, seed)
        workers = replicas(self.subject, data, self.workers, False, seed)
        model = workers[0].model
        groups = [{"params": list(own)} for own in model.buckets]
        own = {"lr": 0.0} if self.optimiser == "adam" else {"lr": 0.0, "momentum": 0.9}
        optimiser = OPTIMISERS[self.optimiser](groups, **own)
        return data, model, optimiser, lambda turn: [own.batch(seed, at, turn) for at, own in enumerate(workers)]


def _average(model: SegmentedModel, batches: Sequence[Any], levels: Sequence[int], counts: Sequence[int]) -> None:
    """Write mean gradients; one worker takes all batches as one."""
    for parameter in model.beyond(0):
        parameter.grad = None
    if len(levels) == 1:
        batches = [tuple(map(torch.cat, zip(*batches, strict=True)))]
    for batch, level in zip(batches, levels, strict=True):
        model.backpropagate(batch, level)
    for own, count in zip(model.buckets, counts, strict=True):
        for parameter in own:
            if parameter.grad is not None:
                parameter.grad /= count


def length_of(loss: float, curve: Sequence[tuple[float, float]]) -> float:
    """The length at which a falling curve of loss by length comes to a loss, never beyond its ends.

    A loss above the whole curve, or one that is no number, has the least length that the curve knows, although fewer
    iterations would do; a loss below the whole curve has the greatest one, although that is too few.
    """
    falling = [(length, min(known for _, known in curve[: at + 1])) for at, (length, _) in enumerate(curve)]
    if not loss < falling[0][1]:
        return falling[0][0]
    for (low, above), (high, below) in pairwise(falling):
        if below <= loss < above:
            return low + (high - low) * (above - loss) / (above - below)
    return falling[-1][0]


def ranks(values: Sequence[float]) -> list[float]:
    """Ranks from 0, equal ones in their middle."""
    return [fmean(at for at, other in enumerate(sorted(values)) if other == value) for value in values]


def correlation(one: Sequence[float], other: Sequence[float]) -> float:
    """Spearman's rank correlation; no number where all are equal."""
    return statistics.correlation(ranks(one), ranks(other)) if min(len({*one}), len({*other})) > 1 else float("nan")


def predicted(
    windows: Sequence[NoiseEstimate],
    levels: Levels,
    iterations: int,
    batch: float = 1,
    places: Sequence[int] = range(WINDOWS),
) -> float:
    """Mean progress over a run, of the windows whose noise is known, or of those of them at some places."""
    chosen = [(at, windows[at]) for at in places if windows[at].is_known]
    turns = {at: [turn for turn in range(iterations) if turn * WINDOWS // iterations == at] for at, _ in chosen}
    means = [fmean(window.progress(levels(turn), batch) for turn in turns[at]) for at, window in chosen]
    return fmean(means) if means else float("nan")


def compare(task: Task, rates: Sequence[float], seeds: int, steps: Sequence[str]) -> dict[str, Any]:
    """Losses, predictions and measurements of all rules; a row for each rule and way of steps.

    A row has progress, the standard error of what is measured over seeds, and the best rate with its loss. Each number
    of iterations at full depth and each rule has the best of some rates.
    """

    def best(of_rate: Callable[[float], list[float]]) -> tuple[float, list[float]]:
        tried = {rate: of_rate(rate) for rate in rates}
        chosen = min(rates, key=lambda rate: fmean(loss if loss == loss else float("inf") for loss in tried[rate]))
        return chosen, tried[chosen]

    def full(share: float) -> tuple[float, list[float]]:
        length = round(share * task.iterations)
        # One worker has all batches; its level 0 stands for full depth.
        return best(lambda rate: [task.train(seed, length, rate, lambda _: (0,)) for seed in range(seeds)])

    curve = [(share, *full(share)) for share in LENGTHS]
    rate = next(rate for share, rate, _ in curve if share == 1)
    points = [(share, fmean(losses)) for share, _, losses in curve]
    noise = {seed: task.noise(seed, rate) for seed in range(seeds)}
    depth = len(noise[0][0].buckets)
    rows = []
    for way in steps:
        for name in rules(depth, task.workers, 0):
            levels = {seed: rules(depth, task.workers, seed)[name] for seed in noise}
            rate, losses = best(
                lambda rate, way=way, levels=levels: [
                    task.train(seed, task.iterations, rate, levels[seed], STEPS[way], noise[seed]) for seed in noise
                ]
            )
            found = [length_of(loss, points) for loss in losses]
            foretold = [predicted(windows, levels[seed], task.iterations) for seed, windows in noise.items()]
            error = stdev(found) / len(found) ** 0.5 if seeds > 1 else float("inf")
            measured = length_of(fmean(losses), points)
            row = {"steps": way, "rule": name, "predicted": fmean(foretold), "measured": measured, "error": error}
            rows.append(row | {"rate": rate, "loss": fmean(losses)})
            print(rows[-1], file=sys.stderr, flush=True)
    scales = [[window.rounded().noise_scale for window in windows if window.is_known] for windows in noise.values()]
    return {
        "curve": [(share, rate, fmean(losses)) for share, rate, losses in curve],
        "rows": rows,
        "noise_scale": scales[0],
        "unknown": WINDOWS * seeds - sum(map(len, scales)),
    }


@dataclass(frozen=True)
class Judgement:
    """A way of `spb_learning.py`: what is predicted of it, and what was measured, beside all of full depth.

    `time` is its GPU-time; `begin`, `middle` and `end` are the progress of an iteration in the first three, the middle
    four and the last three windows, `progress` that of all iterations together. `smaller` is the progress of the
    smaller batch that takes this GPU-time. `measured` is the share of full depth's iterations that reach the loss of
    the way. `points` is the accuracy beyond full depth with fewer iterations in the same GPU-time, and `beyond` that
    beyond a smaller batch: by a line from the one that was trained to the whole.
    """

    way: str
    time: float
    begin: float
    middle: float
    end: float
    progress: float
    smaller: float
    measured: float
    points: MeanInterval
    beyond: MeanInterval


def judge(task: Task, folder: Path, seeds: int) -> list[Judgement]:
    """Judge the ways whose steps are as they are, in the usual setting; the smaller batch is one of them.

    `seeds`: runs in which noise is measured.
    """
    workers, batch = task.workers, task.subject.batch
    design = Design(task.subject, (workers,))
    rows = read_rows(folder / f"{task.subject.name}.jsonl", lambda row: True, say_nothing)
    found = {finding.way: finding for finding in findings(design, rows)}
    noise = [task.noise(seed, found["full"].rate) for seed in range(seeds)]
    depth, small = len(noise[0][0].buckets), found["smaller batch"]
    curve = sorted((f.iterations / task.iterations, f.loss) for f in found.values() if f.pays == "control")
    half, whole = (design.block_row(rows, workers, size)["block_us"][-1] for size in (batch // 2, batch))
    fixed = max(0.0, 2 * half / whole - 1)

    def end(way: str, seed: int) -> float:
        return float(Curve.of(design, rows, design.run(rows, design.ways[way], workers, seed)).accuracy[-1])

    judged = []
    for name, own in found.items():
        way, time = design.ways[name], own.gpu_time / 100
        changed = {f.name for f in fields(Method) if getattr(way.method, f.name) != f.default} - LEVELS_ALONE
        if own.pays == "control" or way.setting != Setting() or changed:
            continue
        runs = [replace(design.run(rows, way, workers, seed), seed=seed) for seed in range(seeds)]
        pairs = [(each, levels_of(run, depth).levels) for each, run in zip(noise, runs, strict=True)]
        *parts, mean = (
            fmean(predicted(each, levels, own.iterations, own.batch / batch, at) for each, levels in pairs)
            for at in (range(3), range(3, 7), range(7, WINDOWS), range(WINDOWS))
        )
        share = (time - fixed) / (1 - fixed) if fixed < min(1, time) else 0.0
        smaller = fmean(predicted(each, lambda _: [depth] * workers, WINDOWS, share) for each in noise)
        part, common = (own.gpu_time - small.gpu_time) / (100 - small.gpu_time), range(min(own.seeds, small.seeds))
        beyond = [end(name, at) - (1 - part) * end(small.way, at) - part * end("full", at) for at in common]
        points = MeanInterval(own.frontier_points, own.frontier_half), MeanInterval.of(beyond)
        whole_run = mean * own.iterations / task.iterations
        judged.append(Judgement(name, time, *parts, whole_run, smaller, length_of(own.loss, curve), *points))
    return judged


def verdicts(judged: Sequence[Judgement]) -> str:
    """A table, and how often the rule was right, of the ways that were measured beside full depth in their GPU-time."""
    heads = ("way", "GPU-time", "begin", "middle", "end", "progress", "smaller batch", "measured")
    heads += ("points beyond fewer iterations", "points beyond a smaller batch", "rule")
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for own in judged:
        shares = (own.time, own.begin, own.middle, own.end, own.progress, own.smaller, own.measured)
        told = "pays" if own.progress > max(own.time, own.smaller) else "does not pay"
        lines.append(f"| {own.way} | {' | '.join(f'{x:.2f}' for x in shares)} | {own.points} | {own.beyond} | {told} |")
    fewer = [(own.progress > own.time, own.points) for own in judged]
    small = [(own.progress > own.smaller, own.beyond) for own in judged if own.way != "smaller batch"]
    for name, cases in (("fewer iterations", fewer), ("a smaller batch", small)):
        known = [(pays, own) for pays, own in cases if own.mean == own.mean]
        clear = [(pays, own) for pays, own in known if own.clear]
        right, sure = (sum(pays == (own.mean > 0) for pays, own in some) for some in (known, clear))
        lines.append(f"\nagainst {name}: {right} of {len(known)} signs, {sure} of {len(clear)} clear ones")
    off = [own.measured - own.progress for own in judged]
    lines.append(f"progress: mean error {fmean(map(abs, off)):.3f}, measured beyond predicted {fmean(off):+.3f}")
    ranked = correlation(*([getattr(own, x) / own.time for own in judged] for x in ("progress", "measured")))
    lines.append(f"progress for GPU-time, predicted and measured: rank correlation {ranked:.2f}")
    return "\n".join(lines)


def report(found: Mapping[str, Any]) -> str:
    """A table, and for each way of steps the mean error and the rank correlation over the rules."""
    lines = ["| steps | rule | rate | predicted | measured | standard error |", "|---|---|---|---|---|---|"]
    for row in found["rows"]:
        numbers = " | ".join(f"{row[key]:.2f}" for key in ("predicted", "measured", "error"))
        lines.append(f"| {row['steps']} | {row['rule']} | {row['rate']:g} | {numbers} |")
    lines.append("")
    for way in dict.fromkeys(row["steps"] for row in found["rows"]):
        own = [row for row in found["rows"] if row["steps"] == way]
        foretold, measured = ([row[key] for row in own] for key in ("predicted", "measured"))
        off = [abs(a - b) for a, b in zip(foretold, measured, strict=True)]
        bias = fmean(measured) - fmean(foretold)
        lines.append(
            f"{way}: {len(own)} rules, mean error {fmean(off):.3f}, measured beyond predicted {bias:+.3f}, "
            f"rank correlation {correlation(foretold, measured):.2f}"
        )
    lines.append(f"rate of full depth: {next(rate for share, rate, _ in found['curve'] if share == 1):g}")
    lines.append(f"windows without an estimate: {found['unknown']}")
    return "\n".join(lines)


def main(given: Iterable[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("subject", choices=SUBJECTS)
    parser.add_argument("--argument", action="append", default=[], metavar="NAME=N", help="of the network, as width=48")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--iterations", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--optimiser", choices=("sgd", "adam"), default="sgd")
    parser.add_argument("--rates", type=float, nargs="+", default=(0.1, 0.2, 0.4))
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=("as they are", "best"))
    parser.add_argument("--learning", type=Path, metavar="FOLDER", help="judge the ways whose rows are in this folder")
    parser.add_argument("-o", "--output", type=Path, help="write all numbers here, as JSON")
    asked = parser.parse_args(None if given is None else list(given))
    torch.set_num_threads(1)
    subject = SUBJECTS[asked.subject]
    own = {name: int(value) for name, _, value in (pair.partition("=") for pair in asked.argument)}
    subject = replace(subject, arguments={**subject.arguments, **own})
    if asked.learning:
        usual = Task(subject, asked.workers, subject.iterations, subject.optimiser, rises=True)
        judged = judge(usual, asked.learning, asked.seeds)
        found, told = list(map(asdict, judged)), verdicts(judged)
    else:
        task = Task(subject, asked.workers, asked.iterations, asked.optimiser)
        found = compare(task, asked.rates, asked.seeds, asked.steps)
        told = report(found)
    if asked.output:
        asked.output.write_text(json.dumps(found))
    print(told)


if __name__ == "__main__":
    main()

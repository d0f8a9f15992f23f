"""Levels exist and obey the job's depth rule (specification: levels, coverage, mean-depth, progress, balance)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction

from jigsaw_opt.checking.jobs import CheckedJob
from jigsaw_opt.checking.violation import Violation
from jigsaw_opt.problem.depth import DepthPlugin, FreeDepth, FullDepth, StaircaseDepth, naming


def depth(job: CheckedJob) -> Iterator[Violation]:
    """Check the levels of one job; a rule that counts over what is missing or unknown is left out."""
    yield from _range(job)
    rule = job.job.depth
    table = []
    for path, iteration in job.iterations():
        levels = job.levels(iteration)
        if levels is None:
            continue
        table.append(levels)
        if isinstance(rule, FreeDepth):
            yield from _coverage(job, rule.min_contributors, levels, path)
        elif isinstance(rule, DepthPlugin):
            yield from _coverage(job, 1, levels, path)
        else:
            yield from _multiset(job, levels, path)
    # Totals over all iterations mean nothing where some are missing.
    if len(table) != len(job.plan.iterations) or len(table) != job.job.iterations:
        return
    if isinstance(rule, DepthPlugin):
        yield from _plugin(job, rule, table)
    if isinstance(rule, FreeDepth):
        yield from _mean_depth(job, rule, sum(map(sum, table)))
        yield from _progress(job, rule, table)


def balance(parts: Sequence[tuple[int, CheckedJob]]) -> Iterator[Violation]:
    """Check that the workers of one job do about the same over the whole plan (specification: balance).

    `parts`: what the job does in each phase that it is in, with the number of repetitions. All its iterations are
    there.
    """
    job = parts[-1][1]
    rule = job.job.depth
    if not isinstance(rule, FreeDepth) or rule.balance is None:
        return
    totals = [0] * job.job.workers
    for repeats, part in parts:
        for iteration in part.plan.iterations:
            levels = part.levels(iteration)
            # Totals mean nothing where some are missing.
            if levels is None:
                return
            totals = [total + repeats * level for total, level in zip(totals, levels, strict=True)]
    spread = max(totals) - min(totals)
    if spread > rule.balance:
        message = f"the level totals of two workers differ by {spread}, but balance allows {rule.balance}"
        yield Violation("balance", job.path, message)


def _range(job: CheckedJob) -> Iterator[Violation]:
    deepest = job.terms.depth
    for path, iteration in job.iterations():
        for worker, block in enumerate(iteration.blocks):
            if not 1 <= block.level <= deepest:
                where = f"{path}.blocks[{worker}].level"
                yield Violation("levels", where, f"level {block.level}, but the model has levels 1 to {deepest}")


def _multiset(job: CheckedJob, levels: tuple[int, ...], path: str) -> Iterator[Violation]:
    workers, deepest, rule = job.job.workers, job.terms.depth, job.job.depth
    if isinstance(rule, FullDepth):
        name, expected = "full", [deepest] * workers
    elif isinstance(rule, StaircaseDepth) and rule.levels is not None:
        name, expected = "staircase", [*rule.levels]
    else:
        # Worker k of w has level D k / w, rounded up (specification: depth-rules).
        name, expected = "staircase", [(deepest * k + workers - 1) // workers for k in range(1, workers + 1)]
    if sorted(levels) != expected:
        message = f"levels {sorted(levels)}, but depth rule {name!r} asks for {expected}"
        yield Violation("levels", f"{path}.blocks", message)


def _plugin(job: CheckedJob, rule: DepthPlugin, table: list[tuple[int, ...]]) -> Iterator[Violation]:
    with naming(rule):
        broken = rule.broken(table, job.terms.depth)
    if broken is not None:
        yield Violation("levels", job.path, f"depth rule {rule.rule!r}: {broken}")


def _coverage(job: CheckedJob, least: int, levels: tuple[int, ...], path: str) -> Iterator[Violation]:
    """Check coverage: who reaches the last bucket reaches every one, so the last has fewest contributors."""
    needed = min(least, job.job.workers)
    reached = levels.count(job.terms.depth)
    if reached < needed:
        message = f"bucket {job.terms.depth} has {reached} contributors, but needs {needed}"
        yield Violation("coverage", f"{path}.blocks", message)


def _mean_depth(job: CheckedJob, rule: FreeDepth, total: int) -> Iterator[Violation]:
    workers = job.job.workers
    # A float could be a little off, and ask for a level more or less.
    default = Fraction(workers + 1, 2 * workers) if rule.min_progress is None else Fraction(0)
    share = default if rule.mean_depth is None else Fraction(rule.mean_depth)
    needed = share * job.terms.depth * workers * job.job.iterations
    if total < needed:
        message = f"the levels add up to {total}, but mean depth {share} asks for {needed}"
        yield Violation("mean-depth", job.path, message)


def _progress(job: CheckedJob, rule: FreeDepth, table: list[tuple[int, ...]]) -> Iterator[Violation]:
    """Check the sum of the progress of all iterations, in millionths (specification: efficiency, progress)."""
    if rule.min_progress is None or job.terms.efficiency is None:
        return
    workers, made = job.job.workers, 0
    scales, weights = job.terms.efficiency
    for bucket, (noise, weight) in enumerate(zip(scales, weights, strict=True), 1):
        for levels, times in Counter(table).items():
            count = sum(level >= bucket for level in levels)
            share = Fraction(count * (1000 * workers + noise), workers * (1000 * count + noise)) if count else 0
            made += times * weight * int(10**6 * share)
    needed = Fraction(rule.min_progress) * 10**6 * sum(weights) * job.job.iterations
    if made < needed:
        message = f"the progress adds up to {made} millionths, but the share {rule.min_progress} asks for {needed}"
        yield Violation("progress", job.path, message)

"""Depth rules (SPEC 4.2, section 2 *Jobs*)."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from jigsaw_opt.checking.violation import Findings
from jigsaw_opt.problem.job import FreeDepth, FullDepth, Job
from jigsaw_opt.problem.plan import JobPlan

__all__ = ["check_levels"]


def check_levels(job: Job, depth: int, plan: JobPlan, path: str, found: Findings) -> bool:
    """Levels lie between 1 and D and obey the depth rule; says whether they lie there."""
    before = len(found)
    rows = [[block.level for block in iteration.blocks] for iteration in plan.iterations]
    for number, row in enumerate(rows):
        for worker, level in enumerate(row):
            if not 1 <= level <= depth:
                where = f"{path}.iterations[{number}].blocks[{worker}].level"
                found.add("4.2", where, f"level {level} is not between 1 and {depth}")
    if len(found) > before:
        return False
    if isinstance(job.depth, FreeDepth):
        _check_free(job, job.depth, depth, rows, path, found)
    else:
        _check_multiset(job, depth, rows, path, found)
    return True


def _check_multiset(job: Job, depth: int, rows: list[list[int]], path: str, found: Findings) -> None:
    w = job.workers
    if isinstance(job.depth, FullDepth):
        wanted, rule = [depth] * w, "full"
    else:
        wanted, rule = [-(-depth * k // w) for k in range(1, w + 1)], "staircase"
    for number, row in enumerate(rows):
        if sorted(row) != wanted:
            found.add("4.2", f"{path}.iterations[{number}]", f"levels {sorted(row)} are not the {rule}'s {wanted}")


def _check_free(job: Job, rule: FreeDepth, depth: int, rows: list[list[int]], path: str, found: Findings) -> None:
    least = min(rule.min_contributors, job.workers)
    for number, row in enumerate(rows):
        # The highest bucket is reached by the fewest, so it alone decides.
        deep = sum(level >= depth for level in row)
        if deep < least:
            found.add(
                "4.2",
                f"{path}.iterations[{number}]",
                f"bucket {depth} has {deep} contributors, at least {least} needed",
            )
    mean = Fraction(job.workers + 1, 2 * job.workers) if rule.mean_depth is None else Fraction(rule.mean_depth)
    total, wanted = sum(map(sum, rows)), mean * depth * job.workers * job.iterations
    if total < wanted:
        found.add("4.2", path, f"the levels add up to {total}, at least {wanted} needed for mean depth {mean}")
    if rule.balance is not None:
        _check_balance(rule.balance, [sum(column) for column in zip(*rows, strict=True)], path, found)


def _check_balance(balance: int, totals: Iterable[int], path: str, found: Findings) -> None:
    listed = list(totals)
    if max(listed) - min(listed) > balance:
        found.add("4.2", path, f"worker totals {listed} differ by more than {balance}")

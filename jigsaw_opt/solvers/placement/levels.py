"""Which levels a job takes: multisets for each iteration, and who may take which under memory.

Given a placement, the memory of a GPU caps the level of each worker on it (specification: memory). A job whose
multisets fit under its caps leaves the choice of who takes which to the list scheduler; the other
``free`` jobs get a matrix of levels here.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, cycle, groupby

from jigsaw_opt.problem.clock import checking_deadline
from jigsaw_opt.problem.compiled.operations import OperationGraph
from jigsaw_opt.problem.costs import lower_hull, staircase
from jigsaw_opt.problem.depth import LevelRule
from jigsaw_opt.problem.efficiency import ProgressLimit

Levels = tuple[int, ...]

SHAPES = ("staircase", "flat", "cheap", "alternating")
"""Shapes of the levels of a ``free`` job, of the same sum each: near the staircase; all but the deepest alike, so that
most buckets have either all contributors or the fewest; the least GPU time; or all but the deepest alike in each
iteration but one, some iterations deeper than others, with the least payload at buckets of all contributors."""


@dataclass(frozen=True, slots=True)
class LevelPlan:
    """Levels of a placed job.

    `rows`: levels by iteration; in the order of the slots where `fixed`, else descending. `fixed`: whether slot ``s``
    takes ``rows[i][s]``; otherwise any order under the caps will do.
    """

    rows: tuple[Levels, ...]
    fixed: bool


def multisets(job: OperationGraph, shape: str = SHAPES[0]) -> tuple[Levels, ...] | None:
    """Return the levels by iteration, each descending, as shallow as the rule permits; None where none is allowed.

    Under ``free`` the sum over the horizon is exactly the least one that coverage and mean depth permit;
    `LevelRule.balance` is left to `level_plan`.
    """
    rule = job.rule
    if rule.multiset is not None:
        return (rule.multiset[::-1],) * job.iterations
    if rule.progress is not None and (shape == SHAPES[0] or rule.min_total > job.iterations * job.levels * job.slots):
        return _least_loss(rule, rule.progress, job.iterations, (job.levels,) * job.slots)
    contributors = rule.min_contributors
    least = contributors * job.levels + job.slots - contributors
    share, rest = divmod(max(rule.min_total, least * job.iterations), job.iterations)
    if share + (rest > 0) > job.levels * job.slots:
        return None
    if rule.progress is not None:
        return (_worth_enough(job, rule.progress, shape, share + (rest > 0)),) * job.iterations
    if shape == "alternating":
        return _alternating(job, share * job.iterations + rest)
    totals = [share + (iteration < rest) for iteration in range(job.iterations)]
    return tuple(_row(job, shape, total) for total in checking_deadline(totals))


def _row(job: OperationGraph, shape: str, total: int) -> Levels:
    """Return the levels of an iteration with a given sum, descending."""
    if shape in ("staircase", "alternating"):
        return _bent_staircase(job.levels, job.slots, job.rule.min_contributors, total)
    steps = tuple(range(1, job.levels + 1))
    if shape == "cheap":
        steps = _corners(job.blocks[0].duration_us[job.gpu_types[0]])
    return _between(steps, job.slots, job.rule.min_contributors, total)


def _worth_enough(job: OperationGraph, limit: ProgressLimit, shape: str, least: int) -> Levels:
    """Return levels of a shape, with a sum of at least `least`, that keep a limit in every iteration alike."""
    totals = range(least, job.levels * job.slots)
    # Full depth keeps the limit, and of two sums the larger one is mostly worth more: what is found is checked.
    worth = limit.efficiency.progress
    at = bisect_left(totals, True, key=lambda total: worth(_row(job, shape, total)) * job.iterations >= limit.least)
    return _row(job, shape, least + at)


@lru_cache(maxsize=4096)
def _least_loss(rule: LevelRule, limit: ProgressLimit, iterations: int, caps: Levels) -> tuple[Levels, ...] | None:
    """Return levels that slots with these caps can take and that keep a limit of progress; None where there are none.

    From the caps on, a bucket loses a contributor in every iteration, always the one that loses least by it, until
    some iterations have lost all that they may.
    """
    contributors = rule.min_contributors
    counts = [sum(cap > bucket for cap in caps) for bucket in range(len(limit.efficiency.weight))]
    lost = sum(limit.losses(bucket)[count] for bucket, count in enumerate(counts, 1))
    slack, room = limit.slack(iterations) - iterations * lost, iterations * sum(counts) - rule.min_total
    if min(slack, room) < 0 or counts[-1] < contributors:
        return None
    while True:
        lower = [
            (limit.losses(bucket + 1)[count - 1] - limit.losses(bucket + 1)[count], -bucket)
            for bucket, count in enumerate(counts)
            if bucket and count > max(contributors, *counts[bucket + 1 : bucket + 2], 0)
        ]
        if not lower:
            return (_of_counts(counts, limit.workers),) * iterations
        loss, bucket = min(lower)
        times = min(iterations, room, slack // loss if loss else iterations)
        before = _of_counts(counts, limit.workers)
        counts[-bucket] -= 1
        slack, room = slack - times * loss, room - times
        if times < iterations:
            return (before,) * (iterations - times) + (_of_counts(counts, limit.workers),) * times


def _of_counts(counts: Sequence[int], workers: int) -> Levels:
    """Return levels, descending, given the number of contributors of each bucket."""
    return tuple(sum(count > worker for count in counts) for worker in range(workers))


def dominated(levels: Sequence[int], caps: Sequence[int]) -> bool:
    """Return whether the slots can take levels in some order without exceeding their caps."""
    return all(level <= cap for level, cap in zip(levels, sorted(caps, reverse=True), strict=True))


def level_plan(job: OperationGraph, rows: tuple[Levels, ...], caps: Sequence[int]) -> LevelPlan | None:
    """Return levels of a job whose slots may go no deeper than `caps`; None where no way was found.

    `rows`: its levels by iteration, from `multisets`.
    """
    if min(caps) < 1:
        return None
    within = all(dominated(row, caps) for row in set(rows))
    if not within and job.rule.progress is not None:
        lowered = _least_loss(job.rule, job.rule.progress, job.iterations, tuple(sorted(caps)))
        if lowered is None:
            return None
        rows, within = lowered, True
    if job.rule.balance is None:
        if within:
            return LevelPlan(rows, fixed=False)
        return None if job.rule.multiset is not None else _unbalanced(job, rows, caps)
    return _balanced(job, rows, caps)


def mean_slot_us(plan: LevelPlan, caps: Sequence[int], tables: Sequence[Sequence[int]]) -> list[int]:
    """Return the mean GPU time of an iteration by slot, rounded down, in microseconds.

    Where the order of the levels is open, every order under the caps is as likely as any other: slots choose among the
    levels that are left to them, those of the least caps first.
    """
    total = [0.0] * len(caps)
    for row, times in Counter(plan.rows).items():
        if plan.fixed:
            for slot, level in enumerate(row):
                total[slot] += times * tables[slot][level - 1]
            continue
        # What is left of each level on average, and how many levels are left under the cap.
        left, taken = dict.fromkeys(row, 0.0), 0
        for level in row:
            left[level] += 1.0
        for cap, slots in groupby(sorted(range(len(caps)), key=caps.__getitem__), key=caps.__getitem__):
            within = [level for level in left if level <= cap]
            group, room = list(slots), sum(level <= cap for level in row) - taken
            for slot in group:
                total[slot] += times * sum(left[level] * tables[slot][level - 1] for level in within) / room
            for level in within:
                left[level] *= 1 - len(group) / room
            taken += len(group)
    return [int(time / len(plan.rows)) for time in total]


@lru_cache(maxsize=4096)
def _bent_staircase(depth: int, slots: int, contributors: int, total: int) -> Levels:
    """Return levels, descending, near the staircase, `contributors` of them full, with sum `total`."""
    levels = [depth] * contributors + list(staircase(depth, slots)[::-1][contributors:])
    missing = total - sum(levels)
    step = 1 if missing > 0 else -1
    for slot in cycle(range(contributors, slots)) if missing else ():
        if 1 <= levels[slot] + step <= depth:
            levels[slot] += step
            missing -= step
            if not missing:
                break
    return tuple(sorted(levels, reverse=True))


def _corners(costs: Sequence[int]) -> Levels:
    """Return levels such that any other costs at least as much as a mixture of two of these, given the costs of all."""
    return tuple(level for level, _ in lower_hull(enumerate(costs, 1)))


def _alternating(job: OperationGraph, total: int) -> tuple[Levels, ...]:
    """Return levels by iteration with sum `total`.

    In each iteration but one, all slots except the fewest contributors are at one level.
    """
    contributors = job.rule.min_contributors
    others, count = job.slots - contributors, job.iterations
    full = (job.levels,) * contributors
    if not others:
        return (full,) * count
    payload = {transfer.bucket: transfer.payload_bytes for transfer in job.transfers}
    steps = _corners(list(accumulate(payload.get(level, 0) for level in range(1, job.levels + 1))))
    # The iterations are to the sum of the levels of one slot what slots are to the sum of an iteration.
    sums, rest = divmod(total - count * sum(full), others)
    levels = _between(steps, count, 0, sums)
    rows = [full + (level,) * others for level in levels]
    if rest:
        # What is left makes some slots of the deepest iteration that is not full one deeper.
        at = next(n for n, level in enumerate(levels) if level < job.levels)
        rows[at] = full + (levels[at] + 1,) * rest + (levels[at],) * (others - rest)
    return tuple(rows)


@lru_cache(maxsize=4096)
def _between(steps: Levels, slots: int, contributors: int, total: int) -> Levels:
    """Return levels with a given sum, descending: `contributors` of the deepest, the others on two neighbouring steps.

    One of the others may lie between the two steps.

    `steps` ascend from 1 to the deepest level.
    """
    depth, others = steps[-1], slots - contributors
    total -= contributors * depth
    if not others or total >= others * depth:
        return (depth,) * slots
    at = max(n for n, step in enumerate(steps) if step * others <= total)
    low, high = steps[at], steps[at + 1]
    up, rest = divmod(total - low * others, high - low)
    return (depth,) * contributors + (high,) * up + (low + rest,) + (low,) * (others - up - 1)


def _unbalanced(job: OperationGraph, rows: Sequence[Levels], caps: Sequence[int]) -> LevelPlan | None:
    """Return levels reduced to the caps; the slots that may go deeper make up for what is lost."""
    order = sorted(range(job.slots), key=lambda slot: -caps[slot])
    if caps[order[job.rule.min_contributors - 1]] < job.levels:
        return None
    matrix = [[0] * job.slots for _ in rows]
    for levels, row in zip(matrix, rows, strict=True):
        for slot, level in zip(order, row, strict=True):
            levels[slot] = min(level, caps[slot])
    missing = job.rule.min_total - sum(map(sum, matrix))
    for levels in checking_deadline(matrix):
        for slot in order:
            more = max(0, min(missing, caps[slot] - levels[slot]))
            levels[slot] += more
            missing -= more
    return _fixed(matrix) if _covers(job, matrix) else None


def _balanced(job: OperationGraph, rows: Sequence[Levels], caps: Sequence[int]) -> LevelPlan | None:
    """Return levels of which deep ones go to the slots with the smallest totals.

    The last differences are closed by going deeper.
    """
    spread, balance = job.slots * [0], job.rule.balance or 0
    matrix: list[list[int]] = []
    for row in checking_deadline(rows):
        levels = by_caps(row, caps, spread) or [min(job.levels, cap) for cap in caps]
        matrix.append(levels)
        spread = [total + level for total, level in zip(spread, levels, strict=True)]
    least = max(spread) - balance
    for slot, total in enumerate(spread):
        missing = least - total
        for levels in matrix:
            more = max(0, min(missing, caps[slot] - levels[slot]))
            levels[slot] += more
            missing -= more
        if missing > 0:
            return None
    return _fixed(matrix) if _covers(job, matrix) else None


def _covers(job: OperationGraph, matrix: Sequence[Sequence[int]]) -> bool:
    full = all(sum(level == job.levels for level in levels) >= job.rule.min_contributors for levels in matrix)
    worth = job.rule.progress is None or job.rule.progress.is_kept(matrix)
    return full and worth and sum(map(sum, matrix)) >= job.rule.min_total


def by_caps(row: Levels, caps: Sequence[int], keys: Sequence[int]) -> list[int] | None:
    """Assign levels, deepest first, each to the slot of the smallest key whose cap allows it.

    Level of each slot, None where one level finds no slot.
    """
    levels = [0] * len(caps)
    left = sorted(range(len(caps)), key=lambda slot: (keys[slot], slot))
    for level in row:
        slot = next((slot for slot in left if caps[slot] >= level), None)
        if slot is None:
            return None
        left.remove(slot)
        levels[slot] = level
    return levels


def counts(gpus: Sequence[int], rows: Sequence[Sequence[int]]) -> dict[int, dict[int, int]]:
    """Return the number of iterations at each level by GPU, given the levels by iteration and slot."""
    return {gpu: dict(Counter(column)) for gpu, column in zip(gpus, zip(*rows, strict=True), strict=True)}


def dealt(job: OperationGraph, held: Sequence[Mapping[int, int]]) -> LevelPlan:
    """Return levels of which each slot takes each in a given number of iterations.

    `held`: by slot, the number of iterations at each level; all slots together keep to the rule of the job.
    """
    if job.rule.multiset is not None:
        return _fixed(_decomposed(job.iterations, [dict(own) for own in held], Counter(job.rule.multiset)))
    # The deepest levels of one slot begin where those of the slot before end, so that each iteration has its share.
    begin, columns = 0, list[list[int]]()
    for own in held:
        levels = [level for level in sorted(own, reverse=True) for _ in range(own[level])]
        columns.append([levels[(iteration - begin) % job.iterations] for iteration in range(job.iterations)])
        begin += own.get(job.levels, 0)
    return _fixed([*zip(*columns, strict=True)])


def _decomposed(iterations: int, left: Sequence[dict[int, int]], multiset: Mapping[int, int]) -> list[list[int]]:
    """Return rows that each are the multiset: a regular bipartite graph is a union of perfect matchings (König)."""
    import networkx as nx

    rows: list[list[int]] = []
    while len(rows) < iterations:
        graph: nx.Graph[int | tuple[int, int]] = nx.Graph()
        for slot, own in enumerate(left):
            graph.add_edges_from(
                (slot, (level, copy)) for level, count in own.items() if count for copy in range(multiset[level])
            )
        matched = nx.bipartite.hopcroft_karp_matching(graph, range(len(left)))
        row = [matched[slot][0] for slot in range(len(left))]
        times = min(left[slot][level] for slot, level in enumerate(row))
        for slot, level in enumerate(row):
            left[slot][level] -= times
        rows += [row] * times
    return rows


def _fixed(matrix: Sequence[Sequence[int]]) -> LevelPlan:
    return LevelPlan(tuple(tuple(levels) for levels in matrix), fixed=True)

"""When blocks and transfers run: readiness, order and barrier (SPEC section 3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from jigsaw_opt.formulations.cpsat_timetable.channel import Pace, climb, transfer_expression
from jigsaw_opt.formulations.cpsat_timetable.variables import Exchange, Ground, JobVariables, candidate_levels
from jigsaw_opt.problem.pieces import PieceGraph

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

__all__ = ["Duration", "add_durations", "add_exchanges", "add_iterations", "add_readiness", "block_us"]


@dataclass(frozen=True, slots=True)
class Duration:
    """Duration of a transfer: an integer or a variable, and the least value that it can take."""

    value: cp_model.LinearExprT
    least: int


def block_us(job: PieceGraph, gpu_type: str) -> tuple[int, ...]:
    """Duration of a block of `job` on a GPU type by level; all slots are alike."""
    return job.blocks[0].duration_us[gpu_type]


def add_iterations(model: cp_model.CpModel, it: JobVariables) -> None:
    """SPEC section 3, *Barrier*: blocks start after the end of the iteration before.

    Where the job has no worker on a GPU, the start of the block is free to sit on the barrier, so the
    inequalities hold without a condition and are strong in the linear relaxation.
    """
    window, last = it.window, it.job.iterations - 1
    for i in range(it.job.iterations):
        earliest = window.release + i * window.iteration
        latest = window.deadline - (last - i) * window.iteration
        end = model.new_int_var(earliest + window.iteration, latest, f"end of {it.job.name}.{i}")
        starts = {g: model.new_int_var(earliest, latest, f"start of {it.job.name}.{i} on {g}") for g in it.here}
        if i > 0:
            model.add(end >= it.ends[-1] + window.iteration)
            for start in starts.values():
                model.add(start >= it.ends[-1])
        it.ends.append(end)
        it.starts.append(starts)


def add_durations(model: cp_model.CpModel, it: JobVariables, pace: Pace) -> list[list[Duration]]:
    """SPEC section 3, *Transfer*: duration of every transfer, by iteration and bucket."""
    job, multiset = it.job, it.job.rule.multiset
    if multiset is None:
        return [[_free(model, it, pace, i, p.bucket) for p in job.transfers] for i in range(job.iterations)]
    counts = [sum(level >= piece.bucket for level in multiset) for piece in job.transfers]
    return [[_known(model, it, pace, b, c) for b, c in enumerate(counts, 1)]] * job.iterations


def _known(model: cp_model.CpModel, it: JobVariables, pace: Pace, bucket: int, contributors: int) -> Duration:
    """Duration with a known number of contributors."""
    job = it.job
    least = job.transfer_us(bucket, contributors, pace.best)
    if pace.fixed:
        return Duration(least, least)
    worst = job.transfer_us(bucket, contributors, pace.worst)
    value = model.new_int_var(least, worst, f"duration of {job.name}, bucket {bucket}")
    model.add(value == transfer_expression(it, pace, bucket, contributors))
    return Duration(value, least)


def _free(model: cp_model.CpModel, it: JobVariables, pace: Pace, i: int, bucket: int) -> Duration:
    """Duration where the levels decide how many workers contribute; more of them never make it shorter."""
    job = it.job
    fewest = job.slots if bucket == 1 else job.rule.min_contributors
    if fewest == job.slots:
        return _known(model, it, pace, bucket, fewest)
    least = job.transfer_us(bucket, fewest, pace.best)
    value = model.new_int_var(least, job.transfer_us(bucket, job.slots, pace.worst), f"duration of {job.name}.{i}.{bucket}")
    steps = _contributor_steps(model, it, i, bucket, fewest)
    counts = range(fewest, job.slots + 1)
    if pace.fixed:
        model.add(value >= climb([job.transfer_us(bucket, c, pace.best) for c in counts], steps))
        return Duration(value, least)
    model.add(value >= transfer_expression(it, pace, bucket, fewest))
    for step, c in zip(steps, counts[1:], strict=True):
        model.add(value >= transfer_expression(it, pace, bucket, c)).only_enforce_if(step)
    return Duration(value, least)


def _contributor_steps(
    model: cp_model.CpModel, it: JobVariables, i: int, bucket: int, fewest: int
) -> list[cp_model.IntVar]:
    """Literals that at least `fewest` + 1, `fewest` + 2, ... workers reach the bucket."""
    steps = [model.new_bool_var("") for _ in range(fewest, it.job.slots)]
    for above, below in pairwise(steps):
        model.add_implication(below, above)
    reached = [literal for levels in it.levels[i].values() for d, literal in levels.items() if d >= bucket]
    model.add(sum(reached) <= fewest + sum(steps))
    return steps


def add_exchanges(model: cp_model.CpModel, it: JobVariables, durations: Sequence[Sequence[Duration]]) -> None:
    """SPEC section 3, *Transfer*: bucket after bucket, all before the barrier. Only for jobs that may use links:

    the transfers of any other job share no resource, and each of them runs as early as it can.
    """
    for i, row in enumerate(durations if it.links else ()):
        exchanges = [_exchange(model, it, i, duration, f"{it.job.name}.{i}.{b}") for b, duration in enumerate(row, 1)]
        for before, after in pairwise(exchanges):
            model.add(after.start >= before.end)
        model.add(it.ends[i] >= exchanges[-1].end)
        it.exchanges.append(exchanges)


def _exchange(model: cp_model.CpModel, it: JobVariables, i: int, duration: Duration, name: str) -> Exchange:
    earliest = it.window.release + i * it.window.iteration
    latest = it.window.deadline - (it.job.iterations - 1 - i) * it.window.iteration
    start = model.new_int_var(earliest, latest, f"start of {name}")
    if isinstance(duration.value, int):
        return Exchange(start, duration.value, start + duration.value)
    end = model.new_int_var(earliest, latest, f"end of {name}")
    model.add(end == start + duration.value)
    return Exchange(start, duration.value, end)


def add_readiness(
    model: cp_model.CpModel, ground: Ground, it: JobVariables, durations: Sequence[Sequence[Duration]]
) -> None:
    """SPEC section 3, *Transfer*: a transfer starts when its bucket is ready at every contributor."""
    exact = not it.links and all(isinstance(duration.value, int) for row in durations for duration in row)
    for i, row in enumerate(durations):
        for g in it.here:
            times = block_us(it.job, ground.gpu_type(g))
            _iteration_ends_after(model, it, i, g, times, [duration.least for duration in row])
            if not exact:
                _bucket_ready(model, it, i, g, times, row)


def _iteration_ends_after(
    model: cp_model.CpModel, it: JobVariables, i: int, g: int, times: Sequence[int], transfers: Sequence[int]
) -> None:
    """The iteration lasts from the start of a block over its end, and over the transfers that its buckets go into."""
    tail = {d: tail_us(times, transfers, d) for d in candidate_levels(it.job)}
    model.add(it.ends[i] >= it.starts[i][g] + sum(tail[d] * literal for d, literal in it.levels[i][g].items()))


def tail_us(times: Sequence[int], transfers: Sequence[int], level: int) -> int:
    """Least time from the start of a block to the end of its iteration.

    Parameters
    ----------
    times
        Duration of the block by level.
    transfers
        Least duration of the transfers by bucket.
    level
        Level of the block.
    """
    rest = list(accumulate(reversed(transfers)))[::-1]
    return max([times[level - 1], *(ready + after for ready, after in zip(times[:level], rest, strict=False))])


def _bucket_ready(
    model: cp_model.CpModel, it: JobVariables, i: int, g: int, times: Sequence[int], row: Sequence[Duration]
) -> None:
    start, levels = it.starts[i][g], it.levels[i][g]
    for b, ready in enumerate(times, 1):
        if it.exchanges:
            limit: cp_model.LinearExprT = it.exchanges[i][b - 1].start
        else:
            limit = it.ends[i] - sum(duration.value for duration in row[b - 1 :])
        if b <= min(levels):
            model.add(limit >= start + ready * it.here[g])
            continue
        for literal in (literal for d, literal in levels.items() if d >= b):
            model.add(limit >= start + ready).only_enforce_if(literal)

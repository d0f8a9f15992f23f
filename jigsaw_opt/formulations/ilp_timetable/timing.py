"""Constraints on the starts of blocks and transfers (specification: readiness, order, barrier)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from jigsaw_opt.formulations.algebra import AlgebraicModel, Expression
from jigsaw_opt.formulations.ilp_timetable.channel import ChannelEncoding
from jigsaw_opt.formulations.ilp_timetable.variables import ExchangeVariables, JobVariables
from jigsaw_opt.formulations.timetable.eligibility import GpuEligibility, block_us
from jigsaw_opt.formulations.timetable.order_encoding import encoded_value, transfer_expression
from jigsaw_opt.problem.compiled.critical import fewest_contributors, shortest_transfers, tails_us

if TYPE_CHECKING:
    import pulp


def add_iterations(model: AlgebraicModel, job_vars: JobVariables) -> None:
    """Let blocks start after the end of the iteration before (specification: barrier).

    Where the job has no worker on a GPU, the start of the block is free to sit on the barrier, so the inequalities
    hold without a condition and are strong in the linear relaxation.

    `model`: the program, which receives columns and rows. `job_vars`: variables of the job; `job_vars.starts` and
    `job_vars.ends` are filled in, by iteration.
    """
    for i in range(job_vars.job.iterations):
        earliest, latest, name = job_vars.earliest(i), job_vars.latest(i), f"{job_vars.number}_{i}"
        end = model.time(f"end_{name}", earliest + job_vars.window.iteration, latest)
        starts = {g: model.time(f"start_{name}_{g}", earliest, latest) for g in job_vars.assigned}
        if i > 0:
            # Blocks and transfers imply it; stated outright, it links the ends of all iterations in the relaxation.
            model.add(end >= job_vars.ends[-1] + job_vars.window.iteration, f"iteration_{name}")
            for g, start in starts.items():
                model.add(start >= job_vars.ends[-1], f"barrier_{name}_{g}")
        job_vars.ends.append(end)
        job_vars.starts.append(starts)


def add_durations(model: AlgebraicModel, job_vars: JobVariables, channel: ChannelEncoding) -> list[list[Expression]]:
    """Return the duration of every transfer, by iteration and bucket (specification: transfer).

    ``[iteration][bucket - 1]``, in microseconds; an integer where nothing is left to choose.

    `model`: the program, which receives columns and rows.
    """
    job = job_vars.job
    buckets = [operation.bucket for operation in job.transfers]
    job_vars.fewest = [fewest_contributors(job, bucket) for bucket in buckets]
    job_vars.shortest = list(shortest_transfers(job, channel.best))
    known = {b: transfer_expression(job, channel, b, job_vars.fewest[b - 1]) for b in buckets if job_vars.certain(b)}
    return [
        [known[b] if b in known else _chosen(model, job_vars, channel, i, b) for b in buckets]
        for i in range(job.iterations)
    ]


def _chosen(model: AlgebraicModel, job_vars: JobVariables, channel: ChannelEncoding, i: int, bucket: int) -> Expression:
    """Return the duration where the levels decide how many workers contribute; more of them never make it shorter."""
    job, fewest, least = job_vars.job, job_vars.fewest[bucket - 1], job_vars.shortest[bucket - 1]
    longest = job.transfer_us(bucket, job.slots, channel.worst)
    name = f"duration_{job_vars.number}_{i}_{bucket}"
    value = model.time(name, least, longest)
    steps = _contributor_steps(model, job_vars, i, bucket, fewest)
    counts = range(fewest, job.slots + 1)
    if channel.fixed:
        model.add(value >= encoded_value([job.transfer_us(bucket, c, channel.best) for c in counts], steps), name)
        return value
    model.add(value >= transfer_expression(job, channel, bucket, fewest), name)
    for step, c in zip(steps, counts[1:], strict=True):
        # Big M: the most by which a transfer of ``c`` contributors is longer than the shortest one.
        excess = job.transfer_us(bucket, c, channel.worst) - least
        model.add(value >= transfer_expression(job, channel, bucket, c) - excess * (1 - step), f"{name}_{c}")
    return value


def _contributor_steps(
    model: AlgebraicModel, job_vars: JobVariables, i: int, bucket: int, fewest: int
) -> list[pulp.LpVariable]:
    """Return the literals that at least `fewest` + 1, `fewest` + 2, ... workers reach the bucket."""
    steps = [
        model.binary(f"contribute_{job_vars.number}_{i}_{bucket}_{c}")
        for c in range(fewest + 1, job_vars.job.slots + 1)
    ]
    for above, below in pairwise(steps):
        model.add(below <= above, f"steps_{below.name}")
    reached = [literal for levels in job_vars.levels[i].values() for d, literal in levels.items() if d >= bucket]
    # As many steps as there are contributors beyond the fewest; by their order these are the first ones.
    model.add(model.total(reached) <= fewest + model.total(steps), f"reached_{job_vars.number}_{i}_{bucket}")
    return steps


def add_exchanges(model: AlgebraicModel, job_vars: JobVariables, durations: Sequence[Sequence[Expression]]) -> None:
    """Order the transfers of an iteration bucket after bucket, all before the barrier (specification: order, barrier).

    Only jobs that may use links get variables: the transfers of any other job share no resource, and each of them
    runs as early as it can.
    """
    for i, row in enumerate(durations if job_vars.links else ()):
        exchanges = [_exchange(model, job_vars, i, b, duration) for b, duration in enumerate(row, 1)]
        for b, (before, after) in enumerate(pairwise(exchanges), 1):
            model.add(after.start >= before.end, f"order_{job_vars.number}_{i}_{b}")
        model.add(job_vars.ends[i] >= exchanges[-1].end, f"order_{job_vars.number}_{i}_{len(exchanges)}")
        job_vars.exchanges.append(exchanges)


def _exchange(
    model: AlgebraicModel, job_vars: JobVariables, i: int, bucket: int, duration: Expression
) -> ExchangeVariables:
    start = model.time(f"exchange_{job_vars.number}_{i}_{bucket}", job_vars.earliest(i), job_vars.latest(i))
    return ExchangeVariables(start, duration, start + duration)


def add_readiness(
    model: AlgebraicModel,
    eligibility: GpuEligibility,
    job_vars: JobVariables,
    durations: Sequence[Sequence[Expression]],
) -> None:
    """Let a transfer start when its bucket is ready at every contributor (specification: readiness).

    `model`: the program, which receives columns and rows.
    """
    # Where no link is used and durations are constants, the tails alone give the exact end of an iteration.
    exact = not job_vars.links and all(isinstance(duration, int) for row in durations for duration in row)
    for i, row in enumerate(durations):
        for g in job_vars.assigned:
            times = block_us(job_vars.job, eligibility.gpu_type(g))
            _iteration_ends_after(model, job_vars, i, g, times)
            if not exact:
                _bucket_ready(model, job_vars, i, g, times, row)


def _iteration_ends_after(model: AlgebraicModel, job_vars: JobVariables, i: int, g: int, times: Sequence[int]) -> None:
    """Let the iteration last from a block's start over its end, and over the transfers that its buckets go into."""
    tails = tails_us(times, job_vars.shortest)
    tail = model.total(tails[d - 1] * x for d, x in job_vars.levels[i][g].items())
    model.add(job_vars.ends[i] >= job_vars.starts[i][g] + tail, f"tail_{job_vars.number}_{i}_{g}")


def _bucket_ready(
    model: AlgebraicModel, job_vars: JobVariables, i: int, g: int, times: Sequence[int], row: Sequence[Expression]
) -> None:
    """Let a bucket's transfer wait for the worker on a GPU if that worker's level reaches it.

    A worker whose level does not reach the bucket may start as late as it likes; no worker starts at the barrier.
    """
    start, late = job_vars.starts[i][g], job_vars.latest(i) - job_vars.earliest(i)
    for b, ready in enumerate(times, 1):
        if job_vars.exchanges:
            limit: Expression = job_vars.exchanges[i][b - 1].start
        else:
            # Without variables of transfers: those from this bucket on must fit before the end.
            limit = job_vars.ends[i] - model.total(row[b - 1 :])
        reached = model.total(ready * x for d, x in job_vars.levels[i][g].items() if d >= b)
        # Big M: the whole window of starts, for a level that does not reach the bucket.
        shallow = model.total(late * x for d, x in job_vars.levels[i][g].items() if d < b)
        model.add(limit >= start + reached - shallow, f"ready_{job_vars.number}_{i}_{g}_{b}")

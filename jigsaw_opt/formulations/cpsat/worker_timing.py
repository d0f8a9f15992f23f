"""Constraints on the starts of blocks and transfers (specification: readiness, order, barrier)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from jigsaw_opt.formulations.cpsat.channel import ChannelEncoding
from jigsaw_opt.formulations.cpsat.levels import add_bucket_ready
from jigsaw_opt.formulations.cpsat.variables import ExchangeVariables, JobVariables
from jigsaw_opt.formulations.timetable.eligibility import GpuEligibility, block_us
from jigsaw_opt.formulations.timetable.order_encoding import encoded_value, transfer_expression
from jigsaw_opt.problem.compiled.critical import fewest_contributors, shortest_transfers, tails_us

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

    from jigsaw_opt.formulations.cpsat.variables import Expression


def add_iterations(model: cp_model.CpModel, job_vars: JobVariables) -> None:
    """Let blocks start after the end of the iteration before (specification: barrier).

    Where the job has no worker on a GPU, the start of the block is free to sit on the barrier, so the inequalities
    hold without a condition and are strong in the linear relaxation.

    `job_vars`: variables of the job; `job_vars.starts` and `job_vars.ends` are filled in, by iteration.
    """
    for i in range(job_vars.job.iterations):
        earliest, latest = job_vars.earliest(i), job_vars.latest(i)
        end = model.new_int_var(earliest + job_vars.window.iteration, latest, f"end of {job_vars.job.name}.{i}")
        starts = {
            g: model.new_int_var(earliest, latest, f"start of {job_vars.job.name}.{i} on {g}")
            for g in job_vars.assigned
        }
        if i > 0:
            # Blocks and transfers imply it; stated outright, it links the ends of all iterations in the relaxation.
            model.add(end >= job_vars.ends[-1] + job_vars.window.iteration)
            for start in starts.values():
                model.add(start >= job_vars.ends[-1])
        job_vars.ends.append(end)
        job_vars.starts.append(starts)


def add_durations(model: cp_model.CpModel, job_vars: JobVariables, channel: ChannelEncoding) -> list[list[Expression]]:
    """Return the duration of every transfer, by iteration and bucket (specification: transfer).

    ``[iteration][bucket - 1]``, in microseconds; an integer where nothing is left to choose.
    """
    job = job_vars.job
    buckets = [operation.bucket for operation in job.transfers]
    job_vars.fewest = [fewest_contributors(job, bucket) for bucket in buckets]
    job_vars.shortest = list(shortest_transfers(job, channel.best))
    known = {b: _known(model, job_vars, channel, b) for b in buckets if job_vars.certain(b)}
    return [
        [known[b] if b in known else _chosen(model, job_vars, channel, i, b) for b in buckets]
        for i in range(job.iterations)
    ]


def _known(model: cp_model.CpModel, job_vars: JobVariables, channel: ChannelEncoding, bucket: int) -> Expression:
    """Return the duration of a transfer whose number of contributors is known."""
    count, least = job_vars.fewest[bucket - 1], job_vars.shortest[bucket - 1]
    if channel.fixed:
        # With one rate and one latency the shortest duration is the only one.
        return least
    value = model.new_int_var(
        least, job_vars.job.transfer_us(bucket, count, channel.worst), f"{job_vars.job.name} bucket {bucket}"
    )
    model.add(value == transfer_expression(job_vars.job, channel, bucket, count))
    return value


def _chosen(
    model: cp_model.CpModel, job_vars: JobVariables, channel: ChannelEncoding, i: int, bucket: int
) -> Expression:
    """Return the duration where the levels decide how many workers contribute; more of them never make it shorter."""
    job, fewest = job_vars.job, job_vars.fewest[bucket - 1]
    longest = job.transfer_us(bucket, job.slots, channel.worst)
    value = model.new_int_var(job_vars.shortest[bucket - 1], longest, f"{job.name}.{i} bucket {bucket}")
    # Rows only push the value up: a solution with longer transfers stays one with the exact durations.
    steps = _contributor_steps(model, job_vars, i, bucket, fewest)
    counts = range(fewest, job.slots + 1)
    if channel.fixed:
        model.add(value >= encoded_value([job.transfer_us(bucket, c, channel.best) for c in counts], steps))
        return value
    model.add(value >= transfer_expression(job, channel, bucket, fewest))
    for step, c in zip(steps, counts[1:], strict=True):
        model.add(value >= transfer_expression(job, channel, bucket, c)).only_enforce_if(step)
    return value


def _contributor_steps(
    model: cp_model.CpModel, job_vars: JobVariables, i: int, bucket: int, fewest: int
) -> list[cp_model.IntVar]:
    """Return the literals that at least `fewest` + 1, `fewest` + 2, ... workers reach the bucket."""
    steps = [model.new_bool_var("") for _ in range(fewest, job_vars.job.slots)]
    for above, below in pairwise(steps):
        model.add_implication(below, above)
    reached = [literal for levels in job_vars.levels[i].values() for d, literal in levels.items() if d >= bucket]
    # As many steps as there are contributors beyond the fewest; by the implications these are the first ones.
    model.add(sum(reached) <= fewest + sum(steps))
    return steps


def add_exchanges(model: cp_model.CpModel, job_vars: JobVariables, durations: Sequence[Sequence[Expression]]) -> None:
    """Order the transfers of an iteration bucket after bucket, all before the barrier (specification: order, barrier).

    Only jobs that may use links get variables: the transfers of any other job share no resource, and each of them
    runs as early as it can.

    `job_vars`: variables of the job; `job_vars.exchanges` is filled in, by iteration and bucket.
    """
    for i, row in enumerate(durations if job_vars.links else ()):
        exchanges = [
            _exchange(model, job_vars, i, duration, f"{job_vars.job.name}.{i}.{b}") for b, duration in enumerate(row, 1)
        ]
        for before, after in pairwise(exchanges):
            model.add(after.start >= before.end)
        model.add(job_vars.ends[i] >= exchanges[-1].end)
        job_vars.exchanges.append(exchanges)


def _exchange(
    model: cp_model.CpModel, job_vars: JobVariables, i: int, duration: Expression, name: str
) -> ExchangeVariables:
    earliest, latest = job_vars.earliest(i), job_vars.latest(i)
    start = model.new_int_var(earliest, latest, f"start of {name}")
    if isinstance(duration, int):
        return ExchangeVariables(start, duration, start + duration)
    end = model.new_int_var(earliest, latest, f"end of {name}")
    model.add(end == start + duration)
    return ExchangeVariables(start, duration, end)


def add_readiness(
    model: cp_model.CpModel,
    eligibility: GpuEligibility,
    job_vars: JobVariables,
    durations: Sequence[Sequence[Expression]],
) -> None:
    """Let a transfer start when its bucket is ready at every contributor (specification: readiness)."""
    # Where no link is used and durations are constants, the tails alone give the exact end of an iteration.
    exact = not job_vars.links and all(isinstance(duration, int) for row in durations for duration in row)
    for i, row in enumerate(durations):
        for g in job_vars.assigned:
            times = block_us(job_vars.job, eligibility.gpu_type(g))
            _iteration_ends_after(model, job_vars, i, g, times, job_vars.shortest)
            if not exact:
                _bucket_ready(model, job_vars, i, g, times, row)


def _iteration_ends_after(
    model: cp_model.CpModel, job_vars: JobVariables, i: int, g: int, times: Sequence[int], transfers: Sequence[int]
) -> None:
    """Let the iteration last from a block's start over its end, and over the transfers that its buckets go into."""
    tails = tails_us(times, transfers)
    model.add(
        job_vars.ends[i]
        >= job_vars.starts[i][g] + sum(tails[d - 1] * literal for d, literal in job_vars.levels[i][g].items())
    )


def _bucket_ready(
    model: cp_model.CpModel, job_vars: JobVariables, i: int, g: int, times: Sequence[int], row: Sequence[Expression]
) -> None:
    start, levels = job_vars.starts[i][g], job_vars.levels[i][g]
    for b, ready in enumerate(times, 1):
        if job_vars.exchanges:
            limit: Expression = job_vars.exchanges[i][b - 1].start
        else:
            # Without variables of transfers: those from this bucket on must fit before the end.
            limit = job_vars.ends[i] - sum(row[b - 1 :])
        add_bucket_ready(model, limit, start, ready, b, levels, job_vars.assigned[g])

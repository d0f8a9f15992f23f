"""Constraints on the starts of blocks and transfers (specification: readiness, order, barrier)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from jigsaw_opt.formulations.timetable.channel import add_channel, add_links
from jigsaw_opt.formulations.timetable.eligibility import GpuEligibility, block_us
from jigsaw_opt.formulations.timetable.model import TimetableModel
from jigsaw_opt.formulations.timetable.order_encoding import encoded_value, transfer_expression
from jigsaw_opt.formulations.timetable.placement import add_bucket_ready, add_levels, add_placement
from jigsaw_opt.formulations.timetable.variables import ExchangeVariables, JobVariables
from jigsaw_opt.problem.compiled.critical import fewest_contributors, shortest_transfers, tails_us


def add_job(model: TimetableModel, eligibility: GpuEligibility, job_vars: JobVariables[Any, Any]) -> None:
    """Add the variables and constraints that concern one job alone."""
    add_placement(model, eligibility, job_vars)
    add_levels(model, job_vars)
    _add_iterations(model, job_vars)
    add_links(model, eligibility, job_vars)
    job_vars.channel = add_channel(model, eligibility, job_vars)
    durations = _add_durations(model, job_vars)
    _add_exchanges(model, job_vars, durations)
    _add_readiness(model, eligibility, job_vars, durations)


def _add_iterations(model: TimetableModel, job_vars: JobVariables[Any, Any]) -> None:
    """Let blocks start after the end of the iteration before (specification: barrier).

    Where the job has no worker on a GPU, the start of the block is free to sit on the barrier, so the inequalities
    hold without a condition and are strong in the linear relaxation.
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


def _add_durations(model: TimetableModel, job_vars: JobVariables[Any, Any]) -> list[list[Any]]:
    """Return the duration of every transfer, by iteration and bucket (specification: transfer).

    ``[iteration][bucket - 1]``, in microseconds; an integer where nothing is left to choose.
    """
    job, channel = job_vars.job, job_vars.channel
    buckets = [operation.bucket for operation in job.transfers]
    job_vars.fewest = [fewest_contributors(job, bucket) for bucket in buckets]
    job_vars.shortest = list(shortest_transfers(job, channel.best))
    known = {b: _known(model, job_vars, b) for b in buckets if job_vars.certain(b)}
    return [
        [known[b] if b in known else _chosen(model, job_vars, i, b) for b in buckets] for i in range(job.iterations)
    ]


def _known(model: TimetableModel, job_vars: JobVariables[Any, Any], bucket: int) -> Any:
    """Return the duration of a transfer whose number of contributors is known."""
    job, channel = job_vars.job, job_vars.channel
    count, least = job_vars.fewest[bucket - 1], job_vars.shortest[bucket - 1]
    if channel.fixed:
        # With one rate and one latency the shortest duration is the only one.
        return least
    longest, name = job.transfer_us(bucket, count, channel.worst), f"duration_{job_vars.number}_{bucket}"
    return model.defined(name, least, longest, transfer_expression(job, channel, bucket, count))


def _chosen(model: TimetableModel, job_vars: JobVariables[Any, Any], i: int, bucket: int) -> Any:
    """Return the duration where the levels decide how many workers contribute; more of them never make it shorter."""
    job, channel = job_vars.job, job_vars.channel
    fewest, least = job_vars.fewest[bucket - 1], job_vars.shortest[bucket - 1]
    longest, name = job.transfer_us(bucket, job.slots, channel.worst), f"duration_{job_vars.number}_{i}_{bucket}"
    value = model.time(name, least, longest)
    # Rows only push the value up: a solution with longer transfers stays one with the exact durations.
    steps = _contributor_steps(model, job_vars, i, bucket, fewest)
    counts = range(fewest, job.slots + 1)
    if channel.fixed:
        model.add(value >= encoded_value([job.transfer_us(bucket, c, channel.best) for c in counts], steps), name)
        return value
    model.add(value >= transfer_expression(job, channel, bucket, fewest), name)
    for step, c in zip(steps, counts[1:], strict=True):
        excess = job.transfer_us(bucket, c, channel.worst) - least
        model.add_if(step, value, transfer_expression(job, channel, bucket, c), excess, f"{name}_{c}")
    return value


def _contributor_steps(
    model: TimetableModel, job_vars: JobVariables[Any, Any], i: int, bucket: int, fewest: int
) -> list[Any]:
    """Return the literals that at least `fewest` + 1, `fewest` + 2, ... workers reach the bucket."""
    name, counts = f"{job_vars.number}_{i}_{bucket}", range(fewest + 1, job_vars.job.slots + 1)
    steps = [model.binary(f"contribute_{name}_{c}") for c in counts]
    for c, (above, below) in zip(counts[1:], pairwise(steps), strict=False):
        model.add_implication(below, above, f"steps_contribute_{name}_{c}")
    reached = [literal for levels in job_vars.levels[i].values() for d, literal in levels.items() if d >= bucket]
    # As many steps as there are contributors beyond the fewest; by the implications these are the first ones.
    model.add(model.total(reached) <= fewest + model.total(steps), f"reached_{name}")
    return steps


def _add_exchanges(model: TimetableModel, job_vars: JobVariables[Any, Any], durations: Sequence[Sequence[Any]]) -> None:
    """Order the transfers of an iteration bucket after bucket, all before the barrier (specification: order, barrier).

    Only jobs that may use links get variables: the transfers of any other job share no resource, and each of them
    runs as early as it can.

    `job_vars`: variables of the job; `job_vars.exchanges` is filled in, by iteration and bucket.
    """
    for i, row in enumerate(durations if job_vars.links else ()):
        name = f"{job_vars.number}_{i}"
        exchanges = [_exchange(model, job_vars, i, duration, f"{name}_{b}") for b, duration in enumerate(row, 1)]
        for b, (before, after) in enumerate(pairwise(exchanges), 1):
            model.add(after.start >= before.end, f"order_{name}_{b}")
        model.add(job_vars.ends[i] >= exchanges[-1].end, f"order_{name}_{len(exchanges)}")
        job_vars.exchanges.append(exchanges)


def _exchange(
    model: TimetableModel, job_vars: JobVariables[Any, Any], i: int, duration: Any, name: str
) -> ExchangeVariables[Any, Any]:
    earliest, latest = job_vars.earliest(i), job_vars.latest(i)
    start = model.time(f"exchange_{name}", earliest, latest)
    if isinstance(duration, int):
        return ExchangeVariables(start, duration, start + duration)
    return ExchangeVariables(start, duration, model.defined(f"exchanged_{name}", earliest, latest, start + duration))


def _add_readiness(
    model: TimetableModel,
    eligibility: GpuEligibility,
    job_vars: JobVariables[Any, Any],
    durations: Sequence[Sequence[Any]],
) -> None:
    """Let a transfer start when its bucket is ready at every contributor (specification: readiness)."""
    # Where no link is used and durations are constants, the tails alone give the exact end of an iteration.
    exact = not job_vars.links and all(isinstance(duration, int) for row in durations for duration in row)
    for i, row in enumerate(durations):
        # A worker whose level does not reach a bucket may start as late as it likes; no worker starts at the barrier.
        late = job_vars.latest(i) - job_vars.earliest(i)
        for g, assigned in job_vars.assigned.items():
            start, levels = job_vars.starts[i][g], job_vars.levels[i][g]
            times = block_us(job_vars.job, eligibility.gpu_type(g))
            # The iteration lasts from a block's start over its end, and over the transfers that its buckets go into.
            tails = tails_us(times, job_vars.shortest)
            tail = model.total(tails[d - 1] * literal for d, literal in levels.items())
            model.add(job_vars.ends[i] >= start + tail, f"tail_{job_vars.number}_{i}_{g}")
            for b, ready in enumerate(() if exact else times, 1):
                if job_vars.exchanges:
                    limit = job_vars.exchanges[i][b - 1].start
                else:
                    # Without variables of transfers: those from this bucket on must fit before the end.
                    limit = job_vars.ends[i] - model.total(row[b - 1 :])
                name = f"ready_{job_vars.number}_{i}_{g}_{b}"
                add_bucket_ready(model, limit, start, ready, b, levels, assigned, late, name)


def add_objective(model: TimetableModel, objective: Any, ends: Iterable[tuple[int, Any]], weighted: bool) -> None:
    """State the latest end of a job, or the weighted sum of all ends (specification: objective).

    `ends`: weight and end of each job.
    """
    if weighted:
        model.add(objective == model.total(weight * end for weight, end in ends), "objective")
        return
    for number, (_, end) in enumerate(ends):
        model.add(objective >= end, f"objective_{number}")

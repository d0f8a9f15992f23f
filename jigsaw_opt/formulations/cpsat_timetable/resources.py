"""GPUs and links, each for one operation at a time (specification: exclusive)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from jigsaw_opt.formulations.cpsat_limits import PowerUse
from jigsaw_opt.formulations.cpsat_timetable.channel import ChannelEncoding
from jigsaw_opt.formulations.cpsat_timetable.levels import block_size
from jigsaw_opt.formulations.cpsat_timetable.variables import ExchangeVariables, JobVariables
from jigsaw_opt.formulations.timetable.eligibility import GpuEligibility, block_us

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

    from jigsaw_opt.formulations.cpsat_timetable.variables import Expression


def add_blocks_disjoint(model: cp_model.CpModel, eligibility: GpuEligibility, jobs: Sequence[JobVariables]) -> None:
    """Require that blocks on a GPU do not overlap, and that all that run keep to the power caps.

    Notes
    -----
    Specification: exclusive, power.
    """
    power = PowerUse(eligibility.operations.cluster)
    for g in range(len(eligibility.gpus)):
        blocks: list[cp_model.IntervalVar] = []
        for job_vars in jobs:
            if g in job_vars.assigned:
                blocks += blocks_on(model, eligibility, job_vars, g, power)
        model.add_no_overlap(blocks)
    power.close(model)


def blocks_on(
    model: cp_model.CpModel, eligibility: GpuEligibility, job_vars: JobVariables, g: int, power: PowerUse
) -> list[cp_model.IntervalVar]:
    """Return the blocks of a job on a GPU, one interval an iteration; what they draw is added to `power`.

    One interval of a size to be chosen beats one optional interval for each level.
    """
    times = block_us(job_vars.job, eligibility.gpu_type(g))
    blocks = [
        _block(model, job_vars, g, starts[g], block_size(model, times, levels[g]))
        for starts, levels in zip(job_vars.starts, job_vars.levels, strict=True)
    ]
    power.add(eligibility.server(g), blocks, job_vars.job.power_w.get(eligibility.gpu_type(g), 0))
    return blocks


def _block(
    model: cp_model.CpModel, job_vars: JobVariables, g: int, start: cp_model.IntVar, size: Expression
) -> cp_model.IntervalVar:
    assigned = job_vars.assigned[g]
    if isinstance(size, int):
        return model.new_optional_fixed_size_interval_var(start, size, assigned, "")
    earliest = job_vars.window.release
    # Where no block fits before the deadline the barrier keeps the worker away; the end needs a domain all the same.
    end = model.new_int_var(earliest, max(earliest, job_vars.window.deadline), "")
    model.add(end == start + size).only_enforce_if(assigned)
    return model.new_optional_interval_var(start, size, end, assigned, "")


def add_transfers_disjoint(
    model: cp_model.CpModel, jobs: Sequence[JobVariables], channels: Sequence[ChannelEncoding]
) -> None:
    """Require that transfers over a link do not overlap (specification: exclusive).

    `channels`: rate and latency of each job's channel, as order encodings, in the order of `jobs`.
    """
    for intervals in transfers_over(model, jobs, channels, contended_links(jobs)).values():
        model.add_no_overlap(intervals)


def transfers_over(
    model: cp_model.CpModel, jobs: Sequence[JobVariables], channels: Sequence[ChannelEncoding], links: Collection[int]
) -> dict[int, list[cp_model.IntervalVar]]:
    """Return the intervals that transfers take of some links, by link.

    `channels`: rate and latency of each job's channel, as order encodings, in the order of `jobs`.
    """
    on_link: dict[int, list[cp_model.IntervalVar]] = {}
    for job_vars, channel in zip(jobs, channels, strict=True):
        for exchanges in job_vars.exchanges:
            for b, exchange in enumerate(exchanges, 1):
                for link in sorted(set(job_vars.links).intersection(links)):
                    there = lasting(model, job_vars, channel, b, job_vars.links[link])
                    if there is not None:
                        on_link.setdefault(link, []).append(_interval(model, exchange, there))
    return on_link


def contended_links(jobs: Sequence[JobVariables]) -> set[int]:
    """Return the links whose constraints differ: of links that every job uses together, only the first."""
    groups: dict[tuple[int | None, ...], int] = {}
    for link in sorted({link for job_vars in jobs for link in job_vars.links}):
        groups.setdefault(
            tuple(job_vars.links[link].index if link in job_vars.links else None for job_vars in jobs), link
        )
    return set(groups.values())


def lasting(
    model: cp_model.CpModel, job_vars: JobVariables, channel: ChannelEncoding, bucket: int, literal: cp_model.IntVar
) -> cp_model.IntVar | None:
    """Return the literal that a transfer uses a link for some time: one of no duration overlaps nothing.

    None where the transfer never lasts.

    `bucket`: number of the bucket, from 1.
    """
    if job_vars.job.transfers[bucket - 1].payload_bytes > 0 or channel.latency.values[0] > 0:
        return literal
    if not channel.latency.steps:
        return None
    # An empty payload lasts only where the latency is above its first value, which is 0.
    both = model.new_bool_var("")
    model.add_bool_or([~literal, ~channel.latency.steps[0], both])
    model.add_implication(both, literal)
    model.add_implication(both, channel.latency.steps[0])
    return both


def _interval(model: cp_model.CpModel, exchange: ExchangeVariables, literal: cp_model.IntVar) -> cp_model.IntervalVar:
    return model.new_optional_interval_var(exchange.start, exchange.duration, exchange.end, literal, "")

"""GPUs and links, each for one operation at a time modulo the period (specification: exclusive, cyclic-horizon).

An operation that starts at ``s`` on the clock of a job of offset ``f`` has the residue ``r = (f + s) mod T``. As
``f < T`` and no such start exceeds ``T``, that is ``f + s`` or ``f + s - T``: one literal. Operations of at
most ``T`` overlap modulo ``T`` exactly where two of the intervals from ``r`` and from ``r + T`` overlap, so every
operation is laid down twice and the period may stay a variable.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from jigsaw_opt.formulations.cpsat_limits import PowerUse
from jigsaw_opt.formulations.cpsat_timetable.channel import ChannelEncoding
from jigsaw_opt.formulations.cpsat_timetable.levels import block_size
from jigsaw_opt.formulations.cpsat_timetable.resources import contended_links, lasting
from jigsaw_opt.formulations.cpsat_timetable.variables import JobVariables
from jigsaw_opt.formulations.timetable.eligibility import GpuEligibility, block_us

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

    from jigsaw_opt.formulations.cpsat_timetable.variables import Expression


class ModuloClock:
    """The period, and the offset of each job: the moment at which its own clock reads 0.

    A plan may be shifted as a whole, so the first job has offset 0 where nothing else is anchored.

    `bound, limit`: least and largest period, in microseconds. `anchored`: whether the first job has offset 0.
    """

    def __init__(
        self, model: cp_model.CpModel, jobs: Sequence[JobVariables], bound: int, limit: int, anchored: bool = True
    ) -> None:
        self.limit = limit
        self.period = model.new_int_var(max(1, bound), limit, "period")
        self.offsets = [
            model.new_int_var(0, limit - 1 if number or not anchored else 0, f"offset of {job_vars.job.name}")
            for number, job_vars in enumerate(jobs)
        ]
        for offset in self.offsets:
            model.add(offset < self.period)

    def lay(
        self,
        model: cp_model.CpModel,
        offset: cp_model.IntVar,
        start: cp_model.IntVar,
        size: Expression,
        literal: cp_model.IntVar,
    ) -> list[cp_model.IntervalVar]:
        """Add both intervals of an operation that is there where `literal` holds, and return them.

        The intervals from its residue and from one period later.

        `offset`: offset of its job, in microseconds. `start`: its start on the job's own clock, in microseconds, at
        most the period.
        """
        first = model.new_int_var(0, self.limit - 1, "")
        second = model.new_int_var(1, 2 * self.limit - 1, "")
        wraps = model.new_bool_var("")
        model.add(first < self.period)
        # One literal an enforcement: the engine has called feasible models with two on large numbers infeasible.
        # `turn` is the period where the operation begins behind it on the clock of the plan, else 0.
        turn = model.new_int_var(0, self.limit, "")
        model.add(turn == self.period).only_enforce_if(wraps)
        model.add(turn == 0).only_enforce_if(~wraps)
        model.add(first == offset + start - turn).only_enforce_if(literal)
        model.add(second == first + self.period)
        return [self._interval(model, moment, size, literal) for moment in (first, second)]

    def _interval(
        self, model: cp_model.CpModel, start: cp_model.IntVar, size: Expression, literal: cp_model.IntVar
    ) -> cp_model.IntervalVar:
        if isinstance(size, int):
            return model.new_optional_fixed_size_interval_var(start, size, literal, "")
        # A start is below two periods, and an operation lasts at most one.
        end = model.new_int_var(0, 3 * self.limit, "")
        model.add(end == start + size).only_enforce_if(literal)
        return model.new_optional_interval_var(start, size, end, literal, "")


def add_blocks_disjoint(
    model: cp_model.CpModel, eligibility: GpuEligibility, jobs: Sequence[JobVariables], clock: ModuloClock
) -> None:
    """Require that blocks on a GPU do not overlap and keep to the power caps.

    `clock`: the period and the offset of each job, in microseconds.
    """
    power = PowerUse(eligibility.operations.cluster)
    for g in range(len(eligibility.gpus)):
        model.add_no_overlap(blocks_on(model, eligibility, jobs, g, clock, power))
    power.close(model)


def blocks_on(
    model: cp_model.CpModel,
    eligibility: GpuEligibility,
    jobs: Sequence[JobVariables],
    g: int,
    clock: ModuloClock,
    power: PowerUse,
) -> list[cp_model.IntervalVar]:
    """Return the intervals that blocks take of a GPU; what they draw there is added to `power`.

    `clock`: the period and the offset of each job, in microseconds.
    """
    intervals: list[cp_model.IntervalVar] = []
    for job_vars, offset in zip(jobs, clock.offsets, strict=True):
        for starts, levels in zip(job_vars.starts if g in job_vars.assigned else (), job_vars.levels, strict=False):
            size = block_size(model, block_us(job_vars.job, eligibility.gpu_type(g)), levels[g])
            copies = clock.lay(model, offset, starts[g], size, job_vars.assigned[g])
            intervals += copies
            power.add(eligibility.server(g), copies, job_vars.job.power_w.get(eligibility.gpu_type(g), 0))
    return intervals


def add_transfers_disjoint(
    model: cp_model.CpModel, jobs: Sequence[JobVariables], channels: Sequence[ChannelEncoding], clock: ModuloClock
) -> None:
    """Require that transfers over a link do not overlap (specification: exclusive, cyclic-horizon).

    `channels`: rate and latency of each job's channel, as order encodings, in the order of `jobs`. `clock`: the period
    and the offset of each job, in microseconds.
    """
    for intervals in transfers_over(model, jobs, channels, clock, contended_links(jobs)).values():
        model.add_no_overlap(intervals)


def transfers_over(
    model: cp_model.CpModel,
    jobs: Sequence[JobVariables],
    channels: Sequence[ChannelEncoding],
    clock: ModuloClock,
    links: Collection[int],
) -> dict[int, list[cp_model.IntervalVar]]:
    """Return the intervals that transfers take of some links, by link.

    `channels`: rate and latency of each job's channel, as order encodings, in the order of `jobs`. `clock`: the period
    and the offset of each job, in microseconds.
    """
    on_link: dict[int, list[cp_model.IntervalVar]] = {}
    for job_vars, channel, offset in zip(jobs, channels, clock.offsets, strict=True):
        for exchanges in job_vars.exchanges:
            for b, exchange in enumerate(exchanges, 1):
                for link in sorted(set(job_vars.links).intersection(links)):
                    there = lasting(model, job_vars, channel, b, job_vars.links[link])
                    if there is not None:
                        on_link.setdefault(link, []).extend(
                            clock.lay(model, offset, exchange.start, exchange.duration, there)
                        )
    return on_link

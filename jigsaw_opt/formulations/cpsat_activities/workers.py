"""Data-parallel jobs beside task-graph ones: stated as in the models of such jobs alone, on the same GPUs, links and
times.

On the finite horizon they are jobs of `cpsat_timetable`, on the cyclic one jobs of `cpsat_cycle` at a constant period.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from math import gcd
from typing import TYPE_CHECKING

from jigsaw_opt.formulations.cpsat_activities.serial import serial_end
from jigsaw_opt.formulations.cpsat_activities.variables import ModuloAxis, TimeAxis
from jigsaw_opt.formulations.cpsat_cycle import add_wrap, earlier, later, offset_of
from jigsaw_opt.formulations.cpsat_cycle import resources as cycle_resources
from jigsaw_opt.formulations.cpsat_cycle.resources import ModuloClock
from jigsaw_opt.formulations.cpsat_limits import PowerUse
from jigsaw_opt.formulations.cpsat_timetable import resources
from jigsaw_opt.formulations.cpsat_timetable.channel import ChannelEncoding, encode_maximum
from jigsaw_opt.formulations.cpsat_timetable.placement import add_job
from jigsaw_opt.formulations.cpsat_timetable.presence import Presence, PresentWorker, presence_of, worker_on
from jigsaw_opt.formulations.cpsat_timetable.reading import add_hint, decision_of
from jigsaw_opt.formulations.cpsat_timetable.variables import JobVariables
from jigsaw_opt.formulations.timetable.eligibility import GpuEligibility
from jigsaw_opt.formulations.timetable.loads import gpu_load
from jigsaw_opt.formulations.timetable.network import RoutedNetwork, identical_jobs
from jigsaw_opt.formulations.timetable.windows import Window, windows
from jigsaw_opt.problem.compiled.operations import Operations
from jigsaw_opt.problem.compiled.timetable import JobDecision, Timetable, job_end
from jigsaw_opt.problem.plan import JobPlan

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

    from jigsaw_opt.formulations.cpsat_activities.variables import Expression


class WorkerJobs:
    """The data-parallel jobs of an instance; none of them where all jobs have task graphs.

    `model`: receives their variables and constraints, but those that they share with task-graph jobs. `axis`: the times
    that task-graph jobs are laid down on.
    """

    def __init__(self, model: cp_model.CpModel, operations: Operations, axis: TimeAxis) -> None:
        self.model, self.operations, self.axis = model, operations, axis
        self.network = RoutedNetwork(GpuEligibility(operations))
        self.jobs: list[JobVariables] = []
        self.channels: list[ChannelEncoding] = []
        self.clock: ModuloClock | None = None
        self.presences: dict[int, Presence] = {}
        spans = _windows(operations, axis.limit) if operations.jobs else ()
        for number, (job, span) in enumerate(zip(operations.jobs, spans, strict=True)):
            # Within the limit there is no time for the iterations, so that an empty clause makes the model infeasible.
            too_long = span.release + job.iterations * span.iteration > span.deadline
            if too_long or not self.network.eligibility.allowed(job):
                model.add_bool_or([])
                self.jobs.clear()
                return
            self.jobs.append(JobVariables(number, job, span))
        if self.jobs and isinstance(axis, ModuloAxis):
            self.clock = ModuloClock(model, self.jobs, axis.limit, axis.limit, anchored=False)
        for job_vars in self.jobs:
            self.channels.append(add_job(model, self.network, job_vars))
            if self.clock is not None:
                add_wrap(model, job_vars, self.clock)
        self._add_order()

    def _add_order(self) -> None:
        """Let identical jobs end in their order; a plan with another order stays one under other names."""
        for group in identical_jobs(self.operations) if self.jobs else ():
            for j, k in pairwise(group):
                self.model.add(self.jobs[j].ends[-1] <= self.jobs[k].ends[-1])

    def blocks(self, g: int, power: PowerUse) -> list[cp_model.IntervalVar]:
        """Return the intervals that blocks take of a GPU; what they draw is added to `power`."""
        eligibility = self.network.eligibility
        if self.clock is not None:
            return cycle_resources.blocks_on(self.model, eligibility, self.jobs, g, self.clock, power)
        inside = [job_vars for job_vars in self.jobs if g in job_vars.assigned]
        return [
            block for job_vars in inside for block in resources.blocks_on(self.model, eligibility, job_vars, g, power)
        ]

    def transfers(self) -> dict[int, list[cp_model.IntervalVar]]:
        """Return the intervals that transfers take of links, by link."""
        links = range(len(self.operations.cluster.links))
        if self.clock is not None:
            return cycle_resources.transfers_over(self.model, self.jobs, self.channels, self.clock, links)
        return resources.transfers_over(self.model, self.jobs, self.channels, links)

    def load(self, g: int) -> Expression:
        """Return the work of all data-parallel jobs on a GPU, as a linear expression in microseconds."""
        total: Expression = 0
        for job_vars in self.jobs:
            if g in job_vars.assigned:
                total = total + gpu_load(self.network.eligibility, job_vars, g, sum).work
        return total

    def memory_unit(self) -> int:
        """Return the greatest common divisor of all their sizes, in bytes; 0 where all are 0."""
        return gcd(
            *(size for job_vars in self.jobs for size in (job_vars.job.state_bytes, *job_vars.job.activation_bytes))
        )

    def memory(self, g: int, unit: int, room: int) -> list[tuple[cp_model.IntVar, int]]:
        """Return what they take of a GPU all the time: literals, each with its demand where it holds.

        The largest activations take the order encoding of the sizes that occur; one beyond the room is one unit too
        many (specification: memory).
        """
        inside = [job_vars for job_vars in self.jobs if g in job_vars.assigned]
        if not inside:
            return []
        uses = [
            (min(job_vars.job.activation_bytes[d - 1] // unit, room + 1), literal)
            for job_vars in inside
            for levels in job_vars.different_levels(g)
            for d, literal in levels.items()
        ]
        largest = encode_maximum(self.model, [(0, inside[0].assigned[g]), *uses])
        # Up to the step that is reached, the rises add up to the largest size.
        rises = [high - low for low, high in pairwise(largest.values)]
        states = [
            (job_vars.assigned[g], min(job_vars.job.state_bytes // unit, room + 1))
            for job_vars in inside
            if job_vars.job.state_bytes
        ]
        return [*states, *zip(largest.steps, rises, strict=True)]

    def present(self, g: int) -> list[PresentWorker]:
        """Return the workers that a GPU may hold while their jobs are present, on the finite horizon."""
        inside = [job_vars for job_vars in self.jobs if g in job_vars.assigned]
        for job_vars in inside:
            if job_vars.number not in self.presences:
                self.presences[job_vars.number] = presence_of(self.model, job_vars)
        return [worker_on(self.model, job_vars, g, self.presences[job_vars.number]) for job_vars in inside]

    def decisions(self, value: Callable[[cp_model.IntVar], int]) -> list[JobDecision]:
        """Return what a solution decides for them."""
        found = [decision_of(self.network.eligibility, job_vars, value) for job_vars in self.jobs]
        if self.clock is None:
            return found
        return [later(own, value(offset)) for own, offset in zip(found, self.clock.offsets, strict=True)]

    def hint(self, timetable: Timetable, first: int) -> None:
        """Hint their part of a timetable, of which a moment `first` is moved to 0 on the cyclic horizon."""
        plans, clock = self._in_order(timetable.jobs) if self.jobs else [], self.clock
        for number, (job_vars, plan) in enumerate(zip(self.jobs, plans, strict=True)):
            own = plan
            if clock is not None:
                own = earlier(plan, offset_of(plan))
                self.model.add_hint(clock.offsets[number], (offset_of(plan) - first) % clock.limit)
            if number in self.presences:
                self.presences[number].hint(self.model, own)
            add_hint(self.model, job_vars, own, [self.network.eligibility.index[name] for name in plan.gpus])

    def _in_order(self, plans: tuple[JobPlan, ...]) -> list[JobPlan]:
        """Return for each job the plan that it takes where identical ones end in order, on clocks of their own."""

        def end(plan: JobPlan) -> int:
            return job_end(plan) - (offset_of(plan) if self.clock is not None else 0)

        found = list(plans)
        for group in identical_jobs(self.operations):
            for j, plan in zip(group, sorted((plans[k] for k in group), key=end), strict=True):
                found[j] = plan
        return found


def _windows(operations: Operations, limit: int) -> tuple[Window, ...]:
    """Return the times of the jobs in plans whose objective is at most `limit`."""
    if operations.objective != "weighted_completion":
        return windows(operations, limit)
    # Whatever the others take of the sum; and no plan needs times at which nothing runs.
    latest = min(limit, serial_end(operations))
    ends = {number: limit // job.weight for number, job in enumerate(operations.jobs)}
    return windows(replace(operations, objective="makespan"), latest, ends)

"""The cyclic horizon as a CP-SAT model; see ``docs/models.md`` for it in formulas.

Every job keeps a clock of its own that reads 0 at its *offset*. On that clock it is a job of the finite model
that must end within the period, and only GPUs and links see the offsets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from jigsaw_opt.formulations.cpsat_cycle.resources import ModuloClock, add_blocks_disjoint, add_transfers_disjoint
from jigsaw_opt.formulations.cpsat_model import new_model
from jigsaw_opt.formulations.cpsat_timetable.placement import add_job, add_memory
from jigsaw_opt.formulations.cpsat_timetable.reading import Value, add_hint, decision_of
from jigsaw_opt.formulations.cpsat_timetable.strengthening import add_loads_of_period
from jigsaw_opt.formulations.cpsat_timetable.symmetry import add_order, ordered_twin
from jigsaw_opt.formulations.cpsat_timetable.variables import JobVariables
from jigsaw_opt.formulations.timetable.eligibility import GpuEligibility
from jigsaw_opt.formulations.timetable.network import RoutedNetwork
from jigsaw_opt.formulations.timetable.windows import Window
from jigsaw_opt.problem.compiled.operations import Operations
from jigsaw_opt.problem.compiled.timetable import JobDecision, Timetable, assemble
from jigsaw_opt.problem.plan import Block, Iteration, JobPlan, Transfer

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

__all__ = ["CpSatCycle", "add_wrap", "build", "earlier", "later", "offset_of"]


class CpSatCycle:
    """Variables and constraints of one instance.

    `network`: the instance, its GPUs and routes. `jobs`: variables of each job, times on its own clock.
    """

    def __init__(
        self, network: RoutedNetwork, jobs: Sequence[JobVariables], clock: ModuloClock, proto: cp_model.CpModel
    ) -> None:
        self.network, self.jobs, self.clock, self.proto = network, tuple(jobs), clock, proto

    def plan(self, value: Value) -> Timetable:
        """Return the timetable of a solution, given the value of each variable."""
        eligibility = self.network.eligibility
        decisions = [
            later(decision_of(eligibility, job_vars, value), value(offset))
            for job_vars, offset in zip(self.jobs, self.clock.offsets, strict=True)
        ]
        return Timetable(assemble(eligibility.operations, decisions), value(self.clock.period))

    def hint(self, timetable: Timetable) -> None:
        """Offer a timetable to the engine as its first solution."""
        self.proto.clear_hints()  # type: ignore[no-untyped-call]
        period = timetable.period_us or 0
        self.proto.add_hint(self.clock.period, period)
        starts = {plan.name: offset_of(plan) for plan in timetable.jobs}
        own = Timetable(tuple(earlier(plan, starts[plan.name]) for plan in timetable.jobs), period)
        twin = ordered_twin(self.network, own)
        # The first job has offset 0 in the model, so the plan is shifted until it has.
        anchor = starts[twin[0][0].name]
        for job_vars, offset, (plan, gpus) in zip(self.jobs, self.clock.offsets, twin, strict=True):
            add_hint(self.proto, job_vars, plan, gpus)
            self.proto.add_hint(offset, (starts[plan.name] - anchor) % period)


def build(operations: Operations, spans: Sequence[Window], bound: int, limit: int) -> CpSatCycle:
    """Build the model of a cyclic instance.

    The period is a variable, so what the engine proves of it holds for every period there is.

    Parameters
    ----------
    operations
        The compiled instance.
    spans
        Window of each job on its own clock: release 0, deadline `limit`.
    bound, limit
        Every period is at least `bound`, and only periods at most `limit` are of interest.
    """
    proto, eligibility = new_model(), GpuEligibility(operations)
    network = RoutedNetwork(eligibility)
    jobs = [JobVariables(*parts) for parts in zip(range(len(spans)), operations.jobs, spans, strict=True)]
    clock = ModuloClock(proto, jobs, bound, limit)
    proto.minimize(clock.period)
    if not all(eligibility.allowed(job) for job in operations.jobs):
        # An empty clause: a job without any GPU has no plan.
        proto.add_bool_or([])
        return CpSatCycle(network, jobs, clock, proto)
    channels = [add_job(proto, network, job_vars) for job_vars in jobs]
    for job_vars in jobs:
        add_wrap(proto, job_vars, clock)
    add_memory(proto, eligibility, jobs)
    add_blocks_disjoint(proto, eligibility, jobs, clock)
    add_transfers_disjoint(proto, jobs, channels, clock)
    add_order(proto, network, jobs)
    add_loads_of_period(proto, eligibility, jobs, clock.period)
    return CpSatCycle(network, jobs, clock, proto)


def add_wrap(model: cp_model.CpModel, job_vars: JobVariables, clock: ModuloClock) -> None:
    """Require that a job's span is at most the period, for its barrier wraps (specification: period).

    Parameters
    ----------
    model
        The CP-SAT model, which receives variables and constraints.
    job_vars
        Variables of the job.
    clock
        The period and the offset of each job, in microseconds.
    """
    model.add(job_vars.ends[-1] <= clock.period)


def offset_of(plan: JobPlan) -> int:
    """Return the moment at which the job's own clock reads 0 in a plan, in microseconds."""
    return min(block.start_us for block in plan.iterations[0].blocks)


def later(decision: JobDecision, offset: int) -> JobDecision:
    """Move every start of a decision from the job's own clock to that of the plan.

    `offset`: moment of the plan at which the job's clock reads 0, in microseconds.
    """
    return replace(
        decision,
        block_starts=[[start + offset for start in row] for row in decision.block_starts],
        transfer_starts=[[start + offset for start in row] for row in decision.transfer_starts],
    )


def earlier(plan: JobPlan, offset: int) -> JobPlan:
    """Move a job's part of a plan to the job's own clock.

    Parameters
    ----------
    plan
        The job's part of the plan.
    offset
        Moment of the plan at which the job's clock reads 0, in microseconds.
    """
    iterations = (
        Iteration(
            tuple(Block(b.level, b.start_us - offset, b.end_us - offset) for b in iteration.blocks),
            tuple(Transfer(t.bucket, t.start_us - offset, t.end_us - offset) for t in iteration.transfers),
        )
        for iteration in plan.iterations
    )
    return replace(plan, iterations=tuple(iterations))

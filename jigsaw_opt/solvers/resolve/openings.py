"""Plans of an instance as a start for any method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jigsaw_opt.problem.compiled.operations import is_long
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.plan import Plan
from jigsaw_opt.solvers.resolve.kept_order import timetable_in
from jigsaw_opt.solvers.resolve.remaining import listed
from jigsaw_opt.solvers.solve_state import Opening, SolveState

_MOST_OFFERED = 200_000
"""Operations up to which a phased plan is offered with its iterations one by one."""


@dataclass(frozen=True, slots=True)
class StartPlan(Opening):
    """Offers a correct plan of the instance, so that the result is no worse; a phased one also as a listed one."""

    plan: Plan
    phased: ClassVar[bool | None] = None

    @property
    def from_phases(self) -> bool:
        """Return whether the plan is phased."""
        return self.plan.is_phased

    def offer(self, solve_state: SolveState) -> None:
        """Offer the plan."""
        instance, plan = solve_state.operations.instance, self.plan
        if plan.is_phased:
            solve_state.offer_phased(plan)
            # Only moves make a difference (specification: phased-plans).
            if instance.moving_jobs or is_long(instance, _MOST_OFFERED):
                return
            plan = listed(plan)
        solve_state.offer(timetable_in(_in_order(instance, plan)))


def _in_order(instance: Instance, plan: Plan) -> Plan:
    """Return the plan with its jobs in the order of the instance."""
    jobs = {job.name: job for job in plan.jobs}
    return plan.with_jobs(tuple(jobs[job.name] for job in instance.jobs))

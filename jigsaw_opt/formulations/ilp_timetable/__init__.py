"""The finite horizon as a mixed-integer program; see ``docs/models.md`` for it in formulas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from math import inf

from jigsaw_opt.formulations.algebra import AlgebraicModel
from jigsaw_opt.formulations.ilp_timetable.memory import Following, add_memory, add_present_jobs
from jigsaw_opt.formulations.ilp_timetable.reading import Value, decisions_of
from jigsaw_opt.formulations.ilp_timetable.resources import add_blocks_disjoint, add_transfers_disjoint
from jigsaw_opt.formulations.ilp_timetable.variables import JobVariables, time_step
from jigsaw_opt.formulations.timetable.eligibility import GpuEligibility
from jigsaw_opt.formulations.timetable.loads import add_loads
from jigsaw_opt.formulations.timetable.symmetry import add_order_of_jobs, alike_gpus, alike_servers
from jigsaw_opt.formulations.timetable.timing import add_job, add_objective
from jigsaw_opt.formulations.timetable.windows import Window
from jigsaw_opt.problem.clock import checking_deadline
from jigsaw_opt.problem.compiled.operations import Operations
from jigsaw_opt.problem.compiled.timetable import Timetable, assemble

_LARGEST_CODE = 2**12
"""A list of workers by job is read as one number up to this, from as many of the first jobs as fit into it."""


def add_order(model: AlgebraicModel, eligibility: GpuEligibility, jobs: Sequence[JobVariables]) -> None:
    """Order identical jobs by their ends, and identical servers and the GPUs of a server by their workers.

    `model`: the program, which receives columns and rows.

    Notes
    -----
    That one list is lexicographically no smaller than another one is stated of numbers whose digits are the entries.
    """
    add_order_of_jobs(model, eligibility, jobs)
    holders = [job_vars.assigned for job_vars in jobs]
    for name, pairs in chain(alike_servers(eligibility, jobs), alike_gpus(eligibility, holders)):
        weight, digits = _LARGEST_CODE, []
        for first, second, most in pairs:
            weight //= most + 1
            if weight > 0:
                digits.append(weight * (model.total(first) - model.total(second)))
        model.add(model.total(digits) >= 0, name)


@dataclass(frozen=True, slots=True)
class IlpTimetable:
    """Variables and constraints of one instance.

    `eligibility`: the instance and its GPUs. `jobs`: variables, one entry for each job. `program`: the mixed-integer
    program, in microseconds. `following`: which job has ended when another one begins, where memory may ask for it.
    """

    eligibility: GpuEligibility
    jobs: Sequence[JobVariables]
    program: AlgebraicModel
    following: Following

    def plan(self, value: Value) -> Timetable:
        """Return the timetable of a solution, given the value of each variable; never later than the solution."""
        decisions = decisions_of(self.eligibility, self.jobs, value, self.following)
        return Timetable(assemble(self.eligibility.operations, decisions))


def build(
    operations: Operations,
    spans: Sequence[Window],
    bound: int,
    limit: float,
    room: float = 0.25,
    most_coefficients: float = inf,
    on_row: Callable[[int], None] | None = None,
) -> IlpTimetable:
    """Build the model of a finite instance.

    `spans`: what is known of the times of each job where the objective is at most `limit`. `bound, limit`: every plan's
    objective is at least `bound`, and only plans at most `limit` are of interest. `room`: microseconds behind its
    deadline at which a job may end, for engines that calculate in floats; below `time_step` it allows no plan that
    breaks a deadline. `most_coefficients`: a program with more raises a `ProgramTooLargeError`. `on_row`: called with
    the number of rows after each.
    """
    model, eligibility = AlgebraicModel("jigsaw", most_coefficients, on_row), GpuEligibility(operations)
    objective = model.time(operations.objective, bound, limit)
    model.minimize(objective)
    jobs = [JobVariables(*parts) for parts in zip(range(len(spans)), operations.jobs, spans, strict=True)]
    if not all(eligibility.allowed(job) for job in operations.jobs):
        # A row that nothing meets: the engine proves that there is no plan.
        model.add(False, "no_gpu")
        return IlpTimetable(eligibility, jobs, model, {})
    for job_vars in jobs:
        add_job(model, eligibility, job_vars)
    following, step = Following(), time_step(operations)
    if operations.has_scarce_holdings:
        following = add_present_jobs(model, eligibility, jobs, step)
    else:
        add_memory(model, eligibility, jobs)
    add_blocks_disjoint(model, eligibility, jobs)
    add_transfers_disjoint(model, jobs)
    add_order(model, eligibility, jobs)
    for job_vars in jobs:
        if job_vars.job.deadline_us is not None:
            # Rounded down to a time at which the job can end (specification: deadline).
            latest = job_vars.job.deadline_us // step * step + room
            model.add(job_vars.ends[-1] <= latest, f"deadline_{job_vars.number}")
    weighted = operations.objective == "weighted_completion"
    add_objective(model, objective, [(job_vars.job.weight, job_vars.ends[-1]) for job_vars in jobs], weighted)
    if not weighted:
        add_loads(model, eligibility, jobs, objective)
    return IlpTimetable(eligibility, jobs, model, following)


def fewest_coefficients(operations: Operations) -> int:
    """Return how many coefficients the program that `build` makes has at least, so that a huge one is not begun.

    Two blocks of different jobs have two rows of at least two variables on each GPU that both jobs may use.
    """
    eligibility = GpuEligibility(operations)
    blocks: Counter[int] = Counter()
    of_one_job: Counter[int] = Counter()
    for job in checking_deadline(operations.jobs):
        for gpu in eligibility.allowed(job):
            blocks[gpu] += job.iterations
            of_one_job[gpu] += job.iterations**2
    return sum(2 * (count**2 - of_one_job[gpu]) for gpu, count in blocks.items())

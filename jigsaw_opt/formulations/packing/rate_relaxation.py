"""The rate relaxation of packing, jobs in any shares of any GPUs, and the levels that keep GPUs busy least.

With classes of jobs ``c``, steps ``k`` of a class's value and types of servers ``t``, where progress ``y_ct`` of class
``c`` on type ``t`` takes what `Needs` says of an iteration for each ``tau_c`` of progress::

    max  sum_ck  weight_c slope_ck z_ck
    s.t. sum_k z_ck - sum_t y_ct <= 0                          (progress)
         sum_t (iteration_ct / tau_c) y_ct <= M_c              (jobs)
         sum_c (work_ct / tau_c) y_ct <= N_t G_t               (GPUs)
         sum_c (servers_ct links_ct / tau_c) y_ct <= N_t       (links)
         sum_c (state_ct iteration_ct / tau_c) y_ct <= N_t G_t memory_t
         0 <= z_ck <= share_k M_c - share_{k-1} M_c,  y_ct >= 0

No timetable of any set of jobs breaks a row, whatever their widths and however often each does an iteration: a job has
one iteration at a time, each GPU and each link does one operation at a time, and states stay in memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from jigsaw_opt.formulations.linear import Entries, LinearProgram, ProgramBuilder
from jigsaw_opt.formulations.packing.coscheduling import JobKind, Needs, kinds, needs, references_us
from jigsaw_opt.formulations.packing.master import Master
from jigsaw_opt.problem.compiled.operations import OperationGraph
from jigsaw_opt.problem.costs import ceil_div
from jigsaw_opt.problem.packing import PackingProblem


class _Flow(NamedTuple):
    """Progress of a class on a type of servers, with what a unit of it takes."""

    of_class: int
    type: int
    jobs: float
    work: float
    links: float
    memory: float


def rate_relaxation(problem: PackingProblem) -> LinearProgram:
    """Build the relaxation, which minimises the negative of the value; columns are all ``z``, then all ``y``."""
    import numpy as np

    master, flows = Master(problem), _flows(problem)
    steps, types, classes = len(master.costs), len(problem.types), len(problem.classes)
    progress, gpus = 0, 2 * classes
    # Rows in this order: progress and jobs by class, then GPUs, links and memory by type.
    rows, columns, values = [], [], []
    for number, step in enumerate(master.steps):
        rows.append(progress + step.rows[0] - master.progress(0))
        columns.append(number)
        values.append(1.0)
    for number, flow in enumerate(flows, steps):
        on = gpus + flow.type
        rows += [progress + flow.of_class, classes + flow.of_class, on, on + types, on + 2 * types]
        columns += [number] * 5
        values += [-1.0, flow.jobs, flow.work, flow.links, flow.memory]
    builder = ProgramBuilder()
    builder.add_columns(-np.array(master.costs), upper=master.widths)
    builder.add_columns(np.zeros(len(flows)))
    most = [*[0.0] * classes, *(float(c.count) for c in problem.classes), *_capacity(problem)]
    builder.add_rows(Entries(rows, columns, values), -np.inf, most)
    return builder.program()


def _capacity(problem: PackingProblem) -> list[float]:
    """Return GPUs, links and memory by type; memory in gigabytes, so that all rows are of a size."""
    gpus = [t.count * t.server.gpus for t in problem.types]
    memory = [n * t.server.gpu_memory / 1e9 for n, t in zip(gpus, problem.types, strict=True)]
    return [*map(float, gpus), *(float(t.count) for t in problem.types), *memory]


def _flows(problem: PackingProblem) -> list[_Flow]:
    known, of_class = kinds(problem)
    references = references_us(problem, known)
    taken = {(t, kind): needs(problem, t, kind) for t in range(len(problem.types)) for kind in known}
    flows = [
        _flow(c, t, taken, known[k], references) for c, k in enumerate(of_class) for t in range(len(problem.types))
    ]
    return [flow for flow in flows if flow is not None]


def _flow(
    number: int,
    on: int,
    taken: Mapping[tuple[int, JobKind], Needs | None],
    kind: JobKind,
    references: Mapping[JobKind, int],
) -> _Flow | None:
    own = taken[on, kind]
    if own is None:
        return None
    unit = references[kind]
    jobs = own.iteration_us / unit
    links = float(own.servers * own.links_us / unit)
    return _Flow(number, on, jobs, float(own.work_us / unit), links, jobs * own.state_bytes / 1e9)


def cheapest_levels(job: OperationGraph, cost: Sequence[int]) -> tuple[int, ...] | None:
    """Return the levels of the slots, ascending, of least total cost that a free rule allows in every iteration alike.

    As many slots as the rule asks for are at the last level. The levels of the others add up to the rest of the
    least total of an iteration, rounded up; which levels these are is a knapsack problem, solved exactly.

    None where no levels add up to the least total.

    `cost`: cost of a block by level (index ``level - 1``), which never falls.
    """
    covering = job.rule.min_contributors
    others = job.slots - covering
    # What the other slots must add to those at the last level, which cover every bucket.
    missing = ceil_div(job.rule.min_total, job.iterations) - covering * job.levels
    if missing > others * job.levels:
        return None
    # best[total] = least cost of the slots so far whose levels add up to `total`, or to `missing` and more.
    best: list[tuple[int, tuple[int, ...]] | None] = [(0, ()), *[None] * max(0, missing)]
    for _ in range(others):
        following: list[tuple[int, tuple[int, ...]] | None] = [None] * len(best)
        for total, found in enumerate(best):
            if found is None:
                continue
            for level in range(1, job.levels + 1):
                reached = min(total + level, len(best) - 1)
                value = (found[0] + cost[level - 1], (*found[1], level))
                following[reached] = min(value, following[reached] or value)
        best = following
    last = best[-1]
    return None if last is None else tuple(sorted((*last[1], *[job.levels] * covering)))


def with_cheapest_levels(job: OperationGraph, gpu_type: str) -> OperationGraph:
    """Fix the levels of a job with a free rule without balance to those that keep GPUs busy least.

    The job with these levels in every iteration; the job as it is under another rule.
    """
    if job.rule.multiset is not None or job.rule.balance is not None:
        return job
    levels = cheapest_levels(job, job.blocks[0].duration_us[gpu_type])
    return job if levels is None else replace(job, rule=replace(job.rule, multiset=levels))

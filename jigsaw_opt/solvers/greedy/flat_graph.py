"""The operations of placed jobs as a `Graph` on flat lists or arrays, which follows when a job is placed elsewhere."""

from __future__ import annotations

from itertools import accumulate, chain

from jigsaw_opt.problem.clock import checking_deadline
from jigsaw_opt.problem.compiled.operations import OperationGraph, Operations
from jigsaw_opt.solvers.assignments.assignment import Assignment
from jigsaw_opt.solvers.assignments.layout import Layout
from jigsaw_opt.solvers.engines.compiled import Numbers, arrays
from jigsaw_opt.solvers.kernels.period import Period
from jigsaw_opt.solvers.kernels.sequence import ACROSS_ITERATIONS, FIXED, WITHIN_ITERATION, Graph

__all__ = ["FlatGraph", "blank_period", "exchange_scope"]


class FlatGraph:
    """The operations of an instance, whose jobs are nowhere at first.

    `graph`: its operations; durations of transfers by contributors are left to who asks for them. `base`: number of the
    first operation of every job, and of all operations. `compiled`: whether there are arrays instead of lists.
    """

    def __init__(self, operations: Operations, layout: Layout) -> None:
        jobs = operations.jobs
        self._gpus, self.resources = len(layout.gpus), len(layout.gpus) + layout.links
        self.base = [0, *accumulate(job.iterations * _width(job) for job in jobs)]
        self._group = [0, *accumulate(job.slots + 1 for job in jobs)]
        self._links = [min(layout.links, 2 * job.slots) if job.slots > 1 else 0 for job in jobs]
        self._placed: list[Assignment | None] = [None] * len(jobs)
        self.compiled = False
        self.graph = self._frame(operations)

    @property
    def size(self) -> int:
        """Return the number of operations."""
        return self.base[-1]

    def place(self, index: int, assignment: Assignment) -> bool:
        """Put a job on an assignment; return whether that changed anything."""
        if assignment is self._placed[index]:
            return False
        self._placed[index] = assignment
        job, group = assignment.job, self._group[index]
        if len(assignment.links) > self._links[index]:
            self._make_room(index, len(assignment.links))
        graph = self.graph
        graph.cap[group : group + job.slots] = assignment.caps or [job.levels] * job.slots
        graph.uses[group + job.slots] = len(assignment.links)
        for numbers, at, values in (
            (graph.use, graph.use_at[group], assignment.gpus),
            (graph.use, graph.use_at[group + job.slots], [self._gpus + link for link in assignment.links]),
            (graph.table, graph.table_at[group], list(chain.from_iterable(assignment.tables))),
        ):
            numbers[int(at) : int(at) + len(values)] = values
        return True

    def compile(self) -> None:
        """Turn to arrays."""
        self.graph, self.compiled = arrays(self.graph), True

    def _make_room(self, index: int, links: int) -> None:
        """Give a job room for more links, at the end of all."""
        group = self._group[index + 1] - 1
        self._links[index], self.graph.use_at[group] = links, len(self.graph.use)
        use: Numbers = [*map(int, self.graph.use), *[0] * links]
        self.graph = self.graph._replace(use=arrays(use) if self.compiled else use)

    def _frame(self, operations: Operations) -> Graph:
        jobs, cyclic = operations.jobs, operations.horizon == "cyclic"
        uses = [use for job, links in zip(jobs, self._links, strict=True) for use in (*[1] * job.slots, links)]
        tables = [depth for job in jobs for depth in (*[job.levels] * job.slots, 0)]
        *use_at, used = accumulate(uses, initial=0)
        *table_at, tabled = accumulate(tables, initial=0)
        *exchange_at, exchanges = accumulate((len(job.transfers) * job.slots for job in jobs), initial=0)
        job_of: list[int] = []
        group_of: list[int] = []
        first: list[int] = []
        for index, job in enumerate(checking_deadline(jobs)):
            width, group = _width(job), self._group[index]
            job_of += [index] * (width * job.iterations)
            group_of += [*range(group, group + job.slots), *[group + job.slots] * (width - job.slots)] * job.iterations
            for at in range(self.base[index], self.base[index + 1], width):
                first += [at] * width
        last = [base - 1 for base in self.base[1:]]
        return Graph(
            job=job_of,
            group=group_of,
            first=first,
            use_at=use_at,
            uses=uses,
            use=[0] * used,
            cap=[0] * len(uses),
            table_at=table_at,
            table=[0] * tabled,
            slots=[job.slots for job in jobs],
            buckets=[len(job.transfers) for job in jobs],
            iterations=[job.iterations for job in jobs],
            depth=[job.levels for job in jobs],
            contributors=[job.rule.min_contributors for job in jobs],
            exchange_scope=[exchange_scope(job) for job in jobs],
            exchange_at=exchange_at,
            exchange=[0] * exchanges,
            release=[job.release_us for job in jobs],
            begin=self.base[:-1],
            last=last,
            before_begin=last[:] if cyclic else [-1] * len(jobs),
            weight=[job.weight for job in jobs] if operations.objective == "weighted_completion" else [],
        )


def blank_period(size: int, resources: int, infinity: int) -> Period:
    """Return a schedule of so many operations, GPUs and links in which all starts are still 0.

    `infinity`: A number larger than any time, in microseconds.
    """
    lengths = dict.fromkeys(Period._fields, size) | {"free": resources, "user": resources}
    one = {"epoch": [1], "circuit": [0], "iterations": [0], "halt": [0], "infinity": [infinity]}
    return Period(**{name: one.get(name) or [0] * length for name, length in lengths.items()})


def exchange_scope(job: OperationGraph) -> int:
    """Return which exchanges of levels keep the rule of a job (specification: depth-rules)."""
    if job.rule.balance is not None:
        return FIXED
    return WITHIN_ITERATION if job.rule.multiset is not None else ACROSS_ITERATIONS


def _width(job: OperationGraph) -> int:
    """Return the number of operations of an iteration."""
    return job.slots + len(job.transfers) + 1

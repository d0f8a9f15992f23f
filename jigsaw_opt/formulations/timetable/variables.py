"""The variables of a model by their meaning; what kind they are is up to its engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from jigsaw_opt.formulations.timetable.eligibility import GpuEligibility
from jigsaw_opt.formulations.timetable.order_encoding import ChannelEncoding, Variable
from jigsaw_opt.formulations.timetable.windows import Window
from jigsaw_opt.problem.compiled.critical import candidate_levels
from jigsaw_opt.problem.compiled.operations import OperationGraph
from jigsaw_opt.problem.costs import most_bytes

Expression = TypeVar("Expression")


@dataclass(slots=True)
class ExchangeVariables(Generic[Variable, Expression]):
    """The transfer of one bucket in one iteration of a job that may use links."""

    start: Variable
    duration: Expression
    end: Expression


@dataclass(slots=True)
class JobVariables(Generic[Variable, Expression]):
    """Variables of one job. A worker is known by its GPU: workers of a job are alike and on different GPUs.

    `assigned`: ``assigned[g]``: the job has a worker on GPU ``g``; only GPUs that it may use. `used`: ``used[s]``: the
    job has a worker on server ``s``. `links`: ``links[k]``: transfers of the job use link ``k``. `levels`:
    ``levels[i][g][d]``: the worker on ``g`` has level ``d`` in iteration ``i``. `starts`: ``starts[i][g]``: start of
    its block; without a meaning where there is no worker. `ends`: ``ends[i]``: moment from which iteration ``i + 1``
    may start. `exchanges`: ``exchanges[i][b-1]``, empty where the job can use no link. `channel`: rate and
    latency of its transfers. `fewest, shortest`: least number of contributors and least duration of each bucket's
    transfer.
    """

    number: int
    job: OperationGraph
    window: Window
    assigned: dict[int, Variable] = field(default_factory=dict)
    used: dict[int, Variable] = field(default_factory=dict)
    links: dict[int, Variable] = field(default_factory=dict)
    levels: list[dict[int, dict[int, Variable]]] = field(default_factory=list)
    starts: list[dict[int, Variable]] = field(default_factory=list)
    ends: list[Variable] = field(default_factory=list)
    exchanges: list[list[ExchangeVariables[Variable, Expression]]] = field(default_factory=list)
    channel: ChannelEncoding[Variable] = field(default_factory=ChannelEncoding)
    fewest: list[int] = field(default_factory=list)
    shortest: list[int] = field(default_factory=list)

    def on_one_server(self, eligibility: GpuEligibility) -> bool:
        """Return whether all workers sit on one server, for over links the job would end too late."""
        return not eligibility.may_cross(self.job, self.window.deadline - self.window.release)

    def on_server(self, eligibility: GpuEligibility, server: int) -> Sequence[Variable]:
        """Return the placement variables of the GPUs of one server."""
        return [literal for g, literal in self.assigned.items() if eligibility.server(g) == server]

    def earliest(self, i: int) -> int:
        """Return the earliest start of a block of iteration `i`, in microseconds."""
        return self.window.release + i * self.window.iteration

    def latest(self, i: int) -> int:
        """Return the latest end of iteration `i`, in microseconds."""
        return self.window.deadline - (self.job.iterations - 1 - i) * self.window.iteration

    def certain(self, bucket: int) -> bool:
        """Return whether the number of contributors of a bucket is always the least one."""
        return self.job.rule.multiset is not None or self.fewest[bucket - 1] == self.job.slots

    def different_levels(self, gpu: int) -> list[dict[int, Variable]]:
        """Return the level literals on a GPU by iteration; only one iteration where all have the same literals."""
        return [levels[gpu] for levels in (self.levels if len(candidate_levels(self.job)) > 1 else self.levels[:1])]

    def activations(self, gpu: int) -> list[tuple[int, Variable]]:
        """Return the bytes of activations on a GPU by level, each with a literal of it."""
        sizes = self.job.activation_bytes
        return [(sizes[d - 1], literal) for levels in self.different_levels(gpu) for d, literal in levels.items()]


def tight_gpus(
    eligibility: GpuEligibility, jobs: Sequence[JobVariables[Variable, Expression]]
) -> Iterator[tuple[int, list[JobVariables[Variable, Expression]]]]:
    """Yield the GPUs whose memory the jobs that may sit on them can exceed, with these jobs."""
    for g in range(len(eligibility.gpus)):
        inside = [job_vars for job_vars in jobs if g in job_vars.assigned]
        if most_bytes(job_vars.job for job_vars in inside) > eligibility.memory(g):
            yield g, inside

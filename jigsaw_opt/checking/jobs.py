"""Jobs of a plan side by side with those of the instance, with what the rules need of each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from jigsaw_opt.checking.network import ExchangeTerms, RouteFinder
from jigsaw_opt.checking.task_graph_job import CheckedTaskGraphJob, checked_task_graph
from jigsaw_opt.checking.terms import ModelTerms, exchanged, model_terms
from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.job import Job
from jigsaw_opt.problem.plan import Iteration, JobPlan, TaskGraphIteration, TaskGraphJobPlan
from jigsaw_opt.problem.task_graph import TaskGraphJob

# Leading zeros would give one GPU several names, and exclusive use could then be evaded. The limit of digits keeps
# `int` cheap.
_GPU = re.compile(r"(?P<server>[^/]+)/(?P<number>0|[1-9][0-9]{0,15})", re.DOTALL)


@dataclass(frozen=True, slots=True)
class CheckedJob:
    """A job of the plan and the job of the instance that it claims to be.

    `path`: path of the job in the plan. `job, plan`: what was asked and what is claimed. `servers`: number of the
    server of each worker; None where the plan names no GPU that exists. `durations`: block duration by level for each
    worker; None where its GPU cannot run the model. `exchange`: what its transfers use; None where that is unknown.
    """

    path: str
    job: Job
    plan: JobPlan
    terms: ModelTerms
    servers: tuple[int | None, ...]
    durations: tuple[tuple[int, ...] | None, ...]
    exchange: ExchangeTerms | None

    def iterations(self) -> Iterator[tuple[str, Iteration]]:
        """Yield the iterations of the plan with their paths."""
        for index, iteration in enumerate(self.plan.iterations):
            yield f"{self.path}.iterations[{index}]", iteration

    def has_all_blocks(self, iteration: Iteration) -> bool:
        """Return whether the iteration has one block a worker."""
        return len(iteration.blocks) == self.job.workers

    def has_all_transfers(self, iteration: Iteration) -> bool:
        """Return whether the iteration has buckets 1 to D in order, or none for one worker."""
        expected = range(1, self.terms.depth + 1) if self.job.workers >= 2 else ()
        return [transfer.bucket for transfer in iteration.transfers] == list(expected)

    def levels(self, iteration: Iteration) -> tuple[int, ...] | None:
        """Return the level of each worker, or None unless there is one for each and all exist."""
        levels = tuple(block.level for block in iteration.blocks)
        known = self.has_all_blocks(iteration) and all(1 <= level <= self.terms.depth for level in levels)
        return levels if known else None

    @property
    def end_us(self) -> int:
        """Largest end in its last iteration, in microseconds (specification: job-end)."""
        return self.plan.end_us

    @property
    def is_whole(self) -> bool:
        """Whether nothing is missing and nothing is too much, so that sums over the job mean something."""
        return len(self.plan.iterations) == self.job.iterations and all(
            self.has_all_blocks(i) and self.has_all_transfers(i) for i in self.plan.iterations
        )


class Pairing:
    """Pairs jobs of an instance with those of plans, with what models and routes come to worked out once."""

    def __init__(self, instance: Instance) -> None:
        self._cluster = instance.cluster
        self._terms = {name: model_terms(model) for name, model in instance.models.items()}
        named = {job.route_policy for job in instance.jobs}
        self._finders = {policy: RouteFinder(instance.cluster, policy) for policy in named}
        self._servers = {server.name: number for number, server in enumerate(instance.cluster.servers)}

    def of(
        self, jobs: Iterable[Job | TaskGraphJob], plans: Iterable[JobPlan | TaskGraphJobPlan], root: str = "$"
    ) -> list[CheckedJob | CheckedTaskGraphJob]:
        """Pair by names, so that jobs in the wrong order can still be checked; others are left out.

        So are those whose operations are of the other kind of job.
        """
        waiting = {job.name: job for job in jobs}
        paired = []
        for index, claimed in enumerate(plans):
            # `pop` pairs only the first of several plans with one name; `belonging` reports the others.
            job = waiting.pop(claimed.name, None)
            if job is not None and (found := self._pair(f"{root}.jobs[{index}]", job, claimed)) is not None:
                paired.append(found)
        return paired

    def _pair(
        self, path: str, job: Job | TaskGraphJob, claimed: JobPlan | TaskGraphJobPlan
    ) -> CheckedJob | CheckedTaskGraphJob | None:
        found, routes = of_kind(job, claimed), self._finders[job.route_policy]
        if isinstance(job, Job) and isinstance(found, JobPlan):
            return _checked(
                path, job, found, exchanged(self._terms[job.model], job.exchange), self._cluster, self._servers, routes
            )
        if isinstance(job, TaskGraphJob) and isinstance(found, TaskGraphJobPlan):
            sites = tuple(_server_of(gpu, self._cluster, self._servers) for gpu in found.gpus)
            return checked_task_graph(path, job, found, sites, self._cluster, routes)
        return None


def of_kind(job: Job | TaskGraphJob, plan: JobPlan | TaskGraphJobPlan) -> JobPlan | TaskGraphJobPlan | None:
    """Return the plan of a job as one of the job's own kind; None where its operations are of the other kind.

    `plan`: what the plan says of it; without any operation it may be of either kind.
    """
    if isinstance(plan, JobPlan) == isinstance(job, Job):
        return plan
    if any(iteration.blocks or iteration.transfers for iteration in plan.iterations):
        return None
    # Without any operation it may be either.
    if isinstance(job, Job):
        return JobPlan(plan.name, plan.gpus, tuple(Iteration((), ()) for _ in plan.iterations))
    return TaskGraphJobPlan(plan.name, plan.gpus, tuple(TaskGraphIteration((), ()) for _ in plan.iterations))


def _checked(
    path: str,
    job: Job,
    plan: JobPlan,
    terms: ModelTerms,
    cluster: Cluster,
    numbers: dict[str, int],
    routes: RouteFinder,
) -> CheckedJob:
    servers = tuple(_server_of(gpu, cluster, numbers) for gpu in plan.gpus)
    # A list with None in it stays as long as the workers, so that indices mean the same everywhere.
    durations = tuple(None if s is None else terms.durations.get(cluster.servers[s].gpu_type) for s in servers)
    known = [server for server in servers if server is not None]
    complete = len(known) == len(servers) == job.workers
    exchange = routes.exchange(known) if complete else None
    return CheckedJob(path, job, plan, terms, servers, durations, exchange)


def _server_of(gpu: str, cluster: Cluster, numbers: dict[str, int]) -> int | None:
    match = _GPU.fullmatch(gpu)
    if match is None or match["server"] not in numbers:
        return None
    server = numbers[match["server"]]
    return server if int(match["number"]) < cluster.servers[server].gpus else None

"""The instance: cluster, models, jobs, horizon and objective (specification: instance)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from jigsaw_opt.errors import UsageError, wrong_input
from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.problem.job import Job
from jigsaw_opt.problem.model import Model
from jigsaw_opt.problem.rules.keyed import altered, hash_of
from jigsaw_opt.problem.rules.part import CheckedPart
from jigsaw_opt.problem.task_graph import TaskGraph, TaskGraphJob

Horizon = Literal["finite", "cyclic"]
Objective = Literal["makespan", "weighted_completion", "period"]
FORMAT = "jigsaw-instance/1"
"""Name of its document's format."""
_ALONE = "only data-parallel jobs are taken here"
_T = TypeVar("_T")
_J = TypeVar("_J", bound=Job | TaskGraphJob)


def in_a_period(job: _J, iterations: int) -> _J:
    """Return a job as part of a cyclic plan, without what only the finite horizon has."""
    return altered(job, iterations=iterations, release_us=0, deadline_us=None, restart_us=None)


class _Noting:
    """Remembers what was found out about an object that never changes; no copy and no changed one knows of it."""

    __slots__ = ("_notes",)
    _notes: dict[str, object]

    def noted(self, name: str, find: Callable[[], _T]) -> _T:
        """Return what `find` returned when it was first asked for under a name."""
        if not hasattr(self, "_notes"):
            object.__setattr__(self, "_notes", {})
        if name not in self._notes:
            self._notes[name] = find()
        found: _T = self._notes[name]  # type: ignore[assignment]
        return found


@dataclass(frozen=True, slots=True)
class HeldCapacity:
    """What jobs hold, beside memory, as long as they are present (specification: licences).

    `name`: what it is. `units`: how many there are. `amounts`: how many each job holds, by name; 0 is left out.
    """

    name: str
    units: int
    amounts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Instance(_Noting, CheckedPart, definition="#"):
    """The jobs and the cluster. Fields as in the document ``jigsaw-instance/1``; none of them is changed afterwards."""

    name: str
    cluster: Cluster
    models: Mapping[str, Model]
    jobs: tuple[Job | TaskGraphJob, ...]
    horizon: Horizon = "finite"
    objective: Objective = "makespan"

    def __hash__(self) -> int:
        """Return a hash by value, so that instances go into sets and are keys."""
        return self.noted("hash", lambda: hash_of(self))

    def keyed(self) -> dict[str, Any]:
        """Return its values by the keys of its document, its parts left as they are."""
        return {"format": FORMAT, **CheckedPart.keyed(self)}

    @property
    def data_parallel_jobs(self) -> tuple[Job, ...]:
        """Those of its jobs that are data-parallel."""
        return tuple(job for job in self.jobs if isinstance(job, Job))

    @property
    def task_graph_jobs(self) -> tuple[TaskGraphJob, ...]:
        """Those of its jobs that have a task graph."""
        return tuple(job for job in self.jobs if isinstance(job, TaskGraphJob))

    @property
    def task_graph_of(self) -> Mapping[int, TaskGraph]:
        """Task graph of each of its jobs that has one, by the job's number."""
        return {number: job.shape for number, job in enumerate(self.jobs) if isinstance(job, TaskGraphJob)}

    @property
    def guaranteed_jobs(self) -> tuple[Job | TaskGraphJob, ...]:
        """Its jobs with a deadline or a cycle-time limit (specification: deadline, pace)."""
        return tuple(job for job in self.jobs if job.deadline_us is not None or job.pace_us is not None)

    @property
    def moving_jobs(self) -> tuple[Job | TaskGraphJob, ...]:
        """Those of its jobs that may have other GPUs in another phase (specification: moves)."""
        return tuple(job for job in self.jobs if job.restart_us is not None)

    @property
    def policed(self) -> tuple[Job | TaskGraphJob, ...]:
        """Those of its jobs whose routes keep a policy (specification: route-policies)."""
        return tuple(job for job in self.jobs if job.route_policy is not None)

    @property
    def scarce_capacities(self) -> tuple[HeldCapacity, ...]:
        """What all jobs hold more of than there is, so that they cannot all be present together."""
        return self.noted("scarce capacities", lambda: tuple(self._scarce_licences()))

    def _scarce_licences(self) -> Iterator[HeldCapacity]:
        for name, count in (self.cluster.licences or {}).items():
            amounts = {job.name: 1 for job in self.jobs if name in (job.licences or ())}
            if len(amounts) > count:
                yield HeldCapacity(f"licence {name!r}", count, amounts)

    @property
    def workers(self) -> int:
        """Workers of all jobs; where a job has a task graph, its slots."""
        return sum(job.workers for job in self.jobs)

    @property
    def blocks(self) -> int:
        """Blocks of all jobs in all iterations."""
        return sum(job.iterations * job.blocks for job in self.jobs)

    def beyond(self, lacks: Collection[str] | None) -> str | None:
        """Return why whoever lacks some abilities does not take the instance; None where it needs none of them.

        Parameters
        ----------
        lacks
            Some of ``task_graphs``, ``guarantees``, ``route_policies``, ``power_caps`` and ``held_capacities``; None
            for all of them.
        """
        needs = (
            ("task_graphs", self.task_graph_jobs, "job {!r} has a task graph"),
            ("guarantees", self.guaranteed_jobs, "job {!r} has a deadline or a cycle-time limit"),
            ("route_policies", self.policed, "job {!r} has a route policy"),
            ("power_caps", self.cluster.capacities, "its cluster has power cap {!r}"),
            ("held_capacities", self.scarce_capacities, "its jobs hold more than there is of {}"),
        )
        met = (told.format(of[0].name) for name, of, told in needs if of and (lacks is None or name in lacks))
        return next(met, None)

    def require_jobs(self) -> None:
        """Refuse what is left once all jobs have ended.

        Raises
        ------
        InvalidInputError
            It has no job.
        """
        if not self.jobs:
            raise wrong_input("$.jobs", "there is no job, so nothing is to be planned", code="empty")

    @property
    def data_parallel(self) -> tuple[Job, ...]:
        """The data-parallel jobs, which must be all jobs of the instance.

        Raises
        ------
        UsageError
            Some job has a task graph.
        """
        if self.task_graph_jobs:
            told = f"instance {self.name!r} has jobs with a task graph, such as {self.task_graph_jobs[0].name!r}"
            raise UsageError(f"{told}; {_ALONE}", code="unsupported")
        return self.data_parallel_jobs

"""Facts of an instance that proofs use: least times of jobs over all placements and levels that the rules allow.

They are worked out from docs/proofs.md alone, and share nothing with the code that makes proofs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cached_property

from jigsaw_opt.checking.proofs.facts.cluster_facts import ClusterFacts
from jigsaw_opt.checking.proofs.facts.job_facts import IterationFacts, JobFacts
from jigsaw_opt.checking.proofs.facts.level_limits import level_limits
from jigsaw_opt.checking.proofs.facts.task_graphs import TaskGraphFacts
from jigsaw_opt.checking.proofs.step import ProofStep
from jigsaw_opt.checking.terms import ModelTerms, exchanged, model_terms
from jigsaw_opt.problem import clock
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.job import Job
from jigsaw_opt.problem.task_graph import TaskGraphJob

_MOST_WORKERS = 10**6
_MOST_PARTS = 20
_MOST = {"rows": 60_000, "variables in rows": 600_000, "operations of cases": 1_000_000, "changes of values": 2_000_000}
"""How much a whole proof may ask a checker to do (docs/proofs.md: limits)."""


class Facts:
    """Facts of one instance, each worked out once, when an argument first asks for it.

    `whole`: those of the instance of which this one has some jobs alone, in the same proof.
    """

    def __init__(self, instance: Instance, whole: Facts | None = None) -> None:
        self._spent: Counter[str] = Counter() if whole is None else whole._spent
        self.depth: int = 0 if whole is None else whole.depth + 1
        self.ends_of_pairs: dict[tuple[str, ...], list[tuple[int, int]]] = {}
        self.instance = instance
        self.objective, self.finite = instance.objective, instance.horizon == "finite"
        self._iterations: dict[object, IterationFacts] = {}
        self._jobs: dict[str, JobFacts | None] = {}

    def spend(self, step: ProofStep, what: str, amount: int) -> None:
        """Count what a step asks a checker to do, and fail where the whole proof asks too much."""
        self._spent[what] += amount
        step.require(self._spent[what] <= _MOST[what], f"takes more than {_MOST[what]} {what} in this proof")

    def with_jobs(self, step: ProofStep, instance: Instance) -> Facts:
        """Return the facts of the instance that has some of the jobs alone."""
        step.require(self.depth < _MOST_PARTS, f"is in more than {_MOST_PARTS} arguments about some jobs", "jobs")
        return Facts(instance, self)

    @cached_property
    def cluster(self) -> ClusterFacts:
        """Facts of the cluster."""
        return ClusterFacts(self.instance)

    @cached_property
    def data_parallel(self) -> Mapping[str, Job]:
        """The data-parallel jobs by name."""
        return {job.name: job for job in self.instance.data_parallel_jobs}

    @cached_property
    def terms(self) -> Mapping[str, ModelTerms]:
        """Durations, buckets and memory of the models by name."""
        return {name: model_terms(model) for name, model in self.instance.models.items()}

    def job(self, step: ProofStep, name: str, field: str = "") -> JobFacts:
        """Return the facts of a data-parallel job that a step names, in a field of it."""
        step.require(name in self.data_parallel, f"there is no data-parallel job {name!r}", field)
        clock.check_deadline()
        told = f"job {name!r} has a depth rule that the specification does not know, or too many workers"
        return step.required(self.job_facts(name), told, field)

    @cached_property
    def task_graphs(self) -> Mapping[str, TaskGraphFacts]:
        """The facts of task-graph jobs by name."""
        jobs = (job for job in self.instance.jobs if isinstance(job, TaskGraphJob))
        return {job.name: TaskGraphFacts(self.instance, job) for job in clock.checking_deadline(jobs)}

    def jobs(self, step: ProofStep, field: str) -> Iterator[tuple[ProofStep, JobFacts]]:
        """Yield the jobs that a list names, each with the step that states its facts."""
        seen = set[str]()
        for inner in step.steps(field):
            names = inner.texts("names")
            inner.require(bool(names) and seen.isdisjoint(names), "names no job, or one again", "names")
            seen.update(names)
            for name in names:
                yield inner, self.job(inner, name, "names")
            inner.done()

    def job_facts(self, name: str) -> JobFacts | None:
        """Return the facts of a data-parallel job; None for one that is in no proof."""
        if name not in self._jobs:
            self._jobs[name] = self._worked_out(self.data_parallel[name])
        return self._jobs[name]

    def _worked_out(self, job: Job) -> JobFacts | None:
        if job.workers > _MOST_WORKERS:
            return None
        terms = self.terms[job.model]
        limits = level_limits(job, terms)
        if limits is None:
            return None
        key = (job.model, job.workers, job.exchange, job.route_policy, limits.fixed, limits.contributors)
        if key not in self._iterations:
            own = exchanged(terms, job.exchange)
            self._iterations[key] = IterationFacts(self.cluster, job.workers, own, job.route_policy, limits)
        return JobFacts(job, self._iterations[key], limits)

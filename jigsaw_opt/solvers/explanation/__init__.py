"""Why the jobs of a plan are slow; see ``docs/explain.md``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from jigsaw_opt.arguments import typed
from jigsaw_opt.checking.require import require_correct, require_right
from jigsaw_opt.problem.bound_proof import BoundProof
from jigsaw_opt.problem.efficiency import progress_of
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.plan import Plan
from jigsaw_opt.solvers.explanation.breakdown import JobExplanation, WorkerTime, explain_jobs
from jigsaw_opt.solvers.explanation.changes import JobChange, changes
from jigsaw_opt.solvers.explanation.in_words import ReportedBound, bound_reason
from jigsaw_opt.solvers.explanation.stretches import JobStretches, explain_phases

__all__ = ["Explanation", "JobExplanation", "JobStretches", "WorkerTime", "explain"]


@dataclass(frozen=True, slots=True)
class Explanation:
    """Where the time of jobs of a plan goes, what would make one faster, and why no plan is better than a bound.

    `job`: the only job that was asked for; None for all. `jobs`: the time of each, phase by phase where the plan is
    phased. `proof`: the proof of a bound that was given, which is right; None for none.
    """

    instance: Instance
    plan: Plan
    job: str | None
    jobs: Sequence[JobExplanation] | Sequence[JobStretches]
    proof: BoundProof | None = None

    def changes(self) -> list[JobChange]:
        """Return what each change alone does to the only job, all orders kept; nothing of a phased plan."""
        return [] if self.job is None or self.plan.is_phased else changes(self.instance, self.plan, self.job)

    def bound(self) -> ReportedBound:
        """Return the bound of the proof that was given, or else the best one that the relaxations prove in a second."""
        return bound_reason(self.instance, self.plan.bound, self.proof)

    def progress(self) -> dict[str, float]:
        """Return the mean progress of the jobs that are explained, where it is known (`progress_of`)."""
        known = progress_of(self.instance, self.plan)
        return {job.job: known[job.job] for job in self.jobs if job.job in known}

    def as_json(self) -> dict[str, Any]:
        """Return the figures as values of JSON, with the changes where one job was asked for."""
        told: dict[str, Any] = {"objective": self.instance.objective, "value": self.plan.objective}
        told |= {"bound": {"of_plan": self.plan.bound}, "progress": self.progress()}
        told["jobs"] = [_as_json(job) for job in self.jobs]
        if self.plan.is_phased and self.proof is None:
            return told
        reason = self.bound()
        trust = {"certified": reason.certified, "argument": reason.proof.kind or None}
        told["bound"] |= {"value": reason.value, **trust, "proof": reason.proof.as_json()}
        return told if self.job is None else told | {"changes": [asdict(change) for change in self.changes()]}


@typed
def explain(instance: Instance, plan: Plan, job: str | None = None, proof: BoundProof | None = None) -> Explanation:
    """Return where the time of the jobs of a plan goes.

    Parameters
    ----------
    instance, plan
        A correct plan.
    job
        Name of the only job of interest; None for all in the order of the instance.
    proof
        The proof of a bound, which is checked and told; None for the best one that is found in a second.

    Returns
    -------
    Explanation
        Its figures are computed now, but for those of changes and of the bound.

    Raises
    ------
    CheckFailedError
        The plan breaks a rule, or the proof is wrong.
    UsageError
        There is no job of this name.
    """
    require_correct(instance, plan)
    if proof is not None:
        require_right(instance, proof, plan)
    jobs = explain_phases(instance, plan, job) if plan.is_phased else explain_jobs(instance, plan, job)
    return Explanation(instance, plan, job, jobs, proof)


def _as_json(job: JobExplanation | JobStretches) -> dict[str, Any]:
    told = asdict(job) | {"time_us": job.time_us}
    if isinstance(job, JobExplanation):
        return told | {"waits": [asdict(wait) for wait in job.waits]}
    for stretch, own in zip(told["stretches"], job.stretches, strict=True):
        if own.within is not None:
            stretch["within"]["total_us"] = own.within.total_us
    return told

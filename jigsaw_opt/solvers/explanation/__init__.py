"""Why a job of a plan is slow; see ``docs/explain.md``."""

from __future__ import annotations

from jigsaw_opt.solvers.explanation.explain import JobExplanation, WorkerTime, explain

__all__ = ["JobExplanation", "WorkerTime", "explain"]

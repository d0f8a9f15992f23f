"""`auto`: the solver that fits the size of the instance."""

from __future__ import annotations

from dataclasses import dataclass

from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.registry import Solver, find
from jigsaw_opt.solvers.result import Report, Result

__all__ = ["AUTO", "Auto"]

_EXACT_PIECES = 20_000
"""Above so many blocks and transfers the exact models cost more to build than they find."""


@dataclass(frozen=True, slots=True)
class Auto:
    """Chooses between the exact model and the heuristic."""

    name: str = "auto"
    display_name: str = "cpsat where its model fits the size of the instance, greedy above"

    def unavailable(self) -> str | None:
        """Never: greedy needs no engine."""
        return None

    def unsupported(self, instance: Instance) -> str | None:
        """Never: it takes every instance."""
        return None

    def __call__(self, instance: Instance, options: Options, report: Report) -> Result:
        """Solve with the chosen solver; the result names it."""
        return self.choose(instance)(instance, options, report)

    def choose(self, instance: Instance) -> Solver:
        """The solver for an instance, by its number of blocks and transfers."""
        size = sum(job.iterations * (job.workers + instance.models[job.model].depth) for job in instance.jobs)
        exact = find("cpsat")
        return exact if size <= _EXACT_PIECES and exact.unavailable() is None else find("greedy")


AUTO = Auto()

"""The solver object of the greedy heuristic."""

from __future__ import annotations

from dataclasses import dataclass

from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.pieces import cut
from jigsaw_opt.solvers.control import Control
from jigsaw_opt.solvers.greedy.heuristic import require_size, timetables
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.result import Report, Result, StoppedBy

__all__ = ["GREEDY", "Greedy"]


@dataclass(frozen=True, slots=True)
class Greedy:
    """List scheduling from a balanced placement; the gap is certified by the lower bound."""

    name: str = "greedy"
    display_name: str = "list scheduling; any size, no engine needed; finite and cyclic horizon"

    def unavailable(self) -> str | None:
        """Never: it needs no engine."""
        return None

    def unsupported(self, instance: Instance) -> str | None:
        """Never: it takes both horizons and every objective."""
        return None

    def __call__(self, instance: Instance, options: Options, report: Report) -> Result:
        """Solve the instance.

        Raises
        ------
        TooLargeError
            For more blocks and transfers than `MOST_PIECES`.
        """
        pieces = cut(instance)
        require_size(pieces)
        control = Control(self.name, pieces, options, report)

        def run() -> StoppedBy | None:
            for timetable in timetables(pieces, options.seed):
                if timetable is not None:
                    control.offer(timetable)
                if control.reason() is not None:
                    break
            return control.reason()

        return control.conclude(run)


GREEDY = Greedy()
"""The solver registered as ``greedy``."""

"""How much of the limits of a search is left, in seconds and in deterministic units."""

from __future__ import annotations

import time
from dataclasses import replace

from jigsaw_opt.planning.pipeline.stages import PipelineProblem
from jigsaw_opt.solvers.options import Options

__all__ = ["LimitsLeft"]

_SOLVE_UNITS, _SOLVE_SECONDS = 0.05, 0.2
"""Deterministic units and seconds of a solve at least: it builds and checks an instance."""
_PASS_UNITS = 6e-6
"""Deterministic units of a pass of a list schedule, about the seconds that it takes."""


class LimitsLeft:
    """The limits of a call, and what is left of them.

    `options`: options with the limits of everything together.
    """

    def __init__(self, options: Options) -> None:
        self._options, self._began, self._used = options, time.monotonic(), 0.0

    def left(self) -> float:
        """Return the share of the limits that is left, of the one that ends first; 1 where there is none."""
        options, shares = self._options, [1.0]
        if options.time_limit is not None:
            shares.append(1 - (time.monotonic() - self._began) / max(options.time_limit, 1e-9))
        if options.work_limit is not None:
            shares.append(1 - self._used / max(options.work_limit, 1e-9))
        return 0.0 if options.cancel.is_set() else max(0.0, min(shares))

    def count(self, pipeline: PipelineProblem) -> None:
        """Count a list schedule of a pipeline."""
        layout = pipeline.layout
        self._used += _PASS_UNITS * layout.stages * layout.micro_batches * len(pipeline.kinds)

    def is_spent_by(self, pipeline: PipelineProblem) -> bool:
        """Count a list schedule of a pipeline; return whether nothing is left."""
        self.count(pipeline)
        return self.left() <= 0

    def spend(self, units: float) -> None:
        """Count deterministic units of the engine."""
        self._used += units

    def take(self, share: float) -> Options:
        """Take a share of what is left for one solve, but no less than it takes to begin one."""
        taken = self.part(share, _SOLVE_SECONDS, _SOLVE_UNITS)
        if taken.work_limit is not None:
            # What a solve really takes is not known, so that all it may take is spent at once.
            self.spend(max(taken.work_limit, _SOLVE_UNITS))
        return taken

    def part(self, share: float, least_seconds: float = 0.0, least_units: float = 0.0) -> Options:
        """Return options with a share of what is left, or with the least that is stated where that is more.

        `share`: part of what is left, from 0 to 1. `least_seconds`: least time limit, in seconds, as far as so much is
        left.
        """
        options = self._options
        seconds = work = None
        if options.time_limit is not None:
            left = max(0.0, options.time_limit - (time.monotonic() - self._began))
            seconds = min(left, max(least_seconds, share * left))
        if options.work_limit is not None:
            left = max(0.0, options.work_limit - self._used)
            work = min(left, max(least_units, share * left))
        return replace(options, time_limit=seconds, work_limit=work)

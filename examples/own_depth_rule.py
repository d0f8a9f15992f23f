"""A depth rule of one's own: some workers backpropagate through the whole model, the others stay shallow.

Run it as it stands: ``python examples/own_depth_rule.py``. With the entry point

    [project.entry-points."jigsaw_opt.depth_rules"]
    two-tier = "own_depth_rule:TwoTier"

in the ``pyproject.toml`` of a package, documents may say ``{"rule": "two-tier", "deep": 2}`` and every command reads
them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from jigsaw_opt.instances import load
from jigsaw_opt.problem.depth import DepthPlugin, LevelRule
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.solve import solve


@dataclass(frozen=True, slots=True)
class TwoTier(DepthPlugin):
    """In every iteration `deep` workers are at level D, the others at `shallow`; who is which is free.

    Parameters
    ----------
    deep
        Number of workers at level D; all, where the job has fewer.
    shallow
        Level of the others; D, where the model has fewer levels.
    """

    rule: ClassVar[str] = "two-tier"
    keys: ClassVar[Mapping[str, Any]] = {
        "deep": {"$ref": "#/$defs/positive"},
        "shallow": {"$ref": "#/$defs/positive", "default": 1},
    }
    deep: int
    shallow: int = 1

    def limits(self, workers: int, deepest: int, iterations: int) -> LevelRule:
        """Return what solvers keep: the levels of an iteration, ascending."""
        deep = min(self.deep, workers)
        return LevelRule.fixed((min(self.shallow, deepest),) * (workers - deep) + (deepest,) * deep, iterations)

    def broken(self, levels: Sequence[Sequence[int]], deepest: int) -> str | None:
        """Return whether every worker is at one of the two levels, and enough of them are deep."""
        shallow = min(self.shallow, deepest)
        for iteration, row in enumerate(levels):
            others = [level for level in row if level != deepest]
            if any(level != shallow for level in others):
                return f"iteration {iteration} has levels {sorted(row)}, but only {shallow} and {deepest} are allowed"
            if shallow != deepest and len(row) - len(others) != min(self.deep, len(row)):
                return f"iteration {iteration} has {len(row) - len(others)} workers at level {deepest}, not {self.deep}"
        return None


if __name__ == "__main__":
    plain = load("server/plain")
    for depth in (TwoTier(1), TwoTier(2)):
        jobs = tuple(replace(job, depth=depth) for job in plain.jobs)
        result = solve(replace(plain, name=f"two-tier-{depth.deep}", jobs=jobs), "auto", Options(time_limit=2))
        print(depth, result.status, result.objective, result.bound)

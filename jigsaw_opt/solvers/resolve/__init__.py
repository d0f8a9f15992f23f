"""Solves that go on from a plan, and what the failure of parts of a cluster does to one; see ``docs/explain.md``."""

from jigsaw_opt.solvers.resolve.fix import Fix, placements_of

__all__ = ["Fix", "placements_of"]

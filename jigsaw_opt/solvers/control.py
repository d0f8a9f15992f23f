"""The former name of `jigsaw_opt.solvers.solve_state`; kept for one release."""

from __future__ import annotations

from jigsaw_opt.system.former_names import former_names

_NOW = {"Control": "SolveState", **{name: name for name in ("NO_BOUND", "first_bound")}}
__getattr__ = former_names(__name__, {old: f"jigsaw_opt.solvers.solve_state.{new}" for old, new in _NOW.items()})

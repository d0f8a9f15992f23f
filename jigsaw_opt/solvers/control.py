"""The former name of `jigsaw_opt.solvers.solve_state`; kept for one release."""

from __future__ import annotations

from jigsaw_opt.system.former_names import former_names

__getattr__ = former_names(__name__, {"Control": "jigsaw_opt.solvers.solve_state.SolveState"})

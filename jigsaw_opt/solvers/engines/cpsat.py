"""CP-SAT, set so that its proofs hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from jigsaw_opt.errors import Problem
from jigsaw_opt.solvers.engines.parameters import Parameter, check_names

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

SECONDS_OF_EFFORT = 15.0
"""Seconds of the clock that a deterministic second of a small model may take where no work is counted: in presolve the
latter sometimes stands still."""
PRESOLVED_NUMBERS = 2**40
"""With larger limits the engine's presolve loses solutions by a microsecond (seen in OR-Tools 9.15 at 2^52)."""
_KEPT = (
    "absolute_gap_limit",
    "catch_sigint_signal",
    "cp_model_presolve",
    "fix_variables_to_their_hinted_value",
    "presolve_inclusion_work_limit",
    "relative_gap_limit",
)
"""Parameters on which it rests that a solution is found, that one called optimal is it, and that Ctrl-C is heard."""


def new_solver(workers: int = 1, seed: int = 0) -> cp_model.CpSolver:
    """Return an engine with the settings that every use of it shares."""
    from ortools.sat.python import cp_model

    solver = cp_model.CpSolver()
    solver.parameters.num_workers = workers
    solver.parameters.random_seed = seed
    # Ctrl-C is the caller's.
    solver.parameters.catch_sigint_signal = False
    # The presolve of sums over literals of which one holds loses solutions in OR-Tools 9.15 (google/or-tools#5293);
    # this limit is what switches it off.
    solver.parameters.presolve_inclusion_work_limit = 0
    # Two objectives beyond the exact floats look alike to its rule for the gap, and it would call the first optimal.
    solver.parameters.absolute_gap_limit = 0.0
    return solver


def configure(
    solver: cp_model.CpSolver, parameters: Mapping[str, Parameter], log: Callable[[str], None] | None
) -> None:
    """Hand a caller's parameters through to an engine, and its log to the caller.

    `parameters`: values by name, without any `parameter_problems`. `log`: receives the engine's log, one line or more
    at a time; or None.
    """
    for name, value in parameters.items():
        _set(solver.parameters, name, value)
    if log is not None:
        solver.parameters.log_search_progress = True
        solver.parameters.log_to_stdout = False
        solver.log_callback = log


def parameter_problems(parameters: Mapping[str, Parameter]) -> Iterator[Problem]:
    """Yield everything that is wrong with parameters, by the names of ``SatParameters``."""
    scratch = new_solver().parameters
    known = [name for name in dir(type(scratch)) if isinstance(getattr(type(scratch), name), property)]
    wrong = {problem.path: problem for problem in check_names("CP-SAT", parameters, known, _KEPT)}
    yield from wrong.values()
    for name, value in parameters.items():
        if name not in wrong:
            try:
                _set(scratch, name, value)
            except (AttributeError, OverflowError, TypeError, ValueError):
                kind = type(getattr(scratch, name)).__name__
                yield Problem(name, f"parameter {name!r} of CP-SAT is of type {kind}, not {value!r}", code="wrong-type")


def _set(parameters: cp_model.SatParameters, name: str, value: Parameter) -> None:
    """Set a field: a word for one of its words, words between commas for a list of words."""
    field = getattr(type(parameters), name)
    before = getattr(parameters, name)
    if field.fset is None:
        if not isinstance(value, str):
            raise TypeError(name)
        before.extend(value.split(","))
    elif hasattr(type(before), "__members__"):
        setattr(parameters, name, getattr(type(before), str(value)))
    else:
        setattr(parameters, name, value)

"""HiGHS on a program in arrays, from start to end in one call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from jigsaw_opt.formulations.linear import Floats, LinearProgram

if TYPE_CHECKING:
    from highspy import HighsLp

__all__ = ["ArraySolution", "Method", "model_of", "solve_arrays"]

Method = Literal["simplex", "barrier", "centre"]
"""The simplex method; the barrier method, which is faster on some programs; or the barrier method without its last
step to a corner of the optimal set, so that equal columns have equal values and the last digits are missing."""
_METHODS: dict[Method, dict[str, str]] = {
    "simplex": {},
    "barrier": {"solver": "ipm"},
    "centre": {"solver": "ipm", "run_crossover": "off"},
}


class ArraySolution(NamedTuple):
    """The optimum of a program.

    Parameters
    ----------
    values
        By column.
    objective, bound
        Value of the solution and what no solution is below.
    """

    values: Floats
    objective: float
    bound: float


def solve_arrays(
    program: LinearProgram, *, relative_gap: float = 0.0, seed: int = 0, method: Method = "simplex"
) -> ArraySolution | None:
    """Solve a program to optimality on one thread.

    Parameters
    ----------
    program
        A bounded one.
    relative_gap
        Integer programs: how far from the bound the solution may be.
    seed
        Of the engine.
    method
        Of linear programs.

    Returns
    -------
    ArraySolution | None
        None if there is no solution.
    """
    import highspy
    import numpy as np

    engine = highspy.Highs()
    settings: dict[str, bool | int | float | str] = {
        "output_flag": False,
        "threads": 1,
        "random_seed": seed,
        "mip_rel_gap": relative_gap,
    }
    settings |= _METHODS[method]
    for name, value in settings.items():
        engine.setOptionValue(name, value)
    engine.passModel(model_of(program))
    engine.run()
    info = engine.getInfo()
    if info.primal_solution_status != highspy.kSolutionStatusFeasible:
        return None
    objective = info.objective_function_value
    bound = info.mip_dual_bound if program.integer else objective
    return ArraySolution(np.array(engine.getSolution().col_value), objective, bound)


def model_of(program: LinearProgram) -> HighsLp:
    """The program in the terms of HiGHS."""
    import highspy
    import numpy as np

    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = len(program.costs), len(program.row_lower)
    model.col_cost_ = program.costs
    model.col_lower_, model.col_upper_ = program.lower, program.upper
    model.row_lower_, model.row_upper_ = program.row_lower, program.row_upper
    model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    starts, rows, values = program.by_column()
    model.a_matrix_.start_ = starts.astype(np.int32)
    model.a_matrix_.index_ = rows.astype(np.int32)
    model.a_matrix_.value_ = values
    if program.integer:
        model.integrality_ = [highspy.HighsVarType.kInteger] * len(program.costs)
    return model

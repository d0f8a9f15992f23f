"""Set packing on HiGHS: the linear relaxation by columns that pay, and from it the optimum."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from jigsaw_opt.formulations.interleave import Model

if TYPE_CHECKING:
    import numpy as np
    from highspy import Highs, HighsLp
    from numpy.typing import NDArray

__all__ = ["Packed", "optimum", "relaxation"]

_FEW = 2_000
"""A program of so many columns is solved whole; a larger one begins with as many."""
_MORE = 1_000
"""Columns that enter at once."""
_PAYS = 1e-9
"""A column pays if its reduced value is above this."""
_MISSING = -100.0
"""Value of a part in no group, for a beginning without enough columns: far below what any group could make up for."""


@dataclass(frozen=True, slots=True)
class Packed:
    """What an integer program has found.

    Parameters
    ----------
    solution
        How often each column is taken.
    value
        Its value; far below any other if the columns at hand cannot hold all parts.
    bound
        A value that no solution exceeds.
    """

    solution: dict[int, int]
    value: float
    bound: float


@dataclass(frozen=True, slots=True)
class _Relaxation:
    bound: float
    columns: NDArray[np.int64]
    reduced: NDArray[np.float64]


def relaxation(model: Model) -> float:
    """The value of the linear relaxation, made safe: no solution is above it."""
    return _relax(model).bound


def optimum(model: Model, gap: float = 0.0, nodes: int | None = None) -> Packed:
    """The best solution, or one that is good enough.

    The relaxation bounds every solution. A column whose reduced value is below what a known solution lacks to the
    bound is in no better one, so the integer program needs only the columns in between.

    Parameters
    ----------
    model
        The program.
    gap
        Share of the bound that the value may lack.
    nodes
        Nodes of branch and bound at most in an integer program; None for no limit.
    """
    import numpy as np

    stop = {"mip_rel_gap": gap} | ({} if nodes is None else {"mip_max_nodes": nodes})
    if len(model.values) <= _FEW:
        return _integer(model, np.arange(len(model.values)), stop)
    relaxed = _relax(model)
    first = _integer(model, relaxed.columns, stop)
    found = _integer(model, np.flatnonzero(relaxed.reduced >= first.value - relaxed.bound - _PAYS), stop)
    best = max(first, found, key=lambda packed: packed.value)
    return Packed(best.solution, best.value, min(relaxed.bound, max(first.value, found.bound)))


def _relax(model: Model) -> _Relaxation:
    import numpy as np

    columns = np.sort(np.argsort(model.values)[::-1][:_FEW])
    while True:
        engine = _run(_program(model, columns))
        prices = np.array(engine.getSolution().row_dual)
        reduced = _reduced(model, prices)
        best = np.argsort(reduced)[::-1][:_MORE]
        entering = np.setdiff1d(best[reduced[best] > _PAYS], columns)
        if not len(entering):
            break
        columns = np.union1d(columns, entering)
    # Prices are correct to a tolerance; a group holds a job at least, so this is what they may leave out.
    error = sum(model.counts) * max(0.0, float(reduced.max()))
    bound = float(prices @ np.array([*model.counts, model.capacity])) + error
    return _Relaxation(bound, columns, reduced)


def _reduced(model: Model, prices: NDArray[np.float64]) -> NDArray[np.float64]:
    import numpy as np

    by_part = np.append(prices[:-1], 0.0)  # Empty places of a column are -1, which is the last.
    return np.asarray(model.values - by_part[model.columns].sum(axis=1) - model.gpus * prices[-1])


def _integer(model: Model, columns: NDArray[np.int64], stop: Mapping[str, float | int]) -> Packed:
    import highspy

    program = _program(model, columns)
    program.integrality_ = [highspy.HighsVarType.kInteger] * program.num_col_
    engine = _run(program, stop)
    info = engine.getInfo()
    if info.primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
        return Packed({}, sum(model.counts) * _MISSING, float(info.mip_dual_bound))
    values = engine.getSolution().col_value[: len(columns)]
    solution = {int(column): round(value) for column, value in zip(columns, values, strict=True) if round(value)}
    return Packed(solution, float(info.objective_function_value), float(info.mip_dual_bound))


def _program(model: Model, columns: NDArray[np.int64]) -> HighsLp:
    """Some columns, and one more a part for what no group holds."""
    import highspy
    import numpy as np

    parts, starts, rows, entries = len(model.parts), [0], [], []
    taken = [Counter(part for part in column if part >= 0) for column in model.columns[columns].tolist()]
    gpus = model.gpus[columns].tolist()
    for number, content in enumerate(taken):
        rows += [*content, parts]
        entries += [*map(float, content.values()), float(gpus[number])]
        starts.append(len(rows))
    program = highspy.HighsLp()
    program.num_col_, program.num_row_ = len(taken) + parts, parts + 1
    program.col_cost_ = np.append(model.values[columns], np.full(parts, _MISSING))
    program.col_lower_ = np.zeros(program.num_col_)
    program.col_upper_ = np.full(program.num_col_, highspy.kHighsInf)
    program.row_lower_ = np.array([*model.counts, -highspy.kHighsInf], dtype=float)
    program.row_upper_ = np.array([*model.counts, model.capacity], dtype=float)
    program.sense_ = highspy.ObjSense.kMaximize
    program.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    program.a_matrix_.start_ = [*starts, *range(len(rows) + 1, len(rows) + parts + 1)]
    program.a_matrix_.index_ = [*rows, *range(parts)]
    program.a_matrix_.value_ = [*entries, *([1.0] * parts)]
    return program


def _run(program: HighsLp, options: Mapping[str, float | int] = MappingProxyType({})) -> Highs:
    import highspy

    engine = highspy.Highs()
    engine.setOptionValue("output_flag", False)
    engine.setOptionValue("threads", 1)
    # Takes up to a third of the time on such programs, and has not led to a better solution on any that was tried.
    engine.setOptionValue("mip_heuristic_run_root_reduced_cost", False)
    for name, value in options.items():
        engine.setOptionValue(name, value)
    engine.passModel(program)
    engine.run()
    return engine

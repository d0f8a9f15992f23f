"""A solution of an exported program, by any engine, as a plan in exact times."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from jigsaw_opt import __version__
from jigsaw_opt.documents import instance_sha256
from jigsaw_opt.documents.readers.solutions import EngineSolution
from jigsaw_opt.errors import InvalidInputError, Problem
from jigsaw_opt.formulations.linear import LinearProgram
from jigsaw_opt.formulations.scaled_program import ScaledProgram
from jigsaw_opt.problem.compiled.timetable import objective_of
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.plan import Plan
from jigsaw_opt.solvers.bounds import lower_bound
from jigsaw_opt.solvers.ilp.solver import exported_model

_WHOLE = 1e-4
"""Engines take values this far from a whole number for it, at most."""


def plan_of_solution(instance: Instance, solution: EngineSolution, source: str = "solution") -> Plan:
    """Return the plan that a solution of the exported program means.

    Placement and levels are the solution's. Operations run in its order, each as early as it can, in exact integers, so
    the plan is never later than an exact solution. It is not checked.

    `solution`: values of the columns of the exported file.
    """
    model = exported_model(instance)
    columns, original = model.program.columns, model.program.program()
    problems = [
        Problem(source, f"the program of instance {instance.name!r} has no column {name!r}", code="unknown-name")
        for name in solution.values
        if name not in columns
    ]
    values = [solution.values.get(name, 0.0) for name in columns]
    left_out = [name for name in columns if name not in solution.values]
    low = dict(zip(columns, original.lower.tolist(), strict=True))
    problems += [
        Problem(source, f"column {name!r} is missing", code="missing-field")
        for name in left_out
        if solution.complete or low[name] > 0
    ]
    problems += [
        Problem(source, text, code="out-of-range") for text in _wrong_values(original, solution.values, columns)
    ]
    if not problems:
        problems = [
            Problem(source, text, code="broken-rule") for text in _broken_rows(original, values, model.program.rows)
        ]
    if problems:
        raise InvalidInputError(problems)
    times = ScaledProgram(original).unscaled(values)
    timetable = model.plan(lambda variable: times[model.program.column(variable)])
    operations = model.eligibility.operations
    objective = objective_of(operations, timetable.jobs)
    bound = min(objective, lower_bound(operations).value)
    status: Literal["optimal", "feasible"] = "optimal" if objective == bound else "feasible"
    solver = {"name": f"exported program, {solution.engine}", "version": __version__}
    return Plan.of_jobs(
        instance.name, instance_sha256(instance), status, objective, bound, None, timetable.jobs, solver
    )


def _wrong_values(program: LinearProgram, given: Mapping[str, float], columns: Mapping[str, int]) -> Iterator[str]:
    """Yield what is wrong with values of whole columns; times are recomputed in any case."""
    for name, value in given.items():
        column = columns.get(name)
        if column is None or not program.integer[column]:
            continue
        low, high = program.lower[column], program.upper[column]
        if abs(value - round(value)) > _WHOLE:
            yield f"column {name!r} is {value}, and no whole number"
        elif not low <= round(value) <= high:
            yield f"column {name!r} is {value}, and not from {low:.0f} to {high:.0f}"


def _broken_rows(program: LinearProgram, values: Sequence[float], names: Sequence[str]) -> Iterator[str]:
    """Yield the rows over whole columns alone that do not hold; they say where workers sit and how deep they go."""
    sums, timed = [0.0] * len(names), [False] * len(names)
    entries = (program.rows.tolist(), program.columns.tolist(), program.values.tolist())
    for row, column, value in zip(*entries, strict=True):
        sums[row] += value * round(values[column])
        timed[row] = timed[row] or not program.integer[column]
    for name, total, of_times, low, high in zip(
        names, sums, timed, program.row_lower.tolist(), program.row_upper.tolist(), strict=True
    ):
        if not of_times and not low <= total <= high:
            yield f"row {name!r} does not hold: its sum is {total + 0.0:.0f}, and must be {_interval(low, high)}"


def _interval(low: float, high: float) -> str:
    """Say in words which numbers lie between two, of which either may be infinite."""
    low, high = (end + 0.0 for end in (low, high))  # no -0
    if low == high:
        return f"{low:.0f}"
    if math.isinf(low):
        return f"at most {high:.0f}"
    return f"at least {low:.0f}" if math.isinf(high) else f"from {low:.0f} to {high:.0f}"

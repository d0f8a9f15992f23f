"""Programs in files: an engine reads the very numbers and names that the program has, in either format."""

from __future__ import annotations

from fractions import Fraction
from math import inf, nextafter
from pathlib import Path

import pytest

from jigsaw_opt.formulations.algebra import AlgebraicModel
from jigsaw_opt.formulations.program_files import FileKind
from jigsaw_opt.formulations.scaled_program import ScaledProgram

highspy = pytest.importorskip("highspy")
pytest.importorskip("pulp")


def awkward() -> AlgebraicModel:
    """A program of numbers with many digits, rows of every kind, and a column that stands in no row."""
    model = AlgebraicModel("awkward")
    total = model.time("makespan", 123_456_789_012_345, 987_654_321_098_765)
    ends = [model.time(f"end_{k}", 10**14 // 7 + k, 10**15 // 3 + k) for k in range(20)]
    choices = [model.binary(f"choice_{k}") for k in range(3)]
    model.integer("carry", 0, 100_001)
    model.time("alone", 5, 7)
    model.minimize(total)
    for k, end in enumerate(ends):
        model.add(total >= end + (10**14 // 11) * choices[k % 3], f"end_{k}")
    model.add(model.total(ends) <= 10**15 - 1, "all")
    model.add(model.total(choices) == 1, "one")
    return model


@pytest.mark.parametrize("kind", ["mps", "lp"])
def test_an_engine_reads_the_very_numbers(kind: FileKind, tmp_path: Path) -> None:
    model, path = awkward(), tmp_path / f"program.{kind}"
    scaled = ScaledProgram(model.program())
    path.write_bytes(model.document(kind))
    engine = highspy.Highs()
    engine.setOptionValue("output_flag", False)
    assert engine.readModel(str(path)) == highspy.HighsStatus.kOk
    read, program = engine.getLp(), scaled.program
    order = [read.col_names_.index(name) for name in model.columns]
    rows = [read.row_names_.index(name) for name in model.rows]
    assert len(order) == read.num_col_ and len(rows) == read.num_row_
    assert [read.col_lower_[k] for k in order] == program.lower.tolist()
    assert [read.col_upper_[k] for k in order] == program.upper.tolist()
    assert [read.col_cost_[k] for k in order] == (program.costs * scaled.objective).tolist()
    assert [read.row_lower_[k] for k in rows] == program.row_lower.tolist()
    assert [read.row_upper_[k] for k in rows] == program.row_upper.tolist()
    entries = zip(program.rows.tolist(), program.columns.tolist(), program.values.tolist(), strict=True)
    matrix = read.a_matrix_
    found = {}
    for column in range(read.num_col_):
        for k in range(matrix.start_[column], matrix.start_[column + 1]):
            found[matrix.index_[k], column] = matrix.value_[k]
    assert found == {(rows[row], order[column]): value for row, column, value in entries}


def test_scaling_loses_nothing_and_lets_no_time_grow() -> None:
    program = awkward().program()
    scaled = ScaledProgram(program)
    times = ~program.integer
    assert scaled.program.upper[times].max() <= 10**7
    assert scaled.unscaled(scaled.program.upper) == program.upper.tolist()
    assert (scaled.program.costs * scaled.objective / program.costs.max() * scaled.program.upper).max() == (
        program.upper[0]
    )


def test_bounds_beyond_floats_are_rounded_outward() -> None:
    model = AlgebraicModel("large")
    low, high = 2**60 + 1, 2**60 + 2**8 + 1
    model.minimize(model.time("makespan", low, high))
    program = model.program()
    assert program.lower[0] == 2.0**60 and nextafter(program.lower[0], inf) > low
    assert Fraction(program.upper[0]) >= high and nextafter(program.upper[0], -inf) < high


@pytest.mark.parametrize("kind", ["mps", "lp"])
def test_lines_are_short_and_plain(kind: FileKind) -> None:
    text = awkward().document(kind).decode("ascii")
    assert max(map(len, text.splitlines())) < 255
    assert "units of" in text.splitlines()[0]

"""A program built family by family."""

from __future__ import annotations

import numpy as np
import pytest

from jigsaw_opt.formulations.linear import Entries, ProgramBuilder


def test_families_stand_one_after_the_other() -> None:
    builder = ProgramBuilder()
    first = builder.add_columns([1.0, 2.0], upper=3.0, integer=True)
    second = builder.add_columns([4.0], lower=[-1.0])
    builder.add_rows(Entries([0, 1], first, [5.0, 6.0]), -np.inf, [7.0, 8.0])
    builder.add_rows(Entries([0, 0], [first[1], second[0]], [9.0, 10.0]), 11.0, [12.0])
    program = builder.program()
    assert (builder.columns, builder.rows) == (3, 3)
    assert program.costs.tolist() == [1.0, 2.0, 4.0]
    assert program.lower.tolist() == [0.0, 0.0, -1.0]
    assert program.upper.tolist() == [3.0, 3.0, np.inf]
    assert program.integer.tolist() == [True, True, False]
    assert program.row_lower.tolist() == [-np.inf, -np.inf, 11.0]
    assert program.row_upper.tolist() == [7.0, 8.0, 12.0]
    starts, rows, values = program.by_column()
    assert starts.tolist() == [0, 1, 3, 4]
    assert rows.tolist() == [0, 1, 2, 2]
    assert values.tolist() == [5.0, 6.0, 9.0, 10.0]


def test_a_program_may_have_no_rows() -> None:
    builder = ProgramBuilder()
    builder.add_columns([1.0])
    program = builder.program()
    assert len(program.row_lower) == 0
    assert program.by_column()[0].tolist() == [0, 0]


def test_bounds_of_another_length_are_refused() -> None:
    with pytest.raises(ValueError, match="broadcast"):
        ProgramBuilder().add_columns([1.0, 2.0], upper=[1.0, 2.0, 3.0])

"""Tables in memory: rows by name, columns, and what a notebook shows."""

from __future__ import annotations

import jigsaw_opt as jo
from jigsaw_opt.problem.data_table import DataTable
from jigsaw_opt.sweeps.folder import SweepTables


def test_rows_and_columns() -> None:
    table = DataTable.of([{"a": 1, "b": 2}, {"b": 3, "c": "<x>"}], first=["c"])
    assert table.columns == ("c", "a", "b")
    assert table.rows == ((None, 1, 2), ("<x>", None, 3))
    assert table["b"] == (2, 3) and len(table) == 2
    assert list(table)[1] == {"c": "<x>", "a": None, "b": 3}
    assert repr(table) == "DataTable(2 rows of c, a, b)"
    assert table == DataTable(table.columns, list(table.rows)) and table != DataTable(("c",), [])
    page = table._repr_html_()
    assert "&lt;x&gt;" in page and "<x>" not in page
    assert "<p>5 more</p>" in DataTable(("n",), ((n,) for n in range(25)))._repr_html_()


def test_the_progress_of_a_solve_is_a_table() -> None:
    result = jo.solve(jo.instances.load("tiny/000"), "greedy")
    assert result.progress.columns == ("seconds", "objective", "bound")
    assert result.progress["objective"] == tuple(event.objective for event in result.trajectory)
    assert len(result.progress) >= 1 and result.progress["objective"][-1] == result.objective


def test_the_rows_of_a_sweep_are_a_table() -> None:
    rows = [{"key": "k", "makespan_h": 1.5}, {"key": "l", "error": "died"}]
    table = SweepTables(rows, {}).table
    assert table.columns == ("key", "makespan_h", "error") and table["makespan_h"] == (1.5, None)

"""No cell of a table is a formula to a spreadsheet, and a workload reads back as it was."""

from __future__ import annotations

import csv
import io

import pytest

from jigsaw_opt.documents.csv_text import csv_text, restored
from jigsaw_opt.documents.readers.traces.registry import read_trace
from jigsaw_opt.documents.readers.traces.workload_csv import decode_workload, encode_workload
from jigsaw_opt.problem.workload import TraceJob, Workload

FORMULAS = (
    "=1+1",
    "+cmd|' /C calc'!A0",
    "-2+3",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    "\n=1",
    "'=1",
    "''@",
    "=",
    "-",
    "--5",
    "+a",
)
OTHERS = ("a", "'a", "'", "a=1", "5-3", "-5", "+5.25", "-1e-3", "a,b", 'a"b', "")


def cells(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline="")))


@pytest.mark.parametrize("text", FORMULAS)
def test_a_text_that_begins_as_a_formula_is_quoted(text: str) -> None:
    ((head,), (cell,)) = cells(csv_text([text], [[text]]))
    assert head == cell == "'" + text
    assert restored(cell) == text


@pytest.mark.parametrize("text", OTHERS)
def test_other_texts_and_numbers_stay(text: str) -> None:
    assert cells(csv_text(["a", "b"], [[text, -5]])) == [["a", "b"], [text, "-5"]]
    assert restored(text) == text


def test_no_cell_begins_a_line() -> None:
    """A carriage return without quotes around it would."""
    assert csv_text(["a"], [["x\r=1"], [None]]) == 'a\n"x\r=1"\n""\n'


@pytest.mark.parametrize("index", ["", "Unnamed: 0"])
def test_row_numbers_in_a_column_without_a_name_are_left_aside(index: str) -> None:
    workload = read_trace("csv", f"{index},name,submit_s,gpus,duration_s\n0,a,0,2,15\n", "t")
    assert [(job.name, job.gpus) for job in workload.jobs] == [("a", 2)]
    assert workload.remarks == {"column without a name left aside": 1}


@pytest.mark.parametrize("name", [text for text in (*FORMULAS, *OTHERS) if text and text == text.strip()])
def test_a_workload_reads_back_the_same(name: str) -> None:
    jobs = (TraceJob(name, 0, name, 1), TraceJob("a\rb", 5, "m", 2, 3))
    assert decode_workload(encode_workload(Workload("w", jobs))).jobs == jobs

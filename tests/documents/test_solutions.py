"""Solution files of engines: told apart by content, with all problems of a wrong one."""

from __future__ import annotations

import pytest

from jigsaw_opt.documents.readers.solutions import read_solution
from jigsaw_opt.errors import InvalidInputError
from tests.refusals import carries

HIGHS = """Model status
Optimal

# Primal solution values
Feasible
Objective 12.5
# Columns 3
x 1
y 0
end_0_0 2.5e1
# Rows 1
r 7

# Dual solution values
Feasible
# Columns 3
x 9
"""
SCIP = "solution status: optimal solution found\nobjective value:    12.5\nx    1 \t(obj:0)\nend_0_0    25 \t(obj:3)\n"
CBC = "Optimal - objective value 12.50000000\n      0 x    1    0\n**    7 end_0_0   25   0\n"
GUROBI = "# Solution for model jigsaw\n# Objective value = 12.5\nx 1\nend_0_0 25\n"


@pytest.mark.parametrize(
    ("engine", "text"),
    [("HiGHS", HIGHS), ("SCIP", SCIP), ("SCIP", SCIP.split("\n", 1)[1]), ("CBC", CBC), ("Gurobi", GUROBI)],
)
def test_formats_are_known_by_their_content(engine: str, text: str) -> None:
    for content in (text, text.encode(), text.replace("\n", "\r\n")):
        found = read_solution(content)
        assert (found.engine, found.objective, found.complete) == (engine, 12.5, engine == "HiGHS")
        assert {name: value for name, value in found.values.items() if value} == {"x": 1, "end_0_0": 25}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Model status\nInfeasible\n\n# Primal solution values\nNone\n", "HiGHS says 'no solution: Infeasible'"),
        ("Model status\n", "HiGHS says 'no solution'"),
        ("solution status: infeasible\nno solution available\n", "SCIP says 'infeasible no solution available'"),
        ("Infeasible - objective value 0.0\n 0 x 1 0\n", "CBC says 'Infeasible'"),
        (
            "Stopped on time (no integer solution - continuous used) - objective value 3\n 0 x 1 0\n",
            "CBC says 'Stopped",
        ),
        ("# Solution for model m\n# Objective value = 3\n", "Gurobi lists no column"),
        ("", "HiGHS .raw, of write_solution_style 0., SCIP, CBC and Gurobi"),
        ("{}", "is no solution file"),
    ],
)
def test_files_without_a_solution_are_told_by_name(text: str, said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        read_solution(text, "x.sol")


def test_every_wrong_line_is_listed() -> None:
    with pytest.raises(InvalidInputError) as caught:
        read_solution(GUROBI + "x 2\ny\nz nan\nw none\n", "x.sol")
    assert [problem.path for problem in caught.value.problems] == [f"x.sol:{line}" for line in (5, 6, 7, 8)]
    assert carries(caught.value.problems[0].message, "'x'", "stands")


@pytest.mark.slow
def test_a_solution_may_have_more_lines_than_a_trace() -> None:
    count = 1_000_001
    rows = "\n".join(f"column_with_a_long_name_{k} 1" for k in range(count))
    assert len(read_solution(f"# Solution for model x\n{rows}\n").values) == count

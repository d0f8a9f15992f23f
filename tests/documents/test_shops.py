"""Job shops of the literature in and out, and solution files of engines: what fits, and why the rest is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from jigsaw_opt.cli import main
from jigsaw_opt.documents import decode_instance, encode_instance
from jigsaw_opt.documents.job_shops import jsplib_text, read_jsplib
from jigsaw_opt.documents.readers.solutions import read_solution
from jigsaw_opt.errors import InvalidInputError
from jigsaw_opt.instances import load
from jigsaw_opt.problem import Edge, Instance, TaskGraphJob
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.solve import solve
from tests.refusals import carries, require_data

DATA = Path(__file__).parents[1] / "data" / "cases"
# The optimum is 11: machine 1 works 2 + 4 + 5 without a pause.
SHOP = "# three jobs\n3 2\n0 3 1 2\n1 4 0 1\n1 5 0 1\n"
# Fisher and Thompson (1963), 6 × 6, whose optimum is 55.
FT06 = """\
6 6
2  1  0  3  1  6  3  7  5  3  4  6
1  8  2  5  4 10  5 10  0 10  3  4
2  5  3  4  5  8  0  9  1  1  4  7
1  5  0  5  2  5  3  3  4  8  5  9
2  9  1  3  4  5  5  4  0  3  3  1
1  3  3  3  5  9  0 10  4  4  2  1
"""


def shop_of(instance: Instance) -> TaskGraphJob:
    (job,) = instance.task_graph_jobs
    return job


def optimum(instance: Instance) -> int:
    result = solve(instance, "cpsat", Options(threads=1, work_limit=5))
    assert result.objective is not None and result.objective == result.bound
    return result.objective


def test_a_job_shop_is_a_chain_of_blocks_a_job() -> None:
    instance = read_jsplib(SHOP, "file", "three")
    shape = shop_of(instance).shape
    assert [(block.name, block.slots, block.duration_us["machine"]) for block in shape.blocks][:3] == [
        ("0.0", ("m0",), 3),
        ("0.1", ("m1",), 2),
        ("1.0", ("m1",), 4),
    ]
    assert shape.edges == (Edge("0.0", "0.1"), Edge("1.0", "1.1"), Edge("2.0", "2.1"))
    assert decode_instance(encode_instance(instance)) == instance
    assert optimum(instance) == 11


def test_a_classic_job_shop_has_its_known_optimum() -> None:
    assert optimum(read_jsplib(FT06, "file", "classic")) == 55


def test_operations_without_a_duration_need_no_machine() -> None:
    told: list[str] = []
    instance = read_jsplib((DATA / "field/zero_duration.jsp").read_bytes(), "file", "zero", told.append)
    assert [block.name for block in shop_of(instance).shape.blocks] == ["0.0", "1.0", "1.1"]
    assert optimum(instance) == 8
    assert told == ["file: left out: 1 operation without a duration, which need no machine"]
    with pytest.raises(InvalidInputError, match="no operation with a duration"):
        read_jsplib("1 1\n0 0\n", "file")


def test_jobs_may_visit_some_of_the_machines_only() -> None:
    told: list[str] = []
    instance = read_jsplib("2 3\n0 3 1 2\n1 4 0 1 2 6\n", "file", "few", told.append)
    assert shop_of(instance).shape.edges == (Edge("0.0", "0.1"), Edge("1.0", "1.1"), Edge("1.1", "1.2"))
    assert told == ["file: jobs with fewer operations than the 3 machines: 1"]
    # Whoever needs an operation for each machine gets one that takes no time, and is first, where it delays nothing.
    text = jsplib_text(instance)
    assert text.splitlines()[1:] == ["2 3", "2 0 0 3 1 2", "1 4 0 1 2 6"]
    assert read_jsplib(text, "file", "few").jobs[0].shape.edges != () and optimum(read_jsplib(text, "file")) == 11


def test_jobs_may_return_to_a_machine() -> None:
    text = "# back\n2 2\n0 3 1 1 0 2\n1 5 0 4\n"
    told: list[str] = []
    instance = read_jsplib(text, "file", None, told.append)
    assert told == ["file: jobs that visit a machine more than once: 1"]
    assert shop_of(instance).shape.edges == (Edge("0.0", "0.1"), Edge("0.1", "0.2"), Edge("1.0", "1.1"))
    assert jsplib_text(instance, told.append) == text
    assert told[1:] == ["jobs that visit a machine more than once: 1"]
    # From 5 on, when job 1 gets there at the earliest, machine 0 has 4 of it and the last 2 of job 0.
    assert optimum(instance) == 11


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", [("file", "empty")]),
        ("2\n0 1\n", [("file:1", "malformed")]),
        ("2 2\n0 3 1 2\n", [("file", "wrong-count")]),
        (
            "3 2\n0 3 2 2\n0 x 1 2\n0 3 1\n",
            [("file:3", "malformed"), ("file:2", "out-of-range"), ("file:4", "wrong-count")],
        ),
        ("1 2\n0 -1 1 -4\n", [("file:2", "out-of-range")] * 2),
        ("1 2\n0 1 1 4 0\n", [("file:2", "wrong-count")]),
    ],
)
def test_what_is_wrong_or_does_not_fit_is_listed(text: str, told: list[tuple[str, str]]) -> None:
    with pytest.raises(InvalidInputError) as caught:
        read_jsplib(text, "file", "name")
    assert [(problem.path, problem.code) for problem in caught.value.problems] == told


@pytest.mark.parametrize("name", ["shop/job-6x4", "shop/flow-8x3"])
def test_a_job_shop_that_is_written_reads_back(name: str) -> None:
    instance = load(name)
    text = jsplib_text(instance)
    again = read_jsplib(text, "file", "again")
    assert jsplib_text(replace(again, name=instance.name)) == text
    assert len(shop_of(again).shape.blocks) == len(shop_of(instance).shape.blocks)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("shop/cyclic-5x4", "$.objective"),
        ("shop/shared-4x3", "$.jobs"),
        ("pipeline/plain", "$.jobs[0].shape.transfers"),
        ("tiny/000", "$.jobs"),
    ],
)
def test_what_is_no_shop_is_refused_with_its_reasons(name: str, path: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        jsplib_text(load(name))
    assert (path, "does-not-fit") in [(problem.path, problem.code) for problem in caught.value.problems]


def test_shops_go_in_and_out_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shop, instance, out = tmp_path / "three.txt", tmp_path / "three.json", tmp_path / "out.txt"
    shop.write_text(SHOP)
    assert main(["convert", "jsplib", str(shop), "--to", "instance", "-o", str(instance)]) == 0
    assert json.loads(instance.read_text())["name"] == "three"
    assert main(["export", str(instance), "--to", "jsplib", "-o", str(out)]) == 0
    assert out.read_text() == SHOP.replace("three jobs", "three")
    for options, name in (([], "three"), (["--name", "other"], "other")):
        assert main(["convert", "jsplib", str(out), *options, "-o", str(instance)]) == 0
        assert json.loads(instance.read_text())["name"] == name
    capsys.readouterr()
    assert main(["convert", "jsplib", str(shop), str(shop), "--gpu-type", "v100", "--to", "layers"]) == 2
    require_data(capsys.readouterr().err, "--to", "one file", "--gpu-type")


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
SCIP_TEXT = (
    "solution status: optimal solution found\nobjective value:    12.5\nx    1 \t(obj:0)\nend_0_0    25 \t(obj:3)\n"
)
CBC = "Optimal - objective value 12.50000000\n      0 x    1    0\n**    7 end_0_0   25   0\n"
GUROBI_TEXT = "# Solution for model jigsaw\n# Objective value = 12.5\nx 1\nend_0_0 25\n"


@pytest.mark.parametrize(
    ("engine", "text"),
    [
        ("HiGHS", HIGHS),
        ("SCIP", SCIP_TEXT),
        ("SCIP", SCIP_TEXT.split("\n", 1)[1]),
        ("CBC", CBC),
        ("Gurobi", GUROBI_TEXT),
    ],
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
        read_solution(GUROBI_TEXT + "x 2\ny\nz nan\nw none\n", "x.sol")
    assert [problem.path for problem in caught.value.problems] == [f"x.sol:{line}" for line in (5, 6, 7, 8)]
    assert carries(caught.value.problems[0].message, "'x'", "stands")

"""Solutions of exported programs, by real engines, come back as exact plans; wrong ones are refused."""

from __future__ import annotations

import math
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from shutil import which

import pytest

from jigsaw_opt.checking import check
from jigsaw_opt.cli import main
from jigsaw_opt.documents import load_instance, load_plan, save_instance
from jigsaw_opt.documents.readers.solutions import EngineSolution, read_solution
from jigsaw_opt.errors import InvalidInputError
from jigsaw_opt.formulations.program_files import FileKind
from jigsaw_opt.instances import load
from jigsaw_opt.problem import Instance
from jigsaw_opt.problem.instance import Objective
from jigsaw_opt.solvers.ilp import model_document
from jigsaw_opt.solvers.ilp.solution import _interval, plan_of_solution
from jigsaw_opt.solvers.result import Status
from jigsaw_opt.solvers.solve import solve
from tests.oracle import optimum
from tests.random_instances import random_instance
from tests.refusals import carries, refuses

highspy = pytest.importorskip("highspy")
CBC = pytest.importorskip("pulp").PULP_CBC_CMD.pulp_cbc_path
needs_cbc = pytest.mark.skipif(which(CBC) is None, reason="PuLP brings no CBC for this machine")


def solved(instance: Instance, kind: FileKind, engine: str, folder: Path) -> Path:
    """The solution file that an engine writes of the exported program."""
    program, path = folder / f"program.{kind}", folder / "x.sol"
    program.write_bytes(model_document(instance, kind))
    if engine == "cbc":
        command = [CBC, str(program), "-ratioGap", "0", "-solve", "-solution", str(path)]
        subprocess.run(command, check=True, capture_output=True)
        return path
    highs = highspy.Highs()
    highs.setOptionValue("output_flag", False)
    highs.setOptionValue("mip_rel_gap", 0.0)
    highs.readModel(str(program))
    highs.run()
    highs.writeSolution(str(path), 0)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["highs", pytest.param("cbc", marks=needs_cbc)])
@pytest.mark.parametrize("kind", ["mps", "lp"])
@pytest.mark.parametrize("objective", ["makespan", "weighted_completion"])
def test_a_solution_comes_back_as_a_right_plan(
    objective: Objective, kind: FileKind, engine: str, tmp_path: Path
) -> None:
    for seed in (0, 1, 2, 5, 6):
        instance = random_instance(seed, "finite", objective, operations=7)
        path, best = solved(instance, kind, engine, tmp_path), optimum(instance)
        if best is None:
            with refuses("empty solution"):
                read_solution(path.read_bytes())
            continue
        solution = read_solution(path.read_bytes())
        plan = plan_of_solution(instance, solution)
        assert plan.objective == best == pytest.approx(solution.objective or 0)
        assert check(instance, plan) == ()


@needs_cbc
def test_cbc_proves_the_optimum_a_second_time(tmp_path: Path) -> None:
    instance = load("tiny/002")
    solution = read_solution(solved(instance, "mps", "cbc", tmp_path).read_bytes())
    plan, ours = plan_of_solution(instance, solution), solve(instance, "ilp", threads=1)
    assert (ours.status, ours.objective) == (Status.OPTIMAL, 1874)
    assert plan.objective == 1874 == pytest.approx(solution.objective or 0)
    assert check(instance, plan) == ()


def of_pair(pair: Instance, folder: Path) -> EngineSolution:
    return read_solution(solved(pair, "mps", "highs", folder).read_bytes())


def test_zeros_may_be_left_out_and_slips_are_rounded(pair: Instance, tmp_path: Path) -> None:
    whole = of_pair(pair, tmp_path)
    values = {name: 0.9999999 if value == 1 else value for name, value in whole.values.items() if value}
    assert plan_of_solution(pair, replace(whole, values=values, complete=False)).objective == 1800


def test_all_that_is_wrong_is_listed(pair: Instance, tmp_path: Path) -> None:
    whole = of_pair(pair, tmp_path)
    values = {**whole.values, "here_0_0": 0.5, "here_0_1": 2.0, "other": 1.0}
    del values["end_0_0"]
    with pytest.raises(InvalidInputError) as caught:
        plan_of_solution(pair, replace(whole, values=values), "x.sol")
    told = [problem.message for problem in caught.value.problems]
    assert carries(told[0], "column", "'other'") and "'end_0_0'" in told[1]
    assert carries(told[2], "'here_0_0'", "0.5") and carries(told[3], "from", "0", "1")


def test_a_solution_that_places_no_worker_is_none(pair: Instance, tmp_path: Path) -> None:
    whole = of_pair(pair, tmp_path)
    values = {name: 0.0 if name.startswith("here_0") else value for name, value in whole.values.items()}
    with refuses(*["broken-rule solution"] * 5, naming=["'workers_0'", "0", "2"]):
        plan_of_solution(pair, replace(whole, values=values))


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (-math.inf, -0.0, "at most 0"),
        (-0.0, math.inf, "at least 0"),
        (1.0, 4.0, "from 1 to 4"),
        (2.0, 2.0, "2"),
    ],
)
def test_an_interval_is_told_in_words(low: float, high: float, words: str) -> None:
    assert _interval(low, high) == words


def test_the_command_writes_checked_plans_only(
    pair: Instance, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, output = tmp_path / "pair.json", tmp_path / "plan.json"
    save_instance(pair, source)
    path = solved(pair, "lp", "highs", tmp_path)
    assert main(["export", str(source), "--read-solution", str(path), "-o", str(output)]) == 0
    assert carries(capsys.readouterr().err, "1,800.0", "1,800")
    assert check(pair, load_plan(output)) == ()
    plan = output.rename(tmp_path / "first.json")
    path.write_text(path.read_text().replace("workers", "w").replace("here_0_0", "there_0_0"))
    assert main(["export", str(source), "--read-solution", str(path), "-o", str(output)]) == 3
    assert not output.exists()
    for only in (["--to", "lp"], ["--read-solution", str(path)]):
        assert main(["export", str(source), str(plan), *only, "-o", str(output)]) == 2


def test_a_plan_that_breaks_a_deadline_is_not_written(tmp_path: Path) -> None:
    source = Path(__file__).parents[1] / "data" / "cases" / "export" / "dlw.json"
    path, output = solved(load_instance(source), "lp", "highs", tmp_path), tmp_path / "plan.json"
    # The job that guarantees an early end comes last.
    path.write_text(re.sub(r"^start_0_0_0 .*$", "start_0_0_0 5000", path.read_text(), flags=re.MULTILINE))
    assert main(["export", str(source), "--read-solution", str(path), "-o", str(output)]) == 7
    assert not output.exists()

"""Rows of a plan as OPB files: they say what the rows say, in numbers that other programs read."""

from __future__ import annotations

import json
import re
import subprocess
from itertools import product
from pathlib import Path
from shutil import which

import pytest

from jigsaw_opt.checking.proofs.facts.instance_facts import Facts
from jigsaw_opt.checking.proofs.rows.job_rows import PlanRows
from jigsaw_opt.checking.proofs.rows.plan_rows import plan_rows
from jigsaw_opt.cli import main
from jigsaw_opt.errors import UsageError
from jigsaw_opt.formulations.pseudo_boolean import OpbProblem, decision_problem
from jigsaw_opt.instances import best_known, best_plan, load, names
from jigsaw_opt.views.export import export
from tests.checking.rows_of_plans import values
from tests.refusals import ends

Sums = list[tuple[int, int]]


class Opb:
    """An OPB file: what its comments say of names, and its rows."""

    def __init__(self, document: bytes) -> None:
        head, *lines = document.decode("ascii").splitlines()
        found = re.fullmatch(r"\* #variable= (\d+) #constraint= (\d+) #equal= (\d+) intsize= (\d+)", head)
        assert found is not None
        self.count, constraints, equal, size = map(int, found.groups())
        self.names: dict[str, tuple[int, Sums]] = {}
        self.rows: list[tuple[Sums, str, int]] = []
        for line in lines:
            if line.startswith('* ["'):
                name, _, number = line.removeprefix("* ").rpartition(" = ")
                low, *rest = number.split()
                self.names[name] = int(low), _sums(rest)
            elif not line.startswith("*"):
                *terms, sign, side, end = line.split()
                assert end == ";" and sign in (">=", "=")
                self.rows.append((_sums(terms), sign, int(side)))
        assert (len(self.rows), sum(sign == "=" for _, sign, _ in self.rows)) == (constraints, equal)
        assert max((sum(abs(a) for a, _ in terms) for terms, _, _ in self.rows), default=0).bit_length() == size
        assert all(terms and len({x for _, x in terms}) == len(terms) for terms, _, _ in self.rows)

    def holds(self, ones: set[int]) -> bool:
        sums = ((sum(a for a, x in terms if x in ones), sign, side) for terms, sign, side in self.rows)
        return all(total == side if sign == "=" else total >= side for total, sign, side in sums)


def _sums(words: list[str]) -> Sums:
    return [(int(a), int(x.removeprefix("x"))) for a, x in zip(words[::2], words[1::2], strict=True)]


def _choices(count: int) -> list[set[int]]:
    return [{k for k, one in enumerate(ones, 1) if one} for ones in product((False, True), repeat=count)]


@pytest.mark.parametrize("tens", range(8))
def test_best_plans_keep_all_rows_of_the_files(tens: int) -> None:
    for name in names("tiny")[10 * tens : 10 * tens + 10]:
        instance, plan = load(name), best_plan(name)
        assert plan is not None
        rows = plan_rows(Facts(instance), plan.objective)
        file = Opb(decision_problem(instance, plan.objective, together=False).document())
        ones = set[int]()
        for own, value in zip(rows.names, values(rows, instance, plan), strict=True):
            low, bits = file.names[json.dumps(own)]
            ones |= {x for a, x in bits if (value - low) & a}
        assert file.holds(ones)


def test_a_file_has_a_solution_for_each_of_the_rows() -> None:
    rows = PlanRows()
    x, y = rows.variable(("x",), -1, 3), rows.variable(("y",), 2, 2)
    z = rows.variable(("z",), 0, 5)
    rows.equal([(2, x), (1, z)], 4)
    rows.at_most([(1, x), (-1, y), (3, z)], 6)
    rows.at_most([(1, y)], 2)
    file = Opb(OpbProblem(rows, ("a remark",)).document())
    expected = {(a, b) for a, b in product(range(-1, 4), range(6)) if 2 * a + b == 4 and a - 2 + 3 * b <= 6}
    found = set()
    for ones in _choices(file.count):
        if file.holds(ones):
            (low, bits), (least, others) = file.names['["x"]'], file.names['["z"]']
            found.add((low + sum(a for a, k in bits if k in ones), least + sum(a for a, k in others if k in ones)))
    assert found == expected
    assert len(expected) == 2


def test_rows_without_a_variable_that_do_not_hold_have_no_solution() -> None:
    for low, side in ((0, -1), (3, 0)):
        rows = PlanRows()
        rows.at_most([(1, rows.variable(("x",), low, 1))], side)
        file = Opb(OpbProblem(rows, ()).document())
        assert not any(map(file.holds, _choices(file.count)))


@pytest.mark.parametrize("number", [0, 2, 4, 12, 13])
def test_another_engine_finds_that_no_plan_is_better_than_the_optimum(number: int) -> None:
    cp_model = pytest.importorskip("ortools.sat.python.cp_model")
    instance, known = load(f"tiny/{number:03}"), best_known(f"tiny/{number:03}")
    assert known is not None
    for limit, status in ((known.objective - 1, cp_model.INFEASIBLE), (known.objective, cp_model.OPTIMAL)):
        file = Opb(export(instance, to="opb", at_most=limit, iterations="together").files["plan.opb"])
        model = cp_model.CpModel()
        variables = [model.new_bool_var("") for _ in range(file.count + 1)]
        for terms, sign, side in file.rows:
            total = sum(a * variables[x] for a, x in terms)
            model.add(total == side if sign == "=" else total >= side)
        engine = cp_model.CpSolver()
        engine.parameters.num_workers = 1
        assert engine.solve(model) == status


@pytest.mark.skipif(which("minisat+") is None, reason="minisat+ is not installed")
@pytest.mark.parametrize("number", [0, 1, 2, 4, 7, 9, 12, 13, 16, 17])
def test_minisat_reads_the_files(number: int, tmp_path: Path) -> None:
    name, path = f"tiny/{number:03}", tmp_path / "plan.opb"
    known = best_known(name)
    assert known is not None
    for limit, told in ((known.objective - 1, "UNSATISFIABLE"), (known.objective, "SATISFIABLE")):
        assert main(["export", name, "--to", "opb", "--at-most", str(limit), "-o", str(path)]) == 0
        found = subprocess.run(["minisat+", str(path)], capture_output=True, text=True, check=False, timeout=60).stdout
        assert f"s {told}" in found.splitlines()


def test_what_cannot_be_written_is_refused() -> None:
    ends("2: missing-option at_most", "export", "tiny/000", "--to", "opb", "-o", "-")
    notes = export(load("tiny/003"), to="opb", at_most=9000).notes
    assert notes[0].startswith("unsatisfiable: no correct plan has a sum of weighted completion times of at most 9,000")
    ends("2: too-large iterations", "export", "pod/plain", "--to", "opb", "--at-most", "9", "-o", "-")
    with pytest.raises(UsageError, match="at least 0"):
        export(load("tiny/000"), to="opb", at_most=-1)

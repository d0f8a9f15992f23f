"""Proofs by cases as refutations in cutting planes: a small checker accepts them, and VeriPB where it is installed."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from shutil import which

import pytest

from jigsaw_opt.checking.proofs.rows.job_rows import PlanRows, ResourceUse
from jigsaw_opt.cli import main
from jigsaw_opt.documents import save_proof
from jigsaw_opt.errors import InvalidInputError
from jigsaw_opt.formulations import refutations
from jigsaw_opt.formulations.pseudo_boolean import OpbProblem, decision_problem
from jigsaw_opt.formulations.refutations import refutation, refutation_steps
from jigsaw_opt.instances import best_proof, load, names
from jigsaw_opt.problem.bound_proof import BoundProof
from tests.formulations.refutation_checker import Checker, WrongStepError
from tests.refusals import ends


def _proof(name: str) -> BoundProof:
    proof = best_proof(name)
    assert proof is not None
    return proof


def _right(problem: bytes, steps: bytes) -> bool:
    try:
        Checker().check(problem, steps)
    except WrongStepError:
        return False
    return True


@pytest.mark.parametrize("number", [0, 2, 4, 9, 12, 16, 23, 48])
def test_a_checker_of_its_own_accepts_refutations(number: int) -> None:
    instance, proof = load(f"tiny/{number:03}"), _proof(f"tiny/{number:03}")
    problem, steps = refutation(instance, proof)
    assert _right(problem, steps)
    # There are plans within the bound, so the same steps cannot refute its rows.
    together = proof.argument["iterations"] == "together"
    assert not _right(decision_problem(instance, proof.bound, together).document(), steps)


def test_steps_that_are_changed_are_refused() -> None:
    problem, steps = refutation(load("tiny/009"), _proof("tiny/009"))
    lines = steps.decode().splitlines()
    leaves, last = list[tuple[int, int]](), 0
    for place, line in enumerate(lines):
        if line[0] == "u" and lines[place - 1][0] == "p":
            leaves.append((last + 1, place))
        if line[0] in "ur":
            last = place
    dropped = ["\n".join([*lines[:first], *lines[place + 1 :], ""]) for first, place in leaves]
    turned = list[str]()
    for place, line in enumerate(lines):
        if line.startswith("u 1"):
            *most, literal, sign, one, end = line.split()
            literal = literal.removeprefix("~") if literal.startswith("~") else f"~{literal}"
            turned.append(
                "\n".join([*lines[:place], " ".join([*most, literal, sign, one, end]), *lines[place + 1 :], ""])
            )
    # Of some mutants unit propagation finds what is left out.
    for mutants, least in ((dropped, 5), (turned, 6)):
        assert sum(not _right(problem, mutant.encode()) for mutant in mutants) >= least
    assert not _right(problem, "\n".join(line for line in lines if line[0] != "p").encode())


def test_operations_that_are_overloaded_are_refuted_order_by_order() -> None:
    rows, limit, lengths = PlanRows(), 7, (2, 3, 3)
    uses = list[ResourceUse]()
    for job, length in enumerate(lengths):
        present = rows.variable(("on", job), 1, 1)
        start, end = (rows.variable((word, job), 0, limit) for word in ("start", "done"))
        own = rows.variable(("length", job), length, length)
        rows.equal([(1, start), (1, own), (-1, end)], 0)
        uses.append(ResourceUse(present, start, end, (job, 1, "g"), job, own))
    rows.resources = [uses]
    for one, other in combinations(uses, 2):
        first = rows.variable(("order", *one.order, *other.order), 0, 1)
        both = [(limit, one.present), (limit, other.present)]
        rows.at_most([(1, one.end), (-1, other.start), (limit, first), *both], 3 * limit)
        rows.at_most([(1, other.end), (-1, one.start), (-limit, first), *both], 2 * limit)
    problem = OpbProblem(rows, ())
    steps = refutation_steps(problem, (), [-1])
    assert steps.count(b"\nu ") > 1
    assert _right(problem.document(), steps)


def test_branches_outside_the_values_of_a_variable_are_refuted() -> None:
    rows = PlanRows()
    bounds = {"x": (-1, 3), "y": (0, 1), "z": (0, 1), "fixed": (2, 2)}
    x, y, z, fixed = (rows.variable((name,), low, high) for name, (low, high) in bounds.items())
    rows.equal([(2, x), (2, y), (2, z), (1, fixed)], 5)
    problem, needed = OpbProblem(rows, ()), [1, -1, -1]
    for variable, most in ((x, 9), (x, 3), (z, 1), (fixed, 2), (fixed, 7)):
        assert _right(problem.document(), refutation_steps(problem, [(variable, most), (y, 0)], [0, *needed, -1]))
    for variable, most in ((x, -5), (x, -2), (z, -1), (fixed, 1), (fixed, -7)):
        assert _right(problem.document(), refutation_steps(problem, [(variable, most), (y, 0)], [0, -1, *needed]))


def test_limits_that_no_row_leaves_room_for_are_refuted() -> None:
    instance = load("tiny/000")
    for limit in (0, 1, 9):
        argument = {"kind": "cases", "limit": limit, "iterations": "each", "branches": [], "tree": [-1]}
        proof = replace(_proof("tiny/000"), bound=limit + 1, argument=argument)
        assert _right(*refutation(instance, proof))


@pytest.mark.skipif(which("veripb") is None, reason="veripb is not installed")
@pytest.mark.parametrize("tens", range(8))
def test_veripb_accepts_the_refutations(tens: int, tmp_path: Path) -> None:
    path = tmp_path / "x.opb"
    for name in names("tiny")[10 * tens : 10 * tens + 10]:
        proof = best_proof(name)
        if proof is not None and proof.argument["kind"] == "cases":
            save_proof(proof, tmp_path / "proof.json")
            assert main(["export", name, "--proof", str(tmp_path / "proof.json"), "--to", "opb", "-o", str(path)]) == 0
            words = ["veripb", "--requireUnsat", str(path), str(path.with_suffix(".pbp"))]
            assert subprocess.run(words, capture_output=True, check=False, timeout=60).returncode == 0


def test_the_command_writes_the_refutation_beside_the_rows(tmp_path: Path) -> None:
    save_proof(_proof("tiny/002"), tmp_path / "proof.json")
    words = ["export", "tiny/002", "--proof", str(tmp_path / "proof.json"), "--to", "opb", "-o"]
    assert main([*words, str(tmp_path / "x.opb")]) == 0
    assert _right((tmp_path / "x.opb").read_bytes(), (tmp_path / "x.pbp").read_bytes())
    ends("2: missing-option -o", *words, "-")
    ends("2: missing-option -o", *words, tmp_path / "x.pbp")
    ends("2: not-together at_most", *words, tmp_path / "x.opb", "--at-most", "9")
    ends("2: not-together iterations", *words, tmp_path / "x.opb", "--iterations", "each")


def test_what_has_no_refutation_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidInputError, match="of the kind 'cases'"):
        refutation(load("tiny/001"), _proof("tiny/001"))
    monkeypatch.setattr(refutations, "MOST_STEPS", 9)
    with pytest.raises(InvalidInputError, match="more than 9 steps"):
        refutation(load("tiny/002"), _proof("tiny/002"))

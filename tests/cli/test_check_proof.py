"""`jigsaw check --proof`: what it says of plans and proofs, right and wrong."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from jigsaw_opt.checking import proofs
from jigsaw_opt.checking.proofs import ProofFault, check_proof
from jigsaw_opt.cli import main
from jigsaw_opt.documents import instance_sha256, save_plan, save_proof
from jigsaw_opt.instances import load
from jigsaw_opt.problem import Instance, Plan, clock
from jigsaw_opt.problem.bound_proof import BoundProof
from jigsaw_opt.solvers.solve import solve
from tests.refusals import ends
from tests.views.test_views import embedded


@pytest.fixture
def proof(pair: Instance) -> BoundProof:
    return BoundProof(pair.name, instance_sha256(pair), pair.objective, 0, {"kind": "none"})


def test_a_right_proof_certifies_its_bound(
    pair_path: Path,
    pair_plan_path: Path,
    proof: BoundProof,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "proof.json"
    save_proof(proof, path)
    told = "no plan is better than 0 (certified)\n"
    assert main(["check", str(pair_path), "--proof", str(path)]) == 0
    assert main(["check", str(pair_path), str(pair_plan_path), "--proof", str(path)]) == 0
    assert capsys.readouterr().out == f"{told}correct; {told}"
    monkeypatch.setattr(proofs, "proven", lambda step, facts: 1800)
    save_proof(replace(proof, bound=1800), path)
    assert main(["check", str(pair_path), str(pair_plan_path), "--proof", str(path)]) == 0
    assert capsys.readouterr().out == "correct; certified optimal\n"
    assert main(["check", str(pair_path), str(pair_plan_path), "--proof", str(path), "--json"]) == 0
    right = {"right": True, "fault": None, "bound": 1800, "certified_optimal": True}
    assert json.loads(capsys.readouterr().out) == {"correct": True, "violations": [], "proof": right}


def test_a_wrong_proof_says_which_step_fails(
    pair_path: Path,
    pair_plan: Plan,
    pair_plan_path: Path,
    proof: BoundProof,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path, plan = tmp_path / "proof.json", tmp_path / "plan.json"
    save_proof(replace(proof, argument={"kind": "hope"}), path)
    assert main(["check", str(pair_path), str(pair_plan_path), "--proof", str(path)]) == 7
    printed = capsys.readouterr()
    told = "error: the proof is wrong: $.argument.kind: 'hope' is no kind of argument about makespan\n"
    assert (printed.out, printed.err) == ("correct\n", told)
    assert main(["check", str(pair_path), "--proof", str(path), "--json"]) == 7
    fault = {"path": "$.argument.kind", "message": "'hope' is no kind of argument about makespan"}
    wrong = {"right": False, "fault": fault, "bound": 0, "certified_optimal": None}
    assert json.loads(capsys.readouterr().out) == {"proof": wrong}
    # A plan that is wrong is certified by no proof.
    save_proof(proof, path)
    save_plan(replace(pair_plan, objective=0, bound=0), plan)
    assert main(["check", str(pair_path), str(plan), "--proof", str(path)]) == 7
    assert capsys.readouterr().out.endswith("no plan is better than 0 (certified)\n")
    # Both can be right only if a check is wrong.
    monkeypatch.setattr(proofs, "proven", lambda step, facts: 1801)
    save_proof(replace(proof, bound=1801), path)
    assert main(["check", str(pair_path), str(pair_plan_path), "--proof", str(path)]) == 7
    assert "please report it" in capsys.readouterr().err


def test_a_proof_is_told_where_its_plan_is_explained_and_drawn(
    pair_path: Path,
    pair_plan_path: Path,
    proof: BoundProof,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path, page = tmp_path / "proof.json", tmp_path / "page.html"
    pair, given = [str(pair_path), str(pair_plan_path)], ["--proof", str(path)]
    save_proof(replace(proof, bound=1800), path)
    for command in (
        ["explain", *pair],
        ["plot", *pair, "-o", str(page)],
        ["export", pair[0], "--to", "mps", "-o", str(tmp_path / "x.mps")],
    ):
        assert main([*command, *given]) == 7
        told = "error: the proof is wrong: $.bound: is 1800, but the argument proves 0\n"
        assert capsys.readouterr().err == told
        assert main([*command, "--proof", str(pair_plan_path)]) == 3
        path.write_text(path.read_text().replace("1800", "-1"))
        assert main([*command, *given]) == 3
        assert capsys.readouterr().err.splitlines()[-2] == f"error: 1 problem in {path}"
        path.write_text(path.read_text().replace("-1", "1800"))
    assert not page.exists()
    argument = {"kind": "sum", "parts": [{"argument": {"resource": {"links": ["l"], "servers": ["s0"]}}}]}
    save_proof(replace(proof, bound=1800, argument=argument), path)
    monkeypatch.setattr(proofs, "proven", lambda step, facts: 1800)
    capsys.readouterr()
    assert main(["explain", *pair, *given]) == 0
    told = "This proof, of the kind sum, was checked step by step."
    assert capsys.readouterr().out.endswith(f"{told}\nThe plan has 1,800: it is optimal.\n")
    assert main(["explain", *pair, *given, "--json"]) == 0
    bound = json.loads(capsys.readouterr().out)["bound"]
    assert (bound["value"], bound["certified"], bound["argument"]) == (1800, True, "sum")
    assert main(["plot", *pair, *given, "-o", str(page)]) == 0
    shown = embedded(page.read_text())
    assert shown["status"] == "certified optimal" and told in shown["proof"]["text"]
    assert (shown["proof"]["links"], shown["proof"]["servers"]) == (["l"], ["s0"])
    ends("2: not-together --proof", "plot", *pair, *given)
    ends("2: not-together --proof", "explain", tmp_path, *given)
    # A right proof of more than a plan has shows that a check is wrong.
    monkeypatch.setattr(proofs, "proven", lambda step, facts: 1801)
    save_proof(replace(proof, bound=1801), path)
    assert main(["explain", *pair, *given]) == main(["plot", *pair, *given, "-o", str(page)]) == 7


def test_what_a_plan_file_claims_of_its_bound_is_not_told_as_proven(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jigsaw_opt.solvers.explanation.in_words.stronger_bounds", lambda *_: ())
    instance = load("tiny/004")
    plan = solve(instance, "greedy", threads=1).plan
    assert plan is not None and plan.bound < plan.objective
    forged, given, page = tmp_path / "plan.json", tmp_path / "proof.json", tmp_path / "page.html"
    save_plan(replace(plan, bound=plan.objective, status="optimal"), forged)
    save_proof(BoundProof(instance.name, instance_sha256(instance), instance.objective, 0, {"kind": "none"}), given)
    claim = f"The plan file claims a bound of {plan.objective:,}, which was not checked."
    for with_proof, least in ((["--proof", str(given)], 0), ([], plan.bound)):
        assert main(["explain", "tiny/004", str(forged), *with_proof]) == 0
        told = capsys.readouterr().out
        assert told.endswith(f"The plan has {plan.objective:,}; the bound proven here is {least:,}. {claim}\n")
        assert "is optimal" not in told
        assert main(["explain", "tiny/004", str(forged), *with_proof, "--json"]) == 0
        bound = json.loads(capsys.readouterr().out)["bound"]
        assert (bound["value"], bound["of_plan"]) == (least, plan.objective)
        assert main(["plot", "tiny/004", str(forged), *with_proof, "-o", str(page)]) == 0
        shown = embedded(page.read_text())
        assert (shown["status"], shown["bound"]) == ("optimal by the plan file, not checked", least or None)
        assert shown["proof"]["text"].endswith(claim)


def test_a_proof_of_a_phased_plan_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    instance = load("tiny/000")
    plan = solve(instance, "phased", time_limit=5, threads=1).plan
    assert plan is not None
    save_plan(plan, tmp_path / "plan.json")
    right = BoundProof(instance.name, instance_sha256(instance), instance.objective, 0, {"kind": "none"})
    save_proof(right, tmp_path / "proof.json")
    words = ["explain", "tiny/000", str(tmp_path / "plan.json"), "--proof", str(tmp_path / "proof.json")]
    assert main(words) == 0
    assert "of the kind none, was checked step by step" in capsys.readouterr().out
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["bound"]["certified"] is True


def test_a_proof_of_something_else_is_wrong(pair: Instance, proof: BoundProof) -> None:
    assert check_proof(pair, proof) is None
    assert check_proof(pair, replace(proof, bound=1)) == ProofFault("$.bound", "is 1, but the argument proves 0")
    assert check_proof(pair, replace(proof, bound=-1)) == ProofFault("$.bound", "is less than 0")
    for other in (replace(proof, instance_sha256="00"), replace(proof, objective="period")):
        fault = check_proof(pair, other)
        assert fault is not None and fault.message.startswith("is not that of the instance")
    nested: dict[str, object] = {"kind": "none"}
    for argument in ({}, {"kind": 3}, {"kind": "none", "more": nested}):
        assert check_proof(pair, replace(proof, argument=argument)) is not None


def test_without_a_plan_and_a_proof_there_is_nothing_to_check(pair_path: Path) -> None:
    ends("2: missing-option plan", "check", pair_path)


def test_solve_writes_a_proof_that_check_accepts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ortools")
    plan, proof = tmp_path / "plan.json", tmp_path / "proof.json"
    made = ["solve", "tiny/000", "--work-limit", "5", "--threads", "1", "-o", str(plan), "--proof", str(proof)]
    assert main([*made, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["status"], told["verdict"], told["certified_bound"]) == ("optimal", "certified optimal", 3415)
    assert main(["check", "tiny/000", str(plan), "--proof", str(proof)]) == 0
    assert capsys.readouterr().out == "correct; certified optimal\n"


def test_a_signal_ends_the_search_for_a_proof_and_both_files_are_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ortools")

    def search(*_: object) -> None:
        signal.raise_signal(signal.SIGTERM)
        while True:
            clock.check_deadline()

    monkeypatch.setattr("jigsaw_opt.solvers.certification.prove_by_cases", search)
    plan, proof = tmp_path / "plan.json", tmp_path / "proof.json"
    made = ["solve", "tiny/000", "--work-limit", "5", "--threads", "1", "-o", str(plan), "--proof", str(proof)]
    assert main(made) == 130
    assert f"interrupted: the best plan so far has 3415, in {plan}" in capsys.readouterr().err
    assert main(["check", "tiny/000", str(plan), "--proof", str(proof)]) == 0


def test_solve_says_where_a_proof_falls_short(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ortools")
    monkeypatch.setattr("jigsaw_opt.solvers.certification.prove_by_cases", lambda *_, **__: None)
    proof = tmp_path / "proof.json"
    assert main(["solve", "tiny/000", "--work-limit", "5", "--threads", "1", "--proof", str(proof)]) == 0
    printed = capsys.readouterr()
    assert "proves" in printed.err and "of the bound 3415 there is only the word of CP-SAT" in printed.err
    assert "the search for a proof was ended after " in printed.err
    assert "optimal (by CP-SAT)" in printed.out
    assert main(["check", "tiny/000", "--proof", str(proof)]) == 0
    ends("2: not-together --proof", "solve", "tiny/000", "--per-progress", "--proof", proof)
    for same in (proof, tmp_path / "new", tmp_path / "made" / "new"):
        ends(f"2: unwritable {same}", "solve", "tiny/000", "-o", same, "--proof", same)
    assert [*tmp_path.iterdir()] == [proof]
    proof.unlink()
    ends("2: unknown-name method", "solve", "tiny/000", "--solver", "none", "--proof", proof)
    assert not proof.exists()

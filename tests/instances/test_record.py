"""Records of best known values: only better ones are kept with their runs and plans; contradictions are refused."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path

import pytest

from jigsaw_opt.checking import check
from jigsaw_opt.checking.proofs import check_proof
from jigsaw_opt.documents import instance_sha256, load_plan, load_proof, save_plan
from jigsaw_opt.errors import CheckFailedError, JigsawError
from jigsaw_opt.instances import BestKnown, RecordedRun, best_known, best_plan, load
from jigsaw_opt.instances.catalogue import plan_path, proof_path, read_best_known
from jigsaw_opt.instances.record import main, merge, of_result, prove, record, store, submit
from jigsaw_opt.problem import Instance, clock
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.result import Result, Status, StoppedBy
from tests.refusals import refuses

INSTANCE = load("tiny/000")
SHA256 = instance_sha256(INSTANCE)


def _run(objective: int | None, bound: int, solver: str = "new") -> BestKnown:
    status = Status.UNKNOWN if objective is None else Status.FEASIBLE
    return of_result(Result(status, StoppedBy.TIME, objective, bound, None, solver=solver, seed=3, threads=2), SHA256)


OLD = merge(None, _run(900, 500, "old"))


@pytest.mark.parametrize(
    ("objective", "bound", "kept"),
    [
        (800, 600, (800, "new", 600, "new")),
        (950, 600, (900, "old", 600, "new")),
        (800, 400, (800, "new", 500, "old")),
        (950, 400, (900, "old", 500, "old")),
        (900, 500, (900, "old", 500, "old")),
        (None, 700, (900, "old", 700, "new")),
        (None, 500, (900, "old", 500, "old")),
    ],
)
def test_the_better_objective_and_the_better_bound_are_kept_with_their_runs(
    objective: int | None, bound: int, kept: tuple[int, str, int, str]
) -> None:
    best = merge(OLD, _run(objective, bound))
    assert best.found is not None and best.proved is not None
    assert (best.objective, best.found.solver, best.bound, best.proved.solver) == kept
    assert (best.found.seed, best.found.threads) == (3, 2)


def test_a_record_is_optimal_only_when_both_values_meet() -> None:
    assert not OLD.optimal
    assert merge(OLD, _run(700, 700)).optimal


@pytest.mark.parametrize("run", [_run(None, 901), _run(499, 0)])
def test_runs_that_contradict_each_other_are_refused(run: BestKnown) -> None:
    with pytest.raises(JigsawError, match="disagree"):
        merge(OLD, run)


def test_recording_writes_the_solved_instances_with_their_plans_and_keeps_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "best_known.json"
    with caplog.at_level("INFO"):
        record(["tiny/000"], "greedy", Options(threads=1, seed=5), path, tmp_path)
    assert ": plan and bound kept; best" in caplog.text
    first, plan = read_best_known(path), plan_path("tiny/000", tmp_path).read_bytes()
    record(["tiny/001"], "greedy", Options(threads=1), path, tmp_path)
    both = read_best_known(path)
    assert list(first) == ["tiny/000"]
    assert list(both) == ["tiny/000", "tiny/001"]
    assert both["tiny/000"] == first["tiny/000"]
    found = first["tiny/000"].found
    assert found is not None and (found.solver, found.seed, found.threads) == ("greedy", 5, 1)
    kept = load_plan(plan_path("tiny/000", tmp_path))
    assert check(INSTANCE, kept) == () and kept.objective == first["tiny/000"].objective
    record(["tiny/000"], "greedy", Options(threads=1, seed=6), path, tmp_path)
    assert read_best_known(path) == both and plan_path("tiny/000", tmp_path).read_bytes() == plan


def test_a_plan_worse_than_the_record_is_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "best_known.json"
    best = best_known("tiny/000")
    assert best is not None
    store("tiny/000", best, None, path, tmp_path)
    record(["tiny/000"], "greedy", Options(threads=1), path, tmp_path)
    assert not plan_path("tiny/000", tmp_path).exists()
    assert read_best_known(path)["tiny/000"] == best


def test_instances_that_a_solver_does_not_take_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "best_known.json"
    record(["shop/job-6x4", "tiny/000"], "ilp", Options(threads=1), path, tmp_path)
    assert list(read_best_known(path)) == ["tiny/000"]


def test_proofs_of_recorded_bounds_are_searched_and_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, best = tmp_path / "best_known.json", best_known("tiny/001")
    assert best is not None and best.certified
    store("tiny/001", replace(best, certified_bound=0), None, path, tmp_path)
    with caplog.at_level("INFO"):
        prove(["tiny/000", "tiny/001"], 10.0, path, tmp_path)
    assert f"bound {best.bound}, certified {best.bound}" in caplog.text
    assert read_best_known(path) == {"tiny/001": best}
    proof = load_proof(proof_path("tiny/001", tmp_path))
    assert proof.bound == best.bound and check_proof(load("tiny/001"), proof) is None


def test_after_a_signal_no_more_proofs_are_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    searched = []

    def search(instance: Instance, *_: object) -> None:
        searched.append(instance.name)
        signal.raise_signal(signal.SIGINT)
        while True:
            clock.check_deadline()

    monkeypatch.setattr("jigsaw_opt.solvers.certification.prove_by_cases", search)
    path, names = tmp_path / "best_known.json", ["tiny/000", "tiny/001"]
    for name in names:
        best = best_known(name)
        assert best is not None
        store(name, replace(best, certified_bound=0), None, path, tmp_path)
    with pytest.raises(KeyboardInterrupt):
        prove(names, 10.0, path, tmp_path)
    kept = read_best_known(path)["tiny/000"].certified_bound
    assert searched == ["tiny-000"] and 0 < kept == load_proof(proof_path("tiny/000", tmp_path)).bound


def test_a_larger_bound_that_is_found_with_its_proof_is_recorded(tmp_path: Path) -> None:
    path, best = tmp_path / "best_known.json", best_known("tiny/008")
    assert best is not None and best.objective == best.bound
    store("tiny/008", replace(best, bound=1, certified_bound=0), None, path, tmp_path)
    prove(["tiny/008"], 10.0, path, tmp_path)
    found = read_best_known(path)["tiny/008"]
    assert (found.objective, found.bound, found.certified_bound) == (best.objective, best.bound, best.bound)
    assert found.found == best.found and found.proved is not None and found.proved.solver == "certify"


def test_a_smaller_proof_takes_the_place_of_a_certified_one(tmp_path: Path) -> None:
    path, best, file = tmp_path / "best_known.json", best_known("tiny/001"), proof_path("tiny/001", tmp_path)
    assert best is not None and best.certified
    store("tiny/001", best, None, path, tmp_path)
    prove(["tiny/001"], 10.0, path, tmp_path)
    found = file.read_bytes()
    for stored, kept in ((found + b" " * 9, found), (b"", b"")):
        file.write_bytes(stored)
        prove(["tiny/001"], 10.0, path, tmp_path)
        assert file.read_bytes() == kept


def test_a_run_keeps_the_proof_of_its_bound(tmp_path: Path) -> None:
    path = tmp_path / "best_known.json"
    record(["tiny/001"], "greedy", Options(threads=1, time_limit=1.0), path, tmp_path)
    kept = read_best_known(path)["tiny/001"]
    assert load_proof(proof_path("tiny/001", tmp_path)).bound == kept.certified_bound > 0


def test_a_plan_file_that_is_sent_in_replaces_a_worse_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, sent, plan = tmp_path / "best_known.json", tmp_path / "sent.json", best_plan("tiny/000")
    assert plan is not None
    record(["tiny/000"], "greedy", Options(threads=1), path, tmp_path)
    before = read_best_known(path)["tiny/000"]
    assert before.objective is not None and plan.objective < before.objective
    solver = {"name": "annealing", "version": "7", "seed": 1, "threads": 4, "seconds": 2}
    save_plan(replace(plan, status="optimal", bound=plan.objective, solver=solver), sent)
    with caplog.at_level("INFO"):
        submit([sent], "Ada", "abacus", path, tmp_path)
    assert f"objective {plan.objective}: plan kept; best {plan.objective}," in caplog.text
    after = read_best_known(path)["tiny/000"]
    assert after.found is not None
    assert after.found == RecordedRun("annealing", "7", 1, 4, 2, after.found.date, "abacus", "Ada")
    assert (after.objective, after.bound, after.proved) == (plan.objective, before.bound, before.proved)
    assert before.bound < plan.objective
    kept = load_plan(plan_path("tiny/000", tmp_path))
    assert kept.jobs == plan.jobs
    assert (kept.status, kept.bound) == ("feasible", before.bound), "the plan states a proof that nobody has seen"
    save_plan(replace(plan, solver={"name": 3, "seed": True}), sent)
    caplog.clear()
    with caplog.at_level("INFO"):
        submit([sent], "Bob", None, path, tmp_path)
    assert f"objective {plan.objective}: not better than the record, nothing is kept" in caplog.text
    assert read_best_known(path)["tiny/000"] == after


def test_what_is_sent_in_wrong_changes_nothing(tmp_path: Path) -> None:
    path, plan = tmp_path / "best_known.json", best_plan("tiny/000")
    assert plan is not None
    right, wrong, strange = (tmp_path / f"{name}.json" for name in ("right", "wrong", "strange"))
    save_plan(plan, right)
    save_plan(replace(plan, objective=plan.objective - 1, bound=0), wrong)
    save_plan(replace(plan, instance_sha256="0" * 64), strange)
    with pytest.raises(CheckFailedError, match="tiny/000: the plan is wrong"):
        submit([right, wrong], None, None, path, tmp_path)
    with refuses(f"mismatch {strange}", f"unreadable {tmp_path / 'none'}"):
        submit([right, strange, tmp_path / "none"], None, None, path, tmp_path)
    assert not path.exists() and not plan_path("tiny/000", tmp_path).exists()


def test_the_command_refuses_unknown_names_and_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tiny/9999"]) == 2
    assert main(["--plan", str(tmp_path / "none.json"), "--by", "Ada"]) == 3


def test_an_installed_package_is_never_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    plan = plan_path("tiny/000")
    monkeypatch.setattr("jigsaw_opt.instances.record.DATA", tmp_path / "jigsaw_opt" / "instances" / "data")
    assert main(["--plan", str(plan)]) == 2
    assert f"{tmp_path} is no clone of the repository" in caplog.text
    assert not any(tmp_path.iterdir())

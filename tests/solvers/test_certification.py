"""What a result says its bound rests on: a proof that was checked, an engine, a solver or a relaxation."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from jigsaw_opt.checking import check, proofs
from jigsaw_opt.errors import OutOfTimeError, UsageError
from jigsaw_opt.instances import best_proof, load
from jigsaw_opt.problem import Instance, clock, compile_instance
from jigsaw_opt.problem.bound_proof import Argument
from jigsaw_opt.problem.depth import DepthPlugin, FullDepth
from jigsaw_opt.solvers import certification
from jigsaw_opt.solvers.bounds import Bound, Proof, lower_bound, registry
from jigsaw_opt.solvers.bounds.relaxation import Relaxation
from jigsaw_opt.solvers.certification import certify
from jigsaw_opt.solvers.result import Result, Status, StoppedBy
from jigsaw_opt.solvers.solve import solve

RIGHT: Argument = {"kind": "test", "value": 1800}


@pytest.fixture
def own_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kind of argument that proves the value that it states."""
    kinds = {"test": lambda step, facts: step.integer("value"), "none": lambda step, facts: 0}
    monkeypatch.setattr("jigsaw_opt.checking.proofs.arguments.kinds", lambda objective: kinds)


def solved(
    instance: Instance, monkeypatch: pytest.MonkeyPatch, *bounds: tuple[int, Argument | None], **option: float
) -> Result:
    """Solve by `greedy`, with these bounds of one instant relaxation and no others."""

    def prove(*_: object) -> Iterator[Bound]:
        for value, argument in bounds:
            yield Bound(value, Proof("by hand", argument=argument))

    own = Relaxation("own", prove, instant=True)
    monkeypatch.setattr(registry, "_everything", lambda: (own,))
    return solve(instance, "greedy", threads=1, **option)


@pytest.mark.usefixtures("own_kind")
def test_a_bound_whose_proof_is_right_is_certified(pair: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    found = solved(pair, monkeypatch, (1800, RIGHT))
    assert (found.certified, found.verdict, found.failure) == (True, "certified optimal", "")
    assert found.bound_proof is not None and proofs.check_proof(pair, found.bound_proof) is None
    assert repr(found).startswith("<Result certified optimal: ") and "certified optimal" in found._repr_html_()
    less = solved(pair, monkeypatch, (1700, {"kind": "test", "value": 1700}))
    assert (less.certified, less.verdict) == (True, "feasible (bound certified)")


@pytest.mark.usefixtures("own_kind")
def test_of_a_bound_without_a_proof_the_best_lesser_one_is_kept(
    pair: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = solved(pair, monkeypatch, (1000, {"kind": "test", "value": 1000}), (1800, None))
    assert (found.certified, found.bound, found.verdict) == (False, 1800, "optimal (by the relaxation own)")
    assert found.bound_proof is not None and found.bound_proof.bound == 1000


@pytest.mark.usefixtures("own_kind")
def test_a_wrong_proof_is_a_fault_and_certifies_nothing(pair: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = (1800, {"kind": "test", "value": 1799})
    found = solved(pair, monkeypatch, wrong)
    assert (found.status, found.stopped_by, found.bound) == (Status.FEASIBLE, StoppedBy.FAILURE, 0)
    assert "by the relaxation own is wrong: $.bound: is 1800, but the argument proves 1799" in found.failure
    assert found.plan is not None and (found.plan.status, found.plan.bound) == ("feasible", 0)
    assert check(pair, found.plan) == ()
    assert found.verdict == "feasible (bound not certified)"


@pytest.mark.usefixtures("own_kind")
def test_a_wrong_proof_of_another_package_leaves_our_best_bound(
    pair: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ours(*_: object) -> Iterator[Bound]:
        yield Bound(1000, Proof("by hand", argument={"kind": "test", "value": 1000}))

    def prove(*_: object) -> Iterator[Bound]:
        yield Bound(1800, Proof("by hand", argument={"kind": "test", "value": 1799}))

    ours.__module__ = "jigsaw_opt.solvers.bounds"
    both = (Relaxation("ours", ours, instant=True), Relaxation("own", prove, instant=True))
    monkeypatch.setattr(registry, "_everything", lambda: both)
    found = solve(pair, "greedy", threads=1)
    assert (found.status, found.bound, found.certified) == (Status.FEASIBLE, 1000, True)
    assert found.failure.endswith("this is a fault of the plug-in 'own'")
    assert max(event.bound for event in found.trajectory) == 1000


def test_a_proof_of_more_than_the_bound_raises_it(pair: Instance) -> None:
    best = solve(pair, "greedy", threads=1)
    assert best.plan is not None and best.objective is not None
    less = replace(
        best,
        status=Status.FEASIBLE,
        bound=7,
        bound_proof=None,
        proof=Proof("search", engine="CP-SAT"),
        plan=replace(best.plan, bound=7, status="feasible"),
    )
    found = certify(pair, less, 0.0)
    assert (found.status, found.bound, found.verdict) == (Status.OPTIMAL, 1800, "certified optimal")
    assert found.plan == best.plan and found.bound_by.startswith("the relaxation ")
    none = certify(pair, replace(less, status=Status.INFEASIBLE, objective=None, plan=None), 0.0)
    assert (none.certified_bound, none.certified, none.verdict) == (0, False, "infeasible (not certified)")
    above = replace(less, objective=1799, plan=replace(best.plan, objective=1799))
    assert "are both found right; this is a fault of the program" in certify(pair, above, 0.0).failure


def test_a_bound_proven_by_cases_is_no_longer_the_word_of_an_engine() -> None:
    instance = load("tiny/000")
    by_engine = Proof("search", engine="CP-SAT")
    found = certify(instance, Result(Status.UNKNOWN, StoppedBy.TIME, None, 3415, None, by_engine))
    assert (found.certified, found.bound_by) == (True, "a proof of the kind cases")
    assert found.proof.argument is not None and "below 3415" in found.bound_reason


def test_what_is_not_checked_in_time_is_not_certified(pair: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(step: proofs.ProofStep, facts: proofs.Facts) -> int:
        threading.Event().wait(0.3)
        clock.check_deadline()
        return 1800

    monkeypatch.setattr(proofs, "proven", slow)
    found = solved(pair, monkeypatch, (1800, RIGHT), time_limit=0.01)
    assert (found.certified, found.bound_proof, found.bound, found.failure) == (False, None, 1800, "")


@pytest.mark.parametrize(("method", "by"), [("cpsat", "CP-SAT"), ("ilp", "HiGHS")])
def test_an_engine_is_named_where_its_search_is_the_proof(
    method: str, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ortools" if method == "cpsat" else "highspy")
    monkeypatch.setattr(registry, "_everything", lambda: ())
    found = solve(load("tiny/000"), method, threads=1)
    assert (found.status, found.certified, found.verdict) == (Status.OPTIMAL, False, f"optimal (by {by})")
    assert replace(found, bound_proof=None).verdict == f"optimal (by {by})"


def test_a_depth_rule_that_the_checker_does_not_know_leaves_the_bound_uncertified(pair: Instance) -> None:
    members = {
        "rule": "all",
        "limits": lambda self, workers, deepest, iterations: FullDepth().limits(workers, deepest, iterations),
        "broken": lambda *_: None,
        "__module__": __name__,
    }
    rule = dataclass(frozen=True)(type("All", (DepthPlugin,), members))()
    found = solve(replace(pair, jobs=tuple(replace(job, depth=rule) for job in pair.jobs)), "greedy", threads=1)
    assert found.plan is not None and found.bound > 0
    assert (found.failure, found.certified) == ("", False) and found.bound_by.startswith("the relaxation ")


def test_certify_keeps_the_best_lesser_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jigsaw_opt.solvers.certification.prove_by_cases", lambda *_, **__: None)
    tiny = load("tiny/044")
    result = Result(Status.UNKNOWN, StoppedBy.TIME, None, 1274, None)
    for seconds in (None, 5.0):
        found = certify(tiny, result, seconds)
        assert found.bound_proof is not None and 1100 < found.bound_proof.bound < 1274
        assert proofs.check_proof(tiny, found.bound_proof) is None and certify(tiny, found, seconds) == found
    hasty = certify(tiny, result, 0.0).bound_proof
    assert hasty is not None and hasty.bound <= 1274


@pytest.mark.parametrize("name", ["tiny/003", "cluster/weighted"])
def test_a_check_keeps_the_time_limit_of_its_caller(name: str) -> None:
    instance, proof = load(name), best_proof(name)
    assert proof is not None and proofs.check_proof(instance, proof) is None
    began = time.monotonic()
    with pytest.raises(OutOfTimeError), clock.limited(clock.Clock(0.005, threading.Event())):
        proofs.check_proof(instance, proof)
    assert time.monotonic() - began < 1.0


def test_a_check_without_end_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny, best = load("tiny/001"), lower_bound(compile_instance(load("tiny/001")))
    assert certification.is_certified(tiny, best)
    monkeypatch.setattr(certification, "_CHECK_SECONDS", 0.0)
    assert not certification.is_certified(tiny, best)


def test_a_signal_ends_a_search_for_a_proof_and_leaves_the_best_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def search(*_: object) -> None:
        signal.raise_signal(signal.SIGINT)
        while True:
            clock.check_deadline()

    monkeypatch.setattr(certification, "prove_by_cases", search)
    tiny = load("tiny/044")
    found = certify(tiny, Result(Status.UNKNOWN, StoppedBy.TIME, None, 1274, None))
    assert found.stopped_by is StoppedBy.INTERRUPT
    assert found.bound_proof is not None and 1100 < found.bound_proof.bound < 1274
    done = certify(tiny, replace(found, stopped_by=StoppedBy.TIME, bound=found.bound_proof.bound))
    assert done.certified and done.stopped_by is StoppedBy.TIME


def test_a_search_for_a_proof_that_is_cancelled_checks_what_is_there() -> None:
    cancel = threading.Event()
    cancel.set()
    found = certify(load("tiny/044"), Result(Status.UNKNOWN, StoppedBy.TIME, None, 10**6, None), cancel=cancel)
    assert found.stopped_by is StoppedBy.INTERRUPT and found.bound_proof is not None and found.bound_proof.bound > 0


def test_a_search_for_a_proof_finds_that_the_objective_is_optimal() -> None:
    instance = load("pipeline/v-shape")
    found = certify(instance, Result(Status.FEASIBLE, StoppedBy.COMPLETED, 138956, 130000, None))
    assert (found.status, found.bound, found.certified) == (Status.OPTIMAL, 138956, True)


def test_an_objective_beyond_a_proven_bound_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = load("tiny/004")
    before = solve(instance, "greedy", threads=1)
    assert before.certified and before.objective is not None and before.bound < before.objective
    found = certify(instance, before)
    assert (found.status, found.bound, found.certified) == (Status.OPTIMAL, before.objective, True)
    tried: list[int] = []
    monkeypatch.setattr(certification, "prove_by_cases", lambda _, value, *__: tried.append(value))
    assert certify(instance, before) == before and tried == [before.objective]


def test_a_result_of_another_instance_is_refused() -> None:
    found = solve(load("tiny/000"), "greedy", threads=1)
    for part in (found, replace(found, bound_proof=None), replace(found, plan=None, objective=None)):
        with pytest.raises(UsageError, match="the result is of another instance than 'tiny-001'"):
            certify(load("tiny/001"), part)

"""Proofs that there is no correct plan: found where there is none, and never accepted where there is one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from jigsaw_opt import certify, solve
from jigsaw_opt.checking import proofs
from jigsaw_opt.checking.proofs import check_proof
from jigsaw_opt.checking.proofs.arguments import require_no_plan
from jigsaw_opt.checking.proofs.facts.instance_facts import Facts
from jigsaw_opt.checking.proofs.kinds.upper_bound import upper_bound
from jigsaw_opt.checking.proofs.step import ProofStep, ProofStepError
from jigsaw_opt.cli import main
from jigsaw_opt.documents import decode_proof, encode_proof, instance_sha256, save_instance, save_proof
from jigsaw_opt.problem import Cluster, Instance, Job, Server
from jigsaw_opt.problem.bound_proof import Argument, BoundProof
from jigsaw_opt.problem.depth import DepthPlugin
from jigsaw_opt.problem.instance import Horizon
from jigsaw_opt.solvers.result import Status
from tests.checking.proof_mutants import mutants
from tests.checking.test_proof_page import JSON, PAGE, worked
from tests.oracle import optimum
from tests.pages import section
from tests.random_instances import (
    random_instance,
    tight_instance,
    with_guarantees,
    with_licences,
    with_power_caps,
)
from tests.random_task_graphs import random_mixed_instance, random_task_graph_instance
from tests.task_graph_oracle import task_graph_optimum

HORIZONS: tuple[Horizon, ...] = ("finite", "cyclic")


def drawn(seed: int, horizon: Horizon, kind: str = "data-parallel") -> Instance:
    objective = "makespan" if horizon == "finite" else "period"
    if kind == "data-parallel":
        return random_instance(seed, horizon, objective)
    return (random_task_graph_instance if kind == "task-graphs" else random_mixed_instance)(seed, horizon, objective)


def guaranteed(instance: Instance, most: int) -> Instance:
    """The instance where all jobs guarantee to end, or to repeat, within so many microseconds."""
    if instance.horizon == "finite":
        return replace(instance, jobs=tuple(replace(job, deadline_us=most) for job in instance.jobs))
    return replace(instance, jobs=tuple(replace(job, pace_us=-(-most // job.iterations)) for job in instance.jobs))


def is_right(instance: Instance, argument: Any) -> bool:
    try:
        require_no_plan(ProofStep(argument, "$"), Facts(instance))
    except ProofStepError:
        return False
    return True


def shifted(value: Any, old: int, new: int) -> Any:
    """An argument with another number in the place of one."""
    if isinstance(value, dict):
        return {key: shifted(each, old, new) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [shifted(each, old, new) for each in value]
    return new if value == old and not isinstance(value, bool) else value


def refuted(seed: int, horizon: Horizon, kind: str) -> Iterator[tuple[Argument, Instance, int]]:
    """Yield a right argument about an instance whose guarantees no plan keeps, one with a plan, and its optimum."""
    instance = drawn(seed, horizon, kind)
    best = solve(instance, "cpsat", time_limit=20, threads=1)
    if best.status is Status.OPTIMAL and best.objective is not None and best.objective > 1:
        tight = guaranteed(instance, best.objective - 1)
        result = certify(tight, solve(tight, "cpsat", time_limit=20, threads=1), 10)
        if result.status is Status.INFEASIBLE and result.bound_proof is not None and result.certified:
            assert check_proof(tight, result.bound_proof) is None
            yield result.bound_proof.argument, guaranteed(instance, best.objective), best.objective


@pytest.mark.parametrize("horizon", HORIZONS)
@pytest.mark.parametrize("seed", range(6))
def test_guarantees_that_no_plan_keeps_are_certified(seed: int, horizon: Horizon) -> None:
    instance = drawn(seed, horizon)
    best = optimum(instance)
    tight = instance if best is None else guaranteed(instance, best - 1)
    if horizon == "cyclic" and best is not None:
        tight = replace(tight, jobs=tuple(replace(job, pace_us=(best - 1) // job.iterations) for job in tight.jobs))
    result = certify(tight, solve(tight, "cpsat", time_limit=20, threads=1), 10)
    assert result.verdict == "certified infeasible"
    assert result.bound_proof is not None and check_proof(tight, result.bound_proof) is None
    assert decode_proof(encode_proof(result.bound_proof)) == result.bound_proof


@pytest.mark.parametrize("horizon", HORIZONS)
@pytest.mark.parametrize("kind", ["data-parallel", "task-graphs", "mixed"])
@pytest.mark.parametrize("seed", range(5))
def test_no_argument_refutes_an_instance_with_a_plan(seed: int, kind: str, horizon: Horizon) -> None:
    for argument, feasible, best in refuted(seed, horizon, kind):
        bound = upper_bound(Facts(feasible))
        assert bound is not None and bound >= best
        for near in (argument, shifted(argument, best - 1, best), shifted(argument, argument["upper_bound"], bound)):
            assert not is_right(feasible, near)
            assert [path for path, changed in mutants(near) if is_right(feasible, changed)] == []


@pytest.mark.parametrize("seed", range(40))
def test_some_plan_keeps_the_upper_bound_where_there_is_any(seed: int) -> None:
    random, found = Random(seed), list[tuple[Instance, int | None]]()
    for horizon in HORIZONS:
        instance = drawn(seed, horizon)
        for each in (instance, with_guarantees(instance, random, 12)):
            found.append((each, optimum(each)))
    instance = tight_instance(seed, restarts=seed % 2 == 0)
    for each in (instance, with_licences(with_power_caps(instance, random), random)):
        if compiled_size(each) <= 8:
            found.append((each, task_graph_optimum(each)))
    for each, best in found:
        bound = upper_bound(Facts(each))
        assert best is None or bound is None or best <= bound


def compiled_size(instance: Instance) -> int:
    from jigsaw_opt.problem import compile_instance

    compiled = compile_instance(instance)
    return compiled.blocks + compiled.transfers


def test_the_example_of_the_page_is_right() -> None:
    found = JSON.search(section(PAGE, "No plan"))
    assert found
    argument = json.loads(found[1])
    assert is_right(guaranteed(worked(), 2520), argument)
    assert not is_right(guaranteed(worked(), 2521), argument)
    assert not is_right(worked(), argument)
    for nested in ({"kind": "some jobs", "jobs": ["a", "b"], "argument": argument}, {"kind": "none"}):
        assert not is_right(guaranteed(worked(), 2520), nested)
    bound = BoundProof("i", instance_sha256(worked()), "makespan", 2521, argument)
    fault = check_proof(worked(), bound)
    assert fault is not None and fault.message == "'no plan' is no kind of argument about makespan"


def test_a_job_without_a_place_and_a_licence_that_is_missing_are_certified() -> None:
    instance = worked()
    models, (first, second) = instance.models, instance.jobs
    cluster = instance.cluster
    small = Cluster(tuple(replace(server, gpu_memory=10) for server in cluster.servers), (), cluster.links)
    apart = Cluster(cluster.servers, ())
    wide = replace(first, workers=3)
    assert isinstance(first, Job)
    none = replace(cluster, licences={"l": 0})
    cases = [
        replace(instance, cluster=small),
        replace(instance, cluster=apart),
        replace(instance, jobs=(wide, second)),
        replace(instance, cluster=none, jobs=(replace(first, licences=("l",)), second)),
        Instance("big", Cluster((Server("s", "v100", 25_000, 10**9, 1),)), models, (replace(second, workers=25_001),)),
        replace(
            instance,
            cluster=replace(cluster, licences={"l": 1}),
            jobs=tuple(replace(job, licences=("l",)) for job in instance.jobs),
            horizon="cyclic",
            objective="period",
        ),
    ]
    for each in cases:
        result = solve(each, time_limit=20)
        assert (result.status, result.verdict) == (Status.INFEASIBLE, "certified infeasible")


def test_a_job_that_may_move_has_an_upper_bound_only_with_a_deadline() -> None:
    instance = worked()
    moving = replace(instance, jobs=tuple(replace(job, restart_us=0) for job in instance.jobs))
    assert upper_bound(Facts(moving)) is None and upper_bound(Facts(guaranteed(moving, 7))) == 7
    late = guaranteed(moving, 100)
    result = solve(late, time_limit=20)
    assert result.verdict == "certified infeasible" and result.bound_proof is not None
    assert not is_right(moving, result.bound_proof.argument)


def test_the_commands_write_and_check_it(
    tmp_path: Path, pair_path: Path, pair: Instance, pair_plan_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, proof, late = tmp_path / "late.json", tmp_path / "proof.json", guaranteed(pair, 1799)
    save_instance(late, path)
    assert main(["solve", str(path), "--proof", str(proof), "--json"]) == 4
    told = json.loads(capsys.readouterr().out)
    assert (told["verdict"], told["certified"], told["certified_bound"]) == ("certified infeasible", True, None)
    assert main(["check", str(path), "--proof", str(proof)]) == 0
    assert capsys.readouterr().out == "there is no plan (certified)\n"
    assert main(["check", str(path), "--proof", str(proof), "--json"]) == 0
    right = {"right": True, "fault": None, "bound": None, "certified_optimal": None}
    assert json.loads(capsys.readouterr().out) == {"proof": right}
    # A right proof of a bound is no proof that there is no plan.
    save_proof(BoundProof(late.name, instance_sha256(late), late.objective, None, {"kind": "none"}), proof)
    assert main(["check", str(path), "--proof", str(proof)]) == 7
    assert "proves a bound, not that there is no plan" in capsys.readouterr().err


def test_a_job_with_an_own_depth_rule_may_be_named_and_has_no_facts() -> None:
    members = {"rule": "own", "limits": None, "broken": None, "__module__": __name__}
    rule = dataclass(frozen=True)(type("Own", (DepthPlugin,), members))()
    instance = guaranteed(worked(), 899)
    own = replace(instance, jobs=(instance.jobs[0], replace(instance.jobs[1], depth=rule)))
    for job, span, known in (("a", 2520, True), ("b", 900, False)):
        path = {"kind": "critical path", "job": job, "head": 0, "span": span}
        argument = {"kind": "no plan", "jobs": ["a", "b"], "upper_bound": 899, "argument": path}
        assert is_right(instance, argument) and is_right(own, argument) == known


def test_a_search_that_fails_says_so(
    tmp_path: Path, pair: Instance, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, proof, late = tmp_path / "late.json", tmp_path / "proof.json", guaranteed(pair, 1799)
    save_instance(late, path)
    for name in ("quick_refutations", "refutations"):
        monkeypatch.setattr(f"jigsaw_opt.solvers.certification.{name}", lambda *_: iter(()))
    assert main(["solve", str(path), "--proof", str(proof)]) == 4
    printed = capsys.readouterr()
    assert "infeasible (not certified)" in printed.out
    assert "1800" not in printed.out
    assert "proves the bound 1800, and not that there is no plan" in printed.err
    assert main(["check", str(path), "--proof", str(proof)]) == 0
    assert capsys.readouterr().out == "no plan is better than 1800 (certified)\n"


def test_a_plan_beside_a_proof_that_there_is_none_is_a_contradiction(
    tmp_path: Path,
    pair_path: Path,
    pair: Instance,
    pair_plan_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "proof.json"
    monkeypatch.setattr(proofs, "require_no_plan", lambda step, facts: None)
    save_proof(BoundProof(pair.name, instance_sha256(pair), pair.objective, None, {"kind": "no plan"}), path)
    assert main(["check", str(pair_path), str(pair_plan_path), "--proof", str(path)]) == 7
    told = "$.bound: says that there is no plan, but the plan has 1800 and keeps all rules: a check is wrong"
    assert told in capsys.readouterr().err

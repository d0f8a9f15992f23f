"""What is too large for a proof is refused at once, by both checkers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from proof_referee import cases as referee
from proof_referee import fault_of
from proof_referee.common import UnprovenError, spend

from jigsaw_opt.checking.proofs import check_proof
from jigsaw_opt.checking.proofs.facts.instance_facts import Facts
from jigsaw_opt.checking.proofs.kinds import pairs
from jigsaw_opt.checking.proofs.rows.job_rows import JobRows
from jigsaw_opt.checking.proofs.rows.plan_rows import plan_rows
from jigsaw_opt.checking.proofs.step import ProofStep, ProofStepError
from jigsaw_opt.documents import decode_instance, decode_proof, encode_instance, encode_proof, instance_sha256
from jigsaw_opt.instances import load
from jigsaw_opt.problem import Cluster, Instance, Job, Model, Segment, Server
from jigsaw_opt.problem.bound_proof import BoundProof
from jigsaw_opt.problem.instance import Objective
from tests.benchmarks.test_proof_referee import proof_document

Document = dict[str, Any]
WEIGHTED: Objective = "weighted_completion"


def server(name: str, gpus: int = 1, gpu_type: str = "t") -> Document:
    return {"name": name, "gpu_type": gpu_type, "gpus": gpus, "gpu_memory": 10**6, "fabric_bandwidth": 10**9}


def job(name: str, workers: int = 1, iterations: int = 1) -> Document:
    return {"name": name, "model": "m", "workers": workers, "iterations": iterations}


def model(gpu_type: str, forward_us: int) -> Document:
    times = {"forward_us": {gpu_type: forward_us}, "backward_us": {gpu_type: forward_us}}
    return {"segments": [{"name": "a", "parameter_bytes": 0, "activation_bytes": 0, **times}]}


def star(servers: list[Document]) -> Document:
    links = [{"name": f"l{s['name']}", "ends": [s["name"], "x"], "bandwidth": 10**9} for s in servers]
    return {"servers": servers, "switches": ["x"], "links": links}


def refusal(cluster: Document, jobs: list[Document], argument: Document) -> str:
    """What the package's checker says of a proof that both refuse."""
    document = {
        "format": "jigsaw-instance/1",
        "name": "large",
        "cluster": {"switches": [], "links": [], **cluster},
        "models": {"m": model("t", 1), "z": model("u", 30_000)},
        "jobs": jobs,
        "objective": "makespan",
    }
    instance = decode_instance(json.dumps(document))
    proof = proof_document(instance, 2, argument)
    assert fault_of(document, proof) is not None
    fault = check_proof(instance, decode_proof(json.dumps(proof)))
    assert fault is not None
    return fault.message


def tree(iterations: str, variables: list[list[object]], order: list[int], limit: int = 1) -> Document:
    branches = [{"variable": variable, "most": 0} for variable in variables]
    return {"kind": "cases", "limit": limit, "iterations": iterations, "branches": branches, "tree": order}


def test_rows_of_very_many_iterations_gpus_or_spreads() -> None:
    each, together, rows = tree("each", [], [-1]), tree("together", [], [-1]), "too many rows"
    assert rows in refusal({"servers": [server("a")]}, [job("j", 1, 10**9)], each)
    assert rows in refusal({"servers": [server("a", 10**10)]}, [job("j")], together)
    assert rows in refusal({"servers": [server("a", 10**10)]}, [job("j", 10**9)], together)
    # No route joins any two of these servers.
    cluster = star([server(f"s{k}") for k in range(16)]) | {"route_policies": {"r": {"max_links": 1}}}
    assert rows in refusal(cluster, [job("j", 8) | {"route_policy": "r"}], each)


def test_rows_of_very_many_terms() -> None:
    # On each of both GPUs, the jobs that are released no sooner than each of them have a row.
    jobs = [job(f"j{k}") | {"release_us": k} for k in range(800)]
    argument = tree("together", [], [-1], 10**6)
    assert "too many rows" in refusal({"servers": [server("a", 2)]}, jobs, argument)


def test_jobs_of_very_many_workers_are_in_no_proof() -> None:
    argument = {"kind": "critical path", "job": "j", "head": 0, "span": 2}
    assert "too many workers" in refusal({"servers": [server("a", 10**9)]}, [job("j", 10**9)], argument)


def test_arguments_about_some_jobs_inside_one_another() -> None:
    argument: Document = {"kind": "none"}
    for _ in range(21):
        argument = {"kind": "some jobs", "jobs": ["j"], "argument": argument}
    assert "more than 20" in refusal({"servers": [server("a")]}, [job("j")], argument)
    # Twenty are not too many: the refusal is that of the bound.
    assert "proves 0" in refusal({"servers": [server("a")]}, [job("j")], argument["argument"])


def test_rows_and_operations_of_a_whole_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    facts, step = Facts(load("tiny/000")), ProofStep({}, "$")
    facts.spend(step, "rows", 40_000)
    with pytest.raises(ProofStepError, match="more than 60000 rows"):
        facts.with_jobs(step, facts.instance).spend(step, "rows", 20_001)
    document: Document = {"spent": {}}
    spend(document, "rows", 40_000, 60_000)
    with pytest.raises(UnprovenError, match="more than 60000 rows"):
        spend({**document}, "rows", 20_001, 60_000)


def test_the_orders_of_a_pair_are_worked_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, ends = [], pairs._completions
    monkeypatch.setattr(pairs, "_completions", lambda *given: (calls.append(given), ends(*given))[1])
    cluster = Cluster((Server("a", "t", 2, 10**9, 10**6),))
    models = {"m": Model((Segment("s", {"t": 1}, {"t": 1}, 0, 1),))}
    instance = Instance("pair", cluster, models, (Job("j", "m", 2, 1), Job("k", "m", 2, 1)), objective=WEIGHTED)
    row = {"kind": "pair", "jobs": ["j", "k"], "rows": [[1, 1, 6, 1]]}
    stated = {"kind": "completions", "denominator": 2, "rows": [row, row]}
    stated["completions"] = [{"names": [name], "completion": 2} for name in ("j", "k")]
    proof = BoundProof("pair", instance_sha256(instance), WEIGHTED, 6, stated)
    assert check_proof(instance, proof) is None
    assert len(calls) == 1
    proof = BoundProof("pair", instance_sha256(instance), WEIGHTED, 4, {**stated, "rows": [{**row, "rows": []}]})
    assert check_proof(instance, proof) == ("$.argument.rows[0].rows", "is empty")
    assert fault_of(json.loads(encode_instance(instance)), json.loads(encode_proof(proof))) == "a pair has no rows"


def test_a_branch_that_leaves_one_of_its_cases_as_it_is() -> None:
    variable, cluster, jobs = ["begin", "j", 1], {"servers": [server("a")]}, [job("j"), job("k")]
    for most in (-1, 9, 10**9):
        argument = tree("each", [variable], [0, -1, -1]) | {"limit": 9}
        argument["branches"][0]["most"] = most
        assert "leaves one of its cases" in refusal(cluster, jobs, argument)


def test_numbers_of_very_many_digits_are_in_no_message() -> None:
    prices = [{"gpu_type": "t", "gpu_memory": 10**6, "price": 10**4299}]
    resource = {"kind": "gpus", "prices": prices, "capacity": 1}
    cluster, jobs = {"servers": [server("a", 10)]}, [job("j")]
    facts = {"names": ["j"], "head": 0, "work": 2 * 10**4299, "tail": 0}
    assert "bits, not 1" in refusal(cluster, jobs, {"kind": "load", "resource": resource, "jobs": [facts]})


def test_the_facts_of_a_level_are_worked_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, lengths = [], JobRows.lengths
    monkeypatch.setattr(JobRows, "lengths", lambda *given: (calls.append(given), lengths(*given))[1])
    segments = tuple(Segment(f"s{k}", {"t": 1}, {"t": 1}, 1, 1) for k in range(100))
    cluster = Cluster((Server("a", "t", 2, 10**9, 10**6),))
    instance = Instance("deep", cluster, {"m": Model(segments)}, (Job("j", "m", 2, 1),), "finite", "makespan")
    plan_rows(Facts(instance), 10, True)
    assert 0 < len(calls) < 1000


def test_values_that_creep_past_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(referee, "MOST_CHANGES", 10**4)
    # Three long jobs have two GPUs for themselves, which refutes a case once one of them is placed. But first the
    # orders of the other two jobs make a circle, in which nothing but the limit of a case ends the narrowing.
    variables = [["order", "j", 2, "a/0", "k", 1, "a/0"], ["on", "z1", "c/0"], ["order", "j", 1, "b/0", "k", 2, "b/0"]]
    argument = tree("each", variables, [0, 1, -1, -1, 2, -1, 1, -1, -1], 100_000)
    jobs = [job("j", 2, 2), job("k", 2, 2), *(job(f"z{k}") | {"model": "z"} for k in (1, 2, 3))]
    assert "too often" in refusal(star([server("a"), server("b"), server("c", 2, "u")]), jobs, argument)


def test_memory_that_runs_out_is_a_fault_and_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("jigsaw_opt.checking.proofs.proven", full)
    instance = load("tiny/000")
    proof = BoundProof(instance.name, instance_sha256(instance), instance.objective, 0, {"kind": "none"})
    assert check_proof(instance, proof) == ("$.argument", "takes more memory than there is")


def test_rows_of_fragments_without_data_parallel_jobs_prove_nothing() -> None:
    graph = {"slots": [{"name": "s"}], "blocks": [{"name": "b", "slot": "s", "duration_us": {"t": 5}}]}
    resource = {"kind": "gpus", "prices": [{"gpu_type": "t", "gpu_memory": 10**6, "price": 1}], "capacity": 1}
    rows = [{"kind": "fragments", "resource": resource, "sets": []}]
    argument = {"kind": "completions", "denominator": 1, "completions": [], "rows": rows}
    document = {"format": "jigsaw-instance/1", "name": "graph", "cluster": {"servers": [server("a")]}, "models": {}}
    document |= {"jobs": [{"name": "p", "iterations": 1, "shape": graph}], "objective": "weighted_completion"}
    instance = decode_instance(json.dumps(document))
    proof = BoundProof("graph", instance_sha256(instance), "weighted_completion", 0, argument)
    assert check_proof(instance, proof) is None


def test_a_job_with_very_many_numbers_of_workers_is_its_only_kind_of_placement() -> None:
    types = [f"t{k}" for k in range(9)]
    jobs, times = [job("j", 64)], dict.fromkeys(types, 1)
    segment = {"forward_us": times, "backward_us": times, "parameter_bytes": 0, "activation_bytes": 0}
    document = {"format": "jigsaw-instance/1", "name": "kinds", "objective": "weighted_completion", "jobs": jobs}
    document["cluster"] = star([server(f"{t}{k}", 32, t) for t in types for k in (0, 1)])
    document["models"] = {"m": {"segments": [{"name": "a", **segment}]}}
    instance = decode_instance(json.dumps(document))
    argument = {"kind": "intervals", "denominator": 1, "rows": [], "resources": [], "intervals": []}
    proof = BoundProof("kinds", instance_sha256(instance), "weighted_completion", 2, argument)
    assert check_proof(instance, proof) is None
    assert fault_of(document, json.loads(encode_proof(proof))) is None

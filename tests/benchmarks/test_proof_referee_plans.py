"""Two checkers of proofs say the same of cases and of task-graph jobs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jigsaw_opt import Options, instances, solve
from jigsaw_opt.documents import encode_instance
from jigsaw_opt.problem import Instance
from jigsaw_opt.solvers.case_search import prove_by_cases
from tests.benchmarks.test_proof_referee import proof_document, verdict
from tests.checking.proof_mutants import mutants
from tests.random_instances import tight_instance
from tests.random_task_graphs import random_mixed_instance


def agreed(instance: Instance, argument: Any, bound: int) -> None:
    """Check that both accept an argument, and say the same of some mutants."""
    document = json.loads(encode_instance(instance))
    argument = json.loads(json.dumps(argument))
    proof = proof_document(instance, bound, argument)
    assert verdict(document, proof)
    changes = [changed for _, changed in mutants(argument)]
    for changed in changes[:: 1 + len(changes) // 20]:
        verdict(document, {**proof, "argument": changed})


@pytest.mark.parametrize("name", ["tiny/001", "tiny/004", "tiny/015", "tiny/034", "tiny/039"])
def test_cases(name: str) -> None:
    instance, known = instances.load(name), instances.best_known(name)
    assert known is not None
    agreed(instance, prove_by_cases(instance, known.objective), known.objective)


@pytest.mark.parametrize("name", ["tight-memory", "v-shape", "two-servers", "two-jobs"])
def test_task_graphs(name: str) -> None:
    instance = instances.load(f"pipeline/{name}")
    result = solve(instance, "greedy", Options(threads=1, time_limit=1))
    assert result.bound_proof is not None
    agreed(instance, result.bound_proof.argument, result.bound)


@pytest.mark.parametrize(
    ("instance", "bound"),
    [
        (random_mixed_instance(13, "finite", "weighted_completion"), 39),
        (random_mixed_instance(53, "cyclic", "period"), 9),
        (tight_instance(4, "weighted_completion"), 45),
        (tight_instance(5), 16),
    ],
)
def test_cases_of_task_graphs_and_of_jobs_without_memory_for_both(instance: Instance, bound: int) -> None:
    agreed(instance, prove_by_cases(instance, bound), bound)

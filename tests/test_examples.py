"""What lies under `examples/` works as it stands."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jigsaw_opt.checking import check
from jigsaw_opt.checking.proofs import check_proof
from jigsaw_opt.documents import load_instance
from jigsaw_opt.instances import load
from jigsaw_opt.instances.families import generate
from jigsaw_opt.problem import compile_instance
from jigsaw_opt.solvers.bounds import BoundBudget, BoundContext, lower_bound
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.result import proof_of
from jigsaw_opt.solvers.solve import solve
from tests.oracle import optimum
from tests.random_instances import random_instance

EXAMPLES = Path(__file__).parents[1] / "examples"


def output_of(example: str, *arguments: str) -> str:
    """What an example prints, run as it stands."""
    environment = {**os.environ, "PYTHONPATH": str(EXAMPLES.parent)}
    command = [sys.executable, str(EXAMPLES / example), *arguments]
    run = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert run.stderr == ""
    return run.stdout


def test_the_example_of_a_solver_runs_as_it_stands() -> None:
    status, objective, bound, *gap = output_of("own_solver.py").split()
    instance = load("server/plain")
    assert (status, gap[-1]) == ("optimal" if objective == bound else "feasible", "%")
    assert int(bound) <= int(objective) <= (solve(instance, "greedy").objective or 0)


@pytest.mark.slow
def test_the_example_of_a_depth_rule_runs_as_it_stands() -> None:
    lines = output_of("own_depth_rule.py").splitlines()
    assert [line.split(")")[0] for line in lines] == ["TwoTier(deep=1, shallow=1", "TwoTier(deep=2, shallow=1"]
    for line in lines:
        status, objective, bound = line.split()[-3:]
        assert int(bound) <= int(objective) and (status == "optimal") == (bound == objective)


def test_the_example_of_a_policy_runs_as_it_stands() -> None:
    means = dict(re.findall(r"(\w+): mean completion ([\d.]+) h", output_of("own_policy.py")))
    assert 0 < float(means["smallest"]) < float(means["fifo"])


def test_the_example_of_a_replay_is_solved_and_its_models_can_be_built() -> None:
    pytest.importorskip("torch", reason="torch is not installed (extra torch)")
    from jigsaw_opt.executor.models.building import build

    instance = load_instance(EXAMPLES / "two-cores.json")
    result = solve(instance, "auto", Options(work_limit=5.0, threads=1))
    assert result.plan is not None
    assert not check(instance, result.plan)
    for name, model in instance.models.items():
        assert build(name, model).model.depth == len(model.segments)


@pytest.mark.slow
def test_the_move_of_ones_own_takes_part() -> None:
    status, *moves = output_of("own_move.py").splitlines()
    assert status.split()[0] in ("feasible", "optimal")
    assert any(line.startswith("exchange_priorities: ") for line in moves)


def test_the_bound_of_ones_own_is_registered_and_raises_the_bound() -> None:
    without, own = output_of("own_bound.py").splitlines()
    assert int(without.split()[0]) == lower_bound(compile_instance(generate("server", 21))).value
    assert int(own.split()[0]) > int(without.split()[0])
    assert own.split()[2] == "last_job:"


def test_the_argument_of_the_bound_of_ones_own_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    own, instance = importlib.import_module("own_bound").LAST_JOB, generate("server", 21)
    first, second = own.bounds(BoundContext(compile_instance(instance)), 0, BoundBudget())
    proof = proof_of(instance, first)
    assert proof is not None and check_proof(instance, proof) is None
    assert second.value > first.value and second.proof.argument is None


@pytest.mark.slow
def test_the_bound_of_ones_own_never_exceeds_an_optimum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    own = importlib.import_module("own_bound").LAST_JOB
    compared = 0
    for seed in range(16):
        instance = random_instance(seed, "finite", "weighted_completion", 6)
        best = optimum(instance)
        if best is not None:
            *_, bound = own.bounds(BoundContext(compile_instance(instance)), 0, BoundBudget())
            assert bound.value <= best
            compared += 1
    assert compared >= 8


@pytest.mark.slow
def test_the_example_of_a_pipeline_fills_its_bubbles(tmp_path: Path) -> None:
    *stages, gpipe, one, together, _ = output_of("pipeline.py", str(tmp_path / "timeline.html")).splitlines()
    assert len(stages) == 3
    assert (gpipe.split(":")[0], one.split(":")[0]) == ("gpipe", "1f1b")
    objective, bound = map(int, re.findall(r"(\d+) us", together))
    # The pipeline alone takes as long as GPipe, but for latencies of the fabric; two more jobs cost little beside it.
    alone = int(re.findall(r"(\d+) us", gpipe)[0])
    assert alone <= bound <= objective <= 1.1 * alone
    assert "<html" in (tmp_path / "timeline.html").read_text()


@pytest.mark.parametrize(
    ("name", "without"), [("licences", {"licences": {"solver": 2, "data": 3}}), ("power-cap", {"power_caps": None})]
)
def test_the_examples_of_capacities_are_solved_and_take_twice_as_long_for_them(
    name: str, without: dict[str, Any]
) -> None:
    """Jobs a and b follow one another for their licence, 600 each; of both V100 only one may run at once."""
    instance = load_instance(EXAMPLES / f"{name}.json")
    found = solve(instance, threads=1)
    assert found.status == "optimal" and found.objective == optimum(instance) == 1200
    assert found.plan is not None and check(instance, found.plan) == ()
    assert optimum(replace(instance, cluster=replace(instance.cluster, **without))) == 600

"""The contract of relaxations: proofs that can be checked, relaxations that can be left out, and others' own."""

from __future__ import annotations

import ast
import json
import math
import operator
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from fractions import Fraction
from pathlib import Path
from random import Random

import pytest

from jigsaw_opt.cli import main
from jigsaw_opt.instances import catalogue
from jigsaw_opt.instances.families import generate
from jigsaw_opt.problem import Instance, compile_instance
from jigsaw_opt.solvers.bounds import Bound, BoundBudget, lower_bound, names, registry, stronger_bounds
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.solve import solve
from tests.oracle import optimum
from tests.random_instances import random_instance, with_licences, with_power_caps
from tests.random_task_graphs import random_mixed_instance, random_task_graph_instance
from tests.refusals import carries, misuse

OBJECTIVES = (("finite", "makespan"), ("finite", "weighted_completion"), ("cyclic", "period"))
OPERATORS: dict[type[ast.AST], Callable[..., Fraction | bool]] = {
    ast.Add: operator.add,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Eq: operator.eq,
    ast.LtE: operator.le,
}
FUNCTIONS: dict[str, Callable[..., int | Fraction]] = {"ceil": math.ceil, "min": lambda *values: min(values)}


def value_of(node: ast.AST) -> Fraction:
    """A calculation in integers, exactly."""
    if isinstance(node, ast.Constant):
        return Fraction(node.value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -value_of(node.operand)
    if isinstance(node, ast.BinOp):
        return Fraction(OPERATORS[type(node.op)](value_of(node.left), value_of(node.right)))
    assert isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    return Fraction(FUNCTIONS[node.func.id](*map(value_of, node.args)))


def holds(arithmetic: str, value: int) -> bool:
    """Whether a calculation gives the value, or an inequality is false as it should be."""
    comparison = ast.parse(arithmetic.replace(" = ", " == "), mode="eval").body
    assert isinstance(comparison, ast.Compare)
    left, right = value_of(comparison.left), value_of(comparison.comparators[0])
    if isinstance(comparison.ops[0], ast.LtE):
        return left > right
    return left == right == value


def all_bounds(instance: Instance, without: tuple[str, ...] = ()) -> Iterator[Bound]:
    operations = compile_instance(instance)
    yield lower_bound(operations, without)
    yield from stronger_bounds(operations, -1, 1.0, without=without)


def alone(name: str) -> tuple[str, ...]:
    return tuple(other for other in names() if other != name)


SPREAD = [
    *(random_instance(seed, *both, 6) for seed in range(3) for both in OBJECTIVES),  # type: ignore[arg-type]
    *(catalogue.load(name) for name in catalogue.names("tiny")[:30:5]),
    *(generate("server", seed, objective=objective) for _, objective in OBJECTIVES for seed in (5, 44)),
    generate("rack", 15),
    catalogue.load("rack/link-bound"),
]
SHAPED = [
    replace(instance, jobs=instance.task_graph_jobs)
    for instance in (random_task_graph_instance(seed, *both) for seed in range(2) for both in OBJECTIVES)  # type: ignore[arg-type]
]
CAPPED = [
    with_power_caps(instance, Random(k))
    for k, instance in enumerate(
        draw(seed, *both)  # type: ignore[operator]
        for draw in (random_instance, random_task_graph_instance, random_mixed_instance)
        for seed in range(8)
        for both in OBJECTIVES[::2]
    )
]
LICENSED = [with_licences(random_instance(seed, *both, 6), Random(seed)) for seed in range(8) for both in OBJECTIVES]  # type: ignore[arg-type]
MIXED = [random_mixed_instance(seed, *both) for seed in range(4) for both in OBJECTIVES]  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("name", names())
def test_the_arithmetic_of_a_proof_gives_its_value(name: str) -> None:
    told = 0
    for instance in (
        *SPREAD,
        *SHAPED,
        *MIXED,
        *(CAPPED if "power" in name else LICENSED if name == "held_units" else ()),
    ):
        for bound in all_bounds(instance, alone(name)):
            if bound.proof.relaxation == name:
                told += 1
                assert bound.reason
                if bound.proof.arithmetic:
                    assert holds(bound.proof.arithmetic, bound.value), (instance.name, bound)
                assert bool(bound.proof.arithmetic) == (name != "placement_loads")
    assert told >= 3


@pytest.mark.slow
def test_a_proof_names_jobs_servers_and_links_of_the_instance_and_goes_to_json() -> None:
    for instance in SPREAD[::3]:
        jobs, links = {job.name for job in instance.jobs}, {link.name for link in instance.cluster.links}
        for bound in all_bounds(instance):
            proof = bound.proof
            assert jobs >= {*proof.jobs, *(name for term in proof.terms for name in term.jobs)}
            assert links >= set(proof.links)
            assert {server.name for server in instance.cluster.servers} >= set(proof.servers)
            assert json.loads(json.dumps(asdict(proof)))["relaxation"] in names()


@pytest.mark.parametrize("name", names())
def test_a_relaxation_alone_never_exceeds_the_optimum(name: str) -> None:
    for seed in range(8):
        for horizon, objective in OBJECTIVES:
            instance = random_instance(seed, horizon, objective, 6)  # type: ignore[arg-type]
            best = optimum(instance)
            if best is not None:
                assert all(bound.value <= best for bound in all_bounds(instance, alone(name)))


@pytest.mark.slow
@pytest.mark.parametrize("name", names())
def test_a_relaxation_that_is_left_out_proves_nothing(name: str) -> None:
    for instance in SPREAD[names().index(name) :: len(names())]:
        assert all(bound.proof.relaxation != name for bound in all_bounds(instance, (name,)))


def test_without_any_relaxation_nothing_is_below_nothing() -> None:
    assert [bound.value for bound in all_bounds(SPREAD[0], names())] == [0]


def test_the_name_of_no_relaxation_is_a_usage_error() -> None:
    with misuse("unknown-name without_bounds", naming=["'critical_path'"]):
        solve(SPREAD[0], "greedy", Options(without_bounds=("critical_paths",)))


def test_the_result_carries_the_proof_of_its_bound() -> None:
    instance = generate("server", 1, objective="makespan")
    result = solve(instance, "greedy", Options(threads=1))
    assert result.proof == lower_bound(compile_instance(instance)).proof
    assert result.bound_reason == result.proof.sentence
    less = solve(instance, "greedy", Options(threads=1, without_bounds=(result.proof.relaxation,)))
    assert less.bound < result.bound
    assert less.proof.relaxation != result.proof.relaxation


def test_the_command_line_leaves_relaxations_out(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["solve", "tiny/000", "--solver", "greedy", "--json", "-q", "--without-bound"]
    without = [argument for name in names() for argument in ("--without-bound", name)]
    assert main([*command, *without[1:]]) == 0
    assert json.loads(capsys.readouterr().out)["bound"] == 0
    assert main([*command, "critical_paths"]) == 2
    assert carries(capsys.readouterr().err, "mean", "'critical_path'")


OWN = """
from jigsaw_opt.solvers.bounds import Bound, Proof, Relaxation

def bounds(context, known, budget):
    yield Bound(known + 1, Proof("it is so"))

RELAXATION = Relaxation("{name}", bounds, frozenset({{"makespan"}}))
"""


def test_a_bound_of_others_is_found_by_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bound_of_others.py").write_text(OWN.format(name="of_others"))
    installed = tmp_path / "bound_of_others-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Name: bound-of-others\nVersion: 1\n")
    (installed / "entry_points.txt").write_text("[jigsaw_opt.bounds]\nof_others = bound_of_others:RELAXATION\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    registry._everything.cache_clear()
    try:
        operations = compile_instance(SPREAD[0])
        known = lower_bound(operations).value
        *_, last = stronger_bounds(operations, known)
        assert names()[-1] == last.proof.relaxation == "of_others"
        assert last.value > known
        assert not list(stronger_bounds(compile_instance(SPREAD[1]), 10**9)), "it bounds makespans only"
    finally:
        registry._everything.cache_clear()


def test_a_budget_that_is_spent_ends_a_relaxation() -> None:
    budget = BoundBudget(1.0)
    budget.charge(1.0)
    assert budget.spent and not budget.stopped
    assert BoundBudget(stop=lambda: True).stopped

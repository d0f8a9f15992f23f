"""The mixed-integer program alone, as an engine reads it from a file: proven optima against brute force."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Literal

import pytest

from jigsaw_opt.checking import check
from jigsaw_opt.documents import instance_sha256
from jigsaw_opt.formulations.algebra import AlgebraicModel
from jigsaw_opt.formulations.ilp_timetable import (
    IlpTimetable,
    build,
    objective_step,
    serial_limit,
    windows,
)
from jigsaw_opt.formulations.scaled_program import ScaledProgram
from jigsaw_opt.problem import (
    Cluster,
    FullDepth,
    Instance,
    Job,
    Link,
    Plan,
    Segment,
    Server,
    StaircaseDepth,
    compile_instance,
)
from jigsaw_opt.problem import Model as Network
from jigsaw_opt.problem.compiled.timetable import objective_of
from tests.oracle import optimum
from tests.random_instances import random_instance

highspy = pytest.importorskip("highspy")
pytest.importorskip("pulp")
GIGA = 10**9
NAMED = tuple(
    random_instance(seed, "finite", objective, operations=7)
    for seed in (0, 1, 2, 5, 6, 10, 38)
    for objective in ("makespan", "weighted_completion")
)
Optimum = Callable[[Instance], int | None]


def model_of(instance: Instance) -> IlpTimetable:
    operations = compile_instance(instance)
    limit = serial_limit(operations)
    return build(operations, windows(operations, limit), 0, limit)


def solved_file(path: Path) -> highspy.Highs:
    engine = highspy.Highs()
    engine.setOptionValue("output_flag", False)
    engine.setOptionValue("threads", 1)
    engine.setOptionValue("mip_rel_gap", 0.0)
    engine.setOptionValue("mip_feasibility_tolerance", 1e-9)
    assert engine.readModel(str(path)) == highspy.HighsStatus.kOk
    engine.run()
    return engine


def optimum_in_file(instance: Instance, path: Path) -> int | None:
    """Objective of the plan in the engine's solution, which must be correct and no worse than the engine says."""
    model = model_of(instance)
    path.write_bytes(model.program.document("mps" if path.suffix == ".mps" else "lp"))
    engine = solved_file(path)
    if engine.getModelStatus() == highspy.HighsModelStatus.kInfeasible:
        return None
    assert engine.getModelStatus() == highspy.HighsModelStatus.kOptimal
    solution = dict(zip(engine.allVariableNames(), engine.getSolution().col_value, strict=True))
    values = ScaledProgram(model.program.program()).unscaled([solution[name] for name in model.program.columns])
    timetable = model.plan(lambda variable: values[model.program.column(variable)])
    objective = objective_of(compile_instance(instance), timetable.jobs)
    assert objective == round(engine.getObjectiveValue())
    digest = instance_sha256(instance)
    plan = Plan.of_jobs(instance.name, digest, "optimal", objective, objective, None, timetable.jobs, {"name": "test"})
    assert [v for v in check(instance, plan) if v.path.startswith("$.jobs")] == []
    return objective


@pytest.fixture(params=["mps", "lp"])
def proven(request: pytest.FixtureRequest, tmp_path: Path) -> Optimum:
    """The optimum of an instance by way of a file in each format."""
    return lambda instance: optimum_in_file(instance, tmp_path / f"program.{request.param}")


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["makespan", "weighted_completion"])
def test_optimum_is_that_of_brute_force(objective: Literal["makespan", "weighted_completion"], proven: Optimum) -> None:
    for seed in range(40):
        instance = random_instance(seed, "finite", objective, operations=7)
        assert proven(instance) == optimum(instance), instance.name


def test_example_of_the_specification(pair: Instance, pair_plan: Plan, proven: Optimum) -> None:
    assert proven(pair) == pair_plan.objective == 1800
    assert proven(replace(pair, jobs=tuple(replace(job, depth=FullDepth()) for job in pair.jobs))) == 2400


def one_segment(forward: int, backward: int, payload: int = 0) -> Network:
    return Network((Segment("all", {"v": forward}, {"v": backward}, payload, 1),))


def test_smith_rule_on_one_gpu(proven: Optimum) -> None:
    times, weights = (7, 3, 5, 2), (2, 3, 1, 4)
    models = {f"m{k}": one_segment(1, time - 1) for k, time in enumerate(times)}
    jobs = tuple(Job(f"j{k}", f"m{k}", 1, 1, weight=weight) for k, weight in enumerate(weights))
    cluster = Cluster((Server("s", "v", 1, 1000, 1),))
    smith = sorted(zip(times, weights, strict=True), key=lambda each: each[0] / each[1])
    ends = [sum(time for time, _ in smith[: k + 1]) for k in range(len(smith))]
    expected = sum(end * weight for end, (_, weight) in zip(ends, smith, strict=True))
    assert proven(Instance("smith", cluster, models, jobs, "finite", "weighted_completion")) == expected


def flow_shop(times: tuple[tuple[int, int], ...]) -> Instance:
    """Two-worker jobs on two servers of one GPU: both GPUs at once, then the link (specification: known-answers)."""
    models = {f"m{k}": one_segment(1, first - 1, second) for k, (first, second) in enumerate(times)}
    jobs = tuple(Job(f"j{k}", f"m{k}", 2, 1) for k in range(len(times)))
    servers = tuple(Server(name, "v", 1, GIGA, 1) for name in ("a", "b"))
    return Instance("johnson", Cluster(servers, (), (Link("l", ("a", "b"), 10**6),)), models, jobs)


def test_johnson_rule_on_a_flow_shop(proven: Optimum) -> None:
    times = ((3, 6), (5, 2), (1, 2), (6, 6), (4, 0))
    best = 10**9
    for order in permutations(times):
        gpus = link = 0
        for first, second in order:
            gpus += first
            link = max(gpus, link) + second if second else link
        best = min(best, max(gpus, link))
    assert proven(flow_shop(times)) == best


def test_memory_counts_every_byte(proven: Optimum) -> None:
    """Two-worker jobs leave the GPUs to each other during their transfers, if memory holds both at once."""
    parameters, activations = 123_456_789_012_345, 98_765_432_109_877
    network = Network((Segment("all", {"v": 2}, {"v": 3}, parameters, activations),), state_factor=1)
    jobs = (Job("a", "net", 2, 1), Job("b", "net", 2, 1))
    link = Link("l", ("s0", "s1"), 50 * parameters)
    for memory, expected in (
        (2 * parameters + activations, 40_005),
        (2 * parameters + activations - 1, 40_010),
        (parameters + activations, 40_010),
        (parameters + activations - 1, None),
    ):
        servers = tuple(Server(f"s{k}", "v", 1, memory, link.bandwidth) for k in range(2))
        assert proven(Instance("tight", Cluster(servers, links=(link,)), {"net": network}, jobs)) == expected


@pytest.mark.slow
def test_alike_jobs_and_gpus_keep_an_optimum(proven: Optimum) -> None:
    network = Network(
        tuple(Segment(f"g{k}", {"v": 1}, {"v": 2 + k}, 10**6, 1) for k in range(2)),
    )
    jobs = tuple(Job(f"j{k}", "net", 2, 1, depth=StaircaseDepth()) for k in range(3))
    instance = Instance("alike", Cluster((Server("s", "v", 2, GIGA, 10**6),)), {"net": network}, jobs)
    assert proven(instance) == optimum(instance)


def test_no_transfer_is_read_back_before_its_blocks() -> None:
    instance = flow_shop(((1, 1),))
    instance = replace(instance, jobs=(replace(instance.jobs[0], release_us=5),))
    columns = {
        "here_0_0": 1.0,
        "here_0_1": 1.0,
        "start_0_0_0": 5 + 1e-9,
        "start_0_0_1": 5 + 1e-9,
        "exchange_0_0_1": 5.0,
    }
    model = model_of(instance)
    assert set(columns) <= set(model.program.columns)
    (job,) = model.plan(lambda variable: columns.get(variable.name, variable.lowBound)).jobs
    assert [(block.start_us, block.end_us) for block in job.iterations[0].blocks] == [(5, 6), (5, 6)]
    assert [(transfer.start_us, transfer.end_us) for transfer in job.iterations[0].transfers] == [(6, 7)]


def test_objectives_lie_on_the_grid() -> None:
    instance = flow_shop(((30, 60), (50, 20)))
    assert objective_step(compile_instance(instance)) == 10
    weighted = replace(
        instance, objective="weighted_completion", jobs=tuple(replace(job, weight=6) for job in instance.jobs)
    )
    assert objective_step(compile_instance(weighted)) == 60


def test_a_false_constraint_makes_the_program_infeasible(tmp_path: Path) -> None:
    program = AlgebraicModel("test")
    program.minimize(program.time("objective", 0, 5))
    program.add(2 >= 1, "true")
    program.time("empty", 3, 2)
    for kind in ("mps", "lp"):
        path = tmp_path / f"program.{kind}"
        path.write_bytes(program.document(kind))
        assert solved_file(path).getModelStatus() == highspy.HighsModelStatus.kInfeasible


@pytest.mark.parametrize("kind", ["mps", "lp"])
def test_the_names_of_rows_and_columns_come_through_a_file(kind: Literal["mps", "lp"], tmp_path: Path) -> None:
    for instance in NAMED:
        program, path = model_of(instance).program, tmp_path / f"program.{kind}"
        path.write_bytes(program.document(kind))
        engine = highspy.Highs()
        engine.setOptionValue("output_flag", False)
        assert engine.readModel(str(path)) == highspy.HighsStatus.kOk
        assert sorted(engine.allVariableNames()) == sorted(program.columns)
        assert sorted(engine.getRowName(row)[1] for row in range(engine.getNumRow())) == sorted(program.rows)


def test_the_page_has_the_names_of_all_rows_and_columns() -> None:
    page = (Path(__file__).parents[2] / "docs" / "models.md").read_text()
    late = replace(NAMED[0], jobs=tuple(replace(job, deadline_us=50) for job in NAMED[0].jobs))
    assert any(compile_instance(instance).has_scarce_memory for instance in NAMED)
    programs = [model_of(instance).program for instance in (*NAMED, late)]
    families = {_family(name) for program in programs for name in (*program.columns, *program.rows)}
    assert len(families) > 30
    assert {family for family in families if f"`{family}" not in page} == set()


def _family(name: str) -> str:
    """A name up to its first index; what a row says of a column of order or of an order encoding is all one."""
    return re.sub(r"_[0-9].*", "", re.sub(r"^(all_both|both|monotone|steps|first|before|after|only)_.*", r"\1_", name))

"""Programs, also as an engine reads them from a file: proven optima, sizes, the very numbers and names."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from math import inf, nextafter
from pathlib import Path
from random import Random

import pytest

from jigsaw_opt.checking import check
from jigsaw_opt.documents import instance_sha256
from jigsaw_opt.formulations.algebra import AlgebraicModel, ProgramTooLargeError
from jigsaw_opt.formulations.ilp_timetable import IlpTimetable, build, fewest_coefficients
from jigsaw_opt.formulations.ilp_timetable.variables import objective_step
from jigsaw_opt.formulations.linear import ProgramBuilder
from jigsaw_opt.formulations.program_files import FileKind
from jigsaw_opt.formulations.scaled_program import ScaledProgram
from jigsaw_opt.formulations.timetable.windows import serial_limit, windows
from jigsaw_opt.problem import Cluster, Instance, Job, Link, Plan, Segment, Server, compile_instance
from jigsaw_opt.problem import Model as Network
from jigsaw_opt.problem.compiled.timetable import objective_of
from jigsaw_opt.problem.instance import Objective
from tests.oracle import optimum
from tests.random_instances import random_instance, with_progress_limits

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
def test_optimum_is_that_of_brute_force(objective: Objective, tmp_path: Path) -> None:
    for seed in range(10, 40):
        instance = random_instance(seed, "finite", objective, operations=7)
        path = tmp_path / f"program.{('mps', 'lp')[seed % 2]}"
        assert optimum_in_file(instance, path) == optimum(instance), instance.name


def one_segment(forward: int, backward: int, payload: int = 0) -> Network:
    return Network((Segment("all", {"v": forward}, {"v": backward}, payload, 1),))


def flow_shop(times: tuple[tuple[int, int], ...]) -> Instance:
    """Two-worker jobs on two servers of one GPU: both GPUs at once, then the link (specification: known-answers)."""
    models = {f"m{k}": one_segment(1, first - 1, second) for k, (first, second) in enumerate(times)}
    jobs = tuple(Job(f"j{k}", f"m{k}", 2, 1) for k in range(len(times)))
    servers = tuple(Server(name, "v", 1, GIGA, 1) for name in ("a", "b"))
    return Instance("johnson", Cluster(servers, (), (Link("l", ("a", "b"), 10**6),)), models, jobs)


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


def test_the_page_has_the_names_of_all_rows_and_columns() -> None:
    page = (Path(__file__).parents[2] / "docs" / "models.md").read_text()
    late = replace(NAMED[0], jobs=tuple(replace(job, deadline_us=50) for job in NAMED[0].jobs))
    assert any(compile_instance(instance).has_scarce_holdings for instance in NAMED)
    limited = [with_progress_limits(instance, Random(seed)) for seed, instance in enumerate(NAMED)]
    programs = [model_of(instance).program for instance in (*NAMED, late, *limited)]
    families = {_family(name) for program in programs for name in (*program.columns, *program.rows)}
    assert len(families) > 30 and "contributing" in families
    assert {family for family in families if f"`{family}" not in page} == set()


def _family(name: str) -> str:
    """A name up to its first index; what a row says of a column of order or of an order encoding is all one."""
    return re.sub(r"_[0-9].*", "", re.sub(r"^(all_both|both|monotone|steps|first|before|after|only)_.*", r"\1_", name))


def test_bounds_of_another_length_are_refused() -> None:
    with pytest.raises(ValueError, match="broadcast"):
        ProgramBuilder().add_columns([1.0, 2.0], upper=[1.0, 2.0, 3.0])


def awkward() -> AlgebraicModel:
    """A program of numbers with many digits, rows of every kind, and a column that stands in no row."""
    model = AlgebraicModel("awkward")
    total = model.time("makespan", 123_456_789_012_345, 987_654_321_098_765)
    ends = [model.time(f"end_{k}", 10**14 // 7 + k, 10**15 // 3 + k) for k in range(20)]
    choices = [model.binary(f"choice_{k}") for k in range(3)]
    model.integer("carry", 0, 100_001)
    model.time("alone", 5, 7)
    model.minimize(total)
    for k, end in enumerate(ends):
        model.add(total >= end + (10**14 // 11) * choices[k % 3], f"end_{k}")
    model.add(model.total(ends) <= 10**15 - 1, "all")
    model.add(model.total(choices) == 1, "one")
    return model


@pytest.mark.parametrize("kind", ["mps", "lp"])
def test_an_engine_reads_the_very_numbers(kind: FileKind, tmp_path: Path) -> None:
    model, path = awkward(), tmp_path / f"program.{kind}"
    scaled = ScaledProgram(model.program())
    path.write_bytes(model.document(kind))
    engine = highspy.Highs()
    engine.setOptionValue("output_flag", False)
    assert engine.readModel(str(path)) == highspy.HighsStatus.kOk
    read, program = engine.getLp(), scaled.program
    order = [read.col_names_.index(name) for name in model.columns]
    rows = [read.row_names_.index(name) for name in model.rows]
    assert len(order) == read.num_col_ and len(rows) == read.num_row_
    assert [read.col_lower_[k] for k in order] == program.lower.tolist()
    assert [read.col_upper_[k] for k in order] == program.upper.tolist()
    assert [read.col_cost_[k] for k in order] == (program.costs * scaled.objective).tolist()
    assert [read.row_lower_[k] for k in rows] == program.row_lower.tolist()
    assert [read.row_upper_[k] for k in rows] == program.row_upper.tolist()
    entries = zip(program.rows.tolist(), program.columns.tolist(), program.values.tolist(), strict=True)
    matrix = read.a_matrix_
    found = {}
    for column in range(read.num_col_):
        for k in range(matrix.start_[column], matrix.start_[column + 1]):
            found[matrix.index_[k], column] = matrix.value_[k]
    assert found == {(rows[row], order[column]): value for row, column, value in entries}


def test_scaling_loses_nothing_and_lets_no_time_grow() -> None:
    program = awkward().program()
    scaled = ScaledProgram(program)
    times = ~program.integer
    assert scaled.program.upper[times].max() <= 10**7
    assert scaled.unscaled(scaled.program.upper) == program.upper.tolist()
    assert (scaled.program.costs * scaled.objective / program.costs.max() * scaled.program.upper).max() == (
        program.upper[0]
    )


def test_bounds_beyond_floats_are_rounded_outward() -> None:
    model = AlgebraicModel("large")
    low, high = 2**60 + 1, 2**60 + 2**8 + 1
    model.minimize(model.time("makespan", low, high))
    program = model.program()
    assert program.lower[0] == 2.0**60 and nextafter(program.lower[0], inf) > low
    assert Fraction(program.upper[0]) >= high and nextafter(program.upper[0], -inf) < high


@pytest.mark.parametrize("kind", ["mps", "lp"])
def test_lines_are_short_and_plain(kind: FileKind) -> None:
    text = awkward().document(kind).decode("ascii")
    assert max(map(len, text.splitlines())) < 255
    assert "units of" in text.splitlines()[0]


@pytest.mark.parametrize("objective", ["makespan", "weighted_completion"])
def test_no_program_has_fewer_coefficients_than_are_known_before(objective: str) -> None:
    known = 0
    for seed in range(24):
        operations = compile_instance(random_instance(seed, "finite", objective, operations=8 + seed % 13))
        least, limit = fewest_coefficients(operations), serial_limit(operations)
        program = build(operations, windows(operations, limit), 0, limit).program.program()
        assert least <= len(program.values)
        known += least > 0
        with pytest.raises(ProgramTooLargeError):
            build(operations, windows(operations, limit), 0, limit, most_coefficients=len(program.values) - 1)
        build(operations, windows(operations, limit), 0, limit, most_coefficients=len(program.values))
    assert known > 8

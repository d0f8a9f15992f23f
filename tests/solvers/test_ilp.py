"""`ilp` and the adapter of HiGHS: optima, limits and honest statuses, and what leaves the exact model out."""

from __future__ import annotations

import signal
import threading
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest

import jigsaw_opt
from jigsaw_opt.checking import check
from jigsaw_opt.documents import load_instance
from jigsaw_opt.errors import EngineDiedError, OutOfTimeError, UsageError
from jigsaw_opt.formulations.linear import Entries, LinearProgram, ProgramBuilder
from jigsaw_opt.instances.catalogue import load
from jigsaw_opt.instances.families import generate
from jigsaw_opt.problem import Cluster, Instance, Job, Link, Model, Segment, Server, compile_instance
from jigsaw_opt.problem.clock import Clock, limited
from jigsaw_opt.solvers.engines.highs import Ending, HighsEngine, HighsSearch, solve_program
from jigsaw_opt.solvers.greedy import GREEDY
from jigsaw_opt.solvers.ilp import ILP, model_document
from jigsaw_opt.solvers.ilp import solver as ilp
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.result import Event, Result, Status, StoppedBy
from jigsaw_opt.solvers.solve import solve
from tests.extreme_instances import extreme_instance
from tests.oracle import optimum
from tests.random_instances import random_instance
from tests.refusals import misuse

pytest.importorskip("highspy")
pytest.importorskip("pulp")


def run(instance: Instance, work: float | None = None, workers: int = 1) -> Result:
    result = solve(instance, ILP, Options(work_limit=work, threads=workers))
    assert result.plan is None or check(instance, result.plan) == ()
    return result


@pytest.fixture
def no_warm_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the whole search to the engine."""

    monkeypatch.setattr(ilp, "offer_greedy", lambda solve_state, operations, seed: False)


def test_example_of_the_specification(pair: Instance, no_warm_start: None) -> None:
    result = run(pair)
    assert (result.status, result.objective, result.bound) == (Status.OPTIMAL, 1800, 1800)
    assert set(result.versions) == {"pulp", "highspy"}


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["makespan", "weighted_completion"])
def test_without_the_heuristic_the_engine_proves_the_optimum(no_warm_start: None, objective: str) -> None:
    for seed in range(100, 112):
        instance = random_instance(seed, "finite", objective, operations=8)
        best, result = optimum(instance), run(instance)
        assert result.objective == best, instance.name
        assert result.status is (Status.INFEASIBLE if best is None else Status.OPTIMAL)
        assert bool(result.conflicts) == (best is None)


def test_a_solution_of_the_presolve_is_not_lost(no_warm_start: None) -> None:
    instance = random_instance(130, "finite", "makespan", operations=9)
    assert run(instance).objective == optimum(instance) == 15


def slower(instance: Instance, factor: int) -> Instance:
    """The same problem with all durations multiplied; so is the optimum."""
    cluster = instance.cluster
    servers = tuple(replace(s, fabric_latency_us=s.fabric_latency_us * factor) for s in cluster.servers)
    links = tuple(replace(link, latency_us=link.latency_us * factor) for link in cluster.links)
    models = {
        name: replace(
            model,
            segments=tuple(
                replace(
                    segment,
                    forward_us={t: time * factor for t, time in segment.forward_us.items()},
                    backward_us={t: time * factor for t, time in segment.backward_us.items()},
                    parameter_bytes=0,
                )
                for segment in model.segments
            ),
        )
        for name, model in instance.models.items()
    }
    jobs = tuple(replace(job, release_us=job.release_us * factor) for job in instance.jobs)
    return replace(instance, cluster=replace(cluster, servers=servers, links=links), models=models, jobs=jobs)


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["makespan", "weighted_completion"])
def test_long_times_keep_their_last_microsecond(no_warm_start: None, objective: str) -> None:
    for seed in range(200, 212):
        instance = slower(random_instance(seed, "finite", objective, operations=7), 1)
        best = optimum(instance)
        result = run(slower(instance, 1_000_003))
        assert result.objective == (None if best is None else best * 1_000_003), instance.name
        assert result.status is not Status.FEASIBLE


def test_beyond_the_precision_of_the_engine_the_status_stays_honest(no_warm_start: None) -> None:
    for seed in range(300, 315):
        instance = slower(random_instance(seed, "finite", "makespan", operations=7), 10**13 + 37)
        first, *rest = instance.jobs
        # A microsecond more leaves no divisor to scale by.
        instance = replace(instance, jobs=(replace(first, release_us=first.release_us + 1), *rest))
        best, result = optimum(instance), run(instance)
        if best is None:
            assert result.status is Status.INFEASIBLE
            continue
        assert result.objective is not None
        assert result.bound <= best <= result.objective <= best * (1 + 1e-7)
        assert (result.status is Status.OPTIMAL) == (result.bound == result.objective)


def test_a_plan_that_fills_its_windows_is_not_lost(no_warm_start: None) -> None:
    instance = extreme_instance(3709)
    known = solve(instance, GREEDY, Options()).objective
    assert known is not None
    for seed in (2, 3):
        result = solve(instance, ILP, Options(seed=seed, threads=1))
        assert result.bound <= known == result.objective


@pytest.mark.parametrize("seed", [374, 8722])
def test_weights_beyond_the_precision_of_the_engine_raise_no_bound(no_warm_start: None, seed: int) -> None:
    instance = extreme_instance(seed)
    known = solve(instance, GREEDY, Options())
    result = solve(instance, ILP, Options(seed=seed, threads=1, work_limit=1000))
    assert known.objective is not None
    assert known.bound <= result.bound <= known.objective


def uneven() -> Instance:
    """Five jobs of long times without a common divisor on two GPUs."""
    times = (9_999_991, 8_765_431, 7_654_319, 5_432_111, 3_210_001)
    models = {f"m{k}": Model((Segment("all", {"v": 1}, {"v": time - 1}, 0, 0),)) for k, time in enumerate(times)}
    jobs = tuple(Job(f"j{k}", f"m{k}", 1, 1) for k in range(len(times)))
    return Instance("uneven", Cluster((Server("s", "v", 2, 1, 1),)), models, jobs)


def test_long_times_without_a_common_divisor(no_warm_start: None) -> None:
    result = run(uneven())
    assert (result.status, result.objective) == (Status.OPTIMAL, optimum(uneven()))


def test_a_transfer_without_duration_overlaps_nothing(no_warm_start: None) -> None:
    servers = (Server("s0", "v", 1, 1000, 1), Server("s1", "v", 1, 1000, 1), Server("s2", "w", 2, 1000, 1))
    links = (Link("near", ("s0", "s1"), 1_000_000), Link("far", ("s1", "s2"), 1_000_000, 5))
    models = {
        "empty": Model((Segment("all", {"v": 2, "w": 3}, {"v": 0, "w": 0}, 0, 0),)),
        "long": Model((Segment("all", {"v": 2}, {"v": 0}, 100, 0),)),
    }
    # Job a's transfer lasts only over the far link; over the near one b's long transfer is no obstacle to it.
    jobs = (Job("a", "empty", 2, 1, release_us=2), Job("b", "long", 2, 1))
    instance = Instance("empty", Cluster(servers, (), links), models, jobs, objective="weighted_completion")
    assert run(instance).objective == optimum(instance) == 106


@pytest.mark.slow
def test_a_work_limit_is_deterministic_and_honest(no_warm_start: None) -> None:
    instance = generate("tiny", 3)
    first, second = run(instance, work=1), run(instance, work=1)
    assert first.status is not Status.OPTIMAL
    assert first.stopped_by is StoppedBy.TIME
    assert (first.objective, first.bound) == (second.objective, second.bound)
    assert (first.plan and first.plan.jobs) == (second.plan and second.plan.jobs)


def test_the_number_of_threads_may_change_within_a_process(pair: Instance, no_warm_start: None) -> None:
    assert [run(pair, workers=workers).objective for workers in (1, 2, 1)] == [1800] * 3


def test_an_interrupt_keeps_the_incumbent_and_the_bound() -> None:
    instance, events = load("server/demo"), []

    def interrupt_after_the_first_plan(event: Event) -> None:
        events.append(event)
        if event.objective is not None:
            signal.raise_signal(signal.SIGINT)

    result = solve(instance, ILP, Options(threads=1), on_event=interrupt_after_the_first_plan)
    assert (result.status, result.stopped_by) == (Status.FEASIBLE, StoppedBy.INTERRUPT)
    assert result.objective == next(event.objective for event in events if event.objective is not None)
    assert result.plan is not None
    assert result.objective > result.bound > 0


def test_a_cancelled_engine_stops() -> None:
    operations = compile_instance(generate("tiny", 3))
    limit = ilp.serial_limit(operations)
    model = ilp.build(operations, ilp.windows(operations, limit), 0, limit)
    bounds: list[float] = []
    engine = HighsSearch(model.program, 1.0, lambda values: None, bounds.append, None, None, 0, 1)
    engine.cancel()
    assert engine.run() is Ending.STOPPED
    assert all(bound <= limit for bound in bounds)


def test_an_engine_cancelled_while_it_runs_stops() -> None:
    operations = compile_instance(load("server/demo"))
    limit = ilp.serial_limit(operations)
    model = ilp.build(operations, ilp.windows(operations, limit), 0, limit)
    bounds: list[float] = []
    engine = HighsSearch(model.program, 1.0, lambda values: engine.cancel(), bounds.append, None, None, 0, 1)
    assert engine.run() is Ending.STOPPED
    assert bounds[-1] < limit


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (MemoryError("std::bad_alloc"), "out of memory"),
        (EngineDiedError("HiGHS", -9), "HiGHS died: it was ended by SIGKILL"),
    ],
)
def test_a_known_plan_outlives_the_engine(error: Exception, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def dying(search: HighsSearch) -> Ending:
        raise error

    monkeypatch.setattr(HighsSearch, "run", dying)
    options = Options(threads=1, time_limit=1000)
    result = solve(load("server/demo"), ILP, options)
    assert (result.status, result.stopped_by, result.failure) == (Status.FEASIBLE, StoppedBy.FAILURE, told)
    assert result.plan is not None
    monkeypatch.setattr(ilp, "offer_greedy", lambda solve_state, operations, seed: False)
    with pytest.raises(type(error)):
        solve(load("server/demo"), ILP, options)


def optimum_of_export(instance: Instance, path: Path) -> float | None:
    """What HiGHS makes of the exported program; None where it is infeasible."""
    import highspy

    path.write_bytes(model_document(instance, "mps" if path.suffix == ".mps" else "lp"))
    engine = highspy.Highs()
    engine.setOptionValue("output_flag", False)
    engine.setOptionValue("mip_rel_gap", 0.0)
    assert engine.readModel(str(path)) == highspy.HighsStatus.kOk
    engine.run()
    if engine.getModelStatus() == highspy.HighsModelStatus.kInfeasible:
        return None
    assert engine.getModelStatus() == highspy.HighsModelStatus.kOptimal
    return engine.getObjectiveValue()


@pytest.mark.parametrize("kind", ["mps", "lp"])
def test_an_exported_program_has_the_same_optimum(pair: Instance, tmp_path: Path, kind: str) -> None:
    assert optimum_of_export(pair, tmp_path / f"pair.{kind}") == pytest.approx(1800)


@pytest.mark.parametrize("kind", ["mps", "lp"])
@pytest.mark.parametrize(("name", "expected"), [("dl199", None), ("dlw", 101_100)])
def test_deadlines_are_in_the_program(name: str, expected: int | None, kind: str, tmp_path: Path) -> None:
    instance = load_instance(Path(__file__).parents[1] / "data" / "cases" / "export" / f"{name}.json")
    assert optimum_of_export(instance, tmp_path / f"{name}.{kind}") == (expected and pytest.approx(expected))
    assert run(instance).objective == expected


@pytest.mark.parametrize("objective", ["makespan", "weighted_completion"])
def test_exported_programs_of_long_durations_keep_the_optimum(objective: str, tmp_path: Path) -> None:
    for seed in range(200, 206):
        instance = slower(random_instance(seed, "finite", objective, operations=7), 123_456_789)
        first, *rest = instance.jobs
        instance = replace(instance, jobs=(replace(first, release_us=first.release_us + 1), *rest))
        best = optimum(instance)
        for kind in ("mps", "lp"):
            found = optimum_of_export(instance, tmp_path / f"{seed}.{kind}")
            assert found == (best and pytest.approx(best, rel=1e-8)), instance.name


def test_times_beyond_what_engines_tell_apart_are_not_exported() -> None:
    instance = slower(random_instance(200, "finite", "makespan", operations=7), 10**13)
    assert model_document(instance, "mps")
    first, *rest = instance.jobs
    with misuse("too-large", naming=["steps of 1 us"]):
        model_document(replace(instance, jobs=(replace(first, release_us=first.release_us + 1), *rest)), "mps")


def test_what_it_refuses(pair: Instance) -> None:
    cyclic = replace(pair, horizon="cyclic", objective="period")
    assert ILP.unsupported(pair) is None
    assert "cyclic" in (ILP.unsupported(cyclic) or "")
    with pytest.raises(UsageError, match="cyclic"):
        model_document(cyclic, "mps")
    with misuse("unsupported", naming=["'j0'", "task graph"]):
        model_document(load("shop/job-6x4"), "lp")


def knapsack(integer: bool, least: float = -inf) -> LinearProgram:
    """Items of value 5 and 4 that take 3 and 2 of 4; at most one of each."""
    builder = ProgramBuilder()
    items = builder.add_columns([-5.0, -4.0], upper=1.0, integer=integer)
    builder.add_rows(Entries([0, 0], items, [3.0, 2.0]), least, [4.0])
    return builder.program()


def test_a_linear_program_has_values_and_duals() -> None:
    found = solve_program(knapsack(integer=False))
    assert (found.ending, found.feasible) == (Ending.SOLVED, True)
    assert found.values.tolist() == pytest.approx([2 / 3, 1])
    assert found.objective == found.bound == pytest.approx(-22 / 3)
    assert found.duals.tolist() == pytest.approx([-5 / 3])


def test_an_integer_program_has_a_bound() -> None:
    found = solve_program(knapsack(integer=True))
    assert found.ending is Ending.SOLVED
    assert found.values.tolist() == pytest.approx([1, 0])
    assert found.objective == pytest.approx(-5)
    assert found.bound == pytest.approx(-5)


def test_a_program_without_a_solution_says_so() -> None:
    found = solve_program(knapsack(integer=False, least=6.0))
    assert (found.ending, found.feasible) == (Ending.INFEASIBLE, False)


def test_a_program_grows_between_runs() -> None:
    engine = HighsEngine(knapsack(integer=False))
    assert engine.run().objective == pytest.approx(-22 / 3)
    engine.add_column(-3.0, [0], [1.0])
    assert engine.run().values.tolist() == pytest.approx([0, 0, 4])
    engine.add_row(-inf, 1.0, [2], [1.0])
    assert engine.run().values.tolist() == pytest.approx([1 / 3, 1, 1])
    engine.limit_rows([2.0, 1.0])
    assert engine.run().objective == pytest.approx(-5)


def test_a_run_ends_with_the_clock_and_with_a_cancel() -> None:
    cancel = threading.Event()
    with limited(Clock(60.0, cancel)):
        assert solve_program(knapsack(integer=True)).ending is Ending.SOLVED
        cancel.set()
        with pytest.raises(OutOfTimeError):
            solve_program(knapsack(integer=True))
    engine = HighsEngine(knapsack(integer=True))
    engine.cancel()
    assert engine.run().ending is Ending.STOPPED


def test_no_other_module_knows_the_engine() -> None:
    package = Path(jigsaw_opt.__file__).parent
    users = [path for path in package.rglob("*.py") if "import highspy" in path.read_text()]
    assert [path.relative_to(package).as_posix() for path in users] == ["solvers/engines/highs.py"]

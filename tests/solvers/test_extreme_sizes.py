"""Numbers beyond 64 bits and instances of absurd size: each ends soon, in little memory, with an honest answer."""

from __future__ import annotations

from dataclasses import replace
from threading import Event

import pytest

from jigsaw_opt.checking import check
from jigsaw_opt.errors import OutOfTimeError, TooLargeError
from jigsaw_opt.formulations.timetable.windows import serial_limit
from jigsaw_opt.instances.families import generate
from jigsaw_opt.problem import Cluster, Instance, Job, clock
from jigsaw_opt.problem.cluster import Server
from jigsaw_opt.problem.compiled.operations import compile_instance
from jigsaw_opt.problem.depth import FreeDepth
from jigsaw_opt.problem.instance import Objective
from jigsaw_opt.problem.model import Model, Segment
from jigsaw_opt.solvers.activities.flat import flatten, network_of
from jigsaw_opt.solvers.activities.placing import placements
from jigsaw_opt.solvers.bounds.packing.column_generation import Item, best_pattern
from jigsaw_opt.solvers.engines.magnitude import engine_excess, infinity, largest_objective, orders_fit, schedules_fit
from jigsaw_opt.solvers.greedy import greedy_timetable
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.registry import find, names
from jigsaw_opt.solvers.result import Status, StoppedBy
from jigsaw_opt.solvers.solve import solve
from jigsaw_opt.solvers.solve_state import SolveState
from tests.extreme_instances import enlarged, extreme_instance
from tests.refusals import carries, fails

HUGE = 2**53 - 1
SOLVERS = ("auto", "cpsat", "greedy", "ilp", "search")


def model(segments: int = 2) -> Model:
    return Model(tuple(Segment(f"s{k}", {"v100": 3}, {"v100": 5 + k % 3}, 1000, 1000) for k in range(segments)))


def instance(gpus: int, *jobs: Job, segments: int = 2) -> Instance:
    server = Server("s0", "v100", gpus, 10**15, 10**9)
    return Instance("sizes", Cluster((server,)), {"m": model(segments)}, jobs)


@pytest.mark.parametrize("solver", SOLVERS)
def test_more_workers_than_gpus(solver: str) -> None:
    result = solve(instance(2, Job("wide", "m", HUGE, 1)), solver, Options(threads=1))
    assert (result.status, result.stopped_by) == (Status.INFEASIBLE, StoppedBy.PROOF)
    assert f"{HUGE:,} workers" in result.conflicts[0].message


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("gpus", [10**7, HUGE])
def test_more_gpus_than_anybody_needs(solver: str, gpus: int) -> None:
    made = instance(gpus, Job("a", "m", 2, 1), Job("b", "m", 1, 2))
    result = solve(made, solver, Options(threads=1, work_limit=0.1))
    assert result.plan is not None and not check(made, result.plan)


def test_gpus_that_are_left_out_are_those_that_stay_idle() -> None:
    wide = instance(200_000, Job("a", "m", 100_000, 1))
    assert compile_instance(wide).cluster.gpu_count == 100_000
    several = instance(64, Job("a", "m", 2, 1))
    assert compile_instance(several).cluster is several.cluster


def test_more_iterations_than_a_plan_is_written_for() -> None:
    long = instance(2, Job("long", "m", 2, HUGE))
    with fails(TooLargeError, "36,028,797,018,963,964", "20,000,000"):
        solve(long, "portfolio", Options(threads=1))
    repeated = solve(long, "auto", Options(threads=1)).plan
    assert repeated is not None and repeated.is_phased and not check(long, repeated)
    with fails(TooLargeError, "120,400,000", "20,000,000"):
        solve(instance(2, Job("deep", "m", 2, 200_000), segments=600), "greedy", Options(threads=1))


@pytest.mark.parametrize("solver", ["cpsat", "ilp", "search"])
def test_thousands_of_segments(solver: str) -> None:
    jobs = [Job(f"j{k}", "m", 2, 1, depth=FreeDepth()) for k in range(2)]
    made = instance(3, *jobs, segments=1500)
    result = solve(made, solver, Options(threads=1, work_limit=0.01))
    assert result.plan is not None and not check(made, result.plan)
    # Four workers on three GPUs take 4500 forwards and, at 3/4 of all levels, 6750 backwards on average.
    assert result.objective is not None and 4 * (4500 + 6750) // 3 <= result.bound <= result.objective <= 18_751


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_limit_that_is_over_at_once_is_an_honest_answer(solver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Without the grace not even cutting is done in time.
    monkeypatch.setattr(Options, "grace", 0.0)
    result = solve(instance(4, Job("a", "m", 2, 1)), solver, Options(threads=1, time_limit=0.0))
    assert (result.status, result.stopped_by, result.plan) == (Status.UNKNOWN, StoppedBy.TIME, None)
    assert result.bound == 0 and carries(result.bound_reason, "time", "bound")


def test_a_cancel_before_anything_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Options, "grace", 0.0)
    options = Options(threads=1)
    options.cancel.set()
    result = solve(instance(4, Job("a", "m", 2, 1)), "auto", options)
    assert (result.status, result.stopped_by) == (Status.UNKNOWN, StoppedBy.INTERRUPT)


def test_time_for_the_check_is_kept_back_once_there_is_a_plan() -> None:
    operations = compile_instance(instance(2, Job("a", "m", 2, 20_000)))
    solve_state = SolveState("any", operations, Options(time_limit=4.0), lambda event: None)
    assert solve_state.limit == 4.0
    found = greedy_timetable(operations)
    assert found is not None and solve_state.offer(found)
    assert solve_state.limit == pytest.approx(4.0 - (40_000 * 3e-5 - 0.5))
    many = SolveState(
        "any", replace(operations, jobs=operations.jobs * 100), Options(time_limit=4.0), lambda event: None
    )
    many.objective = 1
    assert many.limit == 2.0


class Counted(clock.Clock):
    """A clock that is over after a number of looks at it."""

    def __init__(self, looks: int) -> None:
        super().__init__(None, Event())
        self.looks = looks

    @property
    def over(self) -> bool:
        self.looks -= 1
        return self.looks < 0


def test_choosing_levels_and_listing_operations_look_at_the_clock_in_every_iteration() -> None:
    """So a limit holds for a million iterations, and for Ctrl-C."""
    iterations = 1000
    operations = compile_instance(instance(2, Job("long", "m", 2, iterations, depth=FreeDepth())))
    with clock.limited(Counted(iterations // 2)), pytest.raises(OutOfTimeError):
        next(placements(operations, 0))
    placement = next(placements(operations, 0))
    with clock.limited(Counted(iterations // 2)), pytest.raises(OutOfTimeError):
        network_of(operations, placement.gpus, placement.levels)
    network = network_of(operations, placement.gpus, placement.levels)
    with clock.limited(Counted(iterations)), pytest.raises(OutOfTimeError):
        flatten(network)


@pytest.mark.slow
@pytest.mark.parametrize("solver", [name for name in names() if name != "phased"])
@pytest.mark.parametrize("seed", [11])
def test_products_beyond_64_bits_keep_a_checked_plan_and_an_honest_bound(solver: str, seed: int) -> None:
    instance = extreme_instance(seed)
    if find(solver).unsupported(instance) is not None:
        pytest.skip(f"{solver} does not take a {instance.horizon} horizon")
    result = solve(instance, solver, Options(threads=1, work_limit=0.1))
    assert result.objective is not None
    assert result.bound <= result.objective


@pytest.mark.parametrize("solver", ["greedy", "search", "portfolio", "cpsat"])
@pytest.mark.parametrize(("workers", "objective"), [(1, "makespan"), (2, "weighted_completion"), (1, "period")])
def test_schedules_beyond_64_bits_are_exact_beside_compiled_functions(
    solver: str, workers: int, objective: Objective
) -> None:
    instance = enlarged(generate("tiny", 1, objective=objective))
    assert not schedules_fit(compile_instance(instance))
    result = solve(instance, solver, Options(threads=workers, work_limit=0.01))
    assert result.objective is not None
    assert result.objective > 2**64
    assert result.bound <= result.objective


def test_numbers_fit_up_to_what_is_counted_with() -> None:
    operations = compile_instance(generate("server", 1))
    assert schedules_fit(operations) and orders_fit(operations) and engine_excess(serial_limit(operations)) is None
    large = compile_instance(enlarged(generate("server", 1)))
    assert not (schedules_fit(large) or orders_fit(large) or engine_excess(serial_limit(large)) is None)
    assert infinity(operations) < 2**63
    assert infinity(large) > largest_objective(large)


@pytest.mark.parametrize("factor", [1, 2**53, 2**90])
def test_patterns_of_a_bin_are_worth_as_much_whatever_the_size_of_numbers(factor: int) -> None:
    items = [Item(4 * factor, 3, 0), Item(3 * factor, 2, factor), Item(factor, 9, 0)]
    values = [5 * factor, 4 * factor, factor]
    found = best_pattern(items, values, 10 * factor)
    assert found.value >= 12 * factor
    assert found.value == sum(values[k] * copies for k, copies in found.copies.items())

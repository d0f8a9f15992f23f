"""Targets put to the exact model: their answers, how far and how long they ask, and when they end."""

from __future__ import annotations

import pytest

from jigsaw_opt.instances import generate, load
from jigsaw_opt.problem import Instance, compile_instance
from jigsaw_opt.problem.compiled.timetable import objective_of
from jigsaw_opt.problem.instance import Horizon, Objective
from jigsaw_opt.solvers.cpsat.model import build_model, is_small
from jigsaw_opt.solvers.cpsat.targets import Targets
from jigsaw_opt.solvers.greedy import greedy_timetable
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.solve_state import SolveState
from tests.extreme_instances import extreme_instance
from tests.oracle import optimum
from tests.random_instances import random_instance

pytest.importorskip("ortools")


def begun(instance: Instance, **options: object) -> SolveState:
    """A solve that has the heuristic's plan."""
    operations = compile_instance(instance)
    solve_state = SolveState("targets", operations, Options(**{"threads": 1, **options}), lambda event: None)
    plan = greedy_timetable(operations)
    if plan is not None:
        solve_state.offer(plan)
    return solve_state


def asked(
    solve_state: SolveState, monkeypatch: pytest.MonkeyPatch, *answers: bool | None
) -> tuple[Targets, list[float]]:
    """Targets that get these answers whatever they ask, and the shares of the room that they ask for."""
    shares: list[float] = []

    def answer(targets: Targets, target: int) -> bool | None:
        assert solve_state.objective is not None
        assert solve_state.bound <= target < solve_state.objective
        shares.append((target - solve_state.bound) / (solve_state.objective - 1 - solve_state.bound))
        return answers[len(shares) - 1]

    monkeypatch.setattr(Targets, "_answer", answer)
    return Targets(solve_state, solve_state.operations, 1), shares


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("horizon", "objective"), [("finite", "makespan"), ("finite", "weighted_completion"), ("cyclic", "period")]
)
def test_they_close_in_on_the_optimum(horizon: Horizon, objective: Objective, workers: int) -> None:
    gaps = 0
    for seed in (*range(12), 14, 24):
        instance = random_instance(seed, horizon, objective, operations=6)
        solve_state, best = begun(instance), optimum(instance)
        if best is None:
            continue
        gaps += solve_state.bound < best
        Targets(solve_state, solve_state.operations, workers).bisect()
        assert solve_state.objective == solve_state.bound == best
    assert gaps


def test_a_gpu_too_slow_for_the_target_leaves_the_model_valid() -> None:
    solve_state = begun(extreme_instance(2016))
    assert solve_state.objective is not None
    target = (solve_state.bound + solve_state.objective) // 2
    assert build_model(solve_state, solve_state.operations, solve_state.bound, target).proto.validate() == ""
    before = solve_state.bound
    Targets(solve_state, solve_state.operations, 1).bisect()
    assert before < solve_state.bound == solve_state.objective


def test_what_is_proven_of_an_open_instance_holds_for_its_best_plan() -> None:
    solve_state = begun(generate("server", 174))
    before = solve_state.bound
    assert Targets(solve_state, solve_state.operations, 1).bisect(work=0.3) > 0.0
    assert before < solve_state.bound <= 147_104
    assert solve_state.best is not None
    assert (
        objective_of(solve_state.operations, solve_state.best.jobs, solve_state.best.period_us) == solve_state.objective
    )


def test_they_go_further_after_a_no_and_nearer_after_one_left_open(monkeypatch: pytest.MonkeyPatch) -> None:
    solve_state = begun(load("server/oversubscribed"))
    targets, shares = asked(solve_state, monkeypatch, False, True, *[None] * 4, False, False, None, None)
    targets.bisect(patience=3)
    assert shares == pytest.approx([0.5, 1.0, 0.5, 0.5, 0.25, 0.25, 0.125, 0.25, 0.5, 0.5], abs=1e-4)


def test_targets_beyond_the_exact_floats_lie_below_the_best_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    solve_state = begun(load("server/oversubscribed"))
    solve_state.objective = solve_state.bound + 2**59
    targets, shares = asked(solve_state, monkeypatch, False, True, None, None)
    targets.bisect(patience=1)
    assert len(shares) == 4


@pytest.mark.parametrize(
    ("name", "expected", "both"),
    [
        ("server/oversubscribed", [0.15 * 2 ** (k // 2) for k in range(12)], [True, False]),
        ("rack/cyclic", [0.3 * 2**k for k in range(5)], [True]),
    ],
)
def test_what_is_left_open_is_asked_with_more_effort_on_a_line_after_the_other_way(
    name: str, expected: list[float], both: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    solve_state = begun(load(name))
    assert solve_state.objective is not None
    solve_state.objective = 2 * solve_state.bound
    efforts: list[float] = []
    ways: list[bool] = []
    targets, _ = asked(solve_state, monkeypatch, *[None] * 12)
    answer = Targets._answer

    def noted(it: Targets, target: int) -> bool | None:
        efforts.append(it._effort)
        ways.append(it._engine().parameters.use_strong_propagation_in_disjunctive)
        return answer(it, target)

    monkeypatch.setattr(Targets, "_answer", noted)
    targets.bisect(patience=1)
    assert ways == both
    targets.bisect()
    assert efforts == expected
    assert ways == both * (len(expected) // len(both))


@pytest.mark.parametrize("limit", [{"work": 0.0}, {"seconds": 0.0}])
def test_limits_end_them_before_anything_is_asked(limit: dict[str, float], monkeypatch: pytest.MonkeyPatch) -> None:
    targets, shares = asked(begun(load("server/oversubscribed")), monkeypatch)
    assert targets.bisect(**limit) == 0.0
    assert shares == []


def test_without_a_plan_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    operations = compile_instance(load("server/oversubscribed"))
    solve_state = SolveState("targets", operations, Options(threads=1), lambda event: None)
    targets, shares = asked(solve_state, monkeypatch)
    assert targets.bisect() == 0.0
    assert shares == []


def test_only_small_models_are_asked() -> None:
    assert is_small(compile_instance(load("server/heavy")))
    assert not is_small(compile_instance(load("rack/oversubscribed")))

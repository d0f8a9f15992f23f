"""Targets put to the exact model: their answers, how far and how long they ask, and when they end."""

from __future__ import annotations

import pytest

from jigsaw_opt.instances import generate, load
from jigsaw_opt.problem import Instance, cut
from jigsaw_opt.problem.instance import Horizon, Objective
from jigsaw_opt.problem.timetable import objective_of
from jigsaw_opt.solvers.control import Control
from jigsaw_opt.solvers.cpsat.model import build_model, is_small
from jigsaw_opt.solvers.cpsat.targets import Targets
from jigsaw_opt.solvers.greedy import greedy_timetable
from jigsaw_opt.solvers.options import Options
from tests.extreme_instances import extreme_instance
from tests.oracle import optimum
from tests.random_instances import random_instance

pytest.importorskip("ortools")


def begun(instance: Instance, **options: object) -> Control:
    """A solve that has the heuristic's plan."""
    operations = cut(instance)
    control = Control("targets", operations, Options(**{"threads": 1, **options}), lambda event: None)
    plan = greedy_timetable(operations)
    if plan is not None:
        control.offer(plan)
    return control


def asked(control: Control, monkeypatch: pytest.MonkeyPatch, *answers: bool | None) -> tuple[Targets, list[float]]:
    """Targets that get these answers whatever they ask, and the shares of the room that they ask for."""
    shares: list[float] = []

    def answer(targets: Targets, target: int) -> bool | None:
        assert control.objective is not None
        assert control.bound <= target < control.objective
        shares.append((target - control.bound) / (control.objective - 1 - control.bound))
        return answers[len(shares) - 1]

    monkeypatch.setattr(Targets, "_answer", answer)
    return Targets(control, control.operations, 1), shares


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("horizon", "objective"), [("finite", "makespan"), ("finite", "weighted_completion"), ("cyclic", "period")]
)
def test_they_close_in_on_the_optimum(horizon: Horizon, objective: Objective, workers: int) -> None:
    gaps = 0
    for seed in (*range(12), 14, 24):
        instance = random_instance(seed, horizon, objective, operations=6)
        control, best = begun(instance), optimum(instance)
        if best is None:
            continue
        gaps += control.bound < best
        Targets(control, control.operations, workers).close_in()
        assert control.objective == control.bound == best
    assert gaps


def test_a_gpu_too_slow_for_the_target_leaves_the_model_valid() -> None:
    control = begun(extreme_instance(2016))
    assert control.objective is not None
    target = (control.bound + control.objective) // 2
    assert build_model(control, control.operations, control.bound, target).proto.validate() == ""
    before = control.bound
    Targets(control, control.operations, 1).close_in()
    assert before < control.bound == control.objective


def test_what_is_proven_of_an_open_instance_holds_for_its_best_plan() -> None:
    control = begun(generate("server", 174))
    before = control.bound
    assert Targets(control, control.operations, 1).close_in(work=0.3) > 0.0
    assert before < control.bound <= 147_104
    assert control.best is not None
    assert objective_of(control.operations, control.best.jobs, control.best.period_us) == control.objective


def test_they_go_further_after_a_no_and_nearer_after_one_left_open(monkeypatch: pytest.MonkeyPatch) -> None:
    control = begun(load("server/oversubscribed"))
    targets, shares = asked(control, monkeypatch, False, True, *[None] * 4, False, False, None, None)
    targets.close_in(patience=3)
    assert shares == pytest.approx([0.5, 1.0, 0.5, 0.5, 0.25, 0.25, 0.125, 0.25, 0.5, 0.5], abs=1e-4)


def test_targets_beyond_the_exact_floats_lie_below_the_best_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    control = begun(load("server/oversubscribed"))
    control.objective = control.bound + 2**59
    targets, shares = asked(control, monkeypatch, False, True, None, None)
    targets.close_in(patience=1)
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
    control = begun(load(name))
    assert control.objective is not None
    control.objective = 2 * control.bound
    efforts: list[float] = []
    ways: list[bool] = []
    targets, _ = asked(control, monkeypatch, *[None] * 12)
    answer = Targets._answer

    def noted(it: Targets, target: int) -> bool | None:
        efforts.append(it._effort)
        ways.append(it._engine().parameters.use_strong_propagation_in_disjunctive)
        return answer(it, target)

    monkeypatch.setattr(Targets, "_answer", noted)
    targets.close_in(patience=1)
    assert ways == both
    targets.close_in()
    assert efforts == expected
    assert ways == both * (len(expected) // len(both))


@pytest.mark.parametrize("limit", [{"work": 0.0}, {"seconds": 0.0}])
def test_limits_end_them_before_anything_is_asked(limit: dict[str, float], monkeypatch: pytest.MonkeyPatch) -> None:
    targets, shares = asked(begun(load("server/oversubscribed")), monkeypatch)
    assert targets.close_in(**limit) == 0.0
    assert shares == []


def test_without_a_plan_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    operations = cut(load("server/oversubscribed"))
    control = Control("targets", operations, Options(threads=1), lambda event: None)
    targets, shares = asked(control, monkeypatch)
    assert targets.close_in() == 0.0
    assert shares == []


def test_only_small_models_are_asked() -> None:
    assert is_small(cut(load("server/heavy")))
    assert not is_small(cut(load("rack/oversubscribed")))

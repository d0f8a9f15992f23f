"""New runs beside old ones and beside the best known values, on rows made by hand; statistics of pairs."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

import pytest

from jigsaw_opt.instances.catalogue import BestKnown, RecordedRun
from jigsaw_opt.sweeps.bench import known
from jigsaw_opt.sweeps.bench.against import Against, Change, against, bootstrap_interval, holm, sign_test
from jigsaw_opt.sweeps.bench.known import Beyond, best_known_by_hash, beyond_known


def row(instance: int, seed: int, objective: int | None, integral: float | None = 1.0, **more: Any) -> dict[str, Any]:
    known = {"solver": "a", "time_limit": 10.0, "error": None, "host": "h", **more}
    key = f"{instance} {seed} {known['solver']}"
    place = {"key": key, "instance_sha256": str(instance), "seed": seed}
    return {**place, "objective": objective, "primal_dual_integral": integral, **known}


def rows(objectives: Iterable[int | None], **more: Any) -> list[dict[str, Any]]:
    """Two seeds for each instance."""
    return [row(k, seed, objective, **more) for k, objective in enumerate(objectives) for seed in (0, 1)]


def judged(old: list[dict[str, Any]], new: list[dict[str, Any]], level: float = 0.05) -> Against:
    return against({each["key"]: each for each in old}, new, level)


def objective(against: Against) -> Change:
    return against.changes[0]


def test_the_same_runs_have_not_changed() -> None:
    it = judged(rows(range(100, 110)), rows(range(100, 110)))
    assert (it.pairs, it.unpaired, it.hosts, it.regressions) == (20, 0, 1, ())
    change = objective(it)
    assert (change.instances, change.better, change.worse, change.ratio) == (10, 0, 0, 1.0)
    assert (change.low, change.high, change.p, change.verdict) == (1.0, 1.0, 1.0, "no clear change")
    assert [each.measure for each in it.changes] == ["objective", "primal_dual_integral"]


def test_a_shift_is_worse_and_its_reverse_better() -> None:
    old, new = rows([1000] * 10), rows([1100] * 10)
    change = objective(judged(old, new))
    assert (change.better, change.worse, change.verdict) == (0, 10, "worse")
    assert (change.ratio, change.low, change.high) == pytest.approx((1.1, 1.1, 1.1))
    # Holm: of two tests the smaller p counts twice.
    assert (change.p, change.adjusted_p) == pytest.approx((2 / 1024, 4 / 1024))
    back = judged(new, old)
    assert objective(back).verdict == "better" and not back.regressions


def test_the_level_and_the_number_of_tests_decide() -> None:
    old, new = rows([100] * 6), rows([101] * 6)
    assert objective(judged(old, new)).p == 2 / 64
    assert objective(judged(old, new)).verdict == "no clear change"
    assert objective(judged(old, new, level=0.1)).verdict == "worse"


@pytest.mark.parametrize(("lines", "least"), [(1, 6), (2, 7), (4, 8), (8, 9)])
def test_too_few_instances_for_the_number_of_rows_are_told(lines: int, least: int) -> None:
    def found(instances: int) -> Against:
        old, new = (
            [each for k in range(lines) for each in rows([value] * instances, integral=None, solver=str(k))]
            for value in (100, 120)
        )
        return judged(old, new)

    few, enough = found(least - 1), found(least)
    assert (few.least_instances, few.too_few, few.regressions) == (least, lines, ())
    assert (enough.least_instances, enough.too_few, len(enough.regressions)) == (least, 0, lines)


def test_noise_is_rarely_taken_for_a_change() -> None:
    draw = Random(1)

    def noisy() -> list[dict[str, Any]]:
        return rows([draw.randint(900, 1100) for _ in range(20)], integral=None)

    found = [judged(noisy(), noisy()) for _ in range(60)]
    assert sum(bool(each.regressions) for each in found) <= 3
    changes = [objective(each) for each in found]
    assert (
        sum(change.low is not None and change.high is not None and change.low <= 1 <= change.high for change in changes)
        >= 50
    )
    assert {len(each.changes) for each in found} == {1}, "no integrals are known"


def test_a_plan_that_only_one_has_counts_for_the_sign_and_not_for_the_ratio() -> None:
    change = objective(judged(rows([100, 100, None, 50]), rows([None, 100, 100, 100])))
    assert (change.better, change.worse, change.ratio) == (1, 2, pytest.approx(2**0.5))
    seeds = [row(0, 0, 100), row(0, 1, None)], [row(0, 0, None), row(0, 1, 100)]
    change = objective(judged(*seeds))
    assert (change.better, change.worse, change.ratio) == (0, 0, 1.0)


def test_the_integral_is_judged_too_and_a_failure_counts_its_limit() -> None:
    old = rows([100] * 9)
    new = [row(k, seed, None, None, error="killed", host="i") for k in range(9) for seed in (0, 1)]
    it = judged(old, new)
    assert [(change.worse, change.ratio) for change in it.changes] == [(9, None), (9, pytest.approx(10))]
    assert it.hosts == 2 and len(it.regressions) == 2


def test_solvers_are_judged_apart_and_runs_without_an_older_one_are_counted() -> None:
    old = rows([100] * 9) + rows([100] * 9, solver="b")
    new = rows([100] * 9) + rows([120] * 9, solver="b") + [row(77, 0, 5)]
    it = judged(old, new)
    assert [(change.solver, change.verdict) for change in it.changes if change.measure == "objective"] == [
        ("a", "no clear change"),
        ("b", "worse"),
    ]
    assert (it.pairs, it.unpaired) == (36, 1)


@pytest.mark.parametrize(
    ("less", "more", "p"), [(0, 0, 1.0), (1, 0, 1.0), (3, 3, 1.0), (6, 0, 2 / 64), (8, 2, 112 / 1024)]
)
def test_sign_test_is_exact(less: int, more: int, p: float) -> None:
    assert sign_test(less, more) == sign_test(more, less) == pytest.approx(p)


def test_holm_multiplies_by_what_is_left_and_never_falls() -> None:
    # 3 · 0.01; 2 · 0.02 = 0.04; 1 · 0.03 would be less than the one before.
    assert holm([0.03, 0.01, 0.02]) == pytest.approx([0.04, 0.03, 0.04])
    assert holm([0.9, 0.6]) == [1.0, 1.0]
    assert holm([]) == []


def test_the_bootstrap_holds_the_mean_and_shrinks_with_more_values() -> None:
    few, many = bootstrap_interval([0.0, 1.0] * 5), bootstrap_interval([0.0, 1.0] * 500)
    assert few[0] < many[0] < 0.5 < many[1] < few[1]
    # The standard error of the mean is 0.5 / √1000.
    assert many[1] - many[0] == pytest.approx(2 * 1.96 * 0.5 / 1000**0.5, rel=0.1)
    assert bootstrap_interval([0.0, 1.0] * 5) == few
    assert bootstrap_interval([3.0]) is None


RUN = RecordedRun("old", "1", 0, 1, 1.0, "2026-01-01", "a machine")
STORED = BestKnown("hash", 900, 500, "a proof", RUN, RUN)


@pytest.fixture(autouse=True)
def _stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known, "read_best_known", lambda _path: {"set/one": STORED})


def stored_row(objective: int | None, bound: int | None, sha256: str = "hash") -> dict[str, Any]:
    return {"instance_sha256": sha256, "solver": "auto", "seed": 3, "objective": objective, "bound": bound}


@pytest.mark.parametrize(
    ("run", "kinds"),
    [
        (stored_row(900, 500), []),
        (stored_row(901, 400), []),
        (stored_row(None, 900), []),
        (stored_row(1, 1, "another"), []),
        (stored_row(899, 500), [("better", 899, 900)]),
        (stored_row(500, 500), [("better", 500, 900)]),
        (stored_row(499, 400), [("contradiction", 499, 500)]),
        (stored_row(None, 901), [("contradiction", 901, 900)]),
        (stored_row(499, 901), [("contradiction", 499, 500), ("contradiction", 901, 900)]),
        ({"instance_sha256": "hash", "solver": "auto", "error": "no memory"}, []),
    ],
)
def test_what_goes_beyond_the_stored_values_is_found(run: dict[str, Any], kinds: list[tuple[Any, ...]]) -> None:
    assert [(each.kind, each.found, each.stored) for each in beyond_known([run])] == kinds


def test_it_says_which_run_it_was() -> None:
    assert beyond_known([stored_row(901, 1), stored_row(800, 1)]) == [Beyond("set/one", "auto", 3, "better", 800, 900)]


def test_instances_are_found_by_their_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert {name for name, _ in best_known_by_hash().values()} >= {"tiny/000", "pod/weighted"}

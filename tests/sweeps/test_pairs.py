"""Statistics of pairs, by hand and by their definitions."""

from __future__ import annotations

import pytest

from jigsaw_opt.sweeps.bench.against import bootstrap_interval, holm, sign_test


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
    assert few is not None and many is not None
    assert few[0] < many[0] < 0.5 < many[1] < few[1]
    # The standard error of the mean is 0.5 / √1000.
    assert many[1] - many[0] == pytest.approx(2 * 1.96 * 0.5 / 1000**0.5, rel=0.1)
    assert bootstrap_interval([0.0, 1.0] * 5) == few
    assert bootstrap_interval([3.0]) is None

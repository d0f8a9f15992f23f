"""The gate against getting worse: what counts as worse, and its quick part on the code as it is."""

from __future__ import annotations

import gate
import pytest
from gate import Case, Found, cases, failures, losses

from tests.extras import needs_fast


def test_losses_are_shares_of_what_was_stored() -> None:
    before = Found(1000, 800)
    assert losses(Found(1010, 800), before) == pytest.approx((0.01, 0.0))
    assert losses(Found(990, 784), before) == pytest.approx((-0.01, 0.02))
    assert losses(Found(None, 800), before)[0] == 1.0
    assert losses(Found(5, 0), Found(None, 0)) == (0.0, 0.0)


def test_a_class_fails_by_its_mean_and_an_instance_by_itself() -> None:
    one, two = Case("a", "x", 1.0), Case("a", "y", 1.0)
    assert not list(failures({one: (0.002, 0.0), two: (0.003, 0.002)}))
    assert list(failures({one: (0.01, 0.0), two: (-0.001, 0.0)})) == ["a: the objective is worse by 0.45% on average"]
    assert list(failures({one: (0.0, 0.05), two: (0.0, -0.05)})) == ["listed x 1: the bound is worse by 5.00%"]


def test_every_case_has_stored_values_under_a_name_of_its_own() -> None:
    names = [case.name for case in cases()]
    assert len(set(names)) == len(names) >= 50
    assert set(gate.stored()) == set(names)


@needs_fast
@pytest.mark.slow
def test_a_case_passes() -> None:
    known, rows = gate.stored(), {}
    quick = [case for case in cases() if case.quick and case.group.startswith("makespan")]
    for case, value in gate.run(quick, processes=1):
        rows[case] = losses(value, known[case.name])
    assert len(rows) == 1
    assert not list(failures(rows))

"""Exported programs in HiGHS against brute force, in a small part."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("highspy")
pytest.importorskip("pulp")

from exported_programs import Tally, instances, judge


@pytest.mark.parametrize("factor", [1, 10**8])
def test_engines_find_our_optimum_in_the_files(factor: int, tmp_path: Path) -> None:
    tally = Tally()
    for instance, best in instances(12, factor, 0):
        judge(instance, best, tmp_path, tally)
    assert tally.wrong == []
    assert tally.counts["files"] == 24 and 0 < tally.counts["infeasible"] < 24
    assert tally.error <= 1e-8

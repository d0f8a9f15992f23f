"""Performance profiles of runs made by hand."""

from __future__ import annotations

from math import inf

import pytest

from jigsaw_opt.sweeps.bench.summary import objective_profile, time_profile
from tests.sweeps.test_summary import failed, row


def test_objectives_are_set_against_the_best_of_any_seed() -> None:
    rows = [row("a", "x", 0, 120, 50), row("a", "x", 1, 100, 50), row("a", "y", 0, None, 50), failed("b", "y", 0)]
    assert objective_profile(rows) == {"x 10 s": [pytest.approx(1.2), 1.0], "y 10 s": [inf, inf]}


def test_times_race_with_the_same_seed_to_within_a_share_of_the_best() -> None:
    steps = [[1.0, 120, 50], [2.0, 101, 50], [8.0, 100, 50]]
    slow = row("a", "x", 0, 100, 50, trajectory=steps)
    fast, never = row("a", "y", 0, 101, 50, at=0.5), row("a", "y", 1, 102, 50)
    assert time_profile([slow, fast, never], 0.01) == {"x 10 s": [4.0], "y 10 s": [1.0, inf]}
    # At 0 % only the best itself counts, which the other solver never has.
    assert time_profile([slow, fast], 0.0) == {"x 10 s": [1.0], "y 10 s": [inf]}
    assert time_profile([failed("b", "x", 0)], 0.01) == {"x 10 s": [inf]}

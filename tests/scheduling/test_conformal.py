"""Conformal intervals: ranks of past errors, and how often they hold."""

from __future__ import annotations

from random import Random

import pytest

from jigsaw_opt.scheduling.start_prediction import Foretold, corrected

NOTHING = Foretold(0.0, 0.0, 1.0)


def test_ends_are_ranks_of_past_values() -> None:
    """A model that always says 0 leaves all to the past: of 1 to 99, the 5th from either end."""
    past = [(NOTHING, float(k)) for k in range(1, 100)]
    assert corrected(NOTHING, past, 0.9) == (5, 95)
    assert corrected(NOTHING, past, 0.5) == (25, 75)
    assert corrected(NOTHING, past, 0.0) == (50, 50)
    assert corrected(NOTHING, past[:1], 0.9) == (1, 1), "of few, the outermost"


def test_errors_are_in_units_of_the_model() -> None:
    past = [(Foretold(10, 20, 2.0), 24.0)] * 30
    assert corrected(Foretold(100, 200, 1.0), past, 0.9) == (107, 202)
    assert corrected(Foretold(100, 104, 10.0), past, 0.9) == (147, 147), "where the ends would cross, between them"


@pytest.mark.parametrize("share", [0.5, 0.9])
def test_intervals_hold_as_often_as_they_say(share: float) -> None:
    """The model foretells half of the wait, and is far too sure."""
    random, hits = Random(5), 0
    for _ in range(2000):
        past = []
        for _ in range(40):
            scale = random.uniform(1, 9)
            past.append((Foretold(scale * 0.45, scale * 0.55, scale), scale * random.expovariate(1)))
        *before, (asked, value) = past
        low, high = corrected(asked, before, share)
        hits += low <= value <= high
    assert hits / 2000 == pytest.approx(share, abs=0.025)

"""The picture of gap profiles: its lines in numbers, and that it is a picture."""

from __future__ import annotations

import pytest

from jigsaw_opt.errors import MissingEngineError
from jigsaw_opt.views.image import _steps, gap_profile_png
from tests.extras import needs_plot


def test_a_line_rises_by_a_run_at_each_gap_and_never_for_one_without_a_plan() -> None:
    percents, shares = _steps([0.0, 0.01, 0.02, 1.0])
    assert percents == [0.01, 0.01, 1.0, 2.0, 100.0, 100.0]
    assert shares == [0.0, 0.25, 0.5, 0.75, 0.75, 0.75]


def test_a_line_of_proven_runs_is_at_the_top_from_the_left_edge() -> None:
    assert _steps([0.0, 0.00005]) == ([0.01, 0.01, 0.01, 100.0], [0.0, 0.5, 1.0, 1.0])


@needs_plot
def test_the_picture_is_a_png_and_more_lines_make_another() -> None:
    one = gap_profile_png({"a 10 s": [0.0, 0.1]})
    two = gap_profile_png({"a 10 s": [0.0, 0.1], "b 10 s": [0.02, 1.0]})
    assert one.startswith(b"\x89PNG") and two.startswith(b"\x89PNG") and one != two
    assert gap_profile_png({}).startswith(b"\x89PNG")


def test_without_matplotlib_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jigsaw_opt.views.image.find_spec", lambda name: None)
    with pytest.raises(MissingEngineError, match=r"jigsaw-opt\[plot\]"):
        gap_profile_png({"a": [0.0]})

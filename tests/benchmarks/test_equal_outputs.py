"""The comparison of two trees by what they print and write."""

from __future__ import annotations

import equal_outputs


def test_what_is_measured_is_left_out_and_nothing_else() -> None:
    text = 'took 1.5 s, {"seconds": 0.25, "jobs": 3}'
    assert equal_outputs.without_measures(text, "plan") == 'took T, {"seconds": T, "jobs": 3}'
    assert equal_outputs.without_measures("GPU 0: 12.5 %, [[1, 2], [3, 4]]", "run") == "GPU N: N %, [N]"


def test_differences_are_shown_where_they_begin() -> None:
    found = equal_outputs.differences({"a": "same", "b": "one text", "c": "x"}, {"a": "same", "b": "one test"})
    assert list(found) == ["b, from character 6:\n  'one text'\n  'one test'", "c: only in the old tree"]

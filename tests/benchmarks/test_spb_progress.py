"""The benchmark of predicted progress: its rules, how it reads curves, and a short run from end to end."""

from __future__ import annotations

import json
from math import isnan
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the executor needs PyTorch: pip install 'jigsaw-opt[torch]'")

from spb_progress import correlation, length_of, main, predicted, rules

from jigsaw_opt.executor.partial.noise import BucketNoise, NoiseEstimate

CURVE = [(0.5, 2.0), (1.0, 1.0), (1.5, 1.2), (2.0, 0.8)]


@pytest.mark.parametrize(
    ("loss", "length"), [(3.0, 0.5), (2.0, 0.5), (1.5, 0.75), (1.0, 1.0), (0.9, 1.75), (0.8, 2.0), (0.1, 2.0)]
)
def test_a_loss_is_reached_where_the_curve_first_comes_to_it(loss: float, length: float) -> None:
    assert length_of(loss, CURVE) == pytest.approx(length)


def test_ranks_are_correlated_and_ties_share_theirs() -> None:
    assert correlation([1, 2, 3], [10, 20, 90]) == 1
    assert correlation([1, 2, 3], [5, 4, 1]) == -1
    assert correlation([1, 1, 2], [1, 2, 3]) == pytest.approx(0.75**0.5)
    assert isnan(correlation([1, 1], [1, 2]))


def test_rules_have_the_contributors_that_they_name() -> None:
    found = rules(3, 4, 0)
    assert [sorted(found["rotation"](turn)) for turn in range(4)] == [[1, 2, 3, 3]] * 4
    assert [found["2 full, others at 1"](turn).count(3) for turn in range(4)] == [2] * 4
    assert {tuple(found["1 full, others at 2"](turn)) for turn in range(4)} == {
        (3, 2, 2, 2),
        (2, 3, 2, 2),
        (2, 2, 3, 2),
        (2, 2, 2, 3),
    }
    assert all(max(found["free"](turn)) == 3 for turn in range(9))


def test_the_prediction_is_the_mean_over_windows_that_are_known() -> None:
    def window(scale: float) -> NoiseEstimate:
        return NoiseEstimate((BucketNoise(1, 1.0, 0.1, 0.0, 5), BucketNoise(2, scale, 0.1, 1.0, 5)))

    windows = [window(0.0), window(float("nan")), *[window(2.0)] * 8]
    one_of_two = [1 / 1, *[1 * 4 / (2 * 3)] * 8]
    assert predicted(windows, lambda turn: [1, 2], 20) == pytest.approx(sum(one_of_two) / 9)


@pytest.mark.slow
def test_a_short_run_predicts_and_measures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = [f"--argument={name}" for name in ("layers=1", "width=16", "heads=2", "rows=8", "positions=8")]
    asked = [
        "sources-gpt",
        "--workers",
        "2",
        "--iterations",
        "20",
        "--seeds",
        "2",
        "--steps",
        "best",
        "--rates",
        "0.1",
        *small,
    ]
    main([*asked, "-o", str(tmp_path / "found.json")])
    found = json.loads((tmp_path / "found.json").read_text())
    assert [row["rule"] for row in found["rows"]] == list(rules(len(found["noise_scale"][0]), 2, 0))
    assert all(0 < row["predicted"] < 1 and 0.3 <= row["measured"] <= 1.3 for row in found["rows"])
    assert capsys.readouterr().out.count("rank correlation") == 1

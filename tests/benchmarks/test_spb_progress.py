"""The benchmark of predicted progress: its rules, how it reads curves, and a short run from end to end."""

from __future__ import annotations

import json
from dataclasses import replace
from math import isfinite, isnan, nan
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the executor needs PyTorch: pip install 'jigsaw-opt[torch]'")

from spb.design import Design
from spb.subjects import SUBJECTS, Subject
from spb_learning import measure
from spb_progress import Judgement, Task, correlation, judge, length_of, main, predicted, rules, verdicts

from jigsaw_opt.executor.partial.noise import BucketNoise, NoiseEstimate
from jigsaw_opt.sweeps.intervals import MeanInterval

CURVE = [(0.5, 2.0), (1.0, 1.0), (1.5, 1.2), (2.0, 0.8)]


@pytest.mark.parametrize(
    ("loss", "length"),
    [(3.0, 0.5), (2.0, 0.5), (1.5, 0.75), (1.0, 1.0), (0.9, 1.75), (0.8, 2.0), (0.1, 2.0), (nan, 0.5)],
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


def test_the_rule_is_held_against_what_was_measured() -> None:
    def judged(way: str, time: float, progress: float, points: float, beyond: float) -> Judgement:
        intervals = MeanInterval(points, 0.5), MeanInterval(beyond, 0.3)
        return Judgement(way, time, 0.5, 0.5, 0.5, progress, 0.85, 0.75, *intervals)

    small = judged("smaller batch", 0.7, 0.9, 1.0, 0.0)
    right, wrong = judged("rotation", 0.8, 0.6, -2.0, -1.0), judged("free", 0.7, 0.8, -0.1, 0.2)
    outside = judged("frozen", 0.5, 0.4, float("nan"), 0.4)
    told = verdicts([small, right, wrong, outside])
    assert "against fewer iterations: 2 of 3 signs, 2 of 2 clear ones" in told
    assert "against a smaller batch: 1 of 3 signs, 1 of 2 clear ones" in told
    assert "mean error 0.175, measured beyond predicted +0.075" in told
    assert "rank correlation 0.32" in told


SMALL = {"layers": 1, "width": 16, "heads": 2, "rows": 8, "positions": 8, "data": "text"}


def _stated_blocks(subject: Subject, workers: int, repeats: int) -> dict[str, list[float]]:
    """Return times in proportion to samples and parts, which no load of the machine changes."""
    depth = len(subject.network(0).units)
    times = [subject.batch / workers * (1.0 + level) for level in range(1, depth + 1)]
    return {"block_us": times, "operations": times}


@pytest.mark.slow
def test_the_ways_with_levels_alone_are_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spb.design.measure_blocks", _stated_blocks)
    ways = (
        "smaller batch",
        "rotation",
        "rotation, equal time",
        "frozen from the middle",
        "rates by contributors",
        "sharded",
    )
    subject = replace(
        SUBJECTS["sources-gpt"], arguments=SMALL, iterations=20, rates=(0.001,), seeds=2, comparisons=ways
    )
    measure(Design(subject, (2,), repeats=2), tmp_path, False)
    found = {own.way: own for own in judge(Task(subject, 2, 20, "adam"), tmp_path, 1)}
    assert set(found) == set(ways[:4])
    assert all(0 < own.progress < 1 for own in (found["rotation"], found["smaller batch"]))
    assert found["rotation, equal time"].progress > found["rotation"].progress
    # Times are in proportion to samples, so a smaller batch in the time of one that was trained is this one.
    assert found["smaller batch"].smaller == pytest.approx(found["smaller batch"].progress, abs=0.02)
    assert found["smaller batch"].beyond.mean == 0 and isfinite(found["rotation"].beyond.half)
    assert found["frozen from the middle"].end < found["frozen from the middle"].begin == pytest.approx(1)


@pytest.mark.slow
def test_a_short_run_predicts_and_measures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = [f"--argument={name}" for name in ("layers=1", "width=16", "heads=2", "rows=8", "positions=8")]
    counts = ["--workers", "2", "--iterations", "20", "--seeds", "2", "--steps", "best", "--rates", "0.1"]
    main(["sources-gpt", *counts, *sizes, "-o", str(tmp_path / "found.json")])
    found = json.loads((tmp_path / "found.json").read_text())
    assert [row["rule"] for row in found["rows"]] == list(rules(len(found["noise_scale"][0]), 2, 0))
    assert all(0 < row["predicted"] < 1 and 0.3 <= row["measured"] <= 1.3 for row in found["rows"])
    assert capsys.readouterr().out.count("rank correlation") == 1

"""`jigsaw when`: what it prints, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jigsaw_opt.cli import main
from tests.refusals import ends

HEAD = "JobID|State|Submit|Start|End|Elapsed|AllocTRES|ReqTRES|Timelimit|User"


@pytest.fixture
def queue(tmp_path: Path) -> str:
    """Ten jobs of an hour each in the past, one that has run for 20 minutes, and two that wait."""
    past = [
        f"{k}|COMPLETED|2026-01-{k:02}T08:00:00|2026-01-{k:02}T08:00:00|2026-01-{k:02}T09:00:00|01:00:00"
        "|gres/gpu=8|gres/gpu=8|04:00:00|ann"
        for k in range(1, 11)
    ]
    now = (
        "11|RUNNING|2026-01-11T08:40:00|2026-01-11T08:40:00|Unknown|00:20:00|gres/gpu=8|gres/gpu=8|04:00:00|ann",
        "12|PENDING|2026-01-11T08:50:00|Unknown|Unknown|00:00:00||gres/gpu=8|04:00:00|ann",
        "13|PENDING|2026-01-11T09:00:00|Unknown|Unknown|00:00:00||gres/gpu=1|04:00:00|bob",
    )
    path = tmp_path / "sacct.txt"
    path.write_text("\n".join((HEAD, *past, *now, "")))
    return f"slurm:{path}"


def when(*arguments: str) -> int:
    return main(["when", "--cluster", "1x8:a100", "--samples", "9", *arguments])


def test_a_sentence_and_all_figures(queue: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert when(queue, "12") == 0
    told = capsys.readouterr()
    assert told.out == (
        "job 12 starts in 40 min with a probability of 50 %, and in 40 min with 90 % (9 simulations of the queue).\n"
    )
    assert "left out" not in told.err, "all jobs are used"
    assert "fewer than 19" in told.err and "fewer than 20" in told.err
    assert when(queue, "13", "--policy", "fifo", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    now_us = found["now_us"]
    assert now_us == (10 * 24 + 1) * 3_600_000_000
    assert found["intervals_us"] == {"50": [now_us + 6_000_000_000] * 2, "90": [now_us + 6_000_000_000] * 2}
    keys = ("job", "policy", "samples", "not_started", "waiting", "running", "past")
    assert [found[key] for key in keys] == ["13", "fifo", 9, 0, 2, 1, 10]
    assert when(queue, "12", "--at", "2026-01-11T08:55:00", "--no-arrivals") == 0
    assert capsys.readouterr().out.startswith("job 12 starts in 45 min with")


def test_an_array_is_asked_about_and_an_odd_job_stops_nobody(queue: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(queue.partition(":")[2])
    more = (
        "20_[0-3%2]|PENDING|2026-01-11T08:55:00|Unknown|Unknown|00:00:00||gres/gpu=8|04:00:00|ann",
        "21|PENDING|2026-01-11T08:40:00|Unknown|Unknown|00:00:00||gres/gpu:h100=1|04:00:00|ann",
    )
    path.write_text(path.read_text() + "\n".join((*more, "")))
    for name in ("20", "20_[0-3%2]", "20_0"):
        assert when(queue, name) == 0
        told = capsys.readouterr()
        assert told.out.startswith("job 20_0 ") and " 2.667 h " in told.out
        assert (name in told.err and "20_0" in told.err) == (name != "20_0")
    mixed = ["when", "--cluster", "1x8:a100+1x8:v100", "--samples", "9", queue]
    assert main([*mixed, "12"]) == 0
    assert [line for line in capsys.readouterr().err.splitlines() if line.endswith(": 21")]
    ends("2: contradiction job", *mixed, "21")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("99", "unknown-name job"),
        ("11", "contradiction job"),
        ("12 --at noon", "malformed at"),
        ("12 --policy none", "unknown-name policy"),
        ("12 --policy sia", "missing-option performance"),
        ("12 --policy recorded", "unsupported policy"),
        ("12 --samples 0", "out-of-range samples"),
    ],
)
def test_refusals(queue: str, words: str, told: str) -> None:
    ends(f"2: {told}", "when", "--cluster", "1x8:a100", "--samples", 9, queue, *words.split())


def test_a_queue_without_time_limits_says_what_to_do(queue: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(queue.partition(":")[2])
    path.write_text(path.read_text().replace("04:00:00", ""))
    assert when(queue, "12") == 2
    assert "backfill:default_limit=24" in capsys.readouterr().err
    assert when(queue, "12", "--policy", "backfill:default_limit=24") == 0

"""Slurm's accounting in local times, whose clocks change twice a year."""

from __future__ import annotations

import random
from datetime import datetime, timedelta

import pytest

from jigsaw_opt.documents.readers.traces.registry import read_trace
from jigsaw_opt.simulation.engine.recorded import why_no_record


@pytest.mark.parametrize(("column", "cell"), [("Comment", ""), ("Suspended", "00:00:17")])
def test_a_suspended_job_over_the_change_of_the_clocks_ends_when_it_ended(column: str, cell: str) -> None:
    head = f"JobID|State|Submit|Start|End|Elapsed|AllocTRES|{column}"
    suspended = f"1|COMPLETED|2024-03-31T01:50:00|2024-03-31T01:59:00|2024-03-31T03:00:17|00:01:00|gres/gpu=1|{cell}"
    other = "2|COMPLETED|2024-03-31T01:50:00|2024-03-31T01:59:30|2024-03-31T03:00:10|00:00:40|gres/gpu=1|"
    jobs = {job.name: job for job in read_trace("slurm", f"{head}\n{suspended}\n{other}\n", "t").jobs}
    assert (jobs["1"].end_us or 0) - (jobs["1"].start_us or 0) == 77_000_000
    assert (jobs["2"].end_us or 0) - (jobs["2"].start_us or 0) == 40_000_000
    (alone,) = read_trace("slurm", f"{head}\n{suspended}\n", "t").jobs
    assert (alone.end_us or 0) - (alone.start_us or 0) == (77_000_000 if cell else 3_677_000_000)


@pytest.mark.parametrize("step_s", [3600, 1800])
def test_a_year_of_local_times_with_both_changes_of_the_clocks(step_s: int) -> None:
    spring, autumn = datetime(2024, 3, 31, 1), datetime(2024, 10, 27, 1)

    def local(moment: datetime) -> datetime:
        return moment + timedelta(seconds=step_s if spring <= moment < autumn else 0)

    draw = random.Random(2)
    held: dict[str, tuple[int, int]] = {}
    lines = {clock: ["JobID|State|Submit|Start|End|Elapsed|AllocTRES"] for clock in (lambda moment: moment, local)}
    for number in range(400):
        lasted = draw.choice([0, 5, 1799, 1800, 3599, 3600, 5400, 7200, 20_000, 200_000])
        start = (spring, autumn)[number % 2] + timedelta(
            seconds=draw.randint(-10_800, 10_800) - draw.randint(0, lasted)
        )
        moments = (
            start - timedelta(seconds=draw.choice([0, 1, 600, 20_000])),
            start,
            start + timedelta(seconds=lasted),
        )
        gpus, elapsed = draw.choice([1, 2, 8]), f"{lasted // 3600 % 24:02}:{lasted // 60 % 60:02}:{lasted % 60:02}"
        elapsed = f"{lasted // 86_400}-{elapsed}" if lasted >= 86_400 else elapsed
        held[str(number)] = gpus, lasted
        for clock, text in lines.items():
            told = "|".join(clock(moment).isoformat() for moment in moments)
            text.append(f"{number}|COMPLETED|{told}|{elapsed}|gres/gpu={gpus}")
    in_utc, in_local = (read_trace("slurm", "\n".join(text), "t") for text in lines.values())
    for workload in (in_utc, in_local):
        assert why_no_record(workload) is None and workload.left_out == {}
        assert {
            job.name: (job.gpus, ((job.end_us or 0) - (job.start_us or 0)) // 10**6) for job in workload.jobs
        } == held
    assert in_utc.remarks == {}
    assert any("change of the clocks" in remark for remark in in_local.remarks)

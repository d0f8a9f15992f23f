"""The record of a trace is told as the trace has it."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import pytest

from jigsaw_opt.cli import main
from jigsaw_opt.problem.workload import TraceJob, Workload
from jigsaw_opt.simulation.engine.recorded import most_gpus, simulation_of
from jigsaw_opt.simulation.inputs.reading import read_setting
from jigsaw_opt.simulation.simulate import simulate
from tests.refusals import carries, misuse, refuses

HOUR = 3_600_000_000
JOBS = (
    TraceJob("a", 0, "seconds", 4, 7200, start_us=HOUR, end_us=3 * HOUR),
    TraceJob("b", HOUR, "seconds", 2, 3600, start_us=2 * HOUR, end_us=3 * HOUR),
    TraceJob("c", 2 * HOUR, "seconds", 8, 3600, start_us=5 * HOUR, end_us=6 * HOUR),
)


def test_measures_are_those_of_the_record() -> None:
    result = simulate(Workload("w", JOBS), "1x8:v100", "recorded")
    summary = result.summary
    assert (summary.mean_completion_h, summary.mean_waiting_h, summary.makespan_h) == (3.0, 5 / 3, 6.0)
    assert (summary.gpu_hours, summary.utilisation, summary.rounds, summary.restarts) == (18.0, 18 / 48, 0, 0)
    assert [record.crowd for record in result.outcome.jobs] == [2.0, 2.5, 1.5]
    assert result.finished and most_gpus(result.setting.workload) == 8


def test_a_record_stops_where_it_is_told_to() -> None:
    result = simulate(Workload("w", JOBS), "1x8:v100", "recorded", until_us=5 * HOUR // 2)
    assert [(record.start_us, record.finish_us) for record in result.outcome.jobs] == [
        (HOUR, None),
        (2 * HOUR, None),
        (None, None),
    ]
    assert result.summary.gpu_hours == 4 * 1.5 + 2 * 0.5 and not result.finished


def test_a_trace_without_a_record_has_none() -> None:
    jobs = (*JOBS, TraceJob("d", 0, "seconds", 1, 5, start_us=3))
    with misuse("unsupported policy", naming=["1 job", "'d'"]):
        simulate(Workload("w", jobs), "1x8:v100", "recorded")


def test_recorded_times_that_cannot_be_are_told_with_their_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = (TraceJob("early", 5, "seconds", 1, 5, start_us=3, end_us=9),)
    with refuses("unsupported workload $.jobs[0]", naming=["'early'"]):
        simulate(Workload("w", jobs), "1x8:v100", "recorded")
    with refuses("contradiction $.jobs[0]"):
        simulation_of(read_setting(Workload("w", jobs), "1x8:v100", "fifo").under("recorded"))
    trace = tmp_path / "w.csv"
    trace.write_text("name,submit_s,gpus,duration_s,start_s,end_s\na,5,1,5,3,2\nb,5,1,5,5,10\nc,5,1,5,9,8\n")
    words = ["simulate", "--workload", str(trace), "--cluster", "1x8", "-o", str(tmp_path / "out"), "--policy"]
    assert main([*words, "recorded"]) == 3
    told = capsys.readouterr().err
    assert carries(told, "w.csv:2", "'a'") and carries(told, "w.csv:2", "'a'")
    assert carries(told, "w.csv:4", "'c'") and not (tmp_path / "out").exists()
    assert main([*words, "fifo", "-q"]) == 0


def test_the_record_of_alibaba_s_pods_equals_its_columns() -> None:
    shared = Path(os.environ.get("JIGSAW_SHARED", Path(__file__).parents[3] / "shared"))
    path = shared / "data" / "cluster" / "alibaba" / "openb_pod_list_default.csv"
    if not path.exists():
        pytest.skip(f"there is no {path}")
    with path.open() as lines:
        rows = [row for row in csv.DictReader(lines) if int(row["num_gpu"]) and row["scheduled_time"]]
    times = [(int(row["creation_time"]), int(row["scheduled_time"]), int(row["deletion_time"])) for row in rows]
    result = simulate(f"alibaba:{path}", "1300x8:g", "recorded")
    ended = {record.index: record for record in result.outcome.jobs}
    assert sorted((ended[k].start_us, ended[k].finish_us) for k in ended) == sorted(
        (start * 10**6, end * 10**6) for _, start, end in times
    )
    assert result.summary.mean_waiting_h == pytest.approx(sum(s - c for c, s, _ in times) / 3600 / len(times))
    assert result.summary.mean_completion_h == pytest.approx(sum(e - c for c, _, e in times) / 3600 / len(times))

"""One call simulates, of objects or of the words of the command line, also the record of a trace as it stands."""

from __future__ import annotations

import csv
import os
import sys
import threading
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from jigsaw_opt import Cluster, InvalidInputError, Server, TraceJob, UsageError, Workload, simulate
from jigsaw_opt.cli import main
from jigsaw_opt.errors import MissingEngineError
from jigsaw_opt.instances import load
from jigsaw_opt.problem.network.contention import Degraded
from jigsaw_opt.problem.rules.keyed import trusted
from jigsaw_opt.problem.workload import job_problems
from jigsaw_opt.scheduling.performance.profiled import Profiled
from jigsaw_opt.scheduling.performance.seconds import Seconds
from jigsaw_opt.scheduling.policies.las import LAS
from jigsaw_opt.simulation.engine.outages import Failures, RandomEvents
from jigsaw_opt.simulation.engine.recorded import most_gpus, simulation_of
from jigsaw_opt.simulation.inputs.cluster_files import grid
from tests.documents.test_traces import encode_workload
from tests.refusals import carries, misuse, refuses
from tests.simulation.asked import setting_of

SECOND = 1_000_000
WORKLOAD = Workload(
    "three",
    (
        TraceJob("a", 0, "seconds", 2, 100),
        TraceJob("b", 9 * SECOND, "seconds", 1, 50),
        TraceJob("c", 30 * SECOND, "seconds", 1, 50),
    ),
)


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = tmp_path / "trace.csv"
    path.write_text(encode_workload(WORKLOAD))
    return str(path)


def test_objects_and_words_mix_and_give_the_same(trace: str) -> None:
    cluster = grid("2x2")
    assert cluster is not None
    failures = Failures(RandomEvents(3600 * SECOND, 60 * SECOND, None, 3), 600 * SECOND)
    words = simulate(
        trace, "2x2", "las", performance="seconds", contention="degraded:0.2", failures="mtbf=1,mttr=0.016666666666667",
        seed=3,
    )  # fmt: skip
    objects: dict[str, Any] = {"contention": Degraded(Fraction(1, 5)), "failures": failures, "seed": 3}
    for performance in (Seconds(), lambda _cluster: Seconds()):
        found = simulate(WORKLOAD, cluster, LAS, performance=performance, **objects)
        assert found.jobs == words.jobs
        assert found.setting.words["policy"] == "las" and found.setting.words["cluster"] == "2 servers, 4 GPUs"
    assert simulate(WORKLOAD, "2x2", LAS, **objects).jobs == words.jobs


def test_it_ends_at_a_time_or_when_it_is_cancelled(trace: str) -> None:
    early = simulate(trace, "1x2", "fifo", round_s=1, restart_s=0, until_us=20 * SECOND)
    assert not early.finished
    assert (early.summary.jobs, early.summary.unfinished) == (2, 2)
    cancel = threading.Event()
    cancel.set()
    none = simulate(trace, "1x2", "fifo", cancel=cancel)
    assert not none.finished and none.outcome.jobs == [] and len(none.jobs) == 0


def test_a_cluster_may_be_an_instance(trace: str) -> None:
    mine = load("server/plain")
    found = simulate(trace, mine, "fifo", draw_models=True)
    assert found.setting.cluster == mine.cluster and isinstance(found.setting.performance, Profiled)
    named = simulate(Path(trace), "server/plain", "fifo", draw_models=True)
    assert found.jobs == named.jobs and found.setting.inputs() == named.setting.inputs()


def test_jobs_and_rounds_are_tables(trace: str) -> None:
    found = simulate(trace, "1x2", "fifo", round_s=0, restart_s=0)
    assert found.jobs["name"] == ("a", "b", "c") and found.jobs["finish_s"] == (100.0, 150.0, 150.0)
    assert [row["gpus"] for row in found.jobs] == [2, 1, 1]
    early = simulate(trace, "1x2", "fifo", round_s=0, restart_s=0, until_us=20 * SECOND)
    assert early.jobs["start_s"] == (0.0, None)
    assert found.rounds["time_s"] == tuple(one.time_us / SECOND for one in found.outcome.rounds)
    with misuse("unknown-name", naming=["'nam'", "'name'"]):
        found.jobs["nam"]


def test_a_table_is_a_frame_of_pandas(trace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = simulate(trace, "1x2", "fifo", round_s=0, restart_s=0).jobs
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingEngineError, match="pip install 'pandas'") as caught:
        table.to_pandas()
    assert caught.value.exit_code == 6
    monkeypatch.undo()
    pytest.importorskip("pandas", reason="pandas is not installed")
    frame = table.to_pandas()
    assert tuple(frame.columns) == table.columns and frame["finish_s"].max() == 150.0


def test_all_problems_come_at_once(trace: str) -> None:
    with pytest.raises(UsageError) as caught:
        simulate(trace, "1x2", "fifo", round_s=-1, seed=-1, too_wide="narrow")
    assert [problem.path for problem in caught.value.problems] == ["round_s", "seed", "too_wide"]
    wrong: Any = {"workload": 1, "cluster": "1x2", "policy": 1, "round_s": "x", "seed": 1.5, "sed": 1}
    with pytest.raises(UsageError) as caught:
        simulate(**wrong)
    assert caught.value.args == (
        "there is no option 'sed'; did you mean 'seed'?",
        "workload is text, a Path or a Workload, not 1",
        "policy is text or a Policy, not 1",
        "round_s is a number, not 'x'",
        "seed is a whole number, not 1.5",
    )


def test_without_a_cluster_other_words_are_still_read() -> None:
    with pytest.raises(UsageError) as caught:
        simulate(WORKLOAD, "2x4xa", "fifo", performance="nope", contention="bla", failures="mtbf=1,mttr=x")
    told = [str(wrong).partition(":")[0] for wrong in caught.value.args]
    assert told == ["cluster", "contention", "failures", "performance"]


def test_what_is_wrong_with_objects_is_told_with_its_path() -> None:
    jobs = (TraceJob("a", 0, "seconds", 9, 1), TraceJob("a", 0, "seconds", 0, 1), TraceJob("b", 1, "seconds", 1))
    paths = ("policy", *(f"workload $.jobs{path}" for path in ("[0]", "[1].gpus", "[1].name", "[2]")))
    with pytest.raises(InvalidInputError) as caught:
        simulate(Workload("w", jobs), Cluster((Server("s", "gpu", 4, 1, 1),)), "nobody")
    assert tuple(problem.path for problem in caught.value.problems) == paths
    with refuses("empty workload $.jobs[0].gpu_types"):
        simulate(Workload("w", (TraceJob("c", 0, "seconds", 1, 1, gpu_types=()),)), "1x1", "fifo")
    with refuses("empty workload $.jobs"):
        simulate(Workload("w", ()), "1x1", "fifo")
    with misuse("out-of-range cluster"):
        simulate(WORKLOAD, trusted(Cluster, servers=()), "fifo")
    other = Profiled(load("server/plain").cluster, load("server/plain").models)
    with misuse("mismatch performance"):
        simulate(WORKLOAD, "1x2", "fifo", performance=other)


def test_jobs_without_an_order_are_refused_with_all_that_is_wrong() -> None:
    wrong: Any = (TraceJob("a", 0, "m", 0), 3, TraceJob("b", "soon", "m", 1))  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError) as caught:
        Workload("w", wrong)
    assert [problem.path for problem in caught.value.problems] == ["$.jobs[0].gpus", "$.jobs[1]", "$.jobs[2].submit_us"]
    with refuses("wrong-type $.jobs"):
        Workload("w", None)  # type: ignore[arg-type]


def test_integers_of_numpy_are_integers() -> None:
    numpy = pytest.importorskip("numpy")
    job = TraceJob("a", numpy.int64(5), "m", numpy.int32(2), numpy.int64(7))
    assert job == TraceJob("a", 5, "m", 2, 7) and type(job.submit_us) is type(job.gpus) is int
    assert not [*job_problems(job)]
    flag: Any = numpy.bool_(True)
    for value in (True, flag, 2.0):
        assert [problem.path for problem in job_problems(TraceJob("a", 5, "m", value))] == ["gpus"]


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
        simulation_of(setting_of(Workload("w", jobs), "1x8:v100", "fifo").under("recorded"))
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

"""Jobs that wait for others, and each measure against its definition, on figures worked out by hand."""

from __future__ import annotations

import csv
import io
import json
import random
from dataclasses import replace
from itertools import accumulate, pairwise
from pathlib import Path

import pytest

from jigsaw_opt.cli import main
from jigsaw_opt.problem.workload import TraceJob, Workload
from jigsaw_opt.scheduling.policies.fifo import FIFO
from jigsaw_opt.scheduling.policies.srtf import SRTF
from jigsaw_opt.simulation.engine.simulation import Simulation
from jigsaw_opt.simulation.results.metrics import fairness, median, quantile, summarise
from jigsaw_opt.simulation.results.result import job_times, jobs_csv, rounds_csv, summary_json
from tests.documents.test_traces import decode_workload
from tests.refusals import carries, refuses
from tests.simulation.asked import setting_of
from tests.simulation.cases import SECOND, finish_s, job, random_jobs, run, setting


def constrained_jobs(seed: int, count: int) -> tuple[TraceJob, ...]:
    """Random jobs, some after up to two others, also later ones of the file, and some of two arrays with limits."""
    draw = random.Random(seed)
    jobs = sorted(random_jobs(seed, count), key=lambda one: one.submit_us)
    order = draw.sample(range(count), count)
    found = []
    for place, (k, one) in enumerate(sorted(zip(order, jobs, strict=True))):
        before = [jobs[other].name for rank, other in enumerate(draw.sample(range(count), 2)) if order[other] < k]
        kind = draw.randrange(3)
        if kind == 0 and before:
            one = replace(one, after=tuple(before))
        elif kind == 1:
            one = replace(one, array=f"array{place % 2}", array_limit=1 + place % 2)
        found.append(one)
    return tuple(sorted(found, key=lambda one: one.submit_us))


def test_a_job_arrives_when_those_before_it_have_ended() -> None:
    jobs = (
        job("a", 0, 1, 100),
        replace(job("b", 1, 1, 50), after=("a", "gone")),
        replace(job("c", 2, 1, 10), after=("b", "d")),
        job("d", 3, 1, 500),
    )
    made = setting(*jobs, round_us=0)
    outcome = run(made, FIFO)
    assert finish_s(outcome) == [100, 150, 513, 503]
    assert [record.start_us for record in outcome.jobs] == [0, 100 * SECOND, 503 * SECOND, 3 * SECOND]
    assert summarise(made, outcome).mean_waiting_h == pytest.approx((99 + 501) / 4 / 3600)


def test_only_so_many_tasks_of_an_array_are_there() -> None:
    tasks = [replace(job(f"7_{k}", 0, 1, 60), array="7", array_limit=2) for k in range(5)]
    after = replace(job("8", 0, 1, 1), after=("7",))
    assert finish_s(run(setting(*tasks, after, round_us=0), FIFO)) == [60, 60, 120, 120, 180, 181]


@pytest.mark.parametrize("policy", ["fifo", "las", "srtf", "sjf_bco"])
@pytest.mark.parametrize("seed", range(5))
def test_every_order_and_limit_is_kept_and_a_simulation_can_be_put_aside(policy: str, seed: int) -> None:
    jobs = constrained_jobs(seed, 60)
    made = setting(*jobs, restart_s=5).under(policy)
    whole, first, second = (Simulation(made) for _ in range(3))
    whole.run()
    outcome = whole.close()
    times = {jobs[one.index].name: (one.start_us, one.finish_us) for one in outcome.jobs}
    assert len(times) == 60
    for one in jobs:
        assert all(times[one.name][0] >= times[name][1] for name in one.after or ())
    for array, most in (("array0", 1), ("array1", 2)):
        of = [times[one.name] for one in jobs if one.array == array]
        events = sorted([(start, 1) for start, _ in of] + [(finish, -1) for _, finish in of])
        assert max(accumulate(change for _, change in events)) <= most
    first.run(until_us=2_000 * SECOND)
    assert first.state()["held"]
    second.restore(first.state())
    second.run()
    assert second.close().jobs == outcome.jobs


def test_a_state_with_a_job_before_its_time_is_refused() -> None:
    made = setting(job("a", 0, 1, 100), replace(job("b", 1, 1, 50), after=("a",)), round_us=0).under(FIFO)
    simulation = Simulation(made)
    simulation.run(until_us=2 * SECOND)
    state = simulation.state()
    assert state["held"] == [[1, 1 * SECOND]]
    active = {**state["active"][0], "job": 1, "done": 0, "gpu_us": 0, "run_us": 0, "starts": 0}
    forged = {**state, "held": [], "active": [*state["active"], active]}
    forged["lives"] = [*state["lives"], {"crowd_before": 0, "start_us": None}]
    with refuses("contradiction $.active", naming=["'b'"]):
        Simulation(made).restore(forged)
    with refuses("contradiction $.active"):
        Simulation(made).restore({**state, "held": [[0, 0]]})


def test_jobs_that_wait_for_each_other_are_named() -> None:
    ring = [replace(job(name, 0, 1, 1), after=(before,)) for before, name in pairwise("abca")]
    free, behind = job("free", 0, 1, 1), replace(job("behind", 0, 1, 1), after=("a",))
    with refuses("cycle $.jobs"):
        Simulation(setting(behind, free, ring[2], ring[1], ring[0]).under(FIFO))


def test_reading_tells_of_jobs_that_are_not_there() -> None:
    text = "name,submit_s,gpus,duration_s,after,array,array_limit\na,0,1,5,x,,\nb,0,1,5,a|7,,\n7_1,0,1,5,,7,1\n"
    workload: Workload = decode_workload(text)
    made = setting_of(workload, "1x4", "fifo", round_s=0, restart_s=0)
    assert made.workload.remarks == {
        "jobs after others that the workload does not have, which are taken to have ended": 1
    }
    assert finish_s(run(made, FIFO)) == [5, 10, 5]


HOUR = 3600


def test_two_jobs_one_after_the_other() -> None:
    second = replace(job("b", 0, 8, 2 * HOUR), weight=3)
    made = setting(job("a", 0, 8, HOUR), second, restart_s=0)
    outcome = run(made, FIFO)
    summary = summarise(made, outcome)
    assert summary.mean_completion_h == 2.0
    assert summary.median_completion_h == 2.0
    assert summary.p99_completion_h == 3.0
    assert summary.weighted_completion_h == (1 + 3 * 3) / 4
    assert (summary.mean_waiting_h, summary.median_waiting_h, summary.p99_waiting_h) == (0.5, 0.5, 1.0)
    assert (summary.longest_waiting_h, summary.longest_waiting_gpus) == (1.0, 8)
    assert summary.makespan_h == 3.0
    assert (summary.gpu_hours, summary.mean_gpu_hours) == (24.0, 12.0)
    assert summary.utilisation == 1.0
    assert summary.cluster_efficiency == 1.0
    assert (summary.jobs, summary.unfinished, summary.restarts, summary.rounds) == (2, 0, 0, 2)
    # Two jobs share 8 GPUs in the life of the first, so its fair time is two hours; 4/3 jobs in the life of the second.
    assert [fairness(made, record) for record in outcome.jobs] == pytest.approx([1 / 2, 3 / (2 * 4 / 3)])
    assert summary.unfair_share == 0.5


def test_the_longest_wait_may_be_that_of_a_job_that_never_starts() -> None:
    made = setting(job("a", 0, 4, 5 * HOUR), job("starves", HOUR, 8, 20 * HOUR), job("b", HOUR, 4, HOUR), restart_s=0)
    simulation = Simulation(made.under(SRTF))
    simulation.run(until_us=4 * HOUR * SECOND)
    summary = summarise(made, simulation.close())
    assert (summary.longest_waiting_h, summary.longest_waiting_gpus, summary.p99_waiting_h) == (3.0, 8, 0.0)


def test_restarts_take_gpus_but_do_no_work() -> None:
    made = setting(job("a", 0, 8, 300), restart_s=100)
    summary = summarise(made, run(made, FIFO))
    assert summary.utilisation == 1.0
    assert summary.cluster_efficiency == pytest.approx(300 / 400)


def test_jobs_that_have_not_ended_count_for_efficiency_alone() -> None:
    made = setting(job("a", 0, 4, HOUR), restart_s=0)
    simulation = Simulation(made.under(FIFO, placement="packed"))
    simulation.run(until_us=1800 * SECOND)
    summary = summarise(made, simulation.close())
    assert summary.unfinished == 1
    assert summary.mean_completion_h is summary.worst_fairness is None
    assert summary.cluster_efficiency == 0.5


def test_quantiles_are_values_that_occur_and_a_median_may_lie_between_two() -> None:
    found = [quantile([4, 1, 3, 2], share) for share in (0.5, 0.75, 0.76, 0.99, 1.0)]
    assert (found, quantile([], 0.5)) == ([2, 3, 4, 4, 4], None)
    assert (median([4, 1, 3, 2]), median([3, 1, 2]), median([])) == (2.5, 2, None)


def test_tables_hold_every_job_and_every_round() -> None:
    made = setting(job('a,"b"', 0, 4, 90), job("c", 30, 8, 60), restart_s=30)
    outcome = run(made, FIFO)
    rows = list(csv.DictReader(io.StringIO(jobs_csv(made, outcome))))
    assert [row["name"] for row in rows] == ['a,"b"', "c"]
    assert [row["finish_s"] for row in rows] == ["120.000000", "210.000000"]
    assert [row["completion_s"] for row in rows] == ["120.000000", "180.000000"]
    rounds = list(csv.DictReader(io.StringIO(rounds_csv(outcome))))
    assert [(row["time_s"], row["waiting"], row["gpus"], row["moved"]) for row in rounds] == [
        ("0.000000", "0", "4", "1"),
        ("60.000000", "1", "4", "0"),
        ("120.000000", "0", "8", "1"),
    ]
    document = json.loads(summary_json(made.under("fifo"), summarise(made, outcome), outcome))
    assert document["policy"] == "fifo"
    assert document["jobs"] == 2


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    trace, out = tmp_path / "trace.csv", tmp_path / "out"
    trace.write_text("name,submit_s,model,gpus,iterations\na,0,m,8,200\n=b,60,m,8,10\nc,60,m,1,5\nd,120,m,4,20\n")
    arguments = ["--workload", str(trace), "--cluster", "2x4", "--policy", "srtf", "--round", "60", "--restart", "30"]
    assert main(["simulate", *arguments, "-o", str(out)]) == 0
    return out


def test_times_add_up(folder: Path) -> None:
    times = {times.job: times for times in job_times(folder)}
    with (folder / "jobs.csv").open(newline="") as file:
        completion = {row["name"].lstrip("'"): float(row["completion_s"]) for row in csv.DictReader(file)}
    assert {job: time.completion_us / SECOND for job, time in times.items()} == completion
    # The long one is put aside for the others, and starts anew behind them.
    assert times["a"].queued_us == 0 and times["a"].paused_us > 0
    assert times["a"].slower_us == 30 * SECOND * (1 + times["a"].restarts)
    assert sum(time.queued_us for time in times.values()) > 0


def test_the_command_tells_them(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["explain", str(folder), "c", "--json"]) == 0
    (job,) = json.loads(capsys.readouterr().out)["jobs"]
    assert job["job"] == "c" and job["alone_us"] == 5 * SECOND
    assert job["completion_us"] == job["queued_us"] + job["running_us"] + job["paused_us"]
    assert main(["explain", str(folder)]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[:2]] == ["job", "a"]
    assert main(["explain", str(folder), "e"]) == 2
    assert "ended: a, =b, c, d" in capsys.readouterr().err
    assert main(["explain", str(folder), "=bb"]) == 2
    assert carries(capsys.readouterr().err, "mean", "'=b'")
    assert main(["explain", str(folder), "a", "b"]) == 2
    assert main(["explain", "rack/plain"]) == 2
    assert carries(capsys.readouterr().err, "plan", "missing")


def test_a_table_that_is_wrong_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = folder / "jobs.csv"
    text = table.read_text()
    capsys.readouterr()
    table.write_text(text.replace("held_s", "held"))
    assert main(["explain", str(folder)]) == 3
    assert carries(capsys.readouterr().err, "column", "'held_s'")
    head, first, *rest = text.splitlines()
    cells = dict(zip(head.split(","), first.split(","), strict=True))
    wrong = first.replace(f"{cells['gpu_s']},{cells['held_s']}", f"{cells['gpu_s']},1{cells['held_s']}")
    assert wrong != first
    table.write_text("\n".join([head, wrong, *rest]))
    assert main(["explain", str(folder)]) == 3
    assert carries(capsys.readouterr().err, "times", "cannot")

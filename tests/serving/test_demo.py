"""The demonstration plays a trace into a service: jobs come, run, end and come again, and servers are out of use."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

from jigsaw_opt.instances.sources import workload_from
from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling import LiveScheduler
from jigsaw_opt.scheduling.performance.kinds import performance_for
from jigsaw_opt.simulation.inputs.cluster_files import read_cluster
from tests.serving.services import START_US, HandClock, served, submit

from jigsaw_opt.serving.demo import CLUSTER, WORKLOAD, FastClock, TracePlayer, jobs_for, models_for  # isort: skip

HOUR_US = 3_600_000_000


def test_jobs_come_run_end_and_come_again(tmp_path: Path) -> None:
    clock = HandClock()
    trace = [TraceJob("a", 0, "m", 4, 1000), TraceJob("wide", 0, "m", 9, 1000), TraceJob("b", 10, "m", 8, 3000)]
    with served(tmp_path, clock=clock) as found:
        player = TracePlayer(found.service, trace)
        stories: dict[str, list[str]] = {}
        found.post(submit("mine", 2))
        for minute in range(0, 150, 2):
            clock.now_us = START_US + minute * 60_000_000
            player.tick()
            while found.service._is_due or found.service.board.head[1] != found.service.sequence:
                threading.Event().wait(0.002)
        for name in ("a", "b", "a.1", "mine"):
            told = found.get(f"/v1/jobs/{name}")
            stories[name] = [row["what"] for row in told["story"] if row["what"] not in ("progress", "move")]
            assert any(row["what"] == "progress" and row["who"] == "demo" for row in told["story"])
        assert stories == {name: ["submit", "start", "finish"] for name in stories}
        found.get("/v1/jobs/wide", 404)
        assert max(found.get("/v1/usage")["in_use"]) == 8


def test_a_server_is_out_of_use_now_and_then(tmp_path: Path) -> None:
    clock = HandClock()
    with served(tmp_path, clock=clock) as found:
        player, states = TracePlayer(found.service, [TraceJob("a", 0, "m", 1, 10**9)]), []
        for hour in range(9):
            clock.now_us = START_US + hour * HOUR_US
            player.tick()
            states.append([server["state"] for server in found.get("/v1/cluster")["servers"]])
    up = ["up", "up"]
    assert states == [up, up, ["drained", "up"], up, up, ["up", "down"], up, up, ["cordoned", "up"]]


def test_drawn_models_keep_the_durations_of_the_trace() -> None:
    cluster, _ = read_cluster(CLUSTER)
    models = models_for(cluster)
    live = LiveScheduler(cluster, "fifo", performance=lambda found: performance_for("", found, models, ""))
    jobs, alone_us = jobs_for(live), live.read(lambda state: state.setting.performance.alone_us)
    durations_us = {job.name: 1_000_000 * (job.iterations or 0) for job in workload_from(WORKLOAD).jobs}
    wrong = [job for job in jobs if abs(alone_us(job) - durations_us[job.name]) > alone_us(replace(job, iterations=1))]
    assert wrong == [] and len(jobs) > 100 and {job.model for job in jobs} == set(models or ())


def test_the_clock_goes_faster_and_never_back() -> None:
    clock = FastClock(1_000_000)
    times = [clock() for _ in range(100)]
    assert times == sorted(times) and times[-1] - times[0] > 1000

"""A request simulated by one call, as the command line does it in steps."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jigsaw_opt import InvalidInputError, SimulationRequest, UsageError, simulate
from jigsaw_opt.instances import load
from jigsaw_opt.simulation.metrics import summarise
from jigsaw_opt.simulation.request import prepare


@pytest.fixture
def request_(tmp_path: Path) -> SimulationRequest:
    path = tmp_path / "trace.csv"
    path.write_text("name,submit_s,model,gpus,iterations\na,0,m,2,100\nb,9,m,1,50\nc,30,m,1,50\n")
    return SimulationRequest(str(path), "1x2", "fifo", round_s=1, restart_s=0)


def test_the_result_is_that_of_the_steps(request_: SimulationRequest) -> None:
    found = simulate(request_)
    prepared = prepare(request_)
    simulation = prepared.start()
    simulation.run()
    outcome = simulation.close()
    assert found.finished and found.outcome.jobs == outcome.jobs
    assert found.summary.makespan_h == summarise(prepared.setting, outcome).makespan_h
    assert found.setting.gpu_count == 2


def test_it_ends_at_a_time_or_when_it_is_cancelled(request_: SimulationRequest) -> None:
    early = simulate(request_, until_us=20_000_000)
    assert not early.finished
    assert (early.summary.jobs, early.summary.unfinished) == (2, 2)
    cancel = threading.Event()
    cancel.set()
    none = simulate(request_, cancel=cancel)
    assert not none.finished and none.outcome.jobs == []


def test_a_cluster_may_be_an_instance_of_the_caller(request_: SimulationRequest) -> None:
    mine = load("server/plain")
    named = SimulationRequest(request_.workload, "mine", "fifo", draw_models=True)
    assert simulate(named, instances={"mine": mine}).setting.cluster == mine.cluster
    with pytest.raises(InvalidInputError, match="mine"):
        simulate(named)


def test_all_problems_of_a_request_come_at_once(request_: SimulationRequest) -> None:
    with pytest.raises(UsageError) as caught:
        simulate(SimulationRequest(request_.workload, "1x2", "fifoo", round_s=-1, seed=-1))
    assert len(caught.value.args) == 3


def test_words_that_are_none_are_all_told(request_: SimulationRequest) -> None:
    wrong: Any = {"workload": Path("day"), "cluster": prepare(request_).setting.cluster, "round_s": "x", "seed": 1.5}
    with pytest.raises(UsageError) as caught:
        simulate(replace(request_, **wrong))
    assert caught.value.args == (
        "workload is text, not a PosixPath",
        "cluster is text, not a Cluster",
        "round_s is a number, not 'x'",
        "seed is a whole number, not 1.5",
    )

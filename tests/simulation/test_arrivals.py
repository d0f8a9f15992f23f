"""Jobs that wait for others, and arrays of which only so many tasks run at a time."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest

from jigsaw_opt.problem.workload import TraceJob, Workload
from jigsaw_opt.scheduling.policy import find
from jigsaw_opt.simulation.engine.simulation import Simulation
from jigsaw_opt.simulation.inputs.reading import read_setting
from jigsaw_opt.simulation.results.metrics import summarise
from tests.documents.test_traces import decode_workload
from tests.refusals import refuses
from tests.simulation.cases import SECOND, finish_s, job, random_jobs, run, setting

FIFO = find("fifo")


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
    whole = Simulation(made)
    whole.run()
    outcome = whole.close()
    records = {jobs[record.index].name: record for record in outcome.jobs}
    assert len(records) == 60
    for one in jobs:
        start_us = records[one.name].start_us
        assert start_us is not None
        assert all(start_us >= (records[name].finish_us or 0) for name in one.after or ())
    for array in ("array0", "array1"):
        of = [one for one in jobs if one.array == array]
        events = [(records[one.name].start_us or 0, 1) for one in of]
        events += [(records[one.name].finish_us or 0, -1) for one in of]
        running = Counter[str]()
        for _, change in sorted(events):
            running[array] += change
            assert running[array] <= 1 + int(array[-1])
    first, second = Simulation(made), Simulation(made)
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
    made = read_setting(workload, "1x4", "fifo", round_s=0, restart_s=0)
    assert made.workload.remarks == {
        "jobs after others that the workload does not have, which are taken to have ended": 1
    }
    assert finish_s(run(made, FIFO)) == [5, 10, 5]

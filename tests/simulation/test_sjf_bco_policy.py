"""SJF-BCO over time: who starts when, where, and how contention reaches the rates."""

from __future__ import annotations

from jigsaw_opt.problem.cluster import Server
from jigsaw_opt.scheduling.policies.sjf_bco import SJF_BCO
from jigsaw_opt.simulation.engine.simulation import Simulation
from tests.simulation.cases import SECOND, finish_s, job, run, setting

SERVERS = [Server(f"s{k}", "gpu", 4, 10**9, 10**9) for k in range(3)]


def started(*jobs, **options: str) -> dict[int, tuple[int, ...]]:  # type: ignore[no-untyped-def]
    """GPUs of the jobs that run after the first decision, on 2 x 4 GPUs."""
    simulation = Simulation(setting(*jobs).under(SJF_BCO, **options))
    simulation.run(until_us=0)
    return {index: running.active.share.gpus for index, running in simulation._under_way.running.items()}


def test_smaller_jobs_start_first_and_one_that_waits_holds_those_behind_it() -> None:
    made = setting(job("big", 0, 8, 10), job("half", 0, 4, 100), job("half2", 0, 3, 50), job("small", 0, 2, 10))
    # 2 and 3 GPUs start; 4 do not fit beside them until 60 s, and 8 wait for all.
    assert finish_s(run(made, SJF_BCO)) == [180 + 10, 60 + 100, 50, 10]


def test_as_meant_small_jobs_pack_and_large_ones_go_where_there_is_least() -> None:
    jobs = (job("a", 0, 1, 10), job("b", 0, 2, 10), job("c", 0, 4, 10))
    assert started(*jobs, threshold="2") == {0: (0,), 1: (1, 2), 2: (4, 5, 6, 7)}
    assert started(*jobs[:2], threshold="1") == {0: (0,), 1: (4, 5)}


def test_as_printed_the_load_of_ended_jobs_stays() -> None:
    # The second job finds all GPUs free: as printed it goes where nothing ever ran.
    for submit_s in (60, 120):  # at 120 s it has been alone in the cluster since the other ended
        made = setting(job("a", 0, 2, 10), job("b", submit_s, 2, 10))
        for variant, gpus in (("intent", (0, 1)), ("literal", (2, 3))):
            simulation = Simulation(made.under(SJF_BCO, variant=variant, threshold="8", spread="1"))
            simulation.run(until_us=submit_s * SECOND)
            assert simulation._under_way.running[1].active.share.gpus == gpus

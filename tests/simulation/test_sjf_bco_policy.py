"""SJF-BCO over time: who starts when, where, and how contention reaches the rates."""

from __future__ import annotations

from fractions import Fraction

import pytest

from jigsaw_opt.instances.topologies import TOPOLOGIES
from jigsaw_opt.problem.cluster import Cluster, Link, Server
from jigsaw_opt.problem.contention import Degraded, FairSharing
from jigsaw_opt.scheduling.performance.speed import Speed
from jigsaw_opt.simulation.contention import LinkContention
from jigsaw_opt.simulation.engine import Simulation
from jigsaw_opt.simulation.folder import restore, snapshot
from jigsaw_opt.simulation.policies.sjf_bco import SJF_BCO
from tests.simulation.cases import SECOND, finish_s, job, random_jobs, run, setting

SERVERS = [Server(f"s{k}", "gpu", 4, 10**9, 10**9) for k in range(3)]
STAR = TOPOLOGIES["star"](SERVERS, 10**8, 0)


def started(*jobs, **options: str) -> dict[int, tuple[int, ...]]:  # type: ignore[no-untyped-def]
    """GPUs of the jobs that run after the first decision, on 2 x 4 GPUs."""
    simulation = Simulation(setting(*jobs).under(SJF_BCO, **options))
    simulation.run(until_us=0)
    return {index: running.active.share.gpus for index, running in simulation._under_way.running.items()}


def test_smaller_jobs_start_first_and_one_that_waits_holds_those_behind_it() -> None:
    made = setting(job("big", 0, 8, 10), job("half", 0, 4, 100), job("half2", 0, 3, 50), job("small", 0, 2, 10))
    # 2 and 3 GPUs start; 4 do not fit beside them until 60 s, and 8 wait for all.
    assert finish_s(run(made, SJF_BCO)) == [180 + 10, 60 + 100, 50, 10]


def test_jobs_are_not_preempted() -> None:
    made = setting(job("long", 0, 8, 1000), job("short", 60, 1, 10))
    outcome = run(made, SJF_BCO)
    assert finish_s(outcome) == [1000, 1020 + 10]
    assert [record.restarts for record in outcome.jobs] == [0, 0]


def test_as_meant_small_jobs_pack_and_large_ones_go_where_there_is_least() -> None:
    jobs = (job("a", 0, 1, 10), job("b", 0, 2, 10), job("c", 0, 4, 10))
    assert started(*jobs, threshold="2") == {0: (0,), 1: (1, 2), 2: (4, 5, 6, 7)}
    assert started(*jobs[:2], threshold="1") == {0: (0,), 1: (4, 5)}


@pytest.mark.parametrize("variant", ["intent", "literal"])
@pytest.mark.parametrize("threshold", ["1", "8"])
def test_a_job_is_placed_on_servers_that_links_join(variant: str, threshold: str) -> None:
    servers = [Server(f"s{k}", "gpu", 2, 10**9, 10**9) for k in range(4)]
    apart = Cluster(tuple(servers), (), (Link("a", ("s0", "s2"), 10**9), Link("b", ("s1", "s3"), 10**9)))
    jobs = (job("a", 0, 2, 10), job("b", 0, 3, 10))
    made = setting(*jobs, cluster=apart)
    simulation = Simulation(made.under(SJF_BCO, variant=variant, threshold=threshold, spread="1"))
    simulation.run(until_us=0)
    placed = {index: running.active.share.gpus for index, running in simulation._under_way.running.items()}
    assert placed[0] == (0, 1) and {gpu // 2 for gpu in placed[1]} == {1, 3}


def test_as_printed_the_load_of_ended_jobs_stays() -> None:
    # The second job finds all GPUs free: as printed it goes where nothing ever ran.
    for submit_s in (60, 120):  # at 120 s it has been alone in the cluster since the other ended
        made = setting(job("a", 0, 2, 10), job("b", submit_s, 2, 10))
        for variant, gpus in (("intent", (0, 1)), ("literal", (2, 3))):
            simulation = Simulation(made.under(SJF_BCO, variant=variant, threshold="8", spread="1"))
            simulation.run(until_us=submit_s * SECOND)
            assert simulation._under_way.running[1].active.share.gpus == gpus


@pytest.mark.parametrize("variant", ["intent", "literal"])
@pytest.mark.parametrize("threshold", ["1", "8"])
def test_every_job_ends_whatever_the_options(variant: str, threshold: str) -> None:
    made = setting(*random_jobs(3, 60))
    outcome = run(made, SJF_BCO, variant=variant, threshold=threshold)
    assert None not in finish_s(outcome)
    assert run(made, SJF_BCO, variant=variant, threshold=threshold).jobs == outcome.jobs


def test_a_simulation_put_aside_goes_on_as_if_nothing_had_happened() -> None:
    made = setting(*random_jobs(5, 40))
    options = {key: values[0] for key, values in SJF_BCO.options.items()}
    whole, half = Simulation(made.under(SJF_BCO, **options)), Simulation(made.under(SJF_BCO, **options))
    whole.run()
    half.run(until_us=2000 * SECOND)
    resumed = restore(snapshot(half, "these"), Simulation(made.under(SJF_BCO, **options)), "these", "file")
    resumed.run()
    assert resumed.close().jobs == whole.close().jobs


def test_contention_is_that_of_the_links_which_jobs_share() -> None:
    # The first two jobs meet on the link of server 1; the third is on one server.
    placements = [(0, 4), (5, 8), (1, 2)]
    assert LinkContention(STAR, FairSharing()).factors(placements) == [2, 2, 1]
    assert LinkContention(STAR, Degraded(Fraction(1, 2))).factors(placements) == [2.5, 2.5, 1]
    assert LinkContention(STAR, FairSharing()).factors(placements[:1]) == [1]


def test_contention_stretches_the_exchanges_of_the_rates() -> None:
    # Half of the time is exchange, which takes 2.5 times as long.
    assert Speed(1000, None, 0.5).stretched(2.5) == Speed(571, None, 0.5)

"""What each policy prefers, on settings small enough to see it; and what all of them have in common."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from jigsaw_opt.problem.cluster import Link
from jigsaw_opt.scheduling.allocation import Decision, Share
from jigsaw_opt.scheduling.placement.placing import FreeGpus, by_priority
from jigsaw_opt.scheduling.policies.fifo import FIFO
from jigsaw_opt.scheduling.policies.las import LAS
from jigsaw_opt.scheduling.policies.sjf_bco import SJF_BCO
from jigsaw_opt.scheduling.policies.srtf import SRTF
from jigsaw_opt.scheduling.policy import JobState, Observation, choose
from tests.refusals import misuse
from tests.simulation.cases import Watched, cluster, finish_s, job, random_jobs, restarts, run, setting, types

HOUR = 3600


def test_fifo_holds_what_is_behind_a_job_that_does_not_fit() -> None:
    made = setting(job("a", 0, 6, 120), job("b", 1, 4, 60), job("c", 2, 1, 60))
    assert finish_s(run(made, FIFO)) == [120, 180, 180]


def test_srtf_takes_the_shortest_and_passes_over_what_does_not_fit() -> None:
    made = setting(job("long", 0, 4, 900), job("wide", 0, 8, 100), job("short", 0, 4, 60))
    # short and long fit together; wide is the second shortest, so it runs as soon as all GPUs are its own.
    assert finish_s(run(made, SRTF)) == [60 + 120 + 840, 160, 60]


def test_srtf_by_service_prefers_fewer_gpus() -> None:
    jobs = (job("wide", 0, 8, 60), job("narrow", 0, 1, 120))
    assert finish_s(run(setting(*jobs), SRTF)) == [60, 180]
    assert finish_s(run(setting(*jobs), SRTF, measure="service")) == [180, 120]


def test_las_lets_a_job_fall_once_it_has_had_its_gpu_time() -> None:
    made = setting(job("old", 0, 8, 10 * HOUR), job("new", 60, 8, HOUR))
    outcome = run(made, LAS, threshold="16")
    # 8 GPUs have 16 GPU-hours after two hours: then the new job runs, which falls after two hours only.
    assert finish_s(outcome) == [11 * HOUR, 3 * HOUR]
    assert outcome.jobs[0].restarts == 1


def test_las_places_on_the_emptiest_servers_unless_told_to_pack() -> None:
    made = setting(job("a", 0, 1, 600), job("b", 0, 1, 600))
    observation = Observation(0, {k: JobState(k, one, 1) for k, one in enumerate(made.workload.jobs)}, (), (0, 1))
    shares = {
        option: LAS.start(made, {"threshold": "16", "placement": option, "aging": "none"}).decide(observation).shares
        for option in LAS.options["placement"]
    }
    assert shares["emptiest"] == (Share((0,), (0,)), Share((1,), (4,)))
    assert shares["packed"] == (Share((0,), (0,)), Share((1,), (1,)))


def test_free_gpus_are_taken_where_they_fit_best() -> None:
    free = FreeGpus(setting(job("a", 0, 1, 1)), [Share((0,), (0, 1))])
    assert free.count == 6
    assert free.place(job("b", 0, 3, 1), "packed") == (4, 5, 6)
    assert free.place(job("b", 0, 2, 1), "packed") == (2, 3)
    assert free.place(job("b", 0, 2, 1), "packed") is None
    assert free.count == 1


def test_free_gpus_are_taken_only_on_as_few_servers_as_can_be() -> None:
    made = setting(job("a", 0, 1, 1))
    free = FreeGpus(made, [Share((0,), (0,)), Share((1,), (4,))])
    assert free.place(job("c", 0, 4, 1), "consolidated") is None
    assert free.place(job("c", 0, 6, 1), "consolidated") == (1, 2, 3, 5, 6, 7)
    assert FreeGpus(made).place(job("c", 0, 5, 1), "consolidated") == (0, 1, 2, 3, 4)
    assert FreeGpus(made).place(job("c", 0, 9, 1), "consolidated") is None


def test_consolidated_jobs_move_later_ones_out_of_their_way() -> None:
    # a and b hold a GPU of each server; the short job c needs a whole server, so a, who is on the first, has to move.
    made = setting(job("a", 0, 1, 900), job("b", 0, 1, 950), job("c", 60, 4, 60), round_us=0)
    spread = run(made, LAS, placement="emptiest")
    assert finish_s(spread) == [900, 950, 120]
    jobs = {
        k: JobState(k, one, 1, share=Share((k,), (4 * k,)) if k < 2 else None)
        for k, one in enumerate(made.workload.jobs)
    }
    order = [jobs[2], jobs[0], jobs[1]]
    assert by_priority(made, order, list, "consolidated") == (
        Share((2,), (0, 1, 2, 3)),
        Share((0,), (5,)),
        Share((1,), (4,)),
    )
    assert by_priority(made, order, list, "packed") == (
        Share((0,), (0,)),
        Share((1,), (4,)),
        Share((2,), (1, 2, 3, 5)),
    )


def nobody_waits_beside_idle_gpus(watched: Watched, observation: Observation, decision: Decision) -> None:
    idle, running = FreeGpus(watched.setting, decision.shares), {k for share in decision.shares for k in share.jobs}
    waiting = (active.job for index, active in observation.jobs.items() if index not in running)
    assert all(idle.copy().place(one, watched.placement) is None for one in waiting)


@pytest.mark.parametrize("text", ["srtf", "srtf:hysteresis=4", "srtf:placement=consolidated", "las:threshold=1"])
def test_no_job_waits_beside_idle_gpus_of_a_type_that_it_may_have(text: str) -> None:
    policy, options = choose(text)
    watched = Watched(policy, nobody_waits_beside_idle_gpus)
    watched.placement, stops = options["placement"], 0
    for seed in range(4):
        draw = random.Random(seed)
        jobs = (
            replace(one, gpu_types=draw.choice((None, None, ("b",), ("c", "a") if one.gpus < 3 else ("c",))))
            for one in random_jobs(seed, 40, 4)
        )
        made = setting(*jobs, cluster=types("1x2:a+2x4:b+1x4:c"), round_us=0, restart_s=5)
        stops += sum(restarts(run(made, watched, **options)))
    assert stops > 0


def test_a_job_that_no_type_of_gpu_has_room_for_is_refused() -> None:
    mixed, elastic = types("1x4:v100+1x8:a100"), job("a", 0, 9, 1, min_gpus=1)
    for policy in (FIFO, SRTF, LAS, SJF_BCO):
        with misuse("unsupported", naming=["'a'", "asks for 9", "8"]):
            run(setting(elastic), policy)
        with misuse("unsupported", naming=["one type", "'a'", "asks for 9"]):
            run(setting(elastic, cluster=mixed), policy)
        with misuse("unsupported", naming=["'a'", "asks for 5", "4"]):
            run(setting(job("a", 0, 5, 1, gpu_types=("v100",)), cluster=mixed), policy)


def test_free_gpus_are_taken_from_the_emptiest_server() -> None:
    free = FreeGpus(setting(job("a", 0, 1, 1)))
    found = [free.place(job("a", 0, count, 1), "emptiest") for count in (1, 1, 4, 3)]
    assert found == [(0,), (4,), (1, 2, 3, 5), None]


@pytest.mark.parametrize(
    ("text", "expected", "named"),
    [
        ("fifi", "unknown-name policy", "'fifo'"),
        ("fifo:x=1", "unknown-option policy.x", "placement"),
        ("las:treshold=1", "unknown-option policy.treshold", "'threshold'"),
        ("las:threshold=5", "unknown-value policy.threshold", "16, 1, 4, 64"),
        ("las:threshold", "unknown-value policy.threshold", "''"),
        ("srtf:aging=soon", "out-of-range policy.aging", "'soon'"),
        ("srtf:hysteresis=-1", "out-of-range policy.hysteresis", "'-1'"),
        ("backfill:default_limit=0", "out-of-range policy.default_limit", "above 0"),
    ],
)
def test_what_is_not_there(text: str, expected: str, named: str) -> None:
    with misuse(expected, naming=[named]):
        choose(text)


def test_jobs_that_come_first_have_gpus_in_a_part_of_the_cluster() -> None:
    apart = replace(cluster(servers=4, gpus=2), links=(Link("a", ("s0", "s1"), 10**9), Link("b", ("s2", "s3"), 10**9)))
    jobs = [job("a", 0, 3, 1), job("b", 0, 3, 1), job("first", 1, 2, 1), job("last", 1, 1, 1)]
    made = setting(*jobs, cluster=apart)
    active = [JobState(k, one, 10) for k, one in enumerate(jobs)]
    active[0].share, active[1].share = Share((0,), (0, 1, 2)), Share((1,), (4, 5, 6))
    shares = by_priority(made, [active[k] for k in (2, 0, 1, 3)], list)
    # The first takes the place of a, which takes that of b in the other part; the last has what is left.
    assert [share.jobs for share in shares] == [(2,), (0,), (3,)]
    assert [share.gpus for share in shares] == [(0, 1), (4, 5, 6), (7,)]

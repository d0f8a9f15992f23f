"""Jobs known by stages: their speeds alone and in groups, and the policy that makes the groups."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

import pytest

from jigsaw_opt.formulations.interleave import SLOWDOWN, group_round
from jigsaw_opt.problem.cluster import Cluster, Server
from jigsaw_opt.problem.job import FullDepth, StaircaseDepth
from jigsaw_opt.problem.workload import StageTimes, TraceJob, Workload
from jigsaw_opt.scheduling.allocation import Share
from jigsaw_opt.scheduling.performance import rate_of
from jigsaw_opt.scheduling.performance.seconds import Seconds
from jigsaw_opt.scheduling.performance.stages import Stages, stages
from jigsaw_opt.scheduling.performance.type_speeds import TypeSpeeds
from jigsaw_opt.scheduling.policies.interleave import INTERLEAVE
from jigsaw_opt.scheduling.policy import JobState, Observation
from jigsaw_opt.simulation.engine.setting import Setting
from tests.refusals import misuse, require_data
from tests.simulation.cases import cluster, run

MODELS = {
    "loads@1": StageTimes(711_000, 110_000, 0, 779_000),
    "loads@2": StageTimes(687_000, 110_000, 95_000, 881_000),
    "computes@1": StageTimes(600, 410_000, 0, 426_000),
    "computes@2": StageTimes(700, 416_000, 40_000, 464_000),
    "mixed@1": StageTimes(117_000, 68_000, 0, 107_000),
    "mixed@2": StageTimes(114_000, 72_000, 40_000, 191_000),
}


def workload(seed: int, number: int) -> Workload:
    draw = random.Random(seed)
    jobs = []
    for k in range(number):
        gpus = draw.choice((1, 1, 2))
        model = f"{draw.choice(('loads', 'computes', 'mixed'))}@{gpus}"
        jobs.append(TraceJob(str(k), draw.randint(0, 10**9), model, gpus, draw.randint(100, 5000)))
    return Workload("drawn", tuple(jobs), MODELS)


def setting(jobs: Workload, servers: int = 2, gpus: int = 2) -> Setting:
    return Setting(cluster(servers, gpus), jobs, Stages(MODELS), round_us=0, restart_us=1_000_000)


def job(model: str, iterations: int = 10) -> TraceJob:
    return TraceJob(model, 0, model, int(model[-1]), iterations)


def test_a_job_alone_has_the_speed_of_its_trace_and_what_muri_adds() -> None:
    performance = Stages(MODELS)
    (speed,) = performance.speeds(Share((0,), (0, 1)), [job("mixed@2")], [0])
    assert speed.rate == rate_of(193_865)
    assert performance.alone_us(job("mixed@2")) == 1_938_650


def test_a_job_alone_is_on_the_fastest_type_that_it_may_have() -> None:
    servers = (Server("slow", "v100", 4, 10**9, 10**9), Server("fast", "a100", 1, 10**9, 10**9))
    where = Cluster(servers)
    performance = Stages(MODELS, where, TypeSpeeds({"v100": Fraction(1), "a100": Fraction(2)}, "v100"))
    of_one = job("loads@1")
    on_v100 = Stages(MODELS).alone_us(of_one)
    assert performance.alone_us(of_one) == round(Fraction(on_v100, 2))
    assert performance.alone_us(replace(of_one, gpu_types=("v100",))) == on_v100
    assert performance.alone_us(job("mixed@2")) == 1_938_650, "no server of the fast type has two GPUs"
    for gpu, alone_us in ((0, on_v100), (4, on_v100 / 2)):
        (speed,) = performance.speeds(Share((0,), (gpu,)), [of_one], [0])
        assert speed.rate == pytest.approx(rate_of(alone_us / 10), rel=1e-6)


def test_jobs_of_a_share_without_depths_take_turns_in_muris_rotation() -> None:
    performance = Stages(MODELS)
    jobs = [job("loads@1"), job("computes@1")]
    speeds = performance.speeds(Share((3, 5), (0,)), jobs, [0, 0])
    # One loads while the other computes, and then the other way round.
    round_us = float((711_000 + 110_000) * SLOWDOWN[1])
    assert [speed.rate for speed in speeds] == [pytest.approx(rate_of(round_us), rel=1e-6)] * 2


def test_jobs_of_a_share_with_depths_run_the_timetable_of_their_group() -> None:
    performance = Stages(MODELS)
    jobs = [job("loads@2"), job("mixed@2")]
    full = performance.speeds(Share((0, 1), (0, 1), (FullDepth(),) * 2), jobs, [0, 0])
    bent = performance.speeds(Share((0, 1), (0, 1), (StaircaseDepth(),) * 2), jobs, [0, 0])
    assert full[1].rate > full[0].rate  # the shorter iterations fit several times
    done = group_round(tuple(sorted(performance.staged(one, staircase=True) for one in jobs)), "planned")
    assert sorted(speed.rate for speed in bent) == sorted(rate_of(done.time_us / often) for often in done.iterations)
    assert sum(speed.rate for speed in bent) >= sum(speed.rate for speed in full)


def test_shares_that_cannot_be_are_refused() -> None:
    performance = Stages(MODELS)
    five = [job("mixed@1")] * 5
    require_data(performance.refuses(Share(tuple(range(5)), (0,)), five), "4 jobs")
    mixed = [job("mixed@1"), job("mixed@2")]
    require_data(performance.refuses(Share((0, 1), (0,)), mixed), "2 GPUs", "1")
    assert performance.refuses(Share((0,), (0, 1)), [job("mixed@2")]) is None


def test_what_stages_are_not_known_of_is_said() -> None:
    performance = Stages(MODELS)
    require_data(performance.unknown(TraceJob("a", 0, "other", 1, 3)), "'other'")
    require_data(performance.unknown(TraceJob("a", 0, "mixed@1", 1)), "no", "iterations")
    with misuse("missing-option performance", naming=["trace"]):
        stages(None, cluster(1, 1), {})
    with misuse("missing-option performance", naming=["'interleave'", "stages"]):
        INTERLEAVE.start(Setting(cluster(1, 1), workload(0, 1), Seconds()), {"service": "left", "groups": "exact"})


@pytest.mark.parametrize("options", [{}, {"groups": "matching"}, {"service": "attained"}])
def test_every_job_ends_and_shares_hold_jobs_of_one_width(options: dict[str, str]) -> None:
    where = setting(workload(1, 24))
    outcome = run(where, INTERLEAVE, **options)
    assert all(record.done == record.work for record in outcome.jobs)
    assert max(record.running for record in outcome.rounds) > where.gpu_count  # GPUs were shared


def test_first_come_the_jobs_with_the_least_service_left() -> None:
    jobs = tuple(TraceJob(str(k), 0, "computes@2", 2, n) for k, n in enumerate((500, 100, 900, 300, 700, 200)))
    where = setting(Workload("six", jobs, MODELS), servers=1)
    scheduler = INTERLEAVE.start(where, {"service": "left", "groups": "exact"})
    active = {k: JobState(k, one, where.performance.work(one)) for k, one in enumerate(jobs)}
    (first,) = scheduler.decide(Observation(0, active, (), tuple(active))).shares
    # Two jobs that compute would be faster one after the other, so they do not share.
    assert first.jobs == (1,)

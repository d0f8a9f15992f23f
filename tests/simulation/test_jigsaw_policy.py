"""The jigsaw policy on profiled models, blocks of GPUs, and jobs known by stages, alone and in groups."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

import pytest

from jigsaw_opt.formulations.interleave.rotation import SLOWDOWN
from jigsaw_opt.formulations.interleave.rounds import group_round
from jigsaw_opt.problem.cluster import Cluster, Link, Server
from jigsaw_opt.problem.depth import FreeDepth, FullDepth, StaircaseDepth
from jigsaw_opt.problem.workload import StageTimes, TraceJob, Workload
from jigsaw_opt.scheduling.allocation import Share
from jigsaw_opt.scheduling.performance import rate_of
from jigsaw_opt.scheduling.performance.profiled import Profiled
from jigsaw_opt.scheduling.performance.seconds import TypeSpeeds
from jigsaw_opt.scheduling.performance.shared_gpus import SharedGpus
from jigsaw_opt.scheduling.performance.stages import Stages
from jigsaw_opt.scheduling.placement.blocks import Blocks, Team
from jigsaw_opt.scheduling.policies.interleave import INTERLEAVE
from jigsaw_opt.scheduling.policies.jigsaw import JIGSAW
from jigsaw_opt.scheduling.policies.srtf import SRTF
from jigsaw_opt.scheduling.policy import JobState, Observation
from jigsaw_opt.simulation.engine.setting import Setting
from jigsaw_opt.simulation.engine.simulation import Simulation
from jigsaw_opt.simulation.results.metrics import summarise
from tests.refusals import misuse, require_data
from tests.simulation.cases import cluster, finish_s, run
from tests.simulation.resumable import MODELS


def boxes(*types: str, memory: int = 10**9) -> Cluster:
    servers = tuple(Server(f"s{k}", t, 4, memory, 10**10) for k, t in enumerate(types))
    links = tuple(Link(f"l{k}", (server.name, "switch"), 10**9, 10) for k, server in enumerate(servers))
    return Cluster(servers, ("switch",), links)


def profiled(cluster: Cluster, *jobs: TraceJob, restart_us: int = 0) -> Setting:
    return Setting(cluster, Workload("w", jobs), Profiled(cluster, MODELS), restart_us=restart_us)


def trained(name: str, model: str, gpus: int, iterations: int, submit_us: int = 0) -> TraceJob:
    return TraceJob(name, submit_us, model, gpus, iterations)


def crowd(seed: int, count: int) -> tuple[TraceJob, ...]:
    draw = random.Random(seed)
    return tuple(
        trained(f"j{k}", draw.choice(list(MODELS)), draw.choice((1, 4, 4)), draw.randrange(100, 40_000), k * 10**7)
        for k in range(count)
    )


def first_shares(where: Setting, **options: str) -> tuple[Share, ...]:
    simulation = Simulation(where.under(JIGSAW, **options))
    simulation.run(until_us=0)
    return tuple(simulation._under_way.shares)


def test_two_jobs_of_one_width_share_gpus_at_free_levels_and_both_end_sooner_than_in_turn() -> None:
    where = profiled(boxes("v"), trained("a", "small", 4, 1000), trained("b", "small", 4, 1000))
    (share,) = first_shares(where, depth="free")
    assert sorted(share.jobs) == [0, 1]
    assert share.depths == (FreeDepth(), FreeDepth())
    alone_s = where.performance.alone_us(where.workload.jobs[0]) / 1e6
    ends = [end for end in finish_s(run(where, JIGSAW, depth="free")) if end is not None]
    assert max(ends) < 1.5 * alone_s


def test_at_full_depth_nothing_is_gained_by_sharing_within_a_server() -> None:
    where = profiled(boxes("v"), trained("a", "small", 4, 1000), trained("b", "small", 4, 1000))
    (share,) = first_shares(where, depth="full")
    assert len(share.jobs) == 1
    assert all(isinstance(depth, FullDepth) for depth in share.depths)


def test_each_idea_shortens_the_completion_of_a_crowd() -> None:
    where = profiled(boxes("v", "v"), *crowd(1, 30))
    runs = [run(where, SRTF), *(run(where, JIGSAW, depth=depth) for depth in ("full", "staircase", "free"))]
    plain, *means = (summarise(where, outcome).mean_completion_h for outcome in runs)
    assert means == sorted(means, reverse=True) and means[-1] < plain


def test_the_shortest_job_comes_first_and_nothing_waits_beside_free_gpus() -> None:
    where = profiled(boxes("v"), *(trained(f"j{k}", "small", 1, 1000 * (7 - k)) for k in range(6)))
    shares = first_shares(where)
    assert sorted(share.jobs for share in shares) == [(2,), (3,), (4,), (5,)]


def test_a_pool_holds_narrow_jobs_beside_each_other() -> None:
    groups = SharedGpus(boxes("v"), MODELS)
    jobs = [trained("wide", "small", 4, 10), trained("left", "small", 2, 10), trained("right", "small", 2, 10)]
    share = Share((0, 1, 2), (0, 1, 2, 3), (StaircaseDepth(),) * 3)
    assert groups.refuses(share, jobs) is None
    found = groups.iterations(share, jobs)
    assert found is not None
    wide, left, right = (one.us for one in found)
    assert wide == left == right
    alone = Profiled(boxes("v"), MODELS).alone_us(replace(jobs[0], iterations=1))
    assert alone <= wide < 2 * alone


def test_the_last_job_of_a_pool_goes_on_with_its_own_number_of_gpus() -> None:
    narrow, wide = trained("a", "small", 2, 10), trained("b", "small", 4, 10)
    performance = Profiled(boxes("v"), MODELS)
    left = performance.speeds(Share((0, 1), (0, 1, 2, 3)).without(1), [narrow], [0])
    assert left == performance.speeds(Share((0,), (0, 1)), [narrow], [0])
    assert left != performance.speeds(Share((1,), (0, 1, 2, 3)), [wide], [0])


def test_a_job_wider_than_servers_that_are_alike_is_refused() -> None:
    where = profiled(boxes("v", "a"), trained("wide", "small", 8, 10))
    for depth in JIGSAW.options["depth"]:
        with misuse("unsupported", naming=["8 GPUs", "'wide'"]):
            run(where, JIGSAW, depth=depth)
    apart = profiled(replace(boxes("v", "v"), links=(), switches=()), trained("wide", "small", 8, 10))
    expected = "job 'wide' asks for 8 GPUs, and at most 4 that it can have are joined by links"
    simulation = Simulation(apart.under("jigsaw"))
    simulation.run()
    assert simulation.outcome.hindrance == expected


def test_jobs_without_room_in_memory_do_not_share() -> None:
    tight = boxes("v", memory=30_000_000)
    jobs = [trained("a", "small", 4, 10), trained("b", "large", 4, 10)]
    refusal = SharedGpus(tight, MODELS).refuses(Share((0, 1), (0, 1, 2, 3), (FreeDepth(),) * 2), jobs)
    assert refusal is not None
    assert all(len(share.jobs) == 1 for share in first_shares(profiled(tight, *jobs)))


def test_blocks_of_several_servers_are_of_those_that_links_join() -> None:
    servers = tuple(Server(f"s{k}", "v", 2, 10**9, 10**9) for k in range(4))
    apart = Cluster(servers, (), (Link("a", ("s0", "s2"), 10**9), Link("b", ("s1", "s3"), 10**9)))
    where = profiled(apart, trained("a", "small", 1, 1))
    teams = [Team((k,), 4, 0) for k in range(2)]
    placed = Blocks(where, [[0, 1, 2, 3]], {}).place(teams)
    assert placed == {teams[0]: (0, 1, 4, 5), teams[1]: (2, 3, 6, 7)}
    half = Blocks(where, [[0, 1, 2, 3]], {}, frozenset({4, 5})).place(teams)
    assert half == {teams[0]: (2, 3, 6, 7)}  # of the others no two are joined


def test_blocks_keep_what_goes_on_and_always_fit_powers_of_two() -> None:
    where = profiled(boxes("v", "v", "v", "v"), trained("a", "small", 1, 1))
    draw = random.Random(5)
    held: dict[int, tuple[int, ...]] = {}
    number = 0
    for _ in range(200):
        room, teams = 16, []
        while room:
            gpus = draw.choice([size for size in (1, 2, 4, 8) if size <= room])
            going_on = [j for j, block in held.items() if len(block) == gpus and all(j not in t.jobs for t in teams)]
            name = draw.choice(going_on) if going_on and draw.random() < 0.7 else (number := number + 1)
            teams.append(Team((name,), gpus, 0))
            room -= gpus
        placed = Blocks(where, [[0, 1, 2, 3]], held).place(teams)
        assert placed.keys() == set(teams)
        assert sorted(gpu for block in placed.values() for gpu in block) == list(range(16))
        wide = [team for team in teams if team.gpus == 8 and team.jobs[0] in held]
        assert all(placed[team] == held[team.jobs[0]] for team in wide)
        held = {team.jobs[0]: block for team, block in placed.items()}


STAGED = {
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
    return Workload("drawn", tuple(jobs), STAGED)


def staged_setting(jobs: Workload, servers: int = 2, gpus: int = 2) -> Setting:
    return Setting(cluster(servers, gpus), jobs, Stages(STAGED), round_us=0, restart_us=1_000_000)


def staged(model: str, iterations: int = 10) -> TraceJob:
    return TraceJob(model, 0, model, int(model[-1]), iterations)


def test_a_job_alone_has_the_speed_of_its_trace_and_what_muri_adds() -> None:
    performance = Stages(STAGED)
    (speed,) = performance.speeds(Share((0,), (0, 1)), [staged("mixed@2")], [0])
    assert speed.rate == rate_of(193_865)
    assert performance.alone_us(staged("mixed@2")) == 1_938_650


def test_a_job_alone_is_on_the_fastest_type_that_it_may_have() -> None:
    servers = (Server("slow", "v100", 4, 10**9, 10**9), Server("fast", "a100", 1, 10**9, 10**9))
    where = Cluster(servers)
    performance = Stages(STAGED, where, TypeSpeeds({"v100": Fraction(1), "a100": Fraction(2)}, "v100"))
    of_one = staged("loads@1")
    on_v100 = Stages(STAGED).alone_us(of_one)
    assert performance.alone_us(of_one) == round(Fraction(on_v100, 2))
    assert performance.alone_us(replace(of_one, gpu_types=("v100",))) == on_v100
    assert performance.alone_us(staged("mixed@2")) == 1_938_650, "no server of the fast type has two GPUs"
    for gpu, alone_us in ((0, on_v100), (4, on_v100 / 2)):
        (speed,) = performance.speeds(Share((0,), (gpu,)), [of_one], [0])
        assert speed.rate == pytest.approx(rate_of(alone_us / 10), rel=1e-6)


def test_jobs_of_a_share_without_depths_take_turns_in_muris_rotation() -> None:
    performance = Stages(STAGED)
    jobs = [staged("loads@1"), staged("computes@1")]
    speeds = performance.speeds(Share((3, 5), (0,)), jobs, [0, 0])
    # One loads while the other computes, and then the other way round.
    round_us = float((711_000 + 110_000) * SLOWDOWN[1])
    assert [speed.rate for speed in speeds] == [pytest.approx(rate_of(round_us), rel=1e-6)] * 2


def test_jobs_of_a_share_with_depths_run_the_timetable_of_their_group() -> None:
    performance = Stages(STAGED)
    jobs = [staged("loads@2"), staged("mixed@2")]
    full = performance.speeds(Share((0, 1), (0, 1), (FullDepth(),) * 2), jobs, [0, 0])
    bent = performance.speeds(Share((0, 1), (0, 1), (StaircaseDepth(),) * 2), jobs, [0, 0])
    assert full[1].rate > full[0].rate  # the shorter iterations fit several times
    done = group_round(tuple(sorted(performance.staged(one, staircase=True) for one in jobs)), "planned")
    assert sorted(speed.rate for speed in bent) == sorted(rate_of(done.time_us / often) for often in done.iterations)
    assert sum(speed.rate for speed in bent) >= sum(speed.rate for speed in full)


def test_shares_that_cannot_be_are_refused() -> None:
    performance = Stages(STAGED)
    five = [staged("mixed@1")] * 5
    require_data(performance.refuses(Share(tuple(range(5)), (0,)), five), "4 jobs")
    mixed = [staged("mixed@1"), staged("mixed@2")]
    require_data(performance.refuses(Share((0, 1), (0,)), mixed), "2 GPUs", "1")
    assert performance.refuses(Share((0,), (0, 1)), [staged("mixed@2")]) is None


@pytest.mark.parametrize("options", [{}, {"groups": "matching"}, {"service": "attained"}])
def test_every_job_ends_and_shares_hold_jobs_of_one_width(options: dict[str, str]) -> None:
    where = staged_setting(workload(1, 24))
    outcome = run(where, INTERLEAVE, **options)
    assert all(record.done == record.work for record in outcome.jobs)
    assert max(record.running for record in outcome.rounds) > where.gpu_count  # GPUs were shared


def test_first_come_the_jobs_with_the_least_service_left() -> None:
    jobs = tuple(TraceJob(str(k), 0, "computes@2", 2, n) for k, n in enumerate((500, 100, 900, 300, 700, 200)))
    where = staged_setting(Workload("six", jobs, STAGED), servers=1)
    scheduler = INTERLEAVE.start(where, {"service": "left", "groups": "exact"})
    active = {k: JobState(k, one, where.performance.work(one)) for k, one in enumerate(jobs)}
    (first,) = scheduler.decide(Observation(0, active, (), tuple(active))).shares
    # Two jobs that compute would be faster one after the other, so they do not share.
    assert first.jobs == (1,)


@pytest.mark.parametrize(
    ("depth", "end_us"),
    [("full", 62697526099), ("staircase", 46731770004), ("free", 42570181157), ("rotation", 47651323016)],
)
def test_counted_raw_a_crowd_ends_when_it_did_before_progress_counted(depth: str, end_us: int) -> None:
    where = profiled(boxes("v", "v"), *crowd(1, 30))
    assert isinstance(where.performance, Profiled)
    assert run(replace(where, performance=where.performance.counting("raw")), JIGSAW, depth=depth).end_us == end_us

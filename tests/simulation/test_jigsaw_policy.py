"""The jigsaw policy on profiled models: who shares GPUs, at which depth, and what it gains; blocks of GPUs."""

from __future__ import annotations

import random
from dataclasses import replace

from jigsaw_opt.problem.cluster import Cluster, Link, Server
from jigsaw_opt.problem.job import FreeDepth, FullDepth, StaircaseDepth
from jigsaw_opt.problem.model import Model, Segment
from jigsaw_opt.problem.workload import TraceJob, Workload
from jigsaw_opt.scheduling.allocation import Share
from jigsaw_opt.scheduling.performance.groups import Timetabled
from jigsaw_opt.scheduling.performance.profiled import Profiled
from jigsaw_opt.scheduling.placement.blocks import Blocks, Team
from jigsaw_opt.scheduling.policies.jigsaw import JIGSAW
from jigsaw_opt.scheduling.policies.srtf import SRTF
from jigsaw_opt.simulation.engine.setting import Setting
from jigsaw_opt.simulation.engine.simulation import Simulation
from jigsaw_opt.simulation.results.metrics import summarise
from tests.refusals import misuse
from tests.simulation.cases import finish_s, run


def network(forward: int, backward: int) -> Model:
    """Segments whose backward pass takes the longer the nearer they are to the input."""
    backwards = [backward * share // 4 for share in (8, 5, 2, 1)]
    return Model(
        tuple(
            Segment(f"s{k}", {"v": forward, "a": forward // 2}, {"v": own, "a": own // 2}, 10**6, 10**6)
            for k, own in enumerate(backwards)
        )
    )


MODELS = {"small": network(10_000, 20_000), "large": network(25_000, 55_000)}


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
    (share,) = first_shares(where)
    assert sorted(share.jobs) == [0, 1]
    assert share.depths == (FreeDepth(), FreeDepth())
    alone_s = where.performance.alone_us(where.workload.jobs[0]) / 1e6
    ends = [end for end in finish_s(run(where, JIGSAW)) if end is not None]
    assert max(ends) < 1.5 * alone_s


def test_at_full_depth_nothing_is_gained_by_sharing_within_a_server() -> None:
    where = profiled(boxes("v"), trained("a", "small", 4, 1000), trained("b", "small", 4, 1000))
    (share,) = first_shares(where, depth="full")
    assert len(share.jobs) == 1
    assert all(isinstance(depth, FullDepth) for depth in share.depths)


def test_each_idea_shortens_the_completion_of_a_crowd() -> None:
    where = profiled(boxes("v", "v"), *crowd(1, 30))
    means = [
        summarise(where, run(where, JIGSAW, depth=depth)).mean_completion_h for depth in ("full", "staircase", "free")
    ]
    plain = summarise(where, run(where, SRTF)).mean_completion_h
    assert all(mean is not None for mean in (*means, plain))
    assert means == sorted(means, key=lambda mean: -(mean or 0.0))
    assert (means[-1] or 0.0) < (plain or 0.0)


def test_the_shortest_job_comes_first_and_nothing_waits_beside_free_gpus() -> None:
    where = profiled(boxes("v"), *(trained(f"j{k}", "small", 1, 1000 * (7 - k)) for k in range(6)))
    shares = first_shares(where)
    assert sorted(share.jobs for share in shares) == [(2,), (3,), (4,), (5,)]


def test_a_pool_holds_narrow_jobs_beside_each_other() -> None:
    groups = Timetabled(boxes("v"), MODELS)
    jobs = [trained("wide", "small", 4, 10), trained("left", "small", 2, 10), trained("right", "small", 2, 10)]
    share = Share((0, 1, 2), (0, 1, 2, 3), (StaircaseDepth(),) * 3)
    assert groups.refuses(share, jobs) is None
    wide, left, right = groups.iteration_us(share, jobs)
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
    refusal = Timetabled(tight, MODELS).refuses(Share((0, 1), (0, 1, 2, 3), (FreeDepth(),) * 2), jobs)
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

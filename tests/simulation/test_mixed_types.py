"""Clusters of several types of GPU: who may have which, and how long jobs take there."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import product
from math import exp, log
from typing import Any

import pytest

from jigsaw_opt.instances.gpus import GPU_TYPES
from jigsaw_opt.instances.profiles import profile
from jigsaw_opt.instances.recipes import BATCHES
from jigsaw_opt.problem.workload import StageTimes, TraceJob, Workload
from jigsaw_opt.scheduling.allocation import Decision, Share
from jigsaw_opt.scheduling.performance.kinds import performance_of
from jigsaw_opt.scheduling.performance.profiled import Profiled
from jigsaw_opt.scheduling.performance.seconds import ESTIMATES, speeds_of
from jigsaw_opt.scheduling.placement.placing import PLACEMENTS
from jigsaw_opt.scheduling.policy import Policy, find
from jigsaw_opt.scheduling.policy_at_work import InvariantError
from jigsaw_opt.simulation.engine.setting import Setting
from jigsaw_opt.simulation.engine.simulation import Simulation
from tests.refusals import fails, misuse, refuses
from tests.simulation.asked import setting_of
from tests.simulation.cases import SECOND, Scripted, Watched, finish_s, job, random_jobs, run, types

MIXED = "2x4:a100+2x4:v100"
TYPES = (None, None, ("a100",), ("v100",), ("v100", "a100"))


def mixed_jobs(seed: int, count: int) -> tuple[TraceJob, ...]:
    draw = random.Random(seed)
    ran_on = (None, "a100", "v100")
    jobs = sorted(random_jobs(seed, count), key=lambda one: one.submit_us)
    limits = [(one.duration_us or 0) * draw.choice((1, 2, 5)) for one in jobs]
    return tuple(
        replace(one, gpu_types=draw.choice(TYPES), ran_on=draw.choice(ran_on), time_limit_us=limit_us)
        for one, limit_us in zip(jobs, limits, strict=True)
    )


def mixed(*jobs: TraceJob, speeds: str = "a100=1,v100=0.5", cluster: str = MIXED, **changes: Any) -> Setting:
    made = types(cluster)
    performance = performance_of("seconds", None, made, speeds=speeds)
    return Setting(made, Workload("w", jobs), performance, **{"round_us": 0, "restart_us": 0, **changes})


def keeping(policy: Policy, kept: list[tuple[Share, ...]]) -> Watched:
    return Watched(policy, lambda watched, observation, decision: kept.append(decision.shares))


@pytest.mark.parametrize(
    ("name", "placement"),
    [*product(("fifo", "srtf", "las", "backfill", "priority"), PLACEMENTS), ("sjf_bco", ""), ("gavel", "")],
)
def test_no_job_is_on_a_type_that_it_may_not_have_and_no_gpu_has_two(name: str, placement: str) -> None:
    policy, jobs, kept = find(name), mixed_jobs(7, 60), list[tuple[Share, ...]]()
    options = {"placement": placement} if placement else {}
    outcome = run(mixed(*jobs, round_us=60 * SECOND), keeping(policy, kept), **options)
    assert None not in finish_s(outcome) and len(outcome.jobs) == 60
    used: set[str] = set()
    for shares in kept:
        held = [gpu for share in shares for gpu in share.gpus]
        assert len(held) == len(set(held)) and set(held) <= set(range(16))
        for share in shares:
            (one,) = (jobs[k] for k in share.jobs)
            (gpu_type,) = {"a100" if gpu < 8 else "v100" for gpu in share.gpus}
            assert len(share.gpus) == one.gpus and (one.gpu_types is None or gpu_type in one.gpu_types)
            used.add(gpu_type)
    assert used == {"a100", "v100"}
    assert run(mixed(*jobs, round_us=60 * SECOND), policy, **options).jobs == outcome.jobs


@pytest.mark.parametrize(
    "policy", ["fifo", "las:placement=consolidated", "sjf_bco", "priority", "backfill:kind=conservative"]
)
def test_jobs_that_name_their_type_run_as_on_a_cluster_of_their_own(policy: str) -> None:
    draw = random.Random(1)
    jobs = [replace(one, gpu_types=(draw.choice(("a100", "v100")),), ran_on=None) for one in mixed_jobs(1, 80)]

    def times(own: list[TraceJob], cluster: str) -> dict[str, tuple[int | None, int | None]]:
        simulation = Simulation(setting_of(Workload("w", tuple(own)), cluster, policy, round_s=0, restart_s=10))
        simulation.run()
        return {own[one.index].name: (one.start_us, one.finish_us) for one in simulation.close().jobs}

    alone = [times([one for one in jobs if one.gpu_types == (name,)], f"2x4:{name}") for name in ("a100", "v100")]
    assert all(alone) and times(jobs, MIXED) == alone[0] | alone[1]


def fifo_by_type(
    jobs: Sequence[tuple[Fraction, Fraction, int, str, Sequence[str]]],
    speeds: Mapping[str, Fraction],
    free: dict[str, int],
) -> tuple[list[Fraction], list[Fraction]]:
    """Starts and ends by the textbook: counts of free GPUs, no placement, event by event.

    A job is its submission, its length on a type, its GPUs, this type, and the types that it may have, best first.
    """
    starts, ends = dict[int, Fraction](), dict[int, Fraction]()
    running, waiting, arrivals = list[tuple[Fraction, int, str, int]](), list[int](), list(enumerate(jobs))
    while arrivals or running:
        now = min([one[0] for _, one in arrivals[:1]] + [end[0] for end in running])
        for end in [each for each in running if each[0] == now]:
            running.remove(end)
            free[end[2]] += end[3]
        while arrivals and arrivals[0][1][0] == now:
            waiting.append(arrivals.pop(0)[0])
        held: set[str] = set()
        for k in list(waiting):
            _, length, gpus, of, may = jobs[k]
            chosen = next((name for name in may if name not in held and free[name] >= gpus), None)
            if chosen is None:
                held.update(may)
                continue
            waiting.remove(k)
            free[chosen] -= gpus
            starts[k], ends[k] = now, now + length * speeds[of] / speeds[chosen]
            running.append((ends[k], k, chosen, gpus))
    return [starts[k] for k in range(len(jobs))], [ends[k] for k in range(len(jobs))]


@pytest.mark.parametrize("seed", range(20))
def test_fifo_holds_for_a_waiting_job_the_types_that_it_may_have(seed: int) -> None:
    speeds, told = {"a100": Fraction(1), "v100": Fraction(1, 2)}, []
    jobs = mixed_jobs(seed, 40)
    for one in jobs:
        may = [name for name in speeds if name in (one.gpu_types or speeds)]
        of = one.ran_on or (may[0] if one.gpu_types and len(may) == 1 else "a100")
        told.append((Fraction(one.submit_us), Fraction(one.duration_us or 0), one.gpus, of, may))
    _, ends = fifo_by_type(told, speeds, {"a100": 8, "v100": 8})
    assert finish_s(run(mixed(*jobs), find("fifo"))) == [float(end / SECOND) for end in ends]


def test_durations_follow_the_speed_of_the_type() -> None:
    known, slow = replace(job("known", 0, 8, 60), ran_on="v100"), replace(job("slow", 0, 8, 60), gpu_types=("V100",))
    assert finish_s(run(mixed(known, slow), find("fifo"))) == [30, 60]
    assert finish_s(run(mixed(known, replace(slow, ran_on="a100")), find("fifo"))) == [30, 120]
    assert finish_s(run(mixed(known, job("any", 0, 8, 60)), find("fifo"))) == [30, 120]
    # By the estimates, a job that does not tell its type is of the one of which there are most GPUs.
    estimated = mixed(slow, known, speeds="", cluster="3x8:v100+1x8:a100")
    assert finish_s(run(estimated, find("fifo"))) == [60, 60 * float(ESTIMATES["v100"] / ESTIMATES["a100"])]
    one_type = mixed(known, speeds="", cluster="1x8:a100")
    assert finish_s(run(one_type, find("fifo"))) == [60]
    assert finish_s(run(mixed(known, cluster="1x8:a100"), find("fifo"))) == [30]


def test_a_rounded_speed_is_as_exact_as_the_page_says() -> None:
    long = TraceJob("x", 0, "seconds", 1, 10_000_001, gpu_types=("a100",), ran_on="v100")
    outcome = run(mixed(long, speeds="a100=1,v100=0.43"), find("fifo"))
    assert outcome.jobs[0].finish_us == pytest.approx(4_300_000_430_000, rel=5e-9, abs=0)


def test_estimated_speeds_follow_from_the_data_sheets() -> None:
    logs: dict[str, list[float]] = {name: [] for name in GPU_TYPES}
    for network, batch in BATCHES.items():
        model = profile(network, batch, [*GPU_TYPES], 6)
        for name, own in logs.items():
            own.append(log(model.block_us("a100")[-1] / model.block_us(name)[-1]))
    for name, own in logs.items():
        assert float(ESTIMATES[name]) == pytest.approx(exp(sum(own) / len(own)), rel=0.03), name


@pytest.mark.parametrize(
    ("speeds", "cluster", "expected", "named"),
    [
        ("a100", MIXED, "malformed speeds", "TYPE=SPEED"),
        ("a100=0,v100=1", MIXED, "malformed speeds", "'a100=0'"),
        ("a100=1,a100=2", MIXED, "malformed speeds", "each once"),
        ("a100=nan,v100=1", MIXED, "malformed speeds", "'a100=nan'"),
        ("h100=2", "1x4:v100", "missing-option speeds", "'h100=2,v100=SPEED'"),
        ("", "1x4:mine+1x4:a100", "missing-option speeds", "'a100=1,mine=SPEED'"),
        ("a100=1", "1x7:a100_1g.10gb+1x4:a100", "missing-option speeds", "'a100=1,a100_1g.10gb=SPEED'"),
    ],
)
def test_what_is_wrong_with_speeds(speeds: str, cluster: str, expected: str, named: str) -> None:
    with misuse(expected, naming=[named]):
        speeds_of(speeds, types(cluster))


def test_a_policy_that_gives_a_type_that_a_job_may_not_have_is_stopped() -> None:
    bound = replace(job("bound", 0, 1, 60), gpu_types=("v100",))
    with fails(InvariantError, "'bound'", "a100"):
        run(mixed(bound), Scripted(lambda moment: Decision((Share((0,), (0,)),))))


def test_reading_tells_what_becomes_of_types() -> None:
    named, two_types = {"gpu_types": ("a100",), "ran_on": "a100"}, "1x4:a100+2x4:v100"
    other = job("b", 1, 1, 60, gpu_types=("h100", "a100"))
    workload = Workload("w", (job("a", 0, 1, 60, **named), other, job("wide", 2, 6, 60, **named)))
    one_type = setting_of(workload, "2x4:v100", "fifo").workload
    assert [one.gpu_types for one in one_type.jobs] == [None] * 3
    assert one_type.remarks == {
        "jobs that ask for another type of GPU than the cluster's v100, and run there": 3,
        "jobs that ran on another type of GPU than v100, with durations as they are; speeds says how fast types are": 2,
    }
    assert not setting_of(workload, "2x4", "fifo").workload.remarks
    with refuses("unsupported workload $.jobs[2]", naming=["'wide'", "6 GPUs", "4"]):
        setting_of(workload, two_types, "fifo")
    skipped = setting_of(workload, two_types, "fifo", too_wide="skip").workload
    assert [one.name for one in skipped.jobs] == ["a", "b"] and sum(skipped.left_out.values()) == 1
    told = "jobs that do not tell which type of GPU they ran on, with durations as on v100"
    assert skipped.remarks == {told: 1}
    expected = [f"unsupported workload $.jobs[{k}]" for k in (0, 2)]
    with refuses(*expected, naming=["'a100'", "'v100=1,a100=SPEED'"]):
        setting_of(workload, "2x4:v100", "fifo", speeds="v100=1")
    with misuse("not-together performance"):
        setting_of(workload, "pod/plain", "fifo", speeds="v100=1")


@pytest.mark.parametrize("policy", ["jigsaw", "fill", "separate", "srtf"])
def test_jobs_with_models_are_on_types_that_they_may_have(policy: str) -> None:
    made = types("1x4:a100+1x4:v100")
    models = {"net": profile("resnet50", 64, ["a100", "v100"], 3), "old": profile("resnet50", 32, ["v100"], 3)}
    draw, jobs = random.Random(5), []
    for k in range(24):
        model, allowed = draw.choice([("net", None), ("net", ("a100",)), ("net", ("v100",)), ("old", None)])
        gpus, foreground = draw.choice((1, 1, 2, 4)), draw.random() < 0.4
        one = TraceJob(f"j{k}", k * 20 * SECOND, model, gpus, draw.randrange(200, 900), foreground=foreground)
        jobs.append(replace(one, gpu_types=allowed))
    where = Setting(made, Workload("w", tuple(jobs)), Profiled(made, models), round_us=60 * SECOND, restart_us=0)
    kept, used = list[tuple[Share, ...]](), set()
    outcome = run(where, keeping(find(policy), kept), **{key: of[0] for key, of in find(policy).options.items()})
    assert None not in finish_s(outcome)
    for share in (share for shares in kept for share in shares):
        (gpu_type,) = {"a100" if gpu < 4 else "v100" for gpu in share.gpus}
        for own in (jobs[k] for k in share.jobs):
            known = {"a100", "v100"} if own.model == "net" else {"v100"}
            assert gpu_type in known.intersection(own.gpu_types or known)
            used.add((own.gpu_types, gpu_type))
    assert len(used) == 4


def test_stages_take_longer_on_slower_types() -> None:
    made, stages = types("1x4:a100+1x4:v100"), {"net": StageTimes(10_000, 20_000, 30_000, 60_000)}
    performance = performance_of("stages", None, made, stages, "a100=1,v100=0.5")
    jobs = [TraceJob(name, 0, "net", 4, 1000, gpu_types=(name,), ran_on="a100") for name in ("a100", "v100")]
    for policy in ("interleave", "jigsaw", "fifo"):
        fast, slow = finish_s(run(Setting(made, Workload("w", tuple(jobs)), performance, restart_us=0), find(policy)))
        assert fast is not None and slow == pytest.approx(2 * fast, rel=1e-3), policy

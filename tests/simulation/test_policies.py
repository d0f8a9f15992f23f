"""What each policy prefers, on settings small enough to see it; and what all of them have in common."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from jigsaw_opt.problem.cluster import Link
from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling.allocation import Decision, Share
from jigsaw_opt.scheduling.placement.placing import FreeGpus, by_priority
from jigsaw_opt.scheduling.policies import NamedPolicy
from jigsaw_opt.scheduling.policies.fifo import FIFO
from jigsaw_opt.scheduling.policies.las import LAS
from jigsaw_opt.scheduling.policies.sjf_bco import SJF_BCO
from jigsaw_opt.scheduling.policies.srtf import SRTF
from jigsaw_opt.scheduling.policy import JobState, Observation, choose
from jigsaw_opt.scheduling.policy_at_work import PolicyAtWork
from jigsaw_opt.simulation.engine.setting import Setting
from jigsaw_opt.simulation.engine.simulation import Simulation
from tests.refusals import misuse, require_data
from tests.simulation.cases import (
    SECOND,
    Scripted,
    Watched,
    cluster,
    finish_s,
    job,
    random_jobs,
    restarts,
    run,
    setting,
    types,
)
from tests.simulation.resumable import CASES

HOUR = 3600


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


def test_free_gpus_are_taken_where_they_fit_best_on_few_servers_or_on_the_emptiest() -> None:
    made = setting(job("a", 0, 1, 1))
    free = FreeGpus(made, [Share((0,), (0, 1))])
    assert [free.place(job("b", 0, count, 1), "packed") for count in (3, 2, 2)] == [(4, 5, 6), (2, 3), None]
    assert free.count == 1
    few = FreeGpus(made, [Share((0,), (0,)), Share((1,), (4,))])
    assert [few.place(job("c", 0, count, 1), "consolidated") for count in (4, 6)] == [None, (1, 2, 3, 5, 6, 7)]
    for count, gpus in ((5, (0, 1, 2, 3, 4)), (9, None)):
        assert FreeGpus(made).place(job("c", 0, count, 1), "consolidated") == gpus
    empty = FreeGpus(made)
    found = [empty.place(job("a", 0, count, 1), "emptiest") for count in (1, 1, 4, 3)]
    assert found == [(0,), (4,), (1, 2, 3, 5), None]


def test_consolidated_jobs_move_later_ones_out_of_their_way() -> None:
    # a and b hold a GPU of each server; the short job c needs a whole server, so a, who is on the first, has to move.
    made = setting(job("a", 0, 1, 900), job("b", 0, 1, 950), job("c", 60, 4, 60), round_us=0)
    assert finish_s(run(made, LAS, placement="emptiest")) == [900, 950, 120]
    a, b, c = (JobState(k, one, 1) for k, one in enumerate(made.workload.jobs))
    a.share, b.share = Share((0,), (0,)), Share((1,), (4,))
    moved = Share((2,), (0, 1, 2, 3)), Share((0,), (5,)), b.share
    assert by_priority(made, [c, a, b], list, "consolidated") == moved
    assert by_priority(made, [c, a, b], list, "packed") == (a.share, b.share, Share((2,), (1, 2, 3, 5)))


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


def decided(text: str, where: Setting, before_us: int) -> list[tuple[int, Decision]]:
    noted: list[tuple[int, Decision]] = []

    def look(watched: Watched, observation: Observation, decision: Decision) -> None:
        assert not hasattr(watched.setting, "workload")
        noted.append((observation.now_us, decision))

    policy, options = choose(text)
    Simulation(where.under(Watched(policy, look), **options)).run(until_us=before_us - 1)
    return noted


@pytest.mark.parametrize("text", CASES)
def test_jobs_that_are_still_to_come_change_no_decision(text: str) -> None:
    whole = CASES[text]()
    jobs = whole.workload.jobs
    kept = next(k for k in range(len(jobs) // 2, len(jobs)) if jobs[k].submit_us > jobs[k - 1].submit_us)
    cut = replace(whole, workload=replace(whole.workload, jobs=jobs[:kept]))
    first = decided(text, whole, jobs[kept].submit_us)
    assert first
    assert decided(text, cut, jobs[kept].submit_us) == first


class _Narrow:
    """Refuses jobs by their width."""

    def refuses(self, job: TraceJob) -> str | None:
        return f"job {job.name!r} is too wide" if job.gpus > 2 else None

    def decide(self, observation: Observation) -> Decision:
        raise AssertionError("it is never asked")


def test_the_first_job_that_a_policy_refuses_is_named_before_anything_runs() -> None:
    jobs = (job("a", 0, 1, 10), job("b", 5, 4, 10), job("c", 9, 8, 10))
    narrow = PolicyAtWork(NamedPolicy("narrow", "by width", lambda *_: _Narrow()), {}, setting(*jobs))
    require_data(narrow.refusal(jobs), "'b'")
    assert narrow.refusal(jobs[:1]) is None
    assert PolicyAtWork(Scripted(lambda moment: Decision()), {}, setting(*jobs)).refusal(jobs) is None
    policy, options = choose("fifo")
    with misuse("unsupported", naming=["'d'", "asks for 9"]):
        run(setting(*jobs, job("d", 99, 9, 10)), policy, **options)


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

"""Classes of priority, restart costs and aging: who comes first, who makes way, and what must not happen."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jigsaw_opt.errors import UsageError
from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling.allocation import Decision
from jigsaw_opt.scheduling.placement.placing import FreeGpus
from jigsaw_opt.scheduling.policies.priority import PRIORITY
from jigsaw_opt.scheduling.policies.srtf import SRTF
from jigsaw_opt.scheduling.policy import Observation, Policy, choose
from jigsaw_opt.simulation.engine.records import SimulationOutcome
from jigsaw_opt.simulation.engine.simulation import Simulation
from tests.simulation.cases import (
    SECOND,
    Watched,
    cluster,
    finish_s,
    job,
    random_jobs,
    restarts,
    run,
    setting,
    starts_s,
    types,
)


def of(priority: int | None, name: str, submit_s: float, gpus: int, seconds: int, **stated: Any) -> TraceJob:
    return job(name, submit_s, gpus, seconds, priority=priority, **stated)


def outcome(*jobs: TraceJob, restart_s: int = 0, **options: str) -> SimulationOutcome:
    return run(setting(*jobs, cluster=cluster(1, 8), round_us=0, restart_s=restart_s), PRIORITY, **options)


def ends_s(*jobs: TraceJob, restart_s: int = 0, **options: str) -> list[float | None]:
    return finish_s(outcome(*jobs, restart_s=restart_s, **options))


def test_higher_classes_stop_lower_ones_which_pay_for_a_start() -> None:
    jobs = (of(0, "low", 0, 8, 100), of(5, "high", 10, 8, 20))
    assert ends_s(*jobs) == [120, 30]
    assert ends_s(*jobs, restart_s=7) == [7 + 100 + 27 + 7, 37]
    assert ends_s(*(replace(one, priority=5) for one in jobs)) == [100, 120]  # of one class nobody makes way
    assert ends_s(of(0, "low", 0, 8, 100, preemptible=False), jobs[1]) == [100, 120]
    assert ends_s(of(None, "none", 0, 8, 100), of(1, "high", 10, 8, 20)) == [120, 30]


def test_the_lowest_class_makes_way_first_and_of_it_the_youngest_or_smallest() -> None:
    running = (of(1, "middle", 0, 2, 100), of(0, "old", 0, 1, 100), of(0, "wide", 0, 3, 100), of(0, "young", 1, 2, 100))
    urgent = of(9, "urgent", 5, 1, 10)
    assert restarts(outcome(*running, urgent)) == [0, 0, 0, 1, 0]
    assert restarts(outcome(*running, urgent, victims="smallest")) == [0, 1, 0, 0, 0]


def test_a_large_victim_alone_makes_way_where_it_suffices() -> None:
    """Slurm's page on preemption: candidates of 2, 4 and 8 for a job of 8; stopping only one makes room."""
    jobs = (*(of(0, f"low{size}", 0, size, 100) for size in (2, 4, 8)), of(1, "high", 5, 8, 10))
    made = setting(*jobs, cluster=cluster(1, 14), round_us=0)
    assert restarts(run(made, PRIORITY, victims="smallest")) == [0, 0, 1, 0]


def test_nobody_is_stopped_for_a_job_that_would_still_not_fit() -> None:
    """All workers of a job start at once: jobs are not stopped one by one for a job that then cannot start."""
    found = outcome(of(0, "low", 0, 4, 100), of(7, "fixed", 0, 4, 100, preemptible=False), of(5, "wide", 10, 8, 10))
    assert (restarts(found), finish_s(found)) == ([0, 0, 0], [100, 100, 110])


def test_grace_keeps_the_gpus_for_the_job_that_waits() -> None:
    jobs = (of(0, "low", 0, 6, 100), of(5, "high", 10, 8, 20), of(0, "thief", 11, 2, 500))
    assert ends_s(*jobs, grace="30") == [100 + 20, 60, 60 + 500]  # two GPUs stay free for 30 s
    assert ends_s(*jobs, grace="0") == [120, 30, 530]
    # Who is stopped goes on working meanwhile: 40 s of 100 are done.
    assert outcome(*jobs, grace="30").jobs[0].restarts == 1


def test_a_chosen_job_stops_though_its_gpus_became_free() -> None:
    jobs = (of(0, "low", 0, 4, 1000), of(1, "short", 0, 4, 110), of(1, "high", 100, 4, 100))
    found = outcome(*jobs, grace="60", restart_s=30)
    assert (finish_s(found), restarts(found)) == ([30 + 1000 + 30, 140, 140 + 130], [1, 0, 0])
    assert [stint.start_us for stint in found.stints if stint.job == 0] == [0, 160 * SECOND]


def test_staggered_stops_are_not_undone_by_those_that_stop() -> None:
    """Victims that stop at different times do not come back before the job that they stop for has started."""
    jobs = (
        of(0, "a", 0, 4, 100),
        of(0, "b", 0, 4, 100),
        of(5, "first", 10, 4, 100),  # b has until 40
        of(9, "second", 25, 8, 10),  # a has until 55
    )
    found = outcome(*jobs, grace="30")
    assert (finish_s(found), restarts(found)) == ([65 + 45, 110 + 60, 65 + 100, 65], [1, 1, 0, 0])


def test_an_exempt_job_makes_way_later() -> None:
    jobs = (of(0, "low", 0, 8, 100), of(5, "high", 10, 8, 20))
    assert ends_s(*jobs, exempt="50") == [120, 70]


def test_a_wide_job_is_passed_over_or_holds_those_behind_it() -> None:
    stream = [of(0, f"small{k}", 10 * k, 4, 25) for k in range(8)]
    wide = of(0, "wide", 15, 8, 10)
    starved, held = (outcome(*stream, wide, blocked=word).jobs[2].start_us or 0 for word in ("pass", "hold"))
    assert (starved, held) == (110 * SECOND, 35 * SECOND)


def test_classes_by_weight_and_by_partition(tmp_path: Path) -> None:
    jobs = (of(0, "low", 0, 8, 100, queue="batch"), of(0, "high", 10, 8, 20, weight=3, queue="urgent"))
    assert ends_s(*jobs) == [100, 120]
    assert ends_s(*jobs, by="weight") == [120, 30]
    path = tmp_path / "slurm.conf"
    path.write_text("PartitionName=batch\nPartitionName=urgent PriorityTier=10\n")
    assert ends_s(*jobs, by="partition", conf=str(path)) == [120, 30]
    with pytest.raises(UsageError, match="belong together"):
        Simulation(setting(*jobs).under(PRIORITY, by="partition"))


def test_on_several_types_a_job_takes_what_is_free_before_it_stops_another() -> None:
    jobs = (of(0, "low", 0, 4, 100), of(5, "high", 10, 4, 20), of(9, "picky", 20, 4, 20, gpu_types=("fast",)))
    made = setting(*jobs, cluster=types("1x4:fast+1x4:slow"), round_us=0)
    assert restarts(run(made, PRIORITY)) == [1, 0, 0]


@pytest.mark.parametrize("policy", [PRIORITY, SRTF], ids=lambda policy: policy.name)
def test_a_job_that_is_stopped_goes_on_at_once_where_gpus_are_idle(policy: Policy) -> None:
    jobs = (of(0, "low", 0, 4, 1000), of(1, "high", 100, 4, 500, gpu_types=("fast",)))
    found = run(setting(*jobs, cluster=types("1x4:fast+1x4:slow"), round_us=0, restart_s=30), policy)
    assert finish_s(found) == [30 + 1000 + 30, 100 + 530]
    assert [stint.start_us // SECOND for stint in found.stints if stint.job == 0] == [0, 100]


def who_may_stop_whom(watched: Watched, observation: Observation, decision: Decision) -> None:
    """Only a higher job stops another, and none waits for which lower ones could make room."""
    jobs = {index: active.job for index, active in observation.jobs.items()}
    rank = {index: one.priority or 0 for index, one in jobs.items()}
    runs = {index: share for share in decision.shares for index in share.jobs}
    before = {index for share in observation.shares for index in share.jobs}
    stopped, started = before - runs.keys(), runs.keys() - before
    assert not stopped or max(rank[index] for index in started) > max(rank[index] for index in stopped)
    assert all(jobs[index].preemptible is not False for index in stopped)
    for waits in jobs.keys() - runs.keys():
        stay = [share for k, share in runs.items() if rank[k] >= rank[waits] or jobs[k].preemptible is False]
        assert FreeGpus(watched.setting, stay, observation.down).place(jobs[waits], "packed") is None


@pytest.mark.parametrize("victims", ["youngest", "smallest"])
@pytest.mark.parametrize("seed", range(6))
def test_no_job_waits_that_lower_ones_could_make_room_for(seed: int, victims: str) -> None:
    draw = random.Random(seed)
    jobs = [
        replace(one, priority=draw.randrange(4), preemptible=draw.choice((None, None, True, False)))
        for one in random_jobs(seed, 60)
    ]
    made = setting(*jobs, round_us=0, restart_s=seed)
    found = run(made, Watched(PRIORITY, who_may_stop_whom), victims=victims)
    assert None not in finish_s(found) and sum(restarts(found)) > 0


HOUR = 3600


def under(policy: str, *jobs: TraceJob, restart_s: int = 0) -> SimulationOutcome:
    made = setting(*jobs, cluster=cluster(1, 4), round_us=0, restart_s=restart_s)
    simulation = Simulation(made.under(policy))
    simulation.run()
    return simulation.close()


@pytest.mark.parametrize(
    ("hysteresis", "seconds", "stopped"), [(0, 920, [1, 0]), (1, 920, [0, 0]), (2, 920, [0, 0]), (4, 200, [1, 0])]
)
def test_a_job_takes_gpus_only_if_it_is_shorter_by_some_restarts(
    hysteresis: int, seconds: int, stopped: list[int]
) -> None:
    """After 100 s, 70 of them behind the start, the first has 1000 - 70 s left; 920 s are less than 30 s shorter."""
    jobs = (job("a", 0, 4, 1000), job("b", 100, 4, seconds))
    assert restarts(under(f"srtf:hysteresis={hysteresis}", *jobs, restart_s=30)) == stopped


def test_aging_bounds_waiting() -> None:
    """It waits until the small jobs run out, or for so many hours as aging says; then it keeps its GPUs to its end."""
    small = [job(f"s{k}", k * HOUR, 1, 2 * HOUR) for k in range(60)]
    jobs = (small[0], job("wide", 60, 4, 3 * HOUR), *small[1:])
    assert starts_s(under("srtf", *jobs))[1] > 60 * HOUR
    after = under("srtf:aging=10", *jobs)
    assert (starts_s(after)[1], after.jobs[1].restarts) == (10 * HOUR + 60, 0)
    before, after = (under(f"las:threshold=1{option}", *jobs) for option in ("", ":aging=10"))
    assert finish_s(after)[1] < finish_s(before)[1]


def test_who_aged_first_goes_first_and_is_not_stopped() -> None:
    """The first job ran for six hours, so that it has waited five only at 11 h; the second one has at 6 h already."""
    jobs = (job("a", 0, 4, 20 * HOUR), *(job(f"s{k}", (6 + k) * HOUR, 4, HOUR) for k in range(12)))
    outcome = under("srtf:aging=5", jobs[0], job("b", HOUR, 4, 30 * HOUR), *jobs[1:])
    first, second = outcome.jobs[:2]
    assert (second.start_us, second.finish_us, second.restarts) == (6 * HOUR * SECOND, 36 * HOUR * SECOND, 0)
    assert (first.finish_us, first.restarts) == ((36 + 14) * HOUR * SECOND, 1)


def waits_of_aged_jobs(policy: Policy, options: Mapping[str, str], seed: int) -> int:
    """How often aged jobs waited, each time for others that had aged before."""
    aged: dict[int, None] = {}
    waits = 0

    def look(watched: Watched, observation: Observation, decision: Decision) -> None:
        nonlocal waits
        since = {index: one.job.submit_us + one.run_us + HOUR * SECOND for index, one in observation.jobs.items()}
        new = sorted((us, index) for index, us in since.items() if us <= observation.now_us and index not in aged)
        aged.update(dict.fromkeys(index for _, index in new))
        running, left = {index for share in decision.shares for index in share.jobs}, watched.setting.gpu_count
        for active in (observation.jobs[index] for index in aged if index in observation.jobs):
            assert (active.index in running) == (active.job.gpus <= left), "all others that run aged before it"
            left -= active.job.gpus if active.index in running else 0
            waits += active.index not in running

    made = setting(*random_jobs(seed, 40, most=4), cluster=cluster(1, 4), round_us=0, restart_s=10)
    run(made, Watched(policy, look), **options)
    return waits


@pytest.mark.parametrize("text", ["srtf", "las:threshold=1", "srtf:measure=service"])
def test_only_jobs_that_aged_before_come_before_an_aged_job(text: str) -> None:
    policy, options = choose(f"{text}:aging=1")
    assert sum(waits_of_aged_jobs(policy, options, seed) for seed in range(6)) > 100

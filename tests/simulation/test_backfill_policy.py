"""Backfill against the textbook, written out, and what it does with estimates, servers and failures."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from itertools import product

import pytest

from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling.policies.slurm import backfill
from jigsaw_opt.scheduling.policies.slurm.backfill import BACKFILL
from jigsaw_opt.scheduling.policies.slurm.multifactor import MULTIFACTOR
from jigsaw_opt.scheduling.policies.slurm.server_reservations import ServerReservations
from jigsaw_opt.scheduling.policy import Policy
from jigsaw_opt.simulation.engine.simulation import Simulation
from jigsaw_opt.sweeps.assumptions import assumptions
from tests.refusals import carries, misuse
from tests.simulation.cases import SECOND, cluster, job, run, setting, starts_s

GPUS = 8


class Textbook:
    """FCFS with backfill on `GPUS` GPUs that are all alike, which counts them and nothing else.

    Jobs are tuples of submission, GPUs, run time and estimate, in order of submission.
    """

    def __init__(self, jobs: list[tuple[int, int, int, int]]) -> None:
        self.jobs, self.starts = jobs, dict[int, int]()
        self.reserved: dict[int, int] = {}

    def run(self, conservative: bool) -> dict[int, int]:
        while len(self.starts) < len(self.jobs):
            now = min(t for t in self.events() if t > self.now) if self.starts or self.now >= 0 else self.jobs[0][0]
            self.now = now
            (self.conservative if conservative else self.easy)(now)
        return self.starts

    now = -1

    def events(self) -> set[int]:
        ends = {self.starts[k] + self.jobs[k][2] for k in self.starts}
        expected = {self.end(k, max(0, self.now)) for k in self.running(self.now)}
        return ends | expected | {submit for submit, *_ in self.jobs}

    def running(self, now: int) -> list[int]:
        return [k for k, start in self.starts.items() if start + self.jobs[k][2] > now]

    def end(self, k: int, now: int) -> int:
        estimate = self.jobs[k][3]
        while self.starts[k] + estimate <= now:
            estimate *= 2
        return self.starts[k] + estimate

    def waiting(self, now: int) -> list[int]:
        return [k for k, (submit, *_) in enumerate(self.jobs) if submit <= now and k not in self.starts]

    def free(self, now: int) -> int:
        return GPUS - sum(self.jobs[k][1] for k in self.running(now))

    def easy(self, now: int) -> None:
        queue = self.waiting(now)
        while queue and self.jobs[queue[0]][1] <= self.free(now):
            self.starts[queue.pop(0)] = now
        if not queue:
            return
        need = self.jobs[queue[0]][1]
        ends = {k: self.end(k, now) for k in self.running(now)}

        def free_at(time: int) -> int:
            return self.free(now) + sum(self.jobs[k][1] for k, end in ends.items() if end <= time)

        shadow = min(end for end in ends.values() if free_at(end) >= need)
        extra = free_at(shadow) - need
        for k in queue[1:]:
            _, gpus, _, estimate = self.jobs[k]
            in_time = now + estimate <= shadow
            if gpus <= self.free(now) and (in_time or gpus <= extra):
                extra -= 0 if in_time else gpus
                self.starts[k] = now

    def conservative(self, now: int) -> None:
        kept = {k: max(now, self.reserved[k]) for k in self.waiting(now) if k in self.reserved}
        if any(self.used(kept, now, time) > GPUS for time in (now, *kept.values())):
            kept = {}
        for k in self.waiting(now):
            _, gpus, _, estimate = self.jobs[k]
            kept.pop(k, None)
            ends = [self.end(j, now) for j in self.running(now)] + [kept[j] + self.jobs[j][3] for j in kept]
            for start in sorted({now, *ends}):
                inside = [start, *(t for t in kept.values() if start < t < start + estimate)]
                if all(self.used(kept, now, t) + gpus <= GPUS for t in inside):
                    break
            if start == now:
                self.starts[k] = now
            else:
                kept[k] = start
        self.reserved = kept

    def used(self, reserved: Mapping[int, int], now: int, time: int) -> int:
        held = sum(self.jobs[k][1] for k in self.running(now) if self.end(k, now) > time)
        return held + sum(self.jobs[k][1] for k, t in reserved.items() if t <= time < t + self.jobs[k][3])


def drawn(seed: int, overrun: bool) -> list[tuple[int, int, int, int]]:
    """Jobs whose run times are at most their estimates, or by choice also longer, in whole seconds then."""
    draw, unit = random.Random(seed), SECOND if overrun else 1
    found = []
    for _ in range(25):
        estimate = draw.randrange(1, 40) * (SECOND if draw.random() < 0.5 or overrun else 999_983)
        length = (
            estimate if draw.random() < 0.2 else draw.randrange(1, (3 if overrun else 1) * estimate // unit + 1) * unit
        )
        gpus = draw.choice((1, 1, 2, 3, 4, 6, 8))
        found.append((draw.randrange(0, 150 * SECOND // unit) * unit, gpus, length, estimate))
    return sorted(found, key=lambda one: one[0])


def started(jobs: list[tuple[int, int, int, int]], **options: str) -> dict[int, int | None]:
    made = [
        replace(TraceJob.lasting(f"j{k}", submit, gpus, length), time_limit_us=estimate)
        for k, (submit, gpus, length, estimate) in enumerate(jobs)
    ]
    outcome = run(setting(*made, cluster=cluster(GPUS, 1), round_us=0), BACKFILL, **options)
    return {record.index: record.start_us for record in outcome.jobs}


@pytest.mark.parametrize("kind", ["easy", "conservative"])
@pytest.mark.parametrize("overrun", [False, True], ids=["within", "beyond"])
def test_starts_are_those_of_the_textbook(kind: str, overrun: bool) -> None:
    for seed in range(50):
        jobs = drawn(seed, overrun)
        assert started(jobs, kind=kind) == Textbook(jobs).run(kind == "conservative"), seed


def test_a_job_without_a_limit_is_refused_with_what_makes_it_run() -> None:
    made = setting(job("a", 0, 1, 5))
    with misuse("unsupported", naming=["'a'", "backfill:default_limit=24", "backfill:estimates=recent"]):
        Simulation(made.under(BACKFILL))
    for options in ({"default_limit": "24"}, {"estimates": "recent"}):
        assert [record.start_us for record in run(made, BACKFILL, **options).jobs] == [0]
    with misuse("unsupported policy", naming=["reserve=servers", "kind=easy"]):
        Simulation(made.under(BACKFILL, kind="conservative", placement="consolidated"))
    Simulation(
        made.under(BACKFILL, kind="conservative", placement="consolidated", reserve="servers", default_limit="4")
    )


def of(user: str, name: str, submit_s: float, gpus: int, seconds: int, limit_s: int | None = None) -> TraceJob:
    limit_us = None if limit_s is None else limit_s * SECOND
    return job(name, submit_s, gpus, seconds, user=user, time_limit_us=limit_us)


def starts(*jobs: TraceJob, servers: int = 1, **options: str) -> list[float | None]:
    return starts_s(run(setting(*jobs, cluster=cluster(servers, 8 // servers), round_us=0), BACKFILL, **options))


def test_the_last_two_jobs_of_a_user_predict_the_next() -> None:
    jobs = (
        of("ann", "past", 0, 1, 10, 1000),
        of("bob", "long", 20, 6, 100, 100),
        of("bob", "head", 21, 8, 10, 1000),
        of("ann", "next", 22, 2, 20, 1000),
        of("cat", "new", 23, 2, 20, 1000),
    )
    assert starts(*jobs) == [0, 20, 120, 130, 130]
    assert starts(*jobs, estimates="recent") == [0, 20, 120, 22, 130]  # ann's job is taken for one of 10 s


def test_a_later_job_leaves_the_first_its_few_servers() -> None:
    jobs = (
        of("u", "left", 0, 3, 50, 50),
        of("u", "right", 0, 2, 100, 100),
        of("u", "head", 1, 4, 10, 10),
        of("u", "long", 2, 2, 500, 500),
        of("u", "short", 2, 1, 40, 40),
    )
    # Two servers of four: the head waits for the left one, and the long job fits beside the right job only.
    assert starts(*jobs, servers=2, placement="consolidated") == [0, 0, 50, 2, 2]


@pytest.mark.parametrize("kind", ["easy", "conservative"])
def test_whole_servers_are_reserved_as_in_slurm(kind: str) -> None:
    """ "The backfill scheduler reserves whole nodes for jobs, not partial nodes" (slurm.conf)."""
    jobs = (
        of("u", "left", 0, 4, 50, 100),
        of("u", "right", 0, 3, 60, 60),
        of("u", "head", 1, 5, 10, 10),
        of("u", "long", 2, 1, 500, 500),
        of("u", "short", 2, 1, 40, 40),
    )
    # On two servers of four the head is expected to start at 100, when eight GPUs are free. By number there is one for
    # the long job, but the head needs both servers.
    assert starts(*jobs, servers=2, kind=kind) == [0, 0, 60, 2, 50]
    assert starts(*jobs, servers=2, kind=kind, reserve="servers") == [0, 0, 50, 60, 2]


def test_reservations_of_whole_servers_are_made_anew_and_may_become_later() -> None:
    """The last job has server 1 reserved at 47, as the third one is to wait for both servers; but that starts at 47."""
    jobs = (of("u", "all", 0, 8, 47, 47), of("u", "a", 12, 2, 35, 35), of("u", "b", 19, 6, 41, 41))
    late = of("u", "late", 37, 4, 1, 1)
    assert starts(*jobs, late, servers=2, kind="conservative", reserve="servers") == [0, 47, 47, 88]


def test_limits_do_not_count_the_time_of_a_start() -> None:
    jobs = (of("u", "a", 0, 8, 50, 50), of("u", "b", 1, 8, 50, 50))
    simulation = Simulation(setting(*jobs, restart_s=30, round_us=0).under(BACKFILL))
    simulation.run()
    assert [record.time_us // SECOND for record in simulation.close().rounds] == [0, 1, 80]


def test_what_estimates_are_worth_is_among_the_assumptions() -> None:
    made = setting(of("u", "a", 0, 1, 50, 40), of("u", "b", 0, 1, 5, 40), job("c", 0, 1, 5))
    words = {"workload": "w", "cluster": "c", "contention": "exclusive", "restart_s": 0, "round_s": 0}
    told = dict(assumptions(replace(made, words={**words, "failures": "", "draw_models": False}), ["backfill"]))
    assert carries(told["estimates"], "2 of 3 jobs", "backfill", "1 runs longer")


class EveryTime(ServerReservations):
    """Reservations that look at every time from now on, whatever other jobs have found."""

    def may_start(self, gpus: int, length_us: int) -> bool:
        return True

    def earliest(self, job: TraceJob, length_us: int, placement: str) -> tuple[int, tuple[int, ...]] | None:
        for k, start_us in enumerate(self.times):
            within = [at for at in range(k, len(self.times)) if at == k or self.times[at] < start_us + length_us]
            servers = {n for at in within for n in range(64) if self.values[at][1] >> n & 1}
            gpus = self.values[k][0].without_servers(servers).place(job, placement)
            if gpus is not None:
                return start_us, gpus
        return None


@pytest.mark.parametrize("policy", [BACKFILL, MULTIFACTOR], ids=lambda policy: policy.name)
def test_what_is_not_looked_at_changes_no_start(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs that cannot start are passed over, and searches begin where those of shorter jobs ended."""
    ways = [*product(("easy", "conservative"), ("packed", "emptiest", "consolidated"), ("servers",))]
    for seed, (kind, placement, reserve) in enumerate([*ways, ("easy", "packed", "gpus")]):
        draw, options = random.Random(seed), {"kind": kind, "reserve": reserve, "placement": placement}
        jobs = []
        for k in range(60):
            user, submit_s, gpus = draw.choice("uvw"), draw.randrange(400), draw.choice((1, 1, 2, 3, 4, 8))
            seconds = draw.randrange(1, 120)
            limit_s = draw.choice((seconds, 2 * seconds, 5 * seconds, max(1, seconds // 2)))
            jobs.append(of(user, f"j{k}", submit_s, gpus, seconds, limit_s))
        made = setting(*sorted(jobs, key=lambda job: job.submit_us), cluster=cluster(4), round_us=0)
        found = run(made, policy, **options)
        with monkeypatch.context() as patched:
            patched.setattr(backfill, "ServerReservations", EveryTime)
            patched.setattr(backfill, "_least_behind", lambda values: [0] * len(values))
            wanted = run(made, policy, **options)
        assert (found.jobs, found.uses) == (wanted.jobs, wanted.uses), seed

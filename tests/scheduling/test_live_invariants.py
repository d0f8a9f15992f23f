"""Events of all kinds in any order, and a large cluster that is taken over while it runs."""

from __future__ import annotations

import random

import pytest

from jigsaw_opt.problem.cluster import Cluster, Link, Server
from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling import JobRunning, JobSubmitted, LiveScheduler
from tests.scheduling.live_cases import CASES, MODELS, SECOND, runs
from tests.scheduling.live_invariants import hold_events


@pytest.mark.parametrize("text", CASES)
def test_whatever_happens_changes_can_be_carried_out_and_state_and_journal_lead_on(text: str) -> None:
    taken, steps = hold_events(text, 1, 110)
    assert taken > 80 and steps > 10


def large_cluster(servers: int) -> Cluster:
    own = tuple(Server(f"s{k}", "v", 8, 10**10, 10**11) for k in range(servers))
    return Cluster(own, ("switch",), tuple(Link(f"l{k}", (f"s{k}", "switch"), 10**10, 10) for k in range(servers)))


def taken_over(policy: str, draw: random.Random, cluster: Cluster) -> tuple[LiveScheduler, dict[str, tuple[str, ...]]]:
    """A scheduler that is told of jobs on 80 % of the GPUs of a cluster, and of jobs that wait."""
    live, where, names = LiveScheduler(cluster, policy, models=MODELS, round_us=0), dict[str, tuple[str, ...]](), 0
    for first in range(0, len(cluster.gpus.names) * 4 // 5, 8):
        sizes = draw.choice(((8,), (4, 4), (4, 2, 1, 1), (1,) * 8))
        at = first
        for gpus in sizes:
            names += 1
            job = TraceJob(f"r{names}", 0, draw.choice(list(MODELS)), gpus, draw.randrange(10**5, 10**6))
            where[job.name] = cluster.gpus.names[at : at + gpus]
            live.handle(JobRunning(3600 * SECOND, job, where[job.name], draw.randrange(3600 * SECOND), 50.0))
            at += gpus
    for k in range(60):
        job = TraceJob(f"w{k}", 0, draw.choice(list(MODELS)), draw.choice((1, 2, 4, 8, 8)), draw.randrange(100, 10**5))
        live.handle(JobSubmitted(3600 * SECOND, job))
    return live, where


@pytest.mark.parametrize("policy", ["fifo", "backfill:estimates=recent", "jigsaw"])
def test_a_cluster_of_512_gpus_is_taken_over_while_it_runs(policy: str) -> None:
    live, where = taken_over(policy, random.Random(1), large_cluster(64))
    held = sum(map(len, where.values()))
    assert held == 416 and runs(live) == where
    change = live.step(3600 * SECOND)
    assert not change.failure and not {start.to.job for start in change.starts} & where.keys()
    after = runs(live)
    if policy != "jigsaw":
        assert len(change.starts) >= 10 and not change.stops and not change.moves
        assert after.items() >= where.items()
        return
    assert all(where[stop.job] == stop.gpus for stop in change.stops)
    assert all(where[move.to.job] == move.before.gpus for move in change.moves)
    carried = dict(where)
    for stop in change.stops:
        del carried[stop.job]
    carried |= {one.to.job: one.to.gpus for one in (*change.moves, *change.starts)}
    assert carried == after
    used = {gpu: len({job for job, gpus in after.items() if gpu in gpus}) for gpu in live.cluster.gpus.names}
    assert max(used.values()) <= 2 and sum(count > 0 for count in used.values()) > held

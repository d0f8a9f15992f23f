"""A live scheduler under random events, checked after every step; how long steps take, and how much memory.

Run it as ``python benchmarks/live_soak.py [--events N] [--servers N] [--jobs J] [--budget S] [--seed S] [POLICY...]``.
64 servers of 8 V100, or so many, behind a switch, jobs of 1 to 32 GPUs with models of the bundled instance
``server/plain``. Jobs come, report, end, are cancelled and change their weight so that about J are there; servers fail,
are drained and come back, are added; links fail. After every step all that runs is checked from the changes that steps
told: no GPU belongs to two jobs that are not partners, none is on a server that is out, and the states of the workers
on it with the largest activations among them fit its memory. Now and then the scheduler is thrown away, and another one
goes on from its state as JSON. The last column is a hash of all changes: that of two runs with the same arguments is
the same, as long as no step is late.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import resource
import statistics
import time
from collections import defaultdict

from common import print_table

from jigsaw_opt.instances import load
from jigsaw_opt.problem.cluster import Cluster, Link, Server
from jigsaw_opt.problem.memory import needed_bytes
from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling import (
    ClusterEvent,
    JobAssignment,
    JobCancelled,
    JobFinished,
    JobProgressed,
    JobSubmitted,
    LinkDown,
    LinkUp,
    LiveScheduler,
    PlanChange,
    PriorityChanged,
    ServerAdded,
    ServerBack,
    ServerDrained,
    ServerLost,
)
from jigsaw_opt.simulation.clusters import grid

MODELS = load("server/plain").models
MOST_ADDED = 4
RESTORED_EVERY = 200
HEADS = (
    "policy",
    "steps",
    "p50 ms",
    "p99 ms",
    "max ms",
    "late",
    "failures",
    "starts",
    "moves",
    "restarts",
    "stops",
    "state ms",
    "MB at a tenth",
    "MB at the end",
    "events/s",
    "hash",
)


class Soak:
    """A scheduler, and what a program that carries out its changes knows."""

    def __init__(self, policy: str, jobs: int, seed: int, servers: int = 64) -> None:
        cluster = grid(f"{servers}x8:v100")
        assert cluster is not None
        self.cluster: Cluster = cluster
        self.policy, self.wanted, self.draw = policy, jobs, random.Random(seed)
        self.live = self.fresh()
        self.jobs: dict[str, TraceJob] = {}
        self.running: dict[str, JobAssignment] = {}
        self.servers = {server.name: server for server in cluster.servers}
        self.out: set[str] = set()
        self.now_us = self.count = 0
        self.state_s: list[float] = []
        self.hash = hashlib.sha256()

    def fresh(self) -> LiveScheduler:
        """A scheduler at its beginning."""
        return LiveScheduler(self.cluster, self.policy, models=MODELS, round_us=0)

    def event(self) -> ClusterEvent:
        """Draw what happens next, and note what the program knows of it."""
        draw = self.draw
        self.now_us += draw.randrange(1, 20_000_000)
        if (len(self.jobs) < self.wanted and draw.random() < 0.8) or not self.jobs:
            self.count += 1
            gpus = draw.choice((1, 1, 1, 2, 4, 8, 8, 16, 32))
            job = TraceJob(f"j{self.count}", 0, draw.choice(sorted(MODELS)), gpus, draw.randrange(1000, 10**6))
            self.jobs[job.name] = job
            return JobSubmitted(self.now_us, job)
        name = draw.choice(list(self.jobs))
        kind = draw.choices(("progress", "end", "cancel", "priority", "cluster"), (30, 30, 5, 5, 15))[0]
        if kind == "progress":
            return JobProgressed(self.now_us, name, draw.randrange(self.jobs[name].iterations or 1))
        if kind == "priority":
            return PriorityChanged(self.now_us, name, draw.randrange(1, 10))
        if kind == "cluster":
            return self._of_cluster()
        del self.jobs[name]
        if kind == "cancel":
            return JobCancelled(self.now_us, name)
        self.running.pop(name, None)
        return JobFinished(self.now_us, name)

    def _of_cluster(self) -> ClusterEvent:
        draw, added = self.draw, len(self.servers) - len(self.cluster.servers)
        if added < MOST_ADDED and draw.random() < 0.02:
            server = Server(
                **{name: getattr(self.cluster.servers[0], name) for name in Server.__slots__} | {"name": f"n{added}"}
            )
            self.servers[server.name] = server
            return ServerAdded(
                self.now_us, server, (Link(f"to-{server.name}", (server.name, self.cluster.switches[0]), 10**9),)
            )
        if self.out and draw.random() < 0.55:
            server_name = draw.choice(sorted(self.out))
            self.out.discard(server_name)
            return ServerBack(self.now_us, server_name)
        if draw.random() < 0.3:
            return draw.choice((LinkDown, LinkUp, LinkUp))(self.now_us, draw.choice(self.cluster.links).name)
        server_name = draw.choice(list(self.servers))
        self.out.add(server_name)
        return draw.choice((ServerDrained, ServerLost))(self.now_us, server_name)

    def carry_out(self, change: PlanChange) -> None:
        """Start, stop and move jobs as a step says."""
        self.hash.update(repr((change.stops, change.moves, change.starts)).encode())
        for stop in change.stops:
            assert self.running.pop(stop.job).gpus == stop.gpus
        for move in change.moves:
            assert self.running[move.to.job].gpus == move.before.gpus
            self.running[move.to.job] = move.to
        for start in change.starts:
            assert start.to.job not in self.running and start.to.job in self.jobs
            self.running[start.to.job] = start.to

    def check(self) -> None:
        """What runs is valid, as far as this program can see."""
        holders: defaultdict[str, list[str]] = defaultdict(list)
        for name, assignment in self.running.items():
            for gpu in assignment.gpus:
                holders[gpu].append(name)
        for gpu, names in holders.items():
            server = self.servers[gpu.rpartition("/")[0]]
            assert server.name not in self.out, f"{names[0]} is on {gpu}, which is out"
            for name in names:
                assert {name, *self.running[name].partners} == set(names), f"{gpu} belongs to {names}"
            models = [MODELS[self.jobs[name].model] for name in names]
            need = needed_bytes([(model.state_bytes, model.activation_bytes()[-1]) for model in models])
            assert need <= server.gpu_memory, f"{gpu} has not the memory for {names}"

    def restart(self) -> None:
        """Kill the scheduler, and go on with one that has its state."""
        began = time.perf_counter()
        text = json.dumps(self.live.state())
        self.live = self.fresh()
        self.live.restore(json.loads(text))
        self.state_s.append(time.perf_counter() - began)


def row(policy: str, arguments: argparse.Namespace) -> tuple[str, ...]:
    soak = Soak(policy, arguments.jobs, arguments.seed, arguments.servers)
    steps: list[float] = []
    early_mb, handled_s = 0, 0.0
    late = failures = starts = moves = restarts = stops = 0
    for number in range(arguments.events):
        event = soak.event()
        began = time.perf_counter()
        soak.live.handle(event)
        handled_s += time.perf_counter() - began
        began = time.perf_counter()
        change = soak.live.step(soak.now_us, arguments.budget)
        steps.append(time.perf_counter() - began)
        soak.carry_out(change)
        soak.check()
        late, failures = late + change.late, failures + bool(change.failure)
        starts, moves, stops = starts + len(change.starts), moves + len(change.moves), stops + len(change.stops)
        restarts += sum(move.restarts for move in change.moves)
        if number % RESTORED_EVERY == RESTORED_EVERY - 1:
            soak.restart()
        if number == arguments.events // 10:
            early_mb = megabytes()
    cuts = statistics.quantiles(steps, n=100, method="inclusive")
    times = (f"{1000 * value:.1f}" for value in (cuts[49], cuts[98], max(steps)))
    counts = map(str, (late, failures, starts, moves, restarts, stops))
    state_ms = f"{1000 * statistics.median(soak.state_s):.0f}" if soak.state_s else "-"
    rate = f"{len(steps) / (sum(steps) + handled_s):.0f}"
    memory = f"{early_mb}", f"{megabytes()}"
    return (f"`{policy}`", f"{len(steps)}", *times, *counts, state_ms, *memory, rate, soak.hash.hexdigest()[:8])


def megabytes() -> int:
    """What this process has had in memory at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("policies", nargs="*", default=["fifo", "srtf", "las", "sjf_bco", "jigsaw"])
    parser.add_argument("--events", type=int, default=1000, metavar="N", help="so many events, with a step after each")
    parser.add_argument("--servers", type=int, default=64, metavar="N", help="so many servers of 8 GPUs")
    parser.add_argument("--jobs", type=int, default=200, metavar="J", help="about so many jobs are there")
    parser.add_argument("--budget", type=float, metavar="S", help="seconds for which a step waits for the policy")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    print_table(HEADS, (row(policy, arguments) for policy in arguments.policies))


if __name__ == "__main__":
    main()

"""What a service shows of its cluster: made after every event and step, and read by any thread at any time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, get_args

from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling import ClusterState
from jigsaw_opt.scheduling.allocation import Share
from jigsaw_opt.scheduling.live.events import encode_record
from jigsaw_opt.scheduling.live.explaining import kept_by
from jigsaw_opt.serving.answers import ClusterSeen, JobPhase, JobSeen, ServerSeen, ServerState, View
from jigsaw_opt.text import agreeing, counted

STATES: tuple[ServerState, ...] = get_args(ServerState)
PHASES: tuple[JobPhase, ...] = get_args(JobPhase)
_HELD = ("hold", "aside")  # what keeps a job that counts as held; others wait
# What a view has of each job.
_OF_JOB = ("name", "model", "gpus", "queue", "state", "weight", "submitted_us", "progress", "reason")


class BoardJob(NamedTuple):
    """A job at a moment.

    `held`: whether it is on hold or put aside. `why`: what keeps it from the policy. `share`: what it holds. `done`: of
    `work`, its progress.
    """

    trace: TraceJob
    queue: str
    held: bool
    why: str
    share: Share | None
    done: int
    work: int


@dataclass(frozen=True)
class ClusterBoard:
    """The cluster of a service at a moment.

    `head`: time, number of the last entry, policy, and whether it is a shadow. `server_states`: the state of every
    server, as a number in `STATES`. `down, dead`: GPUs and links that are down. `jobs`: active jobs by number, in order
    of submission.
    """

    head: tuple[int, int, str, bool]
    cluster: Cluster
    server_states: list[int]
    down: frozenset[int]
    dead: frozenset[int]
    quotas: dict[str, int]
    jobs: Mapping[int, BoardJob]

    @classmethod
    def of(cls, state: ClusterState, sequence: int, policy: str, shadow: bool) -> ClusterBoard:
        """Return what is shown of a state after an entry of the journal."""
        cluster, jobs = state.setting.cluster, dict[int, BoardJob]()
        servers = [0] * len(cluster.servers)
        for number, numbers in ((3, state.cordoned), (2, state.drained), (1, state.lost)):
            servers = [number if k in numbers else before for k, before in enumerate(servers)]
        places = state.array_places()
        for index, job in state.jobs.items():
            one, (kind, why) = job.active, kept_by(state, job, places)
            jobs[index] = BoardJob(one.job, job.queue, kind in _HELD, why, one.share, one.done, one.work)
        head = (state.now_us, sequence, "fifo" if state.fallen else policy, shadow)
        return cls(head, cluster, servers, state.down, frozenset(state.dead), dict(state.quotas), jobs)

    @cached_property
    def numbers(self) -> Mapping[str, int]:
        """Number of each job by its name."""
        return {job.trace.name: index for index, job in self.jobs.items()}

    @cached_property
    def gpu_jobs(self) -> Mapping[int, tuple[int, ...]]:
        """Numbers of the jobs on each GPU that has some."""
        return {gpu: job.share.jobs for job in self.jobs.values() if job.share is not None for gpu in job.share.gpus}

    @cached_property
    def gpu_states(self) -> list[int]:
        """State of each GPU, as a number in `STATES`."""
        states = self.server_states
        return [states[server] or int(gpu in self.down) for gpu, server in enumerate(self.cluster.gpus.server_of)]

    @cached_property
    def free(self) -> int:
        """Number of GPUs that are up and idle."""
        return sum(state == 0 and gpu not in self.gpu_jobs for gpu, state in enumerate(self.gpu_states))

    @property
    def usage(self) -> tuple[int, int, int]:
        """GPUs in use, GPUs that are up, and jobs without GPUs."""
        idle = sum(job.share is None for job in self.jobs.values())
        return len(self.gpu_jobs), self.gpu_states.count(0), idle

    @cached_property
    def racks(self) -> list[str | None]:
        """The first switch that a link joins each server to."""
        switches, found = set(self.cluster.switches), dict[str, str]()
        for one, other in (pair for link in self.cluster.links for pair in (link.ends, link.ends[::-1])):
            if other in switches:
                found.setdefault(one, other)
        return [found.get(server.name) for server in self.cluster.servers]

    def phase(self, job: BoardJob) -> JobPhase:
        """Return whether a job runs, waits, or is held: on hold until it is released, or put aside."""
        return "running" if job.share is not None else "held" if job.held else "waiting"

    def _reason(self, job: BoardJob, partners: list[str]) -> str:
        """Return in one sentence why a job runs where it does, or waits."""
        wanted = counted(job.trace.fewest, "GPU")
        if job.share is not None:
            return f"It runs on {counted(len(job.share.gpus), 'GPU')}{' with ' * bool(partners)}{', '.join(partners)}."
        return job.why or f"It waits for {wanted}, and {counted(self.free, 'GPU')} {agreeing(self.free)} free."

    def seen(self, job: BoardJob) -> JobSeen:
        """Return a job as answers show it."""
        one, (gpus, jobs) = job.trace, (job.share.gpus, job.share.jobs) if job.share else ((), ())
        partners = [self.jobs[index].trace.name for index in jobs if self.jobs[index] is not job]
        stated = (one.name, one.model, one.gpus, job.queue, self.phase(job), one.weight, one.foreground, one.submit_us)
        on, progress = [self.cluster.gpus.names[gpu] for gpu in gpus], round(job.done / job.work, 6)
        return JobSeen(*stated, progress, one.iterations, on, partners, self._reason(job, partners))

    @cached_property
    def cluster_seen(self) -> ClusterSeen:
        """The answer that shows the cluster."""
        names, states, jobs, servers = self.cluster.gpus.names, self.gpu_states, self.gpu_jobs, list[ServerSeen]()
        called = {index: job.trace.name for index, job in self.jobs.items()}
        for k, one in enumerate(self.cluster.servers):
            on = [
                {"gpu": names[g], "state": STATES[states[g]], "jobs": [called[j] for j in jobs.get(g, ())]}
                for g in self.cluster.gpus.of_server[k]
            ]
            state = STATES[self.server_states[k]]
            servers.append(ServerSeen(one.name, one.gpu_type, one.gpus, one.gpu_memory, state, self.racks[k], on))
        links = [
            encode_record(link) | {"state": "down" if k in self.dead else "up"}
            for k, link in enumerate(self.cluster.links)
        ]
        return ClusterSeen(*self.head, servers, self.cluster.switches, links, self.quotas)

    @cached_property
    def view(self) -> View:
        """The answer that shows all that a page needs."""
        cluster, place = self.cluster, {index: k for k, index in enumerate(self.jobs)}
        racks = list(dict.fromkeys(rack or "" for rack in self.racks))
        rack_numbers = {rack: k for k, rack in enumerate(racks)}
        servers: dict[str, list[Any]] = {
            "name": [server.name for server in cluster.servers],
            "rack": [rack_numbers[rack or ""] for rack in self.racks],
            "type": [server.gpu_type for server in cluster.servers],
            "first": [gpus.start for gpus in cluster.gpus.of_server],
            "state": self.server_states,
        }
        on = [self.gpu_jobs.get(gpu, ()) for gpu in range(cluster.gpu_count)]
        gpus = {"state": self.gpu_states}
        for k, name in enumerate(("job", "second")):
            gpus[name] = [place[found[k]] if len(found) > k else -1 for found in on]
        seen = list(map(self.seen, self.jobs.values()))
        jobs = {name: [getattr(job, name) for job in seen] for name in _OF_JOB}
        jobs["state"] = list(map(PHASES.index, jobs["state"]))
        waiting = [k for k, phase in enumerate(jobs["state"]) if phase]
        down = [cluster.links[k].name for k in sorted(self.dead)]
        return View(*self.head, servers, racks, gpus, jobs, waiting, down)

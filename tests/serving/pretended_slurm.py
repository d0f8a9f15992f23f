"""A pretended Slurm: it answers the commands of the client, and runs jobs on nodes as time passes."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from jigsaw_opt.serving.slurm.commands import Command, SlurmError

SECOND_US = 1_000_000
FIRST_S = 1_800_000_000


@dataclass
class Job:
    """A job as the pretended Slurm has it.

    `runs_s`: how long it will run. `may_begin_s`: before that it does not begin. `started`: when and where, each time.
    """

    number: int
    gpus: int
    runs_s: int
    limit_s: int
    held: bool
    submit_s: int
    nodes: int = 1
    comment: str = ""
    array: int = 0
    task: int | None = None
    array_limit: int = 0
    may_begin_s: int = 0
    state: str = "PENDING"
    wanted: tuple[str, ...] = ()
    on: dict[str, list[int]] = field(default_factory=dict)
    begins_s: int = 0
    ends_s: int = 0
    restarts: int = 0
    started: list[tuple[int, tuple[str, ...]]] = field(default_factory=list)

    @property
    def name(self) -> str:
        """What commands call it by."""
        return f"{self.number}" if self.task is None else f"{self.array}_{self.task}"


class PretendedSlurm:
    """Nodes of equal numbers of GPUs, and jobs; jobs that are not held start in order where there is room."""

    def __init__(self, nodes: int, gpus: int) -> None:
        self.now_s = FIRST_S
        self.gpus = gpus
        self.states = {f"n{k}": "idle" for k in range(nodes)}
        self.jobs: dict[int, Job] = {}
        self.called: list[Command] = []
        self.answers = self.has_accounting = True
        self.forgotten: set[str] = set()
        self.before: Callable[[Command], None] = lambda command: None
        self.after: Callable[[Command], None] = lambda command: None
        self.refuses: Callable[[Command], bool] = lambda command: False

    def clock(self) -> int:
        """Return the time in microseconds since 1970."""
        return self.now_s * SECOND_US

    def submit(self, gpus: int, runs_s: int, held: bool = True, limit_s: int = 3600, **more: Any) -> Job:
        """Take a job in."""
        number = len(self.jobs) + 1
        self.jobs[number] = Job(number, gpus, runs_s, limit_s, held, self.now_s, **more)
        self._schedule()
        return self.jobs[number]

    def fail(self, node: str, delay_s: int = 0) -> None:
        """Have a node go down: its jobs wait again, not held, as Slurm requeues them, at least for so long."""
        self.states[node] = "down"
        for job in self.jobs.values():
            if job.state == "RUNNING" and node in job.on:
                job.state, job.on, job.restarts = "PENDING", {}, job.restarts + 1
                job.may_begin_s = self.now_s + delay_s

    def advance(self, seconds: int) -> None:
        """Let time pass, second by second."""
        for _ in range(seconds):
            self.now_s += 1
            for job in self.jobs.values():
                if job.state == "RUNNING" and job.ends_s <= self.now_s:
                    job.state, job.on = "COMPLETED", {}
            self._schedule()

    def _schedule(self) -> None:
        for job in self.jobs.values():
            if job.state != "PENDING" or job.held or job.may_begin_s > self.now_s:
                continue
            each = job.gpus // job.nodes
            able = [node for node in job.wanted or self.states if len(self._free(node)) >= each]
            chosen = able[: max(job.nodes, len(job.wanted))]
            if len(chosen) >= job.nodes and set(job.wanted) <= set(able):
                share = job.gpus // len(chosen)
                job.on = {node: self._free(node)[:share] for node in chosen}
                job.state, job.begins_s, job.ends_s = "RUNNING", self.now_s, self.now_s + job.runs_s
                job.started.append((self.now_s, tuple(chosen)))

    def _free(self, node: str) -> list[int]:
        taken = {gpu for job in self.jobs.values() for gpu in job.on.get(node, ())}
        return [gpu for gpu in range(self.gpus) if gpu not in taken] if self.states[node] == "idle" else []

    def __call__(self, command: Command) -> str:
        """Carry out a command."""
        self.before(command)
        if not self.answers:
            raise SlurmError("Unable to contact slurm controller")
        if self.refuses(command):
            raise SlurmError("scontrol failed: Requested nodes are busy")
        self.called.append(command)
        found = self._answer(command)
        self.after(command)
        return found

    def _answer(self, command: Command) -> str:
        match command:
            case ("squeue", "--all", *_):
                kept = (job for job in self.jobs.values() if job.name not in self.forgotten)
                return json.dumps({"jobs": [self._row(job) for job in kept]})
            case ("squeue", _, asked, *_):
                return self.jobs[int(asked.partition("=")[2])].state + "\n"
            case ("sinfo", *_):
                rows = ({"name": n, "state": s, "gres": f"gpu:{self.gpus}"} for n, s in self.states.items())
                return json.dumps({"nodes": list(rows)})
            case ("sacct", *_, asked):
                if not self.has_accounting:
                    raise SlurmError("Slurm accounting storage is disabled")
                named = asked.partition("=")[2].split(",")
                found = (job for job in self.jobs.values() if job.name in named)
                return "".join(f"{job.name}|{job.state}|{job.begins_s}|{job.ends_s}\n" for job in found)
            case ("scontrol", "update", asked, nodes):
                job = self._waiting(asked.partition("=")[2])
                job.wanted = tuple(filter(None, nodes.partition("=")[2].split(",")))
            case ("scontrol", "release", asked):
                self._waiting(asked).held = False
            case ("scontrol", "uhold", asked):
                self._waiting(asked).held = True
            case ("scontrol", "requeuehold", asked):
                job = self.jobs[int(asked)]
                job.state, job.on, job.held, job.restarts = "PENDING", {}, True, job.restarts + 1
            case _:
                raise AssertionError(command)
        self._schedule()
        return ""

    def _waiting(self, name: str) -> Job:
        (job,) = (one for one in self.jobs.values() if one.name == name)
        if job.state != "PENDING":
            raise SlurmError(f"Job is no longer pending execution for job {name}")
        return job

    def _row(self, job: Job) -> dict[str, Any]:
        """Return a job as ``squeue --json`` of 22.05 has it."""
        return {
            "job_id": job.number,
            "job_state": job.state,
            "array_job_id": job.array,
            "array_task_id": job.task,
            "array_max_tasks": job.array_limit,
            "array_task_string": "",
            "priority": 0 if job.held else 7,
            "state_reason": "JobHeldUser" if job.held else "None",
            "node_count": job.nodes,
            "max_nodes": job.nodes if job.nodes > 1 else 0,
            "tasks": 1,
            "tres_req_str": f"cpu=1,gres/gpu={job.gpus}",
            "gres_detail": [f"gpu:{len(own)}(IDX:{','.join(map(str, own))})" for own in job.on.values()],
            "nodes": ",".join(job.on),
            "required_nodes": ",".join(job.wanted),
            "requeue": True,
            "restart_cnt": job.restarts,
            "submit_time": job.submit_s,
            "start_time": job.begins_s if job.state != "PENDING" else job.may_begin_s,
            "end_time": job.ends_s,
            "time_limit": job.limit_s // 60,
            "partition": "low",
            "comment": job.comment,
        }


def random_day(slurm: PretendedSlurm, seed: int, held: bool) -> Callable[[int], None]:
    """Return what happens in a second of a random day: jobs come, nodes fail, close and come back."""
    draw = random.Random(seed)

    def happen(second: int) -> None:
        if draw.random() < 0.05:
            nodes = draw.choice((1, 1, 1, 2))
            gpus = draw.randint(1, slurm.gpus) * nodes
            slurm.submit(gpus, draw.randint(20, 200), held if draw.random() < 0.9 else not held, nodes=nodes)
        if draw.random() < 0.005:
            node = draw.choice([*slurm.states])
            if slurm.states[node] != "idle":
                slurm.states[node] = "idle"
            elif draw.random() < 0.5:
                slurm.fail(node)
            else:
                slurm.states[node] = "drained"

    return happen

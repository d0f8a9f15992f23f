"""What a simulation leaves behind: a record a job, a record a round, and when each job held how many GPUs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, field
from typing import NamedTuple

from jigsaw_opt.problem.rules.report import Place, Report
from jigsaw_opt.scheduling.plain import Kept, NumberLimits, Plain, Shape, fields, listed, number, rows, whole


@dataclass(frozen=True, slots=True)
class JobRecord(Kept):
    """A job that ended, or where it stood when the simulation was stopped.

    `start_us, finish_us`: when it first held GPUs, and when its last iteration ended; None for not yet. `work, done`:
    units of work in all, and done. `gpu_us`: GPU-microseconds that it held; those of a share count for its jobs in
    equal parts. `restarts`: how often it started on other GPUs or after a wait, its first start aside. `alone_us`: time
    of all its work alone on the GPUs that it asks for. `crowd`: mean number of active jobs from its submission to its
    end, itself included.
    """

    index: int
    start_us: int | None
    finish_us: int | None
    work: int
    done: int
    gpu_us: int
    restarts: int
    alone_us: int
    crowd: float

    @staticmethod
    def shape(limits: NumberLimits) -> Shape:
        """Return the schema of what `plain` gives."""
        return fields(
            job=limits.job,
            start_us=limits.time,
            finish_us=limits.time,
            gpu_us=limits.service,
            restarts=whole(limits.rounds),
            crowd=number(0, limits.jobs),
        )


@dataclass(frozen=True, slots=True)
class RoundRecord:
    """A round in which the policy was asked; between two records nothing was decided.

    `active, running`: jobs submitted and not ended; those of them that hold GPUs from now on. `moved`: jobs that start
    on other GPUs than before, first starts included. `held_gpu_us`: GPU-microseconds held since the record before.
    `policy_us`: CPU time that the policy took.
    """

    time_us: int
    active: int
    running: int
    gpus: int
    moved: int
    held_gpu_us: int
    policy_us: int


class Loss(NamedTuple):
    """The losses of a job by failures.

    `stops`: how often one has stopped it. `gpu_us`: GPU time that it had held since its last checkpoint, of those times
    when a server failed.
    """

    stops: int = 0
    gpu_us: int = 0


@dataclass(frozen=True, slots=True)
class Stint:
    """A job held `gpus` GPUs, alone or with others, from `start_us` to `end_us`.

    Their numbers are `on`; where a record tells none, it is empty.
    """

    job: int
    gpus: int
    start_us: int
    end_us: int
    on: tuple[int, ...] = ()


class ServerUse(NamedTuple):
    """From `time_us` on, `gpus` GPUs of a server are held, each counted once whoever shares it."""

    time_us: int
    server: int
    gpus: int


@dataclass(slots=True)
class SimulationOutcome(Kept):
    """All records of a simulation.

    `end_us`: the time up to which it ran. `jobs`: in the order of the workload. `uses`: whenever the GPUs of a server
    that are held became more or fewer, in order of time; none are held before. `losses`: what failures took from jobs,
    by number; a snapshot has them among the failures. `hindrance`: what keeps a job from ever running, so that the
    simulation could not end all jobs; else empty. `partial_jobs`: numbers of the jobs that ran below full depth at any
    time. `raw_models`: names of models whose iterations below full depth were
    counted as whole ones, as no efficiency is known or none is to count.
    """

    end_us: int = 0
    jobs: list[JobRecord] = field(default_factory=list)
    rounds: list[RoundRecord] = field(default_factory=list)
    stints: list[Stint] = field(default_factory=list)
    uses: list[ServerUse] = field(default_factory=list)
    losses: dict[int, Loss] = field(default_factory=dict)
    hindrance: str = ""
    partial_jobs: tuple[int, ...] = ()
    raw_models: tuple[str, ...] = ()

    def held_us(self) -> Counter[int]:
        """Return for how long each job held GPUs, by number."""
        held: Counter[int] = Counter()
        for stint in self.stints:
            held[stint.job] += stint.end_us - stint.start_us
        return held

    def plain(self) -> Plain:
        """Return all records; rounds, stints and uses are rows of numbers in the order of their parameters."""
        return {
            "jobs": [record.plain() for record in self.jobs],
            "rounds": [astuple(record) for record in self.rounds],
            "stints": [[*astuple(stint)[:-1], *stint.on] for stint in self.stints],
            "uses": [list(use) for use in self.uses],
        }

    @staticmethod
    def shape(limits: NumberLimits) -> Shape:
        """Return the schema of what `plain` gives."""
        jobs = listed(JobRecord.shape(limits))
        return fields(jobs=jobs, rounds=rows(7, whole()), stints=listed(listed(whole(), 5)), uses=rows(3, whole()))

    @classmethod
    def of_snapshot(cls, tree: Plain, whole_of: Callable[[int], tuple[int, int]]) -> SimulationOutcome:
        """Restore the records that `plain` gave.

        `whole_of`: tells of a job its units of work, and their time alone in microseconds.
        """
        wholes = ((record, *whole_of(record["job"])) for record in tree["jobs"])
        jobs = [JobRecord.restored(record, work=work, done=work, alone_us=us) for record, work, us in wholes]
        rounds = [RoundRecord(*row) for row in tree["rounds"]]
        stints = [Stint(job, gpus, start, end, tuple(on)) for job, gpus, start, end, *on in tree["stints"]]
        return cls(0, jobs, rounds, stints, [ServerUse(*row) for row in tree["uses"]])

    @staticmethod
    def check(tree: Plain, limits: NumberLimits, servers: Sequence[int], place: Place, report: Report) -> None:
        """Report what cannot be of records that have the right shape."""
        for k, (time_us, active, running, gpus, moved, held_us, _) in enumerate(tree["rounds"]):
            before_us = tree["rounds"][k - 1][0] if k else 0
            held_most = limits.gpus * limits.now_us
            if not (before_us <= time_us <= limits.now_us and moved <= running <= active <= limits.jobs):
                report.add(((place, "rounds"), k), "times or jobs of this round cannot be", code="contradiction")
            elif gpus > limits.gpus or held_us > held_most:
                report.add(((place, "rounds"), k), "more GPUs are held than there are", code="contradiction")
        for k, (job, gpus, start_us, end_us, *on) in enumerate(tree["stints"]):
            can_be = job < limits.jobs and len(set(on)) == len(on) == gpus and max(on) < limits.gpus
            if not (can_be and start_us < end_us <= limits.now_us):
                report.add(((place, "stints"), k), "no job can have held GPUs so", code="contradiction")
        for k, (time_us, server, gpus) in enumerate(tree["uses"]):
            before_us = tree["uses"][k - 1][0] if k else 0
            if not (before_us <= time_us <= limits.now_us and server < len(servers) and gpus <= servers[server]):
                report.add(((place, "uses"), k), "no server can have been used so", code="contradiction")

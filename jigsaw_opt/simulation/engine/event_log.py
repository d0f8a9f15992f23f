"""What the engine notes beside the jobs themselves, each with its place in a snapshot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from jigsaw_opt.scheduling.allocation import Share
from jigsaw_opt.scheduling.plain import MOST, TRUTH, Kept, NumberLimits, Plain, Shape, fields, listed, optional, whole
from jigsaw_opt.scheduling.policy import JobState
from jigsaw_opt.simulation.engine.records import JobRecord, RoundRecord, ServerUse, SimulationOutcome, Stint
from jigsaw_opt.simulation.engine.running import Running
from jigsaw_opt.simulation.engine.setting import Setting


@dataclass(slots=True)
class Meter(Kept):
    """An integral over time of a number that changes in steps."""

    value: int = 0
    total: int = 0
    since_us: int = 0

    def at(self, now_us: int) -> int:
        """Return the integral up to now."""
        return self.total + self.value * (now_us - self.since_us)

    def set(self, value: int, now_us: int) -> None:
        """Note that the number has another value from now on."""
        self.total, self.since_us, self.value = self.at(now_us), now_us, value

    @staticmethod
    def shape(limits: NumberLimits, most: int = 0) -> Shape:
        """Return the schema of what `plain` gives, of a number that is at most `most`."""
        return fields(total=whole(most * limits.now_us), since_us=limits.time)


@dataclass(slots=True)
class JobStatistics(Kept):
    """Notes on an active job beyond what policies see; `done` is its work when it last stopped."""

    crowd_before: int
    start_us: int | None = None
    done: int = 0

    @staticmethod
    def shape(limits: NumberLimits) -> Shape:
        """Return the schema of what `plain` gives."""
        return fields(crowd_before=whole(limits.jobs * limits.now_us), start_us=optional(limits.time))


@dataclass(slots=True)
class Trigger(Kept):
    """Why and when the policy is asked next; `stopped` has the jobs that failures have stopped since it was last."""

    asked: bool = False
    wake_us: int | None = None
    arrived: list[int] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)
    stopped: list[int] = field(default_factory=list)

    @staticmethod
    def shape(limits: NumberLimits) -> Shape:
        """Return the schema of what `plain` gives."""
        jobs = dict.fromkeys(("arrived", "ended", "stopped"), listed(limits.job))
        return fields(asked=TRUTH, wake_us=optional(whole(MOST)), **jobs)


@dataclass(slots=True)
class EventLog(Kept):
    """The records so far, and what they are made of.

    `crowd, held`: active jobs, and GPUs that are held. `held_before`: GPU time held up to the round before. `used`:
    GPUs that are held of each server where there are any.
    """

    outcome: SimulationOutcome = field(default_factory=SimulationOutcome)
    crowd: Meter = field(default_factory=Meter)
    held: Meter = field(default_factory=Meter)
    held_before: int = 0
    used: Counter[int] = field(default_factory=Counter)

    def hold(self, shares: Iterable[Share], server_of: Sequence[int], now_us: int) -> None:
        """Note the GPUs that are held from now on.

        `server_of`: by GPU, the number of its server.
        """
        gpus = [gpu for share in shares for gpu in share.gpus]
        self.held.set(len(gpus), now_us)
        used = Counter(map(server_of.__getitem__, gpus))
        if used != self.used:
            changed = sorted(server for server in used | self.used if used[server] != self.used[server])
            self.outcome.uses.extend(ServerUse(now_us, server, used[server]) for server in changed)
            self.used = used

    def job(
        self, active: JobState, statistics: JobStatistics, alone_us: int, now_us: int, finish_us: int | None
    ) -> None:
        """Write the record of a job that ends now, or that stands unfinished at the end of the simulation."""
        lifetime = now_us - active.job.submit_us
        crowd = (self.crowd.at(now_us) - statistics.crowd_before) / lifetime if lifetime else 1.0
        restarts = max(0, active.starts - 1)
        figures = active.work, active.done, active.gpu_us, restarts, alone_us, crowd
        self.outcome.jobs.append(JobRecord(active.index, statistics.start_us, finish_us, *figures))

    def stint(self, running: Running, now_us: int) -> None:
        """Note that a settled job held its GPUs up to now."""
        active, gpus = running.active, running.active.gpus
        if now_us > running.start_us:
            self.outcome.stints.append(Stint(active.index, len(gpus), running.start_us, now_us, gpus))

    def round(self, now_us: int, active: int, running: int, moved: int, policy_us: int) -> None:
        """Write the record of a decision that was carried out."""
        held = self.held.at(now_us)
        record = RoundRecord(now_us, active, running, self.held.value, moved, held - self.held_before, policy_us)
        self.held_before = held
        self.outcome.rounds.append(record)

    @staticmethod
    def shape(limits: NumberLimits) -> Shape:
        """Return the schema of what `plain` gives."""
        return fields(
            outcome=SimulationOutcome.shape(limits),
            crowd=Meter.shape(limits, limits.jobs),
            held=Meter.shape(limits, limits.gpus),
            held_before=limits.service,
        )

    @classmethod
    def of_snapshot(cls, tree: Plain, setting: Setting, active: int, gpus: int) -> EventLog:
        """Return the event log that `plain` gave."""
        jobs, performance = setting.workload.jobs, setting.performance
        outcome = SimulationOutcome.of_snapshot(
            tree["outcome"], lambda index: (performance.work(jobs[index]), performance.alone_us(jobs[index]))
        )
        crowd, held = Meter.restored(tree["crowd"], value=active), Meter.restored(tree["held"], value=gpus)
        used = Counter({use.server: use.gpus for use in outcome.uses})
        return cls(outcome, crowd, held, tree["held_before"], +used)

"""What is down while a simulation runs, and what jobs have lost by it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from jigsaw_opt.problem.rules.report import Place, Report
from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling.plain import NumberLimits, Plain, Shape, fields, listed, rows, whole
from jigsaw_opt.scheduling.policy import JobState
from jigsaw_opt.scheduling.policy_at_work import InvariantError, check_up, require
from jigsaw_opt.simulation.engine.event_log import EventLog
from jigsaw_opt.simulation.engine.outages import down_gpu_us
from jigsaw_opt.simulation.engine.records import Loss
from jigsaw_opt.simulation.engine.running import Running, RunningShares
from jigsaw_opt.simulation.engine.setting import Setting
from jigsaw_opt.text import agreeing, counted, named


class Failing:
    """The failures of a simulation up to now; without any in the setting nothing ever happens here.

    `down, dead`: GPUs of servers, and links, that are down.
    """

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        failures = setting.failures
        self._events = iter(()) if failures is None else failures.events.of(setting.cluster)
        self._next = next(self._events, None)
        self._count = 0
        self._servers: set[int] = set()
        self._links: set[int] = set()
        self.down: frozenset[int] = frozenset()
        self.dead: frozenset[int] = frozenset()

    @property
    def next_us(self) -> int | None:
        """When something fails or comes back next."""
        return None if self._next is None else self._next.time_us

    @property
    def part_of(self) -> tuple[int, ...]:
        """For each server the number of its part of the cluster, in which links that are up join all servers."""
        return self._setting.part_of(self.dead)

    def stops(self, gpus: Iterable[int]) -> bool:
        """Return whether a job on these GPUs has to stop: one is down, or no links that are up join its servers."""
        return not self.down.isdisjoint(gpus) or self._setting.is_cut(gpus, self.dead)

    def hindrance(self, job: TraceJob) -> str:
        """Return what keeps a job from running even alone: what is down, or links that there never were; else empty."""
        has, most, wanted = self._room(job)
        if has >= wanted:
            return ""
        asks = f"job {job.name!r} asks for {counted(wanted, 'GPU')}, and at most"
        if most < wanted:
            return f"{asks} {most} that it can have are joined by links"
        cluster = self._setting.cluster
        parts = {
            "server": [cluster.servers[k].name for k in sorted(self._servers)],
            "link": [cluster.links[k].name for k in sorted(self._links)],
        }
        down = [f"{agreeing(len(own), kind, f'{kind}s')} {named(own)}" for kind, own in parts.items() if own]
        count = sum(map(len, parts.values()))
        return (
            f"{asks} {has} are up and joined by links:"
            f" {' and '.join(down)} {agreeing(count, 'does', 'do')} not come back"
        )

    def awaits_repair(self, job: TraceJob) -> bool:
        """Return whether a job has no room now, and has it once everything is up."""
        has, most, wanted = self._room(job)
        return has < wanted <= most

    def _room(self, job: TraceJob) -> tuple[int, int, int]:
        """Return how many GPUs a job can have at most now, and once everything is up, and how many it needs."""
        known = self._setting.for_policy
        has, most = (known.most_for(job, known.most_joined(*down)) for down in ((self.down, self.dead), ()))
        return has, most, job.min_gpus or job.gpus

    def advance(self, now_us: int) -> bool:
        """Let everything fail and come back that does so by now; says whether anything did."""
        before = self._count
        while self._next is not None and self._next.time_us <= now_us:
            self._count += 1
            parts = self._servers if self._next.kind == "server" else self._links
            (parts.add if self._next.down else parts.discard)(self._next.number)
            self._next = next(self._events, None)
        if self._count == before:
            return False
        self.down = frozenset(chain.from_iterable(self._setting.gpus_of[k] for k in self._servers))
        self.dead = frozenset(self._links)
        return True

    def stop(self, running: Running, losses: dict[int, Loss]) -> None:
        """Note that a settled job lost its GPUs; where a server failed, also what it did since its last checkpoint.

        A job that is only cut saves its work when it stops, as the live scheduler takes it to do.

        `losses`: by number of a job what it has lost so far; the job's entry is replaced.
        """
        active = running.active
        lost = not self.down.isdisjoint(active.gpus)
        loss = losses.get(active.index, Loss())
        lost_us = active.gpu_us - running.saved_gpu_us if lost else 0
        losses[active.index] = Loss(loss.stops + 1, loss.gpu_us + lost_us)
        active.done = running.done = running.saved if lost else running.done

    def check(self, held_us: int, losses: Mapping[int, Loss], now_us: int) -> None:
        """Check of a closed simulation that GPU time held and down is within the cluster's, and lost within held."""
        cluster, first_us = self._setting.cluster, self._setting.workload.jobs[0].submit_us
        capacity_us = max(0, now_us - first_us) * self._setting.gpu_count
        down_us = down_gpu_us(self._setting.failures, cluster, first_us, now_us)
        lost_us = sum(loss.gpu_us for loss in losses.values())
        require(held_us + down_us <= capacity_us, "at the end", "GPUs were held while they were down")
        require(lost_us <= held_us, "at the end", "jobs lost more GPU time than they held")

    # Putting aside ------------------------------------------------------------------------------------------

    def plain(self, under_way: RunningShares, event_log: EventLog) -> Plain:
        """Return the key of the state that tells of failures; nothing where none are simulated."""
        if self._setting.failures is None:
            return {}
        own = {
            "events": self._count,
            "losses": [{"job": index, **loss._asdict()} for index, loss in event_log.outcome.losses.items()],
            "saved": [[one.saved, one.saved_gpu_us] for one in under_way.running.values()],
        }
        return {"failures": own}

    @staticmethod
    def shape(limits: NumberLimits) -> Shape:
        """Return the schema of what `plain` gives under its key."""
        loss = fields(job=limits.job, stops=whole(), gpu_us=limits.service)
        return fields(events=whole(), losses=listed(loss), saved=rows(2, whole()))

    def restore(
        self,
        tree: Plain,
        under_way: RunningShares,
        event_log: EventLog,
        active: Mapping[int, JobState],
        noted: tuple[Place, Report],
    ) -> None:
        """Go on from what `plain` gave, with what runs, the event_log and the active jobs of the same moment.

        `tree`: the state of the simulation, of the right shape. `noted`: the place of the state, and where problems are
        noted: no simulation of this setting has it.
        """
        if self._setting.failures is None:
            return
        now_us, own, (place, report) = tree["now_us"], tree["failures"], ((noted[0], "failures"), noted[1])
        while self._count < own["events"] and self._next is not None and self._next.time_us <= now_us:
            self.advance(self._next.time_us)
        if self._count != own["events"]:
            report.add((place, "events"), f"{own['events']} events up to now cannot be", code="contradiction")
        self._restore_saved(own["saved"], under_way.running, (place, "saved"), report)
        losses = {one["job"]: Loss(one["stops"], one["gpu_us"]) for one in own["losses"]}
        if len(losses) < len(own["losses"]):
            report.add((place, "losses"), "a job is there twice", code="duplicate-name")
        try:
            check_up(self._setting, active, under_way.shares, self.down, self.dead, f"at {now_us} us")
        except InvariantError as error:
            report.add(place, str(error), code="contradiction")
        event_log.outcome.losses.update(losses)
        under_way.dead = self.dead
        under_way.begin(tuple(under_way.shares), now_us)

    @staticmethod
    def _restore_saved(
        rows: Sequence[Sequence[int]], running: Mapping[int, Running], place: Place, report: Report
    ) -> None:
        if len(rows) != len(running):
            report.add(place, "is not one row a running job", code="contradiction")
        for k, ((saved, gpu_us), one) in enumerate(zip(rows, running.values(), strict=False)):
            if saved > one.done or gpu_us > one.active.gpu_us:
                told = f"job {one.active.job.name!r} has saved more than it has done"
                report.add((place, k), told, code="contradiction")
            one.saved, one.saved_gpu_us = saved, gpu_us

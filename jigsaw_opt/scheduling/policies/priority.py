"""Classes of priority with preemption: jobs of a higher class come first and may stop jobs of a lower one.

Sources: "Preemption", slurm.schedmd.com (``GraceTime``, ``PreemptExemptTime``, ``youngest_first``), and the search for
few victims of Kueue, which puts jobs back in reverse order as long as there is room. Described in docs/simulation.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from jigsaw_opt.documents.file_bytes import read_text
from jigsaw_opt.documents.readers.slurm.priorities import read_slurm_conf
from jigsaw_opt.errors import missing_option
from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling.allocation import Decision, Share
from jigsaw_opt.scheduling.option_values import file_names, whole_numbers
from jigsaw_opt.scheduling.placement.placing import PLACEMENTS, FreeGpus, HeldPools, fewest_victims
from jigsaw_opt.scheduling.plain import Plain, checked, fields, rows, whole
from jigsaw_opt.scheduling.policies import NamedPolicy, RigidScheduler
from jigsaw_opt.scheduling.policy import JobState, Observation

_SECOND_US = 1_000_000
_NONE = "none"
_MOST_S = 10**7


@dataclass(slots=True)
class _PriorityScheduler(RigidScheduler):
    policy = "priority"
    tiers: Mapping[str, int] = field(init=False)
    since: dict[int, int] = field(default_factory=dict)
    """When each job that runs was started."""
    warned: dict[int, int] = field(default_factory=dict)
    """When each job that was chosen is stopped."""

    def __post_init__(self) -> None:
        path, self.tiers = self.options["conf"], {}
        if (self.options["by"] == "partition") != (path != _NONE):
            message = "priority:by=partition and priority:conf=FILE belong together: slurm.conf has the tiers"
            raise missing_option("policy", message)
        if path != _NONE:
            self.tiers = read_slurm_conf(read_text(path), path).of_partitions("PriorityTier", path)

    def decide(self, observation: Observation) -> Decision:
        return _PriorityRound(self, observation).decision()

    def rank(self, job: TraceJob) -> int:
        """Return the class of a job, the greater the higher."""
        if self.options["by"] == "partition":
            return self.tiers.get(job.queue or "", 1)  # Slurm's default
        return job.weight if self.options["by"] == "weight" else job.priority or 0

    def state(self) -> Plain:
        return {"since": list(map(list, self.since.items())), "warned": list(map(list, self.warned.items()))}

    def restore(self, state: Plain, observation: Observation) -> None:
        checked(state, fields(since=rows(2, whole()), warned=rows(2, whole())))
        self.since, self.warned = dict(state["since"]), dict(state["warned"])
        if not self.since.keys() >= observation.running_as_decided | self.warned.keys():
            raise ValueError("every job that runs has a start")


class _PriorityRound:
    """One decision: who stops, who is warned, who starts."""

    def __init__(self, scheduler: _PriorityScheduler, observation: Observation) -> None:
        self._own, self._observation, self._setting = scheduler, observation, scheduler.setting
        self._running = {index: observation.jobs[index] for share in observation.shares for index in share.jobs}
        for table in (scheduler.since, scheduler.warned):
            for index in table.keys() - self._running.keys():
                del table[index]
        for index, active in self._running.items():  # the adopted have no start
            scheduler.since.setdefault(index, observation.now_us - active.run_us)
        self._stopped: list[int] = []
        for index in [index for index, stop_us in scheduler.warned.items() if stop_us <= observation.now_us]:
            self._stop(index)
        self._places = {index: place for place, index in enumerate(observation.jobs)}
        self._waiting = [self._turn(index) for index in observation.jobs if index not in self._running]
        self._free = FreeGpus(self._setting, self._shares(), observation.down, observation.dead)
        self._held = HeldPools(self._setting)
        self._reserved: set[int] = set()  # jobs that will stop, and whose GPUs another job is to have
        self._wakes: list[int] = []

    def decision(self) -> Decision:
        """Go through the jobs that wait, those of the highest class first."""
        own, started, hopeless = self._own, list[Share](), set[object]()
        heapify(self._waiting)
        while self._waiting:
            active = self._observation.jobs[heappop(self._waiting)[-1]]
            wanted = active.job.gpus, self._setting.pool_choice.of(active.job), own.rank(active.job)
            if wanted in hopeless:
                continue
            gpus, waits = self._place(self._free, active), False
            if gpus is None:
                gpus, waits = self._preempt(active)
            if gpus is not None:
                started.append(Share((active.index,), gpus))
                own.since[active.index] = self._observation.now_us
            elif not waits:
                hopeless.add(wanted)
                if own.options["blocked"] == "hold":
                    empty = FreeGpus(self._setting, (), self._observation.down, self._observation.dead)
                    if empty.place(active.job, own.options["placement"]) is not None and self._held.hold(active.job):
                        break
        self._wakes += own.warned.values()
        return Decision((*self._shares(), *started), min(self._wakes, default=None), tuple(self._stopped))

    def _turn(self, index: int) -> tuple[int, int, int]:
        """Return when it is the turn of a job that waits: by class, and in order of submission."""
        return -self._own.rank(self._observation.jobs[index].job), self._places[index], index

    def _place(self, free: FreeGpus, active: JobState) -> tuple[int, ...] | None:
        return free.place(active.job, self._own.options["placement"], self._held.numbers)

    def _preempt(self, active: JobState) -> tuple[tuple[int, ...] | None, bool]:
        """Return the GPUs of jobs that make way now, or whether the job waits for some that were warned."""
        candidates = self._candidates(self._own.rank(active.job))
        if self._free.count + sum(len(other.gpus) for other in candidates) < active.job.gpus:
            return None, False
        trial = self._free.copy()
        victims = fewest_victims(
            candidates,
            lambda other: trial.add(other.gpus),
            lambda other: trial.remove(other.gpus),
            lambda _: self._place(trial.copy(), active) is not None,
        )
        gpus = self._place(trial, active) if victims else None
        if gpus is None:
            return None, False
        now_us, warned = self._observation.now_us, self._own.warned
        stops_us = [warned.setdefault(other.index, now_us + self._seconds_us("grace")) for other in victims]
        if max(stops_us) > now_us:
            self._reserved.update(other.index for other in victims)
            self._free.remove(gpus)  # nobody of a lower class takes those that are free already
            return None, True
        for other in victims:
            self._free.add(other.gpus)
            self._stop(other.index)
            heappush(self._waiting, self._turn(other.index))  # it may find room elsewhere
        self._free.remove(gpus)
        return gpus, False

    def _candidates(self, rank: int) -> list[JobState]:
        """Return the jobs that may be stopped for one of a class, in the order in which they are."""
        own, exempt_us, found = self._own, self._seconds_us("exempt"), list[JobState]()
        for active in self._running.values():
            lower = own.rank(active.job) < rank and active.job.preemptible is not False
            if not lower or active.index in self._reserved:
                continue
            free_us = own.since[active.index] + exempt_us
            if active.index in own.warned or free_us <= self._observation.now_us:
                found.append(active)
            else:
                self._wakes.append(free_us)

        def order(active: JobState) -> tuple[object, ...]:
            small = active.job.gpus if own.options["victims"] == "smallest" else 0
            return active.index not in own.warned, own.rank(active.job), small, -own.since[active.index], -active.index

        return sorted(found, key=order)

    def _shares(self) -> Iterator[Share]:
        return (active.share for active in self._running.values() if active.share is not None)

    def _stop(self, index: int) -> None:
        """Take a job that runs off its GPUs."""
        del self._running[index], self._own.since[index], self._own.warned[index]
        self._stopped.append(index)

    def _seconds_us(self, option: str) -> int:
        return int(self._own.options[option]) * _SECOND_US


def _needs(stated: Mapping[str, str]) -> frozenset[str]:
    by = stated.get("by")
    return frozenset({"queue" if by == "partition" else by} if by else ())


PRIORITY = NamedPolicy(
    "priority",
    "classes of priority: higher ones come first and may stop jobs of lower ones",
    _PriorityScheduler,
    {
        "by": ("priority", "weight", "partition"),
        "victims": ("youngest", "smallest"),
        "grace": whole_numbers("0", "60", "600", most=_MOST_S),
        "exempt": whole_numbers("0", "3600", most=_MOST_S),
        "blocked": ("pass", "hold"),
        "conf": file_names(),
        "placement": PLACEMENTS,
    },
    lambda options: _needs(options) | {"preemptible"},
    _needs,
)

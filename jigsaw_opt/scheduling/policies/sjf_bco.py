"""Smallest jobs first with balanced contention and overhead (SJF-BCO, MobiHoc 2022), for jobs that arrive over time.

Jobs wait in the order of their GPUs, smallest first, and the first one that finds no GPUs holds those behind it that
could have the same. Jobs of at most `threshold` GPUs are placed by FA-FFP and larger ones by LBSGF; nothing is
preempted. The paper plans a batch and chooses threshold and limit of load by the makespan; here the threshold is an
option, and there is no limit.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling.allocation import Decision, Share
from jigsaw_opt.scheduling.placement.placing import HeldPools, too_wide
from jigsaw_opt.scheduling.plain import Plain, checked, fields, listed, whole
from jigsaw_opt.scheduling.policies import NamedPolicy
from jigsaw_opt.scheduling.policy import NEVER_STOPS, ClusterSetting, Observation
from jigsaw_opt.solvers.allocation.sjf_bco import GpuLedger, Variant, rule_of


@dataclass(slots=True)
class _SjfBcoScheduler:
    setting: ClusterSetting
    variant: Variant
    threshold: int
    spread: int
    loads: list[int]
    jobs: dict[int, TraceJob] = field(default_factory=dict)
    waiting: list[tuple[int, int]] = field(default_factory=list)
    placed: dict[int, tuple[int, ...]] = field(default_factory=dict)

    def refuses(self, job: TraceJob) -> str | None:
        return too_wide(self.setting, "sjf_bco", job)

    def decide(self, observation: Observation) -> Decision:
        self.jobs.update((index, observation.jobs[index].job) for index in observation.arrived)
        for index in (*observation.ended, *observation.stopped):
            self._forget(index)
        for index in dict.fromkeys((*observation.arrived, *observation.stopped)):
            active = observation.jobs[index]
            if active.share is None:
                insort(self.waiting, (active.job.gpus, index))
            else:  # it ran before the policy began
                self._place(index, active.share.gpus)
        for index in observation.ended:
            self.jobs.pop(index, None)
        if observation.ended:  # live, jobs may be cancelled that wait
            self.waiting = [one for one in self.waiting if one[1] in self.jobs]
        held = (share.gpus for share in observation.shares)
        free = set(range(self.setting.gpu_count)).difference(observation.down, *held)
        return Decision((*observation.shares, *self._started(free, observation.dead)))

    def state(self) -> Plain:
        return {"loads": self.loads if self.variant == "literal" else []}

    def restore(self, state: Plain, observation: Observation) -> None:
        """Restore the loads; only loads as they are printed are of jobs that are no longer there."""
        count = self.setting.gpu_count if self.variant == "literal" else 0
        checked(state, fields(loads=listed(whole(), count, count)))
        self.jobs = {index: observation.jobs[index].job for index in observation.known & observation.jobs.keys()}
        self.placed = {
            index: share.gpus
            for share in observation.shares
            for index in share.jobs
            if index not in observation.arrived
        }
        waiting = observation.known - self.placed.keys() - {*observation.ended, *observation.stopped}
        self.waiting = sorted((observation.jobs[index].job.gpus, index) for index in waiting)
        if self.variant == "literal":
            self.loads = list(state["loads"])
            return
        for index, gpus in self.placed.items():
            self._load(index, gpus, 1)

    def _started(self, free: set[int], dead: frozenset[int]) -> list[Share]:
        boards = [
            [GpuLedger([self.setting.gpus_of[k] for k in part.servers], self.loads, free) for part in pool]
            for pool in self.setting.pools_up(dead)
        ]
        rule = rule_of(self.variant, self.threshold, Fraction(self.spread))
        shares: list[Share] = []
        held = HeldPools(self.setting)
        for need, index in self.waiting:
            groups = self.setting.pool_choice.of(self.jobs[index])
            pools = (pool.number for group in groups for pool in group if pool.number not in held.numbers)
            own = (board for number in pools for board in boards[number])
            chosen = next((gpus for board in own if (gpus := rule(need, board)) is not None), None)
            if chosen is None:
                if held.hold(self.jobs[index]):
                    break
                continue
            gpus = tuple(sorted(chosen))
            free.difference_update(gpus)
            self._place(index, gpus)
            shares.append(Share((index,), gpus))
        started = {index for share in shares for index in share.jobs}
        self.waiting = [one for one in self.waiting if one[1] not in started]
        return shares

    def _place(self, index: int, gpus: tuple[int, ...]) -> None:
        """Note the GPUs of a job that runs, and its load."""
        self.placed[index] = gpus
        self._load(index, gpus, 1)

    def _forget(self, index: int) -> None:
        """Take the load of an ended job away; as printed, the loads of a batch only grow.

        A simulation that was put aside has forgotten those that had ended by then.
        """
        gpus = self.placed.pop(index, ())
        if self.variant == "intent":
            self._load(index, gpus, -1)

    def _load(self, index: int, gpus: Sequence[int], sign: int) -> None:
        for gpu in gpus:
            self.loads[gpu] += sign * self.setting.performance.alone_us(self.jobs[index])


def _start(setting: ClusterSetting, options: Mapping[str, str]) -> _SjfBcoScheduler:
    variant: Variant = "intent" if options["variant"] == "intent" else "literal"
    loads = [0] * setting.gpu_count
    return _SjfBcoScheduler(setting, variant, int(options["threshold"]), int(options["spread"]), loads)


SJF_BCO = NamedPolicy(
    "sjf_bco",
    "smallest jobs first, on servers that balance contention for links and overhead (SJF-BCO)",
    _start,
    {"variant": ("intent", "literal"), "threshold": ("8", "1", "2", "4", "16", "32"), "spread": ("1", "2", "4", "8")},
    NEVER_STOPS,
)

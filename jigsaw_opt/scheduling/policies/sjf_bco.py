"""Smallest jobs first with balanced contention and overhead (SJF-BCO, MobiHoc 2022), for jobs that arrive over time.

Jobs wait in the order of their GPUs, smallest first, and the first one that finds no GPUs holds those behind it that
could have the same. Jobs of at most `threshold` GPUs are placed by FA-FFP and larger ones by LBSGF; nothing is
preempted. The paper plans a batch and chooses threshold and limit of load by the makespan; here the threshold is an
option, and there is no limit.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling.allocation import Decision
from jigsaw_opt.scheduling.placement.placing import started_in_turn
from jigsaw_opt.scheduling.plain import Plain, checked, fields, listed, whole
from jigsaw_opt.scheduling.policies import NamedPolicy, RigidScheduler
from jigsaw_opt.scheduling.policy import NEVER_STOPS, Observation
from jigsaw_opt.solvers.allocation.sjf_bco import GpuLedger, Rule, Variant, rule_of


@dataclass(slots=True)
class _SjfBcoScheduler(RigidScheduler):
    """SJF-BCO at work.

    `loads`: load of every GPU by its number. As printed, the loads of a batch only grow; as meant, an ended job has
    none.
    """

    policy = "sjf_bco"
    rule: Rule = field(init=False)
    only_grow: bool = field(init=False)
    loads: list[int] = field(init=False)

    def __post_init__(self) -> None:
        threshold, spread = int(self.options["threshold"]), Fraction(self.options["spread"])
        variant: Variant = "intent" if self.options["variant"] == "intent" else "literal"
        self.rule, self.only_grow = rule_of(variant, threshold, spread), variant == "literal"
        self.loads = [0] * self.setting.gpu_count

    def decide(self, observation: Observation) -> Decision:
        loaded: Iterable[int] = observation.adopted
        if not self.only_grow:
            self.loads, loaded = [0] * self.setting.gpu_count, observation.jobs
        for index in loaded:
            self._load(observation.jobs[index].job, observation.jobs[index].gpus)
        held = (share.gpus for share in observation.shares)
        free = set(range(self.setting.gpu_count)).difference(observation.down, *held)
        boards = [
            [GpuLedger([self.setting.gpus_of[k] for k in part.servers], self.loads, free) for part in pool]
            for pool in self.setting.pools_up(observation.dead)
        ]

        def place(job: TraceJob, held: Container[int]) -> tuple[int, ...] | None:
            pools = (pool.number for group in self.setting.pool_choice.of(job) for pool in group)
            own = (board for number in pools if number not in held for board in boards[number])
            chosen = next((gpus for board in own if (gpus := self.rule(job.gpus, board)) is not None), None)
            if chosen is None:
                return None
            free.difference_update(chosen)
            self._load(job, chosen)
            return tuple(sorted(chosen))

        waiting = [active for active in observation.jobs.values() if active.share is None]
        waiting.sort(key=lambda active: (active.job.gpus, active.index))
        return Decision((*observation.shares, *started_in_turn(self.setting, waiting, place)))

    def state(self) -> Plain:
        return {"loads": self.loads if self.only_grow else []}

    def restore(self, state: Plain, observation: Observation) -> None:
        """Restore the loads; only loads as they are printed are of jobs that are no longer there."""
        count = self.setting.gpu_count if self.only_grow else 0
        self.loads = list(checked(state, fields(loads=listed(whole(), count, count)))["loads"])

    def _load(self, job: TraceJob, gpus: Sequence[int]) -> None:
        for gpu in gpus:
            self.loads[gpu] += self.setting.performance.alone_us(job)


SJF_BCO = NamedPolicy(
    "sjf_bco",
    "smallest jobs first, on servers that balance contention for links and overhead (SJF-BCO)",
    _SjfBcoScheduler,
    {"variant": ("intent", "literal"), "threshold": ("8", "1", "2", "4", "16", "32"), "spread": ("1", "2", "4", "8")},
    NEVER_STOPS,
)

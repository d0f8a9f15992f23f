"""Jobs in groups that take turns at the stages of an iteration (Muri, SIGCOMM 2022).

Whenever a job arrives or ends, jobs are taken in order of priority: for each that still fits into the cluster up to
four of its width. If these need more GPUs than there are, they are put into groups; a group whose jobs would run faster
one after the other is taken apart again; and the groups start in the order of their first job.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from jigsaw_opt.errors import missing_option
from jigsaw_opt.formulations.interleave.rotation import MOST_JOBS, Group, StagedJob, Timing
from jigsaw_opt.formulations.interleave.rounds import group_round
from jigsaw_opt.problem.depth import Depth, FullDepth, StaircaseDepth
from jigsaw_opt.scheduling.allocation import Decision, Share
from jigsaw_opt.scheduling.performance.stages import Stages
from jigsaw_opt.scheduling.placement.placing import FreeGpus
from jigsaw_opt.scheduling.policies import NamedPolicy, RigidScheduler
from jigsaw_opt.scheduling.policy import ClusterSetting, JobState, Observation
from jigsaw_opt.solvers.allocation.interleave import Method, group_jobs

_GAP = 1e-3
_NODES = 10
"""A round need not wait for the last thousandth, nor for proofs that take long."""

Team = tuple[int, ...]
"""Numbers of the jobs of a group."""


@dataclass(slots=True)
class Interleaving(RigidScheduler):
    """The policy at work.

    `known`: whether jobs go by the service that they still need (Muri-S) or by what they have had (Muri-L). `timing`:
    how the jobs of a group take turns. `staircase`: whether jobs on several GPUs may stop their backward passes early.
    """

    policy = "interleave"
    stages: Stages
    method: Method
    known: bool
    timing: Timing = "published"
    staircase: bool = False

    def decide(self, observation: Observation) -> Decision:
        """Group the jobs that come first, and start the groups that fit."""
        gpus = self.setting.gpu_count - len(observation.down)
        most = max(self.setting.most_joined(observation.down, observation.dead).values())
        order = sorted((one for one in observation.jobs.values() if one.job.gpus <= most), key=self._priority)
        rank = {active.index: place for place, active in enumerate(order)}
        jobs = {active.index: active.job for active in self._candidates(order, gpus)}
        staged = {k: self.stages.staged(job, self.staircase and job.gpus >= 2) for k, job in jobs.items()}
        if not staged:  # all are wider than what is up
            return Decision()
        found = self._teams(staged, observation.shares, gpus)
        teams = self._fitting(staged, sorted(found, key=lambda team: min(map(rank.__getitem__, team))), gpus)
        return Decision(tuple(self._placed(staged, list(teams), observation)))

    def _priority(self, active: JobState) -> tuple[float, int]:
        if self.known:
            return active.job.gpus * self.stages.alone_us(active.job) * (active.left / active.work), active.index
        return active.job.gpus * active.run_us, active.index

    def _candidates(self, order: Iterable[JobState], gpus: int) -> list[JobState]:
        """Return for each job that still fits as many of its width as can share its GPUs."""
        by_width: defaultdict[int, list[JobState]] = defaultdict(list)
        for active in order:
            by_width[active.job.gpus].append(active)
        left, shares = gpus, Counter[int]()
        place: Counter[int] = Counter()
        for width in (active.job.gpus for active in order):
            if place[width] >= MOST_JOBS * shares[width] and width <= left:
                shares[width] += 1
                left -= width
            place[width] += 1
        return [active for width, number in shares.items() for active in by_width[width][: MOST_JOBS * number]]

    def _teams(self, staged: Mapping[int, StagedJob], running: Iterable[Share], gpus: int) -> Iterator[Team]:
        """Yield who shares GPUs with whom; as they do already, where the best groups allow it."""
        found = group_jobs(staged.values(), gpus, self.method, self.timing, _GAP, _NODES)
        made = Counter(found.groups)
        free = dict(staged)
        for share in running:
            group = _sorted(free[job] for job in share.jobs) if all(job in free for job in share.jobs) else ()
            if made[group]:
                made[group] -= 1
                yield from self._worthwhile(share.jobs, [free.pop(job) for job in share.jobs])
        alike: defaultdict[StagedJob, list[int]] = defaultdict(list)
        for job in reversed(free):
            alike[free[job]].append(job)
        for group, number in made.items():
            for _ in range(number):
                yield from self._worthwhile(tuple(alike[one].pop() for one in group), group)

    def _worthwhile(self, team: Team, group: Sequence[StagedJob]) -> Iterator[Team]:
        """Yield the team, or each of its jobs alone if they would rather take turns by whole iterations."""
        done = group_round(_sorted(group), self.timing)
        one_by_one = sum(number * job.alone_us for number, job in zip(done.iterations, _sorted(group), strict=True))
        if done.time_us > one_by_one:
            yield from ((job,) for job in team)
        else:
            yield team

    def _fitting(self, staged: Mapping[int, StagedJob], teams: Iterable[Team], left: int) -> Iterator[Team]:
        for team in teams:
            if staged[team[0]].gpus <= left:
                left -= staged[team[0]].gpus
                yield team

    def _placed(self, staged: Mapping[int, StagedJob], teams: Sequence[Team], observation: Observation) -> list[Share]:
        """Place the teams; those that go on keep their GPUs, unless others would then be spread too widely."""
        before = {frozenset(share.jobs): share.gpus for share in observation.shares}
        kept = {team: before[frozenset(team)] for team in teams if frozenset(team) in before}
        wide_first = sorted(teams, key=lambda team: -staged[team[0]].gpus)
        gpus = self._gpus(wide_first, kept, observation)
        if kept and any(self._scattered(gpus[team]) for team in teams if team in gpus.keys() - kept.keys()):
            gpus = self._gpus(wide_first, {}, observation)
        return [Share(team, gpus[team], self._depths([staged[job] for job in team])) for team in teams if team in gpus]

    def _gpus(
        self, teams: Iterable[Team], kept: Mapping[Team, tuple[int, ...]], observation: Observation
    ) -> dict[Team, tuple[int, ...]]:
        held = [Share(team, gpus) for team, gpus in kept.items()]
        free = FreeGpus(self.setting, held, observation.down, observation.dead)
        found = dict(kept)
        for team in teams:
            if team not in kept:
                first, *others = (observation.jobs[job].job for job in team)
                gpus = free.place(first, "packed", beside=others)
                if gpus is not None:  # teams fit together, but maybe not each in one part of the cluster
                    found[team] = gpus
        return found

    def _scattered(self, gpus: tuple[int, ...]) -> bool:
        servers = {self.setting.server_of[gpu] for gpu in gpus}
        kind = self.setting.pool_of[gpus[0]].kind
        largest = sorted((w for pool in self.setting.pools if pool.kind == kind for w in pool.widths), reverse=True)
        return sum(largest[: len(servers) - 1]) >= len(gpus)

    def _depths(self, group: Sequence[StagedJob]) -> tuple[Depth, ...]:
        if self.timing != "planned":
            return ()
        bent = group_round(_sorted(group), self.timing).staircase
        return tuple(StaircaseDepth() if bent and job.staircase else FullDepth() for job in group)


def _sorted(group: Iterable[StagedJob]) -> Group:
    return tuple(sorted(group))


def _start(setting: ClusterSetting, options: Mapping[str, str]) -> Interleaving:
    if not isinstance(setting.performance, Stages):
        raise missing_option("performance", "policy 'interleave' needs jobs whose iterations are known by stages")
    method: Method = "exact" if options["groups"] == "exact" else "matching"
    return Interleaving(setting, options, setting.performance, method, options["service"] == "left")


INTERLEAVE = NamedPolicy(
    "interleave",
    "groups of jobs that take turns at the stages of an iteration (Muri)",
    _start,
    {"service": ("left", "attained"), "groups": ("exact", "matching")},
    shares_gpus=True,
)

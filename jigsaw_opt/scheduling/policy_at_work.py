"""A policy at work: asked, checked, put aside. What simulates a cluster and what runs one ask through it alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from jigsaw_opt.errors import InvalidInputError, JigsawError
from jigsaw_opt.problem.rules.report import Place, Report
from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling.allocation import Decision, Share
from jigsaw_opt.scheduling.plain import Plain
from jigsaw_opt.scheduling.policy import ClusterSetting, JobState, Learning, Observation, Policy, Resumable, Selective


class InvariantError(RuntimeError):
    """A bug: a policy or a performance model broke a rule. The message names the round and the job."""


def check_shares(
    setting: ClusterSetting,
    jobs: Mapping[int, JobState],
    shares: Sequence[Share],
    known: Iterable[Share],
    when: str,
    remains: bool = False,
) -> None:
    """Check that every GPU and every job is in at most one share, and that every new share can run.

    `known`: shares that were checked in an earlier round, so that only their overlap is looked at again. `remains`:
    whether a job may be alone on more GPUs than it asks for, because those that shared them have ended.
    """
    checked = set(known)
    held: set[int] = set()
    count = 0
    placed: set[int] = set()
    for share in shares:
        for job in share.jobs:
            require(job in jobs, when, f"job {job} is not active")
            require(job not in placed, when, f"{_called(jobs, job)} is in two shares")
            placed.add(job)
        held.update(share.gpus)
        count += len(share.gpus)
        if share not in checked:
            _check_share(setting, jobs, share, when, remains)
    if len(held) < count:
        _tell_overlap(jobs, shares, when)


def check_up(
    setting: ClusterSetting,
    jobs: Mapping[int, JobState],
    shares: Iterable[Share],
    down: frozenset[int],
    dead: frozenset[int],
    when: str,
) -> None:
    """Check that no share has a GPU that is down, and that links that are up join its servers (placement)."""
    for share in shares:
        lost = next((gpu for gpu in share.gpus if gpu in down), None)
        if lost is not None:
            name = setting.cluster.gpus.names[lost]
            raise InvariantError(f"{when}: {_called(jobs, share.jobs[0])} is on GPU {name!r}, which is down")
        if setting.is_cut(share.gpus, dead):
            servers = sorted({setting.server_of[gpu] for gpu in share.gpus})
            names = ", ".join(setting.cluster.servers[server].name for server in servers)
            raise InvariantError(f"{when}: {_called(jobs, share.jobs[0])} is on servers that no links join: {names}")


def _tell_overlap(jobs: Mapping[int, JobState], shares: Iterable[Share], when: str) -> None:
    """Name a GPU that is in two shares."""
    owner: dict[int, int] = {}
    for share in shares:
        for gpu in share.gpus:
            first = owner.setdefault(gpu, share.jobs[0])
            require(first == share.jobs[0], when, f"GPU {gpu} is given to {_called(jobs, first)} and to another share")


def _check_share(setting: ClusterSetting, jobs: Mapping[int, JobState], share: Share, when: str, remains: bool) -> None:
    require(bool(share.jobs and share.gpus), when, "a share has no job or no GPU")
    name, count = _called(jobs, share.jobs[0]), len(share.gpus)
    in_order = all(low < high for low, high in pairwise(share.gpus))
    in_range = share.gpus[0] >= 0 and share.gpus[-1] < setting.gpu_count
    require(in_order and in_range, when, f"the GPUs of {name} are not ascending numbers of the cluster's")
    require(len(share.depths) in (0, len(share.jobs)), when, f"the share of {name} has not one depth rule a job")
    members = [jobs[k].job for k in share.jobs]
    if len(members) == 1 and not remains:
        fits = members[0].fewest <= count <= members[0].most
    else:
        fits = all(job.fewest <= count for job in members)
    require(fits, when, f"{name} cannot run on {count} GPUs")
    for job in members:
        if job.gpu_types is not None:
            others = {setting.pool_of[gpu].gpu_type for gpu in share.gpus}.difference(setting.pool_choice.types_of(job))
            require(not others, when, f"job {job.name!r} may not run on GPUs of type {', '.join(sorted(others))}")
    reason = setting.performance.refuses(share, members)
    require(reason is None, when, f"{name}: {reason}")


def _called(jobs: Mapping[int, JobState], index: int) -> str:
    return f"job {jobs[index].job.name!r}"


def require(holds: bool, when: str, message: str) -> None:
    """Raise an error unless a rule holds."""
    if not holds:
        raise InvariantError(f"{when}: {message}")


class PolicyAtWork:
    """A policy on a setting, at its beginning.

    `policy, options`: the policy, with a value for each of its options. `setting`: what it knows from the start.
    """

    def __init__(self, policy: Policy, options: Mapping[str, str], setting: ClusterSetting) -> None:
        self.name, self._setting = policy.name, setting
        self._scheduler = policy.start(setting, options)

    @property
    def resumable(self) -> bool:
        """Whether it can be put aside."""
        return isinstance(self._scheduler, Resumable)

    def refusal(self, jobs: Iterable[TraceJob]) -> str | None:
        """Return why it cannot run the first of `jobs` that it refuses; None where it takes all."""
        if not isinstance(self._scheduler, Selective):
            return None
        return next((reason for job in jobs if (reason := self._scheduler.refuses(job)) is not None), None)

    def learn(self, ended: Iterable[tuple[TraceJob, int]]) -> None:
        """Tell it, before it is asked, how long jobs lasted that have ended; one that learns nothing ignores it."""
        if isinstance(self._scheduler, Learning):
            self._scheduler.learn(ended)

    def decide(self, observation: Observation) -> Decision:
        """Return what the document says, unchecked."""
        return self._scheduler.decide(observation)

    def check(self, shares: Sequence[Share], observation: Observation, when: str) -> None:
        """Check what the policy decided on an observation."""
        check_shares(self._setting, observation.jobs, shares, observation.shares, when)
        check_up(self._setting, observation.jobs, shares, observation.down, observation.dead, when)

    def state(self) -> Plain:
        """Return what the policy has to remember, as values of JSON."""
        return self._resumable().state()

    def restore(self, memory: Plain, observation: Observation, place: Place = "$") -> None:
        """Go on, from the beginning, as the one that gave `memory`."""
        report = Report()
        try:
            self._resumable().restore(memory, observation)
        except InvalidInputError as error:
            report.include(error.problems, place)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            report.add(place, f"policy {self.name!r} does not take it: {error}", code="failed")
        report.raise_if_any()

    def _resumable(self) -> Resumable:
        if not isinstance(self._scheduler, Resumable):
            raise JigsawError(f"policy {self.name!r} cannot be put aside: it has no `state` and `restore`")
        return self._scheduler

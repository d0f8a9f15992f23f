"""A policy at work: asked, checked, put aside. What simulates a cluster and what runs one ask through it alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from jigsaw_opt.errors import InvalidInputError, JigsawError
from jigsaw_opt.problem.rules.report import Place, Report
from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling.allocation import Decision, Share
from jigsaw_opt.scheduling.plain import Plain
from jigsaw_opt.scheduling.policy import ClusterSetting, Learning, Observation, Policy, Resumable, Selective
from jigsaw_opt.scheduling.share_rules import check_shares, check_up


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

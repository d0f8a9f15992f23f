"""A policy that is asked while a cluster runs: whatever it raises or says, what runs can go on.

Where a policy fails, the job is looked for that it fails with: the last of the smallest set of jobs, in order of
submission, that it fails with. Such a job is put aside, so that the others are decided on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from jigsaw_opt.errors import JigsawError, PluginError, unsupported
from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.problem.rules.report import Place
from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling.allocation import MOST_SLOWDOWN, Decision, Share
from jigsaw_opt.scheduling.live.cluster_state import ClusterState
from jigsaw_opt.scheduling.live.events import ServerAdded
from jigsaw_opt.scheduling.performance import Performance
from jigsaw_opt.scheduling.plain import Plain
from jigsaw_opt.scheduling.policy import Observation, Policy, PolicySetting
from jigsaw_opt.scheduling.policy_at_work import PolicyAtWork, check_shares
from jigsaw_opt.text import printable


@dataclass(frozen=True, slots=True)
class PolicyAnswer:
    """The answer of a policy.

    `decision`: checked at the moment that it is about. `scheduler, memory`: the policy after it, and what it remembers.
    `aside`: why jobs are put aside, by number: the decision is made as if they were not there.
    """

    decision: Decision
    scheduler: PolicyAtWork
    memory: Plain
    aside: Mapping[int, str]


class LivePolicy:
    """A policy that is asked one question after the other.

    `policy, options`: the policy, with a value for each of its options. `setting`: what it knows from the start;
    once it is another one, the policy is to begin anew. `memory`: what it remembers after the last decision that was
    accepted.
    """

    def __init__(self, policy: Policy, options: Mapping[str, str], setting: PolicySetting) -> None:
        self._policy, self._options, self.setting = policy, options, setting
        self._scheduler = self._fresh()
        self.memory = self._memory_of(self._scheduler)
        self._question: Future[PolicyAnswer] | None = None
        self._worker: ThreadPoolExecutor | None = None

    @property
    def name(self) -> str:
        """What errors call it."""
        return f"policy {self._policy.name!r}"

    @property
    def is_asked(self) -> bool:
        """Whether it has a question whose answer was not taken."""
        return self._question is not None

    def refusal(self, job: TraceJob) -> str | None:
        """Return why it cannot run a job; None where it can."""
        try:
            with failures_of(f"{self.name} cannot say whether it takes the job"):
                return self._scheduler.refusal([job])
        except PluginError as error:
            return str(error)

    def ask(self, observation: Observation, budget_s: float | None) -> None:
        """Put a question; without a budget it is answered in this thread.

        If that is interrupted, as by Ctrl-C, there is no question, and the policy is to begin anew.

        `budget_s`: seconds for the answer, which another thread gives; None to answer in this thread.
        """
        if budget_s is not None:
            self._worker = self._worker or ThreadPoolExecutor(1, "policy")
            self._question = self._worker.submit(self._answer, self._scheduler, observation)
            return
        answer: Future[PolicyAnswer] = Future()
        try:
            answer.set_result(self._answer(self._scheduler, observation))
        except PluginError as error:
            answer.set_exception(error)
        self._question = answer

    def withdraw(self) -> None:
        """Forget the question, whoever is answering it; the policy is to begin anew."""
        self._question = None
        if self._worker is not None:
            self._worker.shutdown(wait=False, cancel_futures=True)
            self._worker = None

    def is_late(self, budget_s: float | None) -> bool:
        """Return whether the answer is not there after so long; None for as long as it takes."""
        return self._question is not None and not wait([self._question], budget_s).done

    def take(self) -> PolicyAnswer:
        """Return the answer, for which this waits."""
        question, self._question = self._question, None
        assert question is not None
        return question.result()

    def accept(self, answer: PolicyAnswer) -> None:
        """Go on from an answer that is carried out."""
        self._scheduler, self.memory = answer.scheduler, answer.memory

    def begin_anew(self, observation: Observation) -> bool:
        """Start the policy with what it remembered; False where it does not take that, and has forgotten all."""
        try:
            self._scheduler = self._resumed(observation)
        except JigsawError:
            self._scheduler = self._fresh()
            self.memory = self._memory_of(self._scheduler)
            return False
        return True

    def restore(self, memory: Plain, observation: Observation, place: Place) -> None:
        """Begin anew and take up the memory of an earlier policy, which is checked first."""
        scheduler = self._fresh()
        scheduler.restore(memory, observation, place)
        self._scheduler, self.memory = scheduler, memory

    def _fresh(self) -> PolicyAtWork:
        scheduler = PolicyAtWork(self._policy, self._options, self.setting)
        if not scheduler.resumable:
            raise unsupported("policy", f"{self.name} cannot run live: it has no `state` and `restore`")
        return scheduler

    def _resumed(self, observation: Observation) -> PolicyAtWork:
        """Return the policy as it was after the last decision that was accepted."""
        with failures_of(self.name):
            scheduler = self._fresh()
            scheduler.restore(self.memory, observation)
        return scheduler

    def _memory_of(self, scheduler: PolicyAtWork) -> Plain:
        """Return what a policy remembers, in values of its own."""
        with failures_of(f"{self.name} has no state of plain values"):
            return json.loads(json.dumps(scheduler.state(), allow_nan=False))

    def _answer(self, scheduler: PolicyAtWork, observation: Observation) -> PolicyAnswer:
        """Return what the policy decides, without the jobs that it fails with."""
        try:
            return self._decided(scheduler, observation, {})
        except PluginError as error:
            found = self._without_culprits(observation, str(error))
            if found is None:
                raise error
            return found

    def _decided(self, scheduler: PolicyAtWork, observation: Observation, aside: Mapping[int, str]) -> PolicyAnswer:
        """Return what a policy decides at a moment, checked."""
        with failures_of(self.name):
            decision = scheduler.decide(observation)
            _check_types(decision)
            scheduler.check(decision.shares, observation, f"at {observation.now_us} us")
        return PolicyAnswer(decision, scheduler, self._memory_of(scheduler), aside)

    def _without_culprits(self, observation: Observation, reason: str) -> PolicyAnswer | None:
        """Return the decision without the jobs that the policy fails with; None where it fails whatever is left out.

        It fails for `reason` with all jobs.
        Of the jobs that it knows already it leaves out at most one, and only if it then decides on all others.
        """
        arrived = set(observation.arrived)
        order = [*(k for k in observation.jobs if k not in arrived), *observation.arrived]
        aside: dict[int, str] = {}

        def attempt(kept: Collection[int]) -> PolicyAnswer | str:
            trial = _without(observation, observation.jobs.keys() - set(kept))
            try:
                return self._decided(self._resumed(trial), trial, dict(aside))
            except PluginError as error:
                return str(error)

        if isinstance(attempt(()), str):
            return None
        while order:
            culprit, aside_for = _first_failing(order, reason, attempt)
            aside[culprit] = aside_for
            order.remove(culprit)
            found = attempt(order)
            if isinstance(found, PolicyAnswer):
                return found
            if culprit not in arrived:
                break
            reason = found
        return None


def _first_failing(
    order: Sequence[int], reason: str, attempt: Callable[[Collection[int]], PolicyAnswer | str]
) -> tuple[int, str]:
    """Return the last job of the shortest beginning of `order` that fails, and why; all of it fails for `reason`."""
    # Without any job it works, with all of them it fails: bisection keeps both ends true.
    works, fails = 0, len(order)
    while fails - works > 1:
        middle = (works + fails) // 2
        found = attempt(order[:middle])
        if isinstance(found, str):
            fails, reason = middle, found
        else:
            works = middle
    return order[fails - 1], reason


def _without(observation: Observation, gone: Set[int]) -> Observation:
    """Return what a policy would see if some jobs were not there: those that it knows have ended."""
    if not gone:
        return observation
    shares: list[Share] = []
    for share in observation.shares:
        for job in gone & set(share.jobs):
            share = share.without(job)
        if share.jobs:
            shares.append(share)
    jobs = {
        k: replace(job, share=next((one for one in shares if k in one.jobs), None))
        for k, job in observation.jobs.items()
        if k not in gone
    }
    known = [k for k in observation.jobs if k in gone and k not in observation.arrived]
    return replace(
        observation,
        jobs=jobs,
        shares=tuple(shares),
        arrived=tuple(k for k in observation.arrived if k not in gone),
        ended=(*observation.ended, *known),
        stopped=tuple(k for k in observation.stopped if k not in gone),
        unfinished=(*observation.unfinished, *known),
    )


def _check_types(decision: Decision) -> None:
    """Refuse a decision that a state could not hold."""
    if type(decision) is not Decision or type(decision.shares) is not tuple:
        raise TypeError(f"decides on {type(decision).__name__}, not on a Decision with a tuple of shares")
    wake_us = decision.wake_us
    if wake_us is not None and type(wake_us) is not int:
        raise TypeError(f"wants to be asked at {wake_us!r}, which is no time in whole microseconds")
    if type(decision.stopped) is not tuple or not all(type(index) is int for index in decision.stopped):
        raise TypeError(f"stops {decision.stopped!r}, which is no tuple of numbers of jobs")
    for share in decision.shares:
        slowdown = share.slowdown
        if not all(type(number) is int for number in (*share.jobs, *share.gpus)):
            raise TypeError("gives GPUs or jobs by what is no integer")
        if type(share.jobs) is not tuple or type(share.gpus) is not tuple or type(share.depths) is not tuple:
            raise TypeError("gives jobs, GPUs or depth rules that are no tuple")
        if slowdown is not None and (type(slowdown) not in (int, float) or not 1 <= slowdown <= MOST_SLOWDOWN):
            raise TypeError(f"gives a slowdown of {slowdown!r}, not of 1 to {MOST_SLOWDOWN}")
        for depth in share.depths:
            depth.keyed()  # raises for a depth rule that a state cannot hold


@contextmanager
def failures_of(what: str) -> Iterator[None]:
    """Raise whatever the block raises as a PluginError that names `what`, but for what ends the program."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        raise PluginError(f"{what}: {_told(error)}") from error


def _told(error: BaseException) -> str:
    """Return an error in words; one that has none by its class."""
    with suppress(Exception):
        return printable(f"{type(error).__name__}: {error}")
    return type(error).__name__


def enlarged_setting(
    event: ServerAdded,
    state: ClusterState,
    perform: Callable[[Cluster], Performance],
    policy: Policy,
    options: Mapping[str, str],
) -> PolicySetting:
    """Return the setting of a cluster with one server more."""
    jobs = [job.active for job in state.jobs.values()]
    try:
        with failures_of("it does not work"):
            setting = state.enlarged(event, perform)
            LivePolicy(policy, options, setting)
            reason = next(filter(None, (setting.performance.unknown(one.job) for one in jobs)), None)
            if reason is None and any(setting.performance.work(one.job) != one.work for one in jobs):
                reason = "jobs would have other work to do"
            if reason is None:
                check_shares(setting, state.active, state.shares, (), "with it", remains=True)
    except PluginError as error:
        reason = str(error.__cause__)
    if reason is not None:
        raise unsupported("server", f"$.server: the cluster cannot have it: {reason}")
    return setting

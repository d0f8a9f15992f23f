"""A scheduler for those who embed one: events in, changes of the plan out, with the policies of the simulation."""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import partial

from jigsaw_opt.errors import JigsawError, UsageError, require_a
from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.problem.model import Model
from jigsaw_opt.scheduling.allocation import Decision
from jigsaw_opt.scheduling.cluster_state import ClusterState
from jigsaw_opt.scheduling.events import ClusterEvent, JobSubmitted, ServerAdded, decode_event, encode_event
from jigsaw_opt.scheduling.explaining import LiveExplanation, explained
from jigsaw_opt.scheduling.live_job import News
from jigsaw_opt.scheduling.performance import Performance
from jigsaw_opt.scheduling.performance.profiled import Profiled
from jigsaw_opt.scheduling.performance.seconds import Seconds
from jigsaw_opt.scheduling.plain import Plain
from jigsaw_opt.scheduling.plan_change import JobMove, JobStart, JobStop, PlanChange, changes
from jigsaw_opt.scheduling.policy import Moment, PolicySetting, choose
from jigsaw_opt.scheduling.policy_at_work import PolicyAtWork
from jigsaw_opt.scheduling.state_document import check_step, decode_state, encode_state

__all__ = ["LiveScheduler"]

_log = logging.getLogger(__name__)
_SECOND_US = 1_000_000
_FAILURES = (
    JigsawError,
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What a policy that fails raises; anything else is for who called."""


@dataclass(frozen=True, slots=True)
class _Question:
    """What the policy was asked: what it remembered before, what it was told, and what it will have said."""

    memory: Plain
    news: News
    answer: Future[Decision]


class LiveScheduler:
    """Decides what runs where on a cluster, from event to event.

    Every method may be called from every thread; one lock lets them in one after the other. Nothing is global, and
    nothing but the arguments and the calls counts: the same calls give the same changes, whatever the clock says, as
    long as no step is `PlanChange.late`.

    Parameters
    ----------
    cluster
        Servers, switches and links at the beginning.
    policy
        Who decides, as in ``jigsaw`` or ``las:placement=packed``.
    models
        Models of the jobs by name, for policies that know how fast jobs run by their segments.
    performance
        How fast jobs run on a cluster; by default from `models`, or without any an iteration a second.
    seed
        For policies that draw lots.
    round_us, restart_us
        Microseconds between decisions of a policy that decides again and again, and of a start on other GPUs.
    journal
        Called with every event and step, as an object of JSON that `replay` takes, after it was taken in.

    Raises
    ------
    UsageError
        There is no such policy, or it does not work with this cluster, performance, or live; the message names it.
    """

    def __init__(
        self,
        cluster: Cluster,
        policy: str = "jigsaw",
        *,
        models: Mapping[str, Model] | None = None,
        performance: Callable[[Cluster], Performance] | None = None,
        seed: int = 0,
        round_us: int = 60 * _SECOND_US,
        restart_us: int = 30 * _SECOND_US,
        journal: Callable[[Plain], None] | None = None,
    ) -> None:
        require_a(Cluster, cluster)
        if performance is None:
            performance = _default_performance(models)
        self._policy, self._options = choose(policy)
        self._perform, self._journal = performance, journal
        self._again = partial(
            LiveScheduler,
            cluster,
            policy,
            models=models,
            performance=performance,
            seed=seed,
            round_us=round_us,
            restart_us=restart_us,
        )
        setting = PolicySetting(cluster, performance(cluster), round_us, restart_us, seed)
        figures = (cluster, setting.performance.name, setting.performance.figures, round_us, restart_us, seed)
        self._inputs = hashlib.sha256(repr((figures, self._policy.name, self._options)).encode()).hexdigest()
        self._lock = threading.Lock()
        self._state = ClusterState(setting)
        self._scheduler = self._started()
        self._question: _Question | None = None
        self._worker: ThreadPoolExecutor | None = None

    @property
    def cluster(self) -> Cluster:
        """The cluster, with the servers that were added."""
        return self._state.setting.cluster

    def handle(self, event: ClusterEvent) -> None:
        """Take an event in; nothing is decided before the next step.

        Raises
        ------
        UsageError
            It cannot be: it names what there is not, the policy cannot run the job, or time goes back. Then nothing
            has changed.
        """
        with self._lock:
            self._handle(event)
            self._note(encode_event(event))

    def step(self, now_us: int, budget_s: float | None = None) -> PlanChange:
        """Ask the policy if there is something to decide, and tell what changes.

        Parameters
        ----------
        now_us
            The time, on the clock of the events.
        budget_s
            How long to wait for the policy, which then decides in a thread of its own; None for as long as it takes,
            in this thread. A decision that comes later is taken by a later step, as far as it still holds, and until
            then what runs goes on. The rest of a step is checking, and takes time in proportion to the jobs.

        Raises
        ------
        UsageError
            Time goes back.
        """
        with self._lock:
            return self._step(now_us, budget_s, None)

    def explain(self, job: str, seconds: float = 2.0) -> LiveExplanation:
        """Why a job waits or runs as it does, and what would start it or make it faster; nothing changes.

        What would start a job is tried on a copy of this scheduler, so it takes a step of the policy each.

        Parameters
        ----------
        job
            Name of an active job.
        seconds
            After so many no other event is tried, once one was found.

        Raises
        ------
        UsageError
            There is no such job, or a decision is late: then the policy is still deciding.
        """
        with self._lock:
            if job not in self._state.numbers:
                raise UsageError(f"there is no job {job!r}")
            if self._question is not None:
                raise UsageError(f"policy {self._policy.name!r} is still deciding about {job!r}")
            state = encode_state(self._state, self._inputs, self._scheduler.state())

            def twin() -> LiveScheduler:
                made = self._again()
                made.restore(state)
                return made

            return explained(self._state, job, twin, seconds)

    def state(self) -> Plain:
        """All that a scheduler with the same arguments needs to go on: values of JSON, ``jigsaw-live/1``.

        A decision that is late is waited for and taken first.
        """
        with self._lock:
            if self._question is not None:
                self._take()
                self._note({"event": "taken"})
            return encode_state(self._state, self._inputs, self._scheduler.state())

    def restore(self, state: Plain) -> None:
        """Go on, from the beginning, as the scheduler with the same arguments that gave `state`.

        Parameters
        ----------
        state
            Not to be trusted.

        Raises
        ------
        InvalidInputError
            With every problem: it is no state, one of a scheduler with other arguments, or one that none has. Then
            this scheduler must not be used.
        UsageError
            This scheduler is not at its beginning.
        """
        with self._lock:
            if self._state.next_job or self._state.now_us or self._question is not None:
                raise UsageError("a state is restored by a scheduler that has seen nothing yet")
            self._state, memory = decode_state(state, self._inputs, self._state.setting, self._perform)
            self._scheduler = self._started()
            self._scheduler.restore(memory, self._state.moment(), "$.policy")

    def replay(self, entry: Plain) -> PlanChange | None:
        """Do again what a journal has noted; the change of a step.

        Raises
        ------
        InvalidInputError, UsageError
            It is no entry of a journal, or cannot follow those before.
        """
        with self._lock:
            kind = entry.get("event") if isinstance(entry, dict) else None
            if kind == "step":
                check_step(entry)
                return self._step(entry["time_us"], None, entry["late"])
            if kind == "taken":
                if self._question is not None:
                    self._take()
                self._note(entry)
                return None
            event = decode_event(entry)
            self._handle(event)
            self._note(entry)
            return None

    def _note(self, entry: Plain) -> None:
        if self._journal is not None:
            self._journal(entry)

    def _handle(self, event: ClusterEvent) -> None:
        if isinstance(event, JobSubmitted):
            reason = self._scheduler.refusal([event.job])
            if reason is not None and self._state.setting.performance.unknown(event.job) is None:
                raise UsageError(reason)
        if isinstance(event, ServerAdded):
            self._enlarge(event)
        self._state.handle(event)

    def _step(self, now_us: int, budget_s: float | None, late: bool | None) -> PlanChange:
        """A step; `late` tells, of one that is done again, whether its policy was late."""
        self._state.advance(now_us)
        if self._question is None and self._state.due:
            self._ask(budget_s)
        if late is None:
            late = self._question is not None and not wait([self._question.answer], budget_s).done
        failure = "" if late or self._question is None else self._take()
        change = self._change(late, failure)
        self._note({"event": "step", "time_us": now_us, "late": late})
        return change

    def _change(self, late: bool, failure: str) -> PlanChange:
        state = self._state
        after = state.assignments()
        found = list(changes(state.told, after, state.reasons, f"policy {self._policy.name!r}"))
        state.told, state.reasons = dict(after), {}
        return PlanChange(
            state.now_us,
            tuple(one for one in found if isinstance(one, JobStart)),
            tuple(one for one in found if isinstance(one, JobStop)),
            tuple(one for one in found if isinstance(one, JobMove)),
            state.now_us if state.asked and state.due else state.wake_us,
            late,
            failure,
        )

    # The policy ---------------------------------------------------------------------------------------------

    def _started(self) -> PolicyAtWork:
        scheduler = PolicyAtWork(self._policy, self._options, self._state.setting)
        if not scheduler.resumable:
            raise UsageError(f"policy {self._policy.name!r} cannot run live: it has no `state` and `restore`")
        return scheduler

    def _ask(self, budget_s: float | None) -> None:
        """Put the question that there is to the policy."""
        state = self._state
        memory, moment = self._scheduler.state(), state.moment()
        if budget_s is None:
            answer = self._answered(memory, moment)
        else:
            self._worker = self._worker or ThreadPoolExecutor(1, "policy")
            answer = self._worker.submit(self._scheduler.decide, moment)
        self._question = _Question(memory, state.news, answer)
        state.news, state.asked, state.wake_us = News(), False, None

    def _answered(self, memory: Plain, moment: Moment) -> Future[Decision]:
        """What the policy says in this thread; if that is interrupted, as by Ctrl-C, it has not been asked."""
        answer: Future[Decision] = Future()
        try:
            answer.set_result(self._scheduler.decide(moment))
        except _FAILURES as error:
            answer.set_exception(error)
        finally:
            if not answer.done():
                self._begin_anew(memory)
        return answer

    def _take(self) -> str:
        """Carry out the decision that was asked for; what hinders that, and then everything stays."""
        question, self._question = self._question, None
        assert question is not None
        state, failure = self._state, question.answer.exception()
        if failure is not None and not isinstance(failure, _FAILURES):
            self._take_back(question)
            raise failure
        try:
            decision = question.answer.result()
            shares, without = state.remaining(decision.shares)
            when = f"at {state.now_us} us"
            late = shares != decision.shares
            self._scheduler.check(shares, state.active, state.shares, state.down, when, remains=late)
        except _FAILURES as error:
            _log.warning("policy %r gives no decision at %d us: %s", self._policy.name, state.now_us, error)
            self._take_back(question)
            return f"{type(error).__name__}: {error}"
        state.apply(shares, without)
        if decision.wake_us is not None:
            state.wake_us = self._round_up(max(decision.wake_us, state.now_us + 1))
        return ""

    def _take_back(self, question: _Question) -> None:
        """Have a policy that failed forget the question, and ask again after a round."""
        state = self._state
        state.news, state.asked = state.news.after(question.news), False
        state.wake_us = self._round_up(state.now_us + 1)
        self._begin_anew(question.memory)

    def _begin_anew(self, memory: Plain) -> None:
        """Start the policy with what it remembered, or, where that does not fit, with all jobs waiting."""
        self._scheduler = self._started()
        try:
            self._scheduler.restore(memory, self._state.moment())
        except _FAILURES as error:
            _log.warning("policy %r begins anew: %s", self._policy.name, error)
            self._state.forget_all()
            self._scheduler = self._started()

    def _enlarge(self, event: ServerAdded) -> None:
        """Set up the larger cluster, and the policy on it with what it remembers."""
        state = self._state
        if event.time_us < state.now_us:
            raise UsageError(f"time goes back from {state.now_us} to {event.time_us} us")
        cluster = state.enlarged(event)
        performance = self._perform(cluster)
        if self._question is not None:
            self._take()
        memory = self._scheduler.state()
        state.set_up(replace(state.setting, cluster=cluster, performance=performance))
        self._begin_anew(memory)

    def _round_up(self, time_us: int) -> int:
        step = self._state.setting.round_us or _SECOND_US
        return -(-time_us // step) * step


def _default_performance(models: Mapping[str, Model] | None) -> Callable[[Cluster], Performance]:
    if models is None:
        return lambda cluster: Seconds()
    known = dict(models)
    return lambda cluster: Profiled(cluster, known)

"""A scheduler for those who embed one: events in, changes of the plan out, with the policies of the simulation."""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import TypeVar

from jigsaw_opt.arguments import typed
from jigsaw_opt.errors import InvalidInputError, PluginError, UsageError
from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.problem.model import Model
from jigsaw_opt.problem.rules.report import Report
from jigsaw_opt.problem.workload import LARGEST, TraceJob
from jigsaw_opt.scheduling.live.cluster_state import ClusterState
from jigsaw_opt.scheduling.live.event_checks import check_event, without_effect
from jigsaw_opt.scheduling.live.events import (
    NAME,
    TIME,
    ClusterEvent,
    PolicyBack,
    ServerAdded,
    decode_event,
    encode_event,
    entry_of,
    event_of,
)
from jigsaw_opt.scheduling.live.explaining import LiveExplanation, explained, kept_by
from jigsaw_opt.scheduling.live.job import News
from jigsaw_opt.scheduling.live.limits import moved, staying
from jigsaw_opt.scheduling.live.plan_change import JobMove, JobStart, JobStop, PlanChange, changes
from jigsaw_opt.scheduling.live.policy import LivePolicy, enlarged_setting
from jigsaw_opt.scheduling.live.start_prediction import PastJobs, StartPrediction, predicted
from jigsaw_opt.scheduling.live.state_document import check_step, encode_state, restore_state
from jigsaw_opt.scheduling.performance import Performance
from jigsaw_opt.scheduling.performance.profiled import Profiled
from jigsaw_opt.scheduling.performance.seconds import Seconds
from jigsaw_opt.scheduling.plain import Plain, check_arguments, number, optional, whole
from jigsaw_opt.scheduling.policy import PolicySetting, choose
from jigsaw_opt.scheduling.policy_at_work import InvariantError, check_shares
from jigsaw_opt.text import counted, named

_log = logging.getLogger(__name__)
_SECOND_US = 1_000_000
_SIMPLEST = "fifo"
"""The policy that decides in place of one that fails."""
Read = TypeVar("Read")
_BUDGET = optional(number(0, threading.TIMEOUT_MAX))


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
        Seed of policies that draw lots.
    round_us, restart_us
        Microseconds between decisions of a policy that decides again and again, and of a start on other GPUs.
    moves_per_hour
        How many jobs that run the policy may stop or move in any hour; None for as many as it likes.
    fall_back
        After so many steps in a row that were late or failed, ``fifo`` decides in place of the policy, until
        `PolicyBack`; 0 for never.
    journal
        Called with every event that is found right, and with every step, before either is taken in, as an object of
        JSON that `replay` takes. What it raises comes out, and then the event or step has not been.
    clock
        Returns the time in microseconds. It is read while the lock is held, and what is read is the time of events and
        steps, whatever they say: so threads never find that time goes back. A clock that is set back stands still.
        Without a clock, events and steps state the time.

    Raises
    ------
    UsageError
        There is no such policy, or it does not work with this cluster, performance, or live; the message names it. The
        cluster has power caps. A time or the seed is no such number.
    """

    @typed
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
        moves_per_hour: int | None = None,
        fall_back: int = 0,
        journal: Callable[[Plain], None] | None = None,
        clock: Callable[[], int] | None = None,
    ) -> None:
        cluster.require_no_capacities("a live scheduler keeps none")
        check_arguments(seed=(seed, whole(LARGEST)), round_us=(round_us, TIME), restart_us=(restart_us, TIME))
        most = whole(LARGEST)
        check_arguments(moves_per_hour=(moves_per_hour, optional(most)), fall_back=(fall_back, most))
        if performance is None:
            performance = _default_performance(models)
        self._chosen = self._policy, self._options = choose(policy)
        self._chosen_plain = [self._policy.name, dict(self._options)]
        self._moves_per_hour, self._fall_back = moves_per_hour, fall_back
        self._perform, self._journal, self._clock = performance, journal, clock
        given: Plain = {"seed": seed, "round_us": round_us, "restart_us": restart_us}
        given |= {"moves_per_hour": moves_per_hour, "fall_back": fall_back}
        setting = PolicySetting(cluster, performance(cluster), round_us, restart_us, seed)
        given |= {"cluster": cluster, "performance": (setting.performance.name, setting.performance.figures)}
        given["policy"] = self._policy.name, self._options
        digests = {name: hashlib.sha256(repr(value).encode()).hexdigest() for name, value in given.items()}
        self._inputs = " ".join(f"{name}:{digest[:16]}" for name, digest in sorted(digests.items()))
        self._lock = threading.Lock()
        self._state = ClusterState(setting, getattr(self._policy, "shares_gpus", True))
        if fall_back:
            LivePolicy(*choose(_SIMPLEST), setting)  # raises where it does not work here
        self._choose()
        self._told_news = News()
        self._at_beginning = True

    @property
    def cluster(self) -> Cluster:
        """The cluster, with the servers that were added."""
        return self._state.setting.cluster

    def handle(self, event: ClusterEvent) -> tuple[str, ...]:
        """Take an event in; nothing is decided before the next step.

        Returns
        -------
        tuple[str, ...]
            What of the event has no effect, in a sentence each: a weight that the policy does not read.

        Raises
        ------
        UsageError
            It cannot be: a value is of a wrong type or size, it names what there is not, the policy cannot run the
            job, or time goes back. It has every problem with its path; nothing has changed.
        """
        with self._lock:
            report = Report()
            try:
                entry = entry_of(event, report)
                if entry and self._clock is not None:
                    entry["time_us"] = self._read_clock(self._clock)
                return self._take_in(entry, report)
            except InvalidInputError as error:
                raise UsageError(*error.problems) from None

    def step(self, now_us: int | None = None, budget_s: float | None = None) -> PlanChange:
        """Ask the policy if there is something to decide, and tell what changes.

        Parameters
        ----------
        now_us
            The time, on the clock of the events; needed where the scheduler has no clock, and not read where it has.
        budget_s
            How long to wait for the policy, which then decides in a thread of its own; None for as long as it takes,
            in this thread. A decision that comes later is taken by a later step, as far as it still holds, and until
            then what runs goes on. The rest of a step is checking, and takes time in proportion to the jobs.

        Returns
        -------
        PlanChange
            What starts, stops and moves now.

        Raises
        ------
        UsageError
            Time goes back, or an argument is no such number.
        """
        shape = TIME if self._clock is None else optional(TIME)
        check_arguments(now_us=(now_us, shape), budget_s=(budget_s, _BUDGET))
        with self._lock:
            if self._clock is not None:
                now_us = self._read_clock(self._clock)
            assert now_us is not None
            return self._step(now_us, budget_s, None)

    def explain(self, job: str, seconds: float = 2.0) -> LiveExplanation:
        """Return why a job waits or runs as it does, and what would start it or make it faster; change nothing.

        It looks at copies of this scheduler alone, which meanwhile takes events and steps. What would start a job is
        tried on them, and takes a step of the policy each.

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
        check_arguments(job=(job, NAME), seconds=(seconds, number(0, LARGEST)))
        with self._lock:
            self._require_known(job)
        twin = self.copy()
        twin._require_known(job)  # another thread may have taken in its end
        return explained(twin._state, job, twin.copy, seconds)

    def when(self, job: str, past: Sequence[TraceJob] = (), samples: int = 200, seed: int = 0) -> StartPrediction:
        """Say when a waiting job will start, by simulating its queue forward; nothing changes.

        Parameters
        ----------
        job
            Name of a job that waits.
        past
            Jobs that ended before, in this order, each with its duration and when it was submitted, on the clock of the
            events. Run times and later arrivals are drawn from them. Without any, jobs last as they state.
        samples, seed
            How many simulations, and the seed of their draws.

        Raises
        ------
        UsageError
            There is no such job, it runs, it is on hold, put aside or beyond a quota, or a decision is late.
        """
        check_arguments(job=(job, NAME), samples=(samples, whole(LARGEST, 1)), seed=(seed, whole(LARGEST)))
        with self._lock:
            self._require_known(job)
            queue, setting = self._state.queue(self._asked.memory), self._state.setting
            index = self._state.numbers[job]
            why = kept_by(self._state, self._state.jobs[index], self._state.array_places())[1]
        if index not in queue.jobs or queue.jobs[index].share is not None:
            message = f"job {job!r} is not simulated: {why}" if why else f"job {job!r} runs"
            raise UsageError(message, code="contradiction", path="job")
        ended = PastJobs(tuple(past)) if past else None
        return predicted(setting, self._policy, self._options, queue, index, ended, samples, seed)

    def _require_known(self, job: str) -> None:
        """Refuse to tell of a job that there is not, or that the policy is deciding about."""
        if job not in self._state.numbers:
            raise UsageError(f"there is no job {job!r}", code="unknown-name", path="job")
        if self._asked.is_asked:
            raise UsageError(f"{self._asked.name} is still deciding about {job!r}", code="wrong-order", path="job")

    def state(self) -> Plain:
        """Return all that a scheduler with the same arguments needs to go on: values of JSON, ``jigsaw-live/3``.

        A decision that is late is waited for and taken first.
        """
        with self._lock:
            self._take_late()
            return encode_state(self._state, self._inputs, self._chosen_plain, self._asked.memory)

    def settle(self) -> None:
        """Wait for a decision that is late, if there is one, and take it, so that a copy takes events just as this."""
        with self._lock:
            self._take_late()

    def copy(self) -> LiveScheduler:
        """Return a scheduler in the same state, without journal and clock.

        A question that the policy is still deciding on is put again by the next step of the copy.
        """
        made = copy(self)
        made._lock, made._journal, made._clock = threading.Lock(), None, None
        with self._lock:
            made._state, memory = self._state.copy(), self._asked.memory
            if self._asked.is_asked:
                made._state.news, made._state.asked = self._state.news.after(self._told_news), True
            made._choose()
        made._asked.restore(memory, made._state.observation(), "policy")
        return made

    def read(self, what: Callable[[ClusterState], Read]) -> Read:
        """Return what a function makes of the state, which it must not change, while nothing else happens."""
        with self._lock:
            return what(self._state)

    def restore(self, state: Plain) -> tuple[str, ...]:
        """Go on, from the beginning, as the scheduler that gave `state`.

        With other arguments jobs, queues and what runs are kept. Jobs wait whose GPUs are gone or do not take them, and
        a policy of another name or with other options begins anew.

        Parameters
        ----------
        state
            What `state` gave, which is not to be trusted.

        Returns
        -------
        tuple[str, ...]
            What the state has lost, in a sentence each, where the arguments are others; empty where they are not.

        Raises
        ------
        InvalidInputError
            With every problem: it is no state, one that no scheduler has, or one with jobs that cannot run here. Then
            this scheduler must not be used.
        UsageError
            This scheduler is not at its beginning.
        """
        with self._lock:
            if not self._at_beginning:
                raise UsageError("a state is restored by a scheduler that has seen nothing yet", code="wrong-order")
            lost = restore_state(self._state, state, self._inputs, self._perform)
            self._at_beginning = False
            self._choose()
            if lost is None:
                self._asked.restore(state["policy"], self._state.observation(), "$.policy")
                return ()
            kept = state["inputs"].split()
            # States of before hold one digest, which tells no names.
            names = [one.partition(":")[0] for one in self._inputs.split() if kept[1:] and one not in kept]
            which = f": {named(names)}" if names else ""
            return (f"the arguments are others{which}", *lost, *self._begin_with(state))

    def _begin_with(self, state: Plain) -> Sequence[str]:
        """Have the chosen policy begin on a state of a scheduler with other arguments; what of it is lost."""
        report = Report()
        for k, job in enumerate(self._state.jobs.values()):
            if (reason := self._asked.refusal(job.active.job)) is not None:
                report.add(("$.jobs", k), reason, code="unsupported")
        report.raise_if_any()
        self._state.asked = True
        if state["chosen"] == self._chosen_plain and not state["fallen"]:
            self._asked.memory = state["policy"]
            if self._asked.begin_anew(self._state.observation()):
                return ()
        self._state.take_up()
        self._state.forget_all()
        return (f"{self._asked.name} begins anew",)

    def replay(self, entry: Plain) -> PlanChange | None:
        """Do again what a journal has noted; the change of a step.

        Raises
        ------
        InvalidInputError, UsageError
            An entry is none of a journal, or cannot follow those before.
        """
        with self._lock:
            kind = entry.get("event") if isinstance(entry, dict) else None
            if kind == "step":
                check_step(entry)
                return self._step(entry["time_us"], None, entry["late"])
            if kind == "taken":
                self._take_late()
                return None
            event = decode_event(entry)
            self._take_in(encode_event(event), Report())
            return None

    def _read_clock(self, clock: Callable[[], int]) -> int:
        """Return the time on a clock, or the latest time that is known where the clock was set back."""
        now_us = clock()
        check_arguments(clock=(now_us, TIME))
        return max(now_us, self._state.now_us)

    def _note(self, entry: Plain) -> None:
        if self._journal is not None:
            self._journal(entry)
        self._at_beginning = False

    def _take_in(self, entry: Plain, report: Report) -> tuple[str, ...]:
        """Take an event in, unless something is wrong in itself, which is reported, or here; what has no effect."""
        check_event(entry, self._state, self._asked.refusal, report)
        if report.problems:
            raise UsageError(*report.problems)
        event = event_of(entry)
        unread = tuple(without_effect(event, self._state, self._policy, self._options))
        setting = None
        if isinstance(event, ServerAdded):
            setting = enlarged_setting(event, self._state, self._perform, *self._chosen)
            self._take_late()  # it was made for the cluster without the server
        self._note(entry)
        if setting is not None:
            self._set_up(setting)
        if isinstance(event, PolicyBack) and self._state.fallen:
            self._let_decide(fallen=False)
        self._state.handle(event)
        return unread

    def _step(self, now_us: int, budget_s: float | None, late: bool | None) -> PlanChange:
        """Return a step; `late` tells, of one that is done again, whether its policy was late."""
        state = self._state
        before = state.advance(now_us)
        asking = not self._asked.is_asked and state.due
        try:
            if asking:
                self._asked.ask(state.observation(), budget_s)
            if late is None:
                late = self._asked.is_late(budget_s)
            self._note({"event": "step", "time_us": now_us, "late": late})
        except BaseException:  # Ctrl-C, or a journal that cannot be written: there was no step
            state.go_back(before)
            if asking:
                self._asked.withdraw()
                self._begin_anew()
            raise
        if asking:
            self._told_news, state.news, state.asked, state.wake_us = state.news, News(), False, None
        state.failed_steps += late
        failure = "" if late or not self._asked.is_asked else self._take()
        if 0 < self._fall_back <= state.failed_steps and not state.fallen:
            failed = f"{self._asked.name} was late or failed in {counted(state.failed_steps, 'step')} in a row"
            self._let_decide(fallen=True)
            failure, late = "; ".join(filter(None, (failure, f"{failed}: {self._asked.name} decides now"))), False
            _log.warning("%s", failure)
        return self._change(late, failure)

    def _change(self, late: bool, failure: str) -> PlanChange:
        state, now_us = self._state, self._state.now_us
        after = state.assignments()
        found = list(changes(state.told, after, state.reasons, f"policy {self._policy.name!r}"))
        found += [JobStop(job, old.gpus, "it is cancelled") for job, old in state.cancelled.items()]
        state.told, state.reasons, state.cancelled = dict(after), {}, {}
        # The policy's own time may have passed while all that it may decide on stays; then an event is awaited.
        wakes = (time_us for time_us in (state.wake_us, state.begin_us) if time_us is not None and time_us > now_us)
        return PlanChange(
            now_us,
            tuple(one for one in found if isinstance(one, JobStart)),
            tuple(one for one in found if isinstance(one, JobStop)),
            tuple(one for one in found if isinstance(one, JobMove)),
            now_us if state.asked and state.due else min(wakes, default=None),
            late,
            failure,
        )

    # The policy ---------------------------------------------------------------------------------------------

    def _take(self) -> str:
        """Carry out the decision that was asked for; what hinders that, and then everything stays."""
        state = self._state
        try:
            answer = self._asked.take()
            shares, without = state.remaining(answer.decision.shares)
            check_shares(state.setting, state.active, shares, state.shares, f"at {state.now_us} us", remains=True)
        except (PluginError, InvariantError) as error:
            _log.warning("%s gives no decision at %d us: %s", self._asked.name, state.now_us, error)
            state.failed_steps += 1
            self._take_back()
            return str(error)
        except BaseException:  # Ctrl-C in the thread of the policy
            self._take_back()
            raise
        moves = moved(state, shares, answer.decision.stopped)
        if stay := staying(state, moves, self._moves_per_hour):
            return self._refuse(stay)
        state.moves_us += [state.now_us] * len(moves) if self._moves_per_hour else []
        state.failed_steps = 0
        self._asked.accept(answer)
        failures = state.put_aside(answer.aside)
        state.apply(shares, without, dict.fromkeys(answer.decision.stopped, f"{self._asked.name} stops it"))
        if answer.decision.wake_us is not None:
            state.wake_us = self._round_up(min(LARGEST, max(answer.decision.wake_us, state.now_us + 1)))
        return "; ".join(failures)

    def _refuse(self, stay: Mapping[int, int]) -> str:
        """Refuse a decision that stops or moves jobs which have to stay until a time; say so.

        The policy is asked again at once, without them: as every refusal leaves it fewer jobs, one is the last.
        """
        state = self._state
        self._take_back()
        for index, until_us in stay.items():
            state.jobs[index].stays_until_us = until_us
        state.keep_apart()
        state.asked = True
        names = named([state.jobs[index].active.job.name for index in stay])
        return f"{self._asked.name} would stop or move what has to stay, and is asked again without it: {names}"

    def _take_late(self) -> None:
        """Wait for a decision that is late, if there is one, note that it is taken, and take it."""
        if self._asked.is_asked:
            self._asked.is_late(None)
            self._note({"event": "taken"})
            self._take()

    def _take_back(self) -> None:
        """Have a policy that failed forget the question, and ask again after a round."""
        state = self._state
        state.news, state.asked = state.news.after(self._told_news), False
        state.wake_us = self._round_up(state.now_us + 1)
        self._begin_anew()

    def _begin_anew(self) -> None:
        """Start the policy with what it remembered, or, where that does not fit, with all jobs waiting."""
        if not self._asked.begin_anew(self._state.observation()):
            _log.warning("%s has forgotten what it knew: it begins anew", self._asked.name)
            self._state.forget_all()

    def _choose(self) -> None:
        """Have the policy begin that is to decide by the state."""
        self._policy, self._options = choose(_SIMPLEST) if self._state.fallen else self._chosen
        self._asked = LivePolicy(self._policy, self._options, self._state.setting)

    def _let_decide(self, fallen: bool) -> None:
        """Have the simplest policy decide in place of the chosen one, or this again; jobs that run go on."""
        self._asked.withdraw()
        self._state.fallen, self._state.failed_steps = fallen, 0
        self._choose()
        self._state.take_up()
        self._state.forget_all()

    def _set_up(self, setting: PolicySetting) -> None:
        """Go on with another cluster, and with the policy on it with what it remembers."""
        self._state.setting = setting
        self._asked.setting = setting
        self._begin_anew()

    def _round_up(self, time_us: int) -> int:
        step = self._state.setting.round_us or _SECOND_US
        return -(-time_us // step) * step


def _default_performance(models: Mapping[str, Model] | None) -> Callable[[Cluster], Performance]:
    if models is None:
        return lambda cluster: Seconds()
    known = dict(models)
    return lambda cluster: Profiled(cluster, known)

"""Replays a workload on a cluster under a policy, from event to event.

Work done and times are integers. Ends are exact to the microsecond where `rate_of` rounds no speed, as of jobs that
state durations without speeds of types of GPU; elsewhere they are as exact as the speed.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from jigsaw_opt.errors import JigsawError, UsageError, missing_option
from jigsaw_opt.problem.rules.report import Place, Report
from jigsaw_opt.scheduling.allocation import Decision, Share
from jigsaw_opt.scheduling.plain import Plain
from jigsaw_opt.scheduling.policy import JobState, Observation
from jigsaw_opt.scheduling.policy_at_work import InvariantError, PolicyAtWork, check_shares
from jigsaw_opt.simulation.engine.arrivals import Arrivals
from jigsaw_opt.simulation.engine.event_log import EventLog, JobStatistics, Trigger
from jigsaw_opt.simulation.engine.failing import Failing
from jigsaw_opt.simulation.engine.records import SimulationOutcome
from jigsaw_opt.simulation.engine.restoring import check_state, held_gpus
from jigsaw_opt.simulation.engine.running import Running, RunningShares
from jigsaw_opt.simulation.engine.setting import Setting
from jigsaw_opt.text import counted

_IDLE_ROUNDS = 1000
_SOONEST_US = 1_000_000
"""Without rounds, a policy that asks to be woken at once is woken so much later."""


class Simulation:
    """A simulation under way. Between two calls of `run` its state can be put aside.

    Events are arrivals, ends of jobs, changes of speed, and decisions. The policy decides at the first multiple of the
    round after something happened, or when it asked to be woken, so rounds in which nothing changes cost nothing.
    A job that ends within a round ends at the microsecond that its speed gives; those that shared its GPUs go on at
    their new speed.

    `setting`: what is simulated, and who decides.
    """

    def __init__(self, setting: Setting) -> None:
        if setting.policy is None:
            raise missing_option("policy", "the setting has no policy; as in setting.under('fifo')")
        self.setting = setting
        self.now_us = 0
        self._event_log = EventLog()
        self._policy = PolicyAtWork(setting.policy, setting.options, setting.for_policy)
        reason = self._policy.refusal(setting.workload.jobs)
        if reason is not None:
            raise UsageError(reason, code="unsupported")
        self._active: dict[int, JobState] = {}
        self._statistics: dict[int, JobStatistics] = {}
        self._under_way = RunningShares(setting)
        self._failing = Failing(setting)
        self._trigger = Trigger()
        self._arrivals = Arrivals(setting.workload.jobs)
        self._idle_rounds = 0

    @property
    def outcome(self) -> SimulationOutcome:
        """The records so far."""
        return self._event_log.outcome

    @property
    def ended(self) -> int:
        """How many jobs have ended."""
        return len(self.outcome.jobs)

    @property
    def finished(self) -> bool:
        """Whether every job of the workload has ended."""
        return self.ended == len(self.setting.workload.jobs)

    def run(self, stop: Callable[[], bool] = lambda: False, until_us: int | None = None) -> None:
        """Run until every job has ended, a function says so, or the next event is after a time."""
        while not self.finished and not self.outcome.hindrance and not stop():
            next_us = self._next_us()
            if next_us is None:
                self._leave_waiting()
                break
            if until_us is not None and next_us > until_us:
                self.now_us = max(self.now_us, until_us)
                break
            self.now_us = next_us
            # Of what falls on one time, ends come first and the decision last: so the policy sees all of it.
            self._end_or_change_speed()
            self._fail_or_repair()
            self._admit()
            if self._decision_us() == self.now_us:
                self._decide()

    def close(self) -> SimulationOutcome:
        """Return the records, with those of the jobs that have not ended; the simulation cannot go on after this."""
        for running in self._under_way.running.values():
            running.settle(self.now_us)
            self._event_log.stint(running, self.now_us)
        for index in (*self._active, *self._arrivals.held):
            self._note_job(index, None)
        self._failing.check(self._event_log.held.at(self.now_us), self.outcome.losses, self.now_us)
        self.outcome.jobs.sort(key=lambda record: record.index)
        self.outcome.end_us = self.now_us
        partial, jobs = self._under_way.partial, self.setting.workload.jobs
        self.outcome.partial_jobs = tuple(sorted(partial))
        self.outcome.raw_models = tuple(dict.fromkeys(jobs[k].model for k, is_raw in partial.items() if is_raw))
        return self.outcome

    # Putting aside ------------------------------------------------------------------------------------------

    @property
    def resumable(self) -> bool:
        """Whether the policy can be put aside, and with it the simulation."""
        return self._policy.resumable

    def state(self) -> Plain:
        """Return the state as plain values, without anything that follows from the setting."""
        held = self._arrivals.held
        return {
            "now_us": self.now_us,
            "active": [active.plain() for active in self._active.values()],
            "lives": [self._statistics[index].plain() for index in self._active],
            "shares": [share.plain() for share in self._under_way.shares],
            "running": [running.plain() for running in self._under_way.running.values()],
            "trigger": self._trigger.plain(),
            "books": self._event_log.plain(),
            "idle_rounds": self._idle_rounds,
            "partial": [{"job": index, "is_raw": is_raw} for index, is_raw in self._under_way.partial.items()],
            "scheduler": self._policy.state(),
            **({"held": [[k, self._statistics[k].crowd_before] for k in held]} if self._arrivals.constrained else {}),
            **self._failing.plain(self._under_way, self._event_log),
        }

    def restore(self, state: Plain, place: Place = "$") -> None:
        """Go on, from the beginning, as the simulation of the same setting and policy that gave `state`."""
        check_state(state, self.setting, _IDLE_ROUNDS, place)
        report = Report()
        self._restore_jobs(state, (place, "active"), report)
        try:
            self._restore_shares(state)
        except InvariantError as error:
            report.add((place, "shares"), str(error), code="contradiction")
        report.raise_if_any()
        self._failing.restore(state, self._under_way, self._event_log, self._active, (place, report))
        report.raise_if_any()
        if min(self._own_times(), default=self.now_us) < self.now_us:
            report.add(place, "something should have happened before this time", code="contradiction")
        report.raise_if_any()
        self._policy.restore(state["scheduler"], self._observation(self._trigger), (place, "scheduler"))

    def _restore_jobs(self, state: Plain, place: Place, report: Report) -> None:
        jobs, performance = self.setting.workload.jobs, self.setting.performance
        self.now_us, self._trigger = state["now_us"], Trigger.restored(state["trigger"])
        for tree, statistics in zip(state["active"], state["lives"], strict=True):
            job = jobs[tree["job"]]
            active = self._active[tree["job"]] = JobState.restored(tree, job=job, work=performance.work(job))
            self._statistics[active.index] = JobStatistics.restored(statistics, done=active.done)
        self._event_log = EventLog.of_snapshot(state["books"], self.setting, len(self._active), held_gpus(state))
        self._idle_rounds, held = state["idle_rounds"], state.get("held", ())
        self._statistics.update((index, JobStatistics(crowd_before)) for index, crowd_before in held)
        ended = (record.index for record in self.outcome.jobs)
        wrong = self._arrivals.restore(self._active, ended, (index for index, _ in held))
        if wrong is not None:
            report.add(place, wrong, code="contradiction")
        report.raise_if_any()

    def _restore_shares(self, state: Plain) -> None:
        """Restore what runs, with its speeds: they hold until the engine asks for others."""
        shares = tuple(map(Share.restored, state["shares"]))
        check_shares(self.setting, self._active, shares, (), f"at {self.now_us} us", remains=True)
        for share in shares:
            for index in share.jobs:
                self._active[index].share = share
        for tree in state["running"]:
            active = self._active[tree["job"]]
            times = tree["start_us"], tree["settled_us"]
            self._under_way.running[active.index] = Running.begun(active, self.setting, active.done, *times)
        self._under_way.partial = {one["job"]: one["is_raw"] for one in state["partial"]}
        self._under_way.begin(shares, self.now_us)

    # Time ---------------------------------------------------------------------------------------------------

    def _next_us(self) -> int | None:
        """Return the time of the next event; None where nothing will happen any more."""
        times = self._own_times()
        if (submit_us := self._arrivals.next_us) is not None:
            times.append(submit_us)
        return max(self.now_us, min(times)) if times else None

    def _own_times(self) -> list[int]:
        """Return times of the next end or change of speed, decision, and failure or repair, which never lie behind."""
        times = (self._under_way.next_us(), self._decision_us(), self._failing.next_us)
        return [time_us for time_us in times if time_us is not None]

    def _decision_us(self) -> int | None:
        """Return when the policy is asked next, or None where nothing has happened, or no GPU is up."""
        if len(self._failing.down) == self.setting.gpu_count:
            return None
        if self._trigger.asked:
            return self._round_up(self.now_us)
        if self._trigger.wake_us is not None and self._active:
            return self._round_up(self._trigger.wake_us)
        return None

    def _round_up(self, time_us: int) -> int:
        step = self.setting.round_us
        return time_us if step == 0 else -(-time_us // step) * step

    def _leave_waiting(self) -> None:
        """End with jobs that wait for ever: for servers or links, if these keep one from running, or by failing."""
        hindrances = (self._failing.hindrance(active.job) for active in self._active.values())
        self.outcome.hindrance = next(filter(None, hindrances), "")
        if self.outcome.hindrance:
            return
        waiting = [active.job.name for active in self._active.values()]
        raise JigsawError(
            f"policy {self._policy.name!r} leaves {counted(len(waiting), 'job')} waiting for ever,"
            f" {waiting[0]!r} for one"
        )

    # Arrivals and ends --------------------------------------------------------------------------------------

    def _admit(self) -> None:
        """Take in the jobs that are submitted by now and wait for no others."""
        for index in self._arrivals.submit(self.now_us):
            self._statistics[index] = JobStatistics(self._event_log.crowd.at(self.now_us))
        for index in self._arrivals.arrive():
            self._active[index] = self._waiting(index)
            self._event_log.crowd.set(len(self._active), self.now_us)
            self._trigger.arrived.append(index)
            self._trigger.asked = True

    def _waiting(self, index: int) -> JobState:
        """Return a job as it is before it has run."""
        job = self.setting.workload.jobs[index]
        return JobState(index, job, self.setting.performance.work(job))

    def _end_or_change_speed(self) -> None:
        """Deal with the jobs that end now or whose speed changes now."""
        changed: set[Share] = set()
        freed = False
        for index in self._under_way.due(self.now_us):
            running = self._under_way.running[index]
            running.settle(self.now_us)
            share = running.active.share
            assert share is not None
            # The share may have been added by a job of it that was dealt with before; the share that is left takes its
            # place below.
            changed.discard(share)
            if running.active.left == 0:
                share, freed = self._end(running, share), True
            if share.jobs:
                changed.add(share)
        if changed or freed:  # what an ended job leaves on the links speeds others up
            self._under_way.set_speeds(self.now_us, changed)

    def _end(self, running: Running, share: Share) -> Share:
        """Take an ended job out of its share and give what is left of the share."""
        active = running.active
        rest = share.without(active.index)
        for index in rest.jobs:
            # Partners change their speed now, so that what they have done so far counts at the old one.
            self._under_way.running[index].settle(self.now_us)
        factor = self._under_way.shares.pop(share)
        if rest.jobs:
            self._under_way.shares[rest] = factor
        for index in rest.jobs:
            self._active[index].share = rest
        self._event_log.stint(running, self.now_us)
        self._note_job(active.index, self.now_us)
        del self._under_way.running[active.index], self._active[active.index], self._statistics[active.index]
        self._event_log.hold(self._under_way.shares, self.setting.server_of, self.now_us)
        self._event_log.crowd.set(len(self._active), self.now_us)
        self._arrivals.end(active.index)
        self._trigger.ended.append(active.index)
        self._trigger.asked = True
        return rest

    def _note_job(self, index: int, finish_us: int | None) -> None:
        active = self._active[index] if index in self._active else self._waiting(index)
        alone_us = self.setting.performance.alone_us(active.job)
        self._event_log.job(active, self._statistics[index], alone_us, self.now_us, finish_us)

    # Failures -----------------------------------------------------------------------------------------------

    def _fail_or_repair(self) -> None:
        """Stop the jobs that lost a server or their routes, and have the policy asked about what is left or back."""
        before = self._failing.down, self._failing.part_of
        if not self._failing.advance(self.now_us):
            return
        self._under_way.dead = self._failing.dead
        for share in [share for share in self._under_way.shares if self._failing.stops(share.gpus)]:
            for index in share.jobs:
                running = self._under_way.running[index]
                running.settle(self.now_us)
                self._failing.stop(running, self.outcome.losses)
                self._trigger.stopped.append(index)
                self._wait(running)
            del self._under_way.shares[share]
        self._event_log.hold(self._under_way.shares, self.setting.server_of, self.now_us)
        self._under_way.set_speeds(self.now_us, ())
        self._trigger.asked |= (self._failing.down, self._failing.part_of) != before

    # Decisions ----------------------------------------------------------------------------------------------

    def _decide(self) -> None:
        """Ask the policy, check what it says, and carry it out."""
        if not self._active:  # who ended is told to the policy when there is something to decide
            self._trigger.asked, self._trigger.wake_us = False, None
            return
        trigger, self._trigger = self._trigger, Trigger()
        # The policy sees iterations done up to this moment.
        for running in self._under_way.running.values():
            running.settle(self.now_us)
        observation = self._observation(trigger)
        began = time.process_time_ns()
        decision = self._policy.decide(observation)
        policy_us = (time.process_time_ns() - began) // 1000
        when = f"policy {self._policy.name!r}, round {len(self.outcome.rounds)} at {self.now_us} us"
        # Checked before anything is carried out: a rule that is broken is broken by the policy.
        self._policy.check(decision.shares, observation, when)
        if decision.wake_us is not None:
            soonest_us = self.now_us + (1 if self.setting.round_us else _SOONEST_US)
            self._trigger.wake_us = max(decision.wake_us, soonest_us)
        self._watch_idleness(decision)
        moved = self._apply(decision.shares, frozenset(decision.stopped))
        self._event_log.round(self.now_us, len(self._active), len(self._under_way.running), moved, policy_us)

    def _observation(self, trigger: Trigger) -> Observation:
        shares, arrived, ended = tuple(self._under_way.shares), tuple(trigger.arrived), tuple(trigger.ended)
        stopped, failing = tuple(trigger.stopped), self._failing
        return Observation(self.now_us, self._active, shares, arrived, ended, stopped, failing.down, failing.dead)

    def _apply(self, shares: tuple[Share, ...], stopped: frozenset[int]) -> int:
        """Make `shares` what runs; returns how many jobs start, on other GPUs than before or after a stop."""
        before, wanted = self._under_way.shares, {share for share in shares if stopped.isdisjoint(share.jobs)}
        # A stopped job starts anew even in the same share.
        fresh = [share for share in shares if share not in before or share not in wanted]
        old = {index: self._under_way.running[index] for share in before if share not in wanted for index in share.jobs}
        self._under_way.shares = {share: before.get(share, 1.0) for share in shares}
        moved = 0
        for share in fresh:
            for index in share.jobs:
                moved += self._start(index, share, old.pop(index, None), index in stopped)
        for running in old.values():
            self._wait(running)
        self._event_log.hold(self._under_way.shares, self.setting.server_of, self.now_us)
        self._under_way.set_speeds(self.now_us, fresh)
        return moved

    def _wait(self, running: Running) -> None:
        """Take a job from its GPUs."""
        active = running.active
        self._event_log.stint(running, self.now_us)
        active.share = None
        self._statistics[active.index].done = running.done
        del self._under_way.running[active.index]

    def _start(self, index: int, share: Share, before: Running | None, stopped: bool) -> bool:
        """Put a job on the GPUs of a share; returns whether it starts: they are others than before, or it stopped."""
        active = self._active[index]
        # On the same GPUs with other partners or depths the job goes on: that is no restart.
        if before is not None and not stopped and active.share is not None and active.share.gpus == share.gpus:
            active.share = share
            return False
        if before is not None:
            self._event_log.stint(before, self.now_us)
        active.share = share
        active.starts += 1
        statistics = self._statistics[index]
        statistics.start_us = self.now_us if statistics.start_us is None else statistics.start_us
        done = statistics.done if before is None else before.done
        self._under_way.running[index] = Running.begun(active, self.setting, done, self.now_us, self.now_us)
        return True

    def _watch_idleness(self, decision: Decision) -> None:
        """End where a policy wakes itself for ever without running anything."""
        alone = self._arrivals.next_us is None
        self._idle_rounds = self._idle_rounds + 1 if alone and not decision.shares else 0
        if self._idle_rounds <= _IDLE_ROUNDS:
            return
        awaited = (self._failing.awaits_repair(active.job) for active in self._active.values())
        if self._failing.next_us is None or not any(awaited):
            self._leave_waiting()

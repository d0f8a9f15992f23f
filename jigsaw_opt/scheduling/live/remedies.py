"""What would start a job of a live scheduler that waits, tried on copies of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol

from jigsaw_opt.errors import PluginError
from jigsaw_opt.problem.workload import LARGEST
from jigsaw_opt.scheduling.allocation import Share
from jigsaw_opt.scheduling.live.cluster_state import ClusterState
from jigsaw_opt.scheduling.live.events import (
    ClusterEvent,
    GpuBack,
    JobCancelled,
    JobFinished,
    JobReleased,
    LinkUp,
    PriorityChanged,
    QuotaChanged,
    ServerBack,
)
from jigsaw_opt.scheduling.live.job import LiveJob
from jigsaw_opt.scheduling.live.plan_change import PlanChange
from jigsaw_opt.scheduling.live.policy import failures_of
from jigsaw_opt.text import counted

_MOST_OF_A_KIND = 3
"""So many remedies of a kind are looked for."""
_MOST_NAMES = 4
"""So many jobs are named, and others counted."""
_IS_BACK = " is back"
_IF = ("hold", "quota", "order", "priority")
"""Kinds that somebody has to want; the others come of themselves."""


class Twin(Protocol):
    """A scheduler with the same state."""

    def handle(self, event: ClusterEvent) -> tuple[str, ...]:
        """Take an event in."""

    def step(self, now_us: int) -> PlanChange:
        """Ask the policy."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """A remedy that would start a job that waits; it was tried on a copy of the scheduler.

    `kind`: ``undecided`` (the next step does it), ``hold``, ``failure``, ``link``, ``quota``, ``after`` (it waits for
    other jobs), ``array`` (its array has no place), ``order`` (the policy puts other jobs first), ``gpus`` (others hold
    them), ``round`` (the policy decides again by itself) or ``priority``. `text`: the same in words, as a clause.
    `expected_us`: when it is expected by the speed of the jobs; None where nobody knows. `stopped`: jobs that would
    lose their GPUs.
    """

    kind: str
    events: tuple[ClusterEvent, ...]
    text: str
    expected_us: int | None = None
    stopped: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """What happens if it does, as in ``It starts once link l0 is back; it then stops job b.``."""
        then = (
            f"; it then stops {'jobs' if self.stopped[1:] else 'job'} {_listed(self.stopped)}" if self.stopped else ""
        )
        return f"It starts {'if' if self.kind in _IF else 'once'} {self.text}{then}."


class _RemedyTrials:
    """Tries what might start a job, on twins.

    `state, job`: the scheduler's, and a job of it that waits. `twin`: makes a scheduler with the same state. `seconds`:
    after so many nothing is tried any more.
    """

    def __init__(self, state: ClusterState, job: LiveJob, twin: Callable[[], Twin], seconds: float) -> None:
        self._state, self._job, self._twin = state, job, twin
        self._end = time.monotonic() + seconds
        self.found: list[Remedy] = []

    @property
    def is_over(self) -> bool:
        """Whether there is no time left."""
        return time.monotonic() >= self._end

    def starts(self, thought: Remedy) -> bool:
        """Return whether it starts the job; then it is noted."""
        trial, name = self._twin(), self._job.active.job.name
        for event in thought.events:
            trial.handle(event)
        is_later = thought.kind == "round"
        change = trial.step((thought.expected_us if is_later else None) or self._state.now_us)
        if all(start.to.job != name for start in change.starts):
            return False
        told = {getattr(event, "job", None) for event in thought.events}
        lost = (stop.job for stop in change.stops if stop.job in self._state.numbers and stop.job not in told)
        self.found.append(replace(thought, stopped=tuple(lost)))
        return True


def tried(state: ClusterState, job: LiveJob, twin: Callable[[], Twin], seconds: float) -> tuple[list[Remedy], bool]:
    """Return the remedies that start a job on a copy of the scheduler, likeliest first, and whether all were tried."""
    trials = _RemedyTrials(state, job, twin, seconds)
    if trials.starts(Remedy("undecided", (), "the next step starts it", state.now_us)):
        return trials.found, True
    repairs, leaving = _repairs(state, job), _leaving(state, job)
    ends = [one.expected_us for one in leaving if one.kind in ("gpus", "array") and one.expected_us is not None]
    if state.wake_us is not None and state.now_us < state.wake_us < min(ends, default=LARGEST):
        text = f"the policy decides again by itself, {soon(state.wake_us - state.now_us)}"
        trials.starts(Remedy("round", (), text, state.wake_us))
    for thought in (*repairs, *leaving, _urgent(state, job)):
        if trials.is_over:
            return trials.found, False
        if sum(one.kind == thought.kind for one in trials.found) < _MOST_OF_A_KIND:
            trials.starts(thought)
    if not trials.found:
        _try_together(trials, repairs, sorted(leaving, key=lambda remedy: remedy.kind == "order"))
    return trials.found, not trials.is_over


def _try_together(trials: _RemedyTrials, repairs: Sequence[Remedy], leaving: Sequence[Remedy]) -> None:
    """Try the return of all that is out, with as few jobs leaving as it takes, those that end first before others."""
    first = leaving[0].kind if leaving else ""
    kind = repairs[0].kind if repairs else first if first in ("after", "array") else "gpus"
    # One repair alone has been tried before; several together have not.
    least, most = 0 if len(repairs) > 1 else 1, len(leaving)

    def all_of(count: int) -> Remedy:
        parts = [*repairs, *leaving[:count]]
        times = [part.expected_us for part in parts]
        expected_us = None if None in times else max(filter(None, times), default=None)
        events = tuple(event for part in parts for event in part.events)
        return Remedy(kind, events, _in_words(repairs, leaving[:count]), expected_us)

    best = None
    while least <= most and not trials.is_over:
        # The most first: if that does not do it, nothing will.
        count = (least + most) // 2 if best is not None else most
        if trials.starts(all_of(count)):
            best, most = trials.found.pop(), count - 1
        elif best is None:
            return
        else:
            least = count + 1
    if best is not None:
        trials.found.append(best)


def _in_words(repairs: Sequence[Remedy], leaving: Sequence[Remedy]) -> str:
    """Return one clause that says that all of it has happened, as in ``link l0 is back and jobs a and d have left``."""
    back = [part.text.removesuffix(_IS_BACK) for part in repairs if part.text.endswith(_IS_BACK)]
    clauses = [part.text for part in repairs if not part.text.endswith(_IS_BACK)]
    if back:
        clauses.append(f"{_listed(back)} {'are' if back[1:] else 'is'} back")
    names = [str(getattr(part.events[0], "job", "")) for part in leaving]
    more = len(names) - _MOST_NAMES
    if names:
        told = [*names[:_MOST_NAMES], f"{more} others"] if more > 1 else names
        clauses.append(f"{'jobs' if names[1:] else 'job'} {_listed(told)} {'have' if names[1:] else 'has'} left")
    return _listed(clauses)


def _listed(words: Sequence[str]) -> str:
    """Return words in a row, as in ``a, b and c``."""
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def _repairs(state: ClusterState, job: LiveJob) -> list[Remedy]:
    """Return remedies by repair: a release, a larger quota, and servers, GPUs and links that come back."""
    now, cluster = state.now_us, state.setting.cluster
    servers = [cluster.servers[k].name for k in sorted(state.lost | state.drained | state.cordoned)]
    gpus = [cluster.gpus.names[k] for k in sorted(state.failed)]
    links = [cluster.links[k].name for k in sorted(state.dead)]
    found = [Remedy("failure", (ServerBack(now, name),), f"server {name}{_IS_BACK}") for name in servers]
    found += [Remedy("failure", (GpuBack(now, name),), f"GPU {name}{_IS_BACK}") for name in gpus]
    found += [Remedy("link", (LinkUp(now, name),), f"link {name}{_IS_BACK}") for name in links]
    more, quota = state.used(job.queue) + job.active.job.gpus, state.quotas.get(job.queue)
    if job.held and quota is not None and more > quota:
        text = f"queue {job.queue!r} has a quota of {counted(more, 'GPU')}, not {quota}"
        found.insert(0, Remedy("quota", (QuotaChanged(now, job.queue, more),), text))
    if job.on_hold:
        found.insert(0, Remedy("hold", (JobReleased(now, job.active.job.name),), "it is released"))
    return found


def _leaving(state: ClusterState, job: LiveJob) -> list[Remedy]:
    """Return cancellations of jobs that wait and ends of jobs that run, by the time at which these are expected."""
    now, before, found, running = state.now_us, list[Remedy](), list[Remedy](), list[Remedy]()
    own = job.active.job
    array_is_full = job.held and not state.array_places().has_room(own)
    for other in state.jobs.values():
        name = other.active.job.name
        if other is job:
            continue
        if other.active.index in job.waits_for:
            ends = None if other.active.share is None else end_us(state, other)
            before.append(Remedy("after", (JobFinished(now, name),), f"job {name} ends", ends))
        elif other.active.share is None:
            text = f"job {name}, which the policy puts before it, is cancelled"
            found.append(Remedy("order", (JobCancelled(now, name),), text))
        else:
            ends = end_us(state, other)
            text = f"job {name} ends" if ends is None else f"job {name} ends, {soon(ends - now)}"
            kind = "array" if array_is_full and other.active.job.array == own.array else "gpus"
            running.append(Remedy(kind, (JobFinished(now, name),), text, ends))
    running.sort(key=lambda remedy: remedy.expected_us or 0)
    tasks, others = ([one for one in running if (one.kind == "array") == wanted] for wanted in (True, False))
    return [*before, *tasks, *found, *others]


def _urgent(state: ClusterState, job: LiveJob) -> Remedy:
    weight = min(LARGEST, 1 + max(other.active.job.weight for other in state.jobs.values()))
    event = PriorityChanged(state.now_us, job.active.job.name, weight, foreground=True)
    return Remedy("priority", (event,), f"it goes to the foreground with weight {weight}")


def end_us(state: ClusterState, job: LiveJob) -> int | None:
    """Return when a job that runs ends by its measured speed, or by that of the performance model, if it tells one.

    Time in microseconds; None where no speed is known.
    """
    share = job.active.share
    assert share is not None
    speed = job.pace or speed_in(state, share, job)
    return state.now_us - (-job.active.left // speed) if speed else None


def soon(time_us: int) -> str:
    """Return when something happens, as in ``in about 17 min``."""
    return f"in about {span(time_us)}" if round(time_us / 1e6) else "in less than a second"


def span(time_us: int) -> str:
    """Return a time in words, as in ``17 min``."""
    seconds = time_us / 1e6
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def speed_in(state: ClusterState, share: Share, job: LiveJob) -> int | None:
    """Return units of work a microsecond of a job in a share; None where the performance model tells none.

    `share`: the share, with the job among its jobs.
    """
    members, performance = [state.jobs[index].active for index in share.jobs], state.setting.performance
    jobs, done = [member.job for member in members], [member.done for member in members]
    with suppress(PluginError), failures_of(performance.name):
        return performance.speeds(share, jobs, done)[share.jobs.index(job.active.index)].rate or None
    return None

"""Why a job of a live scheduler waits, or runs as it does, and what would change that.

What would start a job is not guessed: another scheduler with the same state is told that it has happened, and steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field

from jigsaw_opt.errors import PluginError
from jigsaw_opt.problem.depth import FullDepth
from jigsaw_opt.scheduling.allocation import Share
from jigsaw_opt.scheduling.dependencies import ArrayPlaces
from jigsaw_opt.scheduling.live.cluster_state import ClusterState
from jigsaw_opt.scheduling.live.events import encode_event
from jigsaw_opt.scheduling.live.job import LiveJob
from jigsaw_opt.scheduling.live.plan_change import JobAssignment
from jigsaw_opt.scheduling.live.policy import failures_of
from jigsaw_opt.scheduling.live.remedies import Remedy, Twin, end_us, soon, speed_in, tried
from jigsaw_opt.scheduling.plain import Plain, keyed
from jigsaw_opt.text import agreeing, counted

_MOST_NAMES = 4
"""So many jobs are named, and others counted."""
_WORTH_TELLING = 1.005
"""What changes a speed by less is left out."""


@dataclass(frozen=True, slots=True)
class Influence:
    """An influence that makes a job that runs slower or faster.

    `factor`: how many times as fast the job would be without it, by the performance model.
    """

    kind: str
    text: str
    factor: float


@dataclass(frozen=True, slots=True)
class LiveExplanation:
    """Why a job waits, or runs as it does.

    `assignment`: what it runs on; None while it waits. `reason`: in whole sentences, of which the first goes on from
    the job's name. `kind`: kind of the first remedy; ``link`` where enough GPUs are free, and no route joins so many of
    them; ``memory`` where none of them takes it; ``aside`` where the policy failed with it; ``unknown`` where nothing
    that was tried would start it; empty for a job that runs. `remedies`: what would start it, the likeliest reasons
    first. `influences`: what makes it slower or faster where it runs. `cluster`: what is in use, out of use, and waited
    for, in a sentence. `complete`: whether there was time to try everything.
    """

    job: str
    assignment: JobAssignment | None
    reason: str
    kind: str
    cluster: str
    remedies: tuple[Remedy, ...] = field(default=())
    influences: tuple[Influence, ...] = field(default=())
    complete: bool = True

    def plain(self) -> Plain:
        """Return the explanation as an object of JSON."""
        remedies = [
            keyed(one, "kind", "events", "text", "expected_us")
            | {"events": list(map(encode_event, one.events)), "stopped": list(one.stopped)}
            for one in self.remedies
        ]
        influences = [asdict(one) | {"factor": round(one.factor, 4)} for one in self.influences]
        return {
            "job": self.job,
            "assignment": None if self.assignment is None else self.assignment.plain(),
            **keyed(self, "kind", "reason"),
            "remedies": remedies,
            "influences": influences,
            **keyed(self, "cluster", "complete"),
        }

    def __str__(self) -> str:
        lines = [f"{self.job}: {self.reason}"]
        lines += [f"  {one.sentence}" for one in self.remedies[1:]]
        lines += [f"  {one.text}" for one in self.influences]
        return "\n".join([*lines, f"  {self.cluster}"])


def explained(state: ClusterState, name: str, twin: Callable[[], Twin], seconds: float) -> LiveExplanation:
    """Return why a job waits or runs as it does."""
    job = state.jobs[state.numbers[name]]
    if job.active.share is not None:
        return _running(state, job)
    found, complete = tried(state, job, twin, seconds) if not job.aside else ([], True)
    kind, reason = _reason(state, job, _free(state), found)
    return LiveExplanation(name, None, reason, kind, _cluster(state), tuple(found), complete=complete)


def kept_by(state: ClusterState, job: LiveJob, places: ArrayPlaces) -> tuple[str, str]:
    """Return what keeps a job that waits from the policy, as a kind and as a sentence; two empty texts for nothing.

    `places`: those of the arrays of the state.
    """
    own = job.active.job
    if job.active.share is not None or not job.held:
        return "", ""
    if job.aside:
        return "aside", f"It is put aside: {job.aside}."
    if job.on_hold:
        return "hold", "It is on hold until it is released."
    if own.submit_us > state.now_us:
        return "begin", f"It begins at its time of submission, {soon(own.submit_us - state.now_us)}."
    if waits_for := [state.jobs[index].active.job.name for index in job.waits_for if index in state.jobs]:
        named, others = ", ".join(waits_for[:_MOST_NAMES]), len(waits_for) - _MOST_NAMES
        more = f" and {counted(others, 'other job')}" if others > 0 else ""
        return "after", f"It waits for the end of {named}{more}."
    if not places.has_room(own):
        return "array", f"It waits for a place in array {own.array}, which has {own.array_limit}."
    return "quota", f"It waits for {counted(own.fewest, 'GPU')} within the quota of queue {job.queue!r}."


# A job that waits --------------------------------------------------------------------------------------------


def _reason(state: ClusterState, job: LiveJob, free: Sequence[int], found: Sequence[Remedy]) -> tuple[str, str]:
    own = job.active.job
    if job.aside:
        return "aside", f"it is put aside until a server, GPU or link comes or its priority changes: {job.aside}."
    if own.submit_us > state.now_us:
        return "begin", f"it is not to begin before its time of submission, {soon(own.submit_us - state.now_us)}."
    refusal = _refusal(state, job, free) if len(free) >= own.fewest else None
    kind, (kept, why) = found[0].kind if found else "unknown", kept_by(state, job, state.array_places())
    needs = f"it waits for {counted(own.fewest, 'GPU')}, and {counted(len(free), 'GPU')} {agreeing(len(free))} free"
    if kept == "array":
        kind, needs = kept, why[:1].lower() + why[1:].removesuffix(".")
    elif kind in ("gpus", "priority", "unknown") and state.most_joined(free) < own.fewest <= len(free):
        kind, needs = "link", f"{needs}, but no route joins the servers that have them"
    elif kind in ("gpus", "priority", "unknown") and refusal is not None:
        kind, needs = "memory", f"{needs}, but: {refusal}"
    if not found:
        return kind, f"{needs}. Nothing that was tried starts it."
    if found[0].kind == "undecided":
        return kind, "the policy has not been asked since something happened; the next step starts it."
    return kind, f"{needs}. {found[0].sentence}"


def _refusal(state: ClusterState, job: LiveJob, free: Sequence[int]) -> str | None:
    """Return why none of the free GPUs takes the job, by type; None where some do."""
    setting, own, reason = state.setting, job.active.job, None
    types: dict[str, list[int]] = {}
    for gpu in free:
        types.setdefault(setting.cluster.gpus.types[gpu], []).append(gpu)
    for gpus in types.values():
        if len(gpus) >= own.fewest:
            share = Share((job.active.index,), tuple(gpus[: own.fewest]))
            reason = setting.performance.refuses(share, [own])
            if reason is None:
                return None
    return reason


# A job that runs ---------------------------------------------------------------------------------------------


def _running(state: ClusterState, job: LiveJob) -> LiveExplanation:
    share, name = job.active.share, job.active.job.name
    assert share is not None
    assignment = state.assignments()[name]
    influences = tuple(
        influence
        for influence in _influences(state, job, share)
        if not 1 / _WORTH_TELLING < influence.factor < _WORTH_TELLING
    )
    servers = len({state.setting.server_of[gpu] for gpu in share.gpus})
    with_whom = f" with {', '.join(assignment.partners)}" if assignment.partners else ""
    ends_us = end_us(state, job)
    until = "" if ends_us is None else f", and ends {soon(ends_us - state.now_us)}"
    where = f"it runs on {counted(len(share.gpus), 'GPU')} of {counted(servers, 'server')}{with_whom}"
    reason = f"{where}, at depth rule {assignment.depth.rule}{until}."
    return LiveExplanation(name, assignment, reason, "", _cluster(state), influences=influences)


def _influences(state: ClusterState, job: LiveJob, share: Share) -> Iterator[Influence]:
    """Yield that of each partner, of partial depth, and of where its GPUs are, where the performance model tells."""
    index, own = job.active.index, job.active.job
    now = speed_in(state, share, job)
    if now is None:
        return
    for other in share.jobs:
        if other != index and (speed := speed_in(state, share.without(other), job)) is not None:
            name, factor = state.jobs[other].active.job.name, speed / now
            yield Influence(
                "partner", f"Without job {name} on its GPUs it would be {factor:.2f} times as fast.", factor
            )
    if share.depth(index) != FullDepth():
        depths = tuple(FullDepth() if other == index else share.depth(other) for other in share.jobs)
        speed = speed_in(state, Share(share.jobs, share.gpus, depths, share.slowdown), job)
        if speed is not None:
            rule, factor = share.depth(index).rule, speed / now
            yield Influence("level rule", f"At full depth, not {rule}, it would be {factor:.2f} times as fast.", factor)
    alone = speed_in(state, Share((index,), share.gpus), job) if len(share.gpus) == own.gpus else None
    well = _speed_placed_well(state, job)
    if alone is not None and well is not None:
        text = f"Alone and well placed it would be {well / alone:.2f} times as fast as alone here."
        yield Influence("placement", text, well / alone)


def _speed_placed_well(state: ClusterState, job: LiveJob) -> float | None:
    """Return units of work a microsecond of a job alone and well placed; None where there is no such place."""
    performance = state.setting.performance
    with suppress(PluginError), failures_of(performance.name):
        return performance.work(job.active.job) / performance.alone_us(job.active.job)
    return None


# The cluster -------------------------------------------------------------------------------------------------


def _free(state: ClusterState) -> list[int]:
    taken = state.closed.union(*(share.gpus for share in state.shares))
    return [gpu for gpu in range(state.setting.gpu_count) if gpu not in taken]


def _cluster(state: ClusterState) -> str:
    waiting = [job.active.job.fewest for job in state.jobs.values() if job.active.share is None]
    free, used, total = len(_free(state)), sum(len(share.gpus) for share in state.shares), state.setting.gpu_count
    out = total - used - free
    return (
        f"Of {counted(total, 'GPU')}, {used} are in use, {free} free and {out} out of use; "
        f"{counted(len(waiting), 'job')} {agreeing(len(waiting), 'waits', 'wait')} for {sum(waiting)}."
    )

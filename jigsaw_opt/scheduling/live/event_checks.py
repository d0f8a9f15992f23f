"""What an event must not say of a cluster in its state: names that there are not, time that goes back, and the like."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.problem.rules.report import Place, Report
from jigsaw_opt.problem.workload import MOST_GPUS, TraceJob
from jigsaw_opt.scheduling.live import events
from jigsaw_opt.scheduling.live.cluster_state import ClusterState
from jigsaw_opt.scheduling.plain import Plain
from jigsaw_opt.scheduling.policy import JOB_FIELDS, NEVER_STOPS, JobState, Policy, unread_fields
from jigsaw_opt.scheduling.policy_at_work import InvariantError, check_shares, check_up


def check_event(entry: Plain, state: ClusterState, refuses: Callable[[TraceJob], str | None], report: Report) -> None:
    """Report where an event does not fit the state of a cluster.

    `refuses`: says why the policy cannot run a job that the performance model knows, or None. `report`: what is wrong
    with the event in itself; a value that stands there is not looked at again.
    """
    wrong = [problem.path for problem in report.problems]

    def is_good(key: str) -> bool:
        path = f"$.{key}"
        return key.partition(".")[0] in entry and not any(
            one.startswith(path) or path.startswith(f"{one}.") for one in wrong
        )

    if is_good("time_us") and entry["time_us"] < state.now_us:
        report.add("$.time_us", f"time goes back from {state.now_us} to {entry['time_us']} us", code="wrong-order")
    kind, cluster = entry.get("event"), state.setting.cluster
    if kind == "submit":
        named = is_good("job.name") and entry["job"]["name"] in state.numbers
        if named:
            report.add("$.job.name", f"there is a job {entry['job']['name']!r} already", code="duplicate-name")
        if is_good("job"):
            _check_job(TraceJob(**entry["job"]), state, refuses, report)
    elif kind == "running":
        if is_good("job") and is_good("gpus"):
            _check_running(entry, state, refuses, report)
        if is_good("started_us") and is_good("time_us") and entry["started_us"] > entry["time_us"]:
            report.add("$.started_us", "is later than the event", code="wrong-order")
    elif kind == "server_added":
        server = entry["server"] if is_good("server") else None
        check_addition(cluster, server, entry["links"] if is_good("links") else (), "$", report)
    else:
        servers, links = ({one.name for one in parts} for parts in (cluster.servers, cluster.links))
        gpus = cluster.gpus.place_of
        if kind == "start_failed" and is_good("gpus"):
            _check_gpus(entry["gpus"], gpus, report)
        for key, known in {"job": state.numbers, "server": servers, "gpu": gpus, "link": links}.items():
            if is_good(key) and entry[key] not in known:
                report.add(f"$.{key}", f"there is no {key} {entry[key]!r}", code="unknown-name")


def check_addition(
    cluster: Cluster, server: Plain | None, links: Iterable[Plain], place: Place, report: Report
) -> None:
    """Report why a cluster cannot have one server more, with links.

    `server, links`: the two as a journal holds them; None for a server that is wrong in itself.
    """
    points = {*(one.name for one in cluster.servers), *cluster.switches}
    names = {link.name for link in cluster.links}
    joined = {frozenset(link.ends) for link in cluster.links}
    if server is not None:
        if server["name"] in points:
            report.add(((place, "server"), "name"), f"there is a {server['name']!r} already", code="duplicate-name")
        if cluster.gpu_count + server["gpus"] > MOST_GPUS:
            report.add(
                ((place, "server"), "gpus"), f"the cluster would have more than {MOST_GPUS} GPUs", code="too-large"
            )
        points.add(server["name"])
    for k, link in enumerate(links):
        where, ends = ((place, "links"), k), frozenset(link["ends"])
        if link["name"] in names:
            report.add((where, "name"), f"there is a {link['name']!r} already", code="duplicate-name")
        names.add(link["name"])
        missing = [end for end in link["ends"] if end not in points] if server is not None else []
        if missing:
            message = f"link {link['name']!r} has an end {missing[0]!r}, which there is not"
            report.add((where, "ends"), message, code="unknown-name")
        elif len(ends) < 2:
            report.add((where, "ends"), f"link {link['name']!r} has one end twice", code="duplicate-name")
        elif ends in joined:
            message = f"another link joins {' and '.join(map(repr, link['ends']))} already"
            report.add((where, "ends"), message, code="duplicate-name")
        joined.add(ends)


def _check_job(job: TraceJob, state: ClusterState, refuses: Callable[[TraceJob], str | None], report: Report) -> None:
    """Report why a job that is right in itself can run nowhere here."""
    count, performance = state.setting.gpu_count, state.setting.performance
    if job.fewest > count:
        report.add(
            "$.job.gpus", f"job {job.name!r} needs {job.fewest} GPUs and the cluster has {count}", code="does-not-fit"
        )
        return
    reason = performance.unknown(job)
    if reason is None:
        reason = refuses(job)
    if reason is not None:
        report.add("$.job", reason, code="unsupported")


def _check_running(
    entry: Plain, state: ClusterState, refuses: Callable[[TraceJob], str | None], report: Report
) -> None:
    """Report why a job cannot run where an event says that it does."""
    job, places = TraceJob(**entry["job"]), state.setting.cluster.gpus.place_of
    _check_gpus(entry["gpus"], places, report)
    if job.name in state.cancelled:
        message = f"job {job.name!r} is cancelled, and the next step stops it: tell of it after that"
        report.add("$.job.name", message, code="wrong-order")
    index = state.numbers.get(job.name, state.next_job)
    if index in state.jobs:
        job = state.jobs[index].active.job
    else:
        _check_job(job, state, refuses, report)
    if report.problems:
        return
    gpus = state.gpu_numbers(entry["gpus"])
    for share in state.shares:
        others = [state.jobs[k].active.job.name for k in share.jobs if k != index]
        held = [state.setting.cluster.gpus.names[gpu] for gpu in gpus if gpu in share.gpus]
        if others and held and share.gpus != gpus:
            message = f"GPU {held[0]!r} is held by job {others[0]!r}: tell first where that runs, or that it has ended"
            report.add("$.gpus", message, code="contradiction")
    jobs, when = {**state.active, index: JobState(index, job, 1)}, f"at {entry['time_us']} us"
    shares = (state.joined(index, gpus),)
    try:
        check_shares(state.setting, jobs, shares, (), when)
        check_up(state.setting, jobs, shares, state.down, frozenset(state.dead), when)
    except InvariantError as error:
        report.add("$.gpus", str(error), code="contradiction")


def _check_gpus(names: Sequence[str], known: Container[str], report: Report) -> None:
    """Report names of GPUs that there are not, or that are there twice."""
    for k, name in enumerate(names):
        if name not in known:
            report.add(("$.gpus", k), f"there is no GPU {name!r}", code="unknown-name")
        elif name in names[:k]:
            report.add(("$.gpus", k), f"GPU {name!r} is there twice", code="duplicate-name")


def without_effect(
    event: events.ClusterEvent, state: ClusterState, policy: Policy, options: Mapping[str, str]
) -> Iterator[str]:
    """Yield what of an event has no effect, in a sentence each.

    `policy, options`: the policy, which may not read all fields of a job, and its options.
    """
    match event:
        case events.JobRunning() if event.job.name in state.numbers:
            job = state.jobs[state.numbers[event.job.name]].active.job
            if replace(event.job, submit_us=job.submit_us) != job:
                yield f"job {job.name!r} is known: what its record says anew is not read"
        case events.JobRunning():
            yield from _unread(event.job.name, filter(event.job.states, JOB_FIELDS), policy, options)
        case events.JobSubmitted():
            job = event.job
            yield from _unread(job.name, filter(job.states, JOB_FIELDS), policy, options)
            named = state.numbers_by_name() if job.after else {}
            for name in (name for name in job.after or () if name not in named):
                yield f"job {job.name!r} does not wait for {name!r}: no job that waits or runs has this name or array"
        case events.PriorityChanged():
            before = state.jobs[state.numbers[event.job]].active.job
            changed = [name for name in ("weight", "foreground") if getattr(event, name) != getattr(before, name)]
            yield from _unread(event.job, changed, policy, options)
        case events.JobProgressed() if not _runs(event.job, state):
            yield f"job {event.job!r} does not run: its progress gives no speed"
        case events.StartFailed() | events.JobRequeued() if event.job not in state.told and not _runs(event.job, state):
            yield f"job {event.job!r} does not run"
        case events.JobHeld() if state.jobs[state.numbers[event.job]].on_hold:
            yield f"job {event.job!r} is held already"
        case events.JobHeld() if _runs(event.job, state):
            yield f"job {event.job!r} runs, and goes on: it is held once something stops it"
        case events.JobReleased() if not state.jobs[state.numbers[event.job]].on_hold:
            yield f"job {event.job!r} is not held"
        case events.JobFrozen() if state.jobs[state.numbers[event.job]].frozen:
            yield f"job {event.job!r} is frozen already"
        case events.JobThawed() if not state.jobs[state.numbers[event.job]].frozen:
            yield f"job {event.job!r} is not frozen"
        case events.PolicyBack() if not state.fallen:
            yield "the policy decides already"
        case _:
            yield from _so_already(event, state)


def _so_already(event: events.ClusterEvent, state: ClusterState) -> Iterator[str]:
    """Yield what an event says of a part of the cluster that is so already."""
    cluster = state.setting.cluster
    lost, drained, cordoned = (
        {cluster.servers[k].name for k in numbers} for numbers in (state.lost, state.drained, state.cordoned)
    )
    out, failed = lost | drained, {cluster.gpus.names[k] for k in state.failed}
    dead = {cluster.links[k].name for k in state.dead}
    match event:
        case events.ServerCordoned() if event.server in out | cordoned:
            yield f"server {event.server!r} is lost, drained or cordoned already"
        case events.GpuFailed() if event.gpu in failed:
            yield f"GPU {event.gpu!r} has failed already"
        case events.GpuBack() if event.gpu not in failed:
            yield f"GPU {event.gpu!r} is in use already"
        case events.ServerLost() if event.server in lost:
            yield f"server {event.server!r} is lost already"
        case events.ServerDrained() if event.server in out:
            yield f"server {event.server!r} is lost or drained already"
        case events.ServerBack() if event.server not in out | cordoned:
            yield f"server {event.server!r} is in use already"
        case events.LinkDown() if event.link in dead:
            yield f"link {event.link!r} is down already"
        case events.LinkUp() if event.link not in dead:
            yield f"link {event.link!r} is up already"


def _runs(job: str, state: ClusterState) -> bool:
    return state.jobs[state.numbers[job]].active.share is not None


def _unread(job: str, stated: Iterable[str], policy: Policy, options: Mapping[str, str]) -> Iterator[str]:
    """Yield which of the fields that are stated of a job the policy does not read."""
    unread = set(unread_fields(policy, options)) - NEVER_STOPS  # whatever a policy reads, none is stopped
    for name in stated:
        if name in unread:
            but = ", which counts only in a queue with a quota" if name == "weight" else ""
            yield f"policy {policy.name!r} does not read the {JOB_FIELDS[name]} of job {job!r}{but}"

"""The state of a live scheduler as a document of plain values, ``jigsaw-live/3``.

What follows from the arguments of the scheduler is not in it but for the servers and links that were added; digests
tell which arguments were others. Nothing in it is trusted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence, Set

from jigsaw_opt.documents.decoding import made
from jigsaw_opt.errors import InvalidInputError, Problem
from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.problem.rules.keyed import plain
from jigsaw_opt.problem.rules.report import Report
from jigsaw_opt.problem.workload import MOST_GPUS, TraceJob
from jigsaw_opt.scheduling.allocation import Share
from jigsaw_opt.scheduling.live.cluster_state import ClusterState
from jigsaw_opt.scheduling.live.event_checks import check_addition
from jigsaw_opt.scheduling.live.events import LINK, SERVER, TIME, ServerAdded, check_job, encode_record
from jigsaw_opt.scheduling.live.job import LiveJob, News
from jigsaw_opt.scheduling.live.plan_change import JobAssignment
from jigsaw_opt.scheduling.performance import Performance
from jigsaw_opt.scheduling.plain import (
    ANYTHING,
    MOST,
    TEXT,
    TRUTH,
    NumberLimits,
    Plain,
    Shape,
    checked,
    fields,
    keyed,
    listed,
    optional,
    require_newest,
    whole,
)
from jigsaw_opt.scheduling.policy import JobState
from jigsaw_opt.scheduling.policy_at_work import InvariantError, check_shares, check_up
from jigsaw_opt.text import named

_FORMAT = "jigsaw-live/3"
_TOLD = 5
"""Wrong entries of a list that are named."""
_HEAD = fields(
    format={"const": _FORMAT}, inputs=TEXT, chosen=ANYTHING, servers=ANYTHING, time_us=TIME, next_job=whole()
)
_ADDED = fields(server=SERVER, links=listed(LINK))
_OUT = {
    **{key: (key, "servers") for key in ("lost", "drained", "cordoned")},
    "gpus_failed": ("failed", "gpus"),
    "links_down": ("dead", "links"),
}
"""Numbers of what is out of use, which the document names: the attribute of the state, and what there is."""
_STEP = fields(event={"const": "step"}, time_us=TIME, late=TRUTH)


def check_step(entry: Plain) -> None:
    """Check that an entry of a journal is a step."""
    checked(entry, _STEP)


def encode_state(state: ClusterState, inputs: str, chosen: Plain, memory: Plain) -> Plain:
    """Return a state as values of JSON.

    `inputs`: a digest of each argument of the scheduler. `chosen`: name and options of its policy.
    """
    cluster = state.setting.cluster
    return {
        "format": _FORMAT,
        "inputs": inputs,
        "chosen": chosen,
        "servers": [keyed(server, "name", "gpus") for server in cluster.servers],
        "time_us": state.now_us,
        "next_job": state.next_job,
        "added": plain([keyed(event, "server", "links") for event in state.added], flat=True),
        **{
            key: [_names(cluster, parts)[k] for k in sorted(getattr(state, name))]
            for key, (name, parts) in _OUT.items()
        },
        "quotas": dict(state.quotas),
        "jobs": [_job(job) for job in state.jobs.values()],
        "shares": [share.plain() for share in state.shares],
        "news": state.news.plain(),
        "asked": state.asked,
        "wake_us": state.wake_us,
        "told": [one.plain() for one in state.told.values()],
        "cancelled": [one.plain() for one in state.cancelled.values()],
        "reasons": dict(state.reasons),
        **keyed(state, "moves_us", "failed_steps", "fallen"),
        "policy": memory,
    }


def _names(cluster: Cluster, parts: str) -> Sequence[str]:
    """Return the names of the servers, GPUs or links of a cluster."""
    return cluster.gpus.names if parts == "gpus" else [one.name for one in getattr(cluster, parts)]


def _job(job: LiveJob) -> Plain:
    return {"trace": encode_record(job.active.job), "figures": job.active.plain(), **job.plain()}


def restore_state(
    state: ClusterState, tree: Plain, inputs: str, perform: Callable[[Cluster], Performance]
) -> list[str] | None:
    """Make a state at its beginning that of a document; what is lost where arguments are others, else None."""
    require_newest(tree, _FORMAT, "$.format")
    report = Report()
    checked(tree, {**_HEAD, "additionalProperties": True})
    lost: list[str] | None = None if tree["inputs"] == inputs else []
    checked(tree.get("added"), listed(_ADDED))
    known = {server.name for server in state.setting.cluster.servers} if lost is not None else ()
    _add(state, [one for one in tree["added"] if one["server"]["name"] not in known], perform, report)
    report.raise_if_any()
    if lost is not None:
        tree = _adapted(tree, state.setting.cluster, lost)
    else:
        checked(tree, _shape(NumberLimits(tree["next_job"], state.setting.gpu_count, tree["time_us"], MOST)))
    for k, job in enumerate(tree["jobs"]):
        check_job(job["trace"], (("$.jobs", k), "trace"), report)
    report.raise_if_any()
    if lost is not None:
        tree["jobs"] = [_capped(one, state.setting.performance) for one in tree["jobs"]]
    _check(tree, state, report)
    report.raise_if_any()
    _fill(state, tree, lost, report)
    report.raise_if_any()
    return lost


def _adapted(tree: Plain, cluster: Cluster, lost: list[str]) -> Plain:
    """Return a document as of a scheduler on another cluster; note in `lost` what there is no longer."""
    servers = checked(tree.get("servers"), listed(fields(name=TEXT, gpus=whole(MOST_GPUS, 1))), "$.servers")
    if sum(one["gpus"] for one in servers) > MOST_GPUS:
        raise InvalidInputError([Problem("$.servers", f"have more than {MOST_GPUS} GPUs", code="too-large")])
    names = [f"{one['name']}/{k}" for one in servers for k in range(one["gpus"])]
    checked(tree, _shape(NumberLimits(tree["next_job"], len(names), tree["time_us"], MOST)))
    numbers = {name: k for k, name in enumerate(cluster.gpus.names)}
    tree = {**tree, "shares": list(tree["shares"])}
    for key, (_, parts) in _OUT.items():
        known = set(_names(cluster, parts))
        lost += [f"there is no {parts[:-1]} {one!r} any more" for one in tree[key] if one not in known]
        tree[key] = [one for one in tree[key] if one in known]
    for k, share in enumerate(tree["shares"]):
        gpus = [names[gpu] for gpu in share["gpus"]]
        here = sorted(numbers[one] for one in gpus if one in numbers)
        tree["shares"][k] = {**share, "gpus": here if len(here) == len(gpus) else []}
    return tree


def _add(
    state: ClusterState, added: Iterable[Plain], perform: Callable[[Cluster], Performance], report: Report
) -> None:
    for k, tree in enumerate(added):
        check_addition(state.setting.cluster, tree["server"], tree["links"], ("$.added", k), report)
        if report.problems:
            return
        event: ServerAdded = made(ServerAdded, {"time_us": 0, **tree})
        state.setting = state.enlarged(event, perform)
        state.added.append(event)


def _shape(limits: NumberLimits) -> Shape:
    job = fields(trace=ANYTHING, figures=JobState.shape(limits), **LiveJob.shape(limits)["properties"])
    return fields(
        **_HEAD["properties"],
        added=ANYTHING,
        **dict.fromkeys(_OUT, listed(TEXT)),
        quotas={"type": "object", "additionalProperties": whole()},
        jobs=listed(job),
        shares=listed(Share.shape(limits)),
        news=News.shape(limits),
        asked=TRUTH,
        wake_us=optional(whole()),
        **dict.fromkeys(("told", "cancelled"), listed(JobAssignment.shape(limits))),
        reasons={"type": "object", "additionalProperties": TEXT},
        moves_us=listed(limits.time),
        failed_steps=whole(),
        fallen=TRUTH,
        policy=ANYTHING,
    )


def _check(tree: Plain, state: ClusterState, report: Report) -> None:
    """Check that every number and name is of something that there is, and there once."""
    performance = state.setting.performance
    for key, (_, parts) in _OUT.items():
        known = set(_names(state.setting.cluster, parts))
        _check_once(tree[key], known, f"is no {parts[:-1]} of the cluster", f"$.{key}", report)
    jobs = [TraceJob(**one["trace"]) for one in tree["jobs"]]
    numbers = [one["figures"]["job"] for one in tree["jobs"]]
    if sorted(set(numbers)) != numbers:
        report.add("$.jobs", "are not in order of their numbers, each once", code="wrong-order")
    if len({job.name for job in jobs}) < len(jobs):
        twice = named([name for name, count in Counter(job.name for job in jobs).items() if count > 1])
        report.add("$.jobs", f"two have one name: {twice}", code="duplicate-name")
    for k, (job, one) in enumerate(zip(jobs, tree["jobs"], strict=True)):
        reason = performance.unknown(job)
        if reason is not None or job.fewest > state.setting.gpu_count:
            report.add(("$.jobs", k), reason or f"needs {job.fewest} GPUs, which there are not", code="does-not-fit")
        elif max(one["figures"]["done"], one["reported"]) >= performance.work(job):
            report.add(("$.jobs", k), "has done all its work", code="contradiction")
        elif job.submit_us > tree["time_us"] and not one["held"]:
            report.add(("$.jobs", k), "is submitted only later", code="contradiction")
    news = tree["news"]
    active = {one["figures"]["job"] for one in tree["jobs"] if not one["held"]}
    gone = set(news["ended"]) - active  # every number below `next_job` is of a job that there was
    for key, among, why in (
        ("arrived", active, "is no job that the policy may know of"),
        ("ended", gone, "is no job that has ended or is kept from the policy"),
        ("stopped", active - set(news["arrived"]), "is no job that the policy knows"),
        ("unfinished", set(news["ended"]), "has not ended"),
    ):
        _check_once(news.get(key, ()), among, why, f"$.news.{key}", report)
    placed = [index for share in tree["shares"] for index in share["jobs"]]
    _check_once(placed, set(numbers), "is no job that runs: it is not there", "$.shares", report)
    for key in ("told", "cancelled"):
        names = [one["job"] for one in tree[key]]
        _check_once(names, set(names), "", f"$.{key}", report)


def _check_once(found: Sequence[int | str], known: Set[int | str], why: str, place: str, report: Report) -> None:
    """Report entries that are not among the known ones, which is `why`, and those that are there twice."""
    told = [f"{entry!r} {why}" for entry in dict.fromkeys(found) if entry not in known]
    told += [f"{entry!r} is there {count} times" for entry, count in Counter(found).items() if count > 1]
    if told:
        report.add(place, "; ".join(told[:_TOLD]), code="contradiction")


def _capped(tree: Plain, performance: Performance) -> Plain:
    """Return a job that has something left to do, as other models may count less work."""
    job = TraceJob(**tree["trace"])
    if performance.unknown(job) is not None:
        return tree
    most, figures = performance.work(job) - 1, tree["figures"]
    done = min(most, figures["done"])
    return {**tree, "figures": {**figures, "done": done}, "reported": min(most, tree["reported"])}


def _fill(state: ClusterState, tree: Plain, lost: list[str] | None, report: Report) -> None:
    """Take over what was checked, and check what runs; where arguments are others, jobs wait that cannot run."""
    state.now_us, state.next_job, state.quotas = tree["time_us"], tree["next_job"], dict(tree["quotas"])
    for key, (name, parts) in _OUT.items():
        numbers = {one: k for k, one in enumerate(_names(state.setting.cluster, parts))}
        setattr(state, name, {numbers[one] for one in tree[key]})
    for one in tree["jobs"]:
        job = TraceJob(**one["trace"])
        active = JobState.restored(one["figures"], job=job, work=state.setting.performance.work(job))
        state.jobs[active.index] = LiveJob.restored(one, active=active)
        state.numbers[job.name] = active.index
    state.shares = tuple(map(Share.restored, tree["shares"]))
    for share in state.shares:
        for index in share.jobs:
            state.jobs[index].active.share = share
    state.news, state.reasons = News.restored(tree["news"]), dict(tree["reasons"])
    state.failed_steps, state.fallen = tree["failed_steps"], tree["fallen"]
    if lost is not None:
        state.fallen = False
        state.shares = tuple(share for share in state.shares if not _stopped(state, share, lost))
        state.keep_apart()
    for k, live in enumerate(state.jobs.values()):
        runs, apart = live.active.share is not None, state.is_apart(live)
        if apart > live.held or (runs and live.held > apart):
            report.add(("$.jobs", k), "is to be kept from the policy, or not to be", code="contradiction")
    state.asked, state.wake_us = tree["asked"], tree["wake_us"]
    state.told, state.cancelled = (
        {one["job"]: JobAssignment.restored(one) for one in tree[key]} for key in ("told", "cancelled")
    )
    state.moves_us = list(tree["moves_us"])
    try:
        check_shares(state.setting, state.active, state.shares, (), f"at {state.now_us} us", remains=True)
        check_up(state.setting, state.active, state.shares, state.down, frozenset(state.dead), f"at {state.now_us} us")
    except InvariantError as error:
        report.add("$.shares", str(error), code="contradiction")


def _stopped(state: ClusterState, share: Share, lost: list[str]) -> bool:
    """Have the jobs of a share wait if it cannot run on this cluster, and note why in `lost`."""
    when = f"at {state.now_us} us"
    try:
        if not share.gpus:
            raise InvariantError("its GPUs are gone")
        check_shares(state.setting, state.active, (share,), (), when, remains=True)
        check_up(state.setting, state.active, (share,), state.down, frozenset(state.dead), when)
    except InvariantError as error:
        for job in (state.jobs[index] for index in share.jobs):
            job.leave()
            if not job.held:
                state.news.stop(job.active.index)
            state.reasons[job.active.job.name] = str(error)
            lost.append(f"job {job.active.job.name!r} waits: {error}")
        return True
    return False

"""What must hold of the state of a simulation that comes from a file, before anything is made of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from jigsaw_opt.problem.rules.report import Place, Report
from jigsaw_opt.scheduling.allocation import Share
from jigsaw_opt.scheduling.plain import ANYTHING, NumberLimits, Plain, Shape, checked, fields, listed, rows, whole
from jigsaw_opt.scheduling.policy import JobState
from jigsaw_opt.simulation.engine.arrivals import is_constrained
from jigsaw_opt.simulation.engine.event_log import EventLog, JobStatistics, Meter, Trigger
from jigsaw_opt.simulation.engine.failing import Failing
from jigsaw_opt.simulation.engine.records import SimulationOutcome
from jigsaw_opt.simulation.engine.running import Running
from jigsaw_opt.simulation.engine.setting import Setting


def _some(**shapes: Shape) -> Shape:
    """Return an object of these keys and others."""
    return {**fields(**shapes), "additionalProperties": True}


_FIRST = _some(now_us=whole(), books=_some(outcome=_some(rounds=listed(ANYTHING))))
"""What the bounds of everything else follow from."""


def check_state(tree: Plain, setting: Setting, idle_rounds: int, place: Place) -> None:
    """Check that a state could be one of a simulation of `setting`, as far as the figures of the jobs tell."""
    report = Report()
    checked(tree, _FIRST, place)
    limits = NumberLimits(
        len(setting.workload.jobs), setting.gpu_count, tree["now_us"], len(tree["books"]["outcome"]["rounds"])
    )
    checked(tree, _shape(setting, limits, idle_rounds), place)
    servers = [server.gpus for server in setting.cluster.servers]
    SimulationOutcome.check(tree["books"]["outcome"], limits, servers, ((place, "books"), "outcome"), report)
    _check_numbers(tree, place, report)
    report.raise_if_any()
    _check_times(tree, setting, place, report)
    _check_active(tree, setting, place, report)
    report.raise_if_any()


def held_gpus(tree: Plain) -> int:
    """Return GPUs that are held in a state of the right shape."""
    return sum(len(share["gpus"]) for share in tree["shares"])


def _shape(setting: Setting, limits: NumberLimits, idle_rounds: int) -> Shape:
    failures = {} if setting.failures is None else {"failures": Failing.shape(limits)}
    held = {"held": rows(2, whole())} if is_constrained(setting.workload.jobs) else {}
    return fields(
        now_us=limits.time,
        active=listed(JobState.shape(limits)),
        lives=listed(JobStatistics.shape(limits)),
        shares=listed(Share.shape(limits)),
        running=listed(Running.shape(limits)),
        trigger=Trigger.shape(limits),
        books=EventLog.shape(limits),
        idle_rounds=whole(idle_rounds),
        partial=listed(fields(job=limits.job, is_raw={"type": "boolean"})),
        scheduler=ANYTHING,
        **failures,
        **held,
    )


def _check_numbers(tree: Plain, place: Place, report: Report) -> None:
    """Check that the first jobs of the workload are active or ended, each once, and active ones run or not."""
    active, ended = _jobs(tree["active"]), _jobs(tree["books"]["outcome"]["jobs"])
    in_order = "held" in tree or active == sorted(active)
    held = [index for index, _ in tree.get("held", ())]
    if not in_order or sorted(active + ended + held) != list(range(len(active) + len(ended) + len(held))):
        message = "with the jobs that ended these are not the first of the workload, each once"
        report.add((place, "active"), message, code="contradiction")
    if len(tree["lives"]) != len(active):
        told = f"must be {len(active)}, one an active job; are {len(tree['lives'])}"
        report.add((place, "lives"), told, code="wrong-count")
    running = _jobs(tree["running"])
    if not _once(running, active):
        report.add((place, "running"), "not every job is active, or one is there twice", code="contradiction")
    if sorted(job for share in tree["shares"] for job in share["jobs"]) != sorted(running):
        report.add((place, "shares"), "the jobs that run are not in one share each", code="contradiction")
    if tree["books"]["held_before"] > Meter.restored(tree["books"]["held"], value=held_gpus(tree)).at(tree["now_us"]):
        report.add(((place, "books"), "held_before"), "is more than GPUs were held up to now", code="contradiction")
    waiting = set(active) - set(running)
    for key, where in (("arrived", waiting), ("ended", ended), ("stopped", waiting)):
        if not _once(tree["trigger"][key], where):
            told = f"not every job has {key}, or one is there twice"
            report.add(((place, "trigger"), key), told, code="contradiction")


def _jobs(trees: Iterable[Plain]) -> list[int]:
    return [tree["job"] for tree in trees]


def _once(jobs: Sequence[int], among: Iterable[int]) -> bool:
    """Return whether all jobs are different and among others."""
    return len(set(jobs)) == len(jobs) and set(jobs) <= set(among)


def _check_times(tree: Plain, setting: Setting, place: Place, report: Report) -> None:
    """Check that jobs begin after they are submitted, run after they begin, and end at last."""
    jobs = setting.workload.jobs
    records = (((place, "books"), "outcome"), "jobs")
    for k, record in enumerate(tree["books"]["outcome"]["jobs"]):
        if not jobs[record["job"]].submit_us <= record["start_us"] <= record["finish_us"]:
            report.add((records, k), "it is submitted, starts and ends in another order", code="wrong-order")
    started = {
        active["job"]: statistics["start_us"] for active, statistics in zip(tree["active"], tree["lives"], strict=True)
    }
    for k, one in enumerate(tree["running"]):
        start_us = started[one["job"]]
        if start_us is None or not start_us <= one["start_us"] <= one["settled_us"]:
            report.add(((place, "running"), k), "it is submitted, starts and runs in another order", code="wrong-order")


def _check_active(tree: Plain, setting: Setting, place: Place, report: Report) -> None:
    """Check that active jobs have work left, and no more time behind them than there was."""
    now_us = tree["now_us"]
    crowd_now = Meter.restored(tree["books"]["crowd"], value=len(tree["active"])).at(now_us)
    arrived = set(tree["trigger"]["arrived"])
    for k, (one, statistics) in enumerate(zip(tree["active"], tree["lives"], strict=True)):
        job = setting.workload.jobs[one["job"]]
        where = ((place, "active"), k)
        age_us, work = now_us - job.submit_us, setting.performance.work(job)
        if age_us < 0:
            report.add(where, f"job {job.name!r} is submitted only later", code="contradiction")
        elif one["run_us"] > age_us or one["gpu_us"] > setting.gpu_count * one["run_us"]:
            report.add(where, f"job {job.name!r} has run longer than it has been there", code="contradiction")
        if one["done"] >= work:
            message = f"job {job.name!r} has {work} units of work in all; {one['done']} are done"
            report.add((where, "done"), message, code="contradiction")
        begun, start_us = one["starts"] > 0, statistics["start_us"]
        if begun != (start_us is not None) or (begun and one["job"] in arrived):
            report.add((where, "starts"), f"job {job.name!r} has started, or it has not", code="contradiction")
        if (start_us is not None and start_us < job.submit_us) or statistics["crowd_before"] > crowd_now:
            report.add(((place, "lives"), k), f"job {job.name!r} is older than it can be", code="contradiction")

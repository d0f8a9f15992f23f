"""Reading and writing `jigsaw-replay/1`, and the hash that ties a replay to its plan."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from jigsaw_opt.documents.parsing import collection_paused, parsed
from jigsaw_opt.documents.report import Place, Report
from jigsaw_opt.documents.structure import structure
from jigsaw_opt.errors import Problem
from jigsaw_opt.problem.plan import JobPlan, Plan, Transfer
from jigsaw_opt.problem.replay import (
    Baseline,
    MeasuredBlock,
    MeasuredGpu,
    MeasuredIteration,
    MeasuredJob,
    Replay,
    ReplaySummary,
    Timeline,
)
from jigsaw_opt.text import json_text

__all__ = ["decode_replay", "encode_replay", "plan_sha256", "read_timeline", "require_replay_of", "write_timeline"]

Json = dict[str, Any]


def plan_sha256(plan: Plan) -> str:
    """SHA-256 of what a replay does: the plan's jobs and period, or its groups, whoever found them."""
    tree: Json
    if plan.is_phased:
        tree = {"groups": [asdict(group) for group in plan.groups]}
    else:
        tree = {"period_us": plan.period_us, "jobs": [asdict(job) for job in plan.jobs]}
    return hashlib.sha256(json.dumps(tree, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def decode_replay(data: bytes | str, source: str = "$") -> Replay:
    """Read a replay document.

    Raises
    ------
    InvalidInputError
        With every problem of the document and its path.
    """
    with collection_paused():
        return _replay(parsed(data, source, _check))


def _check(tree: Json, report: Report) -> None:
    structure("replay")(tree, "$", report)


def require_replay_of(plan: Plan, replay: Replay, source: str) -> None:
    """Refuse a replay of another plan, or one whose timeline is not what carrying out this plan leaves.

    Parameters
    ----------
    plan, replay
        The plan and what is said to be a replay of it.
    source
        What problems call the replay.

    Raises
    ------
    InvalidInputError
        With everything that is wrong.
    """
    report = Report()
    if (replay.instance_sha256, replay.plan_sha256) != (plan.instance_sha256, plan_sha256(plan)):
        report.note(Problem(source, "is a replay of another plan"))
        report.raise_if_any()
    found = replay.timeline
    place: Place = (source, "timeline")
    if [(job.name, job.gpus) for job in found.jobs] != [(job.name, job.gpus) for job in plan.jobs]:
        report.add((place, "jobs"), "are others than the plan's, or on other GPUs")
    else:
        for index, (job, measured) in enumerate(zip(plan.data_parallel, found.jobs, strict=True)):
            _check_job(job, measured, found.passes, ((place, "jobs"), index), report)
    if len(found.origins_us) > (found.passes if plan.period_us is None else 0):
        report.add((place, "origins_us"), "more than there are passes over a finite plan")
    report.raise_if_any()


def _check_job(job: JobPlan, measured: MeasuredJob, passes: int, place: Place, report: Report) -> None:
    """All iterations from the first one on, each with the levels and buckets of the plan.

    Only a run that was interrupted, which has no digests, has fewer.
    """
    first, count = measured.first_iteration, len(job.iterations)
    last = first + len(measured.iterations)
    if last > passes * count or (last < passes * count and measured.parameters_sha256):
        left = f"{len(measured.iterations)} iterations from number {first} on"
        report.add((place, "iterations"), f"{left}; {passes} passes over {count} are needed")
    for number, found in enumerate(measured.iterations):
        planned, where = job.iterations[(first + number) % count], ((place, "iterations"), number)
        if [block.level for block in found.blocks] != [block.level for block in planned.blocks]:
            report.add((where, "blocks"), f"need the {len(planned.blocks)} levels of the plan")
        if [transfer.bucket for transfer in found.transfers] != [transfer.bucket for transfer in planned.transfers]:
            report.add((where, "transfers"), f"need the {len(planned.transfers)} buckets of the plan")


def encode_replay(replay: Replay) -> bytes:
    """Write a replay as ``jigsaw-replay/1``, an iteration a line."""
    head = {
        "format": "jigsaw-replay/1",
        "instance": replay.instance,
        "instance_sha256": replay.instance_sha256,
        "plan_sha256": replay.plan_sha256,
        "machine": dict(replay.machine),
        "summary": asdict(replay.summary),
        "gpus": [asdict(gpu) for gpu in replay.gpus],
    }
    fields = [f"  {_line(key)}: {_line(value)},\n" for key, value in head.items()]
    baseline = "null"
    if replay.baseline is not None:
        policy, summary = _line(replay.baseline.policy), _line(asdict(replay.baseline.summary))
        timeline = write_timeline(replay.baseline.timeline)
        baseline = f'{{"policy": {policy}, "summary": {summary}, "timeline": {timeline}}}'
    timeline = write_timeline(replay.timeline)
    return ("{\n" + "".join(fields) + f'  "timeline": {timeline},\n  "baseline": {baseline}\n}}\n').encode()


def write_timeline(timeline: Timeline) -> str:
    """A timeline as JSON, an iteration a line."""
    jobs = ",\n".join(_job(job) for job in timeline.jobs)
    return f'{{"passes": {timeline.passes}, "origins_us": {_line(timeline.origins_us)}, "jobs": [\n{jobs}\n  ]}}'


def _job(job: MeasuredJob) -> str:
    head: Mapping[str, object] = {
        "name": job.name,
        "gpus": job.gpus,
        "first_iteration": job.first_iteration,
        "parameters_sha256": job.parameters_sha256,
    }
    fields = ", ".join(f"{_line(key)}: {_line(value)}" for key, value in head.items())
    iterations = ",".join(f"\n      {_line(asdict(iteration))}" for iteration in job.iterations)
    return f'    {{{fields}, "iterations": [{iterations}]}}'


def _line(value: object) -> str:
    return json_text(value)


def _replay(tree: Json) -> Replay:
    baseline = tree["baseline"]
    return Replay(
        instance=tree["instance"],
        instance_sha256=tree["instance_sha256"],
        plan_sha256=tree["plan_sha256"],
        machine=tree["machine"],
        summary=ReplaySummary(**tree["summary"]),
        gpus=tuple(MeasuredGpu(**gpu) for gpu in tree["gpus"]),
        timeline=read_timeline(tree["timeline"]),
        baseline=baseline
        and Baseline(baseline["policy"], ReplaySummary(**baseline["summary"]), read_timeline(baseline["timeline"])),
    )


def read_timeline(tree: Json) -> Timeline:
    """A timeline whose structure was checked."""
    return Timeline(tree["passes"], tuple(tree["origins_us"]), tuple(_read_job(job) for job in tree["jobs"]))


def _read_job(tree: Json) -> MeasuredJob:
    iterations = tuple(
        MeasuredIteration(
            tuple(MeasuredBlock(**block) for block in iteration["blocks"]),
            tuple(Transfer(**transfer) for transfer in iteration["transfers"]),
        )
        for iteration in tree["iterations"]
    )
    digests = tuple(tree["parameters_sha256"])
    return MeasuredJob(tree["name"], tuple(tree["gpus"]), tree["first_iteration"], iterations, digests)

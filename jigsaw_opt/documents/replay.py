"""Reading and writing `jigsaw-replay/1` and `jigsaw-phased-replay/1`, and the hash that ties a replay to its plan."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from jigsaw_opt.documents.decoding import made
from jigsaw_opt.documents.parsing import collection_paused, parsed
from jigsaw_opt.documents.recognising import stated_kind
from jigsaw_opt.errors import Problem
from jigsaw_opt.problem.measured.replay import Baseline, MeasuredPhase, Replay, ReplaySummary
from jigsaw_opt.problem.measured.times import MeasuredJob, MeasuredStep, Timeline
from jigsaw_opt.problem.plan import JobPlan, Phase, Plan, TaskGraphIteration, TaskGraphJobPlan
from jigsaw_opt.problem.rules.report import Place, Report
from jigsaw_opt.problem.rules.schemas import Kind
from jigsaw_opt.problem.rules.structure import structure
from jigsaw_opt.text import json_text

Json = dict[str, Any]


def plan_sha256(plan: Plan) -> str:
    """Return the SHA-256 of what a replay does: the plan's jobs and period, or its groups, whoever found them."""
    tree: Json
    if plan.is_phased:
        tree = {"groups": [asdict(group) for group in plan.groups]}
    else:
        tree = {"period_us": plan.period_us, "jobs": [asdict(job) for job in plan.jobs]}
    return hashlib.sha256(json.dumps(tree, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def decode_replay(data: bytes | str, source: str = "$") -> Replay:
    """Read a replay document, of the kind that its ``format`` states.

    `data`: the content of the file; text, or bytes in UTF-8.
    """
    with collection_paused():
        kind: Kind = "phased-replay" if stated_kind(data) == "phased-replay" else "replay"
        tree = parsed(data, source, lambda tree, report: structure(kind)(tree, "$", report))
        del tree["format"]
        found: Replay = made(Replay, tree) if kind == "phased-replay" else _of_passes(tree)
        return found


def require_replay_of(plan: Plan, replay: Replay, source: str) -> None:
    """Refuse a replay of another plan, or one whose timeline is not what carrying out this plan leaves."""
    report = Report()
    planned = list(plan.all_phases())
    same = (replay.instance_sha256, replay.plan_sha256) == (plan.instance_sha256, plan_sha256(plan))
    if not same or [(g, p) for g, p, _ in planned] != [(replayed.group, replayed.number) for replayed in replay.phases]:
        report.note(Problem(source, "is a replay of another plan", code="mismatch"))
        report.raise_if_any()
    for number, ((_, _, phase), measured) in enumerate(zip(planned, replay.phases, strict=True)):
        place: Place = ((source, "phases"), number) if replay.counts_repeats else source
        _check_timeline(phase, measured.timeline, (place, "timeline"), report)
    report.raise_if_any()


def _check_timeline(phase: Phase, found: Timeline, place: Place, report: Report) -> None:
    """Check that all jobs of a phase are on their GPUs, and that there are no more passes than there were."""
    planned = phase.jobs
    if [(job.name, job.gpus) for job in found.jobs] != [(job.name, job.gpus) for job in planned]:
        report.add((place, "jobs"), "are others than the plan's, or on other GPUs", code="mismatch")
    else:
        for index, (job, measured) in enumerate(zip(planned, found.jobs, strict=True)):
            _check_job(job, measured, found.passes, ((place, "jobs"), index), report)
    if len(found.origins_us) > (found.passes if phase.period_us is None else 0):
        report.add((place, "origins_us"), "more than there are passes over a finite plan", code="wrong-count")


def _check_job(
    job: JobPlan | TaskGraphJobPlan, measured: MeasuredJob, passes: int, place: Place, report: Report
) -> None:
    """Check that all iterations are there from the first one on, with the levels and buckets of the plan.

    Only a run that was interrupted, which has no digests, has fewer.
    """
    first, count = measured.first_iteration, len(job.iterations)
    last = first + len(measured.iterations)
    if last > passes * count or (last < passes * count and measured.parameters_sha256):
        left = f"{len(measured.iterations)} iterations from number {first} on"
        report.add((place, "iterations"), f"{left}; {passes} passes over {count} are needed", code="wrong-count")
    for number, found in enumerate(measured.iterations):
        planned, where = job.iterations[(first + number) % count], ((place, "iterations"), number)
        # Operations of a task graph have neither level nor bucket: so many of them are needed.
        kinds = {isinstance(planned, TaskGraphIteration), isinstance(found, MeasuredStep)}
        for name, key in (("blocks", "level"), ("transfers", "bucket")):
            own, wanted = ([getattr(one, key, None) for one in getattr(each, name)] for each in (found, planned))
            if own != wanted or len(kinds) > 1:
                what = name if True in kinds else f"{key}s"
                report.add((where, name), f"need the {len(wanted)} {what} of the plan", code="wrong-count")


def encode_replay(replay: Replay) -> bytes:
    """Write a replay, an iteration a line; as ``jigsaw-phased-replay/1`` where its plan counts repetitions."""
    head: Json = {"format": "jigsaw-phased-replay/1" if replay.counts_repeats else "jigsaw-replay/1"}
    head |= {name: getattr(replay, name) for name in ("instance", "instance_sha256", "plan_sha256", "machine")}
    gpus = [asdict(gpu) for gpu in replay.gpus]
    if replay.counts_repeats:
        head |= {"gpus": gpus, "parameters_sha256": dict(replay.parameters_sha256)}
        tail = '  "phases": [\n' + ",\n".join(map(_phase, replay.phases)) + "\n  ]"
    else:
        kinds = {"kinds": {kind: asdict(error) for kind, error in replay.kinds.items()}} if replay.kinds else {}
        cycles = {"cycles": {name: asdict(cycle) for name, cycle in replay.cycles.items()}} if replay.cycles else {}
        building = {"building_us": replay.building_us} if replay.building_us else {}
        head |= {"summary": asdict(replay.summary), **kinds, **cycles, **building, "gpus": gpus}
        tail = f'  "timeline": {_timeline(replay.timeline)},\n  "baseline": {_baseline(replay.baseline)}'
    fields = [f"  {json_text(key)}: {json_text(value)},\n" for key, value in head.items()]
    return ("{\n" + "".join(fields) + tail + "\n}\n").encode()


def _baseline(found: Baseline | None) -> str:
    if found is None:
        return "null"
    head: Json = {"policy": found.policy, "summary": asdict(found.summary)}
    head |= {} if found.together is None else {"together": asdict(found.together)}
    return f'{{{_fields(head)}, "timeline": {_timeline(found.timeline)}}}'


def _phase(phase: MeasuredPhase) -> str:
    head = asdict(replace(phase, timeline=Timeline(1, (), ())))
    del head["timeline"]
    if not phase.restarts:
        del head["restarts"]
    return f'    {{{_fields(head)},\n    "timeline": {_timeline(phase.timeline)}}}'


def _fields(head: Mapping[str, object]) -> str:
    return ", ".join(f"{json_text(key)}: {json_text(value)}" for key, value in head.items())


def _timeline(timeline: Timeline) -> str:
    """Return a timeline as JSON, an iteration a line."""
    jobs = ",\n".join(_job(job) for job in timeline.jobs)
    return f'{{"passes": {timeline.passes}, "origins_us": {json_text(timeline.origins_us)}, "jobs": [\n{jobs}\n  ]}}'


def _job(job: MeasuredJob) -> str:
    head = {name: getattr(job, name) for name in ("name", "gpus", "first_iteration", "parameters_sha256")}
    iterations = ",".join(f"\n      {json_text(asdict(iteration))}" for iteration in job.iterations)
    key = "steps" if any(job.steps()) else "iterations"
    return f'    {{{_fields(head)}, "{key}": [{iterations}]}}'


def _of_passes(tree: Json) -> Replay:
    timeline: Timeline = made(Timeline, tree.pop("timeline"))
    phase = MeasuredPhase.only(made(ReplaySummary, tree.pop("summary")), timeline)
    digests = {job.name: job.parameters_sha256 for job in timeline.jobs if job.parameters_sha256}
    found: Replay = made(Replay, {**tree, "phases": (), "parameters_sha256": digests})
    return replace(found, phases=(phase,))

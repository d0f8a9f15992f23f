"""Reading and writing `jigsaw-phased-replay/1`."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from jigsaw_opt.documents.parsing import collection_paused, parsed
from jigsaw_opt.documents.replay import plan_sha256, read_timeline, write_timeline
from jigsaw_opt.documents.report import Report
from jigsaw_opt.documents.structure import structure
from jigsaw_opt.errors import InvalidInputError, Problem
from jigsaw_opt.problem.phased_replay import MeasuredPhase, PhasedReplay
from jigsaw_opt.problem.plan import Plan
from jigsaw_opt.problem.replay import MeasuredGpu, ReplaySummary, Timeline
from jigsaw_opt.text import json_text

__all__ = ["decode_phased_replay", "encode_phased_replay", "require_phased_replay_of"]

Json = dict[str, Any]


def decode_phased_replay(data: bytes | str, source: str = "$") -> PhasedReplay:
    """Read a replay of a phased plan.

    Raises
    ------
    InvalidInputError
        With every problem of the document and its path.
    """
    with collection_paused():
        tree = parsed(data, source, _check)
        return PhasedReplay(
            instance=tree["instance"],
            instance_sha256=tree["instance_sha256"],
            plan_sha256=tree["plan_sha256"],
            machine=tree["machine"],
            gpus=tuple(MeasuredGpu(**gpu) for gpu in tree["gpus"]),
            phases=tuple(map(_phase, tree["phases"])),
            parameters_sha256={name: tuple(digests) for name, digests in tree["parameters_sha256"].items()},
        )


def _check(tree: Json, report: Report) -> None:
    structure("phased-replay")(tree, "$", report)


def _phase(tree: Json) -> MeasuredPhase:
    summary = tree["summary"] and ReplaySummary(**tree["summary"])
    return MeasuredPhase(**{**tree, "summary": summary, "timeline": read_timeline(tree["timeline"])})


def require_phased_replay_of(plan: Plan, replay: PhasedReplay, source: str) -> None:
    """Refuse a replay of another plan, or one without all of its phases.

    Parameters
    ----------
    plan, replay
        The plan and what is said to be a replay of it.
    source
        What problems call the replay.

    Raises
    ------
    InvalidInputError
        It is one of another plan.
    """
    same = (replay.instance_sha256, replay.plan_sha256) == (plan.instance_sha256, plan_sha256(plan))
    asked = [(g, p, [job.name for job in phase.jobs]) for g, p, phase in plan.all_phases()]
    found = [(phase.group, phase.number, [job.name for job in phase.timeline.jobs]) for phase in replay.phases]
    if not same or asked != found:
        raise InvalidInputError([Problem(source, "is a replay of another plan")])


def encode_phased_replay(replay: PhasedReplay) -> bytes:
    """Write a replay as ``jigsaw-phased-replay/1``, an iteration a line."""
    head: Json = {
        "format": "jigsaw-phased-replay/1",
        "instance": replay.instance,
        "instance_sha256": replay.instance_sha256,
        "plan_sha256": replay.plan_sha256,
        "machine": dict(replay.machine),
        "gpus": [asdict(gpu) for gpu in replay.gpus],
        "parameters_sha256": dict(replay.parameters_sha256),
    }
    fields = "".join(f"  {json_text(key)}: {json_text(value)},\n" for key, value in head.items())
    phases = ",\n".join(map(_written, replay.phases))
    return f'{{\n{fields}  "phases": [\n{phases}\n  ]\n}}\n'.encode()


def _written(phase: MeasuredPhase) -> str:
    head = asdict(replace(phase, timeline=Timeline(1, (), ())))
    del head["timeline"]
    fields = ", ".join(f"{json_text(key)}: {json_text(value)}" for key, value in head.items())
    return f'    {{{fields},\n    "timeline": {write_timeline(phase.timeline)}}}'

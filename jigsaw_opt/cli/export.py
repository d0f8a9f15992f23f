"""Export a plan as a Perfetto trace, or an instance as a mixed-integer program."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from jigsaw_opt.cli.parser import file_or_stdout

if TYPE_CHECKING:
    from jigsaw_opt.problem import PhasedPlan
    from jigsaw_opt.problem.phased_replay import PhasedReplay

HELP = "export a plan (perfetto) or a mixed-integer program (mps, lp)"
EXAMPLE = "jigsaw export server/demo --to mps -o program.mps"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("instance", metavar="INSTANCE", help="an instance document, or the name of a bundled instance")
    parser.add_argument("plan", nargs="?", type=Path, metavar="PLAN", help="a plan document (perfetto)")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="a replay of the plan, traced beside it")
    parser.add_argument("--to", choices=("perfetto", "mps", "lp"), required=True, help="format")
    parser.add_argument(
        "-o",
        "--output",
        type=file_or_stdout,
        required=True,
        metavar="FILE",
        help="where to write (-: standard output)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Write the trace or the program."""
    from jigsaw_opt.cli.output import emit, require_output
    from jigsaw_opt.errors import UsageError

    require_output(arguments.output, arguments.instance, arguments.plan, arguments.replay)
    if arguments.to == "perfetto" and arguments.plan is None:
        raise UsageError("a Perfetto trace needs a plan: jigsaw export INSTANCE PLAN --to perfetto -o FILE")
    emit((_trace if arguments.to == "perfetto" else _program)(arguments), arguments.output)
    return 0


def _trace(arguments: argparse.Namespace) -> bytes:
    from jigsaw_opt.cli.source import checked_any_plan, picture_of
    from jigsaw_opt.problem import PhasedPlan
    from jigsaw_opt.views.perfetto import perfetto_trace, phased_trace

    instance, plan = checked_any_plan(arguments.instance, arguments.plan)
    if isinstance(plan, PhasedPlan):
        return phased_trace(instance, plan, _phased_replay(plan, arguments.replay))
    return perfetto_trace(picture_of(instance, plan, arguments.replay))


def _phased_replay(plan: PhasedPlan, path: Path | None) -> PhasedReplay | None:
    """The replay of a phased plan, if one is named."""
    from jigsaw_opt.documents import load_document
    from jigsaw_opt.documents.phased_replay import require_phased_replay_of
    from jigsaw_opt.errors import InvalidInputError, Problem
    from jigsaw_opt.problem.phased_replay import PhasedReplay

    if path is None:
        return None
    replay = load_document(path)
    if not isinstance(replay, PhasedReplay):
        raise InvalidInputError([Problem(str(path), "is no replay of a phased plan (jigsaw-phased-replay/1)")])
    require_phased_replay_of(plan, replay, str(path))
    return replay


def _program(arguments: argparse.Namespace) -> bytes:
    from jigsaw_opt.instances.sources import instance_from
    from jigsaw_opt.solvers.ilp import model_document

    return model_document(instance_from(arguments.instance), arguments.to)

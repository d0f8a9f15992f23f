"""The command line: arguments, calls and printing, one module a subcommand, in folders by subject.

A subcommand is a module with ``ARGUMENTS`` and ``run(arguments) -> exit code``. It is loaded when it is asked
for, and imports what it calls inside ``run``, so that help is printed at once.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from jigsaw_opt.system.interrupts import INTERRUPTED, as_program, end_at_once, interrupted_line, keeps, settled

if TYPE_CHECKING:
    from argparse import Namespace
    from types import TracebackType

    from jigsaw_opt.errors import JigsawError

__all__ = ["COMMANDS", "main"]

COMMANDS = {
    "solve": ("plans.solve", "solve an instance"),
    "check": ("plans.check", "check a plan against its instance"),
    "explain": (
        "plans.explain",
        "say where the time of the jobs of a plan or a simulation goes; with JOB, what would make that job faster",
    ),
    "failures": ("plans.failures", "show what failures of links, switches and servers do to a plan"),
    "validate": ("inputs.validate", "validate instances, plans, replays, layer profiles and partitions"),
    "instances": ("inputs.instances", "list the bundled instances, with the best known values and plans"),
    "new": ("inputs.new", "make an instance of your own jobs"),
    "generate": ("inputs.generate", "generate an instance of a family"),
    "convert": (
        "inputs.convert",
        "make an instance or a layer profile from measured profiles, or an instance from a shop",
    ),
    "burst": ("training.burst", "choose how many GPUs each layer of a job gets"),
    "fill": ("training.fill", "fill what foreground jobs leave with background jobs"),
    "partition": ("training.partition", "cut a profiled model into the stages of a pipeline"),
    "pipeline": ("training.pipeline", "schedule a pipeline"),
    "shifts": ("training.shifts", "time shifts of jobs that share links, beside plans that use links in turn"),
    "profile": ("training.profile", "measure a model for an instance"),
    "run": ("training.run", "carry a plan out with PyTorch and measure it"),
    "plot": ("plans.plot", "draw the timeline of a plan"),
    "export": (
        "plans.export",
        "export a plan (perfetto, chakra, or a pipeline for PyTorch and others), an ILP (mps, lp) or a shop (jsplib)",
    ),
    "bench": ("plans.bench", "measure solvers on instances"),
    "simulate": ("clusters.simulate", "replay a workload on a cluster under a policy"),
    "advise": ("clusters.advise", "say what another policy would save on a workload, and which settings matter most"),
    "serve": ("clusters.serve", "answer programs of a cluster over HTTP: events in, changes of the plan out"),
    "when": ("clusters.when", "say when a waiting job will start"),
    "slurm": ("clusters.slurm", "watch a Slurm cluster beside its own scheduler, or place its held jobs"),
    "solvers": ("inputs.solvers", "list the solvers, or the policies of simulations"),
    "schema": ("inputs.schema", "print the JSON Schema of a document"),
    "completion": ("inputs.completion", "print a script that completes commands in bash, zsh or fish"),
}
"""By name, the module of each subcommand in this folder, and what it does."""
_SPELLED = {
    "at_us": "--at",
    "engine_parameters": "--engine-parameter",
    "every": "--checkpoint-every",
    "exchanges": "--offer-exchange",
    "fix": "--fix-placement or --fix-before",
    "form": "--format",
    "most_coefficients": "--max-coefficients",
    "round_s": "--round",
    "start": "--warm",
    "trusted": "--trust",
    "without_bounds": "--without-bound",
}
"""Arguments that have another name on the command line."""


def main(argv: list[str] | None = None) -> int:
    """Run one subcommand and return its exit code.

    Parameters
    ----------
    argv
        Arguments without the program's name. Default: those of the process, which then is the program ``jigsaw``:
        its signals and standard streams are taken over too.
    """
    if argv is not None:
        return _exit_code(argv)
    as_program()  # before anything is imported that a signal could break
    from jigsaw_opt.cli.common.streams import prepare

    prepare()
    code = _exit_code(None)
    settled(code)
    end_at_once(code)
    return code


def _exit_code(argv: list[str] | None) -> int:
    """Run a command and return its exit code: the one place where exceptions become lines; the rest are bugs."""
    from jigsaw_opt.cli.common.output import flush, print_error
    from jigsaw_opt.cli.common.parser import parser_of
    from jigsaw_opt.cli.common.streams import shown_logs
    from jigsaw_opt.errors import JigsawError, spelled_by

    arguments: Namespace | None = None
    keeps()
    try:
        try:
            arguments = parser_of(COMMANDS).parse_args(argv)
            if not arguments.debug:
                sys.excepthook = _report_internal_error
            with shown_logs(arguments.debug), spelled_by(_spelled):
                return int(arguments.run(arguments))
        finally:
            flush()
    except BrokenPipeError:  # nobody reads on, and nobody wants to hear of it
        return JigsawError.exit_code
    except KeyboardInterrupt:
        print(interrupted_line(), file=sys.stderr)
        return INTERRUPTED
    except (JigsawError, OSError, ModuleNotFoundError, RecursionError, MemoryError) as error:
        told = _told(error)
        if told is None or (arguments is not None and arguments.debug):
            raise
        print_error(told)
        return told.exit_code


def _told(error: Exception) -> JigsawError | None:
    """Return what the system or the interpreter refused, in one line; None where it is a bug."""
    from jigsaw_opt.errors import JigsawError, MissingEngineError, reason_of

    match error:
        case JigsawError():
            return error
        case ModuleNotFoundError(name=str(name)) if not name.startswith("jigsaw_opt"):
            return MissingEngineError(f"the module {name!r}", name.partition(".")[0])
        case FileNotFoundError(filename=None) if _is_nowhere():
            return JigsawError("the current folder does not exist any more")
        case OSError(filename=None):
            return JigsawError(reason_of(error))
        case OSError():
            return JigsawError(f"{error.filename}: {reason_of(error)}")
        case MemoryError():
            return JigsawError("out of memory")
        case RecursionError():
            return JigsawError(f"too deep for Python: {error}")
    return None


def _spelled(name: str, value: object) -> str:
    """Return what the command line calls an argument of the library, which needs no value where that is true."""
    option = _SPELLED.get(name, "--" + name.replace("_", "-"))
    return option if value is None or value is True else f"{option} {value}"


def _is_nowhere() -> bool:
    """Return whether the current folder has been deleted."""
    import os

    try:
        os.getcwd()  # noqa: PTH109 - Path.cwd() asks the same
    except FileNotFoundError:
        return True
    return False


def _report_internal_error(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Say in one line what a bug raised; Python then ends with exit code 1."""
    from jigsaw_opt.text import printable

    told = printable(f"{kind.__name__}: {error}")
    print(f"internal error: {told}\nrun again with --debug for the traceback", file=sys.stderr)

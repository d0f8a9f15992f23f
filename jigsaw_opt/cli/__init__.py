"""The command line: arguments, calls and printing, one module a subcommand.

A subcommand is a module with ``HELP``, ``configure(parser)`` and ``run(arguments) -> exit code``;
it imports what it calls inside ``run``, so ``jigsaw --help`` loads no engine.
"""

from __future__ import annotations

import argparse
import os
import sys
from importlib import import_module
from types import TracebackType

from jigsaw_opt.cli.output import print_error
from jigsaw_opt.cli.parser import Parser
from jigsaw_opt.errors import JigsawError
from jigsaw_opt.text import printable

__all__ = ["COMMANDS", "main"]

COMMANDS = (
    "solve",
    "check",
    "validate",
    "instances",
    "generate",
    "convert",
    "profile",
    "run",
    "plot",
    "export",
    "bench",
    "simulate",
    "solvers",
    "schema",
)
INTERRUPTED = 130


def main(argv: list[str] | None = None) -> int:
    """Run one subcommand and return its exit code.

    Parameters
    ----------
    argv
        Arguments without the program's name; default those of the process.
    """
    arguments = _parser().parse_args(argv)
    if not arguments.debug:
        sys.excepthook = _report_internal_error
    try:
        return int(arguments.run(arguments))
    except JigsawError as error:
        if arguments.debug:
            raise
        print_error(error)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader has gone; point standard output at nothing, so that the final flush is silent.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="jigsaw", description="Schedule deep-learning training by mathematical optimisation.", allow_abbrev=False
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    parser.add_argument("--debug", action="store_true", help="show a traceback where something fails")
    common = Parser(add_help=False)
    common.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name in COMMANDS:
        module = import_module(f"jigsaw_opt.cli.{name}")
        sub = commands.add_parser(
            name, help=module.HELP, description=module.__doc__, parents=[common], allow_abbrev=False
        )
        module.configure(sub)
        sub.set_defaults(run=module.run)
    return parser


class _Version(argparse.Action):
    """Looks the version up only when it is asked for: the lookup reads the file system."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(f"jigsaw {version('jigsaw-opt')}")
        parser.exit()


def _report_internal_error(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Say in one line what a bug raised; Python then ends with exit code 1."""
    told = printable(f"{kind.__name__}: {error}")
    print(f"internal error: {told}\nrun again with --debug for the traceback", file=sys.stderr)

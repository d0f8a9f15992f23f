"""The parser of the command line, made of the subcommands' own."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from importlib import import_module

from jigsaw_opt import __version__
from jigsaw_opt.cli.parser import Parser

__all__ = ["parser_of"]


def parser_of(names: Iterable[str]) -> argparse.ArgumentParser:
    """Return the parser of all arguments.

    `names`: subcommands: modules of this package with ``HELP``, ``configure(parser)`` and ``run(arguments) -> exit
    code``, some with an ``EXAMPLE``.
    """
    parser = Parser(
        prog="jigsaw", description="Schedule deep-learning training by mathematical optimisation.", allow_abbrev=False
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    parser.add_argument("--debug", action="store_true", help="show a traceback where something fails")
    common = Parser(add_help=False)
    common.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name in names:
        module = import_module(f"jigsaw_opt.cli.{name}")
        example = getattr(module, "EXAMPLE", None)
        sub = commands.add_parser(
            name,
            help=module.HELP,
            description=module.__doc__,
            epilog=None if example is None else f"example: {example}",
            parents=[common],
            allow_abbrev=False,
        )
        module.configure(sub)
        sub.set_defaults(run=module.run)
    return parser


class _Version(argparse.Action):
    """Prints the version where argparse's own action would hide that nobody reads it."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(f"jigsaw {__version__}")
        parser.exit()

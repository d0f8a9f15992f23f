"""Reading the command line: argparse, with what users have typed made printable, and misspelt words answered."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from itertools import takewhile
from pathlib import Path
from typing import Any, NoReturn

from jigsaw_opt import __version__
from jigsaw_opt.cli.common.arguments import add_arguments
from jigsaw_opt.errors import malformed, not_together
from jigsaw_opt.text import nearest, printable, suggestion

_UNITS = {"": 1, "B": 1, **{f"{prefix}B": 1000**k for k, prefix in enumerate("KMGT", 1)}}
_UNITS |= {f"{prefix}iB": 1024**k for k, prefix in enumerate("KMGT", 1)}
_SIZE = re.compile(rf"([0-9]+(?:\.[0-9]+)?) ?({'|'.join(_UNITS)})", re.ASCII)
_MEASURED = re.compile(r"[0-9.]+ ?[A-Za-z]+")


class Parser(argparse.ArgumentParser):
    """A parser whose errors may repeat any argument and say what was meant; its subparsers are of this class too."""

    def error(self, message: str) -> NoReturn:
        """Print usage and the message on one line, and exit."""
        super().error(printable(message))

    # Typeshed has the overloads of the base.
    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse once every option is known: one that is misspelt would leave its value to another argument."""
        self._require_options(sys.argv[1:] if args is None else args)
        return super().parse_known_args(args, namespace)

    def _require_options(self, words: Sequence[str]) -> None:
        shown = [
            option for action in self._actions if action.help != argparse.SUPPRESS for option in action.option_strings
        ]
        unknown = [word for word in self._options_among(words) if word not in self._option_string_actions]
        if unknown:
            told = (f"no option {word!r}" + _after(suggestion(word, shown)) for word in dict.fromkeys(unknown))
            self.error(", ".join(told))

    def _options_among(self, words: Sequence[str]) -> Iterator[str]:
        """Yield the long options among the words, up to a subcommand, which has its own."""
        own = takewhile(lambda word: word != "--", words)
        if self._subparsers is not None:
            own = takewhile(lambda word: word.startswith("-"), own)
        yield from (word.partition("=")[0] for word in own if word.startswith("--") and " " not in word)

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        try:
            return super()._get_value(action, arg_string)
        except argparse.ArgumentError as error:
            if action.type not in (int, float):
                raise
            kind = "a whole number" if action.type is int else "a number"
            unit = " without a unit" if _MEASURED.fullmatch(arg_string) else ""
            told = f"{action.metavar or action.dest} is {kind}{unit}, not {arg_string!r}"
            raise argparse.ArgumentError(action, told) from error

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            told = f"invalid choice: {value!r}; {nearest(str(value), map(str, action.choices))}"
            raise argparse.ArgumentError(action, told)


def _after(hint: str) -> str:
    return f"; {hint}" if hint else ""


def file_or_stdout(text: str) -> Path | None:
    """Return the file that an option names, or None for ``-``, which is standard output."""
    return None if text == "-" else Path(text)


def size_of(text: str) -> int:
    """Read a size: a whole number of bytes, or a number with a unit."""
    found = _SIZE.fullmatch(text)
    size = float(found[1]) * _UNITS[found[2]] if found else 0
    exact = int(text) if text.isascii() and text.isdigit() else int(size)
    if not (found and exact < 2**53):
        raise argparse.ArgumentTypeError(f"a size is a number of bytes, as in 32GB or 34359738368, not {text!r}")
    return exact


def range_of(text: str) -> tuple[int, ...]:
    """Read whole numbers from 1 on: one, or a range as in 8..32."""
    found = re.fullmatch(r"([0-9]{1,6})(?:\.\.([0-9]{1,6}))?", text, re.ASCII)
    numbers = range(int(found[1]), int(found[2] or found[1]) + 1) if found else range(0)
    if not numbers or numbers[0] < 1:
        raise argparse.ArgumentTypeError(f"a whole number above 0 or a range of them, as in 8..32, not {text!r}")
    return tuple(numbers)


def option_of(name: str) -> str:
    """Return how an argument of this name is written: `time_limit` as ``--time-limit``."""
    return "--" + name.replace("_", "-")


def whole_numbers(option: str, text: str, wanted: str, least: int = 0) -> tuple[int, ...]:
    """Return the numbers of a list such as ``10,12``.

    `wanted`: what the option takes, in words. `least`: the least number that it takes.
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and least <= int(part) < 2**53 for part in parts):
        raise malformed(option, f"{option} is a list of {wanted}, not {text!r}")
    return tuple(map(int, parts))


def require_none(arguments: argparse.Namespace, why: str, *names: str) -> None:
    """Refuse options that say nothing here."""
    values = {name: getattr(arguments, name) for name in names}
    given = [option_of(name) for name, value in values.items() if value is not None and value is not False]
    if given:
        raise not_together(", ".join(given), f"{why}; leave out {', '.join(given)}")


class Command(Parser):
    """The parser of a subcommand, which has its arguments from the moment that it is asked for.

    `module`: in this room; it has ``ARGUMENTS`` and ``run(arguments) -> exit code``, some a ``USAGE``
    and an ``EXAMPLE``.
    """

    def __init__(self, module: str, **others: Any) -> None:
        super().__init__(allow_abbrev=False, **others)
        self.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
        self._module = module

    def configure(self) -> Command:
        """Add the arguments, once."""
        if self.description is None:
            module = import_module(f"jigsaw_opt.cli.{self._module}")
            example = getattr(module, "EXAMPLE", None)
            self.description, self.epilog = module.__doc__, None if example is None else f"example: {example}"
            self.usage = getattr(module, "USAGE", None)
            add_arguments(self, module.ARGUMENTS)
            self.set_defaults(run=module.run)
        return self

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse what follows the name of the subcommand."""
        self.configure()
        return super().parse_known_args(args, namespace)


def parser_of(commands: Mapping[str, tuple[str, str]]) -> argparse.ArgumentParser:
    """Return the parser of all arguments.

    `commands`: by name, the module of each subcommand in this room, and what it does.
    """
    parser = Parser(
        prog="jigsaw", description="Schedule deep-learning training by mathematical optimisation.", allow_abbrev=False
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    parser.add_argument("--debug", action="store_true", help="show a traceback where something fails")
    own = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=Command)
    for name, (module, told) in commands.items():
        own.add_parser(name, help=told, module=module)
    return parser


def commands_of(commands: Mapping[str, tuple[str, str]]) -> dict[str, Command]:
    """Return, by name, the parser of every subcommand with all its arguments."""
    (own,) = (action for action in parser_of(commands)._actions if isinstance(action, argparse._SubParsersAction))
    return {name: command.configure() for name, command in own.choices.items()}


class _Version(argparse.Action):
    """Prints the version where argparse's own action would hide that nobody reads it."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(f"jigsaw {__version__}")
        parser.exit()

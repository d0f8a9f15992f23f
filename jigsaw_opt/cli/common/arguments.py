"""The arguments of a subcommand as rows: how each is written in a line of usage, and what it is for."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

Arguments: TypeAlias = Mapping[str, "str | Mapping[str, Any]"]
"""By how an argument is written, its help, or that with other arguments of `add_argument`.

An option is written as in ``-o, --output FILE``, a flag as in ``--json``, and another argument behind its name in the
code, as in ``plan PLAN``, or ``[plan] PLAN`` where it may be left out. Several choices are written in small letters, as
in ``finite|cyclic``. Behind these, ``...`` is one value or more, ``*`` an option that may be given again, and ``= 0`` a
default, which the help then tells. Names that end in a colon are titles of groups with rows of their own.
"""
_TYPES: Mapping[str, type] = {
    **dict.fromkeys(("N", "BYTES", "MICROSECONDS", "OBJECTIVE", "PERCENT", "US"), int),
    **dict.fromkeys(("FACTOR", "HOURS", "SECONDS", "SHARE", "UNITS"), float),
    **dict.fromkeys(("COSTS", "DIR", "DIR|FILE", "FILE", "PAGE", "PLAN", "PROFILE", "PROOF"), Path),
}
"""What the values are that are called so; others are text."""
_MARKS = frozenset(("...", "*", "!"))
_ONE_OF = {"one of:": False, "exactly one of:": True}
"""Titles of groups of which no two go together, and whether one of them is required."""
PLAN: Arguments = {
    "instance INSTANCE": "an instance document, or the name of a bundled instance",
    "plan PLAN": "a plan document",
}
A_PROOF = "a proof, as `jigsaw solve --proof` writes it"
"""What an option ``--proof PROOF`` takes."""
PROGRESS: Arguments = {
    "-q, --quiet": "no progress",
    "-v, --verbose": "progress as lines, also where there is no terminal",
}
SEED: Arguments = {
    "--seed N = 0": "seed",
    "--threads N": "threads (default: all cores); with 1 and without a time limit, plans repeat",
}
EFFORT_OF_ALL: Arguments = {
    "--time-limit SECONDS = 60": "limit of all solves together",
    "--work-limit UNITS": "limit of all solves together in deterministic units",
    **SEED,
}


def add_arguments(parser: argparse._ActionsContainer, arguments: Arguments) -> None:
    """Add the arguments that rows state."""
    for written, told in arguments.items():
        own = {"help": told} if isinstance(told, str) else dict(told)
        if written in _ONE_OF:
            add_arguments(parser.add_mutually_exclusive_group(required=_ONE_OF[written]), own)
        elif written.endswith(":"):
            add_arguments(parser.add_argument_group(written[:-1]), own)
        else:
            _add(parser, written, own)


def _add(parser: argparse._ActionsContainer, written: str, told: dict[str, Any]) -> None:
    """Add one argument; what is `told` goes before what follows from how it is written."""
    usage, _, default = written.partition(" = ")
    words = usage.split()
    names = [word.rstrip(",") for word in words if word.startswith("-")]
    marks, values = _MARKS.intersection(words), [word for word in words if word[0] != "-" and word not in _MARKS]
    found: dict[str, Any] = {"required": True} if "!" in marks else {}
    if not names:
        first = values.pop(0)
        names, may_lack = [first.strip("[]")], first.startswith("[")
        found["nargs"] = ("*" if may_lack else "+") if "..." in marks else "?" if may_lack else None
    elif not values:
        found["action"] = "store_true"
    elif "..." in marks:
        found |= {"nargs": "+", "action": "extend"}
    elif "*" in marks:
        found |= {"action": "append", "default": None if "!" in marks else []}
    for value in values:
        choices = value.replace("|", "").islower()
        found |= {"choices": tuple(value.split("|"))} if choices else {"metavar": value, "type": _TYPES.get(value)}
    found |= told
    if default:
        found["default"] = (found.get("type") or str)(default)
        found["help"] += "" if "(default: " in found["help"] else f" (default: {default})"
    parser.add_argument(*names, **found)

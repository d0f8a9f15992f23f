"""What the help of an option says."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from jigsaw_opt.cli import COMMANDS
from jigsaw_opt.cli.arguments import parser_of


def _options(parser: argparse.ArgumentParser, name: str) -> Iterator[tuple[str, argparse.Action]]:
    """Every option that takes a value, with its command."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command, sub in action.choices.items():
                yield from _options(sub, f"{name} {command}")
        elif action.option_strings and action.help != argparse.SUPPRESS and action.nargs != 0:
            yield f"{name} {action.option_strings[-1]}", action


OPTIONS = dict(_options(parser_of(COMMANDS), "jigsaw"))
UNITS = (
    "time",
    "limit",
    "bandwidth",
    "memory",
    "latency",
    "grid",
    "round",
    "restart",
    "minutes",
    "until",
    "improvement",
)
SPELLED = ("seconds", "microseconds", "bytes", "minutes", "hours", "units", "amplification")


def test_options_say_what_they_are_and_their_default() -> None:
    fragments = [
        name for name, option in OPTIONS.items() if (option.help or "of ").startswith(("of ", "for ", "per ", "a sec"))
    ]
    silent = [
        name
        for name, option in OPTIONS.items()
        if option.default not in (None, "", []) and "default: " not in str(option.help)
    ]
    bare = [
        name
        for name, option in OPTIONS.items()
        if option.default not in (None, "", []) and str(option.help).startswith("default")
    ]
    assert OPTIONS
    assert (fragments, silent, bare) == ([], [], [])


def test_options_of_durations_and_sizes_say_their_unit() -> None:
    numbers = [(name, option) for name, option in OPTIONS.items() if option.type in (int, float)]
    measured = [
        (name, number) for name, number in numbers if any(word in name.rpartition("--")[2].split("-") for word in UNITS)
    ]
    assert measured
    assert [
        name for name, each in measured if not any(unit in f"{each.metavar} {each.help}".lower() for unit in SPELLED)
    ] == []

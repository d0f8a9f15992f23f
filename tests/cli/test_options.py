"""What the help of an option says."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from jigsaw_opt.cli import COMMANDS
from jigsaw_opt.cli.common.arguments import Arguments, add_arguments
from jigsaw_opt.cli.common.parser import commands_of, parser_of
from jigsaw_opt.cli.plans.solve import _print
from jigsaw_opt.instances import load
from jigsaw_opt.solvers.result import Result, Status, StoppedBy

OPTIONS = {
    f"jigsaw {name} {action.option_strings[-1]}": action
    for name, command in commands_of(COMMANDS).items()
    for action in command._actions
    if action.option_strings and action.help != argparse.SUPPRESS and action.nargs != 0
}
UNITS = {
    *("time", "limit", "grid", "round", "restart", "minutes", "until", "improvement"),
    *("bandwidth", "memory", "latency"),
}
SPELLED = ("seconds", "microseconds", "bytes", "minutes", "hours", "units", "amplification")


def test_options_say_what_they_are_and_their_default() -> None:
    helps = {name: option.help or "of " for name, option in OPTIONS.items()}
    none = (None, "", [], argparse.SUPPRESS)
    defaults = {name: helps[name] for name, option in OPTIONS.items() if option.default not in none}
    fragments = [name for name, told in helps.items() if told.startswith(("of ", "for ", "per ", "a sec"))]
    silent = [name for name, told in defaults.items() if "default: " not in told or told.startswith("default")]
    assert defaults and (fragments, silent) == ([], [])


def test_options_of_durations_and_sizes_say_their_unit() -> None:
    numbers = [(name, option) for name, option in OPTIONS.items() if option.type in (int, float)]
    told = {
        name: f"{number.metavar} {number.help}".lower()
        for name, number in numbers
        if UNITS & set(name.rpartition("--")[2].split("-"))
    }
    assert told
    assert [name for name, text in told.items() if not any(unit in text for unit in SPELLED)] == []


@pytest.mark.parametrize("method", ["auto", "greedy", "search", "phased"])
@pytest.mark.parametrize("stopped_by", [StoppedBy.TIME, StoppedBy.COMPLETED])
def test_advice_without_a_plan_never_names_what_was_just_done(
    method: str, stopped_by: StoppedBy, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = parser_of(COMMANDS).parse_args(["solve", "rack/plain", "--solver", method, "--work-limit", "1"])
    result = Result(Status.UNKNOWN, stopped_by, None, 1, None, ruled_out="plans in which no job moves")
    _print(load("rack/plain"), result, arguments)
    told = capsys.readouterr().err
    assert ("--work-limit" in told) == (stopped_by is StoppedBy.TIME) and "--seed" in told
    assert ("auto" in told) == (method != "auto") and "greedy" not in told
    assert "no job moves" in told and "prove that" not in told


def test_arguments_are_rows_written_as_in_a_line_of_usage() -> None:
    parser = argparse.ArgumentParser()
    rows: Arguments = {
        "plan PLAN": "a plan",
        "[others] NAME ...": "names",
        "-n, --seed N = 3": "seed",
        "--form short|long = long": "form (default: long, as before)",
        "--least NAME=RATE *": "rates",
        "--policy NAME ... !": "policies",
        "one of:": {"--dry": "say it", "--wet": "do it"},
        "limits:": {"--time-limit SECONDS": {"help": "seconds", "dest": "limit_s"}},
    }
    add_arguments(parser, rows)
    assert vars(parser.parse_args(["p.json", "a", "b", "--policy", "x", "--policy", "y", "z", "--least", "a=1"])) == {
        "plan": Path("p.json"),
        "others": ["a", "b"],
        "seed": 3,
        "form": "long",
        "least": ["a=1"],
        "policy": ["x", "y", "z"],
        "dry": False,
        "wet": False,
        "limit_s": None,
    }
    told = " ".join(parser.format_help().split())
    assert all(text in told for text in ("seed (default: 3)", "form (default: long, as before)", "limits:"))
    for wrong in ("p.json", "p.json --policy x --dry --wet", "p.json --policy x --form tall", "p.json --policy x -n a"):
        with pytest.raises(SystemExit):
            parser.parse_args(wrong.split())

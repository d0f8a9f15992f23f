"""Closed and full streams, plain terminals, deleted folders and absurd options: an exit code and a few lines."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator

from .contract import Campaign, Part, Trial
from .documents import PAIR, written
from .launch import CODES, Ended, Running, judged, tried

_PROGRAM = f"{shlex.quote(sys.executable)} -m jigsaw_opt"
_SOLVE, _LINES = "solve instance.json --solver greedy -v", 40
_COMMANDS = ("--version", "--help", _SOLVE, f"{_SOLVE} --json", "instances tiny", "schema plan")
_STREAMS = (">&-", ">/dev/full", "2>&-", "2>/dev/full", ">&- 2>&-", "| true", "<&-")
_ASCII = {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
_HUGE = "9" * 5000
_OPTIONS = (
    *(f"--threads {n}" for n in (2**31, 10**30)),
    *(f"--threads 1000000 --solver {solver}" for solver in ("cpsat", "ilp")),
    *(f"--seed {n}" for n in (2**70, -1)),
    *(f"--time-limit {n}" for n in ("1e308", "inf", "nan")),
    *(f"--target {10**40}", "--gap 1e-400", "--work-limit 1e308", "--engine unknown"),
)
_ABSURD = (
    *(f"solve tiny/000 --time-limit 2 -q {option}" for option in _OPTIONS),
    *(f"solve rack:{_HUGE}", f"solve rack:1:servers={_HUGE}", f"solve rack:1:load={_HUGE}", "solve .", "solve ''"),
    f"generate rack --seed {10**30} -o rack.json",
    *(f"bench tiny/000 --{option} -o bench" for option in (f"seeds {2**70}", f"jobs {10**30}")),
    f"simulate --workload {_HUGE} --cluster 1x1 --policy fifo -o out",
    f"simulate --workload w --cluster {_HUGE}x4 --policy fifo -o out",
    *(f"check {_HUGE} {_HUGE}", f"validate {_HUGE}", "validate .", f"solve instance.json --warm {_HUGE}"),
)


def trials(campaign: Campaign) -> Iterator[Trial]:
    """Each of them, once; below scale 1 a sample."""
    folder, random = campaign.fresh("small"), campaign.random("small")
    written(PAIR, folder / "instance.json")
    shell = [(stream, f"jigsaw {words} {stream}", {}) for words in _COMMANDS for stream in _STREAMS]
    shell += [("an ASCII terminal", f"jigsaw {words}", _ASCII) for words in _COMMANDS]
    gone = 'mkdir gone; cd gone; rmdir "$PWD"; jigsaw'
    shell += [("a deleted folder", f"{gone} {words}", {}) for words in (_COMMANDS[4], "solve tiny/000 -q -o plan.json")]
    for fault, command, environment in random.sample(shell, min(len(shell), campaign.times(len(shell)))):
        full = f"set -o pipefail; {command.replace('jigsaw', _PROGRAM)}"
        ended = Running(["bash", "-c", full], command, folder, environment).end()
        codes = {0} if fault in ("an ASCII terminal", "<&-") else CODES | {1}
        yield judged(fault, folder, ended, codes, _many(ended))
    for command in random.sample(_ABSURD, min(len(_ABSURD), campaign.times(len(_ABSURD)))):
        yield tried("absurd options", folder, shlex.split(command), {0, 2, 3, 5}, _many)


def _many(ended: Ended) -> str:
    lines = len(ended.err.splitlines())
    return f"{lines} lines of complaint" if lines > _LINES and ended.code else ""


PARTS = (Part("small", "odd streams, folders and options end with an exit code and a few lines", trials),)

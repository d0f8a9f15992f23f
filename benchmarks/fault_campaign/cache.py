"""The cache of compiled functions: cold, not writable, damaged. It never costs more than the limit, nor the answer."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from random import Random

from .contract import Campaign, Count, Part, Trial, first
from .launch import HOME, Running, failure, jigsaw, late, run_jigsaw, start_seconds

__all__ = ["PART"]

_AT_ONCE = ("server/demo", "--time-limit", 30, "--workers", 1)
"""Solved by `auto` in a moment."""
_LIMITED = ("rack/weighted", "--solver", "search")
_PATIENCE = 120.0
_READ_ONLY = (
    *("unshare", "--mount", "sh", "-c"),
    'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec setpriv --bounding-set -dac_override "$@"',
    str(HOME),
)
"""Runs a program that sees the package on a file system without writing."""
_AFTER = 2.5
"""Seconds from the plan to the end of the process."""


def trials(campaign: Campaign) -> Iterator[Trial]:
    """Each state of the cache, and three kinds of runs."""
    if find_spec("numba") is None:
        return
    for number in range(campaign.times(1)):
        for state in ("cold", "no folder", *(["nothing can be written"] if _may_mount() else []), "damaged"):
            yield _at_once(campaign, state, number)
        for limit in (1, 3):
            yield _limited(campaign, limit)
        yield _interrupted(campaign)


def _may_mount() -> bool:
    return subprocess.run([*_READ_ONLY, "true"], capture_output=True, check=False).returncode == 0


def _cache(campaign: Campaign, state: str, number: int) -> str:
    folder = campaign.fresh("cache") / "numba"
    if state == "no folder":
        folder.write_text("a file where the folder should be")
    elif state == "damaged":
        _damage(folder, campaign.random("cache", number))
    else:
        folder.mkdir(mode=0o555 if state.startswith("nothing") else 0o755)
    return str(folder)


def _damage(folder: Path, random: Random) -> None:
    """A full cache whose files are cut, emptied or changed."""
    warm = {"NUMBA_CACHE_DIR": str(folder)}
    folder.mkdir()
    words = ("solve", *_LIMITED, "--time-limit", 60, "--no-improvement", 30, "-q")
    running = jigsaw(*words, folder=folder, environment=warm)
    running.wait(lambda: running.seconds > 45 or not running.alive, 50)
    running.signal(signal.SIGINT)
    running.end(_PATIENCE)
    for number, path in enumerate(sorted(path for path in folder.rglob("*.nb*"))):
        data = bytearray(path.read_bytes())
        if number % 3 == 0:
            data = data[: len(data) // 2]
        elif number % 3 == 1:
            data = bytearray(random.randbytes(len(data)))
        else:
            data[len(data) // 2] ^= 255
        path.write_bytes(data)


def _at_once(campaign: Campaign, state: str, number: int) -> Trial:
    """From the plan in its file to the end of the process."""
    folder = campaign.fresh("plans")
    plan = folder / "plan.json"
    environment = {"NUMBA_CACHE_DIR": _cache(campaign, state, number)}
    wrapper: tuple[str, ...] = ()
    if state == "nothing can be written":
        environment["HOME"], wrapper = environment["NUMBA_CACHE_DIR"], _READ_ONLY
    words = ("solve", *_AT_ONCE, "-q", "-o", plan)
    running = jigsaw(*words, folder=folder, environment=environment, wrapper=wrapper, powerless=not wrapper)
    running.wait(plan.exists, _PATIENCE)
    answered = running.seconds
    ended = running.end(_PATIENCE)
    after = ended.seconds - answered
    wrong = first(
        failure(ended, {0}),
        f"{after:.1f} s from the plan to the end" if after > _AFTER else "",
        _noise(ended.err),
    )
    return Trial(f"{state}: from the plan to the end", wrong, ended.command, after, counts={Count.FAULTS: 1})


def _noise(said: str) -> str:
    lines = [line for line in said.splitlines() if "numba" in line.lower() or "Warning" in line]
    return f"says {lines[0]!r}" if lines else ""


def _limited(campaign: Campaign, limit: int) -> Trial:
    folder = campaign.fresh("plans")
    start = start_seconds(folder)
    ended = run_jigsaw(
        *("solve", *_LIMITED, "--time-limit", limit, "-q"),
        folder=folder,
        environment={"NUMBA_CACHE_DIR": _cache(campaign, "cold", 0)},
        timeout=_PATIENCE,
    )
    wrong = first(failure(ended, {0}), late(ended, limit, start), _noise(ended.err))
    return Trial(f"cold: a limit of {limit} s", wrong, ended.command, ended.seconds, counts={Count.FAULTS: 1})


def _interrupted(campaign: Campaign) -> Trial:
    folder = campaign.fresh("plans")
    environment = {"NUMBA_CACHE_DIR": _cache(campaign, "cold", 0)}
    words = ("solve", *_LIMITED, "--time-limit", 60, "-q")
    running: Running = jigsaw(*words, folder=folder, environment=environment)
    running.wait(lambda: running.seconds > 2.5, _PATIENCE)
    running.signal(signal.SIGINT)
    sent = running.seconds
    ended = running.end(_PATIENCE)
    after = ended.seconds - sent
    slow = f"{after:.1f} s from the interrupt to the end" if after > 2 * _AFTER else ""
    counts = {Count.FAULTS: 1, Count.SIGNALS: 1}
    return Trial("cold: Ctrl-C", first(failure(ended, {130}), slow), ended.command, after, counts=counts)


PART = Part("cache", "compiling never outlives an answer, counts in the limit, and a bad cache is no trouble", trials)

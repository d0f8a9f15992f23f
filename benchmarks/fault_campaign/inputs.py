"""Inputs of an enemy: files that would run code, without end, of great size, deep, or wrong in a million places."""

from __future__ import annotations

import json
import os
import pickle
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from .contract import Campaign, Part, Trial
from .documents import PAIR, instance, written
from .launch import GIBIBYTE, Ended, tried

_MEBIBYTE = 2**20
_LARGE, _LEAST, _PROBLEMS = 100 * _MEBIBYTE, 4 * _MEBIBYTE, 400_000
"""Bytes of the large files at scale 1 and at least, and how many things are wrong."""
_TIMES, _BASE, _ENDLESS = 10, 64 + 46, 1000
"""Memory allowed for a file: so many times its size, and MiB for any and the program; MiB for one without end."""
_SIMULATE = ("simulate", "--cluster", "2x4", "--policy", "fifo", "-o", "out", "--workload")


class Touch:
    """What is unpickled touches a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return open, (str(self.path), "w")


def forged(campaign: Campaign) -> Iterator[Trial]:
    """One pickle in the place of other files, bare and below the header of an old snapshot."""
    folder = campaign.fresh("forged")
    marker, source, plan = folder / "marker", written(PAIR, folder / "instance.json"), folder / "plan.json"
    out, trace = folder / "out", folder / "trace.csv"
    out.mkdir()
    trace.write_text("name,submit_s,model,gpus,iterations\na,0,m,1,9\n")
    yield tried("a genuine plan", folder, ("solve", source, "--solver", "greedy", "-q", "-o", plan), {0})
    places: dict[Path, tuple[object, ...]] = {
        folder / "forged.json": ("solve", folder / "forged.json"),
        folder / "forged.csv": (*_SIMULATE, folder / "forged.csv"),
        folder / "old.json": ("check", source, folder / "old.json"),
        folder / "replay.json": ("plot", source, plan, "--replay", folder / "replay.json"),
        out / "snapshot": (*_SIMULATE, trace, "--resume"),
    }
    old = b'{"format": "jigsaw-snapshot/1", "inputs": "", "time_us": 0, "ended": 0}\n'

    def ran(ended: Ended) -> str:
        return "the file has run code" if marker.exists() else ""

    for path, words in places.items():
        for head in (b"", old):
            path.write_bytes(head + pickle.dumps(Touch(marker)))
            yield tried(f"forged: {path.name}", folder, words, {3}, ran, files=(path,))


def reading(campaign: Campaign) -> Iterator[Trial]:
    """Endless ones, then files."""
    folder = campaign.fresh("reading")
    pair, pipe, trace = written(PAIR, folder / "pair.json"), folder / "pipe.json", folder / "trace.csv"
    zeros = "/dev/zero"
    for words in (("validate", zeros), ("solve", zeros, "-q"), ("check", pair, zeros), (*_SIMULATE, zeros)):
        yield _bounded("zeros without end", folder, words, _ENDLESS)
    yield _bounded("zeros without end", folder, (*_SIMULATE, f"philly:{zeros}"), _ENDLESS)
    with _Endless(pipe):
        yield _bounded("a pipe without end", folder, ("validate", pipe), _ENDLESS)
    trace.write_text("name,model,submit_us,gpus\n" + "".join(f"{job:x},m,1,1\n" for job in range(999_999)))
    yield _bounded("a million short lines", folder, (*_SIMULATE, trace), _allowed(trace))
    for fault, data in _files(max(_LEAST, int(_LARGE * min(1.0, campaign.scale))), campaign.times(_PROBLEMS)):
        path = folder / "large.json"
        path.write_bytes(data)
        for command in ("validate", "solve"):
            yield _bounded(fault, folder, (command, path), _allowed(path))


def _allowed(path: Path) -> float:
    return _TIMES * path.stat().st_size / _MEBIBYTE + _BASE


def _bounded(fault: str, folder: Path, words: tuple[object, ...], most: float) -> Trial:
    def holds(ended: Ended) -> str:
        return f"{ended.mebibytes:.0f} MiB, not {most:.0f} at most" if ended.mebibytes > most else ""

    return tried(f"{fault}: {words[0]}", folder, words, {2, 3}, holds, memory=4 * GIBIBYTE)


class _Endless:
    """A pipe whose writer never stops: `[1,1,1,…`, until nobody reads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        os.mkfifo(path)

    def __enter__(self) -> None:
        threading.Thread(target=self._feed, daemon=True).start()

    def _feed(self) -> None:
        with suppress(BrokenPipeError), self.path.open("wb", buffering=0) as stream:
            stream.write(b"[")
            while True:
                stream.write(b"1," * 50_000)

    def __exit__(self, *_: object) -> None:
        # A reader that never came would leave the writer waiting.
        with suppress(OSError):
            os.close(os.open(self.path, os.O_RDONLY | os.O_NONBLOCK))
        self.path.unlink()


def _files(size: int, wrong: int) -> Iterator[tuple[str, bytes]]:
    head = b'{"format": "jigsaw-instance/1", '
    yield "a list of ones", b"[" + b"1," * (size // 2) + b"1]"
    for key, item in ((b"jobs", b"1"), (b"name", b"{}"), (b"models", b"[]")):
        many = (item + b",") * (size // (len(item) + 1))
        yield f"a list for {key.decode()}", head + b'"' + key + b'": [' + many + item + b"]}"
    yield "deep objects", b'{"a":' * (size // 50)
    yield "deep lists", b"[" * (size // 10)
    yield "a long name", head + b'"name": "' + b"x" * size + b'"}'
    yield "a long number", b"9" * (size // 10)
    yield "one key again and again", head + b'"name": "a", ' * wrong + b'"name": "a"}'
    for fault, job in {
        "wrong jobs": b'{"name": 1, "model": 2, "workers": -1, "more": 0}',
        "wide characters": '{"name": "😀", "model": 2, "workers": -1, "more": 0}'.encode(),
        "jobs with a key twice": b'{"name": "a", "model": "none", "workers": 1, "name": "a"}',
        "jobs of one name without a model": b'{"name": "a", "model": "none", "workers": 1, "iterations": 1}',
        "lone surrogates": rb'"\ud800"',
    }.items():
        before, _, after = json.dumps(instance([])).encode().partition(b'"jobs": [')
        yield fault, before + b'"jobs": [' + job + (b", " + job) * (wrong - 1) + after


PARTS = (
    Part("forged", "no file runs code: it is refused", forged),
    Part("reading", "no input takes more than ten times its size in memory; endless ones are refused", reading),
)

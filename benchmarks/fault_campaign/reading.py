"""Inputs without end, of great size, deep, or wrong in a million places: refused in time and in little memory."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from . import documents
from .contract import Campaign, Count, Part, Trial, first
from .launch import GIBIBYTE, Ended, failure, run_jigsaw

__all__ = ["PART"]

_PATIENCE = 60.0
_MEBIBYTE = 2**20
_LARGE = 100 * _MEBIBYTE
"""Size of the large files at scale 1 and above."""
_LEAST = 4 * _MEBIBYTE
_PROBLEMS = 400_000
_TIMES, _BASE_MEBIBYTES = 10, 64 + 46
"""Memory allowed for a file: so many times its size, what is allowed for any, and that of the program."""
_ENDLESS_MEBIBYTES = 3000
_MOST_SAID = 20_000
"""Characters of complaint, where a million things are wrong."""
_FAULT = {Count.FAULTS: 1}


def trials(campaign: Campaign) -> Iterator[Trial]:
    """Endless ones, then files."""
    folder = campaign.fresh("reading")
    pair = documents.written(documents.PAIR, folder / "pair.json")
    words: tuple[object, ...]
    for words in (("validate", "/dev/zero"), ("solve", "/dev/zero", "-q"), ("check", pair, "/dev/zero")):
        ended = run_jigsaw(*words, folder=folder, timeout=_PATIENCE, memory=4 * GIBIBYTE)
        yield _judged(f"zeros without end: {words[0]}", ended, _ENDLESS_MEBIBYTES)
    for name in ("philly", ""):
        words = ("simulate", "--workload", f"{name}{':' * bool(name)}/dev/zero", "--cluster", "2x4", "--policy", "fifo")
        ended = run_jigsaw(*words, "-o", folder / "out", folder=folder, timeout=_PATIENCE, memory=4 * GIBIBYTE)
        yield _judged(f"zeros without end: simulate {name}".strip(), ended, _ENDLESS_MEBIBYTES, codes={2, 3})
    yield _endless_pipe(folder)
    trace = folder / "trace.csv"
    trace.write_text("name,model,submit_us,gpus\n" + "".join(f"{job:x},m,1,1\n" for job in range(999_999)))
    words = ("simulate", "--workload", trace, "--cluster", "2x4", "--policy", "fifo", "-o", folder / "out")
    ended = run_jigsaw(*words, folder=folder, timeout=_PATIENCE, memory=4 * GIBIBYTE)
    yield _judged("a million short lines", ended, _TIMES * trace.stat().st_size / _MEBIBYTE + _BASE_MEBIBYTES)
    trace.unlink()
    for fault, path in _files(folder, campaign):
        megabytes = path.stat().st_size / _MEBIBYTE
        for words in (("validate", path), ("solve", path, "-q")):
            ended = run_jigsaw(*words, folder=folder, timeout=_PATIENCE, memory=8 * GIBIBYTE)
            yield _judged(f"{fault}: {words[0]}", ended, _TIMES * megabytes + _BASE_MEBIBYTES)
        path.unlink()


def _judged(fault: str, ended: Ended, mebibytes: float, codes: set[int] | None = None) -> Trial:
    wrong = first(
        failure(ended, codes or {3}),
        f"{ended.mebibytes:.0f} MiB, not {mebibytes:.0f} at most" if ended.mebibytes > mebibytes else "",
        f"{len(ended.err)} characters of complaint" if len(ended.err) > _MOST_SAID else "",
    )
    return Trial(fault, wrong, ended.command, ended.seconds, ended.mebibytes, _FAULT)


def _endless_pipe(folder: Path) -> Trial:
    """A pipe whose writer never stops: `[1,1,1,…`."""
    pipe = folder / "pipe.json"
    os.mkfifo(pipe)

    def feed() -> None:
        chunk = b"1," * 50_000
        with suppress(BrokenPipeError), pipe.open("wb", buffering=0) as stream:
            stream.write(b"[")
            while True:
                stream.write(chunk)

    writer = threading.Thread(target=feed, daemon=True)
    writer.start()
    ended = run_jigsaw("validate", pipe, folder=folder, timeout=_PATIENCE, memory=4 * GIBIBYTE)
    # A reader that never came would leave the writer waiting.
    with suppress(OSError):
        os.close(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK))
    pipe.unlink()
    return _judged("a pipe without end", ended, _ENDLESS_MEBIBYTES)


def _files(folder: Path, campaign: Campaign) -> Iterator[tuple[str, Path]]:
    size = max(_LEAST, int(_LARGE * min(1.0, campaign.scale)))
    path = folder / "large.json"
    path.write_bytes(b"[" + b"1," * (size // 2) + b"1]")
    yield "a list of ones", path
    for key, item in (("jobs", b"1"), ("name", b"{}"), ("models", b"[]")):
        many = (item + b",") * (size // (len(item) + 1))
        path.write_bytes(b'{"format": "jigsaw-instance/1", "' + key.encode() + b'": [' + many + item + b"]}")
        yield f"a list of {item.decode()} for {key}", path
    path.write_bytes(b'{"a":' * (size // 50))
    yield "deep objects", path
    path.write_bytes(b"[" * (size // 10))
    yield "deep lists", path
    path.write_bytes(b'{"format": "jigsaw-instance/1", "name": "' + b"x" * size + b'"}')
    yield "a long name", path
    path.write_bytes(b"9" * (size // 10))
    yield "a long number", path
    wrong = campaign.times(_PROBLEMS)
    path.write_bytes(_with_jobs(b'{"name": 1, "model": 2, "workers": -1, "more": 0}', wrong))
    yield "wrong jobs", path
    path.write_bytes(_with_jobs('{"name": "😀", "model": 2, "workers": -1, "more": 0}'.encode(), wrong))
    yield "wrong jobs with a wide character", path
    path.write_bytes(_with_jobs(b'{"name": "a", "model": "none", "workers": 1, "name": "a"}', wrong))
    yield "jobs with a key twice", path
    path.write_bytes(_with_jobs(rb'"\ud800"', size // 10))
    yield "lone surrogates for jobs", path
    path.write_bytes(_with_jobs(b'{"name": "a", "model": "none", "workers": 1, "iterations": 1}', wrong))
    yield "jobs of one name without a model", path
    path.write_bytes(b'{"format": "jigsaw-instance/1", ' + b'"name": "a", ' * wrong + b'"name": "a"}')
    yield "one key again and again", path


def _with_jobs(job: bytes, count: int) -> bytes:
    head, _, tail = documents.json_bytes(documents.instance([])).partition(b'"jobs": [')
    return head + b'"jobs": [' + job + (b", " + job) * (count - 1) + tail


PART = Part("reading", "no input takes more than ten times its size in memory; endless ones are refused", trials)

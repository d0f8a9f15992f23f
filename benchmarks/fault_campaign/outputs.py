"""Where results are written: what is no regular file, what cannot be written, a full disk, kills, two writers."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from . import documents
from .contract import Campaign, Count, Part, Trial, first
from .launch import Ended, Running, failure, jigsaw, lasting, run_jigsaw, start_seconds
from .referee import verdict
from .solvers import read

__all__ = ["PART"]

_SLOW = ("rack/weighted", "--time-limit", 8)
"""What is solved where the output cannot be written: nobody waits for it where that is told at first."""
_KILLS, _PATIENCE = 20, 40.0
_FAULT = {Count.FAULTS: 1}


def trials(campaign: Campaign) -> Iterator[Trial]:
    """Every kind of output."""
    for name, kind in _KINDS.items():
        yield kind(_Place(campaign.fresh("outputs"), name))
    yield from _not_writable(campaign)
    yield from _full(campaign)
    for number in range(campaign.times(_KILLS)):
        yield _killed_while_writing(campaign, number)
    for number in range(campaign.times(3)):
        for command in ("bench", "simulate"):
            yield _killed_while_sweeping(campaign, command, number)
        yield _two_plans(campaign, number)
    yield _two_sweeps(campaign)


class _Place:
    """A folder with an instance, and a solve that writes a plan there."""

    def __init__(self, folder: Path, fault: str) -> None:
        self.folder, self.fault = folder, fault
        self.instance = documents.written(documents.PAIR, folder / "instance.json")

    def solve(self, output: Path, **how: object) -> Ended:
        words = ("solve", self.instance, "--solver", "greedy", "-q", "-o", output)
        return run_jigsaw(*words, folder=self.folder, timeout=_PATIENCE, **how)

    def whole(self, text: str) -> str:
        """Whether a text holds the whole plan."""
        begin, end = text.find("{"), text.rfind("}")
        try:
            broken = verdict(documents.PAIR, json.loads(text[begin : end + 1]))
        except ValueError:
            return "the plan did not arrive whole"
        return f"a wrong plan: {broken}" if broken else ""

    def trial(self, ended: Ended, *wrong: str, codes: frozenset[int] = frozenset({0})) -> Trial:
        left = [path.name for path in self.folder.glob(".*")]
        said = (failure(ended, codes), *wrong, f"left behind: {left[0]}" if left else "")
        return Trial(self.fault, first(*said), ended.command, ended.seconds, ended.mebibytes, _FAULT)


def _is_link(path: Path) -> str:
    return "" if path.is_symlink() else f"{path.name} is no link any more"


def _standard_output(place: _Place) -> Trial:
    link = place.folder / "out"
    link.symlink_to("/proc/self/fd/1")
    ended = place.solve(link)
    return place.trial(ended, _is_link(link), place.whole(ended.out.partition("objective  bound")[0]))


def _null_device(place: _Place) -> Trial:
    link = place.folder / "null"
    link.symlink_to(os.devnull)
    return place.trial(place.solve(link), _is_link(link))


def _own_device(place: _Place, minor: int, codes: frozenset[int]) -> Trial:
    device = place.folder / "device"
    try:
        os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, minor))
    except PermissionError:
        return Trial(f"{place.fault} (left out: not root)")
    ended = place.solve(device)
    kept = "" if stat.S_ISCHR(device.lstat().st_mode) else "the device is a file now"
    return place.trial(ended, kept, codes=codes)


def _pipe(place: _Place) -> Trial:
    pipe, arrived = place.folder / "pipe", bytearray()
    os.mkfifo(pipe)
    # Open for both, so that neither side waits for the other.
    handle = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)

    def drain() -> None:
        with suppress(BlockingIOError):
            arrived.extend(os.read(handle, 2**20))

    ended = place.solve(pipe)
    drain()
    os.close(handle)
    kept = "" if stat.S_ISFIFO(pipe.lstat().st_mode) else "the pipe is a file now"
    return place.trial(ended, kept, place.whole(arrived.decode()))


def _link(place: _Place, old: bool) -> Trial:
    (place.folder / "elsewhere").mkdir()
    target, link = place.folder / "elsewhere" / "plan.json", place.folder / "plan.json"
    if old:
        target.write_text("old")
    link.symlink_to(target)
    ended = place.solve(link)
    return place.trial(ended, _is_link(link), place.whole(target.read_text() if target.exists() else ""))


def _instance_itself(place: _Place) -> Trial:
    before = place.instance.read_bytes()
    ended = place.solve(place.instance)
    kept = "" if place.instance.read_bytes() == before else "the instance is gone: a plan stands in its place"
    return place.trial(ended, kept, codes=frozenset({2}))


_KINDS: dict[str, Callable[[_Place], Trial]] = {
    "a link to standard output": _standard_output,
    "a link to the null device": _null_device,
    "a null device": lambda place: _own_device(place, 3, frozenset({0})),
    "a full device": lambda place: _own_device(place, 7, frozenset({1})),
    "a named pipe": _pipe,
    "a link to a file": lambda place: _link(place, True),
    "a link to nothing yet": lambda place: _link(place, False),
    "the instance itself": _instance_itself,
}


def _not_writable(campaign: Campaign) -> Iterator[Trial]:
    """Told before solving, in one line."""
    folder = campaign.fresh("outputs")
    (folder / "file").write_text("")
    (folder / "closed").mkdir(mode=0o555)
    start = start_seconds(folder)
    for fault, path in (
        ("a name of 300 characters", folder / ("x" * 300)),
        ("below a file", folder / "file" / "plan.json"),
        ("a folder that does not exist", folder / "none" / "plan.json"),
        ("a folder", folder),
        ("a folder that cannot be written", folder / "closed" / "plan.json"),
    ):
        ended = run_jigsaw(
            *("solve", *_SLOW, "-q", "-o", path),
            folder=folder,
            timeout=_PATIENCE,
            powerless=True,
        )
        lines = ended.err.strip().count("\n")
        wrong = first(
            failure(ended, {1, 2}),
            lasting(ended, start + 3),
            f"{lines + 1} lines" if lines else "",
        )
        yield Trial(fault, wrong, ended.command, ended.seconds, counts=_FAULT)


def _full(campaign: Campaign) -> Iterator[Trial]:
    """The old plan stays, the new one is not half there."""
    folder = campaign.fresh("outputs")
    disk = folder / "disk"
    disk.mkdir()
    place = _Place(folder, "a disk that is full")
    mounted = _mount(disk)
    try:
        if mounted:
            with suppress(OSError):
                (disk / "filler").write_bytes(b"x" * 2**20)
            yield _onto_full(place, disk, None)
    finally:
        if mounted:
            subprocess.run(["umount", str(disk)], check=True)
    place.fault = "a file size that is used up"
    yield _onto_full(place, folder, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200)))


def _mount(disk: Path) -> bool:
    """Mount a small file system, if we may."""
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(disk)]
    return shutil.which("mount") is not None and subprocess.run(command, capture_output=True, check=False).returncode == 0


def _onto_full(place: _Place, folder: Path, limit: Callable[[], object] | None) -> Trial:
    plan = folder / "plan.json"
    with suppress(OSError):
        plan.write_text("")
    ended = place.solve(plan, prepare=limit)
    kept = "" if plan.read_text() == "" else "half a plan stands in the place of the old one"
    return place.trial(ended, kept, codes=frozenset({1}))


_WRITER = """
import sys
from pathlib import Path
from jigsaw_opt.documents import write_atomically
texts = [bytes([65 + k]) * 400_000 for k in range(26)]
k = 0
while True:
    write_atomically(Path(sys.argv[1]), texts[k % 26])
    k += 1
"""


def _killed_while_writing(campaign: Campaign, number: int) -> Trial:
    """A process that writes one file again and again, killed at a random moment."""
    folder = campaign.fresh("outputs")
    path, random = folder / "document", campaign.random("kill", number)
    running = Running([sys.executable, "-c", _WRITER, str(path)], "a loop of write_atomically", folder)
    running.wait(path.exists, _PATIENCE)
    moment = running.seconds + random.uniform(0, 0.3)
    running.wait(lambda: running.seconds > moment, _PATIENCE)
    running.signal(signal.SIGKILL)
    ended = running.end(_PATIENCE)
    data = path.read_bytes() if path.exists() else b""
    whole = len(data) == 400_000 and len(set(data)) == 1
    wrong = first(failure(ended, {-9}), "" if whole else f"{len(data)} bytes of {len(set(data))} documents")
    counts = {Count.SIGNALS: 1, Count.LOST: int(not whole)}
    return Trial("kill -9 while writing", wrong, f"seed {campaign.seed}, kill {number}", counts=counts)


def _sweep(folder: Path, command: str, campaign: Campaign) -> tuple[object, ...]:
    if command == "bench":
        names = [f"tiny/{k:03}" for k in range(6)]
        return ("bench", *names, "--solvers", "greedy", "--time-limits", "1", "-o", folder / "out", "--json", "-q")
    work = documents.trace(folder / "trace.csv", 200, campaign.random("sweep"))
    cluster = ("--cluster", "4x4", "--policy", "fifo", "las", "srtf")
    return ("simulate", "--sweep", "--workload", work, *cluster, "-o", folder / "out", "--json", "-q")


def _killed_while_sweeping(campaign: Campaign, command: str, number: int) -> Trial:
    """The rows that were there stay, and the same command goes on to the end."""
    folder, random = campaign.fresh("outputs"), campaign.random("sweep", command, number)
    words, rows = _sweep(folder, command, campaign), folder / "out" / "rows.jsonl"
    running = jigsaw(*words, folder=folder)
    running.wait(lambda: rows.exists() and rows.stat().st_size > 0, _PATIENCE)
    moment = running.seconds + random.uniform(0, 0.5)
    running.wait(lambda: running.seconds > moment, _PATIENCE)
    running.signal(signal.SIGKILL)
    killed = running.end(_PATIENCE)
    before = [line for line in rows.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
    ended = run_jigsaw(*words, folder=folder, timeout=_PATIENCE)
    after = rows.read_bytes().splitlines(keepends=True)
    keys = [json.loads(line)["key"] for line in after]
    wrong = first(
        failure(killed, {-9, 0}),
        failure(ended, {0}),
        "a row that was there is lost" if after[: len(before)] != before else "",
        "a row is there twice" if len(set(keys)) != len(keys) else "",
    )
    counts = {Count.SIGNALS: 1}
    return Trial(f"kill -9 while sweeping: {command}", wrong, ended.command, ended.seconds, counts=counts)


def _two_plans(campaign: Campaign, number: int) -> Trial:
    """Two processes write one plan: what stands there in the end is one of them, whole."""
    place = _Place(campaign.fresh("outputs"), "two processes on one plan")
    plan, ends = place.folder / "plan.json", list[Ended]()
    threads = [threading.Thread(target=lambda: ends.append(place.solve(plan))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    broken = verdict(documents.PAIR, read(plan))
    trial = place.trial(ends[0], failure(ends[1], {0}), broken)
    return Trial(trial.fault, trial.failure, f"{trial.how}, twice at once; {number}", counts=_FAULT)


def _two_sweeps(campaign: Campaign) -> Trial:
    """The second one is told that another is at it."""
    folder = campaign.fresh("outputs")
    words, rows = _sweep(folder, "bench", campaign), folder / "out" / "rows.jsonl"
    one = jigsaw(*words, folder=folder)
    one.wait(rows.exists, _PATIENCE)
    other = run_jigsaw(*words, folder=folder, timeout=_PATIENCE)
    ended = one.end(_PATIENCE)
    wrong = first(failure(ended, {0}), failure(other, {0, 1}))
    return Trial("two sweeps in one folder", wrong, ended.command, counts=_FAULT)


PART = Part("outputs", "an output is written whole, through links and devices, or told to be impossible at first", trials)

"""Where results are written: what is no regular file, what cannot be written, full disks, kill -9, two writers."""

from __future__ import annotations

import json
import os
import resource
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from .contract import FAULT, Campaign, Count, Part, Trial, first
from .documents import PAIR, written
from .launch import Ended, Running, drop_powers, failure, jigsaw, judged, read, start_seconds, tried
from .referee import verdict

_KILLS = 20
_GREEDY = ("solve", "instance.json", "--solver", "greedy", "-q", "-o")
_SLOW = ("solve", "rack/weighted", "--time-limit", 8, "-q", "-o")
"""Nobody waits for it where an output that cannot be written is told at first."""


def whole(text: str) -> str:
    """Whether a text holds the whole plan."""
    try:
        broken = verdict(PAIR, json.loads(text[text.find("{") : text.rfind("}") + 1]))
    except ValueError:
        return "the plan did not arrive whole"
    return f"a wrong plan: {broken}" if broken else ""


def _linked(target: str) -> Callable[[Path], object]:
    def make(folder: Path) -> None:
        (folder / "elsewhere").mkdir()
        (folder / "old").write_text("old")
        (folder / "plan.json").symlink_to(target)

    return make


def _device(minor: int) -> Callable[[Path], object]:
    return lambda folder: os.mknod(folder / "plan.json", 0o666 | stat.S_IFCHR, os.makedev(1, minor))


def _still(kind: Callable[[int], bool], where: str = "") -> Callable[[Path, Ended], str]:
    """The output is what it was, and the plan arrived whole: in a file or, as `-`, on standard output."""

    def holds(folder: Path, ended: Ended) -> str:
        kept = "" if kind((folder / "plan.json").lstat().st_mode) else "the output is something else now"
        arrived = ended.out.partition("objective  bound")[0] if where == "-" else ""
        if where not in ("", "-"):
            arrived = (folder / where).read_text()
        return first(kept, whole(arrived) if where else "")

    return holds


_OUTPUTS: dict[str, tuple[Callable[[Path], object], int, Callable[[Path, Ended], str]]] = {
    "a link to standard output": (_linked("/proc/self/fd/1"), 0, _still(stat.S_ISLNK, "-")),
    "a link to the null device": (_linked(os.devnull), 0, _still(stat.S_ISLNK)),
    "a link to a file": (_linked("old"), 0, _still(stat.S_ISLNK, "old")),
    "a link to nothing yet": (_linked("elsewhere/new"), 0, _still(stat.S_ISLNK, "elsewhere/new")),
    "a null device": (_device(3), 0, _still(stat.S_ISCHR)),
    "a full device": (_device(7), 1, _still(stat.S_ISCHR)),
    "a file": (lambda folder: None, 0, _still(stat.S_ISREG, "plan.json")),
}
_UNWRITABLE = {
    "a name of 300 characters": "x" * 300,
    "below a file": "instance.json/plan.json",
    "a new folder below one that cannot be written": "closed/none/plan.json",
    "a folder that cannot be written": "closed/plan.json",
    "a folder": ".",
}


def outputs(campaign: Campaign) -> Iterator[Trial]:
    """Every kind of output."""
    for fault, (make, code, holds) in _OUTPUTS.items():
        folder = _folder(campaign)
        try:
            make(folder)
        except PermissionError:
            continue  # Devices are made by root alone.
        ended = jigsaw(*_GREEDY, "plan.json", folder=folder).end()
        yield judged(fault, folder, ended, {code}, holds(folder, ended))
    yield from _refused(campaign)
    yield from _full(campaign)
    yield _two_at_once(campaign)
    for number in range(campaign.times(_KILLS)):
        yield _killed(campaign, number)


def _folder(campaign: Campaign) -> Path:
    folder = campaign.fresh("outputs")
    written(PAIR, folder / "instance.json")
    return folder


def _refused(campaign: Campaign) -> Iterator[Trial]:
    """Told before solving, in one line; an input stays as it is."""
    folder, start = _folder(campaign), start_seconds(campaign.folder)
    (folder / "closed").mkdir(mode=0o555)

    def holds(ended: Ended) -> str:
        lines = len(ended.err.strip().splitlines())
        slow = f"{ended.seconds:.1f} s" if ended.seconds > start + 3 else ""
        kept = "" if read(folder / "instance.json") == PAIR else "the instance is gone"
        return first(kept, slow, f"{lines} lines" if lines != 1 else "")

    for fault, name in _UNWRITABLE.items():
        yield tried(fault, folder, (*_SLOW, name), {1, 2}, holds, prepare=drop_powers)
    yield tried("the instance itself", folder, (*_GREEDY, "instance.json"), {2}, holds)


def _full(campaign: Campaign) -> Iterator[Trial]:
    """The old file stays, the new one is not half there."""
    folder = _folder(campaign)
    (disk := folder / "disk").mkdir()

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))

    def onto(fault: str, plan: Path, prepare: Callable[[], object] | None) -> Trial:
        with suppress(OSError):
            plan.write_text("")
        kept = "half a plan stands in the place of the old one"
        words = (*_GREEDY, plan)
        return tried(fault, folder, words, {1}, lambda _: kept if plan.read_text() else "", prepare=prepare)

    yield onto("a file size that is used up", folder / "plan.json", limit)
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(disk)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        return
    try:
        with suppress(OSError):
            (disk / "filler").write_bytes(b"x" * 2**20)
        yield onto("a disk that is full", disk / "plan.json", None)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def _two_at_once(campaign: Campaign) -> Trial:
    """What two processes write to one pipe or file: there the last of them stands, whole."""
    folder, arrived = _folder(campaign), bytearray()
    os.mkfifo(folder / "pipe")
    # Open for both, so that neither side waits for the other.
    handle = os.open(folder / "pipe", os.O_RDWR | os.O_NONBLOCK)
    ends: list[Ended] = []
    outs = ("plan.json", "plan.json", "pipe")
    threads = [
        threading.Thread(target=lambda out=out: ends.append(jigsaw(*_GREEDY, out, folder=folder).end()))  # type: ignore[misc]
        for out in outs
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with suppress(BlockingIOError):
        arrived.extend(os.read(handle, 2**20))
    os.close(handle)
    wrong = (*(failure(end, {0}) for end in ends), whole(arrived.decode()), verdict(PAIR, read(folder / "plan.json")))
    return judged("two processes on one plan, one on a pipe", folder, ends[0], {0}, *wrong)


_WRITER = """
import sys
from pathlib import Path
from jigsaw_opt.documents import write_atomically
for k in range(10**9):
    write_atomically(Path(sys.argv[1]), bytes([65 + k % 26]) * 400_000)
"""


def _killed(campaign: Campaign, number: int) -> Trial:
    """A process that writes one file again and again, killed at a random moment."""
    path, random = campaign.fresh("outputs") / "document", campaign.random("kill", number)
    running = Running([sys.executable, "-c", _WRITER, str(path)], "a loop of write_atomically")
    running.wait(path.exists)
    running.sleep(random.uniform(0, 0.3))
    running.signal(9)
    ended = running.end()
    data = path.read_bytes() if path.exists() else b""
    torn = "" if len(data) == 400_000 and len(set(data)) == 1 else f"{len(data)} bytes of {len(set(data))} documents"
    counts = {Count.SIGNALS: 1, Count.LOST: int(bool(torn)), **FAULT}
    wrong = first(failure(ended, {-9}), torn)
    return Trial("kill -9 while writing", wrong, f"seed {campaign.seed}, kill {number}", counts=counts)


PARTS = (Part("outputs", "outputs are written whole, through links and devices, or refused at first", outputs),)

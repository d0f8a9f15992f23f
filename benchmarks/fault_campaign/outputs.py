"""Where results are written: what is no regular file, what cannot be written, a full disk."""

from __future__ import annotations

import json
import os
import resource
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from . import documents
from .contract import Campaign, Count, Part, Trial, first
from .launch import Ended, failure, lasting, run_jigsaw, start_seconds
from .referee import verdict

__all__ = ["PART", "Place"]

_SLOW = ("rack/weighted", "--time-limit", 8)
"""What is solved where the output cannot be written: nobody waits for it where that is told at first."""
_PATIENCE = 40.0
_FAULT = {Count.FAULTS: 1}


def trials(campaign: Campaign) -> Iterator[Trial]:
    """Every kind of output."""
    for name, kind in _KINDS.items():
        yield kind(Place(campaign.fresh("outputs"), name))
    yield from _not_writable(campaign)
    yield from _full(campaign)


class Place:
    """A folder with an instance, and a solve that writes a plan there."""

    def __init__(self, folder: Path, fault: str) -> None:
        self.folder, self.fault = folder, fault
        self.instance = documents.written(documents.PAIR, folder / "instance.json")

    def solve(self, output: Path, prepare: Callable[[], object] | None = None) -> Ended:
        """Solve the instance and write the plan to a place."""
        words = ("solve", self.instance, "--solver", "greedy", "-q", "-o", output)
        return run_jigsaw(*words, folder=self.folder, timeout=_PATIENCE, prepare=prepare)

    def whole(self, text: str) -> str:
        """Whether a text holds the whole plan."""
        begin, end = text.find("{"), text.rfind("}")
        try:
            broken = verdict(documents.PAIR, json.loads(text[begin : end + 1]))
        except ValueError:
            return "the plan did not arrive whole"
        return f"a wrong plan: {broken}" if broken else ""

    def trial(self, ended: Ended, *wrong: str, codes: frozenset[int] = frozenset({0})) -> Trial:
        """What came of it, with what is wrong besides."""
        left = [path.name for path in self.folder.glob(".*")]
        said = (failure(ended, codes), *wrong, f"left behind: {left[0]}" if left else "")
        return Trial(self.fault, first(*said), ended.command, ended.seconds, ended.mebibytes, _FAULT)


def _is_link(path: Path) -> str:
    return "" if path.is_symlink() else f"{path.name} is no link any more"


def _standard_output(place: Place) -> Trial:
    link = place.folder / "out"
    link.symlink_to("/proc/self/fd/1")
    ended = place.solve(link)
    return place.trial(ended, _is_link(link), place.whole(ended.out.partition("objective  bound")[0]))


def _null_device(place: Place) -> Trial:
    link = place.folder / "null"
    link.symlink_to(os.devnull)
    return place.trial(place.solve(link), _is_link(link))


def _own_device(place: Place, minor: int, codes: frozenset[int]) -> Trial:
    device = place.folder / "device"
    try:
        os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, minor))
    except PermissionError:
        return Trial(f"{place.fault} (left out: not root)")
    ended = place.solve(device)
    kept = "" if stat.S_ISCHR(device.lstat().st_mode) else "the device is a file now"
    return place.trial(ended, kept, codes=codes)


def _pipe(place: Place) -> Trial:
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


def _link(place: Place, old: bool) -> Trial:
    (place.folder / "elsewhere").mkdir()
    target, link = place.folder / "elsewhere" / "plan.json", place.folder / "plan.json"
    if old:
        target.write_text("old")
    link.symlink_to(target)
    ended = place.solve(link)
    return place.trial(ended, _is_link(link), place.whole(target.read_text() if target.exists() else ""))


def _instance_itself(place: Place) -> Trial:
    before = place.instance.read_bytes()
    ended = place.solve(place.instance)
    kept = "" if place.instance.read_bytes() == before else "the instance is gone: a plan stands in its place"
    return place.trial(ended, kept, codes=frozenset({2}))


_KINDS: dict[str, Callable[[Place], Trial]] = {
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
        ("a new folder below one that cannot be written", folder / "closed" / "none" / "plan.json"),
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
    place = Place(folder, "a disk that is full")
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
    return (
        shutil.which("mount") is not None and subprocess.run(command, capture_output=True, check=False).returncode == 0
    )


def _onto_full(place: Place, folder: Path, limit: Callable[[], object] | None) -> Trial:
    plan = folder / "plan.json"
    with suppress(OSError):
        plan.write_text("")
    ended = place.solve(plan, prepare=limit)
    kept = "" if plan.read_text() == "" else "half a plan stands in the place of the old one"
    return place.trial(ended, kept, codes=frozenset({1}))


PART = Part("outputs", "outputs are written whole, through links and devices, or refused at first", trials)

"""The bytes of files that somebody names: read never more of them than a limit, written whole or not at all."""

from __future__ import annotations

import codecs
import errno
import fcntl
import gzip
import os
import stat
import sys
import tempfile
import zlib
from collections.abc import Iterable
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from jigsaw_opt.errors import InvalidInputError, JigsawError, UsageError, reason_of, wrong_input
from jigsaw_opt.system.interrupts import held, keeps

MOST_BYTES = 2 * 2**30
"""Of a regular file: a plan of 20 million blocks, the most that a solver writes, takes half of it."""
MEMORY_FOR_ANY, MOST_MEMORY_A_BYTE = 64 * 2**20, 10
"""Bytes of memory that what is read from a file may take: so many for any, and so many for each byte of it."""
_MOST_STREAMED = 256 * 2**20
"""Of a pipe, a device or a compressed file, which do not say beforehand how much there is."""
_GZIP = b"\x1f\x8b"
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_PACKED = {
    b"PK\x03\x04": "ZIP",
    b"\xfd7zXZ\x00": "xz",
    b"BZh": "bzip2",
    b"\x28\xb5\x2f\xfd": "Zstandard",
    b"7z\xbc\xaf": "7-Zip",
}
"""What compresses files beside gzip, by their first bytes."""
_PART = 2**20
_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG)
"""Faults of the disk, which no other call would avoid."""
_MOST_LINKS = 40
_PREFIX, _SUFFIX = ".jigsaw-", ".tmp"
"""Of the names of temporary files."""


def read_file(path: str | os.PathLike[str], most: int = MOST_BYTES) -> bytes:
    """Return all bytes of a file, which may be a pipe.

    `most`: the most bytes that it may have.
    """
    try:
        with Path(path).open("rb", buffering=0) as file:
            return _all_of(file, path, most)
    except (OSError, ValueError) as error:  # ValueError: a null character in the name
        raise wrong_input(os.fspath(path) or ".", f"cannot be read: {reason_of(error)}", code="unreadable") from error


def read_text(path: str | os.PathLike[str]) -> bytes:
    """Return the text of a file in UTF-8, as `unpacked` does: every reader of a text opens it by this."""
    return unpacked(read_file(path), os.fspath(path))


def _all_of(file: BinaryIO, path: str | os.PathLike[str], most: int) -> bytes:
    status = os.fstat(file.fileno())
    regular = stat.S_ISREG(status.st_mode)
    if regular and status.st_size > most:
        raise _too_large(path, f"it has {status.st_size} bytes", most)
    limit = most if regular else min(most, _MOST_STREAMED)
    # A regular file comes in one part, and is not copied; those of /proc say that they are empty, and are not.
    parts: list[bytes] = []
    size, wanted = 0, max(_PART, status.st_size + 1)
    while part := file.read(wanted):
        size, wanted = size + len(part), _PART
        if size > limit:
            raise _too_large(path, f"it has more than {limit} bytes", limit)
        parts.append(part)
    return b"".join(parts)


def _too_large(path: str | os.PathLike[str], found: str, most: int) -> InvalidInputError:
    return wrong_input(os.fspath(path), f"too large: {found}, and at most {most} are read", code="too-large")


def unpacked(data: bytes, source: str, most: int = _MOST_STREAMED, *, is_text: bool = True) -> bytes:
    """Return what bytes hold that gzip may have compressed; a text in UTF-8 without a byte order mark.

    `data, source`: the bytes, and what problems call them. `most`: the most bytes that they may hold. `is_text`:
    whether they are a text, which may be in UTF-16 if its mark says so.
    """
    data = _inflated(data, source, most) if data.startswith(_GZIP) else data
    if form := next((form for mark, form in _PACKED.items() if data.startswith(mark)), None):
        raise wrong_input(source, f"is packed by {form}", "unpack it, or use gzip", code="not-text")
    if not is_text or not data.startswith(_UTF_16):
        return data.removeprefix(codecs.BOM_UTF8) if is_text else data
    try:
        return data.decode("utf-16").encode()
    except UnicodeDecodeError as error:
        told = f"not UTF-16, which its first bytes state: {error.reason} at byte {error.start}"
        raise wrong_input(source, told, "save it as UTF-8", code="not-text") from error


def _inflated(data: bytes, source: str, most: int) -> bytes:
    """Return what gzip has compressed, within a limit."""
    try:
        found = gzip.GzipFile(fileobj=BytesIO(data)).read(most + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise wrong_input(source, f"cannot be unpacked: {error}", code="unreadable") from error
    if len(found) > most:
        told = f"too large: it unpacks to more than {most} bytes"
        raise wrong_input(source, told, "unpack it with gunzip", code="too-large")
    return found


def unpacked_head(data: bytes, size: int) -> bytes:
    """Return the first bytes of what `unpacked` would return, as far as it can be read.

    `size`: the most bytes that are returned.
    """
    if not data.startswith(_GZIP):
        return data[:size]
    try:
        return zlib.decompressobj(wbits=31).decompress(data, size)
    except zlib.error:
        return b""


def write_atomically(path: str | os.PathLike[str], data: bytes) -> None:
    """Write `data` to `path`: a file whole or not at all, and straight into what is no regular file.

    Folders above a file are made where there are none.

    The bytes of a file go to a temporary one beside it that then takes its place, so that no reader sees half a
    document. A link stays and what it leads to is replaced. A device, a pipe and an open descriptor (``/dev/stdout``)
    are written to; so is a file that cannot be replaced because something is mounted there.

    Parameters
    ----------
    path
        Where the bytes go.
    data
        The bytes.

    Raises
    ------
    UsageError
        It cannot be written; the file that stood at `path` before still stands there.
    JigsawError
        The disk is full or broken; likewise.
    """
    target = Path(path)
    try:
        descriptor = _descriptor(target)
        if descriptor is not None:
            if sys.stdout is not None:
                sys.stdout.flush()  # what was printed before comes before
            _write_all(descriptor, data)
        elif (mode := _mode_of(target)) is not None and not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            _write_through(target, data)  # to a device, a pipe or a socket; to replace a folder fails
        else:
            _replace(Path(os.path.realpath(target)), data)
    except (OSError, ValueError) as error:  # ValueError: a null character in the name
        raise unwritable(target, error) from error


def unwritable(path: Path, error: OSError | ValueError) -> JigsawError:
    """Return what is raised for a file that cannot be written: a usage error, unless the disk is full or broken."""
    told = f"cannot write {path}: {reason_of(error)}"
    if getattr(error, "errno", None) in _DISK:
        return JigsawError(told)
    return UsageError(told, code="unwritable", path=str(path))


def require_writable(
    path: str | os.PathLike[str],
    inputs: Iterable[str | os.PathLike[str] | None] = (),
    outputs: Iterable[str | os.PathLike[str] | None] = (),
) -> None:
    """Refuse an output file that cannot be written, before any work is done for it.

    `inputs`: files that must not be overwritten; a name of no file, as that of a bundled instance, is left out.
    `outputs`: other files that will be written, whether they are there or not.
    """
    target = Path(path)
    try:
        taken = [f"it is the input {one}" for one in inputs if _same_file(target, one)]
        taken += [f"it is the output {one}, too" for one in outputs if _will_be_same_file(target, one)]
        why = _obstacle(target) or next(iter(taken), None)
    except (OSError, ValueError) as error:
        why = reason_of(error)
    if why is not None:
        raise UsageError(f"cannot write {target}: {why}", code="unwritable", path=str(target))


def make_folder(folder: Path, files: Iterable[str], inputs: Iterable[str | os.PathLike[str] | None] = ()) -> None:
    """Make a folder where there is none, with those above it, and see that files can be written in it.

    Temporary files that killed processes left there are removed.
    """
    if folder == Path("-"):
        told = "'-' is standard output, and this goes to a folder: name one"
        raise UsageError(told, code="unwritable", path="output")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        told = f"cannot make the folder {folder}: {reason_of(error)}"
        raise UsageError(told, code="unwritable", path=str(folder)) from error
    remove_abandoned(folder)
    inputs = tuple(inputs)
    for name in files:
        require_writable(folder / name, inputs)


def require_alone(descriptor: int, path: Path) -> None:
    """Lock a file or folder until it is closed."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise JigsawError(f"another process is writing {path}") from error


def remove_abandoned(folder: Path) -> None:
    """Remove the temporary files in a folder that no living process writes.

    A process keeps its temporary file locked, and the system drops the lock when the process dies. A file that cannot
    be opened or locked is left alone.
    """
    with suppress(OSError):
        for path in folder.glob(f"{_PREFIX}*{_SUFFIX}"):
            with suppress(OSError), path.open("r+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()


def _obstacle(target: Path) -> str | None:
    """Return what will keep `write_atomically` from writing, found out by trying as far as that leaves no trace."""
    descriptor = _descriptor(target)
    if descriptor is not None:
        readable = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY
        return "it is open for reading only" if readable else None
    if target.is_dir():
        return "it is a folder"
    exists = _mode_of(target) is not None
    if exists and not os.access(target, os.W_OK):
        return os.strerror(errno.EACCES)
    if exists and not target.is_file():
        return None
    return _obstacle_below(Path(os.path.realpath(target)).parent)


def _obstacle_below(folder: Path) -> str | None:
    """Return what will keep a file from being made in a folder, or the folder itself, with those above it."""
    missing = []
    while _mode_of(folder) is None:
        missing.append(folder.name)
        folder = folder.parent
    if not folder.is_dir():
        return f"{folder} is no folder"
    for name in missing:
        _mode_of(folder / name)  # fails where the name is too long
    with held():
        handle, name = _temporary(folder)
        os.close(handle)
        Path(name).unlink(missing_ok=True)
    return None


def _replace(target: Path, data: bytes) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    # A program that ends at once at a signal would leave the temporary file behind.
    with held():
        handle, name = _temporary(target.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
                # The lock ends with the open file, and only then may others take the temporary one for abandoned.
                Path(name).chmod(_permissions(target))
                _take_place(Path(name), target, data)
                keeps(f"{target} is written")
        finally:  # an interrupt too must leave nothing behind; where all went well there is nothing left to remove
            with suppress(FileNotFoundError):
                Path(name).unlink()


def _take_place(temporary: Path, target: Path, data: bytes) -> None:
    try:
        temporary.replace(target)
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        # A single file that a container mounts; there was room for the data a moment ago.
        _write_through(target, data)


def _temporary(folder: Path) -> tuple[int, str]:
    """Make a temporary file; return its open descriptor, locked where the file system has locks, and its name."""
    while True:
        # Not after the target, whose name may be as long as names can be.
        handle, name = tempfile.mkstemp(prefix=_PREFIX, suffix=_SUFFIX, dir=folder)
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        if os.fstat(handle).st_nlink:
            return handle, name
        os.close(handle)  # `remove_abandoned` came between


def _permissions(target: Path) -> int:
    """Return the permissions of the old file, or those of a new file; mkstemp gives only the owner access."""
    if (mode := _mode_of(target)) is not None:
        return mode & 0o7777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def _write_through(target: Path, data: bytes) -> None:
    with target.open("wb", buffering=0) as file:
        _write_all(file.fileno(), data)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _descriptor(path: Path) -> int | None:
    """Return the open descriptor that a name such as ``/dev/stdout`` or ``/dev/fd/3`` stands for."""
    for _ in range(_MOST_LINKS):
        if path.name.isdecimal() and os.path.realpath(path.parent) in ("/dev/fd", f"/proc/{os.getpid()}/fd"):
            return int(path.name)
        if not path.is_symlink():
            return None
        path = path.parent / path.readlink()
    return None


def _mode_of(path: Path) -> int | None:
    """Return the mode of what is at the end of all links; None where there is nothing."""
    try:
        return path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None


def _same_file(target: Path, other: str | os.PathLike[str] | None) -> bool:
    """Return whether both are one regular file; two names of one terminal are no reason to refuse."""
    try:
        return other is not None and target.is_file() and target.samefile(other)
    except (OSError, ValueError):
        return False


def _will_be_same_file(target: Path, other: str | os.PathLike[str] | None) -> bool:
    """Return whether both are one regular file once they are written."""
    if _mode_of(target) is not None:
        return _same_file(target, other)
    return other is not None and os.path.realpath(target) == os.path.realpath(other)

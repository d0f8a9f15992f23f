"""The bytes of a file that somebody names: never more of them than a limit."""

from __future__ import annotations

import codecs
import gzip
import os
import stat
import zlib
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from jigsaw_opt.errors import InvalidInputError, Problem, reason_of

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


def read_file(path: str | os.PathLike[str], most: int = MOST_BYTES) -> bytes:
    """Return all bytes of a file, which may be a pipe.

    `most`: the most bytes that it may have.
    """
    try:
        with Path(path).open("rb", buffering=0) as file:
            return _all_of(file, path, most)
    except (OSError, ValueError) as error:  # ValueError: a null character in the name
        raise InvalidInputError(
            [Problem(os.fspath(path) or ".", f"cannot be read: {reason_of(error)}", code="unreadable")]
        ) from error


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
    return InvalidInputError(
        [Problem(os.fspath(path), f"too large: {found}, and at most {most} are read", code="too-large")]
    )


def unpacked(data: bytes, source: str, most: int = _MOST_STREAMED, *, is_text: bool = True) -> bytes:
    """Return what bytes hold that gzip may have compressed; a text in UTF-8 without a byte order mark.

    `data, source`: the bytes, and what problems call them. `most`: the most bytes that they may hold. `is_text`:
    whether they are a text, which may be in UTF-16 if its mark says so.
    """
    data = _inflated(data, source, most) if data.startswith(_GZIP) else data
    if form := next((form for mark, form in _PACKED.items() if data.startswith(mark)), None):
        raise InvalidInputError([Problem(source, f"is packed by {form}", "unpack it, or use gzip", code="not-text")])
    if not is_text or not data.startswith(_UTF_16):
        return data.removeprefix(codecs.BOM_UTF8) if is_text else data
    try:
        return data.decode("utf-16").encode()
    except UnicodeDecodeError as error:
        told = f"not UTF-16, which its first bytes state: {error.reason} at byte {error.start}"
        raise InvalidInputError([Problem(source, told, "save it as UTF-8", code="not-text")]) from error


def _inflated(data: bytes, source: str, most: int) -> bytes:
    """Return what gzip has compressed, within a limit."""
    try:
        found = gzip.GzipFile(fileobj=BytesIO(data)).read(most + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise InvalidInputError([Problem(source, f"cannot be unpacked: {error}", code="unreadable")]) from error
    if len(found) > most:
        raise InvalidInputError(
            [
                Problem(
                    source,
                    f"too large: it unpacks to more than {most} bytes",
                    "unpack it with gunzip",
                    code="too-large",
                )
            ]
        )
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

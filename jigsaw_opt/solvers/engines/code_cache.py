"""Native code kept on disk from run to run.

Code is run as it is read, so what others could have written is never read: neither a file nor a folder that belongs to
somebody else than the user, the owner of this package or root, or that a group or everybody may change. A digest in
front of the code tells that it is whole, and that it is for this Python, numba, processor and source; what is not is
made anew, in its place.
"""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from jigsaw_opt.solvers.engines.native import CompilationRecipe

__all__ = ["available", "find", "keep"]

_DIGEST = sha256().digest_size
_LARGEST = 1 << 26
"""Bytes of a file that is still read."""
_POSIX = os.name == "posix"


@cache
def available() -> bool:
    """Return whether numba is installed."""
    return _environment() is not None


def find(recipe: CompilationRecipe) -> bytes | None:
    """Return the code of a function, if it is on disk, whole and to be trusted."""
    for folder in _folders():
        content = _read(folder / _name(recipe)) if _trusted(folder) else None
        if content is not None and content[:_DIGEST] == _digest(recipe, content[_DIGEST:]):
            return content[_DIGEST:]
    return None


def keep(recipe: CompilationRecipe, code: bytes) -> Path | None:
    """Write the code of a function to the first folder that takes it.

    Parameters
    ----------
    recipe
        The function.
    code
        Its native code.

    Returns
    -------
    Path | None
        The file, None where no folder takes it.
    """
    for folder in _folders():
        try:
            folder.mkdir(mode=0o755, parents=True, exist_ok=True)
            if _trusted(folder):
                return _write(folder / _name(recipe), _digest(recipe, code) + code)
        except OSError:
            continue
    return None


def _folders() -> Iterator[Path]:
    """Yield the folders where code may be.

    The first one is where numba is told to keep its own code, else beside this module or with the user; the last one is
    among temporary files. Folders that others use as well get a folder of our own.
    """
    told = os.environ.get("NUMBA_CACHE_DIR")
    if told:
        yield Path(told, "jigsaw-opt").absolute()
    else:
        yield Path(__file__).parent / "__pycache__"
        with suppress(RuntimeError):  # No home is known.
            yield Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "jigsaw-opt").absolute()
    with suppress(OSError):  # No folder there can be written.
        yield Path(tempfile.gettempdir(), f"jigsaw-opt-{os.geteuid()}" if _POSIX else "jigsaw-opt")


def _trusted(folder: Path) -> bool:
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and _ours(found)


def _ours(found: os.stat_result) -> bool:
    """Return whether nobody but the user, the owner of this package and root could have written something."""
    return not _POSIX or (found.st_uid in _owners() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH))


def _owners() -> set[int]:
    return {0, os.geteuid(), Path(__file__).stat().st_uid}


def _read(path: Path) -> bytes | None:
    """Return the content of a file in a trusted folder, None where the file is not to be trusted."""
    try:
        found = path.lstat()
        fit = stat.S_ISREG(found.st_mode) and _ours(found) and found.st_size <= _LARGEST
        return path.read_bytes() if fit else None
    except OSError:
        return None


def _write(path: Path, content: bytes) -> Path:
    """Write a file whole or not at all; whoever reads it meanwhile has the old one."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(name).chmod(0o644)
        return Path(name).replace(path)
    finally:
        with suppress(FileNotFoundError):
            Path(name).unlink()


def _name(recipe: CompilationRecipe) -> str:
    return f"{recipe.function.__name__}-{sha256((_environment() or '').encode()).hexdigest()[:20]}.code"


def _digest(recipe: CompilationRecipe, code: bytes) -> bytes:
    known = sha256(repr((recipe.name, _environment(), recipe.lists)).encode())
    for path in recipe.sources():
        known.update(sha256(path.read_bytes()).digest())
    known.update(code)
    return known.digest()


@cache
def _environment() -> str | None:
    """Return what native code depends on beside its source; None without numba."""
    try:
        from llvmlite import binding

        versions = [version("numba"), version("llvmlite"), sys.version]
    except (ImportError, OSError, PackageNotFoundError):
        return None
    processor = [binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten()]
    settings = sorted(
        (name, value) for name, value in os.environ.items() if name.startswith("NUMBA_") and name != "NUMBA_CACHE_DIR"
    )
    return repr([*versions, *processor, settings, str(Path(__file__).parent)])

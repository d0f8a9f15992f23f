"""Documents in files, which gzip may have compressed: loading and saving."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from jigsaw_opt.arguments import typed
from jigsaw_opt.documents.decoding import decode_instance, decode_plan
from jigsaw_opt.documents.encoding import encode_instance, encode_plan
from jigsaw_opt.documents.file_bytes import read_text, write_atomically
from jigsaw_opt.documents.layer_profiles import decode_layers
from jigsaw_opt.documents.recognising import expecting, stated_kind
from jigsaw_opt.problem import Instance, Plan

if TYPE_CHECKING:
    from jigsaw_opt.problem.measured.layers import LayerGraph
    from jigsaw_opt.problem.measured.replay import Replay

Document = TypeVar("Document")


def exists(path: str | os.PathLike[str]) -> bool:
    """Return whether there is such a file or folder; never one whose name is too long for the file system."""
    try:
        return Path(path).exists()
    except OSError:
        return False


@typed
def load_instance(path: str | os.PathLike[str]) -> Instance:
    """Read an instance from a file.

    Raises
    ------
    InvalidInputError
        If the file cannot be read, or with every problem of the document.
    """
    return _loaded(path, decode_instance, "instance")


@typed
def load_plan(path: str | os.PathLike[str]) -> Plan:
    """Read a plan from a file, as its ``format`` says; one that lists all iterations if it says none.

    Raises
    ------
    InvalidInputError
        If the file cannot be read, or with every problem of the document.
    """
    return _loaded(path, decode_plan, "plan", "phased-plan")


def load_replay(path: str | os.PathLike[str]) -> Replay:
    """Read a replay from a file."""
    from jigsaw_opt.documents.replay import decode_replay

    return _loaded(path, decode_replay, "replay", "phased-replay")


def load_document(path: str | os.PathLike[str]) -> Instance | Plan | Replay | LayerGraph:
    """Read the document that the ``format`` of a file says it is; an instance where it says none.

    That is an instance, a plan or a replay of either kind, or a layer profile.
    """
    source = os.fspath(path)
    return decode_document(read_text(path), source)


def _loaded(path: str | os.PathLike[str], decode: Callable[[bytes, str], Document], *kinds: str) -> Document:
    """Read a document of one of these kinds from a file, which gzip may have compressed."""
    source = os.fspath(path)
    data = read_text(path)
    with expecting(data, source, *kinds):
        return decode(data, source)


def decode_document(data: bytes, source: str) -> Instance | Plan | Replay | LayerGraph:
    """Read a document as `load_document` does, from the bytes of a file that is called `source`."""
    match stated_kind(data):
        case "plan" | "phased-plan":
            return decode_plan(data, source)
        case "replay" | "phased-replay":
            from jigsaw_opt.documents.replay import decode_replay

            return decode_replay(data, source)
        case "layers":
            return decode_layers(data, source)
        case _:
            with expecting(data, source, "instance", "plan", "replay"):
                return decode_instance(data, source)


@typed
def save_instance(instance: Instance, path: str | os.PathLike[str]) -> None:
    """Write an instance to a file, all of it or nothing.

    Parameters
    ----------
    instance
        The instance.
    path
        The file, which is replaced.

    Raises
    ------
    UsageError
        It is of another type, or the file cannot be written.
    """
    write_atomically(path, encode_instance(instance))


@typed
def save_plan(plan: Plan, path: str | os.PathLike[str]) -> None:
    """Write a plan to a file, all of it or nothing.

    Parameters
    ----------
    plan
        The plan.
    path
        The file, which is replaced.

    Raises
    ------
    UsageError
        It is of another type, or the file cannot be written.
    """
    write_atomically(path, encode_plan(plan))

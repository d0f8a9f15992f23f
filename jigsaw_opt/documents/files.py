"""Documents in files, which gzip may have compressed: loading, saving, and layers of models from what states them."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from jigsaw_opt.arguments import typed
from jigsaw_opt.documents.decoding import decode_instance, decode_model, decode_plan, decode_proof, made
from jigsaw_opt.documents.encoding import encode_instance, encode_plan, encode_proof
from jigsaw_opt.documents.file_bytes import read_text, write_atomically
from jigsaw_opt.documents.parsing import parsed
from jigsaw_opt.documents.readers.profiles.pipedream import read_layer_graph
from jigsaw_opt.documents.recognising import expecting, likely_form, stated_kind
from jigsaw_opt.errors import InvalidInputError, UsageError
from jigsaw_opt.problem import Instance, Plan
from jigsaw_opt.problem.bound_proof import BoundProof
from jigsaw_opt.problem.measured.layers import LayerGraph, MeasuredLayer, chain_edges
from jigsaw_opt.problem.model import Model
from jigsaw_opt.problem.rules.model import check_layers
from jigsaw_opt.problem.rules.report import Report, quoted
from jigsaw_opt.problem.rules.structure import structure

if TYPE_CHECKING:
    from jigsaw_opt.problem.measured.replay import Replay

Json = dict[str, Any]


def read_layers(data: bytes | str, source: str = "$", gpu_type: str | None = None) -> LayerGraph:
    """Read the layers of a model from whatever states them.

    Parameters
    ----------
    data
        A document ``jigsaw-layers/1``, a profile graph of PipeDream or DAPPLE, or a model of an instance, whose
        segments are the layers.
    source
        What problems call it.
    gpu_type
        The type of GPU whose times are meant, for a model that has those of several; None for the only one.

    Raises
    ------
    InvalidInputError
        With every problem and its path, or what else the text looks like.
    UsageError
        The text has no times of such a type of GPU, or those of several and none was chosen.
    """
    form = likely_form(data)
    with expecting(data, source, "layers", "pipedream", "model"):
        if form == "model":
            return layers_of_model(decode_model(data, source), gpu_type, source)
        graph = read_layer_graph(data, source=source) if form == "pipedream" else decode_layers(data, source)
    if gpu_type is not None and graph.gpu_type not in (None, gpu_type):
        told = f"{source} has times of {quoted(str(graph.gpu_type))}, not of {quoted(gpu_type)}"
        raise UsageError(told, code="mismatch")
    return graph


def decode_layers(data: bytes | str, source: str = "$") -> LayerGraph:
    """Read a layer profile, ``jigsaw-layers/1``.

    `source`: what problems with the document as a whole are said of: ``$`` or a file name.
    """
    tree = parsed(data, source, _check)
    del tree["format"]
    found: LayerGraph = made(LayerGraph, {"edges": chain_edges(len(tree["layers"])), **tree})
    return found


def _check(tree: Json, report: Report) -> None:
    structure("layers")(tree, "$", report)
    check_layers(tree, "$", report)


def layers_of_model(model: Model, gpu_type: str | None, source: str = "the model") -> LayerGraph:
    """Return the segments of a model as layers, each of which reads the one before.

    What a segment sends onward is not known of a model.

    `gpu_type`: type of GPU whose times are taken; None where there is only one.
    """
    known = ", ".join(map(quoted, model.gpu_types)) or "none"
    if gpu_type is None and len(model.gpu_types) != 1:
        told = f"{source} has times of several types of GPU: choose one of {known} with --gpu-type"
        raise UsageError(told, code="ambiguous", path="gpu_type")
    chosen = model.gpu_types[0] if gpu_type is None else gpu_type
    if chosen not in model.gpu_types:
        told = f"{source} has no times of {quoted(chosen)}, but of {known}"
        raise UsageError(told, code="unknown-name", path="gpu_type")
    layers = []
    for segment in model.segments:
        times_us = segment.forward_us[chosen], segment.backward_us[chosen]
        layers.append(MeasuredLayer(segment.name, *times_us, segment.parameter_bytes, segment.activation_bytes))
    return LayerGraph(tuple(layers), chain_edges(len(layers)), None, model.state_factor, chosen)


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


@typed
def load_proof(path: str | os.PathLike[str]) -> BoundProof:
    """Read a proof of a bound from a file.

    Raises
    ------
    InvalidInputError
        If the file cannot be read, or with every problem of the document.
    """
    return _loaded(path, decode_proof, "proof")


def load_replay(path: str | os.PathLike[str]) -> Replay:
    """Read a replay from a file."""
    from jigsaw_opt.documents.replay import decode_replay

    return _loaded(path, decode_replay, "replay", "phased-replay")


def load_document(path: str | os.PathLike[str]) -> Instance | Plan | Replay | LayerGraph | BoundProof:
    """Read the document that the ``format`` of a file says it is; an instance where it says none.

    That is an instance, a plan or a replay of either kind, a layer profile, or a proof of a bound.
    """
    source = os.fspath(path)
    return decode_document(read_text(path), source)


def _loaded(path: str | os.PathLike[str], decode: Callable[[bytes, str], Document], *kinds: str) -> Document:
    """Read a document of one of these kinds from a file, which gzip may have compressed."""
    source = os.fspath(path)
    data = read_text(path)
    try:
        with expecting(data, source, *kinds):
            return decode(data, source)
    except InvalidInputError as error:
        if any(problem.path.startswith("$") for problem in error.problems):
            error.add_note(source)
        raise


def decode_document(data: bytes, source: str) -> Instance | Plan | Replay | LayerGraph | BoundProof:
    """Read a document as `load_document` does, from the bytes of a file that is called `source`."""
    match stated_kind(data):
        case "plan" | "phased-plan":
            return decode_plan(data, source)
        case "replay" | "phased-replay":
            from jigsaw_opt.documents.replay import decode_replay

            return decode_replay(data, source)
        case "layers":
            return decode_layers(data, source)
        case "proof":
            return decode_proof(data, source)
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
    _save(path, encode_instance(instance))


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
    _save(path, encode_plan(plan))


@typed
def save_proof(proof: BoundProof, path: str | os.PathLike[str]) -> None:
    """Write a proof of a bound to a file, all of it or nothing.

    Parameters
    ----------
    proof
        The proof.
    path
        The file, which is replaced.

    Raises
    ------
    UsageError
        It is of another type, or the file cannot be written.
    """
    _save(path, encode_proof(proof))


def _save(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a document to a file, which gzip compresses if its name ends in ``.gz``."""
    write_atomically(path, gzip.compress(data, mtime=0) if os.fspath(path).endswith(".gz") else data)

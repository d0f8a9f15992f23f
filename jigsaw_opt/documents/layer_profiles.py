"""Reading layer profiles: `jigsaw-layers/1`, profile graphs of PipeDream, and models of an instance."""

from __future__ import annotations

from typing import Any

from jigsaw_opt.documents.decoding import decode_model, made
from jigsaw_opt.documents.parsing import parsed
from jigsaw_opt.documents.readers.profiles.pipedream import read_layer_graph
from jigsaw_opt.documents.recognising import expecting, likely_form
from jigsaw_opt.errors import UsageError
from jigsaw_opt.problem.measured.layers import LayerGraph, MeasuredLayer, chain_edges
from jigsaw_opt.problem.model import Model
from jigsaw_opt.problem.rules.model import check_layers
from jigsaw_opt.problem.rules.report import Report, quoted
from jigsaw_opt.problem.rules.structure import structure

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
        raise UsageError(
            f"{source} has times of {quoted(str(graph.gpu_type))}, not of {quoted(gpu_type)}", code="mismatch"
        )
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
        raise UsageError(
            f"{source} has times of several types of GPU: choose one of {known} with --gpu-type",
            code="ambiguous",
            path="gpu_type",
        )
    chosen = model.gpu_types[0] if gpu_type is None else gpu_type
    if chosen not in model.gpu_types:
        raise UsageError(
            f"{source} has no times of {quoted(chosen)}, but of {known}", code="unknown-name", path="gpu_type"
        )
    layers = tuple(
        MeasuredLayer(
            segment.name,
            segment.forward_us[chosen],
            segment.backward_us[chosen],
            segment.parameter_bytes,
            segment.activation_bytes,
        )
        for segment in model.segments
    )
    return LayerGraph(layers, chain_edges(len(layers)), None, model.state_factor, chosen)

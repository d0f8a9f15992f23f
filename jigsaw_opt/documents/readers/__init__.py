"""Readers of the profiles that other projects publish; each gives a model."""

from jigsaw_opt.documents.readers.deeppool import read_deeppool, read_deeppool_layers
from jigsaw_opt.documents.readers.kineto import read_kineto, read_kineto_layers
from jigsaw_opt.documents.readers.pipedream import read_layer_graph, read_pipedream

__all__ = [
    "read_deeppool",
    "read_deeppool_layers",
    "read_kineto",
    "read_kineto_layers",
    "read_layer_graph",
    "read_pipedream",
]

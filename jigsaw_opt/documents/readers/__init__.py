"""Readers of the profiles that other projects publish; each gives a model."""

from jigsaw_opt.documents.readers.kineto.reading import read_kineto, read_kineto_layers
from jigsaw_opt.documents.readers.profiles.deeppool import read_deeppool, read_deeppool_layers
from jigsaw_opt.documents.readers.profiles.pipedream import read_layer_graph, read_pipedream

__all__ = [
    "read_deeppool",
    "read_deeppool_layers",
    "read_kineto",
    "read_kineto_layers",
    "read_layer_graph",
    "read_pipedream",
]

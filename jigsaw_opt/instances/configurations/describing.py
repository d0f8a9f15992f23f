"""The description of a type of network: its blocks, and the meaning of its configuration's keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from jigsaw_opt.instances.layers import Layer, layer_norm


@dataclass(frozen=True, slots=True)
class LookupTable:
    """A table of vectors, one of which is looked up for each token.

    `positions`: whether there is one for each place of a sequence. `width`: the key of the length of a vector; empty
    means that of the stack. `tied`: whether it is the table of the stack before.
    """

    entries: str
    extra: int = 0
    positions: bool = False
    reserved: int = 0
    width: str = ""
    tied: bool = False


@dataclass(frozen=True, slots=True)
class Patches:
    """A picture in patches, of which each becomes a vector, with one vector for the whole and a table of places."""


@dataclass(frozen=True, slots=True)
class Sound:
    """Two convolutions over the spectrum of a sound, and a table of places that is not trained.

    `channels, positions`: the keys of the number of frequencies and of places after the convolutions.
    """

    channels: str
    positions: str


Input = tuple[LookupTable, ...] | Patches | Sound


@dataclass(frozen=True, slots=True)
class Experts:
    """Dense blocks of which every token takes some; texts are keys.

    `count, active`: their number, and how many of them a token takes. `every, plain`: the layers with experts: every so
    many, and none of these. Empty means all layers. `shared`: width inside of the block that every token takes besides,
    with a gate; empty means that there is none.
    """

    count: str
    active: str
    inner: str
    every: str = ""
    plain: str = ""
    shared: str = ""


@dataclass(frozen=True, slots=True)
class Stack:
    """Layers of attention and dense blocks, one after the other. Texts are keys; other values stand for themselves.

    `layers, width, heads, inner`: number of layers, of features, of heads, and width inside the dense block. `groups`:
    number of heads of keys and values; empty means as many as of queries. `head_size`: features of a head; empty means
    that the heads share out the width. `input_bias, key_bias, output_bias, dense_bias`: whether queries and values,
    keys, the output of attention, and the dense block have a bias. `norm, affine`: how a layer is normalised, and
    whether with trained parameters. `entry_norm, norms`: norms before the first layer (0 or 1), and of each block (1 or
    2). `final_norm, no_final_norm`: whether there is a norm after the last layer: where the first says so and the
    second does not. `gated`: whether a dense block has a gate. `rotary, head_norms`: whether queries and keys are
    rotated, and normalised by the head. `buckets`: the key of the number of distances that the first layer tells apart.
    `crossed`: whether layers attend to the stack before as well. `experts`: the dense blocks of which a token takes
    some.
    """

    entry: Input
    layers: str = "num_hidden_layers"
    width: str = "hidden_size"
    heads: str = "num_attention_heads"
    inner: str = "intermediate_size"
    groups: str = ""
    head_size: str = ""
    input_bias: bool | str = True
    key_bias: bool = True
    output_bias: bool | str = True
    dense_bias: bool | str = True
    norm: Callable[[int, int], Layer] = layer_norm
    affine: bool | str = True
    entry_norm: int = 0
    norms: int = 1
    final_norm: bool | str = True
    no_final_norm: bool | str = False
    gated: bool | str = False
    rotary: bool = False
    head_norms: bool = False
    buckets: str = ""
    crossed: bool = False
    experts: Experts | None = None


@dataclass(frozen=True, slots=True)
class Dense:
    """A dense layer of a head.

    `outputs`: number of outputs, or the key of it; ``labels`` is the number of classes. `once`: whether it works on one
    token of a sequence, not on all. `tied`: whether it shares the table of the input, where ``tie_word_embeddings``
    says so. `second_bias`: whether one that is not tied has its bias twice. `normed`: whether an activation function
    and a norm come after it.
    """

    outputs: str | int
    bias: bool = True
    once: bool = False
    tied: bool = False
    second_bias: bool = False
    normed: bool = False


Head = tuple[Dense, ...]
"""Dense layers after the last stack. Each has as many inputs as the stack has features."""


@dataclass(frozen=True, slots=True)
class ModelType:
    """The meaning of the configurations of a type.

    `classes`: what the names of its classes begin with. `stacks`: stacks from input to output: an encoder before its
    decoder. `heads`: heads by the end of the name of a class. `usual`: the end of the name that is taken where
    ``architectures`` is missing. `encoders`: ends of names of classes that have only the first stack. `always_tied`:
    whether ``tie_word_embeddings`` is of no effect.
    """

    classes: str
    stacks: tuple[Stack, ...]
    heads: Mapping[str, Head]
    usual: str
    encoders: tuple[str, ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)
    always_tied: bool = False

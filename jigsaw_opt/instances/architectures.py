"""Four known networks as units of layers; a segment is a run of whole units."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from jigsaw_opt.instances.layers import (
    Layer,
    attention,
    batch_norm,
    conv,
    elementwise,
    embedding,
    layer_norm,
    linear,
    pool,
)


@dataclass(frozen=True, slots=True)
class Unit:
    """Layers that belong together: a residual block, a transformer layer, a classifier."""

    name: str
    layers: tuple[Layer, ...]

    @property
    def flops(self) -> int:
        """Floating-point operations of a forward pass over one sample."""
        return sum(layer.flops for layer in self.layers)

    @property
    def parameters(self) -> int:
        """Number of trained parameters."""
        return sum(layer.parameters for layer in self.layers)


def resnet50() -> tuple[Unit, ...]:
    """Return ResNet-50 on 224 x 224 images (He et al. 2016, stride in the 3 x 3 convolution)."""
    units = [Unit("stem", (conv(3, 64, 7, 224, stride=2), batch_norm(64, 112), pool(64, 112, 56)))]
    channels, size = 64, 56
    for stage, (blocks, width) in enumerate(((3, 64), (4, 128), (6, 256), (3, 512)), 1):
        for block in range(blocks):
            stride = 2 if stage > 1 and block == 0 else 1
            units.append(Unit(f"stage{stage}.{block}", _bottleneck(channels, width, size, stride)))
            channels, size = 4 * width, size // stride
    units.append(Unit("classifier", (pool(2048, 7, 1), linear(2048, 1000))))
    return tuple(units)


def _bottleneck(channels: int, width: int, size: int, stride: int) -> tuple[Layer, ...]:
    out = size // stride
    body = (
        conv(channels, width, 1, size),
        batch_norm(width, size),
        conv(width, width, 3, size, stride),
        batch_norm(width, out),
        conv(width, 4 * width, 1, out),
        batch_norm(4 * width, out),
        elementwise(4 * width * out * out),
    )
    if channels == 4 * width:
        return body
    return (*body, conv(channels, 4 * width, 1, size, stride), batch_norm(4 * width, out))


def vgg16() -> tuple[Unit, ...]:
    """Return VGG-16 on 224 x 224 images (Simonyan and Zisserman 2015, configuration D)."""
    units = []
    channels, size = 3, 224
    for stage, (count, width) in enumerate(((2, 64), (2, 128), (3, 256), (3, 512), (3, 512)), 1):
        for index in range(count):
            layers = [conv(channels, width, 3, size, bias=True)]
            if index == count - 1:
                layers.append(pool(width, size, size // 2))
            units.append(Unit(f"conv{stage}.{index}", tuple(layers)))
            channels = width
        size //= 2
    shapes = ((channels * size * size, 4096), (4096, 4096), (4096, 1000))
    return (*units, *(Unit(f"dense{index}", (linear(*shape),)) for index, shape in enumerate(shapes)))


def bert_large(rows: int = 128) -> tuple[Unit, ...]:
    """Return BERT-large in pre-training on sequences of `rows` tokens (Devlin et al. 2019)."""
    width, vocabulary = 1024, 30522
    tables = (embedding(vocabulary, width, rows), embedding(512, width, rows), embedding(2, width, rows))
    heads = (
        linear(width, width),
        linear(width, 2),
        linear(width, width, rows),
        elementwise(width * rows),
        layer_norm(width, rows),
        linear(width, vocabulary, rows, tied=True),
    )
    body = tuple(Unit(f"layer{index}", transformer(width, 16, rows)) for index in range(24))
    return (Unit("embeddings", (*tables, layer_norm(width, rows))), *body, Unit("heads", heads))


def gpt2(layers: int, width: int, heads: int, rows: int = 1024) -> tuple[Unit, ...]:
    """Return a GPT-2 style decoder (Radford et al. 2019); the output uses the input's table."""
    vocabulary = 50257
    tables = (embedding(vocabulary, width, rows), embedding(1024, width, rows))
    output = (layer_norm(width, rows), linear(width, vocabulary, rows, bias=False, tied=True))
    body = tuple(Unit(f"layer{index}", transformer(width, heads, rows)) for index in range(layers))
    return (Unit("embeddings", tables), *body, Unit("output", output))


def transformer(width: int, heads: int, rows: int, inner: int | None = None) -> tuple[Layer, ...]:
    """Return a layer of attention and a dense one.

    `inner`: units of the dense layer; None for four times the width.
    """
    inner = 4 * width if inner is None else inner
    return (
        layer_norm(width, rows),
        linear(width, 3 * width, rows),
        attention(width, heads, rows),
        linear(width, width, rows),
        elementwise(width * rows),
        layer_norm(width, rows),
        linear(width, inner, rows),
        elementwise(inner * rows),
        linear(inner, width, rows),
        elementwise(width * rows),
    )


ARCHITECTURES: Mapping[str, Callable[[], tuple[Unit, ...]]] = {
    "resnet50": resnet50,
    "vgg16": vgg16,
    "bert_large": bert_large,
    "gpt2_small": partial(gpt2, 12, 768, 12),
    "gpt2_medium": partial(gpt2, 24, 1024, 16),
}
"""Networks by name, each a function that returns its units from input to output."""

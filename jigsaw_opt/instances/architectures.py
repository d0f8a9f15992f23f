"""Five known networks as units of layers; a segment is a run of whole units."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from jigsaw_opt.instances.configurations import read_configuration
from jigsaw_opt.instances.layers import Layer, Unit, batch_norm, conv, elementwise, linear, pool


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


def _transformer(last: str, tokens: int, **configuration: object) -> tuple[Unit, ...]:
    """Return a transformer on sequences of so many tokens by its configuration; `last` is the name of its last unit."""
    *units, end = read_configuration(json.dumps(configuration), tokens).units
    return (*units, replace(end, name=last))


ARCHITECTURES: Mapping[str, Callable[[], tuple[Unit, ...]]] = {
    "resnet50": resnet50,
    "vgg16": vgg16,
    "bert_large": partial(
        _transformer,
        "heads",
        128,
        model_type="bert",
        architectures=["BertForPreTraining"],
        hidden_size=1024,
        num_hidden_layers=24,
        num_attention_heads=16,
        intermediate_size=4096,
    ),
    "gpt2_small": partial(_transformer, "output", 1024, model_type="gpt2"),
    "gpt2_medium": partial(_transformer, "output", 1024, model_type="gpt2", n_layer=24, n_embd=1024, n_head=16),
}
"""Networks by name, each a function that returns its units from input to output: BERT in pre-training (Devlin et al.
2019), and GPT-2 (Radford et al. 2019), whose output uses the input's table."""

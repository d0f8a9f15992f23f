"""Layers counted from their shapes: floating-point operations, parameters, elements moved.

All counts are exact integers for one sample; a multiply-add counts as two operations.
"""

from __future__ import annotations

from dataclasses import dataclass

from jigsaw_opt.problem.costs import ceil_div


@dataclass(frozen=True, slots=True)
class Layer:
    """The work and the memory of one layer in a forward pass over one sample.

    `reads, writes`: elements read from and written to memory, without the parameters. What is written is kept for the
    backward pass. `weight_passes`: how many times as long as the forward pass the gradients of its weights take, of the
    two of a backward pass; 0 where they are a by-product of the gradient of the input.
    """

    flops: int
    parameters: int
    reads: int
    writes: int
    weight_passes: int = 0


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


def conv(channels: int, filters: int, kernel: int, size: int, stride: int = 1, bias: bool = False) -> Layer:
    """Return a square convolution over a ``size x size`` image, padded so that only the stride shrinks it."""
    weights = kernel * kernel * channels * filters
    out = ceil_div(size, stride) ** 2
    return Layer(2 * weights * out, weights + filters * bias, channels * size * size, filters * out, 1)


def batch_norm(channels: int, size: int) -> Layer:
    """Return batch normalisation with scale, shift and the activation behind it."""
    elements = channels * size * size
    return Layer(4 * elements, 2 * channels, elements, elements)


def pool(channels: int, size: int, out: int) -> Layer:
    """Return the pooling of a ``size x size`` image to ``out x out``."""
    return Layer(channels * size * size, 0, channels * size * size, channels * out * out)


def linear(inputs: int, outputs: int, rows: int = 1, bias: bool = True, tied: bool = False) -> Layer:
    """Return a dense layer; a tied one uses the weights of another layer, though not its bias."""
    weights = 0 if tied else inputs * outputs
    return Layer(2 * inputs * outputs * rows, weights + outputs * bias, inputs * rows, outputs * rows, 1)


def layer_norm(width: int, rows: int) -> Layer:
    """Return layer normalisation with scale and shift."""
    elements = width * rows
    return Layer(8 * elements, 2 * width, elements, elements)


def rms_norm(width: int, rows: int) -> Layer:
    """Return normalisation by the root mean square, with scale."""
    elements = width * rows
    return Layer(4 * elements, width, elements, elements)


def elementwise(elements: int) -> Layer:
    """Return an activation function or a residual sum."""
    return Layer(8 * elements, 0, elements, elements)


def attention(width: int, heads: int, rows: int, others: int | None = None) -> Layer:
    """Return scores, softmax and weighted sum, without dense layers.

    `others`: tokens that are attended to; None for the same ones.
    """
    others = rows if others is None else others
    scores = heads * rows * others
    reads = (rows + 2 * others) * width + 2 * scores
    return Layer(4 * rows * others * width + 5 * scores, 0, reads, 2 * scores + rows * width)


def embedding(entries: int, width: int, rows: int) -> Layer:
    """Return a table look-up: no arithmetic, only memory."""
    return Layer(0, entries * width, rows * width, rows * width, 2)

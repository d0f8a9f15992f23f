"""What is learnt from: digits of scikit-learn, letters of matplotlib's fonts, and the sources of Python's library."""

from __future__ import annotations

import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from string import ascii_lowercase, ascii_uppercase

import torch
from torch import Generator, Tensor
from torch.nn import functional

from jigsaw_opt.executor.models.zoo.batches import digit_samples
from jigsaw_opt.executor.models.zoo.network import Batch

FONTS = (
    *(f"DejaVuSans{style}" for style in ("", "-Bold", "-Oblique", "-BoldOblique")),
    *(f"DejaVuSansMono{style}" for style in ("", "-Bold", "-Oblique", "-BoldOblique")),
    *(f"DejaVuSerif{style}" for style in ("", "-Bold", "-Italic", "-BoldItalic")),
    *(f"STIXGeneral{style}" for style in ("", "Bol", "Italic", "BolIta")),
    *("cmr10", "cmb10", "cmss10", "cmti10", "cmtt10"),
)
HELD_FONTS = 5
ALPHABETS = {"capitals": ascii_uppercase, "small letters": ascii_lowercase}
RENDERED, IMAGE = 32, 16
"""Pixels a side of a letter as it is rendered, and of an image that is learnt."""
TRAINED_IMAGES, HELD_IMAGES = 8000, 1500
HELD_STRETCHES = 200
"""Stretches of sources that are held out: enough to measure, and all would take as long as the training."""


@dataclass(frozen=True)
class Samples:
    """Data of one seed; pieces of `training` are a fair or natural split, and no sample of it overlaps `held_out`."""

    training: Tensor
    take: Callable[[Tensor], Batch]
    held_out: Batch


def digit_split(seed: int) -> Samples:
    """Hold out a random third of the digits."""
    inputs, targets = digit_samples()
    order = torch.randperm(len(targets), generator=Generator().manual_seed(seed))
    held, training = order[: len(order) // 3], order[len(order) // 3 :]
    return Samples(training, lambda chosen: (inputs[chosen], targets[chosen]), (inputs[held], targets[held]))


@lru_cache(maxsize=2)
def letter_split(alphabet: str, seed: int) -> Samples:
    """Draw images of letters; those of five random fonts are held out."""
    draw = Generator().manual_seed(seed)
    rendered = rendered_letters(ALPHABETS[alphabet])
    fonts = torch.randperm(len(FONTS), generator=draw)
    held_out = _images(rendered[fonts[:HELD_FONTS]], HELD_IMAGES, draw)
    inputs, targets = _images(rendered[fonts[HELD_FONTS:]], TRAINED_IMAGES, draw)
    return Samples(torch.arange(len(targets)), lambda chosen: (inputs[chosen], targets[chosen]), held_out)


@cache
def rendered_letters(letters: str) -> Tensor:
    """Return each letter in each font, white on black in the middle, ``(fonts, letters, 32, 32)``, values 0 to 1."""
    from matplotlib import get_data_path
    from PIL import Image, ImageDraw, ImageFont

    rendered = torch.zeros(len(FONTS), len(letters), RENDERED, RENDERED)
    for font, name in enumerate(FONTS):
        shape = ImageFont.truetype(str(Path(get_data_path(), "fonts", "ttf", f"{name}.ttf")), 26)
        for index, letter in enumerate(letters):
            image = Image.new("L", (RENDERED, RENDERED))
            ImageDraw.Draw(image).text((RENDERED / 2, RENDERED / 2), letter, 255, shape, anchor="mm")
            pixels = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8)
            rendered[font, index] = pixels.view(RENDERED, RENDERED) / 255
    return rendered


def _images(rendered: Tensor, count: int, draw: Generator) -> Batch:
    """Return letters that are turned, scaled and moved, each with pieces of two others around it, and noise."""
    targets = torch.randint(rendered.shape[1], (count,), generator=draw)
    inputs = _placed(rendered, targets, draw, clutter=False)
    for _ in range(2):
        others = torch.randint(rendered.shape[1], (count,), generator=draw)
        inputs = inputs + 0.5 * _placed(rendered, others, draw, clutter=True)
    contrast = 0.7 + 0.6 * torch.rand(count, 1, 1, generator=draw)
    inputs = contrast * inputs.clamp(max=1) + 0.15 * torch.randn(inputs.shape, generator=draw)
    return inputs[:, None], targets


def _placed(rendered: Tensor, letters: Tensor, draw: Generator, clutter: bool) -> Tensor:
    """Return images of letters in random fonts, turned by up to 17° and scaled: in the middle, or clutter at the edge.

    The middle of a letter is moved by up to a tenth of the image, and that of clutter to just outside of an edge.
    """
    count = len(letters)
    fonts = torch.randint(len(rendered), (count,), generator=draw)
    angle = 0.6 * torch.rand(count, generator=draw) - 0.3
    scale = 0.8 + 0.4 * torch.rand(count, generator=draw)
    moved = (1.2 if clutter else 0.2) * (2 * torch.rand(count, 2, generator=draw) - 1)
    if clutter:
        across = moved.abs().argmax(1, keepdim=True)
        moved = moved.scatter(1, across, 1.02 * moved.gather(1, across).sign())
    cos, sin = scale * angle.cos(), scale * angle.sin()
    maps = torch.stack([cos, -sin, moved[:, 0], sin, cos, moved[:, 1]], 1).view(count, 2, 3)
    grid = functional.affine_grid(maps, [count, 1, IMAGE, IMAGE], align_corners=False)
    return functional.grid_sample(rendered[fonts, letters][:, None], grid, align_corners=False)[:, 0]


@lru_cache(maxsize=2)
def source_split(rows: int, seed: int) -> Samples:
    """Hold out a random tenth of the files of Python's library; a sample is a stretch of `rows` bytes of one file."""
    whole, ends = library_sources()
    files = torch.repeat_interleave(torch.arange(len(ends)), torch.diff(ends, prepend=torch.zeros(1, dtype=ends.dtype)))
    draw = Generator().manual_seed(seed)
    held_file = torch.zeros(len(ends), dtype=torch.bool)
    held_file[torch.randperm(len(ends), generator=draw)[: len(ends) // 10]] = True
    starts = torch.arange(len(whole) - rows)
    starts = starts[files[starts] == files[starts + rows]]
    is_held = held_file[files[starts]]

    def take(chosen: Tensor) -> Batch:
        tokens = whole[chosen[:, None] + torch.arange(rows + 1)]
        return tokens[:, :-1], tokens[:, 1:]

    held = starts[is_held]
    held = held[torch.linspace(0, len(held) - 1, HELD_STRETCHES).long()]
    return Samples(starts[~is_held], take, take(held))


@cache
def library_sources() -> tuple[Tensor, Tensor]:
    """Return the bytes of the modules at the top of Python's library, one behind the other, and where each ends."""
    texts = [path.read_bytes() for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))]
    ends = torch.tensor([len(text) for text in texts]).cumsum(0)
    return torch.frombuffer(bytearray(b"".join(texts)), dtype=torch.uint8).long(), ends

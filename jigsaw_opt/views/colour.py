"""One colour for each job, far from its neighbours'."""

from __future__ import annotations

import colorsys

__all__ = ["GREY", "job_colour"]

_GOLDEN = 0.61803398875
GREY = "#9a9a9a"
"""No job has it unless it is to stand back."""


def job_colour(index: int) -> str:
    """Colour of job number `index` as ``#rrggbb``: hues a golden angle apart, lightness in three steps."""
    hue = (0.58 + index * _GOLDEN) % 1.0
    red, green, blue = colorsys.hls_to_rgb(hue, (0.52, 0.62, 0.44)[index % 3], 0.62)
    return f"#{round(255 * red):02x}{round(255 * green):02x}{round(255 * blue):02x}"

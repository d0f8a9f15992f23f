"""One colour for each job, far from its neighbours' for the colour-blind too, and light enough for black text."""

from __future__ import annotations

import colorsys

_FIRST = ("#4094d8", "#e69f00", "#00a67a", "#cc79a7", "#f0e442", "#e06a1a", "#56c4ef")
"""After Okabe and Ito (2008), https://jfly.uni-koeln.de/color/, the dark ones lighter."""
_GOLDEN = 0.61803398875
_LUMINANCES = (0.30, 0.55, 0.22)
"""Luminances in turn: neighbours differ without their hues, and black text has a contrast of at least 5:1."""
GREY = "#9a9a9a"
"""No job has it unless it is to stand back."""


def job_colour(index: int) -> str:
    """Return the colour of job number `index` as ``#rrggbb``: seven well-known ones, then hues a golden angle apart."""
    if index < len(_FIRST):
        return _FIRST[index]
    hue = (0.58 + index * _GOLDEN) % 1.0
    low, high = 0.0, 1.0
    for _ in range(12):
        lightness = (low + high) / 2
        if luminance(_written(hue, lightness)) < _LUMINANCES[index % 3]:
            low = lightness
        else:
            high = lightness
    return _written(hue, high)


def luminance(colour: str) -> float:
    """Return the relative luminance, from 0 to 1, of a colour ``#rrggbb`` (WCAG 2.2)."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _written(hue: float, lightness: float) -> str:
    return "#" + "".join(f"{round(255 * part):02x}" for part in colorsys.hls_to_rgb(hue, lightness, 0.62))
